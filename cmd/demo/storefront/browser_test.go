package storefront_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"holdfast/cmd/demo/storefront"
)

// browserTime is how long a tab may take for one step.
const browserTime = time.Minute

// newBrowser starts one Chromium for all tabs of a test.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.DisableGPU)
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

// tab is one page in the browser. What goes wrong fails the test at once, an exception in a script
// at its end.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func newTab(t *testing.T, browser context.Context, width, height int64, before ...chromedp.Action[chromedp.Void]) *tab {
	t.Helper()
	ctx, stop := chromedp.NewContext(browser)
	tab := &tab{t, ctx}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, height)); err != nil {
		t.Fatal(err)
	}
	var exceptions []string
	var listening sync.WaitGroup
	console := chromedp.Console(ctx)
	listening.Go(func() {
		for m, err := range console {
			if err != nil {
				return // the tab was closed
			}
			if m.IsException() {
				exceptions = append(exceptions, m.Text)
			}
		}
	})
	t.Cleanup(func() {
		stop()
		listening.Wait()
		for _, e := range exceptions {
			t.Errorf("a script threw: %s", e)
		}
	})
	tab.do(before...)
	return tab
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p.ctx, browserTime)
	defer stop()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatalf("%v; the page: %s", err, p.body())
	}
}

func (p *tab) body() string {
	ctx, stop := context.WithTimeout(p.ctx, browserTime)
	defer stop()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

func (p *tab) open(address string) {
	p.t.Helper()
	p.do(chromedp.Navigate(address))
}

func eval[T any](p *tab, script string) T {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p.ctx, browserTime)
	defer stop()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", script, err)
	}
	return value
}

// until waits for a condition of the page.
func (p *tab) until(condition string) {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p.ctx, browserTime)
	defer stop()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](condition, chromedp.WithPollingTimeout(browserTime))); err != nil {
		p.t.Fatalf("never true: %s: %v; the page: %s", condition, err, p.body())
	}
}

func (p *tab) click(css string)      { p.t.Helper(); p.do(chromedp.Click(chromedp.CSS(css))) }
func (p *tab) write(css, s string)   { p.t.Helper(); p.do(chromedp.SendKeys(chromedp.CSS(css), s)) }
func (p *tab) choose(variant string) { p.t.Helper(); p.click(`.picker [data-id="` + variant + `"]`) }

const (
	shows    = `document.querySelector('notify-me').checkVisibility()`
	hides    = `!document.querySelector('notify-me').checkVisibility()`
	contact  = `notify-me [name="contact"]`
	consent  = `notify-me [name="consent"]:not([type="hidden"])`
	submit   = `notify-me [type="submit"]`
	said     = `document.querySelector('notify-me [role="status"]').textContent`
	wrong    = `document.querySelector('notify-me [role="alert"]').textContent`
	channels = `document.querySelector('.notify-me__channels').checkVisibility()` // the app was asked
)

