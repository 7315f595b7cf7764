package waitlist_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

// Reserve before telling. Each rule of its half of the protocol is a story here, and each story fails when
// the rule is taken out (proof/).

func reserving(s *shop.Settings) { s.ReserveBeforeTelling = true }

// draft is somebody's newest draft, as Shopify has it.
func (w *world) draft(name string) *draft {
	w.t.Helper()
	id := w.draftOf(name)
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	return w.store.drafts[id]
}

func (w *world) wantStock(n int) {
	w.t.Helper()
	if got := w.store.stock(chair); int(got) != n {
		w.t.Fatalf("a stranger sees %d units, want %d", got, n)
	}
}

func TestWhoeverIsToldHasTheUnitAlready(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reserving)
	w.join("ana", "ben", "cem")
	told := 0
	w.outbox.answer = func(m waitlist.Outgoing) error {
		told++
		if !slices.ContainsFunc(w.store.open(), func(d *draft) bool { return d.reserved && d.visible.Email == m.To }) {
			t.Errorf("%s is told and nothing is reserved", m.To)
		}
		return nil
	}
	w.stock(2)
	w.wantTold("ana", "ben")
	w.wantCounter("2 0 2 0 0")
	w.wantStock(0) // nothing that a stranger could buy

	calls := w.store.calls["CreateDraft"] + w.store.calls["ReadBack"] + w.store.calls["ReadVariants"]
	o := w.press("ana")
	if o.State != "held" || o.CheckoutURL == "" || !o.Until.Equal(w.now().Add(15*time.Minute)) {
		t.Fatalf("the press answers %s until %s with the checkout %q", o.State, o.Until, o.CheckoutURL)
	}
	if w.store.calls["CreateDraft"]+w.store.calls["ReadBack"]+w.store.calls["ReadVariants"] != calls {
		t.Fatal("the press called Shopify")
	}
	w.wantState("ana", waitlist.Holding)
	w.wantOffer("ana", "claimed")
	w.pays("ana")
	w.wantState("ana", waitlist.Sold)

	// Ben lets his window go by: the unit is Cem's, and no stranger's.
	w.pass(61 * time.Minute)
	w.pass(time.Second)
	w.wantOffer("ben", "lapsed")
	w.wantTold("ana", "ben", "cem")
	w.wantStock(0)
	if told != 3 {
		t.Fatalf("%d told", told)
	}
	if _, err := w.list.Pass(t.Context(), w.link("cem")); err != nil {
		t.Fatal(err)
	}
	w.run()
	w.wantOffer("cem", "passed")
	w.wantCounter("2 1 0 1 0") // nobody who may still be told waits: the unit is anybody's
	w.wantStock(1)
}

func TestARestockThatStrangersBoughtDownToThreeTellsThree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reserving)
	names := people(5)
	w.join(names...)
	bought := false
	w.store.then("ReadVariants", func() error { bought = true; w.buy(2); return nil }) // after the read, every webhook lost
	w.stock(5)
	if !bought {
		t.Fatal("nobody bought")
	}
	for range 3 {
		w.pass(time.Minute)
	}
	w.wantTold(names[:3]...)
	for _, name := range names[3:] {
		w.wantOffer(name, "missed")
		w.wantState(name, waitlist.Waiting)
	}
	w.wantStock(0)
}

// Rule: the mark before the send. The mail has left and the process dies before it records it: the hold ends
// as told, and the same person is not told again.
func TestANoticeWhoseProcessDiedAfterTheSendCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reserving)
	w.join("ana", "ben")
	w.once("send after")
	w.stock(1)
	w.pass(61 * time.Minute)
	w.pass(time.Minute)
	w.wantOffer("ana", "lapsed")
	w.wantTold("ana", "ben")
}

// Rule: the lease. A notice is not begun when the hold's time may be over before the send is.
func TestNobodyIsToldAboutAHoldThatIsAboutToEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reserving)
	w.join("ana")
	w.outbox.answer = func(waitlist.Outgoing) error {
		return &waitlist.SendError{Outcome: waitlist.Retry, Why: "greylisted"}
	}
	w.stock(1)
	w.wantHold("ana", "active")
	w.outbox.answer = nil
	w.move(60*time.Minute - 29*time.Second) // 29 seconds are left, and a send may take 30
	w.run()
	w.wantTold()
}

