// Package browsertest shows pages to tests in a real Chromium.
//
//	browser := browsertest.Start(t)
//	tab := browser.Tab(t, browsertest.Phone)
//	tab.Open(address)
//	tab.Click("button")
//	tab.Says("Held for you until")
//	tab.Sound() // usable by everybody, nothing sideways, nothing moves
//
// What a tab's step cannot do fails the test at once. What the page complains about fails it at its end: an
// exception, an error in the console, a violation of the content security policy, a file that did not load.
// Expect names those that a test provokes.
package browsertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// stepTime is how long a tab may take for one step, on a machine that runs other tests as well.
const stepTime = time.Minute

// Size is that of a window, in CSS pixels.
type Size struct{ Width, Height int64 }

// The sizes that pages are designed at.
var (
	Phone = Size{390, 844}
	Desk  = Size{1280, 900}
)

// Browser is one Chromium, whose start is what takes long: share it among the tests of a package.
type Browser struct{ ctx context.Context }

// Start starts one; it ends with the test. Names of hosts lead nowhere in it: tests serve on loopback.
func Start(t testing.TB) *Browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.DisableGPU,
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses to run as root with it
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, stop := chromedp.NewContext(allocator)
	t.Cleanup(stop)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("the browser tests need Chromium: apt-get install -y chromium (Debian), brew install --cask chromium (macOS): %v", err)
	}
	return &Browser{ctx}
}

// Tab is a page in the browser, or a frame of another site in one.
type Tab struct {
	t        testing.TB
	ctx      context.Context
	expected *regexp.Regexp // complaints that are no faults
}

// Tab opens an empty tab; it closes with the test.
func (b *Browser) Tab(t testing.TB, size Size) *Tab {
	t.Helper()
	tab := attach(t, b.ctx)
	tab.Resize(size)
	// A run of tests shares one cache, and each page is to be seen as one sees it for the first time.
	tab.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true})
		return err
	})
	return tab
}

// goodbye is the last that the console of a tab says.
const goodbye = "the test has ended"

func attach(t testing.TB, parent context.Context, options ...chromedp.ContextOption) *Tab {
	t.Helper()
	ctx, stop := chromedp.NewContext(parent, options...)
	tab := &Tab{t: t, ctx: ctx}
	var complaints []string
	var listening sync.WaitGroup
	console := chromedp.Console(ctx)
	listening.Go(func() {
		for m, err := range console {
			if err != nil || m.Text == goodbye {
				return
			}
			if m.IsException() || m.Type == "error" {
				complaints = append(complaints, strings.TrimSpace(m.Text+" "+m.URL))
			}
		}
	})
	t.Cleanup(func() {
		// What the page has said so far comes before this. A tab that has gone says nothing more.
		last, done := context.WithTimeout(ctx, stepTime)
		defer done()
		if _, err := chromedp.Run(last, chromedp.Evaluate[any]("console.debug('"+goodbye+"')")); err != nil {
			stop()
		}
		listening.Wait()
		stop()
		for _, c := range complaints {
			if tab.expected == nil || !tab.expected.MatchString(c) {
				t.Errorf("the page complains: %s", c)
			}
		}
	})
	if err := chromedp.Do(ctx); err != nil { // without a timeout: it is the tab's own context
		t.Fatal(err)
	}
	return tab
}

// Frame attaches to the frame of another site whose address begins with prefix.
func (p *Tab) Frame(prefix string) *Tab {
	p.t.Helper()
	targets, err := chromedp.Targets(p.ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, target := range targets {
		if target.Type == "iframe" && strings.HasPrefix(target.URL, prefix) {
			return attach(p.t, p.ctx, chromedp.WithTargetID(target.TargetID))
		}
	}
	p.t.Fatalf("no frame shows %s: %v", prefix, targets)
	return nil
}

// Expect says which complaints of the page the test provokes: those that match the pattern.
func (p *Tab) Expect(pattern string) { p.expected = regexp.MustCompile(pattern) }

// Resize gives the window another size.
func (p *Tab) Resize(s Size) { p.t.Helper(); p.Do(chromedp.EmulateViewport(s.Width, s.Height)) }

// WithoutScripts switches JavaScript off for every page that the tab opens from now on.
func (p *Tab) WithoutScripts() {
	p.t.Helper()
	p.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	})
}

func (p *Tab) call(do func(ctx context.Context) error) {
	p.t.Helper()
	p.Do(func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) { return chromedp.Void{}, do(ctx) })
}

// Do runs steps of chromedp's own.
func (p *Tab) Do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p.ctx, stepTime)
	defer stop()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatalf("%v; the page: %s", err, p.Text())
	}
}

// Open goes to an address and waits until it has loaded.
func (p *Tab) Open(address string) { p.t.Helper(); p.Do(chromedp.Navigate(address)) }

// Click clicks on what a CSS selector finds first, once it can be seen.
func (p *Tab) Click(css string) { p.t.Helper(); p.Do(chromedp.Click(chromedp.CSS(css))) }