func TestTheBlockInABrowser(t *testing.T) {
	t.Parallel()
	browser, st := newBrowser(t), newStreet(t)
	desktop := func(t *testing.T) *tab { t.Helper(); return newTab(t, browser, 1280, 900) }

	for _, way := range []string{"", "input", "event", "legacy", "url", "rerender"} {
		t.Run("It follows the chosen variant of a theme that announces it by "+way, func(t *testing.T) {
			t.Parallel()
			f, p := st.open(), desktop(t)
			p.open(f.page("?variant=11&announce=" + way))
			p.until(hides)
			p.choose("12")
			p.until(shows + ` && document.querySelector('notify-me [name="variant_id"]').value === '12'`)
			p.choose("11")
			p.until(hides)
		})
	}

	t.Run("It stays away when a variant cannot be waited for", func(t *testing.T) {
		t.Parallel()
		f, p := st.open(), desktop(t)
		p.open(f.page("?variant=12"))
		p.until(channels)
		p.choose("13")
		p.until(hides)
	})

	t.Run("It hides for a combination that does not exist", func(t *testing.T) {
		t.Parallel()
		f, p := st.open(), desktop(t)
		p.open(f.page("?variant=12"))
		p.until(channels)
		eval[any](p, `(() => {
			const input = document.querySelector('form[action$="/cart/add"] [name="id"]');
			input.value = '';
			input.dispatchEvent(new Event('change', { bubbles: true }));
			return true;
		})()`)
		p.until(hides)
	})

	t.Run("It ignores the variants of other products", func(t *testing.T) {
		t.Parallel()
		f, p := st.open(), desktop(t)
		p.open(f.page("?variant=12"))
		p.until(channels)
		went := eval[[]string](p, `(async () => {
			const went = [];
			const note = async (what) => {
				await new Promise((resolve) => setTimeout(resolve)); // after all that the step has started at once
				const variant = document.querySelector('notify-me [name="variant_id"]').value;
				if (variant !== '12') went.push(what + ' ' + variant);
			};
			document.body.insertAdjacentHTML('beforeend', '<form action="/cart/add"><input name="id"></form>');
			const other = document.querySelector('body > form [name="id"]');
			for (const id of ['99', '']) {
				other.value = id;
				other.dispatchEvent(new Event('change', { bubbles: true }));
				await note('input');
			}
			const event = new Event('shopify:product:select', { bubbles: true });
			event.product = { id: 'gid://shopify/Product/2' };
			event.promise = Promise.resolve({ variant: null });
			document.dispatchEvent(event);
			await note('event');
			history.replaceState({}, '', '?variant=98');
			await note('url');
			return went;
		})()`)
		if len(went) > 0 || !eval[bool](p, shows) {
			t.Errorf("the block followed %v", went)
		}
	})

	t.Run("It hides when the theme calls a variant sold out that the app knows is back", func(t *testing.T) {
		t.Parallel()
		f, p := st.open(), desktop(t)
		stale := chair()
		stale.Variants[0].Available = false // as a cached page would have it
		f.product = func() storefront.Product { return stale }
		p.open(f.page("?variant=11"))
		p.until(hides)
	})

	t.Run("A tap is sent whole and answered in place", func(t *testing.T) {
		t.Parallel()
		f, p := st.open(), desktop(t)
		p.open(f.page("?variant=12"))
		p.until(channels)
		eval[any](p, `(document.addEventListener('notify-me:submitted', (e) => (window.told = e.detail)), true)`)
		p.write(contact, "ana@example.com")
		p.write(`notify-me [name="name"]`, "Ana")
		p.click(consent)
		p.click(submit)
		p.until(said + `.includes('ana@example.com')`)
		if !eval[bool](p, `document.activeElement.matches('[role="status"]') && !document.querySelector('notify-me form').checkVisibility()`) {
			t.Error("the form still stands, or the focus is lost")
		}
		taps := f.tapped()
		if len(taps) != 1 || taps[0].contentType != "application/json" {
			t.Fatalf("the app was told %v", taps)
		}
		var got map[string]string
		if err := json.Unmarshal([]byte(taps[0].body), &got); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"variant_id": "12", "channel": "email", "contact": "ana@example.com", "name": "Ana",
			"country": "GB", "locale": "en", "consent": "email-1", "currency": "GBP",
			"time_zone": eval[string](p, `Intl.DateTimeFormat().resolvedOptions().timeZone`)}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the app was told %v, want %v", got, want)
		}
		told := eval[map[string]string](p, `window.told`)
		if !reflect.DeepEqual(told, map[string]string{"variantId": "12", "channel": "email", "status": "accepted"}) {
			t.Errorf("the theme was told %v", told)
		}

		p.choose("11")
		p.choose("12")
		p.until(`document.querySelector('notify-me form').checkVisibility() && ` + said + ` === ''`)
	})

	t.Run("A text needs its own consent and a country", func(t *testing.T) {
		t.Parallel()
		f, p := st.open(), desktop(t)
		f.refuse(http.StatusBadRequest, `{"error":{"code":"invalid_phone","field":"contact","message":"of the app"}}`)
		p.open(f.page("?variant=12"))
		p.until(channels)
		p.click(consent)
		p.click(`notify-me [value="sms"]`)
		p.until(`document.querySelector('.notify-me__consent').innerText.includes('STOP')`)
		if eval[bool](p, `document.querySelector('`+consent+`').checked`) {
			t.Error("consent to mails was taken for consent to texts")
		}
		p.write(contact, "0740")
		p.do(chromedp.SetValue(chromedp.CSS(`notify-me [name="country"]`), "IE"))
		p.click(consent)
		p.click(submit)
		p.until(wrong + `.startsWith('Check the mobile number')`)
		if !eval[bool](p, `(() => { const c = document.activeElement; return c.name === 'contact' && c.type === 'tel' &&
			c.ariaInvalid === 'true' && document.getElementById(c.getAttribute('aria-describedby')).textContent !== '' })()`) {
			t.Error("the field at fault is not marked, described and focused")
		}
		var got map[string]string
		if err := json.Unmarshal([]byte(f.tapped()[0].body), &got); err != nil {
			t.Fatal(err)
		}
		if got["channel"] != "sms" || got["country"] != "IE" || got["consent"] != "sms-7" || got["contact"] != "0740" {
			t.Errorf("the app was told %v", got)
		}
		p.write(contact, "0")
		p.until(wrong + ` === '' && !document.querySelector('notify-me [aria-invalid]')`)
		p.click(`notify-me [value="email"]`)
		p.until(`document.querySelector('.notify-me__consent').innerText.includes('Northwind & Sons may')`) // the page's own words
	})

	t.Run("What can be seen to be missing is not sent", func(t *testing.T) {
		t.Parallel()
		f, p := st.open(), desktop(t)
		p.open(f.page("?variant=12"))
		p.until(channels)
		p.click(submit)
		p.until(wrong + `.startsWith('Check the email') && document.activeElement.name === 'contact'`)
		p.write(contact, "ana@example.com")
		p.click(submit)
		p.until(wrong + `.startsWith('Tick the box') && document.activeElement.name === 'consent'`)
		if taps := f.tapped(); len(taps) != 0 {
			t.Errorf("sent %v", taps)
		}
	})

	for name, c := range map[string]struct {
		status     int
		body, says string
	}{
		"too many tries":            {429, `{"error":{"code":"rate_limited","message":"of the app"}}`, "Wait a moment"},
		"an error it does not know": {400, `{"error":{"code":"new","field":"variant_id","message":"of the app"}}`, "of the app"},
		"an answer that is no JSON": {502, `<h1>Bad gateway</h1>`, "That didn’t work"},
	} {
		t.Run("It says so and keeps what was typed after "+name, func(t *testing.T) {
			t.Parallel()
			f, p := st.open(), desktop(t)
			f.refuse(c.status, c.body)
			p.open(f.page("?variant=12"))
			p.until(channels)
			p.write(contact, "ana@example.com")
			p.click(consent)
			p.click(submit)
			p.until(fmt.Sprintf("%s.includes(%q)", wrong, c.says))
			if got := eval[string](p, `document.querySelector('`+contact+`').value`); got != "ana@example.com" {
				t.Errorf("the contact is now %q", got)
			}
		})
	}

	t.Run("A unit that came back meanwhile is announced", func(t *testing.T) {
		t.Parallel()
		f, p := st.open(), desktop(t)
		f.refuse(http.StatusOK, `{"status":"in_stock"}`)
		p.open(f.page("?variant=12"))
		p.until(channels)
		p.write(contact, "ana@example.com")
		p.click(consent)
		p.click(submit)
		p.until(said + `.includes('back in stock')`)
	})

	t.Run("Without scripts the form posts and the app answers with a page", func(t *testing.T) {
		t.Parallel()
		f := st.open()
		p := newTab(t, browser, 390, 844, func(ctx context.Context, tab *chromedp.Target) (chromedp.Void, error) {
			_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
			return chromedp.Void{}, err
		})
		p.open(f.page("?variant=12"))
		p.write(contact, "ana@example.com")
		p.click(consent)
		p.click(submit)
		p.do(chromedp.WaitVisible(chromedp.Search(`//h1[text()="You are in line"]`)))
		taps := f.tapped()
		if len(taps) != 1 || !strings.Contains(taps[0].accept, "text/html") {
			t.Fatalf("the app was told %v", taps)
		}
		got, err := url.ParseQuery(taps[0].body)
		want := url.Values{"variant_id": {"12"}, "channel": {"email"}, "contact": {"ana@example.com"}, "name": {""},
			"country": {"GB"}, "locale": {"en"}, "consent": {"", "email-1"}, "currency": {"GBP"}, "time_zone": {""}}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("the app was told %v, want %v", got, want)
		}
	})

	axe, err := os.ReadFile(filepath.Join(nodeDir, "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatalf("axe is not installed: npm ci --prefix cmd/demo/storefront/node: %v", err)
	}
	for _, width := range []int64{390, 1280} {
		t.Run(fmt.Sprintf("It can be used by everybody at %d pixels", width), func(t *testing.T) {
			t.Parallel()
			f, p := st.open(), newTab(t, browser, width, 900)
			p.open(f.page("?variant=12"))
			p.until(channels)
			if shift := eval[float64](p, `new Promise((resolve) => {
				let sum = 0;
				new PerformanceObserver((list) => {
					for (const entry of list.getEntries()) sum += entry.value;
				}).observe({ type: 'layout-shift', buffered: true });
				requestAnimationFrame(() => requestAnimationFrame(() => resolve(sum)));
			})`); shift != 0 {
				t.Errorf("the page moved by %v while it loaded", shift)
			}
			p.click(`notify-me [value="sms"]`)
			p.click(submit)
			p.until(wrong + ` !== ''`)
			if wide := eval[int](p, `document.documentElement.scrollWidth - innerWidth`); wide > 0 {
				t.Errorf("the page is %d pixels too wide", wide)
			}
			small := eval[[]string](p, `[...document.querySelectorAll('notify-me :is(input, select, button):not([type="hidden"])')]
				.map((e) => [e.name || e.type, (e.type === 'checkbox' ? e.closest('label') : e).getBoundingClientRect()])
				.filter(([, box]) => box.width < 44 || box.height < 44)
				.map(([name, box]) => name + ' ' + box.width + 'x' + box.height)`)
			if len(small) > 0 {
				t.Errorf("smaller than a fingertip (44x44): %v", small)
			}
			eval[any](p, string(axe)+`; true`)
			found := eval[[]string](p, `axe.run('notify-me', { runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice'] })
				.then(({ violations }) => violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.html).join(' ')))`)
			if len(found) > 0 {
				t.Errorf("axe found: %s", strings.Join(found, "\n"))
			}
		})
	}
}
