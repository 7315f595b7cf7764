package waitlist

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"holdfast/app/shop"
)

const (
	// grace is how much longer than its hold a draft reserves its unit: more than two clocks differ and
	// more than Shopify rounds. It is a net for when we are away, since a release deletes the draft.
	grace = 10 * time.Minute
	// unclockedSpan is how long a hold may wait for its clock to be started.
	unclockedSpan = 10 * time.Minute
	// securePoints is the most that securing one hold costs, a create and a read-back; securePointsAt the
	// same when stock is read by locations.
	securePoints, securePointsAt = 18, 52
	// securers is how many holds of a shop are secured at once. A call takes a few hundred milliseconds, and
	// the smallest plan of Shopify's pays for six holds a second.
	securers = 8
	// securerSpan is how long a worker has a hold to itself. It may take longer, and another may then be at
	// the same hold: that is slow, and safe.
	securerSpan = 20 * time.Second
	// indexPatience is how far back drafts are listed again: an index that lags longer is not one.
	indexPatience = 24 * time.Hour
	// strayPatience is how long a hold that lacks its unit waits after a second create: the first may have been
	// made after all, and the webhook that tells of it deletes it.
	strayPatience = 10 * time.Second
	// securerPause is how long a hold that could not be secured is left alone.
	securerPause = 2 * time.Second
)

// hold is a row of holds, as far as the steps need it.
type hold struct {
	ID          int64      `db:"id"`
	RestockID   int64      `db:"restock_id"`
	EntryID     int64      `db:"entry_id"`
	VariantID   int64      `db:"variant_id"`
	State       string     `db:"state"`
	Pressed     bool       `db:"pressed"`
	Minutes     int        `db:"minutes"`      // from the draft's creation to expires_at: the hold's, or the offer's when it is not pressed
	HoldMinutes int        `db:"hold_minutes"` // from the press
	ExpiresAt   *time.Time `db:"expires_at"`
	DraftID     *int64     `db:"draft_id"`
	Creates     int        `db:"creates"`
	LastCreate  *time.Time `db:"last_create_at"`
}

func (s *Service) loadHold(ctx context.Context, shopID, holdID int64) (hold, error) {
	rows, _ := s.db.Query(ctx, `
		SELECT h.id, h.restock_id, h.entry_id, h.variant_id, h.state, h.pressed, h.hold_minutes, h.expires_at, h.draft_id, h.creates, h.last_create_at,
		       CASE WHEN h.pressed THEN h.hold_minutes ELSE o.window_minutes END AS minutes
		FROM holds h JOIN offers o ON o.shop_id = h.shop_id AND o.id = h.offer_id WHERE h.shop_id = $1 AND h.id = $2`, shopID, holdID)
	h, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[hold])
	if errors.Is(err, pgx.ErrNoRows) {
		return h, ErrNotFound
	}
	return h, err
}

// SecureNext secures the holds of a shop that wait for it, in press order: it takes the oldest that no other
// worker is at, once the shop's budget allows the calls, and goes on until there is none. Any number of
// workers may do so at once.
//
// It returns *Throttled when the budget is used up, and then the oldest stays the next; ErrLater or what
// went wrong when holds that it took are still to be secured: run it again.
func (s *Service) SecureNext(ctx context.Context, shopID int64) error {
	set, err := shop.LoadSettings(ctx, s.db, shopID)
	if errors.Is(err, shop.ErrNotFound) {
		return ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("secure: %w", err)
	}
	points := securePoints
	if len(set.Locations) > 0 {
		points = securePointsAt
	}
	var left error
	var paused []int64 // holds that wait for younger ones to give way, youngest last
	for {
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < securerSpan {
			return ErrLater // the job's own time, which is real time
		}
		id, err := s.takeSecuring(ctx, shopID, func() error { return s.shopify.Budget(ctx, shopID, points*securers) })
		if err != nil {
			return fmt.Errorf("secure: %w", s.shopifyTrouble(ctx, shopID, err))
		}
		if id == 0 {
			return errors.Join(left, s.othersSecure(ctx, shopID), s.allocateMore(ctx, shopID))
		}
		err = s.Secure(ctx, shopID, id)
		for err == nil && len(paused) > 0 { // it gave way, perhaps: then the next older one knows its lot, too
			id, paused = paused[len(paused)-1], paused[:len(paused)-1]
			err = s.Secure(ctx, shopID, id)
		}
		if err == nil {
			continue
		}
		// It is the next again, at once when nothing was tried and after a pause otherwise.
		pause, stop := securerPause, ctx.Err() != nil
		switch {
		case uncalled(err):
			pause, stop = 0, true
		case errors.Is(err, ErrLater):
			paused = append(paused, id)
			left = cmp.Or(left, err)
		case left == nil || errors.Is(left, ErrLater):
			left = err
		}
		_, pauseErr := s.db.Exec(context.WithoutCancel(ctx), `UPDATE holds SET secured_by_until = $3 WHERE shop_id = $1 AND id = $2 AND state = 'securing'`, shopID, id, s.now().Add(pause))
		if pauseErr != nil || stop {
			return errors.Join(err, pauseErr)
		}
	}
}

