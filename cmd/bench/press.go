package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"holdfast/cmd/demo/stage"
)

const (
	pressers  = 500
	pressSpan = time.Second
)

// press: everybody who was told presses within one second, each at a time of its own, whatever became of
// those before (an open loop). Each latency is counted from the moment at which its press was due, over HTTP,
// to the answer.
var press = scenario{
	name:  "press",
	about: fmt.Sprintf("%d people who were told press within %s", pressers, pressSpan),
	open: func(ctx context.Context, b *bench) ([]design, func() error, error) {
		n := b.of(pressers, 20)
		return []design{
			{"", "reserved before telling", func(ctx context.Context) (sample, error) { return b.pressed(ctx, true, n) }},
			{"", "held at the press", func(ctx context.Context) (sample, error) { return b.pressed(ctx, false, n) }},
		}, closing(), nil
	},
}

func (b *bench) pressed(ctx context.Context, reserve bool, n int) (_ sample, err error) {
	w, err := b.open(ctx)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	c := w.c
	if err := c.Settings(ctx, plus, map[string]any{"reserve_before_telling": reserve, "settle_seconds": 0, "implausible_units": 10 * pressers}); err != nil {
		return sample{}, err
	}
	if err := w.variants(ctx, lamp); err != nil {
		return sample{}, err
	}
	if err := w.queue(ctx, lamp, "p", "waiting", n); err != nil {
		return sample{}, err
	}
	if err := w.exec(ctx, sql(`ANALYZE`)); err != nil {
		return sample{}, err
	}
	if err := c.SetStock(ctx, plus, fmt.Sprint(lamp), n); err != nil {
		return sample{}, err
	}
	var links []string
	for late := time.Now().Add(5 * time.Minute); len(links) < n; {
		all, err := c.Messages(ctx, "")
		if err != nil {
			return sample{}, err
		}
		links = links[:0]
		for _, m := range all {
			links = append(links, m.Link("/r/"))
		}
		if time.Now().After(late) {
			return sample{}, fmt.Errorf("%d of %d were told within 5 minutes", len(links), n)
		}
		if err := wait(ctx, 200*time.Millisecond); err != nil {
			return sample{}, err
		}
	}
	if err := c.Settle(ctx); err != nil {
		return sample{}, err
	}

	before, err := calls(ctx, c)
	if err != nil {
		return sample{}, err
	}
	out, err := openLoop(ctx, n, pressSpan, func(ctx context.Context, i int) (bool, error) {
		at, err := url.Parse(links[i])
		if err != nil {
			return false, err
		}
		return w.post(ctx, at.Path, http.StatusSeeOther)
	})
	if err != nil {
		return sample{}, err
	}
	after, err := calls(ctx, c)
	if err != nil {
		return sample{}, err
	}
	out.Calls = after - before
	if out.Memory, err = w.memory(ctx); err != nil {
		return sample{}, err
	}
	return out, nil
}

// calls counts the requests that the simulated Shopify remembers of the shop.
func calls(ctx context.Context, c *stage.Client) (int, error) {
	var all []struct{ ID string }
	err := c.Do(ctx, "GET", "/sim/requests?shop="+plus, nil, &all)
	return len(all), err
}
