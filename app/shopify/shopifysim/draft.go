package shopifysim

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/mail"
	"slices"
	"sort"
	"strings"
	"time"
)

// draft is a draft order. Its reservation lives until the draft is deleted, paid, or its date passes:
// after the date the draft stays open, and its invoice payable while there is stock.
type draft struct {
	id           int64
	name         string
	status       string // OPEN, COMPLETED
	email        string
	phone        string
	note         string
	tags         []string
	attributes   []attribute
	lines        []draftLine
	reserveUntil time.Time // zero: does not reserve
	reserved     []taken   // what it holds back now
	currency     string
	discounts    *bool // acceptAutomaticDiscounts
	codes        bool
	visible      bool
	taxExempt    bool
	invoiceToken string
	order        *order
	createdAt    time.Time
	updatedAt    time.Time
	completedAt  time.Time
	opened       bool // somebody opened the invoice: a checkout was started
	unlinked     bool // edited after that: the checkout no longer belongs to it
	paidApart    bool // and that checkout was paid
	shop         *shop
}

type attribute struct{ key, value string }

type draftLine struct {
	id         int64
	variant    *variant
	title      string // of the product, when the line was made; so the next three
	variantOf  string
	sku        string
	price      string
	quantity   int
	attributes []attribute
}

// taken is stock that a draft reserves, or that an order has committed.
type taken struct {
	item     *item
	at       *location
	quantity int
}

type order struct {
	id          int64
	name        string
	draftID     int64
	email       string
	note        string
	tags        []string
	attributes  []attribute
	lines       []*orderLine
	currency    string
	source      string
	createdAt   time.Time
	cancelledAt time.Time
}

type orderLine struct {
	id       int64
	variant  *variant
	title    string
	sku      string
	price    string
	quantity int
	taken    []taken
}

// userError is how Shopify refuses a mutation that it understood. field is null as often as not.
type userError struct {
	field   []any
	message string
}

// newDraft checks what Shopify checks, in the words that live shops were seen to use. Stock is not among
// it.
func (sh *shop) newDraft(now time.Time, in map[string]any) (*draft, []userError) {
	var errs []userError
	fail := func(message string, field ...any) { errs = append(errs, userError{field, message}) }
	d := &draft{status: "OPEN", shop: sh, createdAt: now, updatedAt: now, currency: sh.currency}
	d.email, _ = in["email"].(string)
	d.phone, _ = in["phone"].(string)
	d.note, _ = in["note"].(string)
	d.visible, _ = in["visibleToCustomer"].(bool)
	d.taxExempt, _ = in["taxExempt"].(bool)
	d.codes, _ = in["allowDiscountCodesInCheckout"].(bool)
	if b, ok := in["acceptAutomaticDiscounts"].(bool); ok {
		d.discounts = &b
	}
	if d.email != "" {
		if a, err := mail.ParseAddress(d.email); err != nil || a.Address != d.email {
			fail("Email is invalid", "email")
		}
	}
	if c, ok := in["presentmentCurrencyCode"].(string); ok {
		d.currency = c
		if c != sh.currency && !slices.Contains(sh.currency2, c) {
			fail("Presentment currency code is not supported", "presentmentCurrencyCode") // Assumed: the wording
		}
	}
	tags, _ := in["tags"].([]any)
	for i, t := range tags {
		tag := strings.TrimSpace(t.(string))
		if len([]rune(tag)) > 40 {
			fail("Title Tag exceeds the maximum length of 40 characters", "input", "tags", fmt.Sprint(i))
		}
		if tag != "" && !hasTag(d.tags, tag) {
			d.tags = append(d.tags, tag)
		}
	}
	sort.Strings(d.tags)
	d.attributes = attributesOf(in["customAttributes"])
	if until, ok := in["reserveInventoryUntil"].(time.Time); ok {
		d.reserveUntil = until.Truncate(time.Second)
		if d.reserveUntil.Before(now) {
			fail("Reserve until can't be in the past")
		}
	}
	lines, _ := in["lineItems"].([]any)
	if len(lines) == 0 {
		fail("Add at least 1 product")
	}
	if len(lines) > 499 {
		fail("Draft orders can't have more than 499 line items", "lineItems") // Assumed: the wording
	}
	for i, l := range lines {
		line := l.(map[string]any)
		gid, _ := line["variantId"].(string)
		id, ok := numericID("ProductVariant", gid)
		v := sh.variants[id]
		if !ok || v == nil {
			fail("Product with ID " + gid[strings.LastIndex(gid, "/")+1:] + " is no longer available.")
			continue
		}
		n, _ := line["quantity"].(int)
		if n < 1 {
			fail("Quantity must be greater than or equal to 1", "lineItems", fmt.Sprint(i), "quantity")
			continue
		}
		d.lines = append(d.lines, draftLine{
			sh.sim.newID(), v, v.product.title, v.title, v.sku, v.price, n, attributesOf(line["customAttributes"]),
		})
	}
	if errs != nil {
		return nil, errs
	}
	return d, nil
}

