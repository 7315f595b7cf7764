package main

import (
	"context"
	"fmt"
	"time"
)

// notice: from the webhook of a large restock to the last notice that the simulated mail server has accepted.
var notice = scenario{
	name:  "notify",
	about: "a restock of 10,000 units: from its webhook to each notice accepted, settle time 0, the shop's own limit as high as it goes",
	open: func(ctx context.Context, b *bench) ([]design, func() error, error) {
		w, err := b.open(ctx)
		if err != nil {
			return nil, closing(w), err
		}
		n := b.of(10_000, 20)
		return []design{{"", "mails", func(ctx context.Context) (sample, error) { return w.told(ctx, n) }}}, closing(w), nil
	},
}

func (w *world) told(ctx context.Context, n int) (sample, error) {
	if err := w.c.Settings(ctx, plus, map[string]any{"reserve_before_telling": false, "notices_per_unit": 1, "settle_seconds": 0, "implausible_units": 1_000_000}); err != nil {
		return sample{}, err
	}
	if err := w.c.SetStock(ctx, plus, fmt.Sprint(lamp), 0); err != nil {
		return sample{}, err
	}
	if err := w.c.Settle(ctx); err != nil {
		return sample{}, err
	}
	if err := w.empty(ctx); err != nil {
		return sample{}, err
	}
	if err := w.variants(ctx, lamp); err != nil {
		return sample{}, err
	}
	if err := w.queue(ctx, lamp, "told", "waiting", n); err != nil {
		return sample{}, err
	}
	err := w.exec(ctx,
		sql(`INSERT INTO senders (shop_id, channel, per_second) VALUES ($1, 'email', 1000) ON CONFLICT (shop_id, channel) DO UPDATE SET per_second = 1000`, w.shopID),
		sql(`ANALYZE`))
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	if err := w.c.SetStock(ctx, plus, fmt.Sprint(lamp), n); err != nil {
		return sample{}, err
	}
	all, err := until(ctx, patience, func() (bool, error) {
		accepted, err := w.count(ctx, `SELECT count(*) FROM messages WHERE state = 'accepted'`)
		return accepted == n, err
	})
	if err != nil {
		return sample{}, err
	}
	if !all {
		return sample{}, fmt.Errorf("not all of %d were told within %s", n, patience)
	}
	var got sample
	rows, err := w.db.Query(ctx, `SELECT accepted_at FROM messages`)
	if err != nil {
		return sample{}, err
	}
	defer rows.Close()
	first := time.Hour
	for rows.Next() {
		var at time.Time
		if err := rows.Scan(&at); err != nil {
			return sample{}, err
		}
		took := at.Sub(began)
		got.Latencies = append(got.Latencies, took)
		got.Span, first = max(got.Span, took), min(first, took)
	}
	got.Note = fmt.Sprintf("the first after %s", first.Round(time.Millisecond))
	if got.Memory, err = w.memory(ctx); err != nil {
		return got, err
	}
	return got, rows.Err()
}