// Rule: RELEASE waits for the lease, all of it. The merchant deletes the draft while the mail is on its way.
func TestAReleaseWaitsForANoticeThatIsOnItsWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reserving)
	w.join("ana", "ben")
	w.outbox.answer = func(m waitlist.Outgoing) error {
		w.outbox.answer = nil
		id := w.draftOf("ana")
		w.must(w.store.DeleteDraft(t.Context(), w.shop, id))
		w.took(w.list.Receive(t.Context(), w.shop, waitlist.Webhook{Topic: "draft_orders/delete", WebhookID: "gone", Body: fmt.Appendf(nil, `{"id":%d}`, id)}))
		w.must(w.list.HandleWebhook(t.Context(), w.shop, w.one(`SELECT id FROM webhooks WHERE webhook_id = 'gone'`)))
		if err := w.list.Release(t.Context(), w.shop, w.hold("ana")); !errors.Is(err, waitlist.ErrLater) {
			t.Errorf("a release while the mail is on its way: %v", err)
		}
		w.wantHold("ana", "releasing")
		return &waitlist.SendError{Outcome: waitlist.Unknown, Why: "the connection was lost"}
	}
	w.stock(1)
	w.wantHold("ana", "releasing")
	w.pass(31 * time.Second)
	w.wantOffer("ana", "lapsed") // she may have been told
	w.wantTold("ben")
}

// Rule: a dead address counts as told. Its owner must not be served first, for ever.
func TestADeadAddressGivesItsUnitOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reserving)
	w.join("ana", "ben", "cem")
	w.outbox.answer = func(m waitlist.Outgoing) error {
		if m.To == "ana@example.com" {
			return &waitlist.SendError{Outcome: waitlist.GiveUp, Why: "the template is refused"}
		}
		return nil
	}
	w.stock(1)
	w.wantTold("ben")
	w.wantOffer("ana", "lapsed")
	_, err := w.list.Pass(t.Context(), w.link("ben"))
	w.must(err)
	w.run()
	w.wantTold("ben", "cem") // and not Ana again
}

// Rule: refused or expired unheard is missed. Somebody who was never told keeps a claim to be told.
// When nothing leaves the shop's sender, nobody was told: the hold goes, its person keeps the chance, and nobody
// else is held a unit whom the shop could not tell either.
func TestAHoldOfAShopThatCannotSendCountsAsNeverTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reserving)
	w.join("ana", "ben")
	w.outbox.answer = func(waitlist.Outgoing) error {
		return &waitlist.SendError{Outcome: waitlist.ShopFault, Sender: waitlist.SenderOff, Code: "20003", Why: "the account is closed"}
	}
	w.stock(2)
	w.run()
	w.wantOffer("ana", "missed")
	w.wantState("ben", "waiting")
	if n := len(w.store.open()); n != 0 {
		t.Errorf("%d drafts hold units for people who cannot be told", n)
	}
	w.wantCounter("2 2 0 0 0")
	w.pass(24 * time.Hour)
	w.wantTold()
	w.outbox.answer = nil
	w.must(w.list.Resume(t.Context(), w.shop, waitlist.Email))
	w.run()
	w.wantTold("ana", "ben")
}

func TestWhoWasNeverToldIsToldInTheSameRestock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lose func(w *world)
		hold string
	}{
		"refused": {func(w *world) {
			w.store.then("ReadVariants", func() error { w.buy(1); return nil })
			w.stock(1)
		}, "refused"},
		"expired while Shopify was away": {func(w *world) {
			w.store.then("ReadBack", func() error { return errors.New("502") })
			w.store.set(chair, 1)
			w.observe()
			if err := w.list.SecureNext(t.Context(), w.shop); err == nil {
				t.Error("the read-back did not fail")
			}
			w.dropJobs("secure")
			w.pass(61 * time.Minute)
		}, "expired"},
		"deleted before it was told": {func(w *world) {
			w.outbox.answer = func(waitlist.Outgoing) error {
				w.outbox.answer = nil
				return &waitlist.SendError{Outcome: waitlist.Retry, Why: "greylisted"}
			}
			w.store.set(chair, 1)
			w.observe()
			w.must(w.list.SecureNext(t.Context(), w.shop))
			id := w.draftOf("ana")
			w.must(w.store.DeleteDraft(t.Context(), w.shop, id))
			w.took(w.list.Receive(t.Context(), w.shop, waitlist.Webhook{Topic: "draft_orders/delete", WebhookID: "gone", Body: fmt.Appendf(nil, `{"id":%d}`, id)}))
			w.must(w.list.HandleWebhook(t.Context(), w.shop, w.one(`SELECT id FROM webhooks WHERE webhook_id = 'gone'`)))
			w.must(w.list.Release(t.Context(), w.shop, w.hold("ana")))
		}, "released"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, reserving)
			w.join("ana")
			c.lose(w)
			first := w.one(`SELECT min(id) FROM holds`)
			if got := w.text(`SELECT state FROM holds WHERE id = $1`, first); got != c.hold {
				t.Fatalf("the hold is %s, want %s", got, c.hold)
			}
			if got := w.text(`SELECT state FROM offers ORDER BY id LIMIT 1`); got != "missed" {
				t.Fatalf("the offer is %s, want missed", got)
			}
			w.store.set(chair, 1)
			w.hint()
			w.run()
			w.wantTold("ana")
		})
	}
}

