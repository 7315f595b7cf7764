package web

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/app/db/dbtest"
	"holdfast/app/jobs"
	"holdfast/app/shop"
	"holdfast/app/shopify"
	"holdfast/app/shopify/shopifysim"
	"holdfast/app/simkit"
	"holdfast/app/waitlist"
)

// site is the public listener over a database, beside a simulated Shopify, with no shop installed.
type site struct {
	*testing.T
	sim   *shopifysim.Test
	db    *pgxpool.Pool
	store *shop.Store
	list  *waitlist.Service
	app   *httptest.Server
	hooks chan string // topics of the webhooks that were answered
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, sim: shopifysim.NewTest(t), db: dbtest.New(t), hooks: make(chan string, 100)}
	keys, err := shop.NewKeys(bytes.Repeat([]byte{7}, 32))
	s.ok(err)
	s.store = shop.NewStore(s.db, keys)
	log := slog.New(slog.DiscardHandler)
	client, err := shopify.New(shopify.Config{ClientID: "app", ClientSecret: shopifysim.TestSecret, Sim: s.sim.URL}, s.store, s.sim.Clock.Now, log)
	s.ok(err)
	verifier, err := shopify.NewVerifier("app", shopifysim.TestSecret, "")
	s.ok(err)
	inserter, err := jobs.Inserter(s.db)
	s.ok(err)
	s.list = waitlist.New(s.db, inserter, keys, client, nil, s.sim.Clock.Now, waitlist.NoPoint, log)
	s.app = httptest.NewUnstartedServer(nil)
	h, err := New(Config{Domain: s.list, Shops: s.store, Texter: &texter{}, Shopify: verifier, Install: client, CookieKeys: keys.Derived("cookie"),
		URL: &url.URL{Scheme: "http", Host: s.app.Listener.Addr().String()}, ClientID: "app", Now: s.sim.Clock.Now, Log: log})
	s.ok(err)
	s.app.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		if r.URL.Path == "/webhooks/shopify" {
			s.hooks <- r.Header.Get("X-Shopify-Topic")
		}
	})
	s.app.Start()
	t.Cleanup(s.app.Close)
	s.sim.Deliver(s.app.URL)
	return s
}

func (s *site) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// page is what the app answered.
type page struct {
	code   int
	header http.Header
	body   string
}

// open opens the app in a shop's admin, as the admin itself does: the first address carries the token.
func (s *site) open(domain string) page {
	s.Helper()
	return s.get("/?" + url.Values{"embedded": {"1"}, "shop": {domain}, "id_token": {s.sim.IDToken(domain)}}.Encode())
}

func (s *site) get(path string, headers ...string) page {
	s.Helper()
	req, err := http.NewRequest(http.MethodGet, s.app.URL+path, nil)
	s.ok(err)
	req.Header.Set("Sec-Fetch-Dest", "iframe")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	s.ok(err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	s.ok(err)
	return page{res.StatusCode, res.Header, string(body)}
}

// shop returns the shop as it is stored; ok is false when it is not.
func (s *site) shop(domain string) (sh shop.Shop, ok bool) {
	s.Helper()
	sh, err := s.store.ByDomain(s.Context(), domain)
	if errors.Is(err, shop.ErrNotFound) {
		return sh, false
	}
	s.ok(err)
	return sh, true
}

// follow waits for a webhook of Shopify's and does the work of all that are stored.
func (s *site) follow(topic string) {
	s.Helper()
	for got := ""; got != topic; {
		select {
		case got = <-s.hooks:
		case <-s.Context().Done():
			s.Fatalf("no %s came", topic)
		}
	}
	rows, _ := s.db.Query(s.Context(), `SELECT shop_id, id FROM webhooks WHERE done_at IS NULL ORDER BY id`)
	type stored struct{ ShopID, ID int64 }
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[stored])
	s.ok(err)
	for _, w := range all {
		s.ok(s.list.HandleWebhook(s.Context(), w.ShopID, w.ID))
	}
}

func (s *site) exchanges() int {
	n := 0
	for _, r := range s.sim.Requests("") {
		if r.Op == "oauth/token_exchange" {
			n++
		}
	}
	return n
}

const simShop = "chairs.myshopify.com"

