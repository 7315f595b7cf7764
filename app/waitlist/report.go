package waitlist

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// What the merchant sees. after is the id of the last row of the page before (of a list newest first: the
// smallest id), 0 for the first page; a page has at most PageSize rows. None of these changes anything.

// PageSize is the most rows of an admin page.
const PageSize = 50

type QueueRow struct {
	VariantID                  int64
	ProductTitle, VariantTitle string
	SKU, ImageURL              string
	Waiting, Offered, HoldingN int
	Sellable                   *int
	ObservedAt                 *time.Time
	NotHoldable                string // why units of it cannot be held; empty when they can
}

type EntryRow struct {
	ID, VariantID int64
	ProductTitle  string
	VariantTitle  string
	Contact       string // masked
	Channel       Channel
	Name, State   string
	Place         int // 0 when not waiting
	JoinedAt      time.Time
	ExpiresAt     time.Time
	TimesTold     int
}

type RestockRow struct {
	ID, VariantID                           int64
	ProductTitle, VariantTitle              string
	State                                   string
	Units, Available, Live, Sold, Withdrawn int
	OpenOffers, Told                        int // of those whose turn it is: told and not pressed; told at all
	Reserving                               int // units that are being reserved for people who are not told yet
	Short                                   bool
	Asked                                   *int // the implausible S that waits for a yes
	OpenedAt                                time.Time
	ClosedAt                                *time.Time
}

type RestockStory struct {
	RestockRow
	Changes []RestockChange
	Offers  []OfferRow
	Holds   []HoldRow
}

type RestockChange struct {
	Kind         string // open, grow, shrink
	By, Sellable int
	At           time.Time
}

type OfferRow struct {
	ID, EntryID int64
	Contact     string // masked
	State       string
	Message     string // the state of its message
	CreatedAt   time.Time
	LapsesAt    time.Time
	EndedAt     *time.Time
}

type HoldRow struct {
	ID, RestockID, EntryID, VariantID int64
	ProductTitle, VariantTitle        string
	Contact                           string // masked
	State, Reason                     string
	ClaimedAt                         time.Time
	ExpiresAt, EndedAt, PaidLateAt    *time.Time
	CancelledAt                       *time.Time // of the order that it became
	DraftID, OrderID                  *int64
}

type OptOutRow struct {
	ID        int64
	Channel   Channel
	Address   string // masked; empty once erased
	Reason    string
	CreatedAt time.Time
	Liftable  bool // only the merchant's own can be taken back here
}

type MessageRow struct {
	ID                         int64
	Channel                    Channel
	Contact                    string // masked
	ProductTitle, VariantTitle string
	State, ErrorCode, Reason   string
	Attempts                   int
	CreatedAt                  time.Time
	AcceptedAt                 *time.Time
}

type Note struct {
	ID                    int64
	Kind, Subject, Detail string
	CreatedAt             time.Time
}

// Totals are how many entries of a shop are in each state now, and how many restocks are not closed. Sold
// counts all that were ever sold by a hold.
type Totals struct{ Waiting, Offered, Holding, Sold, OpenRestocks int }

