package stage

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/app/shop"
)

// Evidence is what the simulators know: their own ledger and outbox, which the app cannot touch.
type Evidence struct {
	// Settled says that nothing is in flight, so that the app's books and Shopify's must agree. While
	// something is, only the app's own rows and what was sent are looked at.
	Settled bool
	Stock   map[Variant]Stock
	Drafts  []HeldDraft
	Sent    []Sent
	// Unheard are the variants of which a webhook was lost, or is kept back, since the app last read
	// them: nobody can expect the app to know.
	Unheard map[Variant]bool
	// Notices is the most notices_per_unit that each shop (by domain) had since the start.
	Notices map[string]int
	// Now is the clock of app and simulators.
	Now time.Time
	// Real turns a time of the pushed clock into real time, which the order of the queue is kept in.
	Real func(time.Time) time.Time
}

// Variant names a variant of a shop.
type Variant struct {
	Shop string // its domain
	ID   int64
}

// Stock is a variant's stock as the simulated Shopify has it.
type Stock struct {
	Sellable  int
	Reserved  int
	Committed int
	Available map[int64]int // by location
}

// HeldDraft is a draft order that carries our tag.
type HeldDraft struct {
	Shop          string
	ID, HoldID    int64
	VariantID     int64
	Open, Paid    bool // status OPEN; status COMPLETED
	ReservedUntil time.Time
}

// Sent is a message that a provider accepted.
type Sent struct {
	ID, To string
	At     time.Time
	Tokens []string // the reserve links in it
}

// Report is the answer of GET /sim/invariants.
type Report struct {
	OK       bool            `json:"ok"`
	Why      []string        `json:"why"`
	Settled  bool            `json:"settled"`             // whether the books were compared with Shopify's
	InFlight *inFlight       `json:"in_flight,omitempty"` // why they were not
	Restocks []RestockReport `json:"restocks"`
}

// RestockReport is a restock recounted.
type RestockReport struct {
	Shop       string         `json:"shop"`
	ID         int64          `json:"id"`
	VariantID  string         `json:"variant_id"`
	State      string         `json:"state"`
	Units      int            `json:"units"`
	Available  int            `json:"available"`
	Live       int            `json:"live"`
	Holds      map[string]int `json:"holds"` // by state
	Sold       int            `json:"sold"`
	Withdrawn  int            `json:"withdrawn"`
	OpenOffers int            `json:"open_offers"`
	Told       int            `json:"told"` // offers that are neither missed nor withdrawn
	Short      bool           `json:"short"`
	Shopify    ShopifyNumbers `json:"shopify"`
}

// ShopifyNumbers are the simulated Shopify's numbers of a restock's variant.
type ShopifyNumbers struct {
	Sellable  int `json:"sellable"`
	Reserved  int `json:"reserved"`
	Committed int `json:"committed"`
}

// skew is how far apart two processes may write the same moment: a step notes its time before it waits
// for a lock. What is recounted from times is in doubt by so much, and is then not held against the app.
const skew = 2 * time.Second

// sendTimeout is the longest that a message may be on its way to its provider.
const sendTimeout = 20 * time.Second

type (
	restockRow struct {
		ShopID, ID, VariantID                         int64
		State                                         string
		Units, Available, Live, Sold, Withdrawn       int
		Short                                         bool
		Domain                                        string
		Trouble                                       bool
		NoticesPerUnit                                int
		Locations                                     []int64
		Settling, Asked, Plain                        bool
		Changes                                       []*changeRow `db:"-"`
		Offers                                        []*offerRow  `db:"-"`
		Holds                                         []*holdRow   `db:"-"`
		units, available, live, sold, withdrawn, open int
	}
	changeRow struct {
		ShopID, RestockID int64
		Kind              string
		By                int
		At                time.Time
	}
	offerRow struct {
		ShopID, ID, RestockID, EntryID int64
		State                          string
		Reserved                       bool
		CreatedAt                      time.Time
		EndedAt                        *time.Time
		hold                           *holdRow
	}
	holdRow struct {
		ShopID, ID, RestockID, OfferID, EntryID, VariantID int64
		State                                              string
		Pressed                                            bool
		ActivatedAt, NoticeAt                              *time.Time
		ClaimedAt                                          time.Time
		ExpiresAt, EndedAt, PaidLateAt                     *time.Time
		DraftID, OrderID                                   *int64
	}
	entryRow struct {
		ShopID, ID, VariantID, ContactID int64
		CustomerID                       *int64
		State                            string
		JoinedAt, ExpiresAt              time.Time
		EndedAt                          *time.Time
		Channel, Key                     string
		Reachable                        bool // texts need the shop's Twilio account
		offers                           []*offerRow
	}
	suppressionRow struct {
		ShopID      int64
		Channel     string
		ContactHash []byte
		CreatedAt   time.Time
	}
	messageRow struct {
		ShopID, ID, OfferID       int64
		Attempts, Doubts, Returns int
		SendingAt                 *time.Time
	}
	pauseRow struct {
		ShopID          int64
		Channel, Prefix string
		Since           time.Time
		Until, EndedAt  *time.Time
	}
)

