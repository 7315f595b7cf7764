package waitlist

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"holdfast/app/shop"
)

// hint says that something about these variants may have changed: each is observed after the caller's
// transaction has committed. An observe that is under way sees that hint_seq has moved and looks again;
// only when none is pending is a job queued, so that a thousand hints are one job, and none is lost.
func (s *Service) hint(ctx context.Context, tx pgx.Tx, shopID int64, variantIDs ...int64) error {
	if len(variantIDs) == 0 {
		return nil
	}
	rows, _ := tx.Query(ctx, `
		WITH hinted AS (SELECT id FROM variants WHERE shop_id = $1 AND id = ANY ($2) ORDER BY id FOR NO KEY UPDATE)
		UPDATE variants v SET hint_seq = hint_seq + 1 FROM hinted WHERE v.shop_id = $1 AND v.id = hinted.id
		RETURNING v.id, v.seen_seq = v.hint_seq - 1`, shopID, variantIDs)
	var jobs []river.InsertManyParams
	var id int64
	var idle bool
	_, err := pgx.ForEachRow(rows, []any{&id, &idle}, func() error {
		if idle {
			jobs = append(jobs, river.InsertManyParams{Args: ObserveJob{ShopID: shopID, VariantID: id}})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("hint: %w", err)
	}
	return s.queue(ctx, tx, jobs)
}

// queue inserts jobs with the change that they follow.
func (s *Service) queue(ctx context.Context, tx pgx.Tx, jobs []river.InsertManyParams) error {
	if len(jobs) == 0 {
		return nil
	}
	if _, err := s.jobs.InsertManyFastTx(ctx, tx, jobs); err != nil {
		return fmt.Errorf("queue jobs: %w", err)
	}
	return nil
}

// fence is what was true before Shopify was read. rose and fell are sums that only grow, so what moved
// while the read was under way can be taken out of it: comparing the counter before and after would not
// do, since it may rise and fall back in between.
type fence struct {
	HintSeq int64  `db:"hint_seq"`
	Last    int64  `db:"last"`    // the variant's newest restock; 0 for none
	Restock *int64 `db:"restock"` // the restock that is not closed
	Rose    *int64 `db:"rose"`
	Fell    *int64 `db:"fell"`

	At time.Time `db:"-"` // when that was, and so before the read
}

// Observe compares what Shopify has of a variant with the counter, and tells people: it opens, extends or
// shrinks the variant's restock, then allocates. It is the one and only place where offers are made. It
// may run any number of times, and at once.
//
// Reads that several variants of a shop need at once are one call (gather.go); the fence is noted before it.
//
// Only what the fence vouches for counts. A unit is new only if Shopify had it over and above everything
// that was available, being secured or being released, less what fell while we read; a unit is gone only
// if Shopify lacked it before anything rose while we read. A wider band would delay a restock until the
// next quiet read; a narrower one would promise a unit twice.
//
// It returns ErrLater when it should soon be run again: something moved while it looked, or Shopify is
// short of units that are just being secured or released.
func (s *Service) Observe(ctx context.Context, shopID, variantID int64) error {
	for range 3 {
		again, err := s.observe(ctx, shopID, variantID)
		if err != nil && !errors.Is(err, errAgain) {
			return fmt.Errorf("observe variant %d: %w", variantID, err)
		}
		if err == nil && !again {
			return nil
		}
	}
	return ErrLater
}

func (s *Service) observe(ctx context.Context, shopID, variantID int64) (again bool, err error) {
	set, err := shop.LoadSettings(ctx, s.db, shopID)
	if err != nil {
		return false, err
	}
	f, err := s.noteFence(ctx, shopID, variantID)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil // nobody can wait for a variant that we do not know
	}
	if err != nil {
		return false, err
	}
	reading, exists, err := s.reads.ask(ctx, lineAt(shopID, set.Locations), variantID)
	if err != nil {
		return false, s.shopifyTrouble(ctx, shopID, err)
	}
	if err := s.shopifyAnswers(ctx, shopID); err != nil {
		return false, err
	}
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		again, err = s.apply(ctx, tx, shopID, variantID, set, f, reading, exists)
		return err
	})
	return again, err
}