func TestAMerchantWhoOpensTheAppInstallsIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.open(simShop)
	if p.code != http.StatusOK || !strings.Contains(p.body, "Restocks under way") || strings.Contains(p.body, "banner critical") {
		t.Errorf("answered %d %s", p.code, p.body)
	}
	if sh, ok := s.shop(simShop); !ok || sh.Name != "Chairs" || sh.Currency != "EUR" || sh.Country != "IE" || !sh.HasToken {
		t.Errorf("installed %v %+v", ok, sh)
	}
	if p := s.get("/settings", "Authorization", "Bearer "+s.sim.IDToken(simShop)); p.code != http.StatusOK {
		t.Errorf("the next page is answered %d", p.code)
	}
	if s.exchanges() != 1 {
		t.Errorf("%d exchanges", s.exchanges())
	}
	if _, ok := s.shop("lamps.myshopify.com"); ok {
		t.Error("another shop is installed, too")
	}
}

func TestAnUninstalledShopIsNotLetInUntilItsMerchantInstallsAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.open(simShop)
	first, _ := s.shop(simShop)
	s.sim.Clock.Push(time.Minute)
	s.ok(s.sim.Uninstall(simShop))
	s.follow("app/uninstalled")
	if sh, _ := s.shop(simShop); sh.Installed || sh.HasToken {
		t.Errorf("after uninstalling: %+v", sh)
	}
	if p := s.open(simShop); p.code != http.StatusForbidden || !strings.Contains(p.body, "not installed in this shop") {
		t.Errorf("uninstalled: %d %s", p.code, p.body)
	}
	s.ok(s.sim.Approve(simShop))
	if p := s.open(simShop); p.code != http.StatusOK {
		t.Errorf("installed again: %d %s", p.code, p.body)
	}
	if sh, _ := s.shop(simShop); !sh.Installed || sh.ID != first.ID {
		t.Errorf("installed again: %+v", sh)
	}
}

// The webhook of an uninstallation may be retried for hours; the merchant may have come back meanwhile.
func TestALateUninstalledWebhookDoesNotUninstall(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.open(simShop)
	s.sim.Clock.Push(time.Minute)
	late := s.sim.Faults.Add(simkit.Fault{Target: "webhooks", Mode: "delay", Until: "lifted"})
	s.ok(s.sim.Uninstall(simShop))
	s.ok(s.sim.Approve(simShop))
	s.ok(s.store.RefuseGrant(t.Context(), 1, s.grant(), s.sim.Clock.Now())) // by a call that was answered 401
	s.sim.Clock.Push(time.Minute)
	if p := s.open(simShop); p.code != http.StatusOK {
		t.Fatalf("opened again: %d", p.code)
	}
	s.ok(s.sim.Faults.Delete(late))
	s.sim.Tick()
	s.follow("app/uninstalled")
	if sh, _ := s.shop(simShop); !sh.Installed || !sh.HasToken {
		t.Errorf("uninstalled by what is over: %+v", sh)
	}
}

func (s *site) grant() shop.Grant {
	s.Helper()
	g, err := s.store.Grant(s.Context(), 1)
	s.ok(err)
	return g
}

func TestAnInstallationThatFailsCanBeTriedAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, op := range []string{"oauth/token_exchange", "shop"} {
		s.sim.Faults.Add(simkit.Fault{Target: "shopify", Op: op, Mode: "status", Code: 503, Count: 1})
		if p := s.open(simShop); p.code != http.StatusServiceUnavailable || p.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d", op, p.code)
		}
		if _, ok := s.shop(simShop); ok {
			t.Errorf("%s: half an installation", op)
		}
	}
	if p := s.open(simShop); p.code != http.StatusOK {
		t.Errorf("then: %d", p.code)
	}
}

func TestTooFewPermissionsAreNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.ok(s.sim.GrantScopes(simShop, "write_products", "read_orders"))
	p := s.open(simShop)
	if p.code != http.StatusForbidden || !strings.Contains(p.body, "It needs read_inventory, read_locations, write_app_proxy, write_draft_orders.") {
		t.Errorf("%d %s", p.code, p.body)
	}
	if _, ok := s.shop(simShop); ok {
		t.Error("it is installed")
	}
}

func TestAChangeOfPermissionsIsRecordedAndShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.open(simShop)
	s.sim.Clock.Push(time.Second)
	s.ok(s.sim.GrantScopes(simShop, "read_products", "read_orders", "read_locations", "write_app_proxy", "write_draft_orders"))
	s.follow("app/scopes_update")
	if p := s.open(simShop); p.code != http.StatusOK || !strings.Contains(p.body, "It needs read_inventory.") {
		t.Errorf("with less: %d %s", p.code, p.body)
	}
	s.sim.Clock.Push(time.Second)
	s.ok(s.sim.GrantScopes(simShop, append(shopifysim.DefaultScopes(), "write_inventory")...))
	s.follow("app/scopes_update")
	if p := s.open(simShop); p.code != http.StatusOK || strings.Contains(p.body, "lacks permissions") {
		t.Errorf("with more: %d %s", p.code, p.body)
	}
	if sh, _ := s.shop(simShop); !strings.HasSuffix(sh.Scopes, "write_inventory") {
		t.Errorf("recorded %q", sh.Scopes)
	}
}

