package waitlist_test

// The stories of the protocol: each of these happens when the rule that its comment names is taken out. The
// patches under proof/ take the rules out, one by one, and make proof sees each story fail.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/app/jobs"
	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

// secure works the queued jobs that secure holds, and no others.
func (w *world) secure(name string) {
	w.t.Helper()
	w.must(w.list.Secure(w.t.Context(), w.shop, w.hold(name)))
}

// Rule: the fence. A read of one unit, then claim, draft and activation, then the read is applied: 1 > 0.
func TestAReadFromBeforeAnActivationIsNoNewUnit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben")
	w.stock(1)
	w.wantTold("ana")
	w.store.then("ReadVariants", func() error { // the answer is computed, and late
		w.press("ana")
		w.secure("ana")
		return nil
	})
	w.observe()
	w.run()
	w.wantHold("ana", "active")
	w.wantTold("ana")
	w.wantCounter("1 0 1 0 0")
}

// Rule: the fence is sums that only grow. Between note and application the counter fell and rose back.
func TestAReadFromBeforeAReleaseIsNoShrink(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben")
	w.stock(1)
	w.press("ana")
	w.secure("ana")
	_, err := w.list.Pass(t.Context(), w.link("ana"))
	w.must(err)
	// Releasing: Shopify has 0 until the draft is deleted.
	withdrawn := w.one(`SELECT withdrawn FROM restocks`)
	w.store.then("ReadVariants", func() error { // reads 0
		w.must(w.list.Release(t.Context(), w.shop, w.hold("ana")))
		return nil
	})
	again := w.list.Observe(t.Context(), w.shop, chair)
	if again != nil && !errors.Is(again, waitlist.ErrLater) {
		t.Fatal(again)
	}
	if got := w.one(`SELECT withdrawn FROM restocks`); got != withdrawn {
		t.Fatal("a unit was withdrawn that is there")
	}
	w.run()
	w.wantTold("ana", "ben")
	w.wantCounter("1 1 0 0 0")
}

// Rule: the fence covers which restock is open. The read was before the sale that closed it.
func TestAReadFromBeforeASaleOpensNoRestock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben")
	w.stock(1)
	w.store.then("ReadVariants", func() error {
		w.press("ana")
		w.secure("ana")
		w.pays("ana") // and its observe closes the restock
		return nil
	})
	w.observe()
	w.run()
	if n := w.one(`SELECT count(*) FROM restocks`); n != 1 {
		t.Fatalf("%d restocks, want 1", n)
	}
	w.wantTold("ana")
	w.wantCounter("1 0 0 1 0")
}

// Rule: R counts from expires_at, not from the reserve date. Shopify's clock is ahead of ours.
func TestAnOverdueHoldWhoseReservationShopifyEndedIsNoNewUnit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben")
	w.stock(1)
	w.press("ana")
	w.run()
	w.move(15 * time.Minute) // overdue by our clock, not swept yet
	w.store.passDate(w.draftOf("ana"))
	w.observe()
	w.wantCounter("1 0 1 0 0")
	w.wantTold("ana")
	w.pass(0)
	w.wantTold("ana", "ben")
	w.wantCounter("1 1 0 0 0")
}

// Rule: refuse by intent first. One worker decides to refuse, another activates, the first must not delete.
func TestAWorkerThatDecidedToRefuseDoesNotDeleteAnActiveHoldsDraft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	w.stock(1)
	w.buy(1)
	w.press("ana")
	w.store.then("ReadBack", func() error { // it read -1
		w.store.add(chair, 1)                                    // the stranger's order is cancelled
		return w.list.Secure(t.Context(), w.shop, w.hold("ana")) // a second worker reads 0
	})
	w.must(w.list.Secure(t.Context(), w.shop, w.hold("ana")))
	w.run()
	w.wantHold("ana", "active")
	if n := len(w.store.open()); n != 1 {
		t.Fatalf("an active hold has %d drafts", n)
	}
}

