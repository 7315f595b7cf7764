package shopifysim

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Plan is what a shop pays for: it sets its API budget.
type Plan string

const (
	Standard Plan = "standard" // 100 points a second
	Advanced Plan = "advanced" // 200
	Plus     Plan = "plus"     // 1,000
)

// restoreRate is the points a second that a plan restores (shopify.dev, API limits); the bucket holds
// twenty times as much.
func (p Plan) restoreRate() float64 {
	switch p {
	case Advanced:
		return 200
	case Plus:
		return 1000
	default:
		return 100
	}
}

// ID is the numeric id of a thing of Shopify's. In JSON it is a string; a number is understood, too.
type ID int64

func (id ID) MarshalJSON() ([]byte, error) { return strconv.AppendQuote(nil, id.String()), nil }

func (id ID) String() string { return strconv.FormatInt(int64(id), 10) }

// UnmarshalJSON reads "123" or 123.
func (id *ID) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseInt(strings.Trim(string(b), `"`), 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf("%s is not an id: give a numeric id as a string", b)
	}
	*id = ID(n)
	return nil
}

// ShopSpec describes a shop to be made. What is left out gets a default; ids that are left out are made.
type ShopSpec struct {
	Shop      string         `json:"shop"` // xyz.myshopify.com
	ID        ID             `json:"id,omitzero"`
	Name      string         `json:"name,omitempty"`
	Plan      Plan           `json:"plan,omitempty"`     // standard
	Currency  string         `json:"currency,omitempty"` // EUR
	Country   string         `json:"country,omitempty"`  // one that pays in the currency
	Locations []LocationSpec `json:"locations,omitempty"`
	Products  []ProductSpec  `json:"products,omitempty"`
}

// LocationSpec describes a location. The first one of a shop is where drafts reserve.
type LocationSpec struct {
	ID                  ID     `json:"id,omitzero"`
	Name                string `json:"name"`
	FulfillsOnlineOrder *bool  `json:"fulfills_online_orders,omitempty"` // true
	Active              *bool  `json:"active,omitempty"`                 // true
}

// ProductSpec describes a product.
type ProductSpec struct {
	ID        ID            `json:"id,omitzero"`
	Handle    string        `json:"handle"`
	Title     string        `json:"title"`
	Status    string        `json:"status,omitempty"`    // ACTIVE, DRAFT, ARCHIVED, UNLISTED
	Published *bool         `json:"published,omitempty"` // to the online store: true
	Option    string        `json:"option,omitempty"`    // the name of its one option: "Colour"
	Variants  []VariantSpec `json:"variants"`
}

// VariantSpec describes a variant. Available is at the first location, Levels at others by their index.
type VariantSpec struct {
	ID              ID              `json:"id,omitzero"`
	InventoryItemID ID              `json:"inventory_item_id,omitzero"` // two variants may share one
	SKU             string          `json:"sku"`
	Title           string          `json:"title"`
	Price           string          `json:"price"`
	Available       int             `json:"available"`
	Levels          map[int]int     `json:"levels,omitempty"`
	Policy          string          `json:"policy,omitempty"`  // DENY, CONTINUE
	Tracked         *bool           `json:"tracked,omitempty"` // true
	Components      []ComponentSpec `json:"components,omitempty"`
}

// ComponentSpec is a part of a bundle.
type ComponentSpec struct {
	VariantID ID  `json:"variant_id"`
	Quantity  int `json:"quantity"`
}

type shop struct {
	mu        sync.Mutex // guards everything below; taken by Server.lock alone
	id        int64
	domain    string
	name      string
	plan      Plan
	currency  string
	country   string
	currency2 []string // other presentment currencies
	token     string   // that does not expire; "" once the app was uninstalled
	grants    []*grant // that the app was given
	codes     []oauthCode
	scopes    []string // granted
	installed bool
	createdAt time.Time
	locations []*location
	products  []*product
	handles   map[string]*product // the products by their handles
	byID      map[int64]*product  // and by their ids
	variants  map[int64]*variant
	items     map[int64]*item
	drafts    map[int64]*draft
	draftList []*draft            // by id
	tagged    map[string][]*draft // by tag in lower case, then by id
	invoices  map[string]*draft   // by token
	reserving map[*draft]bool     // those that hold units back
	orders    map[int64]*order
	draftNo   int
	orderNo   int
	ledger    []LedgerEntry
	bucket    bucket
	bulk      map[int64]*bulkOperation
	sim       *Server
}

