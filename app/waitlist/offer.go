package waitlist

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/app/shop"
)

// Offer is what the reserve page and its status show.
type Offer struct {
	ShopID   int64
	ShopName string
	Locale   string // of the shopper, BCP 47; may be empty

	ShopLocale string
	Item       Item
	// State is open, securing, held, gone, lapsed, passed, sold, expired or left. (The page has one more,
	// invalid, for a link that is none.)
	State       string
	Reserved    bool      // an open offer's unit is held already: a press cannot come too late for it
	Until       time.Time // of the offer when open, of the hold when held; else zero
	HoldMinutes int       // how long a press holds the unit
	CheckoutURL string    // only when held
	Place       int       // position in the queue, as MyPlace.Place, when the entry is waiting again; else 0
	PlaceToken  string
	Now         time.Time     // the server's time
	Retry       time.Duration // when to look again
}

// pressed is an offer with what hangs on it, read in one statement.
type pressed struct {
	ShopID, RestockID, OfferID, EntryID int64

	OfferState string
	Reserved   bool
	LapsesAt   time.Time
	EntryState string
	HoldID     *int64
	HoldState  *string
	Reason     *string
	ExpiresAt  *time.Time
	InvoiceURL *string
	Pressed    *bool
	NoticeAt   *time.Time
}

// depth is how much of an offer is read: its state alone, what its page shows, or also the place in the queue, for
// which those who are before it must be counted.
type depth int

const (
	bare depth = iota
	shown
	placed
)

// newest reads the newest offer of the entry and restock that a reserve token names. A token carries the
// id of one offer; when that was missed and the entry was offered a unit again in the same restock, the
// old link shows the new offer.
func (s *Service) newest(ctx context.Context, token string, deep depth) (pressed, Offer, error) {
	var p pressed
	var o Offer
	id, err := s.keys.ParseToken(shop.Reserve, token)
	if err != nil {
		return p, o, err
	}
	const from = ` FROM offers o
		JOIN LATERAL (SELECT * FROM offers n WHERE n.shop_id = o.shop_id AND n.entry_id = o.entry_id AND n.restock_id = o.restock_id ORDER BY n.id DESC LIMIT 1) n ON true
		JOIN entries e ON e.shop_id = n.shop_id AND e.id = n.entry_id
		LEFT JOIN holds h ON h.shop_id = n.shop_id AND h.offer_id = n.id`
	const columns = `SELECT n.shop_id, n.restock_id, n.id, n.entry_id, n.state, n.reserved, n.lapses_at, e.state,
		       h.id, h.state, h.reason, h.expires_at, h.invoice_url, h.pressed, h.notice_at, e.locale`
	into := []any{&p.ShopID, &p.RestockID, &p.OfferID, &p.EntryID, &p.OfferState, &p.Reserved, &p.LapsesAt, &p.EntryState,
		&p.HoldID, &p.HoldState, &p.Reason, &p.ExpiresAt, &p.InvoiceURL, &p.Pressed, &p.NoticeAt, &o.Locale}
	text := columns + from
	if deep > bare {
		place := `0`
		if deep == placed {
			place = placeOf
		}
		text = columns + `, s.name, s.locale, ` + place + `, coalesce(h.hold_minutes, t.hold_minutes), ` + itemColumns + from + `
		JOIN shops s ON s.id = n.shop_id
		JOIN settings t ON t.shop_id = n.shop_id
		JOIN variants v ON v.shop_id = e.shop_id AND v.id = e.variant_id`
		into = append(append(into, &o.ShopName, &o.ShopLocale, &o.Place, &o.HoldMinutes), o.Item.fields()...)
	}
	err = s.db.QueryRow(ctx, text+` WHERE o.id = $1`, id).Scan(into...)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, o, ErrInvalidLink
	}
	if err != nil {
		return p, o, fmt.Errorf("read offer: %w", err)
	}
	o.ShopID, o.Now = p.ShopID, s.now()
	o.PlaceToken = s.keys.Token(shop.Place, p.EntryID)
	o.State, o.Retry = p.show(o.Now)
	switch o.State {
	case "open":
		o.Until, o.Reserved = p.LapsesAt, p.Reserved
	case "held":
		o.Until, o.CheckoutURL = *p.ExpiresAt, *p.InvoiceURL
	}
	return p, o, nil
}

