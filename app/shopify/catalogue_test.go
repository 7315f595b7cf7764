package shopify_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/app/shopify/shopifysim"
	"holdfast/app/simkit"
	"holdfast/app/waitlist"
)

// export makes an export of shop 1 and waits, by the simulated clock, until it has ended.
func (w *world) export() waitlist.CatalogueExport {
	w.Helper()
	operation, err := w.client.StartCatalogue(w.Context(), 1)
	w.ok(err)
	w.sim.Clock.Push(10 * time.Second)
	for objects := 0; ; {
		e, err := w.client.Catalogue(w.Context(), 1, operation)
		w.ok(err)
		if e.State != waitlist.ExportRunning {
			return e
		}
		if e.Objects <= objects {
			w.Fatalf("the export stands still: %+v", e)
		}
		objects = e.Objects
	}
}

// catalogue reads an export, and how it was handed over.
func (w *world) catalogue(e waitlist.CatalogueExport) (all map[int64]waitlist.VariantReading, batches []int, err error) {
	all = map[int64]waitlist.VariantReading{}
	err = w.client.ReadCatalogue(w.Context(), 1, e, func(batch []waitlist.VariantReading) error {
		batches = append(batches, len(batch))
		for _, r := range batch {
			all[r.ID] = r
		}
		return nil
	})
	return all, batches, err
}

func TestAnExportHoldsEveryVariantAsAReadOfItWould(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.export()
	if e.State != waitlist.ExportFinished || e.Objects != 17 || e.URL == "" {
		t.Fatalf("the export: %+v", e)
	}
	all, _, err := w.catalogue(e)
	w.ok(err)
	ids := []int64{oak, 30012, oiled, green, rust, 30023, bench, oil, stool, rocker, 30071, set, 30091, folding, 30102, 30111, 30112}
	read, err := w.client.ReadVariants(t.Context(), 1, ids, nil)
	w.ok(err)
	if len(all) != len(ids) {
		t.Errorf("exported %d variants of %d", len(all), len(ids))
	}
	for id, want := range read {
		want.SharedItem = false // which a line does not tell
		if all[id] != want {
			t.Errorf("exported %+v\n    read %+v", all[id], want)
		}
	}
}

func TestAnExportIsFollowedWhileItIsWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	operation, err := w.client.StartCatalogue(t.Context(), 1)
	w.ok(err)
	w.sim.Clock.Push(200 * time.Millisecond)
	e, err := w.client.Catalogue(t.Context(), 1, operation)
	w.ok(err)
	if e.State != waitlist.ExportRunning || e.Objects < 1 || e.Objects >= 17 || e.URL != "" {
		t.Errorf("half way: %+v", e)
	}
	if err := w.client.ReadCatalogue(t.Context(), 1, e, nil); err == nil {
		t.Error("an export that is not finished was read")
	}
	e, err = w.client.Catalogue(t.Context(), 1, "gid://shopify/BulkOperation/1")
	w.ok(err)
	if e.State != waitlist.ExportFailed || e.Why == "" {
		t.Errorf("an export that is not known: %+v", e)
	}
}

func TestAnExportThatFailsSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sim.Faults.Add(simkit.Fault{Target: "shopify", Op: "bulkOperationRunQuery", Mode: "bulk_failed", Count: 1})
	if e := w.export(); e.State != waitlist.ExportFailed || e.Why != "FAILED: INTERNAL_SERVER_ERROR" || e.URL != "" {
		t.Errorf("failed: %+v", e)
	}
	if e := w.export(); e.State != waitlist.ExportFinished {
		t.Errorf("the next one: %+v", e)
	}
}

func TestTooManyExportsAtOnceAreToWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 5 {
		_, err := w.client.StartCatalogue(t.Context(), 1)
		w.ok(err)
	}
	_, err := w.client.StartCatalogue(t.Context(), 1)
	var throttled *waitlist.Throttled
	if !errors.As(err, &throttled) || throttled.After != time.Minute {
		t.Errorf("the sixth: %v", err)
	}
	w.sim.Clock.Push(throttled.After)
	_, err = w.client.StartCatalogue(t.Context(), 1)
	w.ok(err)
}

func TestAFileThatEndsEarlyIsNotTheCatalogue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.export()
	w.sim.Faults.Add(simkit.Fault{Target: "shopify", Op: "bulkFile", Mode: "drop_after_commit", Count: 1})
	if _, _, err := w.catalogue(e); err == nil {
		t.Error("half a file was taken for the catalogue")
	}
	w.sim.Faults.Add(simkit.Fault{Target: "shopify", Op: "bulkFile", Mode: "status", Code: 404, Count: 1})
	if _, _, err := w.catalogue(e); err == nil {
		t.Error("a file that is gone was taken for the catalogue")
	}
	longer := e
	longer.Objects++ // as if the file had been cut between two lines
	if _, _, err := w.catalogue(longer); err == nil || !strings.Contains(err.Error(), "17 of 18") {
		t.Errorf("one line less than was written: %v", err)
	}
	stop := errors.New("stop")
	if err := w.client.ReadCatalogue(t.Context(), 1, e, func([]waitlist.VariantReading) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a reader that stopped: %v", err)
	}
	all, _, err := w.catalogue(e)
	w.ok(err)
	if len(all) != 17 {
		t.Errorf("at last %d", len(all))
	}
}

func TestAnEmptyShopsExportHasNoFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, batches, err := w.catalogue(waitlist.CatalogueExport{State: waitlist.ExportFinished}); err != nil || len(batches) > 0 {
		t.Errorf("handed over %v, %v", batches, err)
	}
}

func TestTheCatalogueIsReadInBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok(w.sim.Fill(chairs, 400, 3))
	all, batches, err := w.catalogue(w.export())
	w.ok(err)
	if len(all) != 1217 || !slices.Equal(batches, []int{500, 500, 217}) {
		t.Errorf("read %d variants in batches of %v", len(all), batches)
	}
}

func TestALargeCatalogueIsReadInBoundedMemory(t *testing.T) { // alone: others' memory would be counted, too
	w := newWorld(t)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	w.ok(w.sim.Fill(chairs, 20_000, 1)) // a file of 12 MB
	e := w.export()
	before, highest, read := heap(), uint64(0), 0
	w.ok(w.client.ReadCatalogue(t.Context(), 1, e, func(batch []waitlist.VariantReading) error {
		if read += len(batch); read%5000 == 0 {
			highest = max(highest, heap())
		}
		return nil
	}))
	if read != 20_017 {
		t.Errorf("read %d variants", read)
	}
	if highest == 0 || highest > before+4<<20 {
		t.Errorf("reading took %d bytes", int64(highest)-int64(before))
	}
}

func TestAProductsVariantsAreReadPageByPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := shopifysim.ProductSpec{ID: 3999, Handle: "many"}
	for i := range 60 {
		spec.Variants = append(spec.Variants, shopifysim.VariantSpec{ID: shopifysim.ID(39_000 + i), SKU: fmt.Sprint("M", i)})
	}
	w.ok(w.sim.AddProduct(chairs, spec))
	all, err := w.client.ReadProduct(t.Context(), 1, 3999)
	w.ok(err)
	for i, r := range all {
		if r.ID != int64(39_000+i) || r.ProductID != 3999 || r.Handle != "many" {
			t.Fatalf("variant %d is %+v", i, r)
		}
	}
	if len(all) != 60 {
		t.Errorf("read %d variants", len(all))
	}
	w.sim.Clock.Push(time.Minute)
	shared, err := w.client.ReadProduct(t.Context(), 1, 3010)
	w.ok(err)
	if len(shared) != 2 || !shared[0].SharedItem {
		t.Errorf("the folding chair: %+v", shared)
	}
	none, err := w.client.ReadProduct(t.Context(), 1, 3998)
	w.ok(err)
	if len(none) != 0 {
		t.Errorf("a product that does not exist: %+v", none)
	}
	w.wantNoFaultOfOurs()
}

func TestAShopsProfileIsReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, err := w.client.Profile(t.Context(), 1)
	w.ok(err)
	if p.Domain != chairs || p.Name != "Chairs" || p.Currency != "EUR" || p.Country != "IE" || p.Locale != "en" {
		t.Errorf("read %+v", p)
	}
	if _, err := w.client.Profile(t.Context(), 99); !errors.As(err, new(*waitlist.ShopRefused)) {
		t.Errorf("an unknown shop: %v", err)
	}
}

func TestOnlyDraftsThatWereChangedSinceAreListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hold(1, oiled)
	w.sim.Clock.Push(time.Hour)
	since := w.sim.Clock.Now()
	w.hold(2, oiled)
	drafts, next, err := w.client.ListDrafts(t.Context(), 1, since, "")
	w.ok(err)
	if len(drafts) != 1 || drafts[0].HoldID != 2 || next != "" {
		t.Errorf("listed %+v", drafts)
	}
	drafts, _, err = w.client.ListDrafts(t.Context(), 1, since.Add(-2*time.Hour), "")
	w.ok(err)
	if len(drafts) != 2 {
		t.Errorf("listed %+v", drafts)
	}
	w.wantNoFaultOfOurs()
}

func TestADraftSaysWhoseItIsAndKeepsToTheMerchantsDiscounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for hold, c := range map[int64]struct{ noAutomatic, noCodes bool }{1: {false, false}, 2: {true, false}, 3: {false, true}} {
		d, err := w.client.CreateDraft(t.Context(), 1, waitlist.NewDraft{HoldID: hold, VariantID: oiled, Mark: fmt.Sprint("mark-", hold),
			ReserveUntil: w.sim.Clock.Now().Add(time.Hour), NoAutomaticDiscounts: c.noAutomatic, NoDiscountCodes: c.noCodes})
		w.ok(err)
		read, _, err := w.client.ReadDraft(t.Context(), 1, d.ID)
		w.ok(err)
		if want := fmt.Sprint("mark-", hold); d.Mark != want || read.Mark != want {
			t.Errorf("marked %q and %q, want %q", d.Mark, read.Mark, want)
		}
		last := w.sim.Requests(chairs)
		sent := string(last[len(last)-2].Variables)
		if !strings.Contains(sent, fmt.Sprintf(`"acceptAutomaticDiscounts":%t`, !c.noAutomatic)) || !strings.Contains(sent, fmt.Sprintf(`"allowDiscountCodesInCheckout":%t`, !c.noCodes)) {
			t.Errorf("hold %d: sent %s", hold, sent)
		}
	}
}
