package shopify_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/app/db/dbtest"
	"holdfast/app/shop"
	"holdfast/app/shopify"
	"holdfast/app/shopify/shopifysim"
	"holdfast/app/simkit"
	"holdfast/app/waitlist"
)

// tenancy is a program's shops in a database, beside a simulated Shopify. Each client is as good as a
// process of its own: two share nothing but the database.
type tenancy struct {
	*testing.T
	sim    *shopifysim.Test
	db     *pgxpool.Pool
	store  *shop.Store
	logged *journal
}

type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func newTenancy(t *testing.T) *tenancy {
	t.Helper()
	keys, err := shop.NewKeys(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	n := &tenancy{T: t, sim: shopifysim.NewTest(t), db: dbtest.New(t), logged: &journal{}}
	n.store = shop.NewStore(n.db, keys)
	n.sim.Deliver("http://127.0.0.1:1") // for redirects alone; no test here waits for a webhook
	return n
}

func (n *tenancy) client() *shopify.Client { return n.clientOf(n.store, http.DefaultTransport) }

func (n *tenancy) clientOf(shops shopify.Shops, transport http.RoundTripper) *shopify.Client {
	n.Helper()
	log := slog.New(slog.NewTextHandler(n.logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c, err := shopify.New(shopify.Config{ClientID: "app", ClientSecret: shopifysim.TestSecret, Sim: n.sim.URL, Transport: transport}, shops, n.sim.Clock.Now, log)
	if err != nil {
		n.Fatal(err)
	}
	return c
}

func (n *tenancy) ok(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// install installs the first shop by an ID token and returns its id.
func (n *tenancy) install(c *shopify.Client) int64 {
	n.Helper()
	n.ok(c.InstallByToken(n.Context(), chairs, n.sim.IDToken(chairs)))
	return n.shop().ID
}

func (n *tenancy) shop() shop.Shop {
	n.Helper()
	sh, err := n.store.ByDomain(n.Context(), chairs)
	n.ok(err)
	return sh
}

func (n *tenancy) grant() shop.Grant {
	n.Helper()
	g, err := n.store.Grant(n.Context(), n.shop().ID)
	n.ok(err)
	return g
}

// asked counts the requests of one kind that the simulated Shopify has received.
func (n *tenancy) asked(op string) int {
	count := 0
	for _, r := range n.sim.Requests(chairs) {
		if r.Op == op {
			count++
		}
	}
	return count
}

func read(c *shopify.Client, ctx context.Context, shopID int64) error {
	_, err := c.ReadVariants(ctx, shopID, []int64{oak}, nil)
	return err
}

const refreshes = "oauth/refresh_token"

func TestAnIDTokenInstallsTheShop(t *testing.T) {
	t.Parallel()
	n := newTenancy(t)
	c := n.client()
	id := n.install(c)
	sh := n.shop()
	if sh.Name != "Chairs" || sh.Currency != "EUR" || sh.Country != "IE" || sh.Locale != "en" || !sh.Installed || !sh.HasToken || sh.Refused || len(shopify.MissingScopes(sh.Scopes)) > 0 {
		t.Errorf("installed %+v", sh)
	}
	g := n.grant()
	if left := g.Expires.Sub(n.sim.Clock.Now()); left < 59*time.Minute || left > time.Hour || g.Refresh == "" {
		t.Errorf("the token is good for %v", left)
	}
	n.ok(read(c, t.Context(), id))
	n.logged.mu.Lock()
	defer n.logged.mu.Unlock()
	for what, secret := range map[string]string{"the access token": g.Token, "the refresh token": g.Refresh, "the client secret": shopifysim.TestSecret} {
		if strings.Contains(n.logged.text.String(), secret) {
			t.Errorf("%s is in the log", what)
		}
	}
}

func TestWhatCannotBeInstalledLeavesNothing(t *testing.T) {
	t.Parallel()
	n := newTenancy(t)
	c := n.client()
	fail := func(what string, want any, err error) {
		t.Helper()
		if err == nil || (want != nil && !errors.As(err, want)) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := n.store.ByDomain(t.Context(), chairs); !errors.Is(err, shop.ErrNotFound) {
			t.Errorf("%s: the shop is there (%v)", what, err)
		}
	}
	stale := n.sim.IDToken(chairs)
	n.sim.Clock.Push(5 * time.Minute)
	var refused *shopify.AuthError
	fail("a stale ID token", &refused, c.InstallByToken(t.Context(), chairs, stale))
	if refused == nil || refused.Code != shopify.InvalidSubjectToken {
		t.Errorf("a stale ID token: %v", refused)
	}
	fail("a code that is none", &refused, c.InstallByCode(t.Context(), chairs, "guess"))
	fail("a domain that is none", nil, c.InstallByToken(t.Context(), "evil.com/"+chairs, n.sim.IDToken(chairs)))
	for _, f := range []simkit.Fault{{Op: "oauth/token_exchange", Mode: "html_502"}, {Op: "oauth/token_exchange", Mode: "drop_after_commit"}, {Op: "shop", Mode: "status", Code: 500}} {
		f.Target, f.Count = "shopify", 1
		n.sim.Faults.Add(f)
		fail(f.Op+" "+f.Mode, nil, c.InstallByToken(t.Context(), chairs, n.sim.IDToken(chairs)))
	}
	n.ok(n.sim.GrantScopes(chairs, "read_products", "write_draft_orders"))
	var missing *shopify.NotEnough
	fail("too few scopes", &missing, c.InstallByToken(t.Context(), chairs, n.sim.IDToken(chairs)))
	if missing == nil || !slices.Equal(missing.Missing, []string{"read_inventory", "read_locations", "read_orders", "write_app_proxy"}) {
		t.Errorf("missing %v", missing)
	}
	n.ok(n.sim.GrantScopes(chairs, shopifysim.DefaultScopes()...))
	n.install(c)
}

func TestToWriteIsToRead(t *testing.T) {
	t.Parallel()
	for granted, want := range map[string]int{
		shopify.Scopes: 0,
		strings.ReplaceAll(shopify.Scopes, "read_", "write_"): 0,
		strings.ReplaceAll(shopify.Scopes, "write_", "read_"): 2,
		strings.ReplaceAll(shopify.Scopes, ",", ", "):         0,
		"": 6,
		"unauthenticated_read_products,write_products_x,xread_inventory": 6,
	} {
		if got := shopify.MissingScopes(granted); len(got) != want {
			t.Errorf("%q lacks %v", granted, got)
		}
	}
}

func TestTheScopesAreThoseOfTheAppsConfiguration(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../storefront-extension/shopify.app.toml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^scopes = "(.*)"$`).FindSubmatch(text)
	if found == nil || string(found[1]) != shopify.Scopes {
		t.Errorf("shopify.app.toml has %q, the program %q", found, shopify.Scopes)
	}
}

func TestACodeInstallsTheShop(t *testing.T) {
	t.Parallel()
	n := newTenancy(t)
	c := n.client()
	n.ok(n.sim.Uninstall(chairs))
	address, err := c.AuthorizeURL(chairs, "nonce", "http://127.0.0.1:1/auth/callback")
	n.ok(err)
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := browser.Get(address)
	n.ok(err)
	res.Body.Close()
	back, err := res.Location()
	n.ok(err)
	verifier, err := shopify.NewVerifier("app", shopifysim.TestSecret, "")
	n.ok(err)
	domain, err := verifier.VerifyBrowser(back.Query(), n.sim.Clock.Now())
	if err != nil || domain != chairs || back.Query().Get("state") != "nonce" {
		t.Fatalf("sent back to %s: %v", back, err)
	}
	n.ok(c.InstallByCode(t.Context(), chairs, back.Query().Get("code")))
	if g := n.grant(); g.Refresh == "" {
		t.Error("the token does not expire: Shopify refuses such tokens to public apps")
	}
	n.ok(read(c, t.Context(), n.shop().ID))
}

func TestAuthorizeURLs(t *testing.T) {
	t.Parallel()
	c, err := shopify.New(shopify.Config{ClientID: "app", ClientSecret: "s3cret"}, nil, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	address, err := c.AuthorizeURL(chairs, "n&nce", "https://app.example.com/auth/callback")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if u.Scheme != "https" || u.Host != chairs || u.Path != "/admin/oauth/authorize" || q.Get("client_id") != "app" || q.Get("state") != "n&nce" ||
		q.Get("redirect_uri") != "https://app.example.com/auth/callback" || q.Get("scope") != shopify.Scopes || strings.Contains(address, "s3cret") {
		t.Errorf("sent to %s", address)
	}
	for _, domain := range []string{"evil.com/x.myshopify.com", "evil.com", "", "x.myshopify.com.evil.com", "x.myshopify.com/..", "X.myshopify.com"} {
		if address, err := c.AuthorizeURL(domain, "n", "https://app.example.com/auth/callback"); err == nil {
			t.Errorf("%q is sent to %s", domain, address)
		}
	}
	if got := c.AdminURL(chairs); got != "https://"+chairs+"/admin/apps/app" {
		t.Errorf("the admin is at %s", got)
	}
}

func TestABrowsersQueryIsVerified(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	verifier, err := shopify.NewVerifier("app", "new", "old")
	if err != nil {
		t.Fatal(err)
	}
	query := func(secret string, change func(url.Values)) url.Values {
		q := url.Values{"code": {"c0de"}, "host": {"YWRtaW4uc2hvcGlmeS5jb20vc3RvcmUvY2hhaXJz=="}, "shop": {chairs}, "state": {"n-1"}, "timestamp": {strconv.FormatInt(now.Unix(), 10)}}
		if change != nil {
			change(q)
		}
		return shopifysim.SignBrowser(secret, q)
	}
	for name, q := range map[string]url.Values{"the secret": query("new", nil), "the old secret": query("old", nil),
		"89 seconds old": query("new", func(q url.Values) { q.Set("timestamp", strconv.FormatInt(now.Unix()-89, 10)) })} {
		if domain, err := verifier.VerifyBrowser(q, now); err != nil || domain != chairs {
			t.Errorf("%s: %q, %v", name, domain, err)
		}
	}
	after := func(change func(url.Values)) url.Values { // spoilt after it was signed
		q := query("new", nil)
		change(q)
		return q
	}
	for name, q := range map[string]url.Values{
		"a guess":               query("guess", nil),
		"an empty secret":       query("", nil),
		"no signature":          after(func(q url.Values) { q.Del("hmac") }),
		"an odd signature":      after(func(q url.Values) { q.Set("hmac", "zz") }),
		"another shop":          after(func(q url.Values) { q.Set("shop", "lamps.myshopify.com") }),
		"another code":          after(func(q url.Values) { q.Set("code", "other") }),
		"another state":         after(func(q url.Values) { q.Set("state", "n-2") }),
		"a parameter more":      after(func(q url.Values) { q.Set("extra", "1") }),
		"a second shop":         after(func(q url.Values) { q.Add("shop", "lamps.myshopify.com") }),
		"a border moved":        after(func(q url.Values) { q.Del("state"); q.Set("shop", chairs+"&state=n-1") }),
		"a second signature":    after(func(q url.Values) { q.Set("signature", q.Get("hmac")) }),
		"too old":               query("new", func(q url.Values) { q.Set("timestamp", strconv.FormatInt(now.Unix()-91, 10)) }),
		"from tomorrow":         query("new", func(q url.Values) { q.Set("timestamp", strconv.FormatInt(now.Unix()+86400, 10)) }),
		"no time":               query("new", func(q url.Values) { q.Del("timestamp") }),
		"a shop that is none":   query("new", func(q url.Values) { q.Set("shop", "evil.com/x.myshopify.com") }),
		"no shop":               query("new", func(q url.Values) { q.Del("shop") }),
		"signed with a border":  query("new", func(q url.Values) { q.Set("state", "a&b=c") }),
		"signed with an equals": query("new", func(q url.Values) { q.Set("state", "a=c") }),
	} {
		if domain, err := verifier.VerifyBrowser(q, now); !errors.Is(err, shopify.ErrUnverified) || domain != "" {
			t.Errorf("%s: %q, %v", name, domain, err)
		}
	}
}

func TestATokenIsRenewedFiveMinutesBeforeItsEnd(t *testing.T) {
	t.Parallel()
	n := newTenancy(t)
	c := n.client()
	id := n.install(c)
	first := n.grant()
	n.sim.Clock.Push(54 * time.Minute)
	n.ok(read(c, t.Context(), id))
	if n.asked(refreshes) != 0 {
		t.Error("renewed with 6 minutes left")
	}
	n.sim.Clock.Push(2 * time.Minute)
	n.ok(read(c, t.Context(), id))
	second := n.grant()
	if n.asked(refreshes) != 1 || second.Token == first.Token || second.Refresh == first.Refresh || second.Expires.Before(n.sim.Clock.Now().Add(59*time.Minute)) {
		t.Errorf("with 4 minutes left there were %d refreshes; good until %v", n.asked(refreshes), second.Expires)
	}
}

// For three hours, in steps, fifty callers of two processes: as many refreshes as tokens ended.
func TestFiftyCallersOfTwoProcessesCauseOneRefresh(t *testing.T) {
	t.Parallel()
	n := newTenancy(t)
	a, b := n.client(), n.client()
	id := n.install(a)
	// The last step leaves a token that is good still; then nobody waits for the one who renews it.
	for hour, step := range []time.Duration{time.Hour, time.Hour, 57 * time.Minute, time.Hour} {
		n.sim.Clock.Push(step)
		before := n.grant()
		n.atOnce(50, func(i int) error {
			c := a
			if i%2 == 1 {
				c = b
			}
			return read(c, t.Context(), id)
		})
		if got := n.asked(refreshes); got != hour+1 {
			t.Fatalf("step %d: %d refreshes", hour+1, got)
		}
		if after := n.grant(); after.Token == before.Token || after.Refresh == before.Refresh {
			t.Errorf("step %d: the pair is the old one", hour+1)
		}
	}
}

// atOnce calls f so many times at once, and fails for every error but that the budget is used up.
func (n *tenancy) atOnce(times int, f func(i int) error) {
	n.Helper()
	var all sync.WaitGroup
	for i := range times {
		all.Go(func() {
			if err := f(i); err != nil && !errors.As(err, new(*waitlist.Throttled)) {
				n.Errorf("caller %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

// watched tells of every claim to renew that was not granted.
type watched struct {
	*shop.Store
	waits chan struct{}
}

func (w watched) ClaimRefresh(ctx context.Context, shopID int64, g shop.Grant, now, until time.Time) (bool, error) {
	claimed, err := w.Store.ClaimRefresh(ctx, shopID, g, now, until)
	if err == nil && !claimed {
		select {
		case w.waits <- struct{}{}:
		default:
		}
	}
	return claimed, err
}

func TestAProcessThatDiesWhileItRenewsIsSucceeded(t *testing.T) {
	t.Parallel()
	n := newTenancy(t)
	w := watched{n.store, make(chan struct{})}
	c := n.clientOf(w, http.DefaultTransport)
	id := n.install(c)
	n.sim.Clock.Push(time.Hour)
	now := n.sim.Clock.Now()
	claimed, err := n.store.ClaimRefresh(t.Context(), id, n.grant(), now, now.Add(30*time.Second).Truncate(time.Microsecond)) // and never seen again
	if err != nil || !claimed {
		t.Fatal(claimed, err)
	}
	done := make(chan error, 1)
	go func() { done <- read(c, t.Context(), id) }()
	for range 3 {
		select {
		case <-w.waits:
		case err := <-done:
			t.Fatalf("it did not wait for the one who has claimed: %v", err)
		}
	}
	if n.asked(refreshes) != 0 {
		t.Error("refreshed under the claim of another")
	}
	n.sim.Clock.Push(31 * time.Second)
	n.ok(<-done)
	if n.asked(refreshes) != 1 {
		t.Errorf("%d refreshes", n.asked(refreshes))
	}
}

func TestARefreshWhoseAnswerWasLostIsAskedAgain(t *testing.T) {
	t.Parallel()
	n := newTenancy(t)
	c := n.client()
	id := n.install(c)
	n.sim.Clock.Push(time.Hour)
	n.sim.Faults.Add(simkit.Fault{Target: "shopify", Op: refreshes, Mode: "drop_after_commit", Count: 1})
	if err := read(c, t.Context(), id); err == nil || errors.As(err, new(*waitlist.ShopRefused)) {
		t.Errorf("with the answer lost: %v", err)
	}
	n.ok(read(c, t.Context(), id))
	if n.shop().Refused || n.asked(refreshes) != 2 {
		t.Errorf("refused %v, %d refreshes", n.shop().Refused, n.asked(refreshes))
	}
}

func TestATokenThatIsGoodStillIsUsedWhileItCannotBeRenewed(t *testing.T) {
	t.Parallel()
	n := newTenancy(t)
	c := n.client()
	id := n.install(c)
	n.sim.Clock.Push(56 * time.Minute)
	n.sim.Faults.Add(simkit.Fault{Target: "shopify", Op: refreshes, Mode: "status", Code: 503})
	for range 3 {
		n.ok(read(c, t.Context(), id))
	}
	if got := n.asked(refreshes); got != 1 {
		t.Errorf("tried %d times in one moment", got)
	}
	n.sim.Clock.Push(31 * time.Second)
	n.ok(n.sim.Faults.Delete(""))
	n.ok(read(c, t.Context(), id))
	if left := n.grant().Expires.Sub(n.sim.Clock.Now()); left < 59*time.Minute {
		t.Errorf("not renewed when it could be: %v left", left)
	}
}

func TestARefusedRefreshAsksForTheMerchant(t *testing.T) {
	t.Parallel()
	n := newTenancy(t)
	c := n.client()
	id := n.install(c)
	n.sim.Clock.Push(91 * 24 * time.Hour) // nobody used the app; the refresh token has died
	var refused *waitlist.ShopRefused
	for range 2 {
		if err := read(c, t.Context(), id); !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized {
			t.Errorf("got %v", err)
		}
	}
	if !n.shop().Refused || n.asked(refreshes) != 1 {
		t.Errorf("the shop is marked: %v; asked %d times", n.shop().Refused, n.asked(refreshes))
	}
	n.install(c) // the merchant opens the app
	n.ok(read(c, t.Context(), id))
	if n.shop().Refused {
		t.Error("still marked")
	}
}

func TestA401RenewsOnceAndTriesOnce(t *testing.T) {
	t.Parallel()
	n := newTenancy(t)
	c := n.client()
	id := n.install(c)
	n.sim.Faults.Add(simkit.Fault{Target: "shopify", Mode: "token_expired", Count: 1})
	n.ok(read(c, t.Context(), id))
	if n.asked(refreshes) != 1 || n.shop().Refused {
		t.Errorf("%d refreshes, refused %v", n.asked(refreshes), n.shop().Refused)
	}
	n.sim.Faults.Add(simkit.Fault{Target: "shopify", Mode: "token_expired", Count: 2})
	var refused *waitlist.ShopRefused
	if err := read(c, t.Context(), id); !errors.As(err, &refused) {
		t.Errorf("a second 401: %v", err)
	}
	if n.asked(refreshes) != 2 || n.shop().Refused { // it can be renewed still
		t.Errorf("%d refreshes, refused %v", n.asked(refreshes), n.shop().Refused)
	}
	n.ok(read(c, t.Context(), id))
}

// meddler lets something happen between the look at the token and the call that carries it, and has that
// call answered with 401.
type meddler struct {
	once   sync.Once
	meddle func()
}

func (m *meddler) RoundTrip(r *http.Request) (*http.Response, error) {
	var refused *http.Response
	if strings.HasSuffix(r.URL.Path, "/graphql.json") {
		m.once.Do(func() {
			m.meddle()
			refused = &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Body: http.NoBody, Request: r}
		})
	}
	if refused != nil {
		return refused, nil
	}
	return http.DefaultTransport.RoundTrip(r)
}

func TestATokenThatWasReplacedElsewhereIsNotRenewed(t *testing.T) {
	t.Parallel()
	n := newTenancy(t)
	other := n.client()
	id := n.install(other)
	first := n.grant()
	c := n.clientOf(n.store, &meddler{meddle: func() { n.install(other) }})
	n.ok(read(c, t.Context(), id))
	if n.grant().Token == first.Token || n.asked(refreshes) != 0 || n.shop().Refused {
		t.Errorf("%d refreshes, refused %v", n.asked(refreshes), n.shop().Refused)
	}
}

func TestADeadTokenOfAFormerInstallationAsksForTheMerchant(t *testing.T) {
	t.Parallel()
	n := newTenancy(t)
	id, err := n.store.Install(t.Context(), chairs, "Chairs", "EUR", "IE", "en", "of a former installation")
	n.ok(err)
	if err := read(n.client(), t.Context(), id); !errors.As(err, new(*waitlist.ShopRefused)) || !n.shop().Refused {
		t.Errorf("%v, refused %v", err, n.shop().Refused)
	}
}

func TestATokenThatDoesNotExpireStaysAsItIs(t *testing.T) {
	t.Parallel()
	n := newTenancy(t)
	c := n.client()
	id, err := n.store.Install(t.Context(), chairs, "Chairs", "EUR", "IE", "en", n.sim.Token(chairs))
	n.ok(err)
	n.sim.Clock.Push(1000 * time.Hour)
	n.ok(read(c, t.Context(), id))
	n.sim.Faults.Add(simkit.Fault{Target: "shopify", Mode: "status", Code: 401, Count: 1})
	if err := read(c, t.Context(), id); !errors.As(err, new(*waitlist.ShopRefused)) || !n.shop().Refused {
		t.Errorf("refused: %v", err)
	}
	n.ok(read(c, t.Context(), id)) // it was not the token
	if n.shop().Refused || n.asked(refreshes) != 0 {
		t.Errorf("refused %v, %d refreshes", n.shop().Refused, n.asked(refreshes))
	}
}