// awayShown is how long Shopify may be silent before the merchant is told.
const awayShown = time.Minute

// shopifyTrouble remembers why Shopify refuses a shop, for the merchant to see, and passes the error on.
// Nothing is told while it does: telling needs a read.
func (s *Service) shopifyTrouble(ctx context.Context, shopID int64, cause error) error {
	var refused *ShopRefused
	var away *Away
	var why string
	switch {
	case errors.As(cause, &refused):
		why = refused.Why
	case errors.As(cause, &away) && s.now().Sub(away.Since) >= awayShown:
		why = "Shopify has not answered since " + away.Since.UTC().Format("15:04 UTC on 2 January") + "; what is to be done there is done when it does"
	default:
		return cause
	}
	if _, err := s.db.Exec(ctx, `UPDATE shops SET trouble = $2 WHERE id = $1 AND trouble IS DISTINCT FROM $2`, shopID, why); err != nil {
		return errors.Join(cause, err)
	}
	return cause
}

// shopifyAnswers forgets the trouble that is over.
func (s *Service) shopifyAnswers(ctx context.Context, shopID int64) error {
	_, err := s.db.Exec(ctx, `UPDATE shops SET trouble = NULL WHERE id = $1 AND trouble IS NOT NULL`, shopID)
	return err
}

func (s *Service) noteFence(ctx context.Context, shopID, variantID int64) (fence, error) {
	at := s.now()
	rows, _ := s.db.Query(ctx, `
		SELECT v.hint_seq, coalesce((SELECT max(l.id) FROM restocks l WHERE l.shop_id = $1 AND l.variant_id = $2), 0) AS last,
		       r.id AS restock, r.rose, r.fell
		FROM variants v LEFT JOIN restocks r ON r.shop_id = v.shop_id AND r.variant_id = v.id AND r.state <> 'closed'
		WHERE v.shop_id = $1 AND v.id = $2`, shopID, variantID)
	f, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[fence])
	f.At = at
	return f, err
}

// openRestock is the restock of a variant that is not closed, under its row's lock.
type openRestock struct {
	ID        int64  `db:"id"`
	State     string `db:"state"`
	Available int    `db:"available"`
	Live      int    `db:"live"`
	Rose      int64  `db:"rose"`
	Fell      int64  `db:"fell"`
	Short     bool   `db:"short"`
}

