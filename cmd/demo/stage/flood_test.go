package stage

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"holdfast/app/shopify/shopifysim"
)

// Somebody waits for each of a hundred variants, when an inventory system writes 20 stocks of each (make test has
// fewer, sizes_test.go), within ten
// seconds: 2,000 webhooks, a third of them twice, in any order, one in twenty lost, and of five variants all.
// Every restock is found, each once and with the units of the last number: the lost ones by the re-read.
func aFloodOfWebhooksFindsEveryRestockOnce(t *testing.T, binary string) {
	const products, variants, unheard = 10, 10, 5
	s := newScene(t, binary, 2)
	s.set(map[string]any{"settle_seconds": 60}) // no number but the last one counts
	chance := rand.New(rand.NewPCG(3, 4))
	var ids []shopifysim.ID
	for p := range products {
		spec := shopifysim.ProductSpec{Handle: fmt.Sprint("flooded-", p), Title: fmt.Sprint("Flooded ", p)}
		for v := range variants {
			id := shopifysim.ID(50_000 + p*variants + v)
			ids = append(ids, id)
			spec.Variants = append(spec.Variants, shopifysim.VariantSpec{ID: id, SKU: fmt.Sprint("FLOOD-", id), Title: fmt.Sprint(v), Price: "10.00"})
		}
		s.must(s.s.sims.shopify.AddProduct(FirstShop, spec))
	}
	s.settle()
	var people []string
	for n, id := range ids {
		for {
			got, err := s.c.Join(t.Context(), FirstShop, fmt.Sprintf("203.0.113.%d", n), Tap{VariantID: id.String(), Channel: "email", Contact: person(n), Consent: "1"})
			s.must(err)
			if got.Status == http.StatusAccepted {
				break
			}
			if got.Status != http.StatusServiceUnavailable { // a hundred unknown variants at once are more than the shop's points pay for
				t.Fatalf("join for %s: %d %s", id, got.Status, got.Body)
			}
			s.must(s.s.step(t.Context(), 20*time.Second))
		}
		people = append(people, person(n))
	}
	s.settle()
	s.analyze()

	set := func(id shopifysim.ID, n int) {
		s.must(s.s.sims.shopify.SetStock(FirstShop, shopifysim.Change{VariantID: id, Available: n}))
	}
	lost, err := s.c.Fault(t.Context(), map[string]any{"target": "webhooks", "mode": "lose"})
	s.must(err)
	for _, id := range ids[:unheard] {
		set(id, 1)
	}
	s.must(s.c.Lift(t.Context(), lost))
	for mode, share := range map[string]float64{"duplicate": 0.33, "reorder": 0.33, "lose": 0.05} {
		_, err := s.c.Fault(t.Context(), map[string]any{"target": "webhooks", "mode": mode, "probability": share})
		s.must(err)
	}
	began := time.Now()
	heard := ids[unheard:]
	for n := range len(heard) * writes {
		units := 1 // the last number
		if n < len(heard)*(writes-1) {
			units = chance.IntN(5)
		}
		set(heard[n%len(heard)], units)
	}
	t.Logf("%d stocks were written within %s", len(heard)*writes, time.Since(began).Round(time.Millisecond))
	s.must(s.c.Lift(t.Context(), ""))
	s.settle()
	s.advance(61 * time.Second) // new stock is watched for a minute
	if told := s.told(); len(told) < len(heard)*9/10 || len(told) > len(heard) {
		t.Errorf("%d were told by webhooks, of %d", len(told), len(heard))
	}
	for range 3 {
		s.advance(5 * time.Minute)
	}
	told := slices.Sorted(slices.Values(s.told()))
	slices.Sort(people)
	if !slices.Equal(told, people) {
		t.Errorf("%d were told, want %d, each once: %v", len(told), len(people), told)
	}
	if n := s.count(`SELECT count(*) FROM restocks WHERE units = 1`); n != len(ids) || n != s.count(`SELECT count(*) FROM restocks`) {
		t.Errorf("%d restocks of one unit, of %d, want %d", n, s.count(`SELECT count(*) FROM restocks`), len(ids))
	}
	// A webhook that came twice is stored once, and a thousand hints are few reads.
	delivered := map[string]int{}
	for _, d := range s.s.sims.shopify.Webhooks(FirstShop) {
		if d.Topic == "inventory_levels/update" && d.State == "delivered" {
			delivered[d.WebhookID]++
		}
	}
	twice := 0
	for _, n := range delivered {
		twice += min(n, 2) - 1
	}
	if n := s.count(`SELECT count(*) FROM webhooks WHERE topic = 'inventory_levels/update'`); n != len(delivered) || twice < len(delivered)/5 {
		t.Errorf("%d webhooks are stored, %d were delivered, %d of them twice", n, len(delivered), twice)
	}
	if reads := s.asked(FirstShop, "nodes"); reads > 5*len(ids) {
		t.Errorf("stock was read %d times for %d variants and %d webhooks", reads, len(ids), len(delivered))
	}
}