func TestOpeningTheAppRenewsWhatShopifyRefuses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.open(simShop)
	sh, _ := s.shop(simShop)
	s.sim.Clock.Push(91 * 24 * time.Hour)
	if _, err := s.list.Waitable(t.Context(), sh.ID, "", "NO-SUCH"); !errors.As(err, new(*waitlist.ShopRefused)) {
		t.Errorf("with a refresh token of 91 days: %v", err)
	}
	away := s.sim.Faults.Add(simkit.Fault{Target: "shopify", Mode: "status", Code: 502})
	if p := s.open(simShop); p.code != http.StatusOK || !strings.Contains(p.body, "Open Holdfast again") {
		t.Errorf("while it cannot be renewed: %d %s", p.code, p.body)
	}
	s.ok(s.sim.Faults.Delete(away))
	if p := s.open(simShop); p.code != http.StatusOK || strings.Contains(p.body, "Open Holdfast again") {
		t.Errorf("renewed: %d %s", p.code, p.body)
	}
	if sh, _ := s.shop(simShop); sh.Refused || !sh.HasToken {
		t.Errorf("renewed: %+v", sh)
	}
}

// answering is a network on which every request is answered the same.
type answering struct {
	code int
	body string
}

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(a.body)), Request: r}, nil
}

func TestAnIDTokenThatShopifyFindsTooOldIsFetchedAnew(t *testing.T) {
	t.Parallel()
	c := newConfig(t, &fake{})
	c.Shops.(*tenants).shop.Installed = false
	var err error
	c.Install, err = shopify.New(shopify.Config{ClientID: testClient, ClientSecret: testSecret, Transport: answering{400, `{"error":"invalid_subject_token"}`}}, nil, c.Now, c.Log)
	if err != nil {
		t.Fatal(err)
	}
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if w := send(t, h, "GET", "/", "", bearer(t)...); w.Code != http.StatusUnauthorized || w.Header().Get("X-Shopify-Retry-Invalid-Session-Request") != "1" {
		t.Errorf("a fetch: %d %v", w.Code, w.Header())
	}
	w := send(t, h, "GET", "/?shop="+testShop+"&id_token="+idToken(t, testShop, testSecret, nil), "")
	if w.Code != http.StatusOK || strings.Contains(w.Body.String(), "Chairs") || !strings.Contains(w.Body.String(), "app-bridge.js") {
		t.Errorf("a document: %d %s", w.Code, w.Body)
	}
}

// browser is a merchant's browser that is outside of the admin; it does not follow Shopify's last redirect.
func (s *site) browser() *http.Client {
	s.Helper()
	jar, err := cookiejar.New(nil)
	s.ok(err)
	return &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.Contains(r.URL.Path, "/admin/apps/") {
			return http.ErrUseLastResponse
		}
		return nil
	}}
}

func (s *site) visit(b *http.Client, address string) (*http.Response, string) {
	s.Helper()
	res, err := b.Get(address)
	s.ok(err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	s.ok(err)
	return res, string(body)
}

func TestAMerchantFromOutsideOfTheAdminApprovesTheApp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.ok(s.sim.Uninstall(simShop))
	b := s.browser()
	res, body := s.visit(b, s.app.URL+"/auth/install?shop="+simShop)
	if res.StatusCode != http.StatusFound || !strings.HasSuffix(res.Header.Get("Location"), simShop+"/admin/apps/app") {
		t.Errorf("ended at %s: %d %s", res.Request.URL, res.StatusCode, body)
	}
	if sh, ok := s.shop(simShop); !ok || !sh.Installed || !sh.HasToken || sh.Name != "Chairs" {
		t.Errorf("installed %+v", sh)
	}
	if s.grant().Refresh == "" {
		t.Error("the token does not expire")
	}
	if at := (&url.URL{Scheme: "http", Host: s.app.Listener.Addr().String(), Path: "/"}); len(b.Jar.Cookies(at)) != 0 {
		t.Error("the cookie is still there")
	}
}

// callback runs an installation up to its callback, and returns the browser and the callback's address.
func (s *site) callback() (*http.Client, *url.URL) {
	s.Helper()
	b := s.browser()
	var back *url.URL
	follow := b.CheckRedirect
	b.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if r.URL.Path == "/auth/callback" {
			back = r.URL
			return http.ErrUseLastResponse
		}
		return follow(r, via)
	}
	s.visit(b, s.app.URL+"/auth/install?shop="+simShop)
	if back == nil {
		s.Fatal("Shopify did not send the browser back")
	}
	return b, back
}

