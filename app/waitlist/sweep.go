package waitlist

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
)

const (
	// sweepChunk is how many rows one transaction of the sweep takes.
	sweepChunk = 500
	// reconcileEvery is how often a shop's drafts are listed.
	reconcileEvery = 10 * time.Minute
)

// Sweep ends what time has ended and tidies up, for every shop with something due: offers lapse, holds
// start their release, sends that nobody can still be at are of unknown outcome, entries reach the end of their time-to-live, rises that have settled and stock that
// was not read for 5 minutes are observed, drafts are reconciled, and once a day the catalogue is read. It runs every 30 seconds and may run
// twice at once: rows are taken with SKIP LOCKED, and every change names the state it leaves (promise 7).
//
// The faults of one shop do not keep the others waiting; they are returned together.
func (s *Service) Sweep(ctx context.Context) error {
	now := s.now()
	rows, _ := s.db.Query(ctx, `
		SELECT shop_id FROM offers WHERE state = 'open' AND NOT reserved AND lapses_at <= $1
		UNION SELECT shop_id FROM holds WHERE state IN ('securing', 'active') AND expires_at <= $1
		UNION SELECT shop_id FROM holds WHERE state = 'securing' AND expires_at IS NULL AND claimed_at <= $2
		UNION SELECT shop_id FROM entries WHERE state = 'waiting' AND expires_at <= $1
		UNION SELECT shop_id FROM variants WHERE rise_since IS NOT NULL
		UNION SELECT id FROM shops s WHERE state = 'installed' AND (
			EXISTS (SELECT FROM entries e WHERE e.shop_id = s.id AND e.state = 'waiting')
			OR EXISTS (SELECT FROM restocks r WHERE r.shop_id = s.id AND r.state <> 'closed'))
		UNION SELECT shop_id FROM messages WHERE state = 'pending' OR (state = 'sending' AND sending_at <= $3) OR (state = 'unknown' AND send_after <= $1)
		UNION SELECT shop_id FROM pauses WHERE ended_at IS NULL AND until <= $1
		UNION SELECT id FROM shops WHERE state = 'installed' AND reconcile_at <= $1
		UNION SELECT shop_id FROM catalogues c JOIN shops s ON s.id = c.shop_id WHERE s.state = 'installed' AND c.due_at <= $1`, now, now.Add(-unclockedSpan), now.Add(-sendingSpan))
	shops, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	var faults []error
	for _, shopID := range shops {
		for _, step := range []func(context.Context, int64, time.Time) (int, error){s.sweepOffers, s.sweepHolds, s.sweepMessages, s.sweepPauses, s.sweepEntries, s.sweepVariants, s.sweepShop, s.sweepCatalogue} {
			for {
				n, err := step(ctx, shopID, now)
				if err != nil {
					faults = append(faults, fmt.Errorf("sweep shop %d: %w", shopID, err))
				}
				if err != nil || n < sweepChunk {
					break
				}
			}
		}
	}
	// What limits and counts by day is not needed longer.
	if _, err := s.db.Exec(ctx, `DELETE FROM tap_limits WHERE window_start < $1`, now.Add(-48*time.Hour)); err != nil {
		faults = append(faults, fmt.Errorf("sweep tap limits: %w", err))
	}
	if _, err := s.db.Exec(ctx, `DELETE FROM demand WHERE day < $1`, now.AddDate(0, 0, -30)); err != nil {
		faults = append(faults, fmt.Errorf("sweep demand: %w", err))
	}
	if err := s.dropExports(ctx, now); err != nil {
		faults = append(faults, fmt.Errorf("sweep exports: %w", err))
	}
	return errors.Join(faults...)
}

// sweepOffers ends overdue offers: lapsed when their message was or may have been sent, withdrawn when it
// never was, so that its person may be told later in the same restock.
func (s *Service) sweepOffers(ctx context.Context, shopID int64, now time.Time) (int, error) {
	due := 0
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `
			SELECT id FROM offers WHERE shop_id = $1 AND state = 'open' AND NOT reserved AND lapses_at <= $2
			ORDER BY lapses_at, id LIMIT $3 FOR UPDATE SKIP LOCKED`, shopID, now, sweepChunk)
		overdue, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		due = len(overdue)
		// Whether a message was sent is asked in a second statement: whoever starts to send holds the
		// offer's lock, and the first one's snapshot may be older than its own locks.
		rows, _ = tx.Query(ctx, `
			SELECT o.id, EXISTS (SELECT FROM messages m WHERE m.shop_id = o.shop_id AND m.offer_id = o.id AND m.state NOT IN ('pending', 'cancelled')) AS told
			FROM offers o WHERE o.shop_id = $1 AND o.id = ANY ($2) ORDER BY o.lapses_at, o.id`, shopID, overdue)
		var id int64
		var told bool
		ended := map[bool][]int64{}
		if _, err := pgx.ForEachRow(rows, []any{&id, &told}, func() error {
			ended[told] = append(ended[told], id)
			return nil
		}); err != nil {
			return err
		}
		for told, to := range map[bool]string{true: "lapsed", false: "withdrawn"} {
			if len(ended[told]) == 0 {
				continue
			}
			if err := s.endOffers(ctx, tx, shopID, ended[told], to); err != nil {
				return err
			}
		}
		return nil
	})
	return due, err
}

