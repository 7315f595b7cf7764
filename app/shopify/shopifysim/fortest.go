package shopifysim

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"

	"holdfast/app/simkit"
)

// TestSecret is the client secret of the app in a Test.
const TestSecret = "hush"

// DocumentsVariable is the environment's variable with the directory for Options.Documents in tests.
const DocumentsVariable = "HOLDFAST_TEST_DOCUMENTS"

// T is what NewTest needs of a *testing.T.
type T interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// Test is a simulated Shopify that listens, for one test.
type Test struct {
	*Server
	URL    string // what the program gets as its HOLDFAST_SIM
	Clock  *simkit.Clock
	Faults *simkit.Faults
	app    atomic.Pointer[string]
}

// NewTest starts a simulated Shopify with the demo's world, and stops it when the test ends. Its webhooks
// are kept, not delivered, until Deliver says where the app listens.
func NewTest(t T) *Test {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	test := &Test{URL: "http://" + srv.Listener.Addr().String(), Clock: &simkit.Clock{}, Faults: &simkit.Faults{}}
	sim, err := New(Options{
		Clock: test.Clock, Faults: test.Faults, ClientID: "app", ClientSecret: TestSecret, Public: test.URL,
		Documents: os.Getenv(DocumentsVariable),
		AppURL: func() string {
			if url := test.app.Load(); url != nil {
				return *url
			}
			return ""
		},
	})
	if err != nil {
		t.Fatalf("start the simulated Shopify: %v", err)
	}
	test.Server = sim
	srv.Config.Handler = sim.Handler()
	srv.Start()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); sim.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := test.Faults.Delete(""); err != nil { // or a held request would keep the server from closing
			t.Fatalf("lift all faults: %v", err)
		}
		srv.CloseClientConnections()
		srv.Close()
	})
	return test
}

// Deliver makes webhooks and proxied requests go to an app at this base URL.
func (t *Test) Deliver(appURL string) { t.app.Store(&appURL) }

// Client is an HTTP client that reaches every *.myshopify.com at this server, for code that builds those
// addresses itself.
func (t *Test) Client() *http.Client {
	base := strings.TrimPrefix(t.URL, "http://")
	return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Host = r.URL.Hostname()
		r.URL.Scheme, r.URL.Host = "http", base
		return http.DefaultTransport.RoundTrip(r)
	})}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