// allocateMore hints the variants whose free units were not all given away at once: what waited to be
// secured is through. See reserveAtOnce.
func (s *Service) allocateMore(ctx context.Context, shopID int64) error {
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `
			SELECT r.variant_id FROM restocks r
			WHERE r.shop_id = $1 AND r.state = 'open' AND r.available > 0 AND r.live >= $2
			  AND NOT EXISTS (SELECT FROM holds h WHERE h.shop_id = $1 AND h.restock_id = r.id AND h.state = 'securing')
			  AND EXISTS (SELECT FROM entries e WHERE e.shop_id = $1 AND e.variant_id = r.variant_id AND e.state = 'waiting')`, shopID, reserveAtOnce/2)
		variants, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		return s.hint(ctx, tx, shopID, variants...)
	})
	if err != nil {
		return fmt.Errorf("allocate more: %w", err)
	}
	return nil
}

// uncalled says whether an error means that Shopify was not called, and would not be for another hold of the
// shop either.
func uncalled(err error) bool {
	var throttled *Throttled
	var away *Away
	var refused *ShopRefused
	return errors.As(err, &throttled) || errors.As(err, &away) || errors.As(err, &refused)
}

// othersSecure returns ErrLater while holds of the shop are with other workers: one that has died leaves its
// hold to whoever comes back.
func (s *Service) othersSecure(ctx context.Context, shopID int64) error {
	var busy bool
	err := s.db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM holds WHERE shop_id = $1 AND state = 'securing' AND (expires_at IS NULL OR expires_at > $2))`, shopID, s.now()).Scan(&busy)
	if err != nil {
		return fmt.Errorf("secure: %w", err)
	}
	if busy {
		return ErrLater
	}
	return nil
}

// SecurersGone says that a process that was securing holds of a shop has ended: others may take them at
// once.
func (s *Service) SecurersGone(ctx context.Context, shopID int64) error {
	_, err := s.db.Exec(ctx, `UPDATE holds SET secured_by_until = NULL WHERE shop_id = $1 AND state = 'securing' AND secured_by_until IS NOT NULL`, shopID)
	if err != nil {
		return fmt.Errorf("secure: %w", err)
	}
	return nil
}

// takeSecuring takes the oldest hold that is to be secured and that no other worker is at, if allowed
// returns nil; 0 when there is none.
func (s *Service) takeSecuring(ctx context.Context, shopID int64, allowed func() error) (int64, error) {
	const next = `SELECT id FROM holds WHERE shop_id = $1 AND state = 'securing' AND (expires_at IS NULL OR expires_at > $2) AND (secured_by_until IS NULL OR secured_by_until <= $2) ORDER BY id LIMIT 1`
	for {
		var id int64
		err := s.db.QueryRow(ctx, next, shopID, s.now()).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		if err := allowed(); err != nil {
			return 0, err
		}
		now := s.now()
		err = s.db.QueryRow(ctx, `
			UPDATE holds SET secured_by_until = $3 WHERE shop_id = $1 AND state = 'securing' AND id = (`+next+` FOR UPDATE SKIP LOCKED)
			RETURNING id`, shopID, now, now.Add(securerSpan)).Scan(&id)
		if !errors.Is(err, pgx.ErrNoRows) {
			return id, err
		}
		// Others took what there was while we asked for the budget.
	}
}

// Secure backs a hold with a draft order: it starts the hold's clock, creates the draft, reads stock back,
// and activates the hold or lets it be refused. It is run until the hold leaves securing, and may run twice
// at once: the clock is set once, the draft's id is written once and only while securing, and activation
// names the state, the draft and the time.
//
// Shopify does not check stock when a draft is created, so the read-back is the guard against everyone
// else who sells: S below zero means that more was promised than there is, and the youngest give way.
//
// After a lost answer a second create may find the unit taken by the first, which the index does not show
// yet. Such a hold does not give way at once: a draft of ours that nobody owns is deleted when its webhook
// comes, and the unit is there again. Refusing would end the restock, and begin another that tells everyone
// anew.
//
// It returns ErrLater when the hold must wait for that or for younger ones to give way, *Throttled when the shop's
// budget does not allow the call yet, and any other error when the outcome is unknown: run it again.
func (s *Service) Secure(ctx context.Context, shopID, holdID int64) error {
	if err := s.secure(ctx, shopID, holdID); err != nil {
		return fmt.Errorf("secure hold %d: %w", holdID, s.shopifyTrouble(ctx, shopID, err))
	}
	return nil
}

func (s *Service) secure(ctx context.Context, shopID, holdID int64) error {
	h, err := s.loadHold(ctx, shopID, holdID)
	if err != nil {
		return err
	}
	if h.State != "securing" {
		return nil
	}
	fresh := h.ExpiresAt == nil // no create was tried yet
	if fresh {
		if err := s.shopify.Budget(ctx, shopID, securePointsAt); err != nil {
			return err
		}
		// Before it is pressed a hold's clock is its offer's window, which ends when the hold does.
		until := s.now().Add(time.Duration(h.Minutes) * time.Minute)
		tag, err := s.db.Exec(ctx, `
			WITH hold AS (
				UPDATE holds SET expires_at = $3 WHERE shop_id = $1 AND id = $2 AND state = 'securing' AND expires_at IS NULL RETURNING offer_id
			), lapses AS (
				UPDATE offers o SET lapses_at = $3 FROM hold WHERE o.shop_id = $1 AND o.id = hold.offer_id AND o.reserved AND o.state = 'open'
			)
			SELECT FROM hold`, shopID, holdID, until)
		if err != nil {
			return err
		}
		fresh = tag.RowsAffected() == 1
		if h, err = s.loadHold(ctx, shopID, holdID); err != nil {
			return err
		}
	}
	if h.State != "securing" || !h.ExpiresAt.After(s.now()) {
		return nil // ended, or the sweep's
	}
	set, err := shop.LoadSettings(ctx, s.db, shopID)
	if err != nil {
		return err
	}
	if h.DraftID == nil {
		d, err := s.draftFor(ctx, shopID, h, fresh)
		var no *Rejected
		if errors.As(err, &no) {
			return s.refuse(ctx, shopID, h, nil)
		}
		if err != nil {
			return err
		}
		if err := s.takeDraft(ctx, shopID, holdID, d); err != nil {
			return err
		}
		if h, err = s.loadHold(ctx, shopID, holdID); err != nil {
			return err
		}
		if h.State != "securing" || h.DraftID == nil || *h.DraftID != d.ID {
			return nil // somebody else is at it, or it has ended
		}
	}

	d, there, sellable, err := s.shopify.ReadBack(ctx, shopID, *h.DraftID, h.VariantID, set.Locations)
	if err != nil {
		return err
	}
	switch {
	case !there || d.Completed:
		return s.refuse(ctx, shopID, h, h.DraftID)
	case sellable >= 0:
		return s.activate(ctx, shopID, h)
	}
	var younger int
	err = s.db.QueryRow(ctx, `
		SELECT count(*) FROM holds WHERE shop_id = $1 AND variant_id = $2 AND id > $3
		AND (state = 'securing' OR (state = 'releasing' AND reason = 'refused'))`, shopID, h.VariantID, h.ID).Scan(&younger)
	if err != nil {
		return err
	}
	if younger >= -sellable {
		return ErrLater // enough younger ones will give way
	}
	if h.Creates > 1 && h.LastCreate != nil && s.now().Before(h.LastCreate.Add(strayPatience)) {
		return ErrLater
	}
	return s.refuse(ctx, shopID, h, h.DraftID)
}

// draftFor finds the hold's draft by its tag, or creates it. On the first try there is nothing to find.
func (s *Service) draftFor(ctx context.Context, shopID int64, h hold, fresh bool) (Draft, error) {
	if !fresh {
		drafts, err := s.shopify.FindDrafts(ctx, shopID, h.ID)
		if err != nil {
			return Draft{}, err
		}
		if len(drafts) > 0 {
			return slices.MinFunc(drafts, func(a, b Draft) int { return int(a.ID - b.ID) }), nil
		}
	}
	d := NewDraft{HoldID: h.ID, Mark: s.keys.Token(shop.HoldMark, h.ID), VariantID: h.VariantID, ReserveUntil: h.ExpiresAt.Add(grace)}
	if !h.Pressed { // it may be pressed at the last moment, and then has the hold minutes
		d.ReserveUntil = d.ReserveUntil.Add(time.Duration(h.HoldMinutes) * time.Minute)
	}
	err := s.db.QueryRow(ctx, `
		SELECT e.name, CASE WHEN c.channel = 'email' THEN c.address ELSE '' END, e.currency, NOT t.automatic_discounts, NOT t.discount_codes
		FROM entries e JOIN contacts c ON c.shop_id = e.shop_id AND c.id = e.contact_id JOIN settings t ON t.shop_id = e.shop_id
		WHERE e.shop_id = $1 AND e.id = $2`, shopID, h.EntryID).Scan(&d.Name, &d.Email, &d.Currency, &d.NoAutomaticDiscounts, &d.NoDiscountCodes)
	if err != nil {
		return Draft{}, err
	}
	tag, err := s.db.Exec(ctx, `UPDATE holds SET creates = creates + 1, last_create_at = $3 WHERE shop_id = $1 AND id = $2 AND state = 'securing' AND draft_id IS NULL`, shopID, h.ID, s.now())
	if err != nil {
		return Draft{}, err
	}
	if tag.RowsAffected() == 0 {
		return Draft{}, ErrLater // another worker's draft was recorded meanwhile, or the hold has ended
	}
	if err := s.point(ctx, "draft_create", "before"); err != nil {
		return Draft{}, err
	}
	made, err := s.shopify.CreateDraft(ctx, shopID, d)
	if err != nil {
		return Draft{}, err
	}
	return made, s.point(ctx, "draft_create", "after")
}

// takeDraft records a hold's draft, once and only while it is being secured. A draft that comes too late
// is deleted: the hold has another, or has ended.
func (s *Service) takeDraft(ctx context.Context, shopID, holdID int64, d Draft) error {
	tag, err := s.db.Exec(ctx, `
		UPDATE holds SET draft_id = $3, invoice_url = $4
		WHERE shop_id = $1 AND id = $2 AND state = 'securing' AND (draft_id IS NULL OR draft_id = $3)`, shopID, holdID, d.ID, d.InvoiceURL)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return s.dropDraft(ctx, shopID, holdID, d.ID)
	}
	return nil
}

// dropDraft deletes a draft that its hold did not take.
func (s *Service) dropDraft(ctx context.Context, shopID, holdID, draftID int64) error {
	h, err := s.loadHold(ctx, shopID, holdID)
	if err != nil {
		return err
	}
	if h.DraftID != nil && *h.DraftID == draftID {
		return nil
	}
	return s.shopify.DeleteDraft(ctx, shopID, draftID)
}

// activate makes the hold one that its shopper may pay: from here on expires_at is what they see. Whoever
// was not told yet is told now, and no sooner.
func (s *Service) activate(ctx context.Context, shopID int64, h hold) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		now := s.now()
		var tells bool
		err := tx.QueryRow(ctx, `
			UPDATE holds SET state = 'active', activated_at = $4
			WHERE shop_id = $1 AND id = $2 AND state = 'securing' AND draft_id = $3 AND expires_at > $4
			RETURNING NOT pressed`, shopID, h.ID, *h.DraftID, now).Scan(&tells)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, `UPDATE restocks SET fell = fell + 1 WHERE shop_id = $1 AND id = $2`, shopID, h.RestockID); err != nil || !tells {
			return err
		}
		_, err = tx.Exec(ctx, `
			INSERT INTO messages (shop_id, kind, channel, contact_id, entry_id, offer_id, state, created_at)
			SELECT $1, 'notice', c.channel, c.id, e.id, h.offer_id, 'pending', $3
			FROM holds h JOIN entries e ON e.shop_id = $1 AND e.id = h.entry_id JOIN contacts c ON c.shop_id = $1 AND c.id = e.contact_id
			WHERE h.shop_id = $1 AND h.id = $2`, shopID, h.ID, now)
		if err != nil {
			return err
		}
		return s.tell(ctx, tx, shopID, h.RestockID)
	})
}

// refuse writes the intent; the draft is deleted by Release, the only place where a recorded draft is.
// Deleting it here would take it from under a worker that is just activating the hold.
func (s *Service) refuse(ctx context.Context, shopID int64, h hold, draftID *int64) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `
			UPDATE holds SET state = 'releasing', reason = 'refused'
			WHERE shop_id = $1 AND id = $2 AND state = 'securing' AND draft_id IS NOT DISTINCT FROM $3 RETURNING id`, shopID, h.ID, draftID)
		return s.queueReleases(ctx, tx, shopID, rows)
	})
}

// startRelease writes the intent to release live holds: those of which (over shop_id $1, its argument $4).
func (s *Service) startRelease(ctx context.Context, tx pgx.Tx, shopID int64, which string, arg []int64, reason string, byShopper bool) error {
	rows, _ := tx.Query(ctx, `
		UPDATE holds SET state = 'releasing', reason = $2, by_shopper = $3
		WHERE shop_id = $1 AND `+which+` AND state IN ('securing', 'active') RETURNING id`, shopID, reason, byShopper, arg)
	return s.queueReleases(ctx, tx, shopID, rows)
}

func (s *Service) queueReleases(ctx context.Context, tx pgx.Tx, shopID int64, rows pgx.Rows) error {
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("start release: %w", err)
	}
	jobs := make([]river.InsertManyParams, len(ids))
	for i, id := range ids {
		jobs[i].Args = ReleaseJob{ShopID: shopID, HoldID: id}
	}
	return s.queue(ctx, tx, jobs)
}

// ReleaseHold ends a live hold by the merchant's hand; its unit goes to the next in line. It returns
// ErrNotFound for a hold that is not live.
func (s *Service) ReleaseHold(ctx context.Context, shopID, holdID int64) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		var live bool
		err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM holds WHERE shop_id = $1 AND id = $2 AND state IN ('securing', 'active'))`, shopID, holdID).Scan(&live)
		if err != nil {
			return fmt.Errorf("release hold: %w", err)
		}
		if !live {
			return ErrNotFound
		}
		return s.startRelease(ctx, tx, shopID, `id = ANY ($4)`, []int64{holdID}, "released", false)
	})
}