func (h *holdRow) live() bool {
	return h.State == "securing" || h.State == "active" || h.State == "releasing"
}
func (e *entryRow) live() bool {
	return e.State == "waiting" || e.State == "offered" || e.State == "holding"
}

// told says whether an offer counts as having told its person.
func (o *offerRow) told() bool { return o.State != "missed" && o.State != "withdrawn" }

// end is when the offer, and the hold that it became, was over; the zero time while it is not.
func (o *offerRow) end() time.Time {
	if o.EndedAt == nil {
		return time.Time{}
	}
	if o.hold == nil {
		return *o.EndedAt
	}
	if o.hold.EndedAt == nil {
		return time.Time{}
	}
	return *o.hold.EndedAt
}

type key struct{ shop, id int64 }

// books are the app's rows as of one moment, tied together.
type books struct {
	keys      *shop.Keys
	evidence  Evidence
	domains   map[int64]string
	restocks  []*restockRow
	entries   []*entryRow
	offers    []*offerRow
	holds     []*holdRow
	messages  []*messageRow
	pauses    []*pauseRow
	offer     map[key]*offerRow
	offerByID map[int64]*offerRow
	entry     map[key]*entryRow
	hold      map[key]*holdRow
	message   map[int64]*messageRow   // by offer
	barred    map[key]*suppressionRow // by contact

	why []string
}

// Recount proves promises 1 to 6 from the rows and the simulators' evidence, and never from what the app
// has summed up. The evidence must have been taken before: what was sent then has its rows now.
func Recount(ctx context.Context, db *pgxpool.Pool, keys *shop.Keys, e Evidence) (Report, error) {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}) // one snapshot
	if err != nil {
		return Report{}, fmt.Errorf("recount: %w", err)
	}
	defer tx.Rollback(ctx)
	return recount(ctx, tx, keys, e)
}

func recount(ctx context.Context, tx pgx.Tx, keys *shop.Keys, e Evidence) (Report, error) {
	b := &books{keys: keys, evidence: e}
	if b.evidence.Real == nil {
		b.evidence.Real = func(t time.Time) time.Time { return t }
	}
	if err := b.read(ctx, tx); err != nil {
		return Report{}, fmt.Errorf("recount: %w", err)
	}
	for _, r := range b.restocks {
		b.unitsAddUp(r)
		b.noMoreNoticesThanUnits(r)
	}
	b.statesFit()
	b.firstComeFirstTold()
	b.toldInOrder()
	b.onePersonOnePlace()
	b.toldOnce()
	b.optOutsHold()
	if e.Settled {
		for _, r := range b.restocks {
			b.stockAgrees(r)
		}
		b.draftsAgree()
	}
	report := Report{OK: len(b.why) == 0, Why: b.why, Settled: e.Settled, Restocks: []RestockReport{}}
	if report.Why == nil {
		report.Why = []string{}
	}
	for _, r := range b.restocks {
		report.Restocks = append(report.Restocks, b.report(r))
	}
	return report, nil
}

func (b *books) broken(format string, args ...any) {
	b.why = append(b.why, fmt.Sprintf(format, args...))
}