// apply compares one reading with the counter, under the lock of the restock, and acts on it.
func (s *Service) apply(ctx context.Context, tx pgx.Tx, shopID, variantID int64, set shop.Settings, f fence, reading VariantReading, exists bool) (again bool, err error) {
	// Statement 1 locks; what is counted is counted in statement 2, whose snapshot is younger.
	rows, _ := tx.Query(ctx, `
		SELECT id, state, available, live, rose, fell, short FROM restocks
		WHERE shop_id = $1 AND variant_id = $2 AND state <> 'closed' FOR UPDATE`, shopID, variantID)
	var r *openRestock
	if locked, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[openRestock]); err == nil {
		r = &locked
	} else if !errors.Is(err, pgx.ErrNoRows) {
		return false, err
	}
	now := s.now()
	var open int64
	if r != nil {
		open = r.ID
	}
	var last int64
	var securing, releasing, openOffers int
	var eligible bool
	var riseSince *time.Time
	var approvedTo, declined *int
	err = tx.QueryRow(ctx, `
		SELECT coalesce((SELECT max(l.id) FROM restocks l WHERE l.shop_id = $1 AND l.variant_id = $2), 0),
		       (SELECT count(*) FROM holds WHERE shop_id = $1 AND restock_id = $3 AND state = 'securing'),
		       (SELECT count(*) FROM holds WHERE shop_id = $1 AND restock_id = $3 AND (state = 'releasing' OR (state = 'active' AND expires_at <= $4))),
		       (SELECT count(*) FROM offers WHERE shop_id = $1 AND restock_id = $3 AND state = 'open' AND NOT reserved),
		       EXISTS (SELECT FROM entries WHERE shop_id = $1 AND variant_id = $2 AND state = 'waiting' AND expires_at > $4)
		         AND (SELECT state = 'installed' AND NOT holds_off FROM shops WHERE id = $1),
		       rise_since, approved_to, declined
		FROM variants WHERE shop_id = $1 AND id = $2`, shopID, variantID, open, now,
	).Scan(&last, &securing, &releasing, &openOffers, &eligible, &riseSince, &approvedTo, &declined)
	if err != nil {
		return false, err
	}
	if last != f.Last || (r == nil) != (f.Restock == nil) || (r != nil && r.ID != *f.Restock) {
		return false, errAgain // the read belongs to another restock
	}

	sellable := reading.Sellable // S
	if !exists {
		sellable = 0
	}
	holdable := exists && reading.Tracked && !reading.ContinueSelling && !reading.Components && !reading.SharedItem
	mayTell := holdable && reading.Active && reading.Published && eligible

	// What is new, what is gone.
	var up, down int
	var rose0, fell0 int64
	var moved bool
	if r != nil {
		rose0, fell0 = *f.Rose, *f.Fell
		moved = r.Rose != rose0 || r.Fell != fell0
		if holdable || !exists {
			up = sellable - (r.Available + securing + releasing) - int(r.Fell-fell0)
			down = min(r.Available, r.Available-int(r.Rose-rose0)-sellable)
		}
	}
	opening := r == nil && holdable && sellable >= set.Threshold && mayTell
	rising := opening || up > 0
	if !rising {
		riseSince = nil
	} else if riseSince == nil {
		riseSince = &now
	}

	// A rise waits for the settle time, and a jump that nobody would believe for the merchant.
	var ask *int
	if rising {
		jump := up
		if opening {
			jump = sellable
		}
		settled := !now.Before(riseSince.Add(set.Settle()))
		implausible := jump > set.ImplausibleUnits && (approvedTo == nil || sellable > *approvedTo)
		switch {
		case !settled:
		case implausible && declined != nil && *declined == sellable:
		case implausible:
			ask = &sellable
			if err := s.note(ctx, tx, shopID, "implausible", fmt.Sprintf("variant %d: %d", variantID, sellable),
				fmt.Sprintf("%s: %d units at once is more than the %d you set as plausible. Nobody is told before you say yes.", named(reading), jump, set.ImplausibleUnits)); err != nil {
				return false, err
			}
			if opening {
				if r, err = s.open(ctx, tx, shopID, variantID, "waiting_approval", 0, sellable, now); err != nil {
					return false, err
				}
			}
		case opening:
			if r, err = s.open(ctx, tx, shopID, variantID, "open", sellable, sellable, now); err != nil {
				return false, err
			}
			riseSince = nil
		default:
			_, err = tx.Exec(ctx, `
				UPDATE restocks SET state = 'open', units = units + $3, available = available + $3, rose = rose + $3
				WHERE shop_id = $1 AND id = $2 AND state <> 'closed'`, shopID, r.ID, up)
			if err != nil {
				return false, err
			}
			if err := s.change(ctx, tx, shopID, r.ID, "grow", up, sellable, now); err != nil {
				return false, err
			}
			r.State, r.Available, r.Rose = "open", r.Available+up, r.Rose+int64(up)
			riseSince = nil
		}
	}
	if down > 0 {
		_, err = tx.Exec(ctx, `
			UPDATE restocks SET available = available - $3, withdrawn = withdrawn + $3, fell = fell + $3
			WHERE shop_id = $1 AND id = $2 AND state <> 'closed'`, shopID, r.ID, down)
		if err != nil {
			return false, err
		}
		if err := s.change(ctx, tx, shopID, r.ID, "shrink", down, sellable, now); err != nil {
			return false, err
		}
		r.Available, r.Fell = r.Available-down, r.Fell+int64(down)
		if over := openOffers - r.Available*set.NoticesPerUnit; over > 0 {
			if err := s.withdraw(ctx, tx, shopID, r.ID, over, now); err != nil {
				return false, err
			}
			openOffers -= over
		}
	}

	// Tell, at most what the fence vouches for.
	if r != nil && r.State == "open" {
		free := r.Available - int(r.Rose-rose0)
		if up > 0 || f.Restock == nil { // Shopify has more than we know of, or it was opened just now
			free = r.Available
		}
		n := min(sellable, free)*set.NoticesPerUnit - openOffers
		if set.Reserves() {
			n = min(n, r.Available, reserveAtOnce-securing)
		}
		switch {
		case n <= 0 || !mayTell:
		case set.Reserves():
			made, err := s.allocateReserved(ctx, tx, shopID, variantID, r.ID, n, set, now)
			if err != nil {
				return false, err
			}
			r.Available, r.Live = r.Available-made, r.Live+made
		default:
			made, err := s.allocate(ctx, tx, shopID, variantID, r.ID, n, set, now)
			if err != nil {
				return false, err
			}
			openOffers += made
		}
	}
	if err := s.finishApply(ctx, tx, shopID, r, set, sellable, openOffers, securing+releasing, ask != nil, reading, now); err != nil {
		return false, err
	}

	nothing := f.Restock == nil && r == nil && sellable < set.Threshold
	// What must be looked at again is not seen yet: whoever does has a job, and a hint needs no second one.
	unseen := moved || (sellable < 0 && securing+releasing > 0)
	var hints int64
	err = tx.QueryRow(ctx, `
		UPDATE variants SET sellable = $3, observed_at = $4, rise_since = $5, seen_seq = CASE WHEN $15 THEN seen_seq ELSE greatest(seen_seq, $6) END,
		       asked       = CASE WHEN $8 THEN NULL ELSE coalesce($7, asked) END,
		       approved_to = CASE WHEN $8 THEN NULL ELSE approved_to END,
		       declined    = CASE WHEN $8 THEN NULL ELSE declined END,
		       active = $9, published = $10, tracked = $11, continue_selling = $12, components = $13, shared_item = $14,
		       read_at = greatest(read_at, $16)
		WHERE shop_id = $1 AND id = $2 RETURNING hint_seq`, shopID, variantID, sellable, now, riseSince, f.HintSeq, ask, nothing,
		exists && reading.Active, exists && reading.Published, !exists || reading.Tracked, reading.ContinueSelling, reading.Components, reading.SharedItem, unseen, f.At,
	).Scan(&hints)
	if err != nil {
		return false, err
	}
	if exists {
		_, err = tx.Exec(ctx, `
			UPDATE variants SET product_id = $3, inventory_item_id = $4, sku = $5, title = $6, product_title = $7, handle = $8, image_url = $9, price = $10
			WHERE shop_id = $1 AND id = $2 AND (product_id, inventory_item_id, sku, title, product_title, handle, image_url, price) IS DISTINCT FROM ($3, $4, $5, $6, $7, $8, $9, $10)`,
			shopID, variantID, reading.ProductID, reading.InventoryItemID, reading.SKU, reading.Title, reading.ProductTitle, reading.Handle, reading.ImageURL, reading.Price)
		if err != nil {
			return false, err
		}
	}
	return unseen || hints > f.HintSeq, nil
}