// Release ends a hold that is releasing: it reads the draft (paid? then the hold is sold), deletes it, and
// returns the unit, once (promise 7): the confirmation names the state it leaves, so the second of two
// releases finds no row. The order matters. Returning first would let somebody claim a unit whose old link
// is still payable.
//
// A notice that may just be on its way is waited for, all of it and not the delete alone (ErrLater): its
// person is told of a unit that is there.
//
// It never allocates: that is Observe's, which is queued with the return.
func (s *Service) Release(ctx context.Context, shopID, holdID int64) error {
	if err := s.release(ctx, shopID, holdID); err != nil {
		return fmt.Errorf("release hold %d: %w", holdID, s.shopifyTrouble(ctx, shopID, err))
	}
	return nil
}

func (s *Service) release(ctx context.Context, shopID, holdID int64) error {
	h, err := s.loadHold(ctx, shopID, holdID)
	if err != nil {
		return err
	}
	if h.State != "releasing" {
		return nil
	}
	var telling bool
	err = s.db.QueryRow(ctx, `SELECT coalesce(notice_lease > $3, false) FROM holds WHERE shop_id = $1 AND id = $2`, shopID, holdID, s.now()).Scan(&telling)
	if err != nil {
		return err
	}
	if telling {
		return ErrLater
	}
	var drafts []Draft
	switch {
	case h.DraftID != nil:
		d, there, err := s.shopify.ReadDraft(ctx, shopID, *h.DraftID)
		if err != nil {
			return err
		}
		if there {
			drafts = append(drafts, d)
		}
	case h.ExpiresAt != nil: // a create may have been tried
		if drafts, err = s.shopify.FindDrafts(ctx, shopID, holdID); err != nil {
			return err
		}
	}
	for _, d := range drafts {
		if d.Completed {
			return s.MarkSold(ctx, shopID, holdID, d.OrderID)
		}
	}
	for _, d := range drafts {
		if err := s.point(ctx, "draft_delete", "before"); err != nil {
			return err
		}
		if err := s.shopify.DeleteDraft(ctx, shopID, d.ID); err != nil {
			return err
		}
		if err := s.point(ctx, "draft_delete", "after"); err != nil {
			return err
		}
	}
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if err := s.confirmRelease(ctx, tx, shopID, holdID); err != nil {
			return err
		}
		return s.point(ctx, "release_commit", "before")
	})
	if err != nil {
		return err
	}
	return s.point(ctx, "release_commit", "after")
}