// Rule: activation names expires_at > now(), and securing can expire. It was throttled past its date.
func TestAHoldThatWasThrottledPastItsTimeIsNotActivated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben")
	w.stock(1)
	w.press("ana")
	w.store.then("ReadBack", func() error {
		w.move(26 * time.Minute) // past the hold and past the reserve date
		return nil
	})
	w.must(w.list.Secure(t.Context(), w.shop, w.hold("ana")))
	w.wantHold("ana", "securing")
	w.pass(0)
	w.wantHold("ana", "expired")
	w.wantOffer("ana", "open") // it was missed through no act of theirs: offered again, and first
	w.wantTold("ana", "ana")
}

// Rule: draft_id is written once, while securing. A stalled worker comes back after the hold has ended.
func TestAStalledWorkerDoesNotWriteItsDraftOverAnEndedHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	w.stock(1)
	w.press("ana")
	w.store.then("CreateDraft", func() error {
		w.store.mu.Lock()
		for id := range w.store.drafts {
			w.store.hide[id] = true // the index does not show it yet
		}
		w.store.mu.Unlock()
		w.move(16 * time.Minute)
		w.must(w.list.Sweep(t.Context()))
		return w.list.Release(t.Context(), w.shop, w.hold("ana"))
	})
	w.must(w.list.Secure(t.Context(), w.shop, w.hold("ana")))
	w.wantHold("ana", "expired")
	if n := len(w.store.open()); n != 0 {
		t.Fatalf("%d drafts reserve a unit for nobody", n)
	}
	if s := w.store.stock(chair); s != 1 {
		t.Fatalf("Shopify has %d", s)
	}
	w.run()
}

// Rule: reconcile deletes the drafts that nobody owns. The create committed, its answer was lost, and the
// lookup came before the index knew.
func TestADraftThatNobodyOwnsIsDeleted(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"the listing", "its webhook"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.join("ana")
			w.stock(1)
			w.press("ana")
			var lost int64
			w.store.then("CreateDraft", func() error {
				lost = w.store.next
				w.store.hide[lost] = true
				return errors.New("connection reset")
			})
			if err := w.list.Secure(t.Context(), w.shop, w.hold("ana")); err == nil {
				t.Fatal("an unknown outcome is no success")
			}
			if err := w.list.Secure(t.Context(), w.shop, w.hold("ana")); !errors.Is(err, waitlist.ErrLater) {
				t.Fatalf("its own stray draft may have the unit: %v", err)
			}
			w.store.hide = map[int64]bool{}
			if by == "the listing" {
				w.must(w.list.Reconcile(t.Context(), w.shop))
			} else {
				w.took(w.list.Receive(t.Context(), w.shop, waitlist.Webhook{Topic: "draft_orders/create", WebhookID: "c",
					Body: fmt.Appendf(nil, `{"id":%d,"tags":"holdfast, holdfast-%d"}`, lost, w.hold("ana"))}))
			}
			w.run()
			w.pass(6 * time.Minute)
			if s := w.store.stock(chair) + len(w.store.open()); s != 1 {
				t.Fatalf("a unit is reserved by nobody: stock and drafts are %d", s)
			}
			for _, d := range w.store.open() {
				if d.ID == lost {
					t.Fatal("the draft that nobody owns is still there")
				}
			}
			w.wantHold("ana", "active")
		})
	}
}

// Rule: a late payment touches no counter. It slips between the release's read and its delete.
func TestALatePaymentTouchesNoCounter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben")
	w.stock(1)
	w.press("ana")
	w.run()
	id := w.draftOf("ana")
	w.move(15 * time.Minute)
	w.must(w.list.Sweep(t.Context()))
	var order int64
	w.store.then("ReadDraft", func() (err error) { // read as open
		order, err = w.store.pay(id)
		return err
	})
	w.must(w.list.Release(t.Context(), w.shop, w.hold("ana")))
	w.wantHold("ana", "expired")
	w.took(w.list.Receive(t.Context(), w.shop, waitlist.Webhook{Topic: "orders/create", WebhookID: "o",
		Body: fmt.Appendf(nil, `{"id":%d,"tags":"holdfast-%d","line_items":[{"variant_id":%d}]}`, order, w.hold("ana"), chair)}))
	w.run()
	w.wantState("ana", waitlist.Sold)
	if w.one(`SELECT count(*) FROM holds WHERE paid_late_at IS NOT NULL`) != 1 {
		t.Fatal("nobody knows that it was paid late")
	}
	w.wantCounter("1 0 0 0 1") // the next observe found the unit gone
	w.wantState("ben", waitlist.Waiting)
	notes, err := w.list.Notes(t.Context(), w.shop)
	w.must(err)
	if len(notes) != 1 || notes[0].Kind != "paid_late" {
		t.Fatalf("notes: %+v", notes)
	}
}