func named(r VariantReading) string {
	if r.Title == "" || r.Title == "Default Title" {
		return r.ProductTitle
	}
	return r.ProductTitle + ", " + r.Title
}

// open inserts a restock. Another observe may have been first: then this one is run again.
func (s *Service) open(ctx context.Context, tx pgx.Tx, shopID, variantID int64, state string, units, sellable int, now time.Time) (*openRestock, error) {
	r := &openRestock{State: state, Available: units}
	err := tx.QueryRow(ctx, `
		INSERT INTO restocks (shop_id, variant_id, state, units, available, opened_at) VALUES ($1, $2, $3, $4, $4, $5)
		ON CONFLICT (shop_id, variant_id) WHERE state <> 'closed' DO NOTHING RETURNING id`, shopID, variantID, state, units, now).Scan(&r.ID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, errAgain
	}
	if err != nil {
		return nil, err
	}
	if units == 0 {
		return r, nil
	}
	return r, s.change(ctx, tx, shopID, r.ID, "open", units, sellable, now)
}

func (s *Service) change(ctx context.Context, tx pgx.Tx, shopID, restockID int64, kind string, by, sellable int, now time.Time) error {
	_, err := tx.Exec(ctx, `INSERT INTO restock_changes (shop_id, restock_id, kind, by, sellable, at) VALUES ($1, $2, $3, $4, $5, $6)`,
		shopID, restockID, kind, by, sellable, now)
	return err
}

