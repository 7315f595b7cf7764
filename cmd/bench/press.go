package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"holdfast/cmd/demo/stage"
)

const (
	pressers  = 500
	pressSpan = time.Second
	// plus is a shop on Shopify's largest plan, and lamp a sold-out variant of it: its points pay for 500
	// drafts in a few seconds.
	plus, lamp = "lamps.myshopify.com", "31011"
)

// press: everybody who was told presses within one second, each at a time of its own, whatever became of
// those before (an open loop). Each latency is counted from the moment at which its press was due, over HTTP,
// to the answer.
var press = scenario{
	name:  "press",
	about: fmt.Sprintf("%d people who were told press within %s", pressers, pressSpan),
	designs: []design{
		{"reserved before telling", func(ctx context.Context, b *bench) (sample, error) { return pressed(ctx, b, true) }},
		{"held at the press", func(ctx context.Context, b *bench) (sample, error) { return pressed(ctx, b, false) }},
	},
}

func pressed(ctx context.Context, b *bench, reserve bool) (_ sample, err error) {
	s, err := stage.Start(ctx, stage.Options{Binary: b.binary, AppLog: b.log})
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	c := s.Client()
	if err := c.Settings(ctx, plus, map[string]any{"reserve_before_telling": reserve, "settle_seconds": 0, "implausible_units": 10 * pressers}); err != nil {
		return sample{}, err
	}
	for i := range pressers {
		got, err := c.Join(ctx, plus, fmt.Sprintf("203.0.%d.%d", 113+i/250, i%250), stage.Tap{VariantID: lamp, Channel: "email", Contact: fmt.Sprintf("p%d@example.com", i), Consent: "1"})
		if err != nil {
			return sample{}, err
		}
		if got.Status != http.StatusAccepted {
			return sample{}, fmt.Errorf("join: %d %s", got.Status, got.Body)
		}
	}
	if err := c.SetStock(ctx, plus, lamp, pressers); err != nil {
		return sample{}, err
	}
	var links []string
	for late := time.Now().Add(5 * time.Minute); len(links) < pressers; {
		all, err := c.Messages(ctx, "")
		if err != nil {
			return sample{}, err
		}
		links = links[:0]
		for _, m := range all {
			links = append(links, m.Link("/r/"))
		}
		if time.Now().After(late) {
			return sample{}, fmt.Errorf("%d of %d were told within 5 minutes", len(links), pressers)
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
	statuses, latencies, errs := make([]int, pressers), make([]time.Duration, pressers), make([]error, pressers)
	began := time.Now()
	var pressing sync.WaitGroup
	for i, link := range links {
		pressing.Go(func() {
			due := began.Add(time.Duration(i) * pressSpan / pressers)
			if errs[i] = wait(ctx, time.Until(due)); errs[i] != nil {
				return
			}
			statuses[i], _, _, errs[i] = c.Page(ctx, "POST", link, url.Values{})
			latencies[i] = time.Since(due)
		})
	}
	pressing.Wait()
	out := sample{Latencies: latencies, Span: time.Since(began)}
	if err := errors.Join(errs...); err != nil {
		return sample{}, err
	}
	after, err := calls(ctx, c)
	if err != nil {
		return sample{}, err
	}
	out.Calls = after - before
	for _, status := range statuses {
		if status != http.StatusSeeOther {
			out.Failed++
		}
	}
	return out, nil
}

// calls counts the requests that the simulated Shopify remembers of the shop.
func calls(ctx context.Context, c *stage.Client) (int, error) {
	var all []struct{ ID string }
	err := c.Do(ctx, "GET", "/sim/requests?shop="+plus, nil, &all)
	return len(all), err
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
