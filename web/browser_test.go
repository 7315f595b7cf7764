package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"holdfast/app/browsertest"
	"holdfast/app/waitlist"
)

// stubAppBridge is the part of App Bridge's documented contract that the pages rely on: every fetch to
// our own origin gets a fresh ID token, and a 401 that asks for it is tried once more.
const stubAppBridge = `(() => {
  const bare = window.fetch.bind(window);
  const token = async () => (await bare('SIM/token')).text();
  window.fetch = async (input, init) => {
    const send = async () => {
      const request = new Request(input instanceof Request ? input.clone() : input, init);
      if (new URL(request.url).origin === location.origin) request.headers.set('Authorization', 'Bearer ' + await token());
      return bare(request);
    };
    const answer = await send();
    return answer.status === 401 && answer.headers.get('X-Shopify-Retry-Invalid-Session-Request') ? send() : answer;
  };
})();`

// serve runs the pages on a loopback server whose address is their public one. Items have a picture there.
func serve(t *testing.T, f *fake, appBridge string, wrap func(http.Handler) http.Handler) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	c := newConfig(t, f)
	c.URL = &url.URL{Scheme: "http", Host: srv.Listener.Addr().String()}
	c.AppBridgeURL = appBridge
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	pages := wrap(h)
	srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/picture.svg" {
			pages.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "image/svg+xml")
		fmt.Fprint(w, `<svg xmlns="http://www.w3.org/2000/svg" width="900" height="600"><circle cx="450" cy="300" r="250" fill="#964"/></svg>`)
	})
	f.picture = c.URL.String() + "/picture.svg"
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

func asIs(h http.Handler) http.Handler { return h }

// TestInARealBrowser shares one Chromium, whose start is what takes long.
func TestInARealBrowser(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	for name, test := range map[string]func(*testing.T, *browsertest.Browser){
		"InsideTheAdminEveryClickAndFormCarriesAToken": insideTheAdmin,
		"TheReservePageFollowsItsHoldByItself":         reservePageFollows,
		"NoPageScrollsSideways":                        noSidewaysScroll,
		"EveryoneCanUseEveryShoppersPage":              shopperPagesAreSound,
		"AShoppersPageIsLightAndLoadsNothingElse":      shopperPagesAreLight,
		"AShopperNeedsNoScript":                        withoutScripts,
	} {
		t.Run(name, func(t *testing.T) { test(t, browser) })
	}
}

func insideTheAdmin(t *testing.T, browser *browsertest.Browser) {
	f := &fake{rows: 2}
	var tokens atomic.Int32
	mux := http.NewServeMux()
	sim := httptest.NewServer(mux)
	t.Cleanup(sim.Close)
	simURL := strings.Replace(sim.URL, "127.0.0.1", "localhost", 1) // another site than the app, as in life
	var refused atomic.Int32
	app := serve(t, f, simURL+"/app-bridge.js", func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			if w.Header().Get("X-Shopify-Retry-Invalid-Session-Request") != "" {
				refused.Add(1)
			}
		})
	})
	mux.HandleFunc("/app-bridge.js", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		fmt.Fprint(w, strings.Replace(stubAppBridge, "SIM", simURL, 1))
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		fmt.Fprint(w, idToken(t, testShop, testSecret, func(c jwt.MapClaims) {
			if tokens.Add(1)%2 == 1 { // every other one has run out
				c["exp"] = testNow.Add(-time.Hour).Unix()
			}
		}))
	})
	mux.HandleFunc("/admin", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<link rel=icon href=data:,><iframe width=900 height=700 src="%s/holds?embedded=1&hmac=x&timestamp=1"></iframe>`, app)
	})

	admin := browser.Tab(t, browsertest.Desk)
	admin.Open(simURL + "/admin")
	in := admin.Frame(app)
	in.Expect("401|422") // every other token has run out, and one form is filled in wrongly

	in.Says("Draft order") // the shell has become the page
	in.Until(`location.search === "?embedded=1"`)
	in.Click(`.tabs a[href="/settings"]`)
	in.Says("A unit is held for")
	in.Set("#hold_minutes", "soon")
	in.Click("button.primary")
	in.Says("Nothing was saved: 1 value needs a look")
	if typed := browsertest.Eval[string](in, `document.querySelector("#hold_minutes").value`); typed != "soon" || len(f.done()) != 0 {
		t.Errorf("the form shows %q; done: %v", typed, f.done())
	}
	in.Set("#hold_minutes", "20")
	in.Click("button.primary")
	in.Says("Settings saved.")
	if got := f.done(); len(got) != 1 || f.set.HoldMinutes != 20 {
		t.Errorf("done: %v, %+v", got, f.set)
	}
	in.Click(`.tabs a[href="/holds"]`)
	in.Says("Draft order")
	in.Click(".confirm > summary")
	in.Click(".confirm[open] button")
	in.Says("The unit is being released")
	if got := f.done(); len(got) != 2 || got[1] != "release 89" {
		t.Errorf("done: %v", got)
	}
	browsertest.Eval[string](in, `location.reload(), ""`) // no token in the address: the shell again, and then the page
	in.Says("Draft order")
	if n := refused.Load(); n == 0 {
		t.Error("no token had run out: nothing was tried again")
	}
}

func reservePageFollows(t *testing.T, browser *browsertest.Browser) {
	f := &fake{state: "securing"}
	app := serve(t, f, "", asIs)
	page := browser.Tab(t, browsertest.Desk)
	page.Open(app + "/r/" + goodToken)
	page.Says("Reserving it now")
	f.setState("held")
	page.Says("Held for you until")
	page.Until(`document.querySelector(".countdown").textContent !== "15:00"`) // it is alive
	if text := browsertest.Eval[string](page, `document.querySelector("time").textContent`); strings.Contains(text, "UTC") {
		t.Errorf("the time is not in the reader's zone: %s", text)
	}
	if got := f.done(); len(got) != 0 {
		t.Errorf("looking did %v", got)
	}
}

func noSidewaysScroll(t *testing.T, browser *browsertest.Browser) {
	f := &fake{state: waitlist.Holding, rows: 5, asked: ptr(5000), notes: []waitlist.Note{{ID: 1, Kind: "short", Detail: strings.Repeat("unbroken", 20), CreatedAt: testNow}}}
	signedIn := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Count(r.URL.Path, "/") < 3 && !strings.Contains(r.URL.Path, goodToken) {
				r.Header.Set("Authorization", bearer(t)[1])
			}
			h.ServeHTTP(w, r)
		})
	}
	nothing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Type", "text/javascript") }))
	t.Cleanup(nothing.Close)
	app := serve(t, f, nothing.URL+"/app-bridge.js", signedIn)
	page := browser.Tab(t, browsertest.Desk)
	for _, size := range []browsertest.Size{browsertest.Phone, browsertest.Desk} {
		page.Resize(size)
		for _, path := range append([]string{"/r/" + goodToken, "/q/" + goodToken, "/u/" + goodToken, "/privacy"}, adminPages...) {
			page.Open(app + path)
			if wide := browsertest.Eval[string](page, `document.documentElement.scrollWidth > innerWidth ? document.documentElement.scrollWidth + " px" : ""`); wide != "" {
				t.Errorf("%s at %d px is %s wide", path, size.Width, wide)
			}
		}
	}
}
