package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/golang-jwt/jwt/v5"

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

// newBrowser starts a Chromium for the tabs of a test.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	// A page is loaded when its picture is, and the picture's host may be out of reach: fail that at once.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.DisableGPU,
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses to run as root with it
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	browser, stop := chromedp.NewContext(allocator)
	t.Cleanup(stop)
	if err := chromedp.Do(browser); err != nil {
		t.Fatalf("the browser tests need Chromium: apt-get install -y chromium (Debian), brew install --cask chromium (macOS): %v", err)
	}
	return browser
}

// frame is a page, or a frame of another site in one.
type frame struct {
	t   *testing.T
	ctx context.Context
}

// open attaches to a tab, or to the frame that an option names. The first call has no timeout: its
// context is that of the tab for as long as it lives.
func open(t *testing.T, browser context.Context, options ...chromedp.ContextOption) frame {
	t.Helper()
	ctx, stop := chromedp.NewContext(browser, options...)
	t.Cleanup(stop)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return frame{t, ctx}
}

func (f frame) do(steps ...chromedp.Action[chromedp.Void]) {
	f.t.Helper()
	ctx, stop := context.WithTimeout(f.ctx, 30*time.Second)
	defer stop()
	if err := chromedp.Do(ctx, steps...); err != nil {
		f.t.Fatal(err)
	}
}

func (f frame) eval(script string) string {
	f.t.Helper()
	ctx, stop := context.WithTimeout(f.ctx, 30*time.Second)
	defer stop()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[string](script))
	if err != nil {
		f.t.Fatalf("%s: %v", script, err)
	}
	return v
}

// until waits for a condition of the page, through reloads: each ends the wait that it meets, and the
// next one begins.
func (f frame) until(condition string) {
	f.t.Helper()
	ctx, stop := context.WithTimeout(f.ctx, 20*time.Second)
	defer stop()
	for {
		_, err := chromedp.Run(ctx, chromedp.Poll[bool]("document.body && ("+condition+")", chromedp.WithPollingTimeout(20*time.Second)))
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			f.t.Fatalf("never true: %s: %v; the page says: %s", condition, err, f.eval(`location.href + " " + document.body?.innerText`))
		}
	}
}

func (f frame) says(text string) {
	f.t.Helper()
	f.until(`document.body.innerText.includes("` + text + `")`)
}

// serve runs the pages on a loopback server whose address is their public one.
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
	srv.Config.Handler = wrap(h)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

func asIs(h http.Handler) http.Handler { return h }

// TestInARealBrowser shares one Chromium, whose start is what takes long.
func TestInARealBrowser(t *testing.T) {
	t.Parallel()
	browser := newBrowser(t)
	for name, test := range map[string]func(*testing.T, context.Context){
		"InsideTheAdminEveryClickAndFormCarriesAToken": insideTheAdmin,
		"TheReservePageFollowsItsHoldByItself":         reservePageFollows,
		"NoPageScrollsSideways":                        noSidewaysScroll,
	} {
		t.Run(name, func(t *testing.T) { test(t, browser) })
	}
}

func insideTheAdmin(t *testing.T, browser context.Context) {
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
		fmt.Fprintf(w, `<iframe width=900 height=700 src="%s/holds?embedded=1&hmac=x&timestamp=1"></iframe>`, app)
	})

	admin := open(t, browser)
	admin.do(chromedp.Navigate(simURL + "/admin"))
	targets, err := chromedp.Targets(admin.ctx)
	if err != nil {
		t.Fatal(err)
	}
	var in frame
	for _, target := range targets {
		if target.Type == "iframe" && strings.HasPrefix(target.URL, app) {
			in = open(t, admin.ctx, chromedp.WithTargetID(target.TargetID))
		}
	}
	if in.ctx == nil {
		t.Fatalf("the app is not in the frame: %v", targets)
	}

	in.says("Draft order") // the shell has become the page
	in.until(`location.search === "?embedded=1"`)
	in.do(chromedp.Click(chromedp.CSS(`.tabs a[href="/settings"]`)))
	in.says("A unit is held for")
	in.do(chromedp.SetValue(chromedp.CSS("#hold_minutes"), "soon"), chromedp.Click(chromedp.CSS("button.primary")))
	in.says("Nothing was saved: 1 value needs a look")
	if typed := in.eval(`document.querySelector("#hold_minutes").value`); typed != "soon" || len(f.done()) != 0 {
		t.Errorf("the form shows %q; done: %v", typed, f.done())
	}
	in.do(chromedp.SetValue(chromedp.CSS("#hold_minutes"), "20"), chromedp.Click(chromedp.CSS("button.primary")))
	in.says("Settings saved.")
	if got := f.done(); len(got) != 1 || f.set.HoldMinutes != 20 {
		t.Errorf("done: %v, %+v", got, f.set)
	}
	in.do(chromedp.Click(chromedp.CSS(`.tabs a[href="/holds"]`)))
	in.says("Draft order")
	in.do(chromedp.Click(chromedp.CSS(".confirm > summary")), chromedp.Click(chromedp.CSS(".confirm[open] button")))
	in.says("The unit is being released")
	if got := f.done(); len(got) != 2 || got[1] != "release 89" {
		t.Errorf("done: %v", got)
	}
	in.eval(`location.reload(), ""`) // no token in the address: the shell again, and then the page
	in.says("Draft order")
	if n := refused.Load(); n == 0 {
		t.Error("no token had run out: nothing was tried again")
	}
}

func reservePageFollows(t *testing.T, browser context.Context) {
	f := &fake{state: "securing"}
	app := serve(t, f, "", asIs)
	page := open(t, browser)
	page.do(chromedp.Navigate(app + "/r/" + goodToken))
	page.says("Reserving it now")
	f.setState("held")
	page.says("Held for you until")
	page.until(`document.querySelector(".countdown").textContent !== "15:00"`) // it is alive
	if text := page.eval(`document.querySelector("time").textContent`); strings.Contains(text, "UTC") {
		t.Errorf("the time is not in the reader's zone: %s", text)
	}
	if got := f.done(); len(got) != 0 {
		t.Errorf("looking did %v", got)
	}
}

func noSidewaysScroll(t *testing.T, browser context.Context) {
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
	page := open(t, browser)
	for _, width := range []int64{390, 1280} {
		page.do(chromedp.EmulateViewport(width, 844))
		for _, path := range append([]string{"/r/" + goodToken, "/q/" + goodToken, "/u/" + goodToken, "/privacy"}, adminPages...) {
			page.do(chromedp.Navigate(app + path))
			if wide := page.eval(`document.documentElement.scrollWidth > innerWidth ? document.documentElement.scrollWidth + " px" : ""`); wide != "" {
				t.Errorf("%s at %d px is %s wide", path, width, wide)
			}
		}
	}
}
