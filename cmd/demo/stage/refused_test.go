package stage

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Shopify refuses every call for the shop, in each of its ways: the merchant's banner says why until it is
// over, nobody is told meanwhile, and the operator sees what became of the calls.
func whatRefusesAShopIsShownAndCounted(t *testing.T, binary string) {
	s := newScene(t, binary, 1)
	s.set(map[string]any{"settle_seconds": 0})
	s.join(1)
	s.settle()
	for status, why := range map[int]string{402: "frozen", 403: "may not do this", 404: "no such shop", 423: "locked"} {
		fault, err := s.c.Fault(t.Context(), map[string]any{"target": "shopify", "mode": "status", "code": status, "shop": FirstShop})
		s.must(err)
		s.must(s.c.SetStock(t.Context(), FirstShop, oak, 0))
		s.must(s.c.SetStock(t.Context(), FirstShop, oak, 1))
		s.until(15*time.Minute, `SELECT count(*) FROM shops WHERE domain = '`+FirstShop+`' AND trouble IS NULL`)
		if n := s.count(`SELECT count(*) FROM shops WHERE trouble LIKE '%' || $1 || '%'`, why); n != 1 {
			t.Errorf("%d: the banner does not say %q", status, why)
		}
		if told := s.told(); len(told) > 0 {
			t.Fatalf("%d: told %v", status, told)
		}
		s.must(s.c.SetStock(t.Context(), FirstShop, oak, 0))
		s.must(s.c.Lift(t.Context(), fault))
		s.until(15*time.Minute, `SELECT count(*) FROM shops WHERE trouble IS NOT NULL`)
	}
	s.settle()
	s.stock(1)
	if told := s.told(); len(told) != 1 {
		t.Errorf("when all is over: told %v", told)
	}

	var apps []Process
	s.must(s.c.Do(t.Context(), http.MethodGet, "/sim/app", nil, &apps))
	res, err := http.Get("http://" + apps[0].Ops + "/metrics")
	s.must(err)
	defer res.Body.Close()
	shown, err := io.ReadAll(res.Body)
	s.must(err)
	for _, begins := range []string{
		`holdfast_shopify_call_points_sum{op="nodes",outcome="ok"} `,
		`holdfast_shopify_call_seconds_count{op="nodes",outcome="refused"} `,
		`holdfast_webhooks_total{outcome="new",topic="inventory_levels/update"} `,
		`holdfast_shopify_shops 2`,
		`holdfast_shopify_shops_away 0`,
		`process_resident_memory_bytes `,
	} {
		if !strings.Contains(string(shown), "\n"+begins) {
			t.Errorf("GET /metrics shows no %s", begins)
		}
	}
}