// createDraft puts a checked draft in the books. With a date it moves its units from available to
// reserved at the shop's first location, whether they are there or not: two live stores were seen to go
// to -1, and no input names a location.
func (sh *shop) createDraft(now time.Time, d *draft) {
	token := make([]byte, 16)
	rand.Read(token)
	sh.draftNo++
	d.id, d.name, d.invoiceToken = sh.sim.newID(), fmt.Sprintf("#D%d", sh.draftNo), hex.EncodeToString(token)
	sh.drafts[d.id] = d
	sh.draftList = append(sh.draftList, d)
	for _, t := range d.tags {
		t = strings.ToLower(t)
		sh.tagged[t] = append(sh.tagged[t], d)
	}
	sh.invoices[d.invoiceToken] = d
	if !d.reserveUntil.IsZero() {
		sh.reserve(now, d)
	}
	sh.emit("draft_orders/create", draftPayload(d))
}

// reserve takes what a draft holds.
func (sh *shop) reserve(now time.Time, d *draft) {
	for _, l := range d.lines {
		for _, part := range l.variant.parts(l.quantity) {
			at := sh.locations[0]
			sh.move(now, part.item, at, LedgerEntry{Kind: "reserve", Available: -part.quantity, Reserved: part.quantity, DraftID: ID(d.id)})
			d.reserved = append(d.reserved, taken{part.item, at, part.quantity})
			sh.reserving[d] = true
		}
	}
}

// unreserve gives back what a draft holds.
func (sh *shop) unreserve(now time.Time, d *draft, kind string) {
	for _, t := range d.reserved {
		sh.move(now, t.item, t.at, LedgerEntry{Kind: kind, Available: t.quantity, Reserved: -t.quantity, DraftID: ID(d.id)})
	}
	d.reserved = nil
	delete(sh.reserving, d)
}

// expire ends the reservations whose date has passed. Shopify restocks by itself; the draft stays open.
func (sh *shop) expire(now time.Time) {
	var due []*draft
	for d := range sh.reserving {
		if !d.reserveUntil.After(now) {
			due = append(due, d)
		}
	}
	slices.SortFunc(due, func(a, b *draft) int {
		if c := a.reserveUntil.Compare(b.reserveUntil); c != 0 {
			return c
		}
		return cmp.Compare(a.id, b.id)
	})
	for _, d := range due {
		sh.unreserve(now, d, "expire")
	}
}

// deleteDraft removes a draft. An open one gives its units back at once and its invoice is gone; a
// completed one vanishes too, which undoes nothing.
func (sh *shop) deleteDraft(now time.Time, d *draft) {
	sh.unreserve(now, d, "release")
	delete(sh.drafts, d.id)
	delete(sh.invoices, d.invoiceToken)
	sh.draftList = without(sh.draftList, d)
	for _, t := range d.tags {
		t = strings.ToLower(t)
		if sh.tagged[t] = without(sh.tagged[t], d); len(sh.tagged[t]) == 0 {
			delete(sh.tagged, t)
		}
	}
	sh.emit("draft_orders/delete", map[string]any{"id": d.id})
}