// Rule: open by level, not by crossing. The low was never observed.
func TestAUnitThatWasThereAllAlongIsOffered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("cem")
	w.must(w.list.Leave(t.Context(), w.keys.Token(shop.Place, w.entry("cem"))))
	w.run()
	w.stock(2)              // seen, and nobody waits
	w.move(6 * time.Minute) // what was seen then is old
	w.join("ana", "ben")
	w.run()
	w.wantTold("ana", "ben")
}

// Rule: every observe ends in allocate. Somebody joins while a unit lies free.
func TestSomebodyWhoJoinsWhileAUnitLiesFreeIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	w.stock(1)
	_, err := w.list.Pass(t.Context(), w.link("ana"))
	w.must(err)
	w.run()
	w.move(6 * time.Minute)
	w.join("ben")
	w.run()
	w.wantTold("ana", "ben")
}

// Rule: a refused hold's offer becomes missed. Its person lost the unit through no act of theirs.
func TestARefusedHoldMayBeOfferedAUnitAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben")
	w.stock(2)
	w.buy(1)
	w.press("ana")
	w.press("ben")
	w.secure("ana")
	w.secure("ben")
	w.must(w.list.Release(t.Context(), w.shop, w.hold("ben")))
	w.wantHold("ben", "refused")
	w.run()
	w.pass(15 * time.Minute) // ana lets hers run out
	w.wantTold("ana", "ben", "ben")
}

// Rule: shrink by at most what is available. A second draft for one hold drives Shopify below zero.
func TestTheCounterNeverGoesBelowZero(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben")
	w.stock(2)
	w.press("ana")
	w.run()
	w.buy(5)
	w.observe()
	w.wantCounter("2 0 1 0 1")
	if s := w.store.stock(chair); s != -4 {
		t.Fatalf("Shopify has %d", s)
	}
	// A quiet read below zero: the live hold is kept, and the merchant is asked.
	if w.one(`SELECT count(*) FROM restocks WHERE short`) != 1 {
		t.Fatal("the restock is not marked short")
	}
	w.wantHold("ana", "active")
	w.stock(0)
	if w.one(`SELECT count(*) FROM restocks WHERE short`) != 0 {
		t.Fatal("the restock is still short")
	}
}

// Rule: delete in Shopify, then return in our books. The process dies in between.
func TestAUnitIsReturnedOnlyWhenItsDraftIsGone(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"draft_delete before", "draft_delete after", "release_commit before", "release_commit after"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.join("ana", "ben")
			w.stock(1)
			w.press("ana")
			w.run()
			w.move(15 * time.Minute)
			w.must(w.list.Sweep(t.Context()))
			w.at(point, func() error {
				if w.one(`SELECT available FROM restocks`) > 0 && len(w.store.open()) > 0 {
					t.Error("the unit is returned, and its old link is still payable")
				}
				w.at(point, nil)
				return errCut
			})
			if err := w.list.Release(t.Context(), w.shop, w.hold("ana")); !errors.Is(err, errCut) {
				t.Fatalf("%v", err)
			}
			w.run()
			w.pass(0)
			w.wantHold("ana", "expired")
			w.wantTold("ana", "ben")
			w.wantCounter("1 1 0 0 0")
		})
	}
}

// Rule: tell only inside an observe, at most what the fence vouches for. A late create takes the unit that a
// release has just returned.
func TestNobodyIsToldAboutAUnitThatALateCreateHasTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben")
	w.stock(1)
	w.press("ana")
	w.run()
	w.move(15 * time.Minute)
	w.must(w.list.Sweep(t.Context()))
	w.store.then("DeleteDraft", func() error { // it lands just now
		w.buy(1)
		return nil
	})
	w.must(w.list.Release(t.Context(), w.shop, w.hold("ana")))
	if n := w.one(`SELECT count(*) FROM offers`); n != 1 {
		t.Fatal("the release itself told somebody")
	}
	w.run()
	w.wantTold("ana")
	w.wantCounter("1 0 0 0 1")
}