func (s *Service) confirmRelease(ctx context.Context, tx pgx.Tx, shopID, holdID int64) error {
	now := s.now()
	var restock, offer, entry, variantID int64
	var reason, unpressed string // what becomes of the offer of a hold that nobody pressed
	var unheard bool             // ended before its shopper could pay, through no act of theirs
	err := tx.QueryRow(ctx, `
		UPDATE holds SET state = reason, ended_at = $3 WHERE shop_id = $1 AND id = $2 AND state = 'releasing'
		RETURNING restock_id, offer_id, entry_id, variant_id, reason, reason = 'refused' OR (activated_at IS NULL AND NOT by_shopper),
		          CASE WHEN pressed THEN '' WHEN by_shopper THEN 'passed' WHEN notice_at IS NULL THEN 'missed' ELSE 'lapsed' END`,
		shopID, holdID, now).Scan(&restock, &offer, &entry, &variantID, &reason, &unheard, &unpressed)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // somebody else was there
	}
	if err != nil {
		return err
	}
	returned := `UPDATE restocks SET live = live - 1, available = available + 1, rose = rose + 1 WHERE shop_id = $1 AND id = $2`
	if reason == "refused" { // Shopify had no unit: there is none to return
		returned = `UPDATE restocks SET live = live - 1, withdrawn = withdrawn + 1, fell = fell + 1 WHERE shop_id = $1 AND id = $2`
	}
	if _, err := tx.Exec(ctx, returned, shopID, restock); err != nil {
		return err
	}
	if unpressed != "" {
		_, err := tx.Exec(ctx, `
			WITH ended AS (
				UPDATE offers SET state = $3, ended_at = $4 WHERE shop_id = $1 AND id = $2 AND state = 'open' RETURNING id
			)
			UPDATE messages m SET state = 'cancelled', reason = 'its hold ended before it was sent' FROM ended WHERE m.shop_id = $1 AND m.offer_id = ended.id AND m.state = 'pending'`,
			shopID, offer, unpressed, now)
		if err != nil {
			return err
		}
	} else if unheard {
		if _, err := tx.Exec(ctx, `UPDATE offers SET state = 'missed' WHERE shop_id = $1 AND id = $2 AND state = 'claimed'`, shopID, offer); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, `UPDATE entries SET state = 'waiting' WHERE shop_id = $1 AND id = $2 AND state = CASE WHEN $3 THEN 'offered' ELSE 'holding' END`, shopID, entry, unpressed != ""); err != nil {
		return err
	}
	return s.hint(ctx, tx, shopID, variantID)
}

