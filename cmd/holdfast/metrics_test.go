package main

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/app/shopify"
	"holdfast/app/waitlist"
	"holdfast/web"
)

func TestWhatIsCountedIsShown(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.called(shopify.Call{Op: "nodes", ShopID: 7, Points: 30, Took: 200 * time.Millisecond})
	m.called(shopify.Call{Op: "nodes", ShopID: 8, Points: 4, Took: 20 * time.Millisecond})
	m.called(shopify.Call{Op: "draftOrderCreate", Err: &waitlist.Away{}})
	m.called(shopify.Call{Op: "draftOrderCreate", Err: errors.New("502"), Took: time.Second})
	m.webhook("orders/create", web.WebhookNew)
	m.webhook("orders/create", web.WebhookRepeated)
	m.webhook("", web.WebhookUnsigned)
	m.watch(func() shopify.Budgets { return shopify.Budgets{Shops: 3, Low: 2, Away: 1} })
	w := httptest.NewRecorder()
	m.handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	shown := w.Body.String()
	for _, line := range []string{
		`holdfast_shopify_call_points_sum{op="nodes",outcome="ok"} 34`,
		`holdfast_shopify_call_points_bucket{op="nodes",outcome="ok",le="5"} 1`,
		`holdfast_shopify_call_points_count{op="draftOrderCreate",outcome="away"} 1`,
		`holdfast_shopify_call_seconds_sum{op="draftOrderCreate",outcome="failed"} 1`,
		`holdfast_shopify_call_seconds_bucket{op="nodes",outcome="ok",le="0.1"} 1`,
		`holdfast_webhooks_total{outcome="new",topic="orders/create"} 1`,
		`holdfast_webhooks_total{outcome="repeated",topic="orders/create"} 1`,
		`holdfast_webhooks_total{outcome="bad_signature",topic=""} 1`,
		`holdfast_shopify_shops 3`,
		`holdfast_shopify_shops_low_points 2`,
		`holdfast_shopify_shops_away 1`,
	} {
		if !strings.Contains(shown, line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
	for _, name := range []string{"go_goroutines ", "process_start_time_seconds "} {
		if !strings.Contains(shown, "\n"+name) {
			t.Errorf("missing: %s", name)
		}
	}
	if w.Code != 200 || strings.Contains(shown, `shop="`) {
		t.Errorf("%d %s", w.Code, shown)
	}
}
