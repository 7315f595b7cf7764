package stage

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
)

// One contact taps from fifty addresses at once; the webhooks of one restock come twice and shuffled; and a
// read of Shopify is answered only when the hold that was made meanwhile is active.
func oneContactOneRestockAndALateRead(t *testing.T, binary string) {
	s := newScene(t, binary, 1)
	ctx := t.Context()

	var wait sync.WaitGroup
	statuses := make([]int, 50)
	for i := range statuses {
		wait.Go(func() {
			got, err := s.c.Join(ctx, FirstShop, fmt.Sprintf("198.51.100.%d", i+1), Tap{VariantID: oak, Channel: "email", Contact: person(1), Consent: "1"})
			if err != nil {
				t.Error(err)
			}
			statuses[i] = got.Status
		})
	}
	wait.Wait()
	count := map[int]int{}
	for _, status := range statuses {
		count[status]++
	}
	if count[http.StatusAccepted] != 10 || count[http.StatusTooManyRequests] != 40 {
		t.Fatalf("50 taps of one contact were answered %v", count)
	}
	entries, err := s.c.Entries(ctx, FirstShop, oak)
	s.must(err)
	if len(entries) != 1 {
		t.Fatalf("one contact has %d places", len(entries))
	}
	s.join(2)
	s.settle()

	for _, mode := range []string{"duplicate", "reorder"} {
		_, err := s.c.Fault(ctx, map[string]any{"target": "webhooks", "mode": mode, "count": 10})
		s.must(err)
	}
	s.must(s.c.SetStock(ctx, FirstShop, oak, 1))
	for range 10 { // and ten more webhooks of the same restock, with numbers that are nobody's
		s.must(s.c.Do(ctx, "POST", "/sim/webhook", map[string]any{"shop": FirstShop, "topic": "inventory_levels/update", "body": map[string]any{"inventory_item_id": 40011, "location_id": 2001, "available": 9}}, nil))
	}
	s.settle()
	one := func(when string) {
		t.Helper()
		report, err := s.c.Invariants(ctx)
		s.must(err)
		if told := s.told(); !slices.Equal(told, []string{person(1)}) || len(report.Restocks) != 1 {
			t.Fatalf("%s: told %v in %d restocks", when, told, len(report.Restocks))
		}
	}
	one("after ten webhooks")

	fault, err := s.c.Fault(ctx, map[string]any{"target": "shopify", "op": "nodes", "mode": "delay", "when": "after", "until": "lifted", "count": 1})
	s.must(err)
	s.must(s.c.Do(ctx, "POST", "/sim/webhook", map[string]any{"shop": FirstShop, "topic": "inventory_levels/update", "body": map[string]any{"inventory_item_id": 40011, "location_id": 2001, "available": 1}}, nil))
	s.must(s.c.Settle(ctx)) // the read has its answer, and keeps it
	s.press(1)
	s.must(s.c.Settle(ctx))
	s.wantReserve(1, "held")
	s.must(s.c.Lift(ctx, fault))
	s.settle()
	one("after the late read")
}