// Rule: the hold minutes in the reserve date. She presses at the last moment.
func TestAPressAtTheLastMomentHasItsMinutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reserving)
	w.join("ana")
	w.stock(1)
	w.move(60*time.Minute - time.Second)
	o := w.press("ana")
	if o.State != "held" {
		t.Fatalf("the press answers %s", o.State)
	}
	w.move(15*time.Minute - time.Second)
	if d := w.draft("ana"); !d.until.After(w.now().Add(time.Minute)) {
		t.Fatalf("Shopify reserves until %s, her time ends at %s", d.until, o.Until)
	}
	w.wantStock(0)
	w.pays("ana")
	w.wantState("ana", waitlist.Sold)
}

// Rule: the guards of PRESS. A dead hold does not come back to life, and a second press gives no more time.
func TestAPressBringsNoDeadHoldBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before func(w *world)
		state  string
	}{
		"too late":            {func(w *world) { w.move(61 * time.Minute) }, "lapsed"},
		"on its way out":      {func(w *world) { w.must(w.list.ReleaseHold(t.Context(), w.shop, w.hold("ana"))) }, "passed"},
		"passed":              {func(w *world) { _, err := w.list.Pass(t.Context(), w.link("ana")); w.must(err); w.run() }, "passed"},
		"a second press":      {func(w *world) { w.press("ana"); w.move(14 * time.Minute) }, "held"},
		"opted out meanwhile": {func(w *world) { w.must(w.list.Leave(t.Context(), w.keys.Token(shop.Place, w.entry("ana")))) }, "left"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, reserving)
			w.join("ana")
			w.stock(1)
			c.before(w)
			read := `SELECT concat_ws(' ', state, pressed, expires_at) FROM holds`
			before := w.text(read)
			if o := w.press("ana"); o.State != c.state {
				t.Fatalf("the press answers %s, want %s", o.State, c.state)
			}
			if after := w.text(read); after != before {
				t.Fatalf("the hold was %s and is %s", before, after)
			}
			w.run()
		})
	}
	t.Run("while it is being secured", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, reserving)
		w.join("ana")
		w.store.set(chair, 1)
		w.observe()
		if o := w.press("ana"); o.State != "securing" {
			t.Fatalf("the press answers %s", o.State)
		}
		if w.one(`SELECT count(*) FROM holds WHERE pressed`) != 0 {
			t.Fatal("a hold without a draft was pressed")
		}
		w.run()
		w.wantTold("ana")
	})
	// The look before the statement must not be what guards it: all of it happens in between.
	t.Run("released between the look and the press", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, reserving)
		w.join("ana")
		w.stock(1)
		w.at("claim_commit before", func() error {
			w.at("claim_commit before", nil)
			w.must(w.list.ReleaseHold(t.Context(), w.shop, w.hold("ana")))
			return nil
		})
		if o := w.press("ana"); o.State == "held" || w.one(`SELECT count(*) FROM holds WHERE pressed`) != 0 {
			t.Fatal("a hold that is being released was pressed")
		}
		w.run()
		w.wantCounter("1 1 0 0 0")
	})
	t.Run("expired between the look and the press", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, reserving)
		w.join("ana")
		w.stock(1)
		w.at("claim_commit before", func() error { w.move(61 * time.Minute); return nil })
		if o := w.press("ana"); o.State != "lapsed" {
			t.Fatalf("the press answers %s", o.State)
		}
	})
	t.Run("pressed twice between the look and the press", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, reserving)
		w.join("ana")
		w.stock(1)
		link := w.link("ana")
		w.at("claim_commit before", func() error {
			w.at("claim_commit before", nil)
			_, err := w.list.Claim(t.Context(), link)
			w.must(err)
			w.move(14 * time.Minute)
			return nil
		})
		o, err := w.list.Claim(t.Context(), link)
		w.must(err)
		if left := o.Until.Sub(w.now()); left != time.Minute {
			t.Fatalf("%s are left, want a minute", left)
		}
	})
}

