package browsertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// patient is a test that collects its failures, and ends when it is told to.
type patient struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (p *patient) Helper()          {}
func (p *patient) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }
func (p *patient) Errorf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = append(p.failures, fmt.Sprintf(format, args...))
}

func (p *patient) end() string {
	for i := len(p.cleanups) - 1; i >= 0; i-- {
		p.cleanups[i]()
	}
	return strings.Join(p.failures, "\n")
}

func TestAPageWithFaultsFailsItsTest(t *testing.T) {
	t.Parallel()
	pages := map[string]string{
		"sound":   `<main><h1>Chairs</h1><label>Name <input></label><p style="margin-top:400px">Below</p></main>`,
		"unnamed": `<main><h1>Chairs</h1><input></main>`,
		"wide":    `<main><h1>Chairs</h1><p style="width:2000px">Wide</p></main>`,
		"moving":  `<main><h1>Chairs</h1><p>Below</p></main><script>requestAnimationFrame(() => requestAnimationFrame(() => { document.querySelector('h1').style.paddingTop = '300px'; document.title += '.' }))</script>`,
		"throws":  `<main><h1>Chairs</h1></main><script>throw new Error('on purpose')</script>`,
		"forbids": `<meta http-equiv="Content-Security-Policy" content="img-src 'none'"><main><h1>Chairs</h1><img src="/x.png" alt="Chair"></main>`,
		"lacks":   `<main><h1>Chairs</h1><img src="/x.png" alt="Chair"></main>`,
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, ok := pages[r.URL.Path[1:]]
		if !ok {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `<!doctype html><html lang="en"><meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"><title>Chairs</title>%s`, page)
	}))
	t.Cleanup(srv.Close)
	browser := Start(t)
	for name, wants := range map[string]string{
		"sound": "", "unnamed": "label", "wide": "pixels too wide", "moving": "the page moved", "throws": "on purpose", "forbids": "Content Security Policy", "lacks": "404",
	} {
		p := &patient{TB: t}
		tab := browser.Tab(p, Phone)
		tab.Open(srv.URL + "/" + name)
		if name == "moving" {
			tab.Until(`document.title === 'Chairs.'`)
		}
		tab.Sound()
		if said := p.end(); (said == "") != (wants == "") || !strings.Contains(said, wants) {
			t.Errorf("%s: the test failed with %q, want %q", name, said, wants)
		}
	}
	p := &patient{TB: t}
	tab := browser.Tab(p, Phone)
	tab.Expect("Error: on purpose")
	tab.Open(srv.URL + "/throws")
	if said := p.end(); said != "" {
		t.Errorf("what a test expects fails it: %s", said)
	}
}