// completeDraft makes the order of a draft. What the draft reserves is converted; what it does not is
// taken from stock without a look, as draftOrderComplete does.
func (sh *shop) completeDraft(now time.Time, d *draft, source string) *order {
	o := sh.newOrder(now, d.email, source)
	o.draftID, o.note, o.tags, o.attributes, o.currency = d.id, d.note, slices.Clone(d.tags), slices.Clone(d.attributes), d.currency
	hadReservation := len(d.reserved) > 0 && !d.unlinked
	for i := range d.lines {
		l := &d.lines[i]
		line := &orderLine{sh.sim.newID(), l.variant, l.title, l.sku, l.price, l.quantity, nil}
		o.lines = append(o.lines, line)
		if !hadReservation {
			sh.take(now, l.variant, l.quantity, o, line)
		}
	}
	if hadReservation {
		for _, t := range d.reserved {
			sh.move(now, t.item, t.at, LedgerEntry{Kind: "paid", Reserved: -t.quantity, Committed: t.quantity, DraftID: ID(d.id), OrderID: ID(o.id)})
			o.lines[0].taken = append(o.lines[0].taken, t)
		}
		d.reserved = nil
		delete(sh.reserving, d)
	}
	sh.emit("orders/create", orderPayload(o))
	if d.unlinked {
		d.paidApart = true // the draft itself stays open (schema, draftOrderUpdate)
	} else {
		d.status, d.order, d.completedAt, d.updatedAt = "COMPLETED", o, now, now
		sh.emit("draft_orders/update", draftPayload(d))
	}
	return o
}

func (sh *shop) newOrder(now time.Time, email, source string) *order {
	sh.orderNo++
	o := &order{id: sh.sim.newID(), name: fmt.Sprintf("#%d", sh.orderNo), email: email, source: source, currency: sh.currency, createdAt: now}
	sh.orders[o.id] = o
	return o
}

// payable says why an invoice cannot be paid, or nil. A draft that still holds its units is payable
// though available is 0 (that is what a reservation is for; Assumed also when available is below 0); one
// whose date has passed needs stock like any cart.
func (d *draft) payable() error {
	if d.status == "COMPLETED" || d.paidApart {
		return conflict("This order has been paid")
	}
	for _, l := range d.lines {
		if d.shop.variants[l.variant.id] == nil {
			return conflict("%s is no longer available", l.title)
		}
	}
	if len(d.reserved) > 0 {
		return nil
	}
	for _, l := range d.lines {
		if !l.variant.forSale(l.quantity) {
			return conflict("%s is out of stock", l.title)
		}
	}
	return nil
}

// Pay pays a draft order at its invoice, as a buyer does, and returns the order's id. The error is 404
// when the invoice is gone and 409 when it is paid already or its goods are out of stock.
func (s *Server) Pay(invoiceURL string) (orderID int64, err error) {
	sh, d, err := s.lockInvoice(invoiceURL)
	if err != nil {
		return 0, err
	}
	defer sh.mu.Unlock()
	if err := d.payable(); err != nil {
		return 0, err
	}
	d.opened = true
	return sh.completeDraft(s.clock.Now(), d, "shopify_draft_order").id, nil
}

// lockInvoice finds the draft of an invoice by the 32 characters at its end; its shop is locked.
func (s *Server) lockInvoice(invoiceURL string) (*shop, *draft, error) {
	token := invoiceURL
	if i := strings.IndexAny(token, "?#"); i >= 0 {
		token = token[:i]
	}
	token = token[strings.LastIndex(token, "/")+1:]
	for _, domain := range s.domains() {
		sh, err := s.lock(domain)
		if err != nil {
			continue // the world was reset meanwhile
		}
		if d := sh.invoices[token]; d != nil {
			return sh, d, nil
		}
		sh.mu.Unlock()
	}
	return nil, nil, notFound("This invoice is not available")
}

// lockDraft finds a draft by its id; its shop is locked.
func (s *Server) lockDraft(id int64) (*shop, *draft, error) {
	for _, domain := range s.domains() {
		sh, err := s.lock(domain)
		if err != nil {
			continue
		}
		if d := sh.drafts[id]; d != nil {
			return sh, d, nil
		}
		sh.mu.Unlock()
	}
	return nil, nil, notFound("there is no draft order %d", id)
}

