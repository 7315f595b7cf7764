package waitlist_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"holdfast/app/waitlist"
)

// many is a shop with many more variants than the chair, none of which anybody has asked for.
func (w *world) many(n int64) {
	for i := range n {
		r := *w.store.variants[chair]
		r.ID, r.ProductID, r.InventoryItemID, r.SKU, r.Title = 10_000+i, 1000+i/10, 50_000+i, fmt.Sprintf("M-%d", i), fmt.Sprint("No. ", i)
		w.store.variants[r.ID] = &r
	}
}

// readCatalogue has the export read to its end, as its job does.
func (w *world) readCatalogue() {
	w.t.Helper()
	for range 20 {
		err := w.list.ReadCatalogue(w.t.Context(), w.shop)
		var wait *waitlist.Wait
		if err == nil {
			return
		}
		if !errors.As(err, &wait) {
			w.t.Fatal(err)
		}
		w.move(wait.After)
	}
	w.t.Fatal("the catalogue is not read to its end")
}

func TestTheCatalogueIsReadOnceADay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.many(1200)
	w.must(w.list.Sweep(t.Context()))
	w.runOnce()
	p, err := w.list.Catalogue(t.Context(), w.shop)
	w.must(err)
	if !p.Reading || p.ReadAt != nil {
		t.Fatalf("after it was asked for: %+v", p)
	}
	w.run()
	p, err = w.list.Catalogue(t.Context(), w.shop)
	w.must(err)
	if p.Reading || p.ReadAt == nil || p.Kept != 1201 || p.Objects != 1201 {
		t.Fatalf("after it was read: %+v", p)
	}
	if n := w.one(`SELECT count(*) FROM variants WHERE active AND observed_at IS NULL`); n != 1201 {
		t.Fatalf("%d variants are known", n)
	}
	for range 24 {
		w.pass(time.Hour - time.Minute)
	}
	if n := w.store.calls["StartCatalogue"]; n != 1 {
		t.Fatalf("exported %d times within a day", n)
	}
	w.pass(30 * time.Minute)
	if n := w.store.calls["StartCatalogue"]; n != 2 {
		t.Fatalf("exported %d times in a day and a bit", n)
	}
}

// The process dies in the middle of the file, and after every chunk another one goes on: no variant is read
// into a row twice, and none is left out.
func TestAnExportThatWasCutShortIsReadOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.many(2100)
	if err := w.list.ReadCatalogue(t.Context(), w.shop); err == nil {
		t.Fatal("it was asked for just now")
	}
	for n := range 4 {
		w.store.cut = n + 1 // chunks after which the file ends
		if err := w.list.ReadCatalogue(t.Context(), w.shop); err == nil {
			t.Fatal("a file that was cut short is no success")
		}
		if p, err := w.list.Catalogue(t.Context(), w.shop); err != nil || p.Kept != (n+1)*500 {
			t.Fatalf("after %d chunks: %+v, %v", n+1, p, err)
		}
		if n := w.one(`SELECT count(*) FROM variants WHERE NOT active`); n != 0 {
			t.Fatalf("%d variants count as deleted before the export was read to its end", n)
		}
	}
	w.store.cut = 0
	w.readCatalogue()
	if n := w.one(`SELECT count(*) FROM variants`); n != 2101 || w.store.calls["StartCatalogue"] != 1 {
		t.Fatalf("%d variants by %d exports", n, w.store.calls["StartCatalogue"])
	}
}

// Two processes at the same file: each chunk is kept once, and the end comes once.
func TestTwoProcessesReadOneExport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.many(2000)
	if err := w.list.ReadCatalogue(t.Context(), w.shop); err == nil {
		t.Fatal("it was asked for just now")
	}
	first := true
	w.store.chunk = func() {
		if first { // another process reads three chunks after the first one's first, and dies
			first = false
			w.store.cut = 4
			if err := w.list.ReadCatalogue(t.Context(), w.shop); err == nil {
				t.Error("a file that was cut short is no success")
			}
			w.store.cut = 0
		}
	}
	w.readCatalogue()
	if n := w.one(`SELECT count(*) FROM variants`); n != 2001 {
		t.Fatalf("%d variants", n)
	}
	if n := w.one(`SELECT kept FROM catalogues`); n != 2001 {
		t.Fatalf("kept %d", n)
	}
}

// An export fails, and another is asked for; Shopify is too busy to make one, and is asked later.
func TestAnExportThatFailsIsAskedForAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.store.then("StartCatalogue", func() error { return &waitlist.Throttled{After: time.Minute} })
	var throttled *waitlist.Throttled
	if err := w.list.ReadCatalogue(t.Context(), w.shop); !errors.As(err, &throttled) {
		t.Fatal(err)
	}
	w.store.then("StartCatalogue", func() error { return errors.New("the answer was lost") })
	if err := w.list.ReadCatalogue(t.Context(), w.shop); err == nil || w.one(`SELECT count(*) FROM catalogues WHERE operation IS NOT NULL`) != 0 {
		t.Fatal(err)
	}
	if err := w.list.ReadCatalogue(t.Context(), w.shop); err == nil {
		t.Fatal("it was asked for just now")
	}
	_, err := w.db.Exec(t.Context(), `UPDATE catalogues SET operation = 'one that Shopify does not know any more'`)
	w.must(err)
	var wait *waitlist.Wait
	if err := w.list.ReadCatalogue(t.Context(), w.shop); err == nil || errors.As(err, &wait) {
		t.Fatalf("of a failed export: %v", err)
	}
	w.readCatalogue()
	if n := w.one(`SELECT count(*) FROM variants`); n != 1 {
		t.Fatalf("%d variants", n)
	}
}

