package shopify

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/app/shop"
)

const (
	testShop   = "chairs.myshopify.com"
	testToken  = "shpat_0123456789abcdef"
	testClient = "client-id"
	testSecret = "client-secret"
)

// request is one call as it arrived.
type request struct {
	Path, Token string
	Query       string         `json:"query"`
	Variables   map[string]any `json:"variables"`
}

// admin is an Admin API that answers what a test says.
type admin struct {
	t       *testing.T
	client  *Client
	config  Config
	clock   *clock
	shops   *shops
	logged  *strings.Builder
	mu      sync.Mutex
	seen    []request
	answers func(w http.ResponseWriter, r *http.Request, q request)
}

// newAdmin starts an Admin API whose answers are made by the given function, and a client of it.
func newAdmin(t *testing.T, answers func(w http.ResponseWriter, r *http.Request, q request)) *admin {
	t.Helper()
	a := &admin{t: t, answers: answers, clock: &clock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}, logged: &strings.Builder{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		q := request{Path: r.URL.Path, Token: r.Header.Get("X-Shopify-Access-Token")}
		if err == nil {
			err = json.Unmarshal(body, &q)
		}
		if err != nil {
			t.Errorf("a call that is no GraphQL: %v", err)
		}
		a.mu.Lock()
		a.seen = append(a.seen, q)
		a.mu.Unlock()
		a.answers(w, r, q)
	}))
	t.Cleanup(server.Close)
	a.config = Config{ClientID: testClient, ClientSecret: testSecret, Sim: server.URL}
	a.shops = &shops{shop: shop.Shop{ID: 1, Domain: testShop, Installed: true}, token: testToken}
	a.start()
	return a
}

// start makes the client of the configuration as it is now.
func (a *admin) start() {
	a.t.Helper()
	var err error
	log := slog.New(slog.NewTextHandler(a.logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if a.client, err = New(a.config, a.shops, a.clock.Now, log); err != nil {
		a.t.Fatal(err)
	}
}

// calls returns the calls that have arrived.
func (a *admin) calls() []request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.seen)
}

// says answers every call with one status and body.
func says(status int, body string) func(http.ResponseWriter, *http.Request, request) {
	return func(w http.ResponseWriter, _ *http.Request, _ request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// saysInTurn answers the first call with the first body, and so on; every one after the last, with the last.
func saysInTurn(bodies ...string) func(http.ResponseWriter, *http.Request, request) {
	var mu sync.Mutex
	return func(w http.ResponseWriter, _ *http.Request, _ request) {
		mu.Lock()
		defer mu.Unlock()
		io.WriteString(w, bodies[0])
		if len(bodies) > 1 {
			bodies = bodies[1:]
		}
	}
}

// withCost is an answer that says what it cost and what is left.
func withCost(data string, requested, actual, left float64) string {
	return fmt.Sprintf(`{"data":%s,"extensions":{"cost":{"requestedQueryCost":%g,"actualQueryCost":%g,
		"throttleStatus":{"maximumAvailable":2000.0,"currentlyAvailable":%g,"restoreRate":100.0}}}}`, data, requested, actual, left)
}

const noDraft = `{"draftOrder":null}`

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// shops knows one shop, whose token does not expire. It panics when anything else is asked of it.
type shops struct {
	Shops
	shop  shop.Shop
	token string
	err   error
}

func (s *shops) ByID(_ context.Context, id int64) (shop.Shop, error) {
	if s.err != nil {
		return shop.Shop{}, s.err
	}
	if id != s.shop.ID {
		return shop.Shop{}, shop.ErrNotFound
	}
	return s.shop, nil
}

func (s *shops) Grant(_ context.Context, id int64) (shop.Grant, error) {
	if id != s.shop.ID || s.token == "" {
		return shop.Grant{}, shop.ErrNotFound
	}
	return shop.Grant{Token: s.token}, nil
}

func (s *shops) RefuseGrant(context.Context, int64, shop.Grant, time.Time) error { return nil }