// withdraw takes back the newest n open offers: their units went away unpressed. A notice that was not
// sent yet is cancelled; the place is kept.
func (s *Service) withdraw(ctx context.Context, tx pgx.Tx, shopID, restockID int64, n int, now time.Time) error {
	_, err := tx.Exec(ctx, `
		WITH newest AS (
			SELECT id FROM offers WHERE shop_id = $1 AND restock_id = $2 AND state = 'open' AND NOT reserved ORDER BY id DESC LIMIT $3 FOR UPDATE
		), gone AS (
			UPDATE offers o SET state = 'withdrawn', ended_at = $4 FROM newest WHERE o.shop_id = $1 AND o.id = newest.id AND o.state = 'open' RETURNING o.id, o.entry_id
		), unsent AS (
			UPDATE messages m SET state = 'cancelled', reason = 'its unit was sold before it was sent' FROM gone
			WHERE m.shop_id = $1 AND m.offer_id = gone.id AND m.state = 'pending'
		)
		UPDATE entries e SET state = 'waiting' FROM gone WHERE e.shop_id = $1 AND e.id = gone.entry_id AND e.state = 'offered'`, shopID, restockID, n, now)
	if err != nil {
		return fmt.Errorf("withdraw offers: %w", err)
	}
	return nil
}

// unsentSpan is how long an offer waits for its message to be accepted before its window is counted
// anyway.
const unsentSpan = 10 * time.Minute

// reserveAtOnce is the most holds of a restock that wait to be secured before anybody is told of them. The
// smallest plan of Shopify's pays for so many in 3 minutes; the next follow when these are through
// (allocateMore).
const reserveAtOnce = 1000

// pausedAt5 says that the shop's messages to an entry e do not go out at $5: nobody is offered a unit who
// could not be told of it. They keep their place, and are first when the pause is over.
const pausedAt5 = `EXISTS (
	SELECT FROM pauses p JOIN contacts pc ON pc.shop_id = $1 AND pc.id = e.contact_id
	WHERE p.shop_id = $1 AND p.ended_at IS NULL AND (p.until IS NULL OR p.until > $5) AND p.channel = pc.channel AND starts_with(pc.address, p.prefix))`