// Totals returns what a shop's home page counts.
func (s *Service) Totals(ctx context.Context, shopID int64) (Totals, error) {
	var t Totals
	err := s.db.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE state = 'waiting'), count(*) FILTER (WHERE state = 'offered'),
		       count(*) FILTER (WHERE state = 'holding'), count(*) FILTER (WHERE state = 'sold'),
		       (SELECT count(*) FROM restocks WHERE shop_id = $1 AND state <> 'closed')
		FROM entries WHERE shop_id = $1`, shopID).Scan(&t.Waiting, &t.Offered, &t.Holding, &t.Sold, &t.OpenRestocks)
	if err != nil {
		return t, fmt.Errorf("totals: %w", err)
	}
	return t, nil
}

// Notes lists what needs a person, newest first, at most 100.
func (s *Service) Notes(ctx context.Context, shopID int64) ([]Note, error) {
	rows, _ := s.db.Query(ctx, `SELECT id, kind, subject, detail, created_at FROM notes WHERE shop_id = $1 AND cleared_at IS NULL ORDER BY id DESC LIMIT 100`, shopID)
	return collect[Note](rows, "notes")
}

// ClearNote puts a note away, or returns ErrNotFound.
func (s *Service) ClearNote(ctx context.Context, shopID, noteID int64) error {
	tag, err := s.db.Exec(ctx, `UPDATE notes SET cleared_at = $3 WHERE shop_id = $1 AND id = $2 AND cleared_at IS NULL`, shopID, noteID, s.now())
	if err != nil {
		return fmt.Errorf("clear note: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return ErrNotFound
	}
	return nil
}

func collect[T any](rows pgx.Rows, what string) ([]T, error) {
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return all, nil
}

const queueColumns = `v.id, v.product_title, v.title, v.sku, v.image_url,
	(SELECT count(*) FROM entries e WHERE e.shop_id = v.shop_id AND e.variant_id = v.id AND e.state = 'waiting'),
	(SELECT count(*) FROM entries e WHERE e.shop_id = v.shop_id AND e.variant_id = v.id AND e.state = 'offered'),
	(SELECT count(*) FROM entries e WHERE e.shop_id = v.shop_id AND e.variant_id = v.id AND e.state = 'holding'),
	v.sellable, v.observed_at,
	CASE WHEN NOT v.active THEN 'it is not active in Shopify' WHEN NOT v.published THEN 'it is not published to the online store'
	     WHEN NOT v.tracked THEN 'its stock is not tracked' WHEN v.continue_selling THEN 'it keeps selling when out of stock'
	     WHEN v.components THEN 'it is a bundle' WHEN v.shared_item THEN 'it shares its stock with other variants' ELSE '' END`

// Queues lists the variants that anybody has ever waited for, by variant id.
func (s *Service) Queues(ctx context.Context, shopID, after int64) ([]QueueRow, error) {
	rows, _ := s.db.Query(ctx, `
		SELECT `+queueColumns+` FROM variants v
		WHERE v.shop_id = $1 AND v.id > $2 AND EXISTS (SELECT FROM entries e WHERE e.shop_id = v.shop_id AND e.variant_id = v.id)
		ORDER BY v.id LIMIT $3`, shopID, after, PageSize)
	return collect[QueueRow](rows, "queues")
}

// Queue shows the queue of a variant: its live entries in the order in which they are told, then those that
// have ended, newest first. after is the number of entries shown before. It returns ErrNotFound for a
// variant that this shop does not have.
func (s *Service) Queue(ctx context.Context, shopID, variantID, after int64) (QueueRow, []EntryRow, error) {
	rows, _ := s.db.Query(ctx, `SELECT `+queueColumns+` FROM variants v WHERE v.shop_id = $1 AND v.id = $2`, shopID, variantID)
	q, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[QueueRow])
	if errors.Is(err, pgx.ErrNoRows) {
		return q, nil, ErrNotFound
	}
	if err != nil {
		return q, nil, fmt.Errorf("queue: %w", err)
	}
	rows, _ = s.db.Query(ctx, `
		SELECT e.id, e.variant_id, v.product_title, v.title, c.address, c.channel, e.name, e.state,
		       CASE WHEN e.state = 'waiting' THEN row_number() OVER (PARTITION BY e.state = 'waiting' ORDER BY e.joined_at, e.id) ELSE 0 END,
		       e.joined_at, e.expires_at,
		       (SELECT count(*) FROM offers o WHERE o.shop_id = e.shop_id AND o.entry_id = e.id AND o.state NOT IN ('missed', 'withdrawn'))
		FROM entries e JOIN contacts c ON c.shop_id = e.shop_id AND c.id = e.contact_id JOIN variants v ON v.shop_id = e.shop_id AND v.id = e.variant_id
		WHERE e.shop_id = $1 AND e.variant_id = $2
		ORDER BY e.ended_at IS NOT NULL, CASE WHEN e.ended_at IS NULL THEN e.joined_at END, e.ended_at DESC, e.id
		LIMIT $4 OFFSET $3`, shopID, variantID, after, PageSize)
	entries, err := collect[EntryRow](rows, "queue")
	for i := range entries {
		entries[i].Contact = Mask(entries[i].Channel, entries[i].Contact)
	}
	return q, entries, err
}

// untold is an offer o whose unit is held, or about to be, before its person is told.
const untold = `(o.reserved AND EXISTS (SELECT FROM holds h WHERE h.shop_id = o.shop_id AND h.offer_id = o.id AND h.notice_at IS NULL AND NOT h.pressed))`

const restockColumns = `r.id, r.variant_id, v.product_title, v.title, r.state, r.units, r.available, r.live, r.sold, r.withdrawn,
	(SELECT count(*) FROM offers o WHERE o.shop_id = r.shop_id AND o.restock_id = r.id AND o.state = 'open' AND NOT ` + untold + `),
	(SELECT count(*) FROM offers o WHERE o.shop_id = r.shop_id AND o.restock_id = r.id AND o.state NOT IN ('missed', 'withdrawn') AND NOT ` + untold + `),
	(SELECT count(*) FROM offers o WHERE o.shop_id = r.shop_id AND o.restock_id = r.id AND o.state = 'open' AND ` + untold + `),
	r.short, CASE WHEN r.state <> 'closed' THEN v.asked END, r.opened_at, r.closed_at`

// Restocks lists restocks, newest first.
func (s *Service) Restocks(ctx context.Context, shopID, after int64) ([]RestockRow, error) {
	rows, _ := s.db.Query(ctx, `
		SELECT `+restockColumns+` FROM restocks r JOIN variants v ON v.shop_id = r.shop_id AND v.id = r.variant_id
		WHERE r.shop_id = $1 AND ($2 = 0 OR r.id < $2) ORDER BY r.id DESC LIMIT $3`, shopID, after, PageSize)
	return collect[RestockRow](rows, "restocks")
}

// Restock tells the story of one restock: its changes, and its offers and holds, the newest 500 of each. It
// returns ErrNotFound for a restock that this shop does not have.
func (s *Service) Restock(ctx context.Context, shopID, id int64) (RestockStory, error) {
	var story RestockStory
	rows, _ := s.db.Query(ctx, `
		SELECT `+restockColumns+` FROM restocks r JOIN variants v ON v.shop_id = r.shop_id AND v.id = r.variant_id
		WHERE r.shop_id = $1 AND r.id = $2`, shopID, id)
	var err error
	story.RestockRow, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[RestockRow])
	if errors.Is(err, pgx.ErrNoRows) {
		return story, ErrNotFound
	}
	if err != nil {
		return story, fmt.Errorf("restock: %w", err)
	}
	rows, _ = s.db.Query(ctx, `SELECT kind, by, sellable, at FROM restock_changes WHERE shop_id = $1 AND restock_id = $2 ORDER BY id LIMIT 500`, shopID, id)
	if story.Changes, err = collect[RestockChange](rows, "restock"); err != nil {
		return story, err
	}
	rows, _ = s.db.Query(ctx, `
		SELECT o.id, o.entry_id, c.channel, c.address, o.state, coalesce(m.state, ''), o.created_at, o.lapses_at, o.ended_at
		FROM offers o JOIN entries e ON e.shop_id = o.shop_id AND e.id = o.entry_id JOIN contacts c ON c.shop_id = e.shop_id AND c.id = e.contact_id
		LEFT JOIN messages m ON m.shop_id = o.shop_id AND m.offer_id = o.id
		WHERE o.shop_id = $1 AND o.restock_id = $2 ORDER BY o.id DESC LIMIT 500`, shopID, id)
	var o OfferRow
	var channel Channel
	_, err = pgx.ForEachRow(rows, []any{&o.ID, &o.EntryID, &channel, &o.Contact, &o.State, &o.Message, &o.CreatedAt, &o.LapsesAt, &o.EndedAt}, func() error {
		row := o
		row.Contact = Mask(channel, row.Contact)
		story.Offers = append(story.Offers, row)
		return nil
	})
	if err != nil {
		return story, fmt.Errorf("restock: %w", err)
	}
	story.Holds, err = s.holds(ctx, `h.shop_id = $1 AND h.restock_id = $2 ORDER BY h.id DESC LIMIT 500`, shopID, id)
	return story, err
}

// Holds lists holds, live or ended, newest first.
func (s *Service) Holds(ctx context.Context, shopID, after int64) ([]HoldRow, error) {
	return s.holds(ctx, `h.shop_id = $1 AND ($2 = 0 OR h.id < $2) ORDER BY h.id DESC LIMIT $3`, shopID, after, PageSize)
}

func (s *Service) holds(ctx context.Context, which string, args ...any) ([]HoldRow, error) {
	rows, _ := s.db.Query(ctx, `
		SELECT h.id, h.restock_id, h.entry_id, h.variant_id, v.product_title, v.title, c.channel, c.address, h.state, coalesce(h.reason, ''),
		       h.claimed_at, h.expires_at, h.ended_at, h.paid_late_at, h.cancelled_at, h.draft_id, h.order_id
		FROM holds h JOIN entries e ON e.shop_id = h.shop_id AND e.id = h.entry_id JOIN contacts c ON c.shop_id = e.shop_id AND c.id = e.contact_id
		JOIN variants v ON v.shop_id = h.shop_id AND v.id = h.variant_id WHERE `+which, args...)
	var all []HoldRow
	var h HoldRow
	var channel Channel
	_, err := pgx.ForEachRow(rows, []any{&h.ID, &h.RestockID, &h.EntryID, &h.VariantID, &h.ProductTitle, &h.VariantTitle, &channel, &h.Contact, &h.State, &h.Reason,
		&h.ClaimedAt, &h.ExpiresAt, &h.EndedAt, &h.PaidLateAt, &h.CancelledAt, &h.DraftID, &h.OrderID}, func() error {
		row := h
		row.Contact = Mask(channel, row.Contact)
		all = append(all, row)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("holds: %w", err)
	}
	return all, nil
}

// OptOuts lists suppressions, newest first.
func (s *Service) OptOuts(ctx context.Context, shopID, after int64) ([]OptOutRow, error) {
	rows, _ := s.db.Query(ctx, `
		SELECT id, channel, coalesce(address, ''), reason, created_at, reason = 'merchant' FROM suppressions
		WHERE shop_id = $1 AND ($2 = 0 OR id < $2) ORDER BY id DESC LIMIT $3`, shopID, after, PageSize)
	all, err := collect[OptOutRow](rows, "opt-outs")
	for i := range all {
		if all[i].Address != "" {
			all[i].Address = Mask(all[i].Channel, all[i].Address)
		}
	}
	return all, err
}

// Messages lists messages, newest first.
func (s *Service) Messages(ctx context.Context, shopID, after int64) ([]MessageRow, error) {
	rows, _ := s.db.Query(ctx, `
		SELECT m.id, m.channel, c.address, v.product_title, v.title, m.state, coalesce(m.error_code, ''), coalesce(m.reason, ''), m.attempts, m.created_at, m.accepted_at
		FROM messages m JOIN contacts c ON c.shop_id = m.shop_id AND c.id = m.contact_id
		JOIN entries e ON e.shop_id = m.shop_id AND e.id = m.entry_id JOIN variants v ON v.shop_id = e.shop_id AND v.id = e.variant_id
		WHERE m.shop_id = $1 AND ($2 = 0 OR m.id < $2) ORDER BY m.id DESC LIMIT $3`, shopID, after, PageSize)
	all, err := collect[MessageRow](rows, "messages")
	for i := range all {
		all[i].Contact = Mask(all[i].Channel, all[i].Contact)
	}
	return all, err
}
