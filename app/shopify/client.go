package shopify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"sync"
	"time"

	goshopify "github.com/bold-commerce/go-shopify/v4"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

// Version is the version of the Admin API that the documents are written for.
const Version = "2026-10"

// Timeout is the longest that one call may take, whatever its context allows.
const Timeout = 10 * time.Second

// Config is what the client of an app needs to know.
type Config struct {
	ClientID     string
	ClientSecret string

	// APIVersion is a version of the Admin API, such as "2026-10"; empty means Version.
	APIVersion string

	// Sim, when set, is the base URL of a simulated Shopify on this machine: a request for
	// https://{shop}/PATH goes to {Sim}/shopify/{shop}/PATH. Empty in production.
	Sim string

	// Transport makes the connections; nil means http.DefaultTransport.
	Transport http.RoundTripper

	// Called, if not nil, is told of each call when it has ended, or was not made. It may be called by
	// several goroutines at once.
	Called func(Call)
}

// Shops is what the client needs to know of shops; *shop.Store is one, and its comments say what each
// method promises.
type Shops interface {
	ByID(ctx context.Context, id int64) (shop.Shop, error)
	InstallGrant(ctx context.Context, p shop.Profile, g shop.Grant, now time.Time) (int64, error)
	Grant(ctx context.Context, shopID int64) (shop.Grant, error)
	ClaimRefresh(ctx context.Context, shopID int64, g shop.Grant, now, until time.Time) (bool, error)
	Renew(ctx context.Context, shopID int64, until time.Time, g shop.Grant, now time.Time) (bool, error)
	Unclaim(ctx context.Context, shopID int64, until time.Time) error
	RefuseGrant(ctx context.Context, shopID int64, g shop.Grant, now time.Time) error
	AcceptGrant(ctx context.Context, shopID int64, g shop.Grant) error
}

// Client calls the Admin API for any number of shops, from any number of goroutines. It is the
// domain's waitlist.Shopify.
type Client struct {
	app       goshopify.App
	version   string
	sim       *url.URL // nil in production
	transport http.RoundTripper
	called    func(Call)
	shops     Shops
	tokens    *TokenSource
	now       func() time.Time
	log       *slog.Logger

	mu      sync.Mutex
	buckets map[int64]*bucket
}

var (
	_ waitlist.Shopify = (*Client)(nil)
	_ Shops            = (*shop.Store)(nil)
)

var versionPattern = regexp.MustCompile(`^[0-9]{4}-(01|04|07|10)$`)

// New returns a client, or every fault of its configuration. now is the clock by which budgets refill.
func New(c Config, shops Shops, now func() time.Time, log *slog.Logger) (*Client, error) {
	var faults []error
	if c.ClientID == "" {
		faults = append(faults, errors.New("shopify: the client id is empty: copy it from the app's page in the Dev Dashboard"))
	}
	if c.ClientSecret == "" {
		faults = append(faults, errors.New("shopify: the client secret is empty: copy it from the app's page in the Dev Dashboard"))
	}
	if c.APIVersion == "" {
		c.APIVersion = Version
	}
	// go-shopify falls back to the oldest version when it does not like one.
	if !versionPattern.MatchString(c.APIVersion) {
		faults = append(faults, fmt.Errorf("shopify: %q is no version of the Admin API: use one such as %s", c.APIVersion, Version))
	}
	sim, err := simulator(c.Sim)
	if err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if c.Transport == nil {
		c.Transport = http.DefaultTransport
	}
	if c.Called == nil {
		c.Called = func(Call) {}
	}
	app := goshopify.App{ApiKey: c.ClientID, ApiSecret: c.ClientSecret}
	return &Client{
		app:       app,
		version:   c.APIVersion,
		sim:       sim,
		transport: c.Transport,
		called:    c.Called,
		shops:     shops,
		tokens:    &TokenSource{app: app, sim: sim, transport: c.Transport, shops: shops, now: now, log: log, renewals: map[int64]*renewal{}},
		now:       now,
		log:       log,
		buckets:   map[int64]*bucket{},
	}, nil
}

// simulator parses Config.Sim. Tokens are sent there, so it must be this machine.
func simulator(base string) (*url.URL, error) {
	if base == "" {
		return nil, nil
	}
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("shopify: the simulator's address must be a plain URL such as http://127.0.0.1:8081")
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("shopify: the simulator's address %s is not on this machine: use a loopback address", u.Host)
	}
	if u.Path == "" {
		u.Path = "/" // or JoinPath makes a relative path of it
	}
	return u, nil
}

// Budget returns nil when a call that may cost so many points can be made now for a shop, or
// *waitlist.Throttled with the time until it can, or *waitlist.Away while none is made at all. It calls nobody: it goes by what Shopify said with
// the shop's last answer, by the clock, and by the calls that are under way. A shop that was not called
// yet has the budget of the smallest plan.
func (c *Client) Budget(_ context.Context, shopID int64, points int) error {
	b, now := c.bucket(shopID), c.now()
	if away := b.away(now); away != nil {
		return away
	}
	if wait := b.wait(float64(points), now); wait > 0 {
		return &waitlist.Throttled{After: wait}
	}
	return nil
}

func (c *Client) bucket(shopID int64) *bucket {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.buckets[shopID]
	if b == nil {
		b = newBucket(c.now())
		c.buckets[shopID] = b
	}
	return b
}
