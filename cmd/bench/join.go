package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"holdfast/app/shopify/shopifysim"
	"holdfast/cmd/demo/stage"
)

// join: taps on "notify me", signed as Shopify's app proxy signs them, with few entries and with a million.
var join = scenario{
	name:  "join",
	about: "taps over HTTP, signed, from 16 browsers, with few entries and with very many",
	open: func(ctx context.Context, b *bench) (designs []design, close func() error, err error) {
		var worlds []*world
		acts, round := b.of(10_000, 20), 0
		for _, size := range []int{min(1000, b.entries), b.entries} {
			w, err := b.open(ctx)
			if err != nil {
				return nil, closing(worlds...), err
			}
			worlds = append(worlds, w)
			if err := w.variants(ctx, lamp, other); err != nil {
				return nil, closing(worlds...), err
			}
			b.say("filling %d entries", size)
			if err := w.fill(ctx, size); err != nil {
				return nil, closing(worlds...), err
			}
			group := fmt.Sprintf("%d entries", size)
			designs = append(designs,
				design{group, "signed, over HTTP", func(ctx context.Context) (sample, error) {
					round++
					return w.taps(ctx, acts, fmt.Sprintf("r%d-", round))
				}},
				design{group, "the bare statement, 8 connections", func(ctx context.Context) (sample, error) {
					round++
					return w.bareJoins(ctx, acts, fmt.Sprintf("b%d-", round))
				}})
		}
		return designs, closing(worlds...), nil
	},
}

// fill puts entries into the queue of another variant.
func (w *world) fill(ctx context.Context, size int) error {
	for n := 0; n < size; n += 100_000 {
		if err := w.queue(ctx, other, fmt.Sprintf("fill%d-", n), "waiting", min(100_000, size-n)); err != nil {
			return err
		}
	}
	return w.exec(ctx, sql(`VACUUM ANALYZE entries, contacts`))
}

func (w *world) taps(ctx context.Context, n int, who string) (sample, error) {
	requests := make([]*http.Request, n)
	for i := range requests {
		query := shopifysim.SignProxy(stage.ClientSecret, url.Values{}, plus, shopifysim.ProxyPrefix, "", time.Now())
		body := fmt.Sprintf(`{"variant_id":"%d","channel":"email","contact":"%s%d@example.com","name":"Ana","country":"GB","locale":"en","consent":"1"}`, lamp, who, i)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.app+"/proxy/waitlist?"+query.Encode(), bytes.NewReader([]byte(body)))
		if err != nil {
			return sample{}, err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Forwarded-For", fmt.Sprintf("203.%d.%d.%d", i/65_536%256, i/256%256, i%256))
		requests[i] = req
	}
	if err := w.exec(ctx, sql(`TRUNCATE tap_limits`)); err != nil {
		return sample{}, err
	}
	got, err := closedLoop(ctx, 16, n, time.Minute, func(_ context.Context, i int) (bool, error) {
		status, body, err := fetch(requests[i])
		if err == nil && status != http.StatusAccepted && i == 0 {
			err = fmt.Errorf("a tap is answered with %d %s", status, body)
		}
		return status == http.StatusAccepted, err
	})
	if err == nil {
		got.Memory, err = w.memory(ctx)
	}
	return got, err
}

// bareJoins writes what a tap writes, with nothing around it.
func (w *world) bareJoins(ctx context.Context, n int, who string) (sample, error) {
	pool, err := w.pool(ctx, 8)
	if err != nil {
		return sample{}, err
	}
	defer pool.Close()
	return closedLoop(ctx, 16, n, time.Minute, func(ctx context.Context, i int) (bool, error) {
		tag, err := pool.Exec(ctx, `
			WITH c AS (
				INSERT INTO contacts AS c (shop_id, channel, key, address, created_at) VALUES ($1, 'email', $3, $3, now())
				ON CONFLICT (shop_id, channel, key) DO UPDATE SET channel = c.channel RETURNING id
			)
			INSERT INTO entries (shop_id, variant_id, contact_id, state, name, locale, country, consent, joined_at, expires_at)
			SELECT $1, $2, c.id, 'waiting', 'Ana', 'en', 'GB', 'email-1', now(), now() + interval '180 days' FROM c`, w.shopID, lamp, fmt.Sprintf("%s%d@example.com", who, i))
		return tag.RowsAffected() == 1, err
	})
}