// sweepHolds starts the release of holds whose time is over, and of those that never got their clock.
func (s *Service) sweepHolds(ctx context.Context, shopID int64, now time.Time) (int, error) {
	due := 0
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `
			SELECT id FROM holds
			WHERE shop_id = $1 AND ((state IN ('securing', 'active') AND expires_at <= $2) OR (state = 'securing' AND expires_at IS NULL AND claimed_at <= $3))
			ORDER BY id LIMIT $4 FOR UPDATE SKIP LOCKED`, shopID, now, now.Add(-unclockedSpan), sweepChunk)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		due = len(ids)
		if due == 0 {
			return nil
		}
		return s.startRelease(ctx, tx, shopID, `id = ANY ($4)`, ids, "expired", false)
	})
	return due, err
}

// sweepMessages says of messages that nobody can still be sending that their outcome is unknown, cancels
// those whose offer was pressed before they were sent, and has those sent, or looked for, whose wait is over.
func (s *Service) sweepMessages(ctx context.Context, shopID int64, now time.Time) (int, error) {
	_, err := s.db.Exec(ctx, `UPDATE messages SET state = 'unknown', doubts = doubts + 1, looked_at = NULL, reason = $3 WHERE shop_id = $1 AND state = 'sending' AND sending_at <= $2`, shopID, now.Add(-sendingSpan), diedSending)
	if err != nil {
		return 0, err
	}
	_, err = s.db.Exec(ctx, `
		UPDATE messages m SET state = 'cancelled', reason = 'its offer was pressed before it was sent' FROM offers o
		WHERE m.shop_id = $1 AND m.state = 'pending' AND o.shop_id = $1 AND o.id = m.offer_id AND o.state <> 'open'`, shopID)
	if err != nil {
		return 0, err
	}
	rows, _ := s.db.Query(ctx, `
		SELECT DISTINCT o.restock_id FROM messages m JOIN offers o ON o.shop_id = $1 AND o.id = m.offer_id
		WHERE m.shop_id = $1 AND m.state IN ('pending', 'unknown') AND m.send_after <= $2 AND o.state = 'open'`, shopID, now)
	due, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, err
	}
	for _, restockID := range due {
		if err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error { return s.tell(ctx, tx, shopID, restockID) }); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// sweepEntries ends waiting entries at the end of their time-to-live. The due ones are taken once, before
// anything is joined: a subquery with a limit that is run again for every row is no limit.
func (s *Service) sweepEntries(ctx context.Context, shopID int64, now time.Time) (int, error) {
	tag, err := s.db.Exec(ctx, `
		WITH due AS MATERIALIZED (
			SELECT id FROM entries WHERE shop_id = $1 AND state = 'waiting' AND expires_at <= $2 ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED
		)
		UPDATE entries e SET state = 'expired', ended_at = $2 FROM due WHERE e.shop_id = $1 AND e.id = due.id AND e.state = 'waiting'`, shopID, now, sweepChunk)
	return int(tag.RowsAffected()), err
}

// sweepVariants hints the variants whose rise has settled since they were last looked at, and those with a
// queue or a restock whose stock was not read for 5 minutes: a lost webhook is found so, and what our own
// work hid from a read.
func (s *Service) sweepVariants(ctx context.Context, shopID int64, now time.Time) (int, error) {
	hinted := 0
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		// One step of waited is one look into the index of the queues, however long they are: a shop has many more
		// variants than queues, and more people than either.
		rows, _ := tx.Query(ctx, `
			WITH RECURSIVE waited (id) AS (
				(SELECT variant_id FROM entries WHERE shop_id = $1 AND state = 'waiting' ORDER BY variant_id LIMIT 1)
				UNION ALL
				SELECT (SELECT e.variant_id FROM entries e WHERE e.shop_id = $1 AND e.state = 'waiting' AND e.variant_id > w.id ORDER BY e.variant_id LIMIT 1)
				FROM waited w WHERE w.id IS NOT NULL
			), wanted AS (
				SELECT id FROM waited WHERE id IS NOT NULL
				UNION SELECT variant_id FROM restocks WHERE shop_id = $1 AND state <> 'closed'
			)
			SELECT v.id FROM wanted w JOIN variants v ON v.shop_id = $1 AND v.id = w.id JOIN shops s ON s.id = $1
			WHERE s.state = 'installed' AND v.hint_seq = v.seen_seq AND (v.observed_at IS NULL OR v.observed_at <= $3)
			UNION
			SELECT v.id FROM variants v JOIN settings t ON t.shop_id = v.shop_id JOIN shops s ON s.id = v.shop_id
			WHERE v.shop_id = $1 AND v.rise_since IS NOT NULL AND s.state = 'installed' AND v.hint_seq = v.seen_seq
			  AND v.rise_since + make_interval(secs => t.settle_seconds) <= $2 AND v.observed_at < v.rise_since + make_interval(secs => t.settle_seconds)
			ORDER BY 1 LIMIT $4`, shopID, now, now.Add(-observedFresh), sweepChunk)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		hinted = len(ids)
		return s.hint(ctx, tx, shopID, ids...)
	})
	return hinted, err
}

// sweepShop queues the reconcile that is due.
func (s *Service) sweepShop(ctx context.Context, shopID int64, now time.Time) (int, error) {
	return 0, pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE shops SET reconcile_at = $2 WHERE id = $1 AND state = 'installed' AND reconcile_at <= $3`, shopID, now.Add(reconcileEvery), now)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return s.queue(ctx, tx, []river.InsertManyParams{{Args: ReconcileJob{ShopID: shopID}}})
	})
}