// Write types into a field, after what is in it.
func (p *Tab) Write(css, text string) {
	p.t.Helper()
	p.Do(chromedp.SendKeys(chromedp.CSS(css), text))
}

// Set sets the value of a field, as a person does who chooses it in a list.
func (p *Tab) Set(css, value string) { p.t.Helper(); p.Do(chromedp.SetValue(chromedp.CSS(css), value)) }

// Press presses keys, wherever the focus is.
func (p *Tab) Press(keys string) { p.t.Helper(); p.Do(chromedp.KeyEvent(keys)) }

// Text is what the page says, for messages.
func (p *Tab) Text() string {
	ctx, stop := context.WithTimeout(p.ctx, stepTime)
	defer stop()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + " " + document.body?.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// Eval runs a script in the page, awaits what it promises, and returns it.
func Eval[T any](p *Tab, script string) T {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p.ctx, stepTime)
	defer stop()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%.300s: %v", script, err)
	}
	return value
}

// Until waits until a condition, a JavaScript expression, is true of the page, through reloads: each ends the
// wait that it meets, and the next one begins.
func (p *Tab) Until(condition string) {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p.ctx, stepTime)
	defer stop()
	for {
		_, err := chromedp.Run(ctx, chromedp.Poll[bool]("!!document.body && !!("+condition+")", chromedp.WithPollingTimeout(stepTime)))
		if err == nil {
			return
		}
		if ctx.Err() != nil || errors.Is(err, chromedp.ErrPollingTimeout) {
			p.t.Fatalf("never true: %s: %v; the page: %s", condition, err, p.Text())
		}
	}
}

// Says waits until the page says something.
func (p *Tab) Says(text string) {
	p.t.Helper()
	p.Until(fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// Sound checks what must hold of any page, or of the parts of one that CSS selectors name: axe finds nothing
// that keeps people out (WCAG 2.2 AA and its best practices), nothing is wider than the window, and nothing
// has moved since the page began to load.
func (p *Tab) Sound(css ...string) {
	p.t.Helper()
	p.accessible(css)
	if wide := Eval[int](p, `document.documentElement.scrollWidth - innerWidth`); wide > 0 {
		p.t.Errorf("the page is %d pixels too wide: %v", wide, Eval[[]string](p, `[...document.querySelectorAll('body *')]
			.filter((e) => e.getBoundingClientRect().right > innerWidth).slice(-3).map((e) => e.outerHTML.slice(0, 200))`))
	}
	if shift := p.Shift(); shift != 0 {
		p.t.Errorf("the page moved by %v while it loaded", shift)
	}
}

// Shift is the sum of all layout shifts of the page so far that no act of the reader explains: Google calls
// it CLS, and 0.1 good.
func (p *Tab) Shift() float64 {
	p.t.Helper()
	return Eval[float64](p, `new Promise((resolve) => {
		let sum = 0;
		new PerformanceObserver((list) => {
			for (const entry of list.getEntries()) if (!entry.hadRecentInput) sum += entry.value;
		}).observe({ type: 'layout-shift', buffered: true });
		requestAnimationFrame(() => requestAnimationFrame(() => resolve(sum)));
	})`)
}

// Weight is how many bytes of a page came over the wire, compressed as a browser asks for it, by kind: html,
// script, css, img, other. Files of other sites that do not say so count as nothing.
func (p *Tab) Weight() map[string]int {
	p.t.Helper()
	return Eval[map[string]int](p, `(() => {
		const sum = {};
		const kind = (e) => (e.entryType === 'navigation' ? 'html' : { script: 'script', link: 'css', css: 'css', img: 'img' }[e.initiatorType] ?? 'other');
		for (const e of [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]) {
			sum[kind(e)] = (sum[kind(e)] ?? 0) + e.encodedBodySize;
		}
		return sum;
	})()`)
}

// accessible runs axe, as a content security policy that forbids it cannot keep it from doing.
func (p *Tab) accessible(css []string) {
	p.t.Helper()
	Eval[any](p, axe(p.t)+`; true`)
	where := "document"
	if len(css) > 0 {
		list, err := json.Marshal(css)
		if err != nil {
			p.t.Fatal(err)
		}
		where = "{ include: " + string(list) + " }"
	}
	found := Eval[[]string](p, `axe.run(`+where+`, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] })
		.then(({ violations }) => violations.map((v) => v.id + ' (' + v.help + '): ' + v.nodes.map((n) => n.html + ' ' + n.failureSummary).join('\n')))`)
	if len(found) > 0 {
		p.t.Errorf("axe found: %s", strings.Join(found, "\n"))
	}
}

var axeSource = sync.OnceValues(func() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the test's folder")
		}
		dir = filepath.Dir(dir)
	}
	script, err := os.ReadFile(filepath.Join(dir, "cmd", "demo", "storefront", "node", "node_modules", "axe-core", "axe.min.js"))
	return string(script), err
})

func axe(t testing.TB) string {
	t.Helper()
	script, err := axeSource()
	if err != nil {
		t.Fatalf("axe is not installed: npm ci --prefix cmd/demo/storefront/node: %v", err)
	}
	return script
}