// The setting changes in the middle of a restock: offers of both forms stand side by side, and each ends in
// its own way.
func TestBothFormsMeetInOneRestock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	names := people(7)
	w.join(names...)
	w.stock(2)
	w.wantTold(names[:2]...)
	w.settings(reserving)
	w.store.add(chair, 3)
	w.hint()
	w.run()
	w.wantTold(names[:5]...)
	w.wantCounter("5 2 3 0 0") // two open offers, three holds
	if n := w.one(`SELECT count(*) FROM offers WHERE reserved AND state = 'open'`); n != 3 {
		t.Fatalf("%d reserved offers", n)
	}
	if o := w.press(names[0]); o.State != "securing" {
		t.Fatalf("a press on an open offer answers %s", o.State)
	}
	if o := w.press(names[2]); o.State != "held" {
		t.Fatalf("a press on a reserved offer answers %s", o.State)
	}
	w.run()
	w.settings(func(s *shop.Settings) { s.ReserveBeforeTelling = false })
	_, err := w.list.Pass(t.Context(), w.link(names[3]))
	w.must(err)
	_, err = w.list.Pass(t.Context(), w.link(names[1]))
	w.must(err)
	w.run()
	w.wantTold(names[:7]...) // told by the first form again
	if n := w.one(`SELECT count(*) FROM offers WHERE NOT reserved`); n != 4 {
		t.Fatalf("%d open offers were made, want 4", n)
	}
	for _, name := range []string{names[0], names[2]} {
		w.pays(name)
		w.wantState(name, waitlist.Sold)
	}
	w.pass(3 * time.Hour)
	w.pass(time.Minute)
	w.wantCounter("5 3 0 2 0")
}

func TestNoticesPerUnitAboveOneAreOfTheFirstForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reserving, func(s *shop.Settings) { s.NoticesPerUnit = 2 })
	w.join(people(3)...)
	w.stock(1)
	w.wantTold(people(3)[:2]...)
	if w.one(`SELECT count(*) FROM holds`) != 0 {
		t.Fatal("a unit was held for one of two who were told of it")
	}
}

// A hold that nobody pressed is paid: the merchant marks its draft as paid.
func TestAnUnpressedHoldThatIsPaidIsSold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reserving)
	w.join("ana")
	w.stock(1)
	w.pays("ana")
	w.wantState("ana", waitlist.Sold)
	w.wantOffer("ana", "claimed")
	w.wantCounter("1 0 0 1 0")
}

