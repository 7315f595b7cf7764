package stage

import (
	"net/http"
	"slices"
	"testing"
	"time"
)

func (s *scene) set(settings map[string]any) {
	s.t.Helper()
	s.must(s.c.Settings(s.t.Context(), FirstShop, settings))
}

// wantBuy is a stranger who tries to buy one.
func (s *scene) wantBuy(status int) {
	s.t.Helper()
	err := s.c.Buy(s.t.Context(), FirstShop, oak, 1)
	got := http.StatusOK
	if f, ok := err.(*Failed); ok {
		got = f.Status
	} else {
		s.must(err)
	}
	if got != status {
		s.t.Errorf("a stranger buys: %d, want %d", got, status)
	}
}

// Whoever is told has the unit already: no stranger gets it, the press goes straight to checkout, and what
// somebody lets go by goes to the next in line.
func reserveBeforeTelling(t *testing.T, binary string) {
	s := newScene(t, binary, 1)
	s.set(map[string]any{"reserve_before_telling": true})
	for n := range 7 {
		s.join(n + 1)
	}
	s.stock(4)
	if told := s.told(); !slices.Equal(told, []string{person(1), person(2), person(3), person(4)}) {
		t.Fatalf("told: %v", told)
	}
	s.wantStates("offered", "offered", "offered", "offered", "waiting", "waiting", "waiting")
	if n := s.openDrafts(); n != 4 {
		t.Fatalf("%d units are reserved for the 4 who were told", n)
	}
	s.wantBuy(http.StatusConflict)

	calls := s.asked(FirstShop, "draftOrderCreate") + s.asked(FirstShop, "draftOrder") + s.asked(FirstShop, "nodes")
	if status := s.press(1); status != http.StatusSeeOther {
		t.Fatalf("the press: %d", status)
	}
	first := s.wantReserve(1, "held") // at once
	if first.CheckoutURL == "" {
		t.Fatalf("%+v", first)
	}
	if now := s.asked(FirstShop, "draftOrderCreate") + s.asked(FirstShop, "draftOrder") + s.asked(FirstShop, "nodes"); now != calls {
		t.Errorf("a press asked Shopify %d times", now-calls)
	}
	s.must(s.c.Pay(t.Context(), first.CheckoutURL))
	s.settle()

	s.advance(61 * time.Minute) // three let their windows go by
	s.wantStates("sold", "waiting", "waiting", "waiting", "offered", "offered", "offered")
	if told := s.told(); !slices.Equal(told[4:], []string{person(5), person(6), person(7)}) {
		t.Fatalf("told: %v", told)
	}
	s.wantBuy(http.StatusConflict)
	if status, _, _, err := s.c.Page(t.Context(), "POST", s.link(5, "/r/")+"/pass", nil); err != nil || status != http.StatusSeeOther {
		t.Fatalf("pass: %d, %v", status, err)
	}
	s.settle()
	s.wantBuy(http.StatusOK) // whoever may still be told has a unit; this one is anybody's
	s.wantBuy(http.StatusConflict)
	s.advance(3 * time.Hour)
	if n := s.openDrafts(); n != 0 {
		t.Errorf("%d drafts are left over", n)
	}
}

// Five come back, and strangers buy two while every webhook is lost.
func aRestockBoughtDownToThreeTellsThree(t *testing.T, binary string) {
	s := newScene(t, binary, 1)
	s.set(map[string]any{"reserve_before_telling": true})
	for n := range 5 {
		s.join(n + 1)
	}
	s.settle()
	fault, err := s.c.Fault(t.Context(), map[string]any{"target": "webhooks", "mode": "lose"})
	s.must(err)
	s.must(s.c.SetStock(t.Context(), FirstShop, oak, 5))
	s.must(s.c.Buy(t.Context(), FirstShop, oak, 2))
	s.advance(6 * time.Minute) // found by the re-read
	if told := s.told(); !slices.Equal(told, []string{person(1), person(2), person(3)}) {
		t.Fatalf("told: %v", told)
	}
	s.must(s.c.Lift(t.Context(), fault))
	s.advance(10 * time.Minute)
	if told := s.told(); len(told) != 3 {
		t.Fatalf("told: %v", told)
	}
}

// idle waits until the app does nothing but wait: for the clock, or for Shopify's points.
func (s *scene) idle() {
	s.t.Helper()
	for busy := 1; busy > 0; {
		hooks, callbacks := s.s.sims.inFlight()
		s.must(s.s.db.QueryRow(s.t.Context(), `SELECT count(*) FROM river_job WHERE kind = ANY ($1) AND (state = 'running' OR (state IN ('available', 'retryable', 'scheduled') AND scheduled_at <= now()))`, jobKinds).Scan(&busy))
		busy += hooks + callbacks
		if busy > 0 {
			<-time.After(5 * time.Millisecond)
		}
	}
}

// A thousand units for a thousand people (make test has fewer, sizes_test.go), on the smallest of Shopify's plans, which pays for six holds a
// second: the last is told within 3 minutes, and everybody in the order of the queue.
func aThousandAreToldInOrder(t *testing.T, binary string) {
	const people = thousand
	s := newScene(t, binary, 1)
	s.set(map[string]any{"reserve_before_telling": true, "settle_seconds": 0, "implausible_units": 10 * people})
	for n := range people {
		s.join(n + 1)
	}
	s.settle()
	s.analyze()
	s.must(s.c.SetStock(t.Context(), FirstShop, oak, people))
	began := s.s.clock.Now()
	var told []string
	for len(told) < people {
		if gone := s.s.clock.Now().Sub(began); gone > thousandWithin {
			t.Fatalf("%d were told within %s, with %d drafts created, %d read back, %d stock reads, %d by tag", len(told), gone,
				s.asked(FirstShop, "draftOrderCreate"), s.asked(FirstShop, "draftOrder"), s.asked(FirstShop, "nodes"), s.asked(FirstShop, "draftOrders"))
		}
		s.idle()
		s.analyze()
		s.must(s.s.step(t.Context(), time.Second))
		told = s.told()
	}
	t.Logf("all were told within %s", s.s.clock.Now().Sub(began).Round(time.Second))
	for n, to := range told {
		if to != person(n+1) {
			t.Fatalf("message %d went to %s", n+1, to)
		}
	}
	s.settle()
	if n := s.openDrafts(); n != people {
		t.Errorf("%d drafts", n)
	}
}