// DeleteDraft deletes a draft order as a merchant does in the admin.
func (s *Server) DeleteDraft(id int64) error {
	sh, d, err := s.lockDraft(id)
	if err != nil {
		return err
	}
	defer sh.mu.Unlock()
	sh.deleteDraft(s.clock.Now(), d)
	return nil
}

// EditDraft saves a draft order as a merchant does in the admin: with another quantity of its first line, of
// which it then reserves as many, or with 0 changing nothing that matters. When its
// invoice was opened before, the checkout no longer belongs to it: it can still be paid and makes an
// order, but the draft stays open and keeps its reservation (Assumed: that order takes its unit from
// available, without a look).
func (s *Server) EditDraft(id int64, quantity int) error {
	sh, d, err := s.lockDraft(id)
	if err != nil {
		return err
	}
	defer sh.mu.Unlock()
	if d.status == "COMPLETED" {
		return conflict("draft order %d is completed: it cannot be edited", id)
	}
	if quantity < 0 {
		return invalid("quantity: %d: give at least 1", quantity)
	}
	now := s.clock.Now()
	if quantity > 0 {
		reserves := len(d.reserved) > 0
		sh.unreserve(now, d, "release")
		if d.lines[0].quantity = quantity; reserves {
			sh.reserve(now, d)
		}
	}
	d.unlinked = d.opened
	d.updatedAt = now
	sh.emit("draft_orders/update", draftPayload(d))
	return nil
}

// CompleteDraft marks a draft order as paid in the admin and returns the order's id.
func (s *Server) CompleteDraft(id int64) (orderID int64, err error) {
	sh, d, err := s.lockDraft(id)
	if err != nil {
		return 0, err
	}
	defer sh.mu.Unlock()
	if d.status == "COMPLETED" {
		return 0, conflict("This order has been paid")
	}
	d.unlinked = false
	return sh.completeDraft(s.clock.Now(), d, "347082227713").id, nil
}

// Buy is a purchase in the storefront by somebody else: the order's id, or 404 for what is not for sale
// and 409 when there are not enough. A checkout asks for an address: without email it is some guest's.
func (s *Server) Buy(domain string, variantID int64, quantity int, email string) (orderID int64, err error) {
	sh, err := s.lock(domain)
	if err != nil {
		return 0, err
	}
	defer sh.mu.Unlock()
	v := sh.variants[variantID]
	switch {
	case v == nil || v.product.publishedAt.IsZero() || (v.product.status != "ACTIVE" && v.product.status != "UNLISTED"):
		return 0, notFound("variant %d is not for sale in %s", variantID, domain)
	case quantity < 1:
		return 0, invalid("quantity: %d: buy at least 1", quantity)
	case !v.forSale(quantity):
		return 0, conflict("not enough: %d wanted, %d there", quantity, v.sellable())
	}
	now := s.clock.Now()
	o := sh.newOrder(now, cmp.Or(email, "guest@example.net"), "web")
	line := &orderLine{s.newID(), v, v.product.title, v.sku, v.price, quantity, nil}
	o.lines = []*orderLine{line}
	sh.take(now, v, quantity, o, line)
	sh.emit("orders/create", orderPayload(o))
	return o.id, nil
}

// CancelOrder cancels an order in the admin; with restock its units are available again, without they
// are gone.
func (s *Server) CancelOrder(id int64, restock bool) error {
	for _, domain := range s.domains() {
		sh, err := s.lock(domain)
		if err != nil {
			continue
		}
		o := sh.orders[id]
		if o == nil {
			sh.mu.Unlock()
			continue
		}
		defer sh.mu.Unlock()
		if !o.cancelledAt.IsZero() {
			return conflict("order %d is cancelled already", id)
		}
		now := s.clock.Now()
		o.cancelledAt = now
		for _, l := range o.lines {
			for _, t := range l.taken {
				e := LedgerEntry{Kind: "cancel", Committed: -t.quantity, OrderID: ID(o.id)}
				if restock {
					e.Kind, e.Available = "restock", t.quantity
				}
				sh.move(now, t.item, t.at, e)
			}
		}
		sh.emit("orders/cancelled", orderPayload(o))
		return nil
	}
	return notFound("there is no order %d", id)
}

