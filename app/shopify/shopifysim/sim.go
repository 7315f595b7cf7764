package shopifysim

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/app/simkit"
)

// Options is what a simulated Shopify needs to know. The zero value of a field has the default named at
// it.
type Options struct {
	Clock        *simkit.Clock  // real time
	Faults       *simkit.Faults // none
	ClientID     string         // of the app
	ClientSecret string         // of the app: signs webhooks and proxied requests
	Scopes       []string       // granted to the app: those of DefaultScopes
	AppURL       func() string  // where the app listens; nil or "" = webhooks are kept, not delivered
	Public       string         // base URL of this server, for links and pictures: https://{shop} without it
	// Install is how POST /sim/shops/{shop}/install opens the app in a shop's admin, where it was just
	// approved, so that it installs itself. Without it that call answers 501.
	Install func(ctx context.Context, shop string) error
	// Documents is a directory in which every document that the app's own client sends is kept, once, in a
	// file of its own: what a run of all tests has sent is then known. Nothing is kept without it.
	Documents string
	Log       *slog.Logger // nowhere
}

// DefaultScopes is what the app asks for when it is installed.
func DefaultScopes() []string {
	return []string{"write_draft_orders", "read_products", "read_inventory", "read_locations", "read_orders", "write_app_proxy"}
}

// Server is a simulated Shopify with its shops. Its methods may be called by many goroutines at once.
type Server struct {
	api       *adminAPI
	resolvers resolvers
	clock     *simkit.Clock
	faults    *simkit.Faults
	clientID  string
	secret    string
	scopes    []string
	appURL    func() string
	public    string
	install   func(ctx context.Context, shop string) error
	documents string
	log       *slog.Logger
	ids       atomic.Int64
	hooks     *outbox
	requests  *ring[Request]

	mu    sync.RWMutex
	shops map[string]*shop
	order []string // of the shops' making
}

// New makes a simulated Shopify with the two shops of the demo. Nothing is delivered until Run.
func New(o Options) (*Server, error) {
	api, err := loadAdminAPI()
	if err != nil {
		return nil, err
	}
	if o.ClientSecret == "" {
		return nil, fmt.Errorf("the simulated Shopify needs the app's client secret")
	}
	if o.Clock == nil {
		o.Clock = &simkit.Clock{}
	}
	if o.Faults == nil {
		o.Faults = &simkit.Faults{}
	}
	if o.Scopes == nil {
		o.Scopes = DefaultScopes()
	}
	if o.AppURL == nil {
		o.AppURL = func() string { return "" }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		api: api, resolvers: newResolvers(), clock: o.Clock, faults: o.Faults, clientID: o.ClientID, secret: o.ClientSecret,
		scopes: o.Scopes, appURL: o.AppURL, public: strings.TrimRight(o.Public, "/"), install: o.Install, documents: o.Documents, log: o.Log,
		requests: newRing[Request](4000),
	}
	s.ids.Store(500_000)
	s.hooks = newOutbox(s)
	if err := s.Reset(); err != nil {
		return nil, err
	}
	return s, nil
}

// Reset puts the demo's world back: its two shops with their stock; no drafts, orders, requests or
// webhooks. Webhooks that were not delivered yet never are. Faults are the caller's.
func (s *Server) Reset() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shops, s.order = map[string]*shop{}, nil
	for _, spec := range demoWorld() {
		sh, err := s.build(spec)
		if err != nil {
			return fmt.Errorf("the demo's shop %s: %w", spec.Shop, err)
		}
		s.shops[sh.domain], s.order = sh, append(s.order, sh.domain)
	}
	s.hooks.reset()
	s.requests.reset()
	return nil
}

// AddShop makes another shop, with the app installed.
func (s *Server) AddShop(spec ShopSpec) error {
	sh, err := s.build(spec)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shops[sh.domain] != nil {
		return conflict("there is a shop %s already", sh.domain)
	}
	s.shops[sh.domain], s.order = sh, append(s.order, sh.domain)
	return nil
}

// Token is an access token that does not expire, which a shop accepts from its making until the app is
// uninstalled: the app was installed in it before tokens expired.
func (s *Server) Token(domain string) string { return "shpat_sim_" + domain }

// Uninstall removes the app from a shop: its tokens are dead at once, and app/uninstalled follows.
func (s *Server) Uninstall(domain string) error {
	sh, err := s.lock(domain)
	if err != nil {
		return err
	}
	defer sh.mu.Unlock()
	if !sh.installed {
		return conflict("the app is not installed in %s", domain)
	}
	sh.installed = false
	sh.revoke()
	sh.emit("app/uninstalled", shopPayload(sh))
	return nil
}