// MarkSold records that a hold was paid. A hold that had ended unsold was paid late: then its entry is
// sold, it keeps paid_late_at and the merchant is told, and no counter changes, since its unit was returned
// already; the next observe finds it missing. Marking twice changes nothing.
func (s *Service) MarkSold(ctx context.Context, shopID, holdID, orderID int64) error {
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		now := s.now()
		var order *int64
		if orderID != 0 {
			order = &orderID
		}
		var restock, offer, entry, variantID int64
		err := tx.QueryRow(ctx, `
			UPDATE holds SET state = 'sold', ended_at = $3, order_id = $4
			WHERE shop_id = $1 AND id = $2 AND state IN ('securing', 'active', 'releasing')
			RETURNING restock_id, offer_id, entry_id, variant_id`, shopID, holdID, now, order).Scan(&restock, &offer, &entry, &variantID)
		if errors.Is(err, pgx.ErrNoRows) {
			return s.paidLate(ctx, tx, shopID, holdID, order, now)
		}
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE restocks SET live = live - 1, sold = sold + 1, fell = fell + 1 WHERE shop_id = $1 AND id = $2`, shopID, restock); err != nil {
			return err
		}
		// A hold that nobody pressed can be paid, too: the merchant may do it.
		_, err = tx.Exec(ctx, `
			WITH taken AS (
				UPDATE offers SET state = 'claimed', ended_at = $4 WHERE shop_id = $1 AND id = $3 AND state = 'open'
			), unsent AS (
				UPDATE messages SET state = 'cancelled', reason = 'bought already' WHERE shop_id = $1 AND offer_id = $3 AND state = 'pending'
			)
			UPDATE entries SET state = 'sold', ended_at = $4 WHERE shop_id = $1 AND id = $2 AND state IN ('offered', 'holding')`, shopID, entry, offer, now)
		if err != nil {
			return err
		}
		return s.hint(ctx, tx, shopID, variantID)
	})
	if err != nil {
		return fmt.Errorf("mark hold %d sold: %w", holdID, err)
	}
	return nil
}

func (s *Service) paidLate(ctx context.Context, tx pgx.Tx, shopID, holdID int64, order *int64, now time.Time) error {
	var entry, variantID int64
	err := tx.QueryRow(ctx, `
		UPDATE holds SET paid_late_at = $3, order_id = $4
		WHERE shop_id = $1 AND id = $2 AND state IN ('expired', 'released', 'refused') AND paid_late_at IS NULL
		RETURNING entry_id, variant_id`, shopID, holdID, now, order).Scan(&entry, &variantID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // sold already, or known to be late
	}
	if err != nil {
		return err
	}
	if err := s.startRelease(ctx, tx, shopID, `entry_id = ANY ($4)`, []int64{entry}, "released", false); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		WITH gone AS (
			UPDATE offers SET state = 'withdrawn', ended_at = $3 WHERE shop_id = $1 AND entry_id = $2 AND state = 'open' AND NOT reserved RETURNING id
		), unsent AS (
			UPDATE messages m SET state = 'cancelled', reason = 'bought already' FROM gone WHERE m.shop_id = $1 AND m.offer_id = gone.id AND m.state = 'pending'
		)
		UPDATE entries SET state = 'sold', ended_at = $3 WHERE shop_id = $1 AND id = $2 AND state IN ('waiting', 'offered', 'holding')`, shopID, entry, now)
	if err != nil {
		return err
	}
	if err := s.note(ctx, tx, shopID, "paid_late", fmt.Sprintf("hold %d", holdID),
		"An order was paid after its hold had ended, when its unit may have been offered to somebody else. Check that you can fulfil it."); err != nil {
		return err
	}
	return s.hint(ctx, tx, shopID, variantID)
}