type location struct {
	id     int64
	name   string
	online bool
	active bool
	shop   *shop
}

type product struct {
	id          int64
	handle      string
	title       string
	status      string
	publishedAt time.Time // zero: not published to the online store
	option      string
	createdAt   time.Time
	updatedAt   time.Time
	variants    []*variant
	shop        *shop
}

type variant struct {
	id         int64
	sku        string
	title      string
	price      string
	policy     string
	item       *item
	product    *product
	components []component
	createdAt  time.Time
	updatedAt  time.Time
}

type component struct {
	variant  *variant
	quantity int
}

// item is an inventory item: what is counted. Usually one variant's; it may back several.
type item struct {
	id        int64
	tracked   bool
	levels    []*level // in the order of the shop's locations
	variants  []*variant
	createdAt time.Time
	updatedAt time.Time
}

// level is the stock of an item at a location. on_hand is the sum of the three.
type level struct {
	item                           *item
	location                       *location
	available, reserved, committed int
	updatedAt                      time.Time
}

func (l *level) onHand() int { return l.available + l.reserved + l.committed }

// countries are where a shop with a currency is at home, unless its description says otherwise.
var countries = map[string]string{"EUR": "IE", "USD": "US", "GBP": "GB"}

var domainPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*\.myshopify\.com$`)

// newID returns an id that this server has not given out, also not before a Reset.
func (s *Server) newID() int64 { return s.ids.Add(1) }

func orNew(s *Server, id ID) int64 {
	if id != 0 {
		return int64(id)
	}
	return s.newID()
}

func orTrue(b *bool) bool { return b == nil || *b }

// build makes a shop of its description, or says what is wrong with it.
func (s *Server) build(spec ShopSpec) (*shop, error) {
	if !domainPattern.MatchString(spec.Shop) {
		return nil, invalid("shop: %q is not a shop's domain: give name.myshopify.com", spec.Shop)
	}
	spec.Plan = cmp.Or(spec.Plan, Standard)
	if !slices.Contains([]Plan{Standard, Advanced, Plus}, spec.Plan) {
		return nil, invalid("plan: %q is none of standard, advanced, plus", spec.Plan)
	}
	if len(spec.Locations) == 0 {
		spec.Locations = []LocationSpec{{Name: "Main"}}
	}
	now := s.clock.Now()
	name := strings.TrimSuffix(spec.Shop, ".myshopify.com")
	sh := &shop{
		id: orNew(s, spec.ID), domain: spec.Shop, name: cmp.Or(spec.Name, strings.ToUpper(name[:1])+name[1:]), plan: spec.Plan,
		currency: cmp.Or(spec.Currency, "EUR"), currency2: []string{"EUR", "USD", "GBP"}, token: s.Token(spec.Shop), installed: true, createdAt: now, scopes: s.scopes,
		handles: map[string]*product{}, byID: map[int64]*product{}, variants: map[int64]*variant{}, items: map[int64]*item{}, drafts: map[int64]*draft{},
		tagged: map[string][]*draft{}, invoices: map[string]*draft{}, reserving: map[*draft]bool{}, orders: map[int64]*order{},
		orderNo: 1000, sim: s,
	}
	if sh.country = spec.Country; sh.country == "" {
		sh.country = cmp.Or(countries[sh.currency], "US")
	}
	sh.bucket = newBucket(spec.Plan, now)
	for i, l := range spec.Locations {
		if l.Name == "" {
			return nil, invalid("locations[%d]: a location needs a name", i)
		}
		sh.locations = append(sh.locations, &location{orNew(s, l.ID), l.Name, orTrue(l.FulfillsOnlineOrder), orTrue(l.Active), sh})
	}
	for i, p := range spec.Products {
		if err := s.addProduct(sh, p, now); err != nil {
			return nil, invalid("products[%d]: %v", i, err)
		}
	}
	for _, p := range spec.Products { // a component may be described after its bundle
		for i, v := range p.Variants {
			of := sh.productByHandle(p.Handle).variants[i]
			for _, c := range v.Components {
				part := sh.variants[int64(c.VariantID)]
				if part == nil || c.Quantity < 1 {
					return nil, invalid("product %s: component %s x %d: give a variant of this shop and a quantity", p.Handle, c.VariantID, c.Quantity)
				}
				of.components = append(of.components, component{part, c.Quantity})
			}
		}
	}
	return sh, nil
}

func (s *Server) addProduct(sh *shop, spec ProductSpec, now time.Time) error {
	if spec.Handle == "" || len(spec.Variants) == 0 {
		return fmt.Errorf("a product needs a handle and at least one variant")
	}
	if sh.productByHandle(spec.Handle) != nil {
		return fmt.Errorf("the handle %s is taken", spec.Handle)
	}
	spec.Status = strings.ToUpper(cmp.Or(spec.Status, "ACTIVE"))
	if !slices.Contains([]string{"ACTIVE", "DRAFT", "ARCHIVED", "UNLISTED"}, spec.Status) {
		return fmt.Errorf("status: %q is none of ACTIVE, DRAFT, ARCHIVED, UNLISTED", spec.Status)
	}
	p := &product{
		id: orNew(s, spec.ID), handle: spec.Handle, title: cmp.Or(spec.Title, spec.Handle), status: spec.Status,
		option: cmp.Or(spec.Option, "Colour"), createdAt: now, updatedAt: now, shop: sh,
	}
	if orTrue(spec.Published) {
		p.publishedAt = now
	}
	for _, v := range spec.Variants {
		v.Policy = strings.ToUpper(cmp.Or(v.Policy, "DENY"))
		if v.Policy != "DENY" && v.Policy != "CONTINUE" {
			return fmt.Errorf("policy: %q is neither DENY nor CONTINUE", v.Policy)
		}
		v.Price = cmp.Or(v.Price, "10.00")
		if !decimal.MatchString(v.Price) {
			return fmt.Errorf("price: %q is no price: give one such as 249.00", v.Price)
		}
		va := &variant{
			id: orNew(s, v.ID), sku: v.SKU, title: cmp.Or(v.Title, "Default Title"), price: v.Price, policy: v.Policy,
			product: p, createdAt: now, updatedAt: now,
		}
		if sh.variants[va.id] != nil {
			return fmt.Errorf("variant %d: the id is taken", va.id)
		}
		it := sh.items[int64(v.InventoryItemID)]
		if it == nil {
			it = &item{id: orNew(s, v.InventoryItemID), tracked: orTrue(v.Tracked), createdAt: now, updatedAt: now}
			sh.items[it.id] = it
			sh.move(now, it, sh.locations[0], LedgerEntry{Kind: "opening", Available: v.Available})
			for i, n := range v.Levels {
				if i < 0 || i >= len(sh.locations) {
					return fmt.Errorf("variant %d: there is no location %d", va.id, i)
				}
				sh.move(now, it, sh.locations[i], LedgerEntry{Kind: "opening", Available: n})
			}
		}
		it.variants = append(it.variants, va)
		va.item = it
		p.variants = append(p.variants, va)
		sh.variants[va.id] = va
	}
	sh.products, sh.handles[p.handle], sh.byID[p.id] = append(sh.products, p), p, p
	return nil
}

func (sh *shop) productByHandle(handle string) *product { return sh.handles[handle] }

func (sh *shop) locationByID(id int64) *location {
	for _, l := range sh.locations {
		if l.id == id {
			return l
		}
	}
	return nil
}

// demoWorld is the world that the package comment lists.
func demoWorld() []ShopSpec {
	no := false
	one := func(id ID, handle, title, sku, price string, set func(*ProductSpec)) ProductSpec {
		p := ProductSpec{ID: id, Handle: handle, Title: title, Variants: []VariantSpec{{ID: id*10 + 1, InventoryItemID: id*10 + 10001, SKU: sku, Price: price}}}
		if set != nil {
			set(&p)
		}
		return p
	}
	chair := func(id ID, title, sku, price string, available int) VariantSpec {
		return VariantSpec{ID: id, InventoryItemID: id + 10000, SKU: sku, Title: title, Price: price, Available: available}
	}
	rust, blue := chair(30022, "Rust", "READ-RST", "590.00", 0), chair(30023, "Blue", "READ-BLU", "590.00", 0)
	rust.Levels, blue.Levels = map[int]int{1: 3}, map[int]int{2: 2}
	green := chair(30021, "Green", "READ-GRN", "590.00", 0)
	green.Levels = map[int]int{1: 0}
	boxed := chair(30102, "Beech, boxed", "FOLD-BOX", "79.00", 0)
	boxed.InventoryItemID = 40101
	return []ShopSpec{
		{
			Shop: "chairs.myshopify.com", ID: 1001, Name: "Chairs", Plan: Standard, Currency: "EUR",
			Locations: []LocationSpec{{ID: 2001, Name: "Workshop"}, {ID: 2002, Name: "Warehouse"}, {ID: 2003, Name: "Showroom", FulfillsOnlineOrder: &no}},
			Products: []ProductSpec{
				{ID: 3001, Handle: "oak-chair", Title: "Oak chair", Variants: []VariantSpec{
					chair(30011, "Natural", "OAK-NAT", "249.00", 0), chair(30012, "Smoked", "OAK-SMK", "279.00", 0), chair(30013, "White oiled", "OAK-WHT", "259.00", 5),
				}},
				{ID: 3002, Handle: "reading-chair", Title: "Reading chair", Variants: []VariantSpec{green, rust, blue}},
				one(3003, "garden-bench", "Garden bench", "BENCH", "420.00", func(p *ProductSpec) { p.Variants[0].Policy = "CONTINUE" }),
				one(3004, "chair-oil", "Chair oil", "OIL", "14.50", func(p *ProductSpec) { p.Variants[0].Tracked = &no }),
				one(3005, "cork-stool", "Cork stool", "STOOL", "120.00", func(p *ProductSpec) { p.Published = &no }),
				one(3006, "old-rocker", "Old rocker", "ROCKER", "310.00", func(p *ProductSpec) { p.Status = "ARCHIVED" }),
				one(3007, "next-lounge", "Next lounge", "LOUNGE", "990.00", func(p *ProductSpec) { p.Status = "DRAFT" }),
				one(3008, "dining-set", "Dining set", "SET", "1290.00", func(p *ProductSpec) {
					p.Variants[0].Components = []ComponentSpec{{30013, 4}, {30091, 1}}
				}),
				one(3009, "dining-table", "Dining table", "TABLE", "690.00", func(p *ProductSpec) { p.Variants[0].Available = 1 }),
				{ID: 3010, Handle: "folding-chair", Title: "Folding chair", Option: "Pack", Variants: []VariantSpec{chair(30101, "Beech", "FOLD", "79.00", 0), boxed}},
				{ID: 3011, Handle: "kids-chair", Title: "Kids' chair", Variants: []VariantSpec{chair(30111, "Red", "KIDS", "89.00", 0), chair(30112, "Yellow", "KIDS", "89.00", 0)}},
			},
		},
		{
			Shop: "lamps.myshopify.com", ID: 1002, Name: "Lamps", Plan: Plus, Currency: "USD",
			Locations: []LocationSpec{{ID: 2101, Name: "Studio"}},
			Products: []ProductSpec{
				{ID: 3101, Handle: "desk-lamp", Title: "Desk lamp", Variants: []VariantSpec{
					chair(31011, "Brass", "LAMP-BRS", "180.00", 0), chair(31012, "Black", "LAMP-BLK", "160.00", 0), chair(31013, "Copper", "LAMP-COP", "190.00", 8),
				}},
				one(3102, "paper-lantern", "Paper lantern", "LANTERN", "45.00", nil),
				one(3103, "floor-lamp", "Floor lamp", "FLOOR", "320.00", nil),
			},
		},
	}
}