// The same rule, from the other side: what rose while Shopify was read is not vouched for.
func TestWhatRoseWhileShopifyWasReadIsToldByTheNextRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben", "cem")
	w.stock(2)
	w.press("ana")
	w.secure("ana")
	_, err := w.list.Pass(t.Context(), w.link("ana"))
	w.must(err)
	w.dropJobs("release")
	reads := 0
	w.store.then("ReadVariants", func() error {
		reads++
		w.must(w.list.Release(t.Context(), w.shop, w.hold("ana"))) // available is 2, and Shopify had 1
		return nil
	})
	w.store.then("ReadVariants", func() error { reads++; return errors.New("away") })
	if err := w.list.Observe(t.Context(), w.shop, chair); err == nil || reads != 2 {
		t.Fatalf("%v after %d reads: what moved must be looked at again", err, reads)
	}
	if n := w.one(`SELECT count(*) FROM offers`); n != 2 {
		t.Fatal("somebody was told by the first read")
	}
	w.run()
	w.wantTold("ana", "ben", "cem")
	w.wantCounter("2 2 0 0 0")
}

// Rule: count in a second statement, after the lock. A claim commits while the observe waits for its lock.
func TestAClaimThatCommitsWhileAnObserveWaitsIsCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben")
	w.stock(1)
	ctx := t.Context()
	offer := w.one(`SELECT id FROM offers`)
	entry := w.entry("ana")
	tx, err := w.db.Begin(ctx)
	w.must(err)
	for _, sql := range []string{
		`SELECT FROM restocks WHERE id = (SELECT max(id) FROM restocks) FOR UPDATE`,
		fmt.Sprintf(`UPDATE offers SET state = 'claimed', ended_at = now() WHERE id = %d`, offer),
		fmt.Sprintf(`INSERT INTO holds (shop_id, restock_id, offer_id, entry_id, variant_id, state, hold_minutes, claimed_at) SELECT shop_id, restock_id, id, entry_id, %d, 'securing', 15, now() FROM offers WHERE id = %d`, chair, offer),
		`UPDATE restocks SET available = available - 1, live = live + 1`,
		fmt.Sprintf(`UPDATE entries SET state = 'holding' WHERE id = %d`, entry),
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- w.list.Observe(context.WithoutCancel(ctx), w.shop, chair) }()
	w.waitForALock()
	w.must(tx.Commit(ctx))
	if err := <-done; err != nil && !errors.Is(err, waitlist.ErrLater) {
		t.Fatal(err)
	}
	w.wantCounter("1 0 1 0 0")
	w.wantTold("ana")
}

// waitForALock returns when somebody in this database waits for a lock.
func (w *world) waitForALock() {
	w.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		if w.one(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0 {
			return
		}
		select {
		case <-deadline:
			w.t.Fatal("nobody waits for the lock")
		default:
		}
	}
}

// Rule: hint_seq. A hint arrives while the observe of an earlier one runs, after its read.
func TestAHintThatArrivesWhileAnObserveRunsIsNotLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	w.run()
	w.hint()
	w.store.then("ReadVariants", func() error { // read 0
		w.store.set(chair, 1)
		w.hint()
		w.must(w.work(w.list, "webhook", fmt.Appendf(nil, `{"shop_id":%d,"webhook_id":%d}`, w.shop, w.one(`SELECT max(id) FROM webhooks`))))
		return nil
	})
	w.run()
	w.wantTold("ana")
	if n := w.one(`SELECT count(*) FROM variants WHERE hint_seq <> seen_seq`); n != 0 {
		t.Fatal("a hint was not seen")
	}
}

