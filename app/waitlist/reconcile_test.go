package waitlist_test

import (
	"errors"
	"slices"
	"strconv"
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

// A shop's points pay for one page of its drafts at a time: what was waited for is spent on the next page, not
// on the first one again. Of what is in no list, what was read is not read again either.
func TestAReconcileThatWaitsGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben", "cem", "dea", "eva", "fay", "gus")
	w.stock(7)
	for _, name := range []string{"ana", "ben", "cem", "dea", "eva", "fay", "gus"} {
		w.press(name)
	}
	w.run()
	drafts := w.store.open()
	if len(drafts) != 7 {
		t.Fatalf("%d drafts", len(drafts))
	}
	w.store.hide[drafts[5].ID], w.store.hide[drafts[6].ID] = true, true
	w.store.page = 2
	w.store.after, w.store.calls = nil, map[string]int{}
	for tries, done := 0, false; !done; tries++ {
		w.store.hooks = map[string][]func() error{}
		for _, op := range []string{"ListDrafts", "ReadDraft"} { // one of each is paid for
			w.store.then(op, func() error { return nil })
			w.store.then(op, func() error { return &waitlist.Throttled{After: time.Second} })
		}
		err := w.list.Reconcile(t.Context(), w.shop)
		var throttled *waitlist.Throttled
		if done = err == nil; !done && (tries == 5 || !errors.As(err, &throttled)) {
			t.Fatalf("try %d, listed after %q, %d read: %v", tries, w.store.after, w.store.calls["ReadDraft"], err)
		}
	}
	second, last := strconv.FormatInt(drafts[1].ID, 10), strconv.FormatInt(drafts[3].ID, 10)
	if want := []string{"", second, second, last, last, last}; !slices.Equal(w.store.after, want) {
		t.Errorf("listed after %q, want %q", w.store.after, want)
	}
	if n := w.store.calls["ReadDraft"]; n != 3 {
		t.Errorf("%d reads of two drafts, one of which was put off once", n)
	}

	// A place in the list that Shopify does not know any more is given up.
	w.store.hooks, w.store.after = map[string][]func() error{}, nil
	w.store.then("ListDrafts", func() error { return nil })
	w.store.then("ListDrafts", func() error { return errors.New("invalid cursor") })
	if err := w.list.Reconcile(t.Context(), w.shop); err == nil {
		t.Fatal("a listing that failed is no success")
	}
	w.must(w.list.Reconcile(t.Context(), w.shop))
	if want := []string{"", second, "", second, last}; !slices.Equal(w.store.after, want) {
		t.Errorf("listed after %q, want %q", w.store.after, want)
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