// Draft is a draft order as a script sees it.
type Draft struct {
	ID                    ID           `json:"id"`
	Shop                  string       `json:"shop"`
	Name                  string       `json:"name"`
	Status                string       `json:"status"` // OPEN, COMPLETED
	Email                 string       `json:"email"`
	Note                  string       `json:"note"`
	Tags                  []string     `json:"tags"`
	CustomAttributes      []KeyValue   `json:"custom_attributes"`
	LineItems             []DraftsLine `json:"line_items"`
	VariantID             ID           `json:"variant_id"`              // of the first line
	ReserveInventoryUntil *time.Time   `json:"reserve_inventory_until"` // null: does not reserve
	Reserved              int          `json:"reserved"`                // units that it holds back now
	InvoiceURL            string       `json:"invoice_url"`
	OrderID               *ID          `json:"order_id"` // null until it is completed
	CreatedAt             time.Time    `json:"created_at"`
	CompletedAt           *time.Time   `json:"completed_at"`
}

// KeyValue is a custom attribute.
type KeyValue struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// DraftsLine is a line of a draft order.
type DraftsLine struct {
	VariantID ID     `json:"variant_id"`
	Title     string `json:"title"`
	SKU       string `json:"sku"`
	Quantity  int    `json:"quantity"`
	Price     string `json:"price"`
}

// Drafts returns the draft orders that a shop has now, oldest first.
func (s *Server) Drafts(domain string) ([]Draft, error) {
	sh, err := s.lock(domain)
	if err != nil {
		return nil, err
	}
	defer sh.mu.Unlock()
	all := []Draft{}
	for _, d := range sh.draftList {
		v := Draft{
			ID: ID(d.id), Shop: domain, Name: d.name, Status: d.status, Email: d.email, Note: d.note, Tags: append([]string{}, d.tags...),
			CustomAttributes: []KeyValue{}, InvoiceURL: s.invoiceURL(d), CreatedAt: d.createdAt, VariantID: ID(d.lines[0].variant.id),
		}
		for _, a := range d.attributes {
			v.CustomAttributes = append(v.CustomAttributes, KeyValue{a.key, a.value})
		}
		for _, l := range d.lines {
			v.LineItems = append(v.LineItems, DraftsLine{ID(l.variant.id), l.title, l.sku, l.quantity, l.price})
		}
		for _, t := range d.reserved {
			v.Reserved += t.quantity
		}
		if !d.reserveUntil.IsZero() {
			until := d.reserveUntil
			v.ReserveInventoryUntil = &until
		}
		if d.order != nil {
			id, at := ID(d.order.id), d.completedAt
			v.OrderID, v.CompletedAt = &id, &at
		}
		all = append(all, v)
	}
	return all, nil
}

// without returns a list, ordered by id, without one of its drafts.
func without(list []*draft, d *draft) []*draft {
	i, ok := slices.BinarySearchFunc(list, d.id, func(o *draft, id int64) int { return cmp.Compare(o.id, id) })
	if !ok {
		return list
	}
	return slices.Delete(list, i, i+1)
}

// invoiceURL is where a draft is paid. Shopify's is https://{shop}/{shop id}/invoices/{32 hex digits}.
func (s *Server) invoiceURL(d *draft) string {
	path := fmt.Sprintf("/%d/invoices/%s", d.shop.id, d.invoiceToken)
	if s.public == "" {
		return "https://" + d.shop.domain + path
	}
	return s.public + "/shopify/" + d.shop.domain + path
}

func hasTag(tags []string, tag string) bool {
	return slices.ContainsFunc(tags, func(t string) bool { return strings.EqualFold(t, tag) })
}

func attributesOf(in any) []attribute {
	list, _ := in.([]any)
	var out []attribute
	for _, e := range list {
		kv := e.(map[string]any)
		out = append(out, attribute{kv["key"].(string), kv["value"].(string)})
	}
	return out
}