// show says what its shopper sees of an offer, and when to look again. What is ending is shown as ended.
func (p pressed) show(now time.Time) (string, time.Duration) {
	const soon, later = 2 * time.Second, 15 * time.Second
	switch {
	case p.EntryState == Sold:
		return "sold", later
	case p.EntryState == Left || p.EntryState == Suppressed:
		return "left", later
	case p.HoldState == nil && p.OfferState == "open":
		if p.LapsesAt.After(now) {
			return "open", later
		}
		return "lapsed", later
	case p.HoldState == nil && (p.OfferState == "missed" || p.OfferState == "withdrawn"):
		return "gone", later
	case p.HoldState == nil:
		return p.OfferState, later // lapsed or passed
	}
	state := *p.HoldState
	if state == "releasing" {
		state = *p.Reason
	}
	if !*p.Pressed { // held before it was told, and not pressed
		switch {
		case state == "active" && p.ExpiresAt.After(now):
			return "open", later
		case state == "active" || state == "expired":
			return "lapsed", later
		case state == "released" && p.OfferState == "missed":
			return "gone", later
		}
	}
	switch state {
	case "securing", "active":
		if p.ExpiresAt != nil && !p.ExpiresAt.After(now) {
			return "expired", soon
		}
		if state == "securing" {
			return "securing", soon
		}
		return "held", later
	case "refused":
		return "gone", later
	case "released":
		return "passed", later
	}
	return state, later // sold or expired
}

// Look shows the newest offer of a reserve link, or returns ErrInvalidLink. It changes nothing.
func (s *Service) Look(ctx context.Context, token string) (Offer, error) {
	_, o, err := s.newest(ctx, token, placed)
	return o, err
}

// Claim is the press: it takes one unit from the counter and makes the hold, or the offer is missed and
// the place is kept. A press that was made before shows the same hold, and an offer that is over is left as
// it is. Presses that arrive together commit together (gather.go). The offer is returned as it then stands,
// but for its place, which Look counts; ErrInvalidLink for a link that is none, ErrBusy when too many press at once.
func (s *Service) Claim(ctx context.Context, token string) (Offer, error) {
	p, o, err := s.newest(ctx, token, bare)
	if err != nil {
		return o, err
	}
	switch {
	case o.State != "open":
	case p.Reserved:
		err = s.pressReserved(ctx, p.ShopID, p.OfferID)
	default:
		err = s.Press(ctx, p.ShopID, p.RestockID, p.OfferID)
	}
	if err != nil {
		return o, err
	}
	_, o, err = s.newest(ctx, token, shown)
	return o, err
}

// Press commits one press on an open offer, with those on the same restock that wait meanwhile: afterwards the
// offer is claimed, missed or, if it was over, as it was. ErrBusy when too many wait.
func (s *Service) Press(ctx context.Context, shopID, restockID, offerID int64) error {
	_, _, err := s.presses.ask(ctx, restockLine{shopID, restockID}, offerID)
	return err
}

// pressReserved marks the hold of a reserved offer pressed: from now on its shopper has the hold minutes. It
// is one statement on that hold's own row, with no counter and no call of Shopify's in it, and the way to
// the checkout is shown after it has committed, never before. A hold that is not active and unpressed and
// within its time is left alone: a press must not bring a dead one back to life.
func (s *Service) pressReserved(ctx context.Context, shopID, offerID int64) error {
	if err := s.point(ctx, "claim_commit", "before"); err != nil {
		return err
	}
	_, err := s.db.Exec(ctx, `
		WITH hold AS (
			UPDATE holds SET pressed = true, expires_at = $3::timestamptz + make_interval(mins => hold_minutes)
			WHERE shop_id = $1 AND offer_id = $2 AND state = 'active' AND NOT pressed AND expires_at > $3
			RETURNING offer_id, entry_id
		), claimed AS (
			UPDATE offers o SET state = 'claimed', ended_at = $3 FROM hold WHERE o.shop_id = $1 AND o.id = hold.offer_id AND o.state = 'open'
		)
		UPDATE entries e SET state = 'holding' FROM hold WHERE e.shop_id = $1 AND e.id = hold.entry_id AND e.state = 'offered'`, shopID, offerID, s.now())
	if err != nil {
		return fmt.Errorf("press: %w", err)
	}
	return s.point(ctx, "claim_commit", "after")
}