// AddProduct makes a product, as a merchant does.
func (s *Server) AddProduct(domain string, spec ProductSpec) error {
	sh, err := s.lock(domain)
	if err != nil {
		return err
	}
	defer sh.mu.Unlock()
	if err := s.addProduct(sh, spec, s.clock.Now()); err != nil {
		return invalid("%v", err)
	}
	sh.emit("products/create", productPayload(sh.productByHandle(spec.Handle)))
	return nil
}

// SetPlan moves a shop to another plan, and with it to another API budget. Its bucket is full then.
func (s *Server) SetPlan(domain string, p Plan) error {
	sh, err := s.lock(domain)
	if err != nil {
		return err
	}
	defer sh.mu.Unlock()
	sh.plan, sh.bucket = p, newBucket(p, s.clock.Now())
	sh.emit("shop/update", shopPayload(sh))
	return nil
}

// Tick does what fell due after the clock was pushed: reservations end, and webhooks that wait for their
// next try are tried. (Every other call sees ended reservations too; Tick makes their webhooks go out.)
func (s *Server) Tick() {
	for _, domain := range s.domains() {
		if sh, err := s.lock(domain); err == nil {
			sh.mu.Unlock()
		}
	}
	s.hooks.wake()
}

// Run delivers webhooks until ctx is done, and ends reservations when their date passes in real time.
func (s *Server) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { s.hooks.run(ctx) })
	all.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.Tick()
			case <-ctx.Done():
				return
			}
		}
	})
	all.Wait()
}

func (s *Server) domains() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.order)
}

// Shop is a shop as a script sees it.
type Shop struct {
	Shop      string         `json:"shop"`
	ID        ID             `json:"id"`
	Name      string         `json:"name"`
	Plan      Plan           `json:"plan"`
	Currency  string         `json:"currency"`
	Country   string         `json:"country"`
	Installed bool           `json:"installed"`
	Locations []ShopLocation `json:"locations"`
	Products  []ShopProduct  `json:"products"`
}

// ShopLocation is a location of a Shop.
type ShopLocation struct {
	ID   ID     `json:"id"`
	Name string `json:"name"`
}

// ShopProduct is a product of a Shop.
type ShopProduct struct {
	ID        ID            `json:"id"`
	Handle    string        `json:"handle"`
	Title     string        `json:"title"`
	Status    string        `json:"status"`
	Published bool          `json:"published"`
	Image     string        `json:"image"`
	Option    string        `json:"option"`
	Variants  []ShopVariant `json:"variants"`
}

// ShopVariant is a variant of a Shop. Available is what online channels can sell.
type ShopVariant struct {
	VariantID       ID     `json:"variant_id"`
	SKU             string `json:"sku"`
	Title           string `json:"title"`
	Price           string `json:"price"`
	InventoryItemID ID     `json:"inventory_item_id"`
	Available       int    `json:"available"`
	ForSale         bool   `json:"for_sale"` // can be put in the cart now
	Policy          string `json:"policy"`
	Tracked         bool   `json:"tracked"`
}

// Shops returns every shop, in the order in which they were made.
func (s *Server) Shops() []Shop {
	all := []Shop{}
	for _, domain := range s.domains() {
		sh, err := s.lock(domain)
		if err != nil {
			continue
		}
		v := Shop{Shop: sh.domain, ID: ID(sh.id), Name: sh.name, Plan: sh.plan, Currency: sh.currency, Country: sh.country, Installed: sh.installed, Products: []ShopProduct{}}
		for _, l := range sh.locations {
			v.Locations = append(v.Locations, ShopLocation{ID(l.id), l.name})
		}
		for _, p := range sh.products {
			q := ShopProduct{
				ID: ID(p.id), Handle: p.handle, Title: p.title, Status: p.status, Published: p.onlineStoreURL() != "",
				Image: p.image().url, Option: p.option, Variants: []ShopVariant{},
			}
			for _, w := range p.variants {
				q.Variants = append(q.Variants, ShopVariant{
					ID(w.id), w.sku, w.title, w.price, ID(w.item.id), w.sellable(), w.forSale(1), w.policy, w.item.tracked,
				})
			}
			v.Products = append(v.Products, q)
		}
		sh.mu.Unlock()
		all = append(all, v)
	}
	return all
}

// Handler serves everything: the Admin API and pages under /shopify/{shop}/..., the same for requests
// whose Host is a shop's domain, and the control calls under /sim.
func (s *Server) Handler() http.Handler { return s.handler() }

// ring keeps the last n of many.
type ring[T any] struct {
	mu   sync.Mutex
	n    int
	all  []T
	from int
}

func newRing[T any](n int) *ring[T] { return &ring[T]{n: n} }

func (r *ring[T]) add(v T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) < r.n {
		r.all = append(r.all, v)
		return
	}
	r.all[r.from] = v
	r.from = (r.from + 1) % r.n
}

func (r *ring[T]) list() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(slices.Clone(r.all[r.from:]), r.all[:r.from]...)
}

func (r *ring[T]) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all, r.from = nil, 0
}