// read takes every row.
func (b *books) read(ctx context.Context, tx pgx.Tx) (err error) {
	b.restocks, err = rowsOf[restockRow](ctx, tx, `
		SELECT r.shop_id, r.id, r.variant_id, r.state, r.units, r.available, r.live, r.sold, r.withdrawn, r.short, s.domain,
		       s.trouble IS NOT NULL OR s.state <> 'installed' AS trouble, t.notices_per_unit, t.locations,
		       v.rise_since IS NOT NULL AS settling, v.asked IS NOT NULL OR v.declined IS NOT NULL AS asked,
		       NOT v.tracked OR v.continue_selling OR v.components OR v.shared_item AS plain
		FROM restocks r JOIN shops s ON s.id = r.shop_id JOIN settings t USING (shop_id) JOIN variants v ON v.shop_id = r.shop_id AND v.id = r.variant_id
		ORDER BY r.shop_id, r.id`)
	if err != nil {
		return err
	}
	changes, err := rowsOf[changeRow](ctx, tx, `SELECT shop_id, restock_id, kind, by, at FROM restock_changes ORDER BY shop_id, id`)
	if err != nil {
		return err
	}
	b.offers, err = rowsOf[offerRow](ctx, tx, `SELECT shop_id, id, restock_id, entry_id, state, reserved, created_at, ended_at FROM offers ORDER BY shop_id, id`)
	if err != nil {
		return err
	}
	b.holds, err = rowsOf[holdRow](ctx, tx, `
		SELECT shop_id, id, restock_id, offer_id, entry_id, variant_id, state, pressed, activated_at, notice_at, claimed_at, expires_at, ended_at, paid_late_at, draft_id, order_id
		FROM holds ORDER BY shop_id, id`)
	if err != nil {
		return err
	}
	b.entries, err = rowsOf[entryRow](ctx, tx, `
		SELECT e.shop_id, e.id, e.variant_id, e.contact_id, e.customer_id, e.state, e.joined_at, e.expires_at, e.ended_at, c.channel, c.key,
		       c.channel <> 'sms' OR s.sealed_twilio IS NOT NULL AS reachable
		FROM entries e JOIN contacts c ON c.shop_id = e.shop_id AND c.id = e.contact_id JOIN shops s ON s.id = e.shop_id
		ORDER BY e.shop_id, e.variant_id, e.joined_at, e.id`)
	if err != nil {
		return err
	}
	b.messages, err = rowsOf[messageRow](ctx, tx, `SELECT shop_id, id, offer_id, attempts, doubts, returns, sending_at FROM messages ORDER BY shop_id, id`)
	if err != nil {
		return err
	}
	b.pauses, err = rowsOf[pauseRow](ctx, tx, `SELECT shop_id, channel, prefix, since, until, ended_at FROM pauses ORDER BY shop_id, id`)
	if err != nil {
		return err
	}
	suppressions, err := rowsOf[suppressionRow](ctx, tx, `SELECT shop_id, channel, contact_hash, created_at FROM suppressions`)
	if err != nil {
		return err
	}
	shops, err := rowsOf[struct {
		ID     int64
		Domain string
	}](ctx, tx, `SELECT id, domain FROM shops`)
	if err != nil {
		return err
	}

	b.domains = map[int64]string{}
	for _, s := range shops {
		b.domains[s.ID] = s.Domain
	}
	restock := map[key]*restockRow{}
	for _, r := range b.restocks {
		restock[key{r.ShopID, r.ID}] = r
	}
	for _, c := range changes {
		r := restock[key{c.ShopID, c.RestockID}]
		r.Changes = append(r.Changes, c)
	}
	b.entry = map[key]*entryRow{}
	for _, e := range b.entries {
		b.entry[key{e.ShopID, e.ID}] = e
	}
	b.offer, b.offerByID = map[key]*offerRow{}, map[int64]*offerRow{}
	for _, o := range b.offers {
		b.offer[key{o.ShopID, o.ID}], b.offerByID[o.ID] = o, o
		r, e := restock[key{o.ShopID, o.RestockID}], b.entry[key{o.ShopID, o.EntryID}]
		r.Offers, e.offers = append(r.Offers, o), append(e.offers, o)
	}
	b.hold = map[key]*holdRow{}
	for _, h := range b.holds {
		b.hold[key{h.ShopID, h.ID}] = h
		r := restock[key{h.ShopID, h.RestockID}]
		r.Holds = append(r.Holds, h)
		b.offer[key{h.ShopID, h.OfferID}].hold = h
	}
	b.message = map[int64]*messageRow{}
	for _, m := range b.messages {
		b.message[m.OfferID] = m
	}
	b.barred = map[key]*suppressionRow{}
	for _, e := range b.entries {
		contact := key{e.ShopID, e.ContactID}
		if _, seen := b.barred[contact]; seen || len(suppressions) == 0 {
			continue
		}
		hashes := b.keys.Hashes(e.ShopID, e.Channel, e.Key)
		for _, s := range suppressions {
			if s.ShopID == e.ShopID && s.Channel == e.Channel && slices.ContainsFunc(hashes, func(h []byte) bool { return bytes.Equal(h, s.ContactHash) }) {
				b.barred[contact] = s
			}
		}
	}
	return nil
}