// What an export does not have was deleted; what was read of a variant while it was written is younger and
// stays; and variants that share an item are found by all the lines together.
func TestTheLaterWordCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.many(4)
	w.store.variants[10_001].InventoryItemID = w.store.variants[10_000].InventoryItemID
	w.readCatalogue()
	if n := w.one(`SELECT count(*) FROM variants WHERE shared_item AND id IN (10000, 10001)`); n != 2 || w.one(`SELECT count(*) FROM variants WHERE shared_item`) != 2 {
		t.Fatalf("%d of two share their item", n)
	}

	w.move(time.Hour)
	delete(w.store.variants, 10_003)
	if err := w.list.ReadCatalogue(t.Context(), w.shop); err == nil {
		t.Fatal("it was asked for just now")
	}
	w.move(time.Second)
	w.store.variants[10_000].Title = "Old word"
	w.store.exported = map[int64]waitlist.VariantReading{10_000: *w.store.variants[10_000]}
	w.store.variants[10_000].Title = "New word"
	w.webhook("products/update", `{"id":1000}`)
	w.run() // the product is read while the export is written
	w.readCatalogue()
	if got := w.text(`SELECT title FROM variants WHERE id = 10000`); got != "New word" {
		t.Errorf("the variant is called %s", got)
	}
	if n := w.one(`SELECT count(*) FROM variants WHERE NOT active AND id = 10003`); n != 1 || w.one(`SELECT count(*) FROM variants WHERE NOT active`) != 1 {
		t.Errorf("%d deleted variants are inactive", n)
	}
}

// An editor saves a product a hundred times in a minute: it is read now and then, and at last as it is in the
// end. One that is deleted has no variants any more.
func TestAThousandWebhooksOfAProductAreFewReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.many(20)
	w.readCatalogue()
	for n := range 100 {
		w.store.variants[10_000].Title = fmt.Sprint("Draft ", n)
		w.webhook("products/update", `{"id":1000}`)
		w.move(600 * time.Millisecond)
		w.runOnce()
	}
	w.move(6 * time.Second)
	w.run()
	if got := w.text(`SELECT title FROM variants WHERE id = 10000`); got != "Draft 99" {
		t.Errorf("the variant is called %s", got)
	}
	if n := w.store.calls["ReadProduct"]; n > 14 || n < 2 {
		t.Errorf("a hundred webhooks in a minute were %d reads", n)
	}
	if n := w.one(`SELECT count(*) FROM river_job WHERE kind = 'product'`) + w.one(`SELECT count(*) FROM product_hints WHERE hint_seq <> seen_seq`); n != 0 {
		t.Errorf("%d hints are left", n)
	}

	for id := int64(10_000); id < 10_010; id++ {
		delete(w.store.variants, id)
	}
	w.move(time.Minute)
	w.webhook("products/delete", `{"id":1000}`)
	w.run()
	if n := w.one(`SELECT count(*) FROM variants WHERE NOT active`); n != 10 {
		t.Errorf("%d variants of the deleted product are inactive", n)
	}
}

// A hint that comes while the product is read is not lost.
func TestAHintThatArrivesWhileAProductIsReadIsNotLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.many(1)
	w.webhook("products/update", `{"id":1000}`)
	w.store.then("ReadProduct", func() error {
		w.store.variants[10_000].Title = "Renamed"
		w.webhook("products/update", `{"id":1000}`)
		return w.list.HandleWebhook(t.Context(), w.shop, w.one(`SELECT max(id) FROM webhooks`))
	})
	w.run()
	w.move(6 * time.Second)
	w.run()
	if got := w.text(`SELECT title FROM variants WHERE id = 10000`); got != "Renamed" {
		t.Errorf("the variant is called %s", got)
	}
}

// A theme asks about a variant of the catalogue: nobody asks Shopify. Whoever taps is told when it can simply
// be bought, and while Shopify is away has a place all the same.
func TestAVariantOfTheCatalogueIsWaitableWithoutAsking(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.many(3)
	w.readCatalogue()
	w.store.calls = map[string]int{}
	got, err := w.list.Waitable(t.Context(), w.shop, "10000", "")
	w.must(err)
	if got.State != "waitable" || w.store.calls["ReadVariants"] != 0 {
		t.Fatalf("%+v, by %v", got, w.store.calls)
	}
	ask := func(variant string) waitlist.Tap { tapped := tap("ana"); tapped.VariantID = variant; return tapped }
	w.store.set(10_000, 2)
	if got, err := w.list.Join(t.Context(), w.shop, ask("10000")); err != nil || !got.InStock {
		t.Fatalf("%+v, %v", got, err)
	}
	w.store.set(10_001, 0)
	w.store.then("ReadVariants", func() error { return &waitlist.Away{After: time.Minute} })
	if got, err := w.list.Join(t.Context(), w.shop, ask("10001")); err != nil || got.InStock {
		t.Fatalf("%+v, %v", got, err)
	}
	w.store.set(10_001, 1)
	w.run()
	if n := len(w.outbox.to()); n != 1 {
		t.Fatalf("%d were told", n)
	}
}