// allocate offers n free units to the head of the queue: of those who wait for the variant and may be
// told now, the ones that joined first (promise 3), each at most once in a restock unless an offer was
// missed or withdrawn (promise 5). It is called under the restock's lock, by Observe only.
//
// Who may not be texted now is passed over and keeps their place; or, as the merchant sets it, the unit waits
// for them. They are looked at again with the variant's next read, which is 5 minutes away at most.
//
// There is no SKIP LOCKED: whoever is locked is waited for, or the order would not hold.
func (s *Service) allocate(ctx context.Context, tx pgx.Tx, shopID, variantID, restockID int64, n int, set shop.Settings, now time.Time) (int, error) {
	asleepNA, asleep, err := s.asleep(ctx, tx, shopID, variantID, set, now)
	if err != nil {
		return 0, fmt.Errorf("allocate: %w", err)
	}
	tag, err := tx.Exec(ctx, `
		WITH head AS MATERIALIZED (
			SELECT e.id, e.contact_id, e.joined_at, `+untoldNow+` AS untold FROM entries e
			WHERE e.shop_id = $1 AND e.variant_id = $2 AND e.state = 'waiting' AND e.expires_at > $5
			  AND NOT EXISTS (SELECT FROM offers o WHERE o.shop_id = $1 AND o.restock_id = $3 AND o.entry_id = e.id AND o.state NOT IN ('missed', 'withdrawn'))
			  AND NOT `+pausedAt5+` AND NOT ($12 AND `+untoldNow+`)
			ORDER BY e.joined_at, e.id LIMIT $4 FOR UPDATE OF e
		), made AS (
			INSERT INTO offers (shop_id, restock_id, entry_id, state, window_minutes, lapses_at, created_at)
			SELECT $1, $3, h.id, 'open', w.minutes, $5::timestamptz + make_interval(mins => w.minutes) + $8::interval, $5
			FROM head h JOIN contacts c ON c.shop_id = $1 AND c.id = h.contact_id
			CROSS JOIN LATERAL (SELECT CASE c.channel WHEN 'sms' THEN $7::int ELSE $6::int END AS minutes) w
			WHERE NOT h.untold
			ORDER BY h.joined_at, h.id
			RETURNING id, entry_id
		), moved AS (
			UPDATE entries e SET state = 'offered' FROM made WHERE e.shop_id = $1 AND e.id = made.entry_id AND e.state = 'waiting'
		)
		INSERT INTO messages (shop_id, kind, channel, contact_id, entry_id, offer_id, state, created_at)
		SELECT $1, 'notice', c.channel, c.id, made.entry_id, made.id, 'pending', $5
		FROM made JOIN head ON head.id = made.entry_id JOIN contacts c ON c.shop_id = $1 AND c.id = head.contact_id
		ORDER BY made.id`, shopID, variantID, restockID, n, now, set.OfferMinutesEmail, set.OfferMinutesSMS, unsentSpan,
		asleepNA, asleep, set.QuietHours, set.PassAsleep)
	made := int(tag.RowsAffected())
	if err != nil || made == 0 {
		return 0, err
	}
	return made, s.tell(ctx, tx, shopID, restockID)
}