func rowsOf[T any](ctx context.Context, tx pgx.Tx, sql string) ([]*T, error) {
	rows, _ := tx.Query(ctx, sql)
	return pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[T])
}

// unitsAddUp is promise 1 from the rows: units are what was opened and grown, withdrawn what shrank or was
// refused, live and sold are holds; available is the rest.
func (b *books) unitsAddUp(r *restockRow) {
	for _, c := range r.Changes {
		if c.Kind == "shrink" {
			r.withdrawn += c.By
		} else {
			r.units += c.By
		}
	}
	for _, h := range r.Holds {
		switch {
		case h.live():
			r.live++
		case h.State == "sold":
			r.sold++
		case h.State == "refused":
			r.withdrawn++
		}
	}
	for _, o := range r.Offers {
		if o.State == "open" && !o.Reserved { // a reserved one has its unit in live
			r.open++
		}
	}
	r.available = r.units - r.live - r.sold - r.withdrawn
	if r.available < 0 {
		b.broken("promise 1: restock %d has %d units and has given %d: %d live holds, %d sold, %d withdrawn", r.ID, r.units, r.live+r.sold+r.withdrawn, r.live, r.sold, r.withdrawn)
	}
	for _, n := range []struct {
		name          string
		says, counted int
	}{
		{"units", r.Units, r.units}, {"available", r.Available, r.available}, {"live", r.Live, r.live},
		{"sold", r.Sold, r.sold}, {"withdrawn", r.Withdrawn, r.withdrawn},
	} {
		if n.says != n.counted {
			b.broken("promise 1: restock %d says %s = %d, its rows say %d", r.ID, n.name, n.says, n.counted)
		}
	}
	if r.State == "closed" && (r.available != 0 || r.live != 0 || r.open != 0) {
		b.broken("promise 1: restock %d is closed with %d available, %d live holds and %d open offers", r.ID, r.available, r.live, r.open)
	}
}

// noMoreNoticesThanUnits is promise 2, for the moment of each allocation. What was available then is
// reckoned back from the changes and the holds.
func (b *books) noMoreNoticesThanUnits(r *restockRow) {
	most := max(r.NoticesPerUnit, b.evidence.Notices[r.Domain])
	// With one notice per unit a press takes as many units as offers, so it holds at every moment.
	if most == 1 && r.open > r.available {
		b.broken("promise 2: restock %d has %d open offers for %d available units", r.ID, r.open, r.available)
	}
	var last time.Time
	for _, o := range r.Offers {
		if o.Reserved || o.CreatedAt.Equal(last) {
			continue
		}
		last = o.CreatedAt
		open, available := 0, 0
		for _, other := range r.Offers {
			if !other.Reserved && !other.CreatedAt.After(last) && (other.EndedAt == nil || other.EndedAt.After(last.Add(skew))) {
				open++
			}
		}
		for _, c := range r.Changes {
			switch {
			case c.Kind == "shrink" && c.At.Before(last.Add(-skew)):
				available -= c.By
			case c.Kind != "shrink" && !c.At.After(last.Add(skew)):
				available += c.By
			}
		}
		for _, h := range r.Holds {
			if h.ClaimedAt.Before(last.Add(-skew)) {
				available--
			}
			if (h.State == "expired" || h.State == "released") && h.EndedAt != nil && !h.EndedAt.After(last.Add(skew)) {
				available++
			}
		}
		if open > available*most {
			b.broken("promise 2: at %s restock %d had %d open offers for %d available units and %d notices per unit", last.Format(time.RFC3339Nano), r.ID, open, available, most)
		}
	}
}