// The answer of a create is lost and the index lags: its webhook brings the draft to its hold.
func TestADraftWhoseAnswerWasLostIsTakenWhenItsWebhookComes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	w.stock(1)
	w.press("ana")
	w.store.then("CreateDraft", func() error {
		w.store.hide[w.store.next] = true
		return errors.New("connection reset")
	})
	if err := w.list.Secure(t.Context(), w.shop, w.hold("ana")); err == nil {
		t.Fatal("an unknown outcome is no success")
	}
	w.took(w.list.Receive(t.Context(), w.shop, waitlist.Webhook{Topic: "draft_orders/create", WebhookID: "c",
		Body: fmt.Appendf(nil, `{"id":%d,"tags":"holdfast, holdfast-%d"}`, w.store.next, w.hold("ana"))}))
	w.must(w.work(w.list, "webhook", fmt.Appendf(nil, `{"shop_id":%d,"webhook_id":%d}`, w.shop, w.one(`SELECT max(id) FROM webhooks`))))
	w.run()
	w.wantHold("ana", "active")
	if n := len(w.store.open()); n != 1 {
		t.Fatalf("%d drafts for one hold", n)
	}
}

// A fault of the store while a hint is pending loses nothing either.
func TestAHintOutlivesAFailedRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	w.run()
	w.store.set(chair, 1)
	w.hint()
	for range 3 {
		w.store.then("ReadVariants", func() error { return errors.New("502") })
	}
	for range 4 {
		w.run()
	}
	w.wantTold("ana")
}

func TestAProcessThatDiesAtAnyPointLosesNothing(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"claim_commit before", "claim_commit after", "draft_create before", "draft_create after",
		"draft_delete before", "draft_delete after", "release_commit before", "release_commit after", "webhook_commit before", "webhook_commit after"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.join("ana", "ben")
			w.once(point)
			w.store.set(chair, 1)
			for range 2 { // Shopify delivers again what was not answered
				_, err := w.list.Receive(t.Context(), w.shop, waitlist.Webhook{Topic: "inventory_levels/update", WebhookID: "w", Body: []byte(`{"inventory_item_id":1101}`)})
				if err != nil && !errors.Is(err, errCut) {
					t.Fatal(err)
				}
			}
			w.run()
			link := w.link("ana")
			for range 2 { // and a shopper presses again
				if _, err := w.list.Claim(t.Context(), link); err != nil && !errors.Is(err, errCut) {
					t.Fatal(err)
				}
			}
			w.run()
			w.run()
			w.wantHold("ana", "active")
			w.wantTold("ana")
			w.pass(15 * time.Minute)
			w.run()
			w.wantHold("ana", "expired")
			w.wantTold("ana", "ben")
			if n := len(w.store.open()); n != 0 {
				t.Fatalf("%d drafts are left over", n)
			}
			w.wantCounter("1 1 0 0 0")
		})
	}
}

func TestAProcessThatDiesWhileSendingTellsNobodyTwice(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"send before", "send after"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.join("ana", "ben")
			w.once(point)
			w.stock(1)
			w.pass(31 * time.Second)
			w.run()
			if n := len(w.outbox.to()); n > 1 {
				t.Fatalf("told %d times", n)
			}
			if s := w.text(`SELECT state FROM messages`); s != "unknown" {
				t.Fatalf("the message is %s", s)
			}
			w.pass(75 * time.Minute) // nobody knows whether ana was told: the unit goes on
			w.wantOffer("ana", "lapsed")
			w.wantState("ben", waitlist.Offered)
		})
	}
}

func TestAnOfferWhoseMessageNeverLeftIsWithdrawnAndNotLapsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	w.outbox.answer = func(waitlist.Outgoing) error {
		return &waitlist.SendError{Outcome: waitlist.Retry, Why: "connection refused"}
	}
	w.stock(1)
	w.pass(71 * time.Minute)
	if n := w.one(`SELECT count(*) FROM offers WHERE state = 'withdrawn'`); n != 1 {
		t.Fatalf("%d offers are withdrawn", n)
	}
	w.outbox.answer = nil
	w.run()
	w.wantTold("ana") // in the same restock
}

