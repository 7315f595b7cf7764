package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// drop: a hot restock at its worst minute. Ten people were told of each unit, and all of them press within
// five seconds, each at a time of its own, over HTTP.
var drop = scenario{
	name:  "drop",
	about: "10,000 open offers on 1,000 units, all pressed within 5 s over HTTP, latency from the due time",
	open: func(ctx context.Context, b *bench) ([]design, func() error, error) {
		w, err := b.open(ctx)
		if err != nil {
			return nil, closing(w), err
		}
		units := b.of(1000, 5)
		return []design{{"", "open offers", func(ctx context.Context) (sample, error) { return w.dropped(ctx, units) }}}, closing(w), nil
	},
}

func (w *world) dropped(ctx context.Context, units int) (sample, error) {
	if err := w.c.Settings(ctx, plus, map[string]any{"reserve_before_telling": false, "notices_per_unit": 10, "settle_seconds": 0, "implausible_units": 100_000}); err != nil {
		return sample{}, err
	}
	if err := w.empty(ctx); err != nil {
		return sample{}, err
	}
	if err := w.c.SetStock(ctx, plus, fmt.Sprint(lamp), units); err != nil {
		return sample{}, err
	}
	_, offers, err := w.offered(ctx, lamp, units, 10*units)
	if err != nil {
		return sample{}, err
	}
	tokens := w.tokens(offers)
	got, err := openLoop(ctx, len(tokens), 5*time.Second, func(ctx context.Context, i int) (bool, error) {
		return w.post(ctx, "/r/"+tokens[i], http.StatusSeeOther, http.StatusGone)
	})
	if err != nil {
		return got, err
	}
	held, err := w.count(ctx, `SELECT count(*) FROM holds`)
	if err != nil {
		return got, err
	}
	if held != units {
		return got, fmt.Errorf("%d holds on %d units", held, units)
	}
	if got.Memory, err = w.memory(ctx); err != nil {
		return got, err
	}
	report, err := w.c.Invariants(ctx)
	if err != nil {
		return got, err
	}
	if !report.OK {
		return got, fmt.Errorf("invariants: %v", report.Why)
	}
	got.Note = fmt.Sprintf("%d holds", held)
	return got, nil
}

// post presses a button of a shopper's page: the answer must be one of these.
func (w *world) post(ctx context.Context, path string, want ...int) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.app+path, nil)
	if err != nil {
		return false, err
	}
	status, _, err := fetch(req)
	return slices.Contains(want, status), err
}
