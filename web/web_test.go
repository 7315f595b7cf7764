package web

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"holdfast/app/waitlist"
)

// strangeItems is a domain whose pictures and checkouts have addresses that run a script.
type strangeItems struct{ *fake }

func (s *strangeItems) Look(ctx context.Context, token string) (waitlist.Offer, error) {
	o, err := s.fake.Look(ctx, token)
	o.Item.ImageURL, o.CheckoutURL = "data:text/html,x", "javascript:alert(1)"
	return o, err
}

func TestEveryAnswerHasItsSecurityHeaders(t *testing.T) {
	t.Parallel()
	h := newWeb(t, &fake{state: "held"})
	for path, private := range map[string]bool{"/r/" + goodToken: true, "/r/guessed": true, "/u/" + goodToken: true, "/q/" + goodToken: true, "/privacy": false, "/nowhere": false, proxied("/proxy/waitlist", nil): true} {
		w := send(t, h, "GET", path, "")
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Strict-Transport-Security": "max-age=", "Content-Security-Policy": "frame-ancestors 'none'"} {
			if !strings.Contains(w.Header().Get(name), want) {
				t.Errorf("%s: %s is %q", path, name, w.Header().Get(name))
			}
		}
		if csp := w.Header().Get("Content-Security-Policy"); strings.Contains(csp, "unsafe") || !strings.Contains(csp, "default-src 'none'") {
			t.Errorf("%s: %s", path, csp)
		}
		if private != (w.Header().Get("Cache-Control") == "no-store") || private != strings.Contains(w.Header().Get("X-Robots-Tag"), "noindex") {
			t.Errorf("%s: Cache-Control %q, X-Robots-Tag %q", path, w.Header().Get("Cache-Control"), w.Header().Get("X-Robots-Tag"))
		}
		if strings.HasPrefix(path, "/r/") && w.Header().Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: Referrer-Policy %q", path, w.Header().Get("Referrer-Policy"))
		}
	}
}

func TestLogsShowRoutesAndNeverTokens(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := newConfig(t, &fake{state: "open", err: errors.New("the cause")})
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	w := send(t, h, "POST", "/r/"+goodToken, "")
	send(t, h, "GET", "/?id_token=s3cret", "")
	send(t, h, "GET", "/nowhere/s3cret", "")
	send(t, h, "POST", "/webhooks/twilio/s3cret/inbound", "")
	for _, want := range []string{"route=/r/{token}", "the cause", "request_id=" + w.Header().Get("X-Request-Id"), "route=unmatched", "status=500"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &log)
		}
	}
	for _, secret := range []string{goodToken, "s3cret"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log shows %s:\n%s", secret, &log)
		}
	}
}

type panicking struct{ *fake }

func (panicking) Look(context.Context, string) (waitlist.Offer, error) { panic("s3cret") }

func TestAPanicIsAPlainPageAndALogLine(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f := &fake{}
	c := newConfig(t, f)
	c.Domain, c.Log = panicking{f}, slog.New(slog.NewTextHandler(&log, nil))
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	w := send(t, h, "GET", "/r/"+goodToken, "")
	if w.Code != 500 || !strings.Contains(w.Body.String(), "Something went wrong on our side") || strings.Contains(w.Body.String(), "s3cret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if !strings.Contains(log.String(), "panic=s3cret") || !strings.Contains(log.String(), "Look") {
		t.Errorf("the log has no stack: %s", &log)
	}
}

func TestAWrongMethodIsRefusedAndNamesTheRightOnes(t *testing.T) {
	t.Parallel()
	h := newWeb(t, &fake{})
	for _, c := range [][3]string{{"PUT", "/r/" + goodToken, "POST"}, {"DELETE", "/proxy/waitlist", "POST"}, {"GET", "/webhooks/shopify", "POST"}, {"POST", "/privacy", "GET"}} {
		w := send(t, h, c[0], c[1], "")
		if w.Code != http.StatusMethodNotAllowed || !strings.Contains(strings.Join(w.Header().Values("Allow"), " "), c[2]) {
			t.Errorf("%s %s: %d, Allow %v", c[0], c[1], w.Code, w.Header().Values("Allow"))
		}
	}
}

func TestWhatIsNotBuiltSaysSo(t *testing.T) {
	t.Parallel()
	h := newWeb(t, &fake{})
	for _, c := range [][2]string{{"POST", "/proxy/waitlist/code"}, {"GET", "/c/" + goodToken}, {"POST", "/c/" + goodToken}} {
		if w := send(t, h, c[0], c[1], ""); w.Code != http.StatusNotImplemented || !strings.Contains(w.Body.String(), "does not offer it: ") {
			t.Errorf("%s %s: %d %s", c[0], c[1], w.Code, w.Body)
		}
	}
}

func TestStaticFilesAreKeptByTheirContent(t *testing.T) {
	t.Parallel()
	a, err := newAssets()
	if err != nil {
		t.Fatal(err)
	}
	h := newWeb(t, &fake{})
	for _, name := range []string{"shopper.css", "shopper.js", "admin.css", "tokens.css", "app.js", "turbo.js", "turbo.LICENSE.txt"} {
		w := send(t, h, "GET", a.url(name), "")
		if w.Code != 200 || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %q", name, w.Code, w.Header().Get("Cache-Control"))
		}
		if w := send(t, h, "GET", "/static/"+name+"?v=old", ""); strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s of another version is kept for ever", name)
		}
	}
	for _, path := range []string{"/static/", "/static/..%2fweb.go", "/static/none.css"} {
		if w := send(t, h, "GET", path, ""); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

func TestAConfigurationThatCannotServeIsRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(c *Config){
		"no verifier":  func(c *Config) { c.Shopify = nil },
		"no domain":    func(c *Config) { c.Domain = nil },
		"no client id": func(c *Config) { c.ClientID = "" },
		"no address":   func(c *Config) { c.URL = &url.URL{Path: "app.example.com"} },
		"bad bridge":   func(c *Config) { c.AppBridgeURL = "app-bridge.js" },
	} {
		c := newConfig(t, &fake{})
		spoil(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestTheOperatorLearnsWhetherRequestsCanBeServed(t *testing.T) {
	t.Parallel()
	var ping, schema error
	h := Ops(OpsConfig{Ping: func(context.Context) error { return ping }, UpToDate: func(context.Context) error { return schema }, Log: slog.New(slog.DiscardHandler),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("counted 1\n")) })})
	get := func(path string) (int, string) { w := send(t, h, "GET", path, ""); return w.Code, w.Body.String() }
	if code, body := get("/readyz"); code != 200 || body != `{"ok":true}`+"\n" {
		t.Errorf("ready: %d %s", code, body)
	}
	schema = errors.New("run holdfast migrate")
	if code, body := get("/readyz"); code != 503 || !strings.Contains(body, "run holdfast migrate") {
		t.Errorf("old schema: %d %s", code, body)
	}
	ping = errors.New("connection refused")
	if code, body := get("/readyz"); code != 503 || !strings.Contains(body, "connection refused") {
		t.Errorf("no database: %d %s", code, body)
	}
	if code, _ := get("/healthz"); code != 200 {
		t.Errorf("alive without a database: %d", code)
	}
	if code, body := get("/metrics"); code != 200 || body != "counted 1\n" {
		t.Errorf("what is counted: %d %s", code, body)
	}
	if code, _ := get("/jobs"); code != 501 {
		t.Errorf("the page of jobs: %d", code)
	}
	if w := send(t, h, "PUT", "/clock", ""); w.Code != 404 {
		t.Errorf("a clock in production: %d", w.Code)
	}
}