// Reconcile lists our drafts and puts right what was missed: a draft that no hold owns is deleted (a
// create whose answer was lost and whose lookup came too early leaves one, reserving a unit for nobody), a
// paid one is marked sold, and an active hold whose draft is gone is released.
//
// What changed since the last complete reconcile began is listed, and a day's worth of what the index may
// have hidden from it; after an installation everything, so that what an earlier one left is found. Deleted
// drafts are in no list: those of active holds that were not listed are read one by one. A reconcile that
// must wait for Shopify returns that, and the next call goes on where it was: one that began again each time
// would spend the points it waited for on the same first page for ever.
//
// It also looks whether Shopify still reserves where stock is watched (checkDefault).
func (s *Service) Reconcile(ctx context.Context, shopID int64) error {
	if err := s.checkDefault(ctx, shopID); err != nil {
		return fmt.Errorf("reconcile: %w", s.shopifyTrouble(ctx, shopID, err))
	}
	var began time.Time
	var reconciled *time.Time
	var cursor string
	if err := s.db.QueryRow(ctx, `UPDATE shops SET reconciling_since = coalesce(reconciling_since, $2) WHERE id = $1 RETURNING reconciling_since, reconciled_at, reconcile_cursor`, shopID, s.now()).
		Scan(&began, &reconciled, &cursor); err != nil {
		return fmt.Errorf("reconcile: %w", err)
	}
	var since time.Time
	if reconciled != nil {
		since = reconciled.Add(-indexPatience)
	}
	for more := true; more; {
		drafts, next, err := s.shopify.ListDrafts(ctx, shopID, since, cursor)
		if err != nil {
			err = s.shopifyTrouble(ctx, shopID, err)
			if !uncalled(err) { // perhaps for the cursor
				_, reset := s.db.Exec(ctx, `UPDATE shops SET reconcile_cursor = '' WHERE id = $1 AND reconciling_since = $2`, shopID, began)
				err = errors.Join(err, reset)
			}
			return fmt.Errorf("reconcile: %w", err)
		}
		there := make([]int64, len(drafts))
		for i, d := range drafts {
			there[i] = d.ID
			if err := s.reconcileDraft(ctx, shopID, d); err != nil {
				return fmt.Errorf("reconcile draft %d: %w", d.ID, s.shopifyTrouble(ctx, shopID, err))
			}
		}
		if more = next != ""; more {
			cursor = next
		}
		// Not when the shop was installed again meanwhile, or when another run is through: then this one is over.
		tag, err := s.db.Exec(ctx, `
			WITH seen AS (UPDATE holds SET draft_seen_at = $2 WHERE shop_id = $1 AND draft_id = ANY ($4))
			UPDATE shops SET reconcile_cursor = $3 WHERE id = $1 AND reconciling_since = $2`, shopID, began, cursor, there)
		if err != nil {
			return fmt.Errorf("reconcile: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return nil
		}
	}
	if err := s.shopifyAnswers(ctx, shopID); err != nil {
		return fmt.Errorf("reconcile: %w", err)
	}
	rows, _ := s.db.Query(ctx, `SELECT draft_id FROM holds WHERE shop_id = $1 AND state = 'active' AND draft_seen_at IS DISTINCT FROM $2 ORDER BY id`, shopID, began)
	unseen, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("reconcile: %w", err)
	}
	for _, draft := range unseen {
		// The index behind the listing may lag: only a read by id says that a draft is gone.
		d, there, err := s.shopify.ReadDraft(ctx, shopID, draft)
		if err == nil && there {
			err = s.reconcileDraft(ctx, shopID, d)
		} else if err == nil {
			err = s.draftGone(ctx, shopID, draft)
		}
		if err == nil {
			_, err = s.db.Exec(ctx, `UPDATE holds SET draft_seen_at = $3 WHERE shop_id = $1 AND draft_id = $2`, shopID, draft, began)
		}
		if err != nil {
			return fmt.Errorf("reconcile draft %d: %w", draft, s.shopifyTrouble(ctx, shopID, err))
		}
	}
	_, err = s.db.Exec(ctx, `UPDATE shops SET reconciled_at = $2, reconciling_since = NULL, reconcile_cursor = '' WHERE id = $1 AND reconciling_since = $2`, shopID, began)
	if err != nil {
		return fmt.Errorf("reconcile: %w", err)
	}
	return nil
}