// statesFit is promise 1 from the side of the people: an entry, its offer and its hold tell one story.
func (b *books) statesFit() {
	for _, e := range b.entries {
		open, live := 0, 0
		for _, o := range e.offers {
			held := o.hold != nil && o.hold.live()
			if o.State == "open" && o.Reserved {
				// Its hold is what it stands on, and ends it.
				if !held || o.hold.Pressed {
					b.broken("promise 1: reserved offer %d is open without a live hold that nobody pressed", o.ID)
				}
				if e.State == "offered" {
					open++
				} else if e.live() {
					b.broken("promise 1: entry %d is %s, with the reserved offer %d open", e.ID, e.State, o.ID)
				}
				continue
			}
			if o.State == "open" {
				open++
			}
			if held {
				live++
			}
		}
		switch {
		case e.State == "offered" && (open != 1 || live != 0):
			b.broken("promise 1: entry %d is offered, with %d open offers and %d live holds", e.ID, open, live)
		case e.State == "holding" && (open != 0 || live != 1):
			b.broken("promise 1: entry %d is holding, with %d open offers and %d live holds", e.ID, open, live)
		case e.State == "waiting" && (open != 0 || live != 0):
			b.broken("promise 1: entry %d is waiting, with %d open offers and %d live holds", e.ID, open, live)
		case !e.live() && open != 0:
			b.broken("promise 1: entry %d is %s, with %d open offers", e.ID, e.State, open)
		case live > 1:
			b.broken("promise 1: entry %d has %d live holds", e.ID, live)
		}
	}
	for _, h := range b.holds {
		o := b.offer[key{h.ShopID, h.OfferID}]
		if o.EntryID != h.EntryID || o.RestockID != h.RestockID {
			b.broken("promise 1: hold %d is for entry %d in restock %d, its offer %d for entry %d in restock %d", h.ID, h.EntryID, h.RestockID, o.ID, o.EntryID, o.RestockID)
		}
		if h.NoticeAt != nil && o.State == "missed" {
			b.broken("promise 5: hold %d was told of at %s, and its offer %d counts as never told", h.ID, h.NoticeAt.Format(time.RFC3339Nano), o.ID)
		}
		if h.live() && h.Pressed != (o.State == "claimed") {
			b.broken("promise 1: hold %d is %s, its offer %d is %s", h.ID, h.State, o.ID, o.State)
		}
	}
}

// firstComeFirstTold is promise 3: whenever somebody was told, nobody who had joined before them was
// waiting and might have been told.
func (b *books) firstComeFirstTold() {
	type variant struct{ shop, id int64 }
	queues := map[variant][]*entryRow{} // in order of joined_at, id, as they were read
	for _, e := range b.entries {
		v := variant{e.ShopID, e.VariantID}
		queues[v] = append(queues[v], e)
	}
	for _, r := range b.restocks {
		queue := queues[variant{r.ShopID, r.VariantID}]
		place := map[int64]int{}
		for i, e := range queue {
			place[e.ID] = i
		}
		// Offers of one allocation carry one time. The last of them in the queue is the one to look at.
		for i := 0; i < len(r.Offers); {
			at, behind, batch := r.Offers[i].CreatedAt, r.Offers[i], map[int64]bool{}
			for ; i < len(r.Offers) && r.Offers[i].CreatedAt.Equal(at); i++ {
				batch[r.Offers[i].EntryID] = true
				if place[r.Offers[i].EntryID] > place[behind.EntryID] {
					behind = r.Offers[i]
				}
			}
			for _, e := range queue[:place[behind.EntryID]] {
				if !batch[e.ID] && b.mightHaveBeenTold(e, r, at) {
					b.broken("promise 3: entry %d was told in restock %d at %s, before entry %d, which had joined before it", behind.EntryID, r.ID, at.Format(time.RFC3339Nano), e.ID)
					break
				}
			}
		}
	}
}

