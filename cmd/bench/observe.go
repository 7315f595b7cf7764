package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"holdfast/app/shopify/shopifysim"
	"holdfast/cmd/demo/stage"
)

// observe: how long Shopify waits for the answer to a stock webhook, when many come at once.
var observe = scenario{
	name:  "observe",
	about: "5,000 stock webhooks within 10 s, latency from the due time to the answer",
	open: func(ctx context.Context, b *bench) ([]design, func() error, error) {
		w, err := b.open(ctx)
		if err != nil {
			return nil, closing(w), err
		}
		if err := w.variants(ctx, lamp, other); err != nil {
			return nil, closing(w), err
		}
		n, round := b.of(5000, 20), 0
		return []design{{"", "stock webhooks", func(ctx context.Context) (sample, error) {
			round++
			return w.hooks(ctx, n, round)
		}}}, closing(w), nil
	},
}

func (w *world) hooks(ctx context.Context, n, round int) (sample, error) {
	requests := make([]*http.Request, n)
	for i := range requests {
		body := fmt.Appendf(nil, `{"inventory_item_id":%d,"location_id":2101,"available":%d,"updated_at":"2026-11-30T10:00:00Z"}`, lamp+10_000, i%3)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.app+"/webhooks/shopify", bytes.NewReader(body))
		if err != nil {
			return sample{}, err
		}
		for name, value := range map[string]string{
			"Content-Type": "application/json", "X-Shopify-Topic": "inventory_levels/update", "X-Shopify-Shop-Domain": plus,
			"X-Shopify-Hmac-Sha256": shopifysim.SignWebhook(stage.ClientSecret, body), "X-Shopify-Webhook-Id": fmt.Sprintf("bench-%d-%d", round, i),
			"X-Shopify-Triggered-At": time.Now().UTC().Format(time.RFC3339), "X-Shopify-API-Version": shopifysim.APIVersion,
		} {
			req.Header.Set(name, value)
		}
		requests[i] = req
	}
	got, err := openLoop(ctx, n, 10*time.Second, func(_ context.Context, i int) (bool, error) {
		status, body, err := fetch(requests[i])
		if err == nil && status != http.StatusOK && i == 0 {
			err = fmt.Errorf("a webhook is answered with %d %s", status, body)
		}
		return status == http.StatusOK, err
	})
	if err != nil {
		return got, err
	}
	if got.Memory, err = w.memory(ctx); err != nil {
		return got, err
	}
	return got, w.c.Settle(ctx)
}
