package shopifysim

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"holdfast/app/simkit"
)

// grant changes what the first shop grants.
func (s *Test) grant(t *testing.T, scopes ...string) {
	t.Helper()
	if err := s.GrantScopes(chairs, scopes...); err != nil {
		t.Fatal(err)
	}
}

// tokens is an answer of the token endpoint.
type tokens struct {
	tokenAnswer
	Error  string `json:"error"`
	status int
}

// ask posts to the token endpoint of a shop; change replaces parts of what is asked.
func (s *Test) ask(t *testing.T, shop string, ask map[string]string) tokens {
	t.Helper()
	body := map[string]string{"client_id": "app", "client_secret": TestSecret}
	maps.Copy(body, ask)
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Client().Post("https://"+shop+"/admin/oauth/access_token", "application/json", bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got := tokens{status: res.StatusCode}
	text, err := io.ReadAll(res.Body)
	if err != nil || json.Unmarshal(text, &got) != nil {
		t.Fatalf("answered %d %q, %v", res.StatusCode, text, err)
	}
	return got
}

func exchange(idToken string) map[string]string {
	return map[string]string{"grant_type": grantExchange, "subject_token": idToken, "subject_token_type": typeIDToken, "requested_token_type": typeOffline, "expiring": "1"}
}

func refresh(token string) map[string]string {
	return map[string]string{"grant_type": "refresh_token", "refresh_token": token}
}

// works says whether the Admin API takes a token.
func (s *Test) works(t *testing.T, token string) bool {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "https://"+chairs+"/admin/api/2026-10/graphql.json", bytes.NewReader([]byte(`{"query":"{shop{name}}"}`)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Shopify-Access-Token", token)
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

func TestATokenThatExpiresIsGoodForAnHourOfTheClock(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	got := s.ask(t, chairs, exchange(s.IDToken(chairs)))
	if got.status != 200 || got.ExpiresIn != 3600 || got.RefreshExpiresIn != 90*24*3600 || got.RefreshToken == "" || got.Scope == "" {
		t.Fatalf("answered %+v", got)
	}
	if !s.works(t, got.AccessToken) {
		t.Error("the new token is refused")
	}
	s.Clock.Push(59 * time.Minute)
	if !s.works(t, got.AccessToken) {
		t.Error("refused after 59 minutes")
	}
	s.Clock.Push(time.Minute)
	if s.works(t, got.AccessToken) {
		t.Error("good for longer than an hour")
	}
}

func TestWithoutExpiringATokenLastsForEver(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	ask := exchange(s.IDToken(chairs))
	delete(ask, "expiring")
	got := s.ask(t, chairs, ask)
	if got.RefreshToken != "" || got.ExpiresIn != 0 {
		t.Errorf("answered %+v", got)
	}
	s.Clock.Push(50 * time.Hour)
	if !s.works(t, got.AccessToken) {
		t.Error("refused after two days")
	}
}

func TestASupersededRefreshTokenIsRefusedOnceItsReplacementWasUsed(t *testing.T) {
	t.Parallel()
	for what, use := range map[string]func(*Test, tokens){
		"the access token":  func(s *Test, got tokens) { s.works(t, got.AccessToken) },
		"the refresh token": func(s *Test, got tokens) { s.ask(t, chairs, refresh(got.RefreshToken)) },
	} {
		s := NewTest(t)
		first := s.ask(t, chairs, exchange(s.IDToken(chairs)))
		lost := s.ask(t, chairs, refresh(first.RefreshToken))
		again := s.ask(t, chairs, refresh(first.RefreshToken)) // its answer was lost
		if lost.status != 200 || again.status != 200 || again.RefreshToken == lost.RefreshToken {
			t.Fatalf("%s: refreshed %+v, again %+v", what, lost, again)
		}
		if s.works(t, lost.AccessToken) {
			t.Errorf("%s: a pair that was replaced is good", what)
		}
		if !s.works(t, first.AccessToken) {
			t.Errorf("%s: the old token is dead before its replacement was used", what)
		}
		use(s, again)
		if got := s.ask(t, chairs, refresh(first.RefreshToken)); got.Error != "invalid_grant" || got.status != 400 {
			t.Errorf("%s was used: %+v", what, got)
		}
		if s.works(t, first.AccessToken) {
			t.Errorf("%s was used: the old access token is good", what)
		}
	}
}

func TestARefreshTokenLivesForNinetyDays(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	first := s.ask(t, chairs, exchange(s.IDToken(chairs)))
	s.Clock.Push(90*24*time.Hour - time.Minute)
	second := s.ask(t, chairs, refresh(first.RefreshToken))
	if second.status != 200 {
		t.Errorf("on the last day: %+v", second)
	}
	s.Clock.Push(90 * 24 * time.Hour)
	if got := s.ask(t, chairs, refresh(second.RefreshToken)); got.Error != "invalid_grant" {
		t.Errorf("after 90 days: %+v", got)
	}
}

func TestTheTokenEndpointRefusesWhatShopifyRefuses(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	stale := s.IDToken(chairs)
	s.Clock.Push(2 * time.Minute)
	with := func(ask map[string]string, name, value string) map[string]string {
		ask = maps.Clone(ask)
		ask[name] = value
		return ask
	}
	good := exchange(s.IDToken(chairs))
	for what, c := range map[string]struct {
		ask  map[string]string
		code string
	}{
		"a stale ID token":    {exchange(stale), "invalid_subject_token"},
		"another shop's":      {exchange(s.IDToken("lamps.myshopify.com")), "invalid_subject_token"},
		"no ID token":         {exchange("x"), "invalid_subject_token"},
		"another app":         {with(good, "client_id", "other"), "invalid_client"},
		"a wrong secret":      {with(good, "client_secret", "guess"), "invalid_client"},
		"an online token":     {with(good, "requested_token_type", "urn:shopify:params:oauth:token-type:online-access-token"), "invalid_request"},
		"another grant":       {with(good, "grant_type", "password"), "unsupported_grant_type"},
		"an unknown refresh":  {refresh("shprt_guess"), "invalid_grant"},
		"an empty refresh":    {refresh(""), "invalid_grant"},
		"a code that is none": {map[string]string{"code": "guess"}, "invalid_request"},
	} {
		if got := s.ask(t, chairs, c.ask); got.Error != c.code || got.AccessToken != "" || got.status != 400 {
			t.Errorf("%s: %+v, want %s", what, got, c.code)
		}
	}
	if err := s.Uninstall(chairs); err != nil {
		t.Fatal(err)
	}
	if got := s.ask(t, chairs, exchange(s.IDToken(chairs))); got.Error != "invalid_client" {
		t.Errorf("uninstalled: %+v", got)
	}
}

func TestUninstallingEndsEveryToken(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	got := s.ask(t, chairs, exchange(s.IDToken(chairs)))
	if err := s.Uninstall(chairs); err != nil {
		t.Fatal(err)
	}
	if err := s.Approve(chairs); err != nil {
		t.Fatal(err)
	}
	if s.works(t, got.AccessToken) || s.works(t, s.Token(chairs)) || s.ask(t, chairs, refresh(got.RefreshToken)).Error != "invalid_grant" {
		t.Error("a token has outlived the installation")
	}
}

func TestTheAuthorizePageSendsTheBrowserBackWithACode(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	s.Deliver("https://app.example.com")
	client := s.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	open := func(change func(url.Values)) *http.Response {
		q := url.Values{"client_id": {"app"}, "scope": {"read_products,write_draft_orders"}, "redirect_uri": {"https://app.example.com/auth/callback"}, "state": {"nonce"}}
		if change != nil {
			change(q)
		}
		res, err := client.Get("https://" + chairs + "/admin/oauth/authorize?" + q.Encode())
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res
	}
	res := open(nil)
	back, err := res.Location()
	if err != nil || res.StatusCode != http.StatusFound {
		t.Fatalf("answered %d, %v", res.StatusCode, err)
	}
	q := back.Query()
	sent := q.Get("hmac")
	q.Del("hmac")
	if back.Host != "app.example.com" || q.Get("state") != "nonce" || q.Get("shop") != chairs || sent == "" || sent != SignBrowser(TestSecret, q).Get("hmac") {
		t.Errorf("sent back to %s", back)
	}
	ask := map[string]string{"code": q.Get("code"), "expiring": "1"}
	if got := s.ask(t, chairs, ask); got.status != 200 || got.ExpiresIn != 3600 {
		t.Errorf("the code is worth %+v", got)
	}
	if got := s.ask(t, chairs, ask); got.status != 400 {
		t.Errorf("the code was good twice: %+v", got)
	}
	for name, value := range map[string]string{"client_id": "other", "redirect_uri": "https://evil.example.com/auth/callback", "scope": "read_customers"} {
		if res := open(func(q url.Values) { q.Set(name, value) }); res.StatusCode != 400 {
			t.Errorf("%s %s is answered %d", name, value, res.StatusCode)
		}
	}
}

func TestAFaultOfTheAdminAPIIsNotSpentOnTheTokenEndpoint(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	got := s.ask(t, chairs, exchange(s.IDToken(chairs)))
	s.Faults.Add(simkit.Fault{Target: "shopify", Mode: "token_expired", Count: 1})
	second := s.ask(t, chairs, exchange(s.IDToken(chairs)))
	if second.status != 200 || s.works(t, got.AccessToken) {
		t.Errorf("%+v; the first call after the fault was answered", second)
	}
	if s.works(t, got.AccessToken) || !s.works(t, second.AccessToken) {
		t.Error("token_expired ends the one token that was used, and no other")
	}
	s.Faults.Add(simkit.Fault{Target: "shopify", Op: opRefresh, Mode: "drop_after_commit", Count: 1})
	req, err := http.NewRequest(http.MethodPost, "https://"+chairs+"/admin/oauth/access_token", bytes.NewReader([]byte(`{"client_id":"app","client_secret":"`+TestSecret+`","grant_type":"refresh_token","refresh_token":"`+second.RefreshToken+`"}`)))
	if err != nil {
		t.Fatal(err)
	}
	if res, err := s.Client().Do(req); err == nil {
		res.Body.Close()
		t.Error("the fault did not fire")
	}
	if got := s.ask(t, chairs, refresh(second.RefreshToken)); got.status != 200 {
		t.Errorf("after an answer that was lost: %+v", got)
	}
	ops := []string{}
	for _, r := range s.Requests(chairs) {
		ops = append(ops, r.Op)
	}
	if want := []string{opExchange, opExchange, "shop", "" /* refused unread */, "shop", opRefresh, opRefresh}; !slices.Equal(ops, want) {
		t.Errorf("recorded %v, want %v", ops, want)
	}
}