// toldInOrder is promise 3 from the outbox: of the messages of one allocation, that of the one who joined
// first was accepted first. One whose first attempt failed keeps nobody waiting, and is told later.
func (b *books) toldInOrder() {
	type allocation struct {
		shop, restock int64
		at            time.Time
	}
	last := map[allocation]*offerRow{} // of those told so far, the furthest back in the queue
	for _, m := range b.evidence.Sent {
		for _, token := range m.Tokens {
			id, err := b.keys.ParseToken(shop.Reserve, token)
			o := b.offerByID[id]
			if err != nil || o == nil {
				continue // said elsewhere
			}
			mine := b.message[id]
			if mine == nil || mine.Attempts != 1 {
				continue
			}
			a := allocation{o.ShopID, o.RestockID, o.CreatedAt}
			before := last[a]
			if before == nil || b.ahead(before, o) {
				last[a] = o
				continue
			}
			theirs := b.message[before.ID]
			if o.Reserved && theirs.SendingAt != nil && o.hold.ActivatedAt != nil && o.hold.ActivatedAt.After(theirs.SendingAt.Add(-skew)) {
				continue // whose unit Shopify would not reserve for long: they keep nobody waiting, and are told when it is held
			}
			if theirs.SendingAt != nil && mine.SendingAt != nil && mine.SendingAt.After(*theirs.SendingAt) {
				b.broken("promise 3: message %s to %s was sent after that of entry %d, which had joined later", m.ID, m.To, before.EntryID)
			}
		}
	}
}

// ahead says whether the entry of one offer stands before that of another in the queue.
func (b *books) ahead(one, other *offerRow) bool {
	e, f := b.entry[key{one.ShopID, one.EntryID}], b.entry[key{other.ShopID, other.EntryID}]
	if e.JoinedAt.Equal(f.JoinedAt) {
		return e.ID < f.ID
	}
	return e.JoinedAt.Before(f.JoinedAt)
}

// mightHaveBeenTold says whether an entry was without doubt waiting, and not yet told in a restock, at a
// time.
func (b *books) mightHaveBeenTold(e *entryRow, r *restockRow, at time.Time) bool {
	if !e.Reachable || e.JoinedAt.After(b.evidence.Real(at).Add(-skew)) || e.ExpiresAt.Before(at.Add(skew)) {
		return false
	}
	if e.EndedAt != nil && e.EndedAt.Before(at.Add(skew)) {
		return false
	}
	for _, p := range b.pauses { // whoever cannot be written to is not offered a unit
		if p.ShopID == e.ShopID && p.Channel == e.Channel && strings.HasPrefix(e.Key, p.Prefix) && !p.Since.After(at.Add(skew)) && (p.EndedAt == nil || p.EndedAt.After(at.Add(-skew))) {
			return false
		}
	}
	for _, o := range e.offers {
		if o.CreatedAt.After(at.Add(skew)) {
			continue
		}
		if o.RestockID == r.ID && o.told() {
			return false
		}
		if end := o.end(); end.IsZero() || end.After(at.Add(-skew)) {
			return false
		}
	}
	return true
}

// onePersonOnePlace is promise 4.
func (b *books) onePersonOnePlace() {
	type place struct {
		shop, variant int64
		who           string
	}
	live := map[place]int64{}
	for _, e := range b.entries {
		if !e.live() {
			continue
		}
		who := []string{e.Channel + " " + e.Key}
		if e.CustomerID != nil {
			who = append(who, fmt.Sprintf("customer %d", *e.CustomerID))
		}
		for _, w := range who {
			p := place{e.ShopID, e.VariantID, w}
			if first, ok := live[p]; ok {
				b.broken("promise 4: entries %d and %d both keep a place for %s at variant %d", first, e.ID, w, e.VariantID)
				continue
			}
			live[p] = e.ID
		}
	}
}

