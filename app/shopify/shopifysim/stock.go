package shopifysim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Error is why a control call was refused: Status is the HTTP status of its answer (400, 404, 409).
type Error struct {
	Status int
	Why    string
}

func (e *Error) Error() string { return e.Why }

func invalid(format string, args ...any) error {
	return &Error{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) error {
	return &Error{http.StatusNotFound, fmt.Sprintf(format, args...)}
}

func conflict(format string, args ...any) error {
	return &Error{http.StatusConflict, fmt.Sprintf(format, args...)}
}

// LedgerEntry is one change of stock, as it happened. The ledger of a shop is only ever added to: the sum
// of its entries is the stock.
type LedgerEntry struct {
	Seq             int       `json:"seq"`
	At              time.Time `json:"at"`
	Kind            string    `json:"kind"` // opening, set, reserve, release, expire, sale, paid, restock, cancel
	InventoryItemID ID        `json:"inventory_item_id"`
	LocationID      ID        `json:"location_id"`
	Available       int       `json:"available"` // by how much; so the next two
	Reserved        int       `json:"reserved"`
	Committed       int       `json:"committed"`
	DraftID         ID        `json:"draft_id,omitzero"`
	OrderID         ID        `json:"order_id,omitzero"`
}

// lock returns a shop with its mutex held, as it is now: reservations whose date has passed are ended.
func (s *Server) lock(domain string) (*shop, error) {
	s.mu.RLock()
	sh := s.shops[domain]
	s.mu.RUnlock()
	if sh == nil {
		return nil, notFound("there is no shop %q", domain)
	}
	sh.mu.Lock()
	sh.expire(s.clock.Now())
	return sh, nil
}

// move changes one level and writes it down. An item that was never stocked at a location gets a level
// there. The app is told of every change of available, whoever made it.
func (sh *shop) move(now time.Time, it *item, at *location, e LedgerEntry) {
	l := it.level(at)
	if l == nil {
		l = &level{item: it, location: at}
		it.levels = append(it.levels, l)
		slices.SortStableFunc(it.levels, func(a, b *level) int {
			return slices.Index(sh.locations, a.location) - slices.Index(sh.locations, b.location)
		})
	}
	l.available += e.Available
	l.reserved += e.Reserved
	l.committed += e.Committed
	l.updatedAt = now
	e.Seq, e.At, e.InventoryItemID, e.LocationID = len(sh.ledger)+1, now, ID(it.id), ID(at.id)
	sh.ledger = append(sh.ledger, e)
	if e.Available != 0 && e.Kind != "opening" {
		sh.emit("inventory_levels/update", levelPayload(l))
	}
}

func (it *item) level(at *location) *level {
	for _, l := range it.levels {
		if l.location == at {
			return l
		}
	}
	return nil
}

// parts returns the items, each with a quantity, that n of a variant are made of. What is not tracked is
// in nobody's books.
func (v *variant) parts(n int) []itemQuantity {
	var parts []itemQuantity
	if len(v.components) == 0 {
		if v.item.tracked {
			parts = append(parts, itemQuantity{v.item, n})
		}
		return parts
	}
	for _, c := range v.components {
		parts = append(parts, c.variant.parts(c.quantity*n)...)
	}
	return parts
}

type itemQuantity struct {
	item     *item
	quantity int
}

// sellable is sellableOnlineQuantity: what is available at active locations that fulfil online orders. A
// bundle has as many as its scarcest component allows.
func (v *variant) sellable() int {
	if len(v.components) > 0 {
		least := int(^uint(0) >> 1)
		for _, c := range v.components {
			least = min(least, c.variant.sellable()/c.quantity)
		}
		return least
	}
	return v.item.sellable()
}

func (it *item) sellable() int {
	n := 0
	for _, l := range it.levels {
		if l.location.active && l.location.online {
			n += l.available
		}
	}
	return n
}

// forSale says whether a buyer can put n of a variant in the cart.
func (v *variant) forSale(n int) bool {
	if v.policy == "CONTINUE" {
		return true
	}
	if len(v.components) == 0 {
		return !v.item.tracked || v.item.sellable() >= n
	}
	for _, c := range v.components {
		if !c.variant.forSale(c.quantity * n) {
			return false
		}
	}
	return true
}

// take moves n of a variant from available to committed for an order: from the locations that have them,
// in order, and what nobody has from the first, whose available goes below zero.
func (sh *shop) take(now time.Time, v *variant, n int, o *order, line *orderLine) {
	for _, part := range v.parts(n) {
		left := part.quantity
		grab := func(at *location, k int) {
			if k <= 0 {
				return
			}
			left -= k
			sh.move(now, part.item, at, LedgerEntry{Kind: "sale", Available: -k, Committed: k, OrderID: ID(o.id), DraftID: ID(o.draftID)})
			line.taken = append(line.taken, taken{part.item, at, k})
		}
		for _, l := range slices.Clone(part.item.levels) {
			if l.location.active && l.location.online {
				grab(l.location, min(left, l.available))
			}
		}
		grab(sh.locations[0], left)
	}
}

// Change is a stock that a merchant types in. LocationID 0 is the shop's first location.
type Change struct {
	VariantID  ID  `json:"variant_id"`
	Available  int `json:"available"`
	LocationID ID  `json:"location_id,omitzero"`
}

// SetStock sets available as a merchant does in the admin, all changes or none. What is on hand follows.
func (s *Server) SetStock(domain string, changes ...Change) error {
	sh, err := s.lock(domain)
	if err != nil {
		return err
	}
	defer sh.mu.Unlock()
	for _, c := range changes {
		v := sh.variants[int64(c.VariantID)]
		switch {
		case v == nil:
			return notFound("variant %s: %s has no such variant", c.VariantID, domain)
		case len(v.components) > 0:
			return conflict("variant %s: the stock of a bundle follows from its components: set theirs", c.VariantID)
		case !v.item.tracked:
			return conflict("variant %s is not tracked: it has no stock to set", c.VariantID)
		case c.LocationID != 0 && sh.locationByID(int64(c.LocationID)) == nil:
			return notFound("location %s: %s has no such location", c.LocationID, domain)
		}
	}
	now := s.clock.Now()
	for _, c := range changes {
		it, at := sh.variants[int64(c.VariantID)].item, sh.locations[0]
		if c.LocationID != 0 {
			at = sh.locationByID(int64(c.LocationID))
		}
		was := 0
		if l := it.level(at); l != nil {
			was = l.available
		}
		sh.move(now, it, at, LedgerEntry{Kind: "set", Available: c.Available - was})
	}
	return nil
}

// Inventory is the stock of a variant as the simulator has it.
type Inventory struct {
	Shop      string           `json:"shop"`
	VariantID ID               `json:"variant_id"`
	Available int              `json:"available"` // over all locations; so the next three
	Reserved  int              `json:"reserved"`
	Committed int              `json:"committed"`
	OnHand    int              `json:"on_hand"`
	Sellable  int              `json:"sellable"` // sellableOnlineQuantity
	Locations []LocationLevels `json:"locations"`
}

// LocationLevels is the stock of a variant at one location.
type LocationLevels struct {
	ID        ID     `json:"id"`
	Name      string `json:"name"`
	Available int    `json:"available"`
	Reserved  int    `json:"reserved"`
	Committed int    `json:"committed"`
	OnHand    int    `json:"on_hand"`
}

// Inventory returns the stock of a variant.
func (s *Server) Inventory(domain string, variantID int64) (Inventory, error) {
	sh, err := s.lock(domain)
	if err != nil {
		return Inventory{}, err
	}
	defer sh.mu.Unlock()
	v := sh.variants[variantID]
	if v == nil {
		return Inventory{}, notFound("variant %d: %s has no such variant", variantID, domain)
	}
	inv := Inventory{Shop: domain, VariantID: ID(v.id), Sellable: v.sellable(), Locations: []LocationLevels{}}
	for _, l := range v.item.levels {
		inv.Available += l.available
		inv.Reserved += l.reserved
		inv.Committed += l.committed
		inv.OnHand += l.onHand()
		inv.Locations = append(inv.Locations, LocationLevels{ID(l.location.id), l.location.name, l.available, l.reserved, l.committed, l.onHand()})
	}
	return inv, nil
}

// Ledger returns every change of a shop's stock since the shop was made, oldest first.
func (s *Server) Ledger(domain string) ([]LedgerEntry, error) {
	sh, err := s.lock(domain)
	if err != nil {
		return nil, err
	}
	defer sh.mu.Unlock()
	return slices.Clone(sh.ledger), nil
}

// VariantEdit is what a merchant changes about a variant, or about the product that it belongs to
// (Status, Published). What is nil stays.
type VariantEdit struct {
	Policy    *string `json:"policy,omitempty"` // DENY, CONTINUE
	Tracked   *bool   `json:"tracked,omitempty"`
	Status    *string `json:"status,omitempty"` // ACTIVE, DRAFT, ARCHIVED, UNLISTED
	Published *bool   `json:"published,omitempty"`
	Price     *string `json:"price,omitempty"`
	Delete    bool    `json:"delete,omitempty"`
}

// EditVariant does what a merchant does to a variant. Deleting the last variant deletes its product.
func (s *Server) EditVariant(domain string, variantID int64, e VariantEdit) error {
	sh, err := s.lock(domain)
	if err != nil {
		return err
	}
	defer sh.mu.Unlock()
	v := sh.variants[variantID]
	if v == nil {
		return notFound("variant %d: %s has no such variant", variantID, domain)
	}
	upper := func(p *string, field string, allowed ...string) error {
		if p == nil {
			return nil
		}
		if *p = strings.ToUpper(*p); !slices.Contains(allowed, *p) {
			return invalid("%s: %q is none of %s", field, *p, strings.Join(allowed, ", "))
		}
		return nil
	}
	if err := upper(e.Policy, "policy", "DENY", "CONTINUE"); err != nil {
		return err
	}
	if err := upper(e.Status, "status", "ACTIVE", "DRAFT", "ARCHIVED", "UNLISTED"); err != nil {
		return err
	}
	if e.Price != nil && !decimal.MatchString(*e.Price) {
		return invalid("price: %q is no price: give one such as 249.00", *e.Price)
	}
	now, p := s.clock.Now(), v.product
	if e.Policy != nil {
		v.policy = *e.Policy
	}
	if e.Price != nil {
		v.price = *e.Price
	}
	if e.Status != nil {
		p.status = *e.Status
	}
	if e.Published != nil {
		p.publishedAt = time.Time{}
		if *e.Published {
			p.publishedAt = now
		}
	}
	if e.Tracked != nil && v.item.tracked != *e.Tracked {
		v.item.tracked, v.item.updatedAt = *e.Tracked, now
		sh.emit("inventory_items/update", itemPayload(v.item))
	}
	v.updatedAt, p.updatedAt = now, now
	if e.Delete {
		delete(sh.variants, v.id)
		p.variants = slices.DeleteFunc(p.variants, func(o *variant) bool { return o == v })
		if v.item.variants = slices.DeleteFunc(v.item.variants, func(o *variant) bool { return o == v }); len(v.item.variants) == 0 {
			delete(sh.items, v.item.id)
		}
		if len(p.variants) == 0 {
			sh.products = slices.DeleteFunc(sh.products, func(o *product) bool { return o == p })
			delete(sh.handles, p.handle)
			delete(sh.byID, p.id)
			sh.emit("products/delete", map[string]any{"id": p.id})
			return nil
		}
	}
	sh.emit("products/update", productPayload(p))
	return nil
}
