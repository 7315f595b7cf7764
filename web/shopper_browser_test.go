package web

import (
	"net/http"
	"slices"
	"testing"

	"holdfast/app/browsertest"
	"holdfast/app/waitlist"
)

// longNames are what shops and products are really called: German compounds without a place to break, Arabic
// from right to left.
var longNames = []string{
	"Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichenbürsten & Söhne GmbH",
	"كرسي البلوط المصنوع يدويًا من الخشب الطبيعي المعتّق في ورشة العائلة منذ عام ١٩٢٤",
}

// shopperPages is every page that a shopper sees, by the state that shows it.
var shopperPages = map[string][]string{
	"/r/" + goodToken: {"open", "reserved", "securing", "held", "gone", "lapsed", "passed", "expired", "sold", "left", "invalid"},
	"/q/" + goodToken: {waitlist.Waiting, waitlist.Offered, waitlist.Holding, waitlist.Sold, waitlist.Expired, waitlist.Left},
	"/u/" + goodToken: {"subscribed", "unsubscribed"},
	"/privacy":        {""},
}

func shopperPagesAreSound(t *testing.T, browser *browsertest.Browser) {
	f := &fake{}
	app := serve(t, f, "", asIs)
	page := browser.Tab(t, browsertest.Phone)
	page.Expect(" 4(04|10) ") // the status of some of the pages
	look := func(path, state, name string, size browsertest.Size) {
		f.setState(state)
		f.name = name
		page.Resize(size)
		page.Open(app + path)
		page.Sound()
		if small := browsertest.Eval[[]string](page, `[...document.querySelectorAll('button, summary, a')]
			.filter((e) => e.checkVisibility() && e.getBoundingClientRect().height < 24).map((e) => e.textContent)`); len(small) > 0 {
			t.Errorf("too small for a finger: %v", small)
		}
		if t.Failed() {
			t.Fatalf("this was %s in the state %q, named %q, at %d px", path, state, name, size.Width)
		}
	}
	for path, states := range shopperPages {
		for _, state := range states {
			for _, name := range append([]string{""}, longNames...) {
				look(path, state, name, browsertest.Phone)
				look(path, state, name, browsertest.Desk)
			}
		}
	}
}

func shopperPagesAreLight(t *testing.T, browser *browsertest.Browser) {
	f := &fake{}
	app := serve(t, f, "", asIs)
	page := browser.Tab(t, browsertest.Phone)
	page.Expect(" 4(04|10) ")
	for _, state := range []string{"reserved", "held"} {
		f.setState(state)
		page.Open(app + "/r/" + goodToken)
		weight := page.Weight()
		sum := 0
		for kind, bytes := range weight {
			if kind != "img" {
				sum += bytes
			}
		}
		t.Logf("%s: %v, %d bytes without the picture", state, weight, sum)
		if sum == 0 || sum >= 30_000 || weight["html"] == 0 || weight["script"] == 0 || weight["css"] == 0 {
			t.Errorf("%s: %v, %d bytes without the picture", state, weight, sum)
		}
		if hosts := browsertest.Eval[[]string](page, `[...new Set(performance.getEntriesByType('resource').map((e) => new URL(e.name).origin))]`); !slices.Equal(hosts, []string{app}) {
			t.Errorf("%s: loaded from %v", state, hosts)
		}
	}
}

// withoutScripts takes each of a shopper's acts on a page that runs no script.
func withoutScripts(t *testing.T, browser *browsertest.Browser) {
	f := &fake{}
	app := serve(t, f, "", func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			if r.Method == http.MethodPost { // what it leads to
				f.setState(map[string]string{"/r/" + goodToken: "securing", "/r/" + goodToken + "/pass": "passed", "/u/" + goodToken: "unsubscribed", "/q/" + goodToken: waitlist.Left}[r.URL.Path])
			}
		})
	})
	page := browser.Tab(t, browsertest.Phone)
	page.WithoutScripts()
	page.Expect(" 410 ")
	for _, c := range []struct{ state, path, click, then, says, act string }{
		{"open", "/r/", "button.main", "", "You have the next unit", "claim"},
		{"reserved", "/r/", "button.main", "", "You have the next unit", "claim"},
		{"held", "/r/", "button.quiet", "", "You passed this one on", "pass"},
		{"open", "/r/", "button.quiet", "", "You passed this one on", "pass"},
		{waitlist.Waiting, "/q/", "summary", "details button", "You have left the queue", "leave"},
		{"", "/u/", "button.main", "", "You are unsubscribed", "unsubscribe"},
	} {
		f.setState(c.state)
		page.Open(app + c.path + goodToken)
		page.Click(c.click)
		if c.then != "" {
			page.Click(c.then)
		}
		page.Says(c.says)
		if done := f.done(); len(done) == 0 || done[len(done)-1] != c.act {
			t.Errorf("%s in the state %q: done %v, want %s", c.click, c.state, done, c.act)
		}
	}
}