// toldOnce is promise 5, from the offers and from what the providers accepted.
func (b *books) toldOnce() {
	type pair struct{ shop, restock, entry int64 }
	told := map[pair]int64{}
	for _, o := range b.offers {
		if !o.told() {
			continue
		}
		p := pair{o.ShopID, o.RestockID, o.EntryID}
		if first, ok := told[p]; ok {
			b.broken("promise 5: entry %d was told twice in restock %d, by offers %d and %d", o.EntryID, o.RestockID, first, o.ID)
			continue
		}
		told[p] = o.ID
	}
	// An offer is sent again only when the first copy was lost from sight, once, or was not delivered.
	sent := map[int64]map[string]bool{}
	for _, m := range b.evidence.Sent {
		for _, token := range m.Tokens {
			id, err := b.keys.ParseToken(shop.Reserve, token)
			if err != nil {
				b.broken("promise 5: message %s to %s has a reserve link that is not ours", m.ID, m.To)
				continue
			}
			if b.offerByID[id] == nil {
				b.broken("promise 5: message %s to %s tells of offer %d, which no row has", m.ID, m.To, id)
				continue
			}
			if sent[id] == nil {
				sent[id] = map[string]bool{}
			}
			sent[id][m.ID] = true
			if row := b.message[id]; row != nil && len(sent[id]) > 1+min(row.Doubts, 1)+row.Returns {
				b.broken("promise 5: offer %d was sent %d times to %s; %d attempts were in doubt and %d not delivered", id, len(sent[id]), m.To, row.Doubts, row.Returns)
			}
		}
	}
}

// optOutsHold is promise 6: a suppressed contact has no live entry, and nothing was sent to it since.
func (b *books) optOutsHold() {
	for _, e := range b.entries {
		if s := b.barred[key{e.ShopID, e.ContactID}]; s != nil && e.live() {
			b.broken("promise 6: entry %d is %s, and its contact was suppressed at %s", e.ID, e.State, s.CreatedAt.Format(time.RFC3339Nano))
		}
	}
	for _, m := range b.evidence.Sent {
		for _, token := range m.Tokens {
			id, err := b.keys.ParseToken(shop.Reserve, token)
			o := b.offerByID[id]
			if err != nil || o == nil {
				continue // said above
			}
			s := b.barred[key{o.ShopID, b.entry[key{o.ShopID, o.EntryID}].ContactID}]
			if s == nil {
				continue
			}
			// The last look at the opt-outs and the send are two moments, as far apart as one send.
			row := b.message[id]
			if m.At.After(s.CreatedAt.Add(sendTimeout)) || (row != nil && row.SendingAt != nil && row.SendingAt.After(s.CreatedAt)) {
				b.broken("promise 6: message %s was sent to %s at %s, after the opt-out at %s", m.ID, m.To, m.At.Format(time.RFC3339Nano), s.CreatedAt.Format(time.RFC3339Nano))
			}
		}
	}
}

// stockAgrees is promise 1 against Shopify's own numbers, when nothing is in flight: what an open restock
// has available is what Shopify has for sale, but for holds whose draft is being made or taken away.
func (b *books) stockAgrees(r *restockRow) {
	v := Variant{r.Domain, r.VariantID}
	stock, known := b.evidence.Stock[v]
	if r.State != "open" || r.Trouble || r.Plain || b.evidence.Unheard[v] {
		return
	}
	if !known {
		b.broken("promise 1: restock %d is of variant %d, which Shopify does not have", r.ID, r.VariantID)
		return
	}
	s := stock.Sellable
	if len(r.Locations) > 0 {
		s = 0
		for _, l := range r.Locations {
			s += stock.Available[l]
		}
	}
	between := 0 // holds of which Shopify may or may not have the draft
	for _, h := range r.Holds {
		overdue := h.State == "active" && !h.ExpiresAt.After(b.evidence.Now)
		if h.State == "securing" || h.State == "releasing" || overdue {
			between++
		}
	}
	switch {
	case s < 0 && r.available == 0: // strangers, or the merchant, took what was held: it is not promised again
	case s < r.available:
		b.broken("promise 1: restock %d has %d available, and Shopify has only %d for sale", r.ID, r.available, s)
	case s > r.available+between && !r.Settling && !r.Asked:
		b.broken("promise 1: restock %d has %d available and %d holds in between, and Shopify has %d for sale", r.ID, r.available, between, s)
	}
}

