package waitlist_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

// store is a plain model of one Shopify shop with one product variant per id: it checks nothing that Shopify
// does not check, and its calls can be interposed on, which is how a test puts one step between two
// others.
type store struct {
	mu       sync.Mutex
	now      func() time.Time
	variants map[int64]*waitlist.VariantReading // Sellable is the stock, drafts included
	drafts   map[int64]*draft
	next     int64
	profile  shop.Profile
	calls    map[string]int

	hooks    map[string][]func() error         // per call: run after its answer is computed, before it is given
	hide     map[int64]bool                    // drafts that the index does not show yet
	since    []time.Time                       // from when on drafts were listed
	after    []string                          // behind which cursors
	exported map[int64]waitlist.VariantReading // what an export has of some variants, if it is older
	cut      int                               // chunks after which a file ends; 0 = at its end
	chunk    func()                            // if set, called between two chunks
	page     int                               // drafts that one listing has; 0 = all
	place    int64                             // where drafts reserve
	reads    func(stock int64)                 // if set, told what each read of the first variant answers
}

type draft struct {
	waitlist.Draft
	variant  int64
	until    time.Time
	reserved bool
	visible  waitlist.NewDraft
}

func newStore(now func() time.Time) *store {
	return &store{now: now, variants: map[int64]*waitlist.VariantReading{}, drafts: map[int64]*draft{}, next: 5000, place: 1,
		profile: shop.Profile{Domain: "chairs.myshopify.com", Name: "Chairs", Currency: "EUR", Country: "GB", Locale: "en"},
		calls:   map[string]int{}, hooks: map[string][]func() error{}, hide: map[int64]bool{}}
}

// then has f run once, when the next call of op has computed its answer and not yet given it.
func (s *store) then(op string, f func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks[op] = append(s.hooks[op], f)
}

func (s *store) done(op string) error {
	s.mu.Lock()
	s.calls[op]++
	var f func() error
	if h := s.hooks[op]; len(h) > 0 {
		f, s.hooks[op] = h[0], h[1:]
	}
	s.mu.Unlock()
	if f != nil {
		return f()
	}
	return nil
}

func (s *store) set(variant int64, stock int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick()
	s.variants[variant].Sellable = stock
}

func (s *store) add(variant int64, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick()
	s.variants[variant].Sellable += by
}

func (s *store) stock(variant int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick()
	return s.variants[variant].Sellable
}

// tick lets reservations end whose date is past: the unit comes back, the draft stays payable.
func (s *store) tick() {
	for _, d := range s.drafts {
		if d.reserved && !d.Completed && !d.until.After(s.now()) {
			d.reserved = false
			s.variants[d.variant].Sellable++
		}
	}
}

// passDate ends a draft's reservation early, as a clock that is ahead would.
func (s *store) passDate(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drafts[id].until = s.now()
	s.tick()
}

// pay completes a draft, as its invoice does, or fails when it is gone, paid or has no unit.
func (s *store) pay(id int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick()
	d := s.drafts[id]
	switch {
	case d == nil:
		return 0, errors.New("this invoice is not available")
	case d.Completed:
		return 0, errors.New("paid already")
	case !d.reserved && s.variants[d.variant].Sellable < 1:
		return 0, errors.New("out of stock")
	case !d.reserved:
		s.variants[d.variant].Sellable--
	}
	s.next++
	d.Completed, d.reserved, d.OrderID = true, false, s.next
	return d.OrderID, nil
}

func (s *store) open() []*draft {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*draft
	for _, d := range s.drafts {
		if !d.Completed {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b *draft) int { return int(a.ID - b.ID) })
	return all
}

func (s *store) Budget(context.Context, int64, int) error { return s.done("Budget") }

func (s *store) ReadVariants(_ context.Context, _ int64, ids, _ []int64) (map[int64]waitlist.VariantReading, error) {
	s.mu.Lock()
	s.tick()
	found := map[int64]waitlist.VariantReading{}
	for _, id := range ids {
		if v := s.variants[id]; v != nil {
			found[id] = *v
		}
	}
	reads := s.reads
	s.mu.Unlock()
	if reads != nil && len(ids) == 1 {
		reads(int64(found[ids[0]].Sellable))
	}
	if err := s.done("ReadVariants"); err != nil {
		return nil, err
	}
	return found, nil
}

func (s *store) FindVariants(_ context.Context, _ int64, sku string) ([]waitlist.VariantReading, error) {
	s.mu.Lock()
	var found []waitlist.VariantReading
	for _, v := range s.variants {
		if v.SKU == sku && len(found) < 2 {
			found = append(found, *v)
		}
	}
	s.mu.Unlock()
	return found, s.done("FindVariants")
}

func (s *store) DefaultLocation(context.Context, int64) (int64, error) {
	return s.place, s.done("DefaultLocation")
}

func (s *store) CreateDraft(_ context.Context, _ int64, n waitlist.NewDraft) (waitlist.Draft, error) {
	s.mu.Lock()
	s.tick()
	if s.variants[n.VariantID] == nil {
		s.mu.Unlock()
		return waitlist.Draft{}, &waitlist.Rejected{Why: "the product is no longer available"}
	}
	if !n.ReserveUntil.After(s.now()) {
		s.mu.Unlock()
		return waitlist.Draft{}, &waitlist.Rejected{Why: "Reserve until can't be in the past"}
	}
	s.next++
	d := &draft{variant: n.VariantID, until: n.ReserveUntil, reserved: true, visible: n,
		Draft: waitlist.Draft{ID: s.next, HoldID: n.HoldID, Mark: n.Mark, InvoiceURL: fmt.Sprintf("https://shop.example/invoices/%d", s.next), CreatedAt: s.now()}}
	s.drafts[d.ID] = d
	s.variants[n.VariantID].Sellable-- // Shopify does not check
	made := d.Draft
	s.mu.Unlock()
	return made, s.done("CreateDraft")
}