// allocateReserved gives n free units to the head of the queue by the second form: it takes each unit from
// the counter and makes the hold, as a claim would, before its person is told. Nobody is told about a unit
// that is not held for them: the notice follows when the hold is active, and a hold that is refused before
// that was never heard of. Like a claim it touches neither rose nor fell.
func (s *Service) allocateReserved(ctx context.Context, tx pgx.Tx, shopID, variantID, restockID int64, n int, set shop.Settings, now time.Time) (int, error) {
	asleepNA, asleep, err := s.asleep(ctx, tx, shopID, variantID, set, now)
	if err != nil {
		return 0, fmt.Errorf("allocate: %w", err)
	}
	var made int
	err = tx.QueryRow(ctx, `
		WITH head AS MATERIALIZED (
			SELECT e.id, e.contact_id, e.joined_at, `+untoldNow+` AS untold FROM entries e
			WHERE e.shop_id = $1 AND e.variant_id = $2 AND e.state = 'waiting' AND e.expires_at > $5
			  AND NOT EXISTS (SELECT FROM offers o WHERE o.shop_id = $1 AND o.restock_id = $3 AND o.entry_id = e.id AND o.state NOT IN ('missed', 'withdrawn'))
			  AND NOT `+pausedAt5+` AND NOT ($12 AND `+untoldNow+`)
			ORDER BY e.joined_at, e.id LIMIT $4 FOR UPDATE OF e
		), made AS (
			INSERT INTO offers (shop_id, restock_id, entry_id, state, reserved, window_minutes, lapses_at, created_at)
			SELECT $1, $3, h.id, 'open', true, w.minutes, $5::timestamptz + make_interval(mins => w.minutes) + $8::interval, $5
			FROM head h JOIN contacts c ON c.shop_id = $1 AND c.id = h.contact_id
			CROSS JOIN LATERAL (SELECT CASE c.channel WHEN 'sms' THEN $7::int ELSE $6::int END AS minutes) w
			WHERE NOT h.untold
			ORDER BY h.joined_at, h.id
			RETURNING id, entry_id
		), held AS (
			INSERT INTO holds (shop_id, restock_id, offer_id, entry_id, variant_id, state, pressed, hold_minutes, claimed_at)
			SELECT $1, $3, made.id, made.entry_id, $2, 'securing', false, $13, $5 FROM made ORDER BY made.id
			RETURNING id
		), counted AS (
			UPDATE restocks SET available = available - (SELECT count(*) FROM held), live = live + (SELECT count(*) FROM held)
			WHERE shop_id = $1 AND id = $3 AND EXISTS (SELECT FROM held)
		), moved AS (
			UPDATE entries e SET state = 'offered' FROM made WHERE e.shop_id = $1 AND e.id = made.entry_id AND e.state = 'waiting'
		)
		SELECT count(*) FROM held`, shopID, variantID, restockID, n, now, set.OfferMinutesEmail, set.OfferMinutesSMS, unsentSpan,
		asleepNA, asleep, set.QuietHours, set.PassAsleep, set.HoldMinutes).Scan(&made)
	if err != nil {
		return 0, fmt.Errorf("allocate reserved: %w", err)
	}
	return made, s.queue(ctx, tx, secureJobs(shopID, made))
}

// secureJobs is workers for so many new holds.
func secureJobs(shopID int64, holds int) []river.InsertManyParams {
	jobs := make([]river.InsertManyParams, min(holds, securers))
	for i := range jobs {
		jobs[i].Args = SecureJob{ShopID: shopID}
	}
	return jobs
}

// finishApply closes a restock that has nothing left, and marks one whose promises Shopify does not back.
func (s *Service) finishApply(ctx context.Context, tx pgx.Tx, shopID int64, r *openRestock, set shop.Settings, sellable, openOffers, between int, asked bool, reading VariantReading, now time.Time) error {
	if r == nil {
		return nil
	}
	// Units that a quiet read finds missing: the live holds are kept, since the promise was made.
	short := r.Short
	if sellable >= 0 {
		short = false
	} else if between == 0 {
		short = true
	}
	unapproved := r.State == "waiting_approval"
	done := r.Available == 0 && openOffers == 0 && r.Live == 0 && (!unapproved || (!asked && sellable < set.Threshold))
	if short && !r.Short {
		if err := s.note(ctx, tx, shopID, "short", fmt.Sprintf("restock %d", r.ID),
			fmt.Sprintf("%s: Shopify is short of %d units that are held for people. Their holds are kept; please restore the stock or talk to them.", named(reading), -sellable)); err != nil {
			return err
		}
	}
	if !done && short == r.Short {
		return nil
	}
	state, closed := r.State, (*time.Time)(nil)
	if done {
		state, closed = "closed", &now
	}
	_, err := tx.Exec(ctx, `UPDATE restocks SET state = $3, short = $4, closed_at = $5 WHERE shop_id = $1 AND id = $2 AND state <> 'closed'`, shopID, r.ID, state, short, closed)
	return err
}