// claim commits k presses on one restock together, in press order, as one conditional statement behind the
// restock's lock: of the offers that are open and not overdue, as many as there are units become holds,
// the others are missed. It touches neither rose nor fell, so a burst of presses never disturbs an
// observe. Securing is queued with it.
func (s *Service) claim(ctx context.Context, shopID, restockID int64, offers []int64) error {
	err := s.untilSettled(ctx, "claim", func(tx pgx.Tx) error {
		// Lock, then count: two statements in one round trip. Planning the second one anew each time would cost
		// more than running it.
		both := &pgx.Batch{}
		both.Queue(`SELECT set_config('plan_cache_mode', 'force_generic_plan', true) FROM restocks WHERE shop_id = $1 AND id = $2 FOR UPDATE`, shopID, restockID)
		both.Queue(`
			WITH r AS MATERIALIZED (
				SELECT available FROM restocks WHERE shop_id = $1 AND id = $2
			), locked AS MATERIALIZED (
				SELECT o.id, o.entry_id, p.ord FROM unnest($3::bigint[]) WITH ORDINALITY p(id, ord)
				JOIN offers o ON o.shop_id = $1 AND o.id = p.id
				WHERE o.restock_id = $2 AND o.state = 'open' AND o.lapses_at > $4
				ORDER BY p.ord FOR UPDATE OF o
			), ranked AS (
				SELECT id, entry_id, ord, row_number() OVER (ORDER BY ord) AS n FROM locked
			), done AS (
				UPDATE offers o SET state = CASE WHEN k.n <= r.available THEN 'claimed' ELSE 'missed' END, ended_at = $4
				FROM ranked k CROSS JOIN r WHERE o.shop_id = $1 AND o.id = k.id AND o.state = 'open'
				RETURNING o.id, o.entry_id, o.state, k.ord
			), held AS (
				INSERT INTO holds (shop_id, restock_id, offer_id, entry_id, variant_id, state, hold_minutes, claimed_at)
				SELECT $1, $2, d.id, d.entry_id, e.variant_id, 'securing', t.hold_minutes, $4
				FROM done d JOIN entries e ON e.shop_id = $1 AND e.id = d.entry_id JOIN settings t ON t.shop_id = $1
				WHERE d.state = 'claimed' ORDER BY d.ord
				RETURNING id
			), counted AS (
				UPDATE restocks SET available = available - (SELECT count(*) FROM held), live = live + (SELECT count(*) FROM held)
				WHERE shop_id = $1 AND id = $2 AND EXISTS (SELECT FROM held)
			), moved AS (
				UPDATE entries e SET state = CASE d.state WHEN 'claimed' THEN 'holding' ELSE 'waiting' END
				FROM done d WHERE e.shop_id = $1 AND e.id = d.entry_id AND e.state = 'offered'
				RETURNING e.variant_id, d.state
			)
			SELECT 'held', id FROM held UNION ALL SELECT DISTINCT 'missed', variant_id FROM moved WHERE state = 'missed' ORDER BY 1, 2`,
			shopID, restockID, offers, s.now())
		sent := tx.SendBatch(ctx, both)
		_, err := sent.Exec()
		rows, _ := sent.Query()
		var what string
		var id int64
		var held int
		var missed []int64
		_, counted := pgx.ForEachRow(rows, []any{&what, &id}, func() error {
			if what == "held" {
				held++
			} else {
				missed = append(missed, id)
			}
			return nil
		})
		if err := cmp.Or(err, counted, sent.Close()); err != nil {
			return err
		}
		if err := s.queue(ctx, tx, secureJobs(shopID, held)); err != nil {
			return err
		}
		if err := s.hint(ctx, tx, shopID, missed...); err != nil {
			return err
		}
		return s.point(ctx, "claim_commit", "before")
	})
	if err != nil {
		return err
	}
	return s.point(ctx, "claim_commit", "after")
}

// Pass is "no thanks": an open offer ends, or a live hold is released. The entry keeps its place; whoever
// passes is not told again in this restock. Anything else is left as it is. The offer is returned as it then
// stands; ErrInvalidLink for a link that is none.
func (s *Service) Pass(ctx context.Context, token string) (Offer, error) {
	p, o, err := s.newest(ctx, token, placed)
	if err != nil {
		return o, err
	}
	switch {
	case o.State == "open" && !p.Reserved:
		err = s.untilSettled(ctx, "pass", func(tx pgx.Tx) error {
			return s.endOffers(ctx, tx, p.ShopID, []int64{p.OfferID}, "passed")
		})
	case o.State == "open" || o.State == "securing" || o.State == "held":
		err = s.untilSettled(ctx, "pass", func(tx pgx.Tx) error {
			return s.startRelease(ctx, tx, p.ShopID, `id = ANY ($4)`, []int64{*p.HoldID}, "released", true)
		})
	default:
		return o, nil
	}
	if err != nil {
		return o, err
	}
	return s.Look(ctx, token)
}

// endOffers ends open offers without a hold, by time or by their shopper (a reserved one ends with its hold); their entries wait again, unsent messages are
// cancelled, and the units are looked at.
func (s *Service) endOffers(ctx context.Context, tx pgx.Tx, shopID int64, offers []int64, to string) error {
	rows, _ := tx.Query(ctx, `
		WITH ended AS (
			UPDATE offers SET state = $3, ended_at = $4 WHERE shop_id = $1 AND id = ANY ($2) AND state = 'open' AND NOT reserved RETURNING id, entry_id, restock_id
		), unsent AS (
			UPDATE messages m SET state = 'cancelled', reason = 'the offer ended before it was sent' FROM ended
			WHERE m.shop_id = $1 AND m.offer_id = ended.id AND m.state = 'pending'
		), moved AS (
			UPDATE entries e SET state = 'waiting' FROM ended WHERE e.shop_id = $1 AND e.id = ended.entry_id AND e.state = 'offered'
		)
		SELECT DISTINCT r.variant_id FROM ended JOIN restocks r ON r.shop_id = $1 AND r.id = ended.restock_id`, shopID, offers, to, s.now())
	variants, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("end offers: %w", err)
	}
	return s.hint(ctx, tx, shopID, variants...)
}
