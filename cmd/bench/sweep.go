package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"holdfast/app/waitlist"
)

// sweep: very many holds that nobody paid are returned, beside presses on another restock.
var sweep = scenario{
	name:  "sweep",
	about: "100,000 expired holds are returned, Shopify answering at once, beside 50 presses a second on another restock",
	open: func(ctx context.Context, b *bench) ([]design, func() error, error) {
		w, err := b.open(ctx)
		if err != nil {
			return nil, closing(w), err
		}
		if err := w.alone(ctx); err != nil {
			return nil, closing(w), err
		}
		w.shopify = gone{}
		n := b.of(100_000, 20)
		var meanwhile sample
		return []design{
			{"", "holds returned", func(ctx context.Context) (returned sample, err error) {
				returned, meanwhile, err = w.swept(ctx, n)
				return returned, err
			}},
			{"presses", "presses meanwhile", func(context.Context) (sample, error) { return meanwhile, nil }},
		}, closing(w), nil
	},
}

// gone is a Shopify whose drafts are all deleted: remote calls are not what is measured.
type gone struct{ waitlist.Shopify }

func (gone) ReadDraft(context.Context, int64, int64) (waitlist.Draft, bool, error) {
	return waitlist.Draft{}, false, nil
}

// swept measures the holds and the presses beside them.
func (w *world) swept(ctx context.Context, n int) (returned, pressed sample, err error) {
	if err := w.empty(ctx); err != nil {
		return sample{}, sample{}, err
	}
	restock, offers, err := w.offered(ctx, lamp, n, n)
	if err != nil {
		return sample{}, sample{}, err
	}
	err = w.exec(ctx,
		sql(`UPDATE offers SET state = 'claimed', ended_at = now() WHERE shop_id = $1 AND restock_id = $2`, w.shopID, restock),
		sql(`UPDATE entries SET state = 'holding' WHERE shop_id = $1 AND variant_id = $2`, w.shopID, lamp),
		sql(`INSERT INTO holds (shop_id, restock_id, offer_id, entry_id, variant_id, state, hold_minutes, claimed_at, draft_id, invoice_url, activated_at, expires_at, pressed)
			SELECT $1, $2, o.id, o.entry_id, $3, 'active', 15, now() - interval '1 hour', 900000 + o.id, 'https://example.com', now() - interval '1 hour', now() - interval '30 minutes', true
			FROM offers o WHERE o.shop_id = $1 AND o.restock_id = $2`, w.shopID, restock, lamp),
		sql(`UPDATE restocks SET available = 0, live = units WHERE shop_id = $1 AND id = $2`, w.shopID, restock))
	if err != nil {
		return sample{}, sample{}, err
	}
	hot, hotOffers, err := w.offered(ctx, other, 100_000, 5000)
	if err != nil {
		return sample{}, sample{}, err
	}
	if err := w.exec(ctx, sql(`VACUUM ANALYZE`)); err != nil {
		return sample{}, sample{}, err
	}
	list, done, err := w.domain(ctx, 8)
	if err != nil {
		return sample{}, sample{}, err
	}
	defer done()

	pressing, stop := context.WithCancel(ctx)
	defer stop()
	var presses sync.WaitGroup
	var failed error
	presses.Go(func() {
		pressed, failed = openLoop(pressing, len(hotOffers), time.Duration(len(hotOffers))*20*time.Millisecond, func(ctx context.Context, i int) (bool, error) {
			return true, list.Press(context.WithoutCancel(ctx), w.shopID, hot, hotOffers[i])
		})
	})

	began := time.Now()
	if err := list.Sweep(ctx); err != nil {
		return sample{}, sample{}, err
	}
	returned.Note = fmt.Sprintf("the sweep itself %s", time.Since(began).Round(time.Millisecond))
	// What the workers do then: as many at once as one process has.
	ids, err := w.db.Query(ctx, `SELECT id FROM holds WHERE shop_id = $1 AND state = 'releasing' ORDER BY id`, w.shopID)
	if err != nil {
		return sample{}, sample{}, err
	}
	var releasing []int64
	for ids.Next() {
		var id int64
		if err := ids.Scan(&id); err != nil {
			return sample{}, sample{}, err
		}
		releasing = append(releasing, id)
	}
	ids.Close()
	if len(releasing) != len(offers) {
		return sample{}, sample{}, fmt.Errorf("%d of %d holds are being released", len(releasing), len(offers))
	}
	released, err := closedLoop(ctx, 8, len(releasing), patience, func(ctx context.Context, i int) (bool, error) {
		return true, list.Release(ctx, w.shopID, releasing[i])
	})
	if err != nil {
		return sample{}, sample{}, err
	}
	returned.Latencies, returned.Span = released.Latencies, time.Since(began)
	stop()
	if presses.Wait(); failed != nil && !errors.Is(failed, context.Canceled) {
		return sample{}, sample{}, failed
	}
	back, err := w.count(ctx, `SELECT available FROM restocks WHERE shop_id = $1 AND id = $2`, w.shopID, restock)
	if err == nil && back != len(offers) {
		err = fmt.Errorf("%d of %d units are back", back, len(offers))
	}
	answered := 0
	for _, l := range pressed.Latencies {
		if l > 0 {
			pressed.Latencies[answered] = l
			answered++
		}
	}
	pressed.Latencies = pressed.Latencies[:answered]
	return returned, pressed, err
}
