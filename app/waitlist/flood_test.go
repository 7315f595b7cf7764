package waitlist_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"holdfast/app/waitlist"
)

// A hundred variants come back, and Shopify tells of it in 2,000 webhooks: out of order, with numbers of
// earlier and later, a third of them twice, one in twenty never, and of five variants none at all. Every
// restock is found, each once: the lost ones by the re-read.
func TestAFloodOfWebhooksFindsEveryRestockOnce(t *testing.T) {
	t.Parallel()
	const variants, lost, hooks = 100, 5, 2000
	w := newWorld(t)
	chance := rand.New(rand.NewPCG(1, 2))
	var people []string
	for i := range int64(variants) {
		id := chair + 1 + i
		reading := *w.store.variants[chair]
		reading.ID, reading.InventoryItemID, reading.ProductID = id, 2000+i, 3000+i
		w.store.variants[id] = &reading
		name := fmt.Sprintf("p%03d", i)
		people = append(people, name+"@example.com")
		tapped := tap(name)
		tapped.VariantID = fmt.Sprint(id)
		_, err := w.list.Join(t.Context(), w.shop, tapped)
		w.must(err)
	}
	w.run()
	for i := range int64(variants) {
		w.store.set(chair+1+i, 1)
	}
	var flood []waitlist.Webhook
	different := 0
	for i := range hooks {
		item := 2000 + i%variants
		hook := waitlist.Webhook{Topic: "inventory_levels/update", WebhookID: fmt.Sprintf("flood-%d", i),
			Body: fmt.Appendf(nil, `{"inventory_item_id":%d,"location_id":1,"available":%d}`, item, chance.IntN(5))}
		if item < 2000+lost || chance.IntN(20) == 0 {
			continue
		}
		different++
		flood = append(flood, hook)
		if chance.IntN(3) == 0 {
			flood = append(flood, hook)
		}
	}
	chance.Shuffle(len(flood), func(i, j int) { flood[i], flood[j] = flood[j], flood[i] })
	var wait sync.WaitGroup
	for part := range slices.Chunk(flood, len(flood)/16+1) {
		wait.Go(func() {
			for _, hook := range part {
				if _, err := w.list.Receive(t.Context(), w.shop, hook); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	w.run()
	if n := w.one(`SELECT count(*) FROM webhooks`); n != int64(different) {
		t.Errorf("%d webhooks are stored, want %d", n, different)
	}
	if told := w.outbox.to(); len(told) != variants-lost {
		t.Errorf("%d were told, want %d", len(told), variants-lost)
	}
	w.pass(6 * time.Minute)
	if told := slices.Sorted(slices.Values(w.outbox.to())); !slices.Equal(told, people) {
		t.Errorf("told: %v", told)
	}
	if n := w.one(`SELECT count(*) FROM restocks WHERE units = 1`); n != variants || n != w.one(`SELECT count(*) FROM restocks`) {
		t.Errorf("%d restocks of one unit", n)
	}
	// A thousand hints are one look: no read was made for every webhook.
	if reads := w.store.calls["ReadVariants"]; reads > 5*variants {
		t.Errorf("stock was read %d times", reads)
	}
}