// checkDefault turns holds off for a shop that watches some locations when Shopify's default one, where it
// reserves what drafts hold, is not among them any more: a hold would not lower the stock that we read, and
// its unit would look new. While they are off nobody is told, and the merchant is asked.
func (s *Service) checkDefault(ctx context.Context, shopID int64) error {
	set, err := shop.LoadSettings(ctx, s.db, shopID)
	if errors.Is(err, shop.ErrNotFound) {
		return ErrNotFound
	}
	if err != nil {
		return err
	}
	off := false
	var reserves int64
	if len(set.Locations) > 0 {
		if reserves, err = s.shopify.DefaultLocation(ctx, shopID); err != nil {
			return err
		}
		off = !slices.Contains(set.Locations, reserves)
	}
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE shops SET holds_off = $2 WHERE id = $1 AND holds_off <> $2`, shopID, off)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		if off {
			return s.note(ctx, tx, shopID, "default_location", fmt.Sprintf("location %d", reserves),
				fmt.Sprintf("Holds are off and nobody is told: Shopify now reserves held units at location %d, whose stock you do not count. Add it to the locations in Settings, or count all that sell online.", reserves))
		}
		return s.holdsOn(ctx, tx, shopID)
	})
}

// holdsOn puts away what was said when holds went off, and looks at what waited for them.
func (s *Service) holdsOn(ctx context.Context, tx pgx.Tx, shopID int64) error {
	if _, err := tx.Exec(ctx, `UPDATE notes SET cleared_at = $2 WHERE shop_id = $1 AND kind = 'default_location' AND cleared_at IS NULL`, shopID, s.now()); err != nil {
		return err
	}
	return s.hintAll(ctx, tx, shopID)
}

// reconcileDraft puts one of our drafts right, as it is now.
func (s *Service) reconcileDraft(ctx context.Context, shopID int64, d Draft) error {
	if d.HoldID == 0 {
		return nil // not ours
	}
	h, err := s.loadHold(ctx, shopID, d.HoldID)
	if errors.Is(err, ErrNotFound) {
		// It carries our mark, so it was made for a hold whose row is gone: with a shop that was erased, or
		// with what a restored backup does not have. Nobody will come for it. One without is not ours.
		if id, err := s.keys.ParseToken(shop.HoldMark, d.Mark); err != nil || id != d.HoldID || d.Completed {
			return nil
		}
		return s.shopify.DeleteDraft(ctx, shopID, d.ID)
	}
	if err != nil {
		return err
	}
	switch {
	case h.DraftID != nil && *h.DraftID == d.ID && d.Completed:
		return s.MarkSold(ctx, shopID, h.ID, d.OrderID)
	case h.owns(d.ID):
		return nil
	case d.Completed:
		return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
			return s.note(ctx, tx, shopID, "stray_draft_paid", fmt.Sprintf("draft %d", d.ID),
				"A draft order that was meant to be deleted was paid. Check the order: its unit may be promised to somebody else.")
		})
	}
	if err := s.shopify.DeleteDraft(ctx, shopID, d.ID); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error { return s.hint(ctx, tx, shopID, h.VariantID) })
}

// owns says whether a draft may be this hold's: it is recorded and the hold has not ended unsold, or the
// hold is still being secured and may yet take it.
func (h hold) owns(draftID int64) bool {
	if h.DraftID == nil {
		return h.State == "securing"
	}
	return *h.DraftID == draftID && h.State != "expired" && h.State != "released" && h.State != "refused"
}

// draftGone releases the hold whose draft was deleted by somebody else. One that was never active is
// refused: its shopper was promised nothing yet.
func (s *Service) draftGone(ctx context.Context, shopID, draftID int64) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `
			UPDATE holds SET state = 'releasing', reason = CASE state WHEN 'securing' THEN 'refused' ELSE 'released' END
			WHERE shop_id = $1 AND draft_id = $2 AND state IN ('securing', 'active') RETURNING id`, shopID, draftID)
		return s.queueReleases(ctx, tx, shopID, rows)
	})
}