// More units than are reserved at once, and workers in two processes: everyone is told once, in order.
func TestALargeRestockIsToldInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reserving, func(s *shop.Settings) { s.ImplausibleUnits = 10_000 })
	names := people(120)
	w.join(names...)
	w.store.set(chair, 120)
	w.observe()
	restock := w.one(`SELECT id FROM restocks`)
	if story, err := w.list.Restock(t.Context(), w.shop, restock); err != nil || story.Told != 0 || story.OpenOffers != 0 || story.Reserving != 120 {
		t.Fatalf("before anybody is told, the merchant sees %+v, %v", story.RestockRow, err)
	}
	var wait sync.WaitGroup
	for _, list := range []*waitlist.Service{w.list, w.list, w.service(), w.service()} {
		wait.Go(func() {
			if err := list.SecureNext(context.WithoutCancel(t.Context()), w.shop); err != nil && !errors.Is(err, waitlist.ErrLater) {
				t.Error(err)
			}
		})
		wait.Go(func() {
			if err := w.service().Notify(context.WithoutCancel(t.Context()), w.shop, restock); err != nil && !errors.Is(err, waitlist.ErrLater) {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	w.run()
	w.wantTold(names...)
	if story, err := w.list.Restock(t.Context(), w.shop, restock); err != nil || story.Told != 120 || story.OpenOffers != 120 || story.Reserving != 0 {
		t.Fatalf("afterwards, the merchant sees %+v, %v", story.RestockRow, err)
	}
	w.wantStock(0)
	if got := len(w.store.open()); got != 120 {
		t.Fatalf("%d drafts", got)
	}
	if !slices.IsSorted(w.outbox.to()) {
		t.Fatal("out of order")
	}
}

// What a send may come to, times where its process dies, with the unit held before: whoever's notice was lost
// from sight is told once more with the same link at most, and only where nobody can be asked; everybody else
// once; and the unit goes on to the next in line.
func TestALostNoticeOfAHeldUnitIsSentOnceMore(t *testing.T) {
	t.Parallel()
	type answer struct {
		name  string
		fault *waitlist.SendError
		takes bool // the provider has the message, whatever it says
		known bool // it can be asked
	}
	for _, a := range []answer{
		{"taken", nil, true, false},
		{"taken, the answer lost", &waitlist.SendError{Outcome: waitlist.Unknown, Why: "EOF"}, true, false},
		{"taken, the answer lost, and asked", &waitlist.SendError{Outcome: waitlist.Unknown, Why: "EOF"}, true, true},
		{"lost", &waitlist.SendError{Outcome: waitlist.Unknown, Why: "EOF"}, false, false},
		{"lost, and asked", &waitlist.SendError{Outcome: waitlist.Unknown, Why: "EOF"}, false, true},
		{"not now", &waitlist.SendError{Outcome: waitlist.Retry, After: time.Minute, Why: "full"}, false, false},
		{"dead", &waitlist.SendError{Outcome: waitlist.DeadAddr, Why: "nobody there"}, false, false},
		{"given up", &waitlist.SendError{Outcome: waitlist.GiveUp, Why: "no"}, false, false},
	} {
		for _, point := range []string{"", "send before", "send after"} {
			t.Run(a.name+" "+point, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, reserving)
				w.join("ana", "ben")
				first := true
				taken := map[string]string{} // what the provider has, by link
				w.outbox.answer = func(m waitlist.Outgoing) error {
					fault, takes := a.fault, a.takes
					if !first {
						fault, takes = nil, true
					}
					first = false
					if takes {
						taken[m.ReserveToken] = fmt.Sprintf("provider-%d", m.MessageID)
						if fault != nil {
							w.outbox.sent = append(w.outbox.sent, m)
						}
					}
					if fault == nil {
						return nil
					}
					return fault
				}
				w.outbox.find = func(m waitlist.Outgoing) (string, bool, bool, error) {
					if !a.known {
						return "", false, false, nil
					}
					id, found := taken[m.ReserveToken]
					return id, found, true, nil
				}
				if point != "" {
					w.once(point)
				}
				w.stock(1)
				for range 6 {
					w.pass(time.Minute)
				}
				links := map[string]bool{}
				copies := 0
				for _, m := range w.outbox.sent {
					if m.Name == "ana" {
						copies++
						links[m.ReserveToken] = true
					}
				}
				refused := a.fault != nil && (a.fault.Outcome == waitlist.DeadAddr || a.fault.Outcome == waitlist.GiveUp)
				least, most := 1, 1
				switch {
				case refused && point != "send after":
					least, most = 0, 0
				case refused:
					// What was said died with the process.
				case point == "send before" && a.fault != nil && a.fault.Outcome == waitlist.Unknown && !a.takes:
					least = 0 // lost from sight twice: it is not tried a third time
				case a.takes && !a.known && (a.fault != nil || point == "send after"):
					most = 2
				}
				if copies < least || copies > most || len(links) > 1 {
					t.Errorf("ana has %d notices with %d links, want %d to %d", copies, len(links), least, most)
				}
				for range 3 {
					w.pass(70 * time.Minute)
				}
				if n := len(slices.DeleteFunc(w.outbox.to(), func(to string) bool { return to != "ben@example.com" })); n != 1 {
					t.Errorf("ben has %d notices", n)
				}
				if n := len(w.store.open()); n != 0 {
					t.Errorf("%d drafts are left over", n)
				}
				w.wantCounter("1 1 0 0 0")
			})
		}
	}
}

// A process dies at each named point, with units held before they are told: everyone is told once, and the
// books are right.
func TestAProcessThatDiesAtAnyPointTellsEveryoneOnce(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"draft_create before", "draft_create after", "send before", "claim_commit before", "claim_commit after",
		"draft_delete before", "draft_delete after", "release_commit before", "release_commit after", "webhook_commit after"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, reserving)
			w.join("ana", "ben", "cem")
			w.once(point)
			w.store.set(chair, 1)
			w.observe()
			w.run()
			w.pass(time.Minute)
			if o, err := w.list.Claim(t.Context(), w.link("ana")); err != nil && !errors.Is(err, errCut) {
				t.Fatal(err)
			} else if o.State == "held" {
				w.must(err)
			}
			w.pass(70 * time.Minute) // her window or her minutes are over
			for range 4 {
				w.pass(time.Minute)
			}
			w.pass(70 * time.Minute)
			for range 4 {
				w.pass(time.Minute)
			}
			seen := map[string]int{}
			for _, to := range w.outbox.to() {
				if seen[to]++; seen[to] > 1 {
					t.Fatalf("%s was told twice", to)
				}
			}
			if seen["ben@example.com"] != 1 || seen["cem@example.com"] != 1 {
				t.Fatalf("told: %v", w.outbox.to())
			}
			if n := len(w.store.open()); n > 1 {
				t.Fatalf("%d drafts live", n)
			}
		})
	}
}
