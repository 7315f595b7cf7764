package waitlist_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

// A busy shop has thousands of drafts: only what may have changed is listed, and all of it after an
// installation and after a reconcile that was cut short.
func TestAReconcileListsWhatMayHaveChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.now()
	w.must(w.list.Reconcile(t.Context(), w.shop))
	w.move(10 * time.Minute)
	w.store.then("ListDrafts", func() error { return errors.New("502") })
	if err := w.list.Reconcile(t.Context(), w.shop); err == nil {
		t.Fatal("a listing that failed is no success")
	}
	w.move(10 * time.Minute)
	w.must(w.list.Reconcile(t.Context(), w.shop))
	_, err := shop.NewStore(w.db, w.keys).Install(t.Context(), "chairs.myshopify.com", "Chairs", "EUR", "GB", "en", "token")
	w.must(err)
	_, err = w.db.Exec(t.Context(), `UPDATE shops SET reconciled_at = NULL`) // as InstallGrant does
	w.must(err)
	w.must(w.list.Reconcile(t.Context(), w.shop))
	if want := []time.Time{{}, first.Add(-24 * time.Hour), first.Add(-24 * time.Hour), {}}; !slices.EqualFunc(w.store.since, want, time.Time.Equal) {
		t.Fatalf("listed since %v, want %v", w.store.since, want)
	}
}

// Two drafts whose holds no row knows: one carries our mark, as after a shop was erased, the other what a
// buyer or a merchant may type.
func TestADraftOfAForgottenHoldIsDeletedIfItIsOurs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.store.set(chair, 2)
	ours, err := w.store.CreateDraft(t.Context(), w.shop, waitlist.NewDraft{HoldID: 4711, VariantID: chair, Mark: w.keys.Token(shop.HoldMark, 4711), ReserveUntil: w.now().Add(time.Hour)})
	w.must(err)
	typed, err := w.store.CreateDraft(t.Context(), w.shop, waitlist.NewDraft{HoldID: 4712, VariantID: chair, Mark: "4712", ReserveUntil: w.now().Add(time.Hour)})
	w.must(err)
	w.must(w.list.Reconcile(t.Context(), w.shop))
	if open := w.store.open(); len(open) != 1 || open[0].ID != typed.ID {
		t.Fatalf("draft %d is ours and %d is not: %d are left", ours.ID, typed.ID, len(open))
	}
}

// The merchant makes another location the default one. Shopify reserves there from now on, and its stock is
// not counted: a hold would not lower what we read.
func TestHoldsAreOffWhileShopifyReservesElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.Locations = []int64{1} })
	w.join("ana", "ben")
	w.store.place = 2
	w.must(w.list.Reconcile(t.Context(), w.shop))
	w.stock(1)
	w.wantTold()
	if n := w.one(`SELECT count(*) FROM notes WHERE kind = 'default_location' AND cleared_at IS NULL`); n != 1 {
		t.Fatalf("%d notes for the merchant", n)
	}
	w.settings(func(s *shop.Settings) { s.Locations = []int64{1, 2} })
	w.run()
	w.wantTold("ana")
	if n := w.one(`SELECT count(*) FROM notes WHERE kind = 'default_location' AND cleared_at IS NULL`); n != 0 {
		t.Fatal("the note was not put away")
	}
	w.store.place = 3
	w.must(w.list.Reconcile(t.Context(), w.shop))
	w.store.place = 2 // and it is changed back
	w.must(w.list.Reconcile(t.Context(), w.shop))
	w.store.add(chair, 1)
	w.hint()
	w.run()
	w.wantTold("ana", "ben")
}
