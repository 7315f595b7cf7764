package waitlist_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

// A text of the world's outbox is paid as two.

func (w *world) texted() (n int) {
	for _, to := range w.outbox.to() {
		if strings.HasPrefix(to, "+") {
			n++
		}
	}
	return n
}

// Past the budget, texting waits for the merchant, who is told; mails go on, places are kept, and the merchant's
// yes lets it go on as far again.
func TestTextsPastTheBudgetWaitForTheMerchant(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(*shop.Settings){
		"of a restock": func(s *shop.Settings) { s.TextPrice, s.TextBudgetRestock = 250, 1 },
		"of a month":   func(s *shop.Settings) { s.TextPrice, s.TextBudgetMonth = 250, 1 },
	} {
		for _, reserves := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reserves=%v", name, reserves), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, func(s *shop.Settings) { s.ReserveBeforeTelling = reserves }, limit)
				for i := range 5 { // 0.50 each
					w.joinByText(fmt.Sprintf("+44740012345%d", i), "")
				}
				w.join("ann")
				w.stock(6)
				w.pass(30 * time.Second)
				if w.texted() != 2 || len(w.outbox.to()) != 3 {
					t.Fatalf("told %v, want two by text and ann", w.outbox.to())
				}
				if n := w.one(`SELECT count(*) FROM messages WHERE state = 'cancelled' AND reason LIKE 'the budget of 1 for the texts of%'`); n == 0 {
					t.Error("no message says why it was not sent")
				}
				if n := w.one(`SELECT count(*) FROM notes WHERE kind = 'sender' AND detail LIKE '%budget%' AND cleared_at IS NULL`); n != 1 {
					t.Errorf("%d notes to the merchant", n)
				}
				if n := w.one(`SELECT count(*) FROM entries WHERE state = 'waiting'`); n != 3 {
					t.Errorf("%d wait in their places", n)
				}
				w.must(w.list.Resume(t.Context(), w.shop, waitlist.SMS))
				w.run()
				w.pass(30 * time.Second)
				if w.texted() != 4 {
					t.Errorf("%d texts after the merchant's yes, want two more", w.texted())
				}
			})
		}
	}
}

func TestWithoutABudgetAllAreTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.TextPrice = 10_000 })
	for i := range 5 {
		w.joinByText(fmt.Sprintf("+44740012345%d", i), "")
	}
	w.stock(5)
	if w.texted() != 5 {
		t.Errorf("%d texts", w.texted())
	}
}

func TestAMonthsBudgetIsNewInTheNextMonth(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.TextPrice, s.TextBudgetMonth = 500, 1 })
	w.joinByText(british, "")
	w.stock(1)
	w.move(31 * 24 * time.Hour)
	w.pass(0)
	w.stock(0)
	w.joinByText("+447400123457", "")
	w.stock(1)
	if w.texted() < 2 {
		t.Errorf("%d texts", w.texted())
	}
}

func TestTheCostOfTextsIsForecast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.TextPrice, s.TextBudgetRestock = 400, 2 })
	for i := range 3 {
		w.joinByText(fmt.Sprintf("+44740012345%d", i), "")
	}
	w.join("ann")
	f, err := w.list.Forecast(t.Context(), w.shop, chair)
	if want := (waitlist.Forecast{Texts: 3, Segments: 6, Mills: 2400, Currency: "EUR", Over: true}); err != nil || f != want {
		t.Errorf("got %+v, %v", f, err)
	}
}