// Approve lets an implausible rise go on: up to what was asked for, nobody is asked again. It returns
// ErrNotFound when nothing waits for an answer.
func (s *Service) Approve(ctx context.Context, shopID, restockID int64) error {
	return s.answer(ctx, shopID, restockID, `UPDATE restocks SET state = 'open' WHERE shop_id = $1 AND id = $2 AND state <> 'closed' RETURNING variant_id`,
		nil, `UPDATE variants SET approved_to = asked, asked = NULL WHERE shop_id = $1 AND id = $2 AND asked IS NOT NULL`)
}

// Decline refuses it: the same stock is not asked about again.
func (s *Service) Decline(ctx context.Context, shopID, restockID int64) error {
	now := s.now()
	return s.answer(ctx, shopID, restockID, `
		UPDATE restocks SET state = CASE state WHEN 'waiting_approval' THEN 'closed' ELSE state END,
		       closed_at = CASE state WHEN 'waiting_approval' THEN $3::timestamptz END
		WHERE shop_id = $1 AND id = $2 AND state <> 'closed' RETURNING variant_id`,
		&now, `UPDATE variants SET declined = asked, asked = NULL WHERE shop_id = $1 AND id = $2 AND asked IS NOT NULL`)
}

func (s *Service) answer(ctx context.Context, shopID, restockID int64, restock string, at *time.Time, variant string) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		args := []any{shopID, restockID}
		if at != nil {
			args = append(args, *at)
		}
		var variantID int64
		err := tx.QueryRow(ctx, restock, args...).Scan(&variantID)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return fmt.Errorf("answer restock %d: %w", restockID, err)
		}
		tag, err := tx.Exec(ctx, variant, shopID, variantID)
		if err != nil {
			return fmt.Errorf("answer restock %d: %w", restockID, err)
		}
		if tag.RowsAffected() == 0 {
			return ErrNotFound
		}
		_, err = tx.Exec(ctx, `UPDATE notes SET cleared_at = $3 WHERE shop_id = $1 AND kind = 'implausible' AND starts_with(subject, $2) AND cleared_at IS NULL`,
			shopID, fmt.Sprintf("variant %d:", variantID), s.now())
		if err != nil {
			return fmt.Errorf("answer restock %d: %w", restockID, err)
		}
		return s.hint(ctx, tx, shopID, variantID)
	})
}

// ChangeSettings saves settings and has every variant with a queue or a restock observed again: what may
// be told may have changed. It returns a shop.Fault for settings that cannot be saved.
//
// Watched locations must include the shop's default one: Shopify reserves there what a draft holds, and no
// draft can choose. Without it a hold would not lower the stock that we read, and its unit would look new.
func (s *Service) ChangeSettings(ctx context.Context, shopID int64, set shop.Settings) error {
	if len(set.Locations) > 0 {
		reserves, err := s.shopify.DefaultLocation(ctx, shopID)
		if err != nil {
			return fmt.Errorf("change settings: %w", err)
		}
		if !slices.Contains(set.Locations, reserves) {
			return shop.Fault{Field: "locations", Reason: fmt.Sprintf("include the default location (%d): Shopify reserves held units there, wherever they lie", reserves)}
		}
	}
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if err := shop.SaveSettings(ctx, tx, shopID, set); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE shops SET holds_off = false WHERE id = $1 AND holds_off`, shopID); err != nil {
			return fmt.Errorf("change settings: %w", err)
		}
		if err := s.holdsOn(ctx, tx, shopID); err != nil {
			return fmt.Errorf("change settings: %w", err)
		}
		return nil
	})
}

// hintAll hints every variant with a queue or a restock: what may be told may have changed for all of them.
func (s *Service) hintAll(ctx context.Context, tx pgx.Tx, shopID int64) error {
	rows, _ := tx.Query(ctx, `
		SELECT DISTINCT variant_id FROM entries WHERE shop_id = $1 AND state = 'waiting'
		UNION SELECT variant_id FROM restocks WHERE shop_id = $1 AND state <> 'closed'`, shopID)
	variants, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("hint all: %w", err)
	}
	return s.hint(ctx, tx, shopID, variants...)
}