// draftsAgree is promise 1 hold by hold, when nothing is in flight: a live hold has its draft, a draft has
// its hold, and what was paid is sold.
func (b *books) draftsAgree() {
	type id struct {
		shop string
		id   int64
	}
	drafts := map[id]HeldDraft{}
	for _, d := range b.evidence.Drafts {
		drafts[id{d.Shop, d.ID}] = d
	}
	holds := map[id]*holdRow{}
	for _, h := range b.holds {
		domain := b.domains[h.ShopID]
		holds[id{domain, h.ID}] = h
		if b.evidence.Unheard[Variant{domain, h.VariantID}] {
			continue
		}
		var d HeldDraft
		var has bool
		if h.DraftID != nil {
			d, has = drafts[id{domain, *h.DraftID}]
		}
		switch {
		case h.State == "active" && !has:
			b.broken("promise 1: hold %d is active, and Shopify does not have its draft", h.ID)
		case h.State == "active" && !d.Open:
			b.broken("promise 1: hold %d is active, and its draft %d is not open", h.ID, d.ID)
		case h.State == "sold" && !(has && d.Paid) && h.OrderID == nil:
			b.broken("promise 1: hold %d is sold, and Shopify has neither a paid draft nor an order for it", h.ID)
		}
	}
	for _, d := range b.evidence.Drafts {
		if b.evidence.Unheard[Variant{d.Shop, d.VariantID}] {
			continue
		}
		h := holds[id{d.Shop, d.HoldID}]
		switch {
		case h == nil:
			b.broken("promise 1: draft %d of %s is for hold %d, which no row has", d.ID, d.Shop, d.HoldID)
		case d.Open && !(h.live() && (h.DraftID == nil || *h.DraftID == d.ID)):
			b.broken("promise 7: draft %d is left over: its hold %d is %s", d.ID, h.ID, h.State)
		case d.Paid && h.State != "sold" && h.PaidLateAt == nil:
			b.broken("promise 8: draft %d was paid, and its hold %d is %s", d.ID, h.ID, h.State)
		}
	}
}

func (b *books) report(r *restockRow) RestockReport {
	out := RestockReport{
		Shop: r.Domain, ID: r.ID, VariantID: fmt.Sprint(r.VariantID), State: r.State, Units: r.units, Available: r.available,
		Live: r.live, Sold: r.sold, Withdrawn: r.withdrawn, OpenOffers: r.open, Short: r.Short, Holds: map[string]int{},
	}
	for _, state := range []string{"securing", "active", "releasing", "sold", "expired", "released", "refused"} {
		out.Holds[state] = 0
	}
	for _, h := range r.Holds {
		out.Holds[h.State]++
	}
	for _, o := range r.Offers {
		if o.told() {
			out.Told++
		}
	}
	stock := b.evidence.Stock[Variant{r.Domain, r.VariantID}]
	out.Shopify = ShopifyNumbers{stock.Sellable, stock.Reserved, stock.Committed}
	return out
}

// notices remembers the most notices per unit that each shop had: an offer is judged by the setting of
// its time.
type notices struct {
	mu   sync.Mutex
	most map[string]int
}

func (n *notices) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.most = nil
}

// noteSettings looks at the shops' settings, which may have changed by any way.
func (s *Stage) noteSettings(ctx context.Context) error {
	rows, _ := s.db.Query(ctx, `SELECT domain, notices_per_unit FROM settings JOIN shops ON shops.id = shop_id`)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		Domain  string
		Notices int
	}])
	if err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	s.notices.mu.Lock()
	defer s.notices.mu.Unlock()
	if s.notices.most == nil {
		s.notices.most = map[string]int{}
	}
	for _, a := range all {
		s.notices.most[a.Domain] = max(s.notices.most[a.Domain], a.Notices)
	}
	return nil
}

// getInvariants recounts the promises. Shopify's numbers are compared when nothing was in flight, from
// before the simulators were asked until after the rows were read.
func (s *Stage) getInvariants(r *http.Request) (any, error) {
	ctx := r.Context()
	if err := s.noteSettings(ctx); err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		before, err := s.look(ctx)
		if err != nil {
			return nil, err
		}
		e, err := s.sims.evidence(ctx)
		if err != nil {
			return nil, err
		}
		s.notices.mu.Lock()
		e.Notices = maps.Clone(s.notices.most)
		s.notices.mu.Unlock()
		e.Real, e.Settled = s.pushes.real, before.nothing() && try < 3
		report, err := Recount(ctx, s.db, s.keys, e)
		if err != nil {
			return nil, err
		}
		if !e.Settled {
			report.InFlight = &before
			return report, nil
		}
		after, err := s.look(ctx)
		if err != nil {
			return nil, err
		}
		if after.nothing() && after.moved == before.moved {
			return report, nil
		}
	}
}