func (s *store) FindDrafts(_ context.Context, _, holdID int64) ([]waitlist.Draft, error) {
	s.mu.Lock()
	var found []waitlist.Draft
	for _, d := range s.drafts {
		if d.HoldID == holdID && !s.hide[d.ID] {
			found = append(found, d.Draft)
		}
	}
	s.mu.Unlock()
	return found, s.done("FindDrafts")
}

func (s *store) ListDrafts(_ context.Context, _ int64, since time.Time, after string) ([]waitlist.Draft, string, error) {
	s.mu.Lock()
	s.since, s.after = append(s.since, since), append(s.after, after)
	var found []waitlist.Draft
	for _, d := range s.drafts {
		if !s.hide[d.ID] && (after == "" || strconv.FormatInt(d.ID, 10) > after) {
			found = append(found, d.Draft)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(found, func(a, b waitlist.Draft) int { return int(a.ID - b.ID) })
	next := ""
	if s.page > 0 && len(found) > s.page {
		found = found[:s.page]
		next = strconv.FormatInt(found[s.page-1].ID, 10)
	}
	return found, next, s.done("ListDrafts")
}

func (s *store) Profile(context.Context, int64) (shop.Profile, error) {
	s.mu.Lock()
	p := s.profile
	s.mu.Unlock()
	return p, s.done("Profile")
}

// catalogue is every variant, as an export shows it.
func (s *store) catalogue(of func(waitlist.VariantReading) bool) []waitlist.VariantReading {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []waitlist.VariantReading
	for _, v := range s.variants {
		if of(*v) {
			all = append(all, *v)
		}
	}
	slices.SortFunc(all, func(a, b waitlist.VariantReading) int { return int(a.ID - b.ID) })
	return all
}

func (s *store) StartCatalogue(context.Context, int64) (string, error) {
	return "export", s.done("StartCatalogue")
}

func (s *store) Catalogue(_ context.Context, _ int64, operation string) (waitlist.CatalogueExport, error) {
	if operation != "export" {
		return waitlist.CatalogueExport{Operation: operation, State: waitlist.ExportFailed, Why: "not known"}, s.done("Catalogue")
	}
	all := s.catalogue(func(waitlist.VariantReading) bool { return true })
	return waitlist.CatalogueExport{Operation: operation, State: waitlist.ExportFinished, Objects: len(all), URL: "export.jsonl"}, s.done("Catalogue")
}

func (s *store) ReadCatalogue(_ context.Context, _ int64, _ waitlist.CatalogueExport, each func([]waitlist.VariantReading) error) error {
	chunks := 0
	for batch := range slices.Chunk(s.catalogue(func(waitlist.VariantReading) bool { return true }), 500) {
		if chunks++; s.cut > 0 && chunks > s.cut {
			return errors.New("the file ends early")
		}
		if chunks > 1 && s.chunk != nil {
			s.chunk()
		}
		for i := range batch {
			if old, ok := s.exported[batch[i].ID]; ok {
				batch[i] = old
			}
			batch[i].SharedItem = false // a line of an export does not tell
		}
		if err := each(batch); err != nil {
			return err
		}
	}
	return s.done("ReadCatalogue")
}

func (s *store) ReadProduct(_ context.Context, _, productID int64) ([]waitlist.VariantReading, error) {
	return s.catalogue(func(v waitlist.VariantReading) bool { return v.ProductID == productID }), s.done("ReadProduct")
}

func (s *store) ReadDraft(_ context.Context, _, id int64) (waitlist.Draft, bool, error) {
	s.mu.Lock()
	d := s.drafts[id]
	var read waitlist.Draft
	if d != nil {
		read = d.Draft
	}
	s.mu.Unlock()
	return read, d != nil, s.done("ReadDraft")
}

func (s *store) ReadBack(_ context.Context, _, id, variant int64, _ []int64) (waitlist.Draft, bool, int, error) {
	s.mu.Lock()
	s.tick()
	d := s.drafts[id]
	var read waitlist.Draft
	if d != nil {
		read = d.Draft
	}
	stock := 0
	if v := s.variants[variant]; v != nil {
		stock = v.Sellable
	}
	s.mu.Unlock()
	return read, d != nil, stock, s.done("ReadBack")
}

func (s *store) DeleteDraft(_ context.Context, _, id int64) error {
	s.mu.Lock()
	s.tick()
	if d := s.drafts[id]; d != nil {
		if d.reserved && !d.Completed {
			s.variants[d.variant].Sellable++
		}
		delete(s.drafts, id)
	}
	s.mu.Unlock()
	return s.done("DeleteDraft")
}

// outbox is a sender that accepts everything, unless told otherwise.
type outbox struct {
	mu     sync.Mutex
	sent   []waitlist.Outgoing
	answer func(waitlist.Outgoing) error // nil accepts
	find   func(waitlist.Outgoing) (string, bool, bool, error)
}

func (o *outbox) Send(_ context.Context, m waitlist.Outgoing) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.answer != nil {
		if err := o.answer(m); err != nil {
			return "", err
		}
	}
	o.sent = append(o.sent, m)
	return fmt.Sprintf("provider-%d", m.MessageID), nil
}

func (o *outbox) Segments(waitlist.Outgoing) int { return 2 }

func (o *outbox) Find(_ context.Context, m waitlist.Outgoing) (string, bool, bool, error) {
	if o.find != nil {
		return o.find(m)
	}
	return "", false, false, nil
}

// to are the addresses told, in order.
func (o *outbox) to() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []string
	for _, m := range o.sent {
		all = append(all, m.To)
	}
	return all
}