// A sweep of another process looks for overdue offers; before it has locked one, whose message had not left
// when it began, that message is sent. Its person is told, and not again in this restock.
func TestAMessageThatLeavesWhileTheSweepLooksCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	w.outbox.answer = func(waitlist.Outgoing) error {
		return &waitlist.SendError{Outcome: waitlist.Retry, Why: "connection refused"}
	}
	w.stock(1)
	w.move(70*time.Minute - time.Second)
	w.outbox.answer = nil
	ctx := t.Context()

	// The sweeper reads offers through a gate, which stands between its statement's snapshot and its locks.
	gate, err := w.db.Acquire(ctx)
	w.must(err)
	defer gate.Release()
	for _, sql := range []string{
		`CREATE FUNCTION gate() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN IF current_query() LIKE '%SKIP LOCKED%' THEN PERFORM pg_advisory_xact_lock_shared(42); END IF; RETURN true; END $$`,
		`CREATE SCHEMA gated`,
		`CREATE VIEW gated.offers AS SELECT * FROM public.offers WHERE public.gate()`,
		`SELECT pg_advisory_lock(42)`,
	} {
		_, err := gate.Exec(ctx, sql)
		w.must(err)
	}
	config := w.db.Config()
	config.ConnConfig.RuntimeParams["search_path"] = "gated, public"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	w.must(err)
	defer pool.Close()
	inserter, err := jobs.Inserter(pool)
	w.must(err)
	ahead := func() time.Time { return w.now().Add(2 * time.Second) } // no two machines have the same time
	sweeper := waitlist.New(pool, inserter, w.keys, w.store, w.outbox, ahead, waitlist.NoPoint, slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- sweeper.Sweep(context.WithoutCancel(ctx)) }()
	w.waitForALock()
	w.run()
	w.wantTold("ana")
	_, err = gate.Exec(ctx, `SELECT pg_advisory_unlock(42)`)
	w.must(err)
	w.must(<-done)
	w.wantOffer("ana", "lapsed")
	w.run()
	w.wantTold("ana")
}

func TestADeadAddressIsSuppressedAndItsUnitGoesOnAtOnce(t *testing.T) {
	t.Parallel()
	for outcome, reason := range map[waitlist.Outcome]string{waitlist.DeadAddr: "bounce", waitlist.OptedOut: "unsubscribe", waitlist.GiveUp: ""} {
		t.Run(string(outcome), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.join("ana", "ben")
			w.outbox.answer = func(m waitlist.Outgoing) error {
				if m.Name == "ana" {
					return &waitlist.SendError{Outcome: outcome, Code: "x", Why: "no"}
				}
				return nil
			}
			w.stock(1)
			w.wantTold("ben")
			if n := w.one(`SELECT count(*) FROM suppressions WHERE reason = $1`, reason); (n == 1) != (reason != "") {
				t.Fatalf("%d suppressions", n)
			}
		})
	}
}

func TestATextOfUnknownOutcomeIsLookedForBeforeItIsSentAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben")
	first := true
	w.outbox.answer = func(waitlist.Outgoing) error {
		if first {
			first = false
			return &waitlist.SendError{Outcome: waitlist.Unknown, Why: "EOF"}
		}
		return nil
	}
	var there bool
	w.outbox.find = func(waitlist.Outgoing) (string, bool, bool, error) { return "SM1", there, true, nil }
	w.stock(2)
	w.wantTold("ben")
	w.run()
	w.wantTold("ben") // not yet: the provider's list may lag
	w.pass(61 * time.Second)
	w.wantTold("ben", "ana")
	w.wantState("ana", waitlist.Offered)
}

func TestDeliveryReportsOnlyMoveAMessageForward(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben")
	w.stock(1)
	id := w.one(`SELECT id FROM messages`)
	report := func(status string, outcome waitlist.Outcome) {
		w.must(w.list.Delivered(t.Context(), w.shop, waitlist.Delivery{MessageID: id, ProviderID: fmt.Sprintf("provider-%d", id), Status: status, Failure: waitlist.SendError{Outcome: outcome}}))
	}
	report("delivered", "")
	report("accepted", "")
	report("failed", waitlist.DeadAddr)
	if s := w.text(`SELECT state FROM messages`); s != "delivered" {
		t.Fatalf("the message is %s", s)
	}
	w.must(w.list.Delivered(t.Context(), w.shop, waitlist.Delivery{MessageID: id, ProviderID: "another", Status: "failed", Failure: waitlist.SendError{Outcome: waitlist.DeadAddr}}))
	w.wantState("ana", waitlist.Offered)
}

func TestAShopNeverSeesAnothersRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other, err := shop.NewStore(w.db, w.keys).Install(t.Context(), "lamps.myshopify.com", "Lamps", "USD", "US", "en", "token")
	w.must(err)
	w.join("ana")
	w.stock(1)
	w.press("ana")
	hold, entry, restock := w.hold("ana"), w.entry("ana"), w.one(`SELECT id FROM restocks`)
	before := w.dump()
	ctx := t.Context()
	for what, err := range map[string]error{
		"ReleaseHold": w.list.ReleaseHold(ctx, other, hold),
		"RemoveEntry": w.list.RemoveEntry(ctx, other, entry),
		"Approve":     w.list.Approve(ctx, other, restock),
		"Decline":     w.list.Decline(ctx, other, restock),
		"Secure":      errors.Unwrap(w.list.Secure(ctx, other, hold)),
		"Release":     errors.Unwrap(w.list.Release(ctx, other, hold)),
		"Lift":        w.list.Lift(ctx, other, 1),
	} {
		if !errors.Is(err, waitlist.ErrNotFound) {
			t.Errorf("%s on another shop's row: %v", what, err)
		}
	}
	if _, err := w.list.Restock(ctx, other, restock); !errors.Is(err, waitlist.ErrNotFound) {
		t.Errorf("Restock: %v", err)
	}
	w.must(w.list.MarkSold(ctx, other, hold, 1))
	w.must(w.list.Notify(ctx, other, restock))
	w.must(w.list.Observe(ctx, other, chair))
	if w.dump() != before {
		t.Fatal("something of another shop was changed")
	}
	for what, list := range map[string]func() (int, error){
		"holds":    func() (int, error) { l, err := w.list.Holds(ctx, other, 0); return len(l), err },
		"restocks": func() (int, error) { l, err := w.list.Restocks(ctx, other, 0); return len(l), err },
		"queues":   func() (int, error) { l, err := w.list.Queues(ctx, other, 0); return len(l), err },
		"messages": func() (int, error) { l, err := w.list.Messages(ctx, other, 0); return len(l), err },
	} {
		if n, err := list(); n != 0 || err != nil {
			t.Errorf("%s: %d, %v", what, n, err)
		}
	}
}

func TestTheSchemaItselfRefusesWhatMustNotBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	w.stock(1)
	for what, sql := range map[string]string{
		"a counter below zero":           `UPDATE restocks SET available = -1, sold = 2`,
		"units that do not add up":       `UPDATE restocks SET available = 0`,
		"a second open restock":          `INSERT INTO restocks (shop_id, variant_id, state, units, available, opened_at) SELECT shop_id, variant_id, 'open', 0, 0, now() FROM restocks`,
		"a second place":                 `INSERT INTO entries (shop_id, variant_id, contact_id, state, expires_at) SELECT shop_id, variant_id, contact_id, 'waiting', now() FROM entries`,
		"a second notice":                `INSERT INTO offers (shop_id, restock_id, entry_id, state, window_minutes, lapses_at, created_at) SELECT shop_id, restock_id, entry_id, 'open', 60, now(), now() FROM offers`,
		"a state that is none":           `UPDATE entries SET state = 'confused'`,
		"another shop's variant":         `WITH s AS (INSERT INTO shops (domain, name) VALUES ('x.myshopify.com', 'x') RETURNING id) UPDATE entries SET shop_id = s.id FROM s`,
		"an active hold without a draft": `INSERT INTO holds (shop_id, restock_id, offer_id, entry_id, variant_id, state, hold_minutes, claimed_at) SELECT shop_id, restock_id, id, entry_id, 101, 'active', 15, now() FROM offers`,
	} {
		err := pgx.BeginFunc(t.Context(), w.db, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), sql)
			return err
		})
		if err == nil {
			t.Errorf("the schema accepts %s", what)
		}
	}
}