func TestACallbackIsGoodInTheBrowserThatHasBegunAndOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.ok(s.sim.Uninstall(simShop))
	resigned := func(change func(url.Values)) func(*url.URL) {
		return func(u *url.URL) {
			q := u.Query()
			q.Del("hmac")
			change(q)
			u.RawQuery = shopifysim.SignBrowser(shopifysim.TestSecret, q).Encode()
		}
	}
	for name, c := range map[string]struct {
		want  int
		spoil func(*url.URL)
		other bool // another browser
	}{
		"another browser":         {want: 403, other: true},
		"another nonce":           {want: 403, spoil: resigned(func(q url.Values) { q.Set("state", "guess") })},
		"no nonce":                {want: 403, spoil: resigned(func(q url.Values) { q.Del("state") })},
		"another shop":            {want: 403, spoil: resigned(func(q url.Values) { q.Set("shop", "lamps.myshopify.com") })},
		"a code that is none":     {want: 403, spoil: resigned(func(q url.Values) { q.Set("code", "guess") })},
		"no signature":            {want: 401, spoil: func(u *url.URL) { q := u.Query(); q.Del("hmac"); u.RawQuery = q.Encode() }},
		"changed after signing":   {want: 401, spoil: func(u *url.URL) { q := u.Query(); q.Set("shop", "lamps.myshopify.com"); u.RawQuery = q.Encode() }},
		"a shop that is none":     {want: 401, spoil: resigned(func(q url.Values) { q.Set("shop", "evil.com/"+simShop) })},
		"an address of old":       {want: 401, spoil: resigned(func(q url.Values) { q.Set("timestamp", "1700000000") })},
		"nothing but the route":   {want: 401, spoil: func(u *url.URL) { u.RawQuery = "" }},
		"a parameter given twice": {want: 401, spoil: func(u *url.URL) { u.RawQuery += "&shop=" + simShop }},
	} {
		b, back := s.callback()
		if c.spoil != nil {
			c.spoil(back)
		}
		if c.other {
			b = s.browser()
		}
		if res, body := s.visit(b, back.String()); res.StatusCode != c.want {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
		for _, domain := range []string{simShop, "lamps.myshopify.com"} {
			if _, ok := s.shop(domain); ok {
				t.Fatalf("%s: %s is installed", name, domain)
			}
		}
	}
	b, back := s.callback()
	if res, body := s.visit(b, back.String()); res.StatusCode != http.StatusFound {
		t.Fatalf("as it should be: %d %s", res.StatusCode, body)
	}
	if res, _ := s.visit(b, back.String()); res.StatusCode != http.StatusForbidden {
		t.Errorf("a second time: %d", res.StatusCode)
	}
}

func TestAnInstallationIsBegunForAShopAlone(t *testing.T) {
	t.Parallel()
	h := newWeb(t, &fake{})
	for _, query := range []string{"", "?shop=", "?shop=evil.com", "?shop=evil.com/x.myshopify.com", "?shop=x.myshopify.com.evil.com", "?shop=chairs.myshopify.com&shop=lamps.myshopify.com", "?shop=X.myshopify.com", "?shop=%00"} {
		if w := send(t, h, "GET", "/auth/install"+query, ""); w.Code != http.StatusBadRequest || w.Header().Get("Location") != "" || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("%q: %d to %q", query, w.Code, w.Header().Get("Location"))
		}
	}
	if w := send(t, h, "GET", "/auth/install?shop="+testShop+"&timestamp=1&hmac="+strings.Repeat("0", 64), ""); w.Code != http.StatusUnauthorized {
		t.Errorf("a signature that is wrong: %d", w.Code)
	}
}

func TestTheCookieOfAnInstallationIsOursAlone(t *testing.T) {
	t.Parallel()
	w := send(t, newWeb(t, &fake{}), "GET", "/auth/install?shop="+testShop, "")
	to, err := w.Result().Location()
	if err != nil || w.Code != http.StatusFound || to.Host != testShop || to.Query().Get("redirect_uri") != "https://app.example.com/auth/callback" || to.Query().Get("state") == "" {
		t.Fatalf("sent to %v (%d), %v", to, w.Code, err)
	}
	cookies := w.Result().Cookies()
	if len(cookies) != 1 {
		t.Fatalf("%d cookies", len(cookies))
	}
	c := cookies[0]
	if c.Name != "__Host-holdfast-install" || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" || c.MaxAge != 600 {
		t.Errorf("the cookie is %+v", c)
	}
}
