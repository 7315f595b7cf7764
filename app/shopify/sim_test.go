package shopify_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/app/shop"
	"holdfast/app/shopify"
	"holdfast/app/shopify/shopifysim"
	"holdfast/app/simkit"
	"holdfast/app/waitlist"
)

// The simulated Shopify's world: chairs.myshopify.com, on the Standard plan, with what is sold there.
const (
	chairs    = "chairs.myshopify.com"
	workshop  = 2001  // a location: drafts reserve here
	warehouse = 2002  // another
	oak       = 30011 // sold out
	oiled     = 30013 // 5 in stock
	green     = 30021 // sold out at two locations
	rust      = 30022 // 3 at the warehouse, none in the workshop
	bench     = 30031 // always for sale
	oil       = 30041 // not tracked
	stool     = 30051 // not published
	rocker    = 30061 // archived
	set       = 30081 // a bundle
	folding   = 30101 // shares its inventory item with 30102
	foldingIt = 40101
)

// installed is the shops that a test has installed the app in, by their ids, with tokens that do not
// expire.
type installed struct {
	shopify.Shops // what a test does not expect panics
	shops         map[int64]struct{ domain, token string }
}

func (s installed) ByID(_ context.Context, id int64) (shop.Shop, error) {
	sh, ok := s.shops[id]
	if !ok {
		return shop.Shop{}, shop.ErrNotFound
	}
	return shop.Shop{ID: id, Domain: sh.domain, Installed: true}, nil
}

func (s installed) Grant(_ context.Context, id int64) (shop.Grant, error) {
	return shop.Grant{Token: s.shops[id].token}, nil
}

func (s installed) RefuseGrant(context.Context, int64, shop.Grant, time.Time) error { return nil }

type world struct {
	*testing.T
	sim    *shopifysim.Test
	client *shopify.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	sim := shopifysim.NewTest(t)
	shops := installed{shops: map[int64]struct{ domain, token string }{
		1: {chairs, sim.Token(chairs)},
		2: {"lamps.myshopify.com", sim.Token("lamps.myshopify.com")},
		3: {"lamps.myshopify.com", sim.Token(chairs)}, // with the token of another shop
	}}
	client, err := shopify.New(shopify.Config{ClientID: "app", ClientSecret: shopifysim.TestSecret, Sim: sim.URL}, shops, sim.Clock.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return &world{t, sim, client}
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// hold creates the draft of a hold of one unit.
func (w *world) hold(id, variant int64) waitlist.Draft {
	w.Helper()
	d, err := w.client.CreateDraft(w.Context(), 1, waitlist.NewDraft{
		HoldID: id, VariantID: variant, Name: "Ana Smith", Email: "ana@example.com", ReserveUntil: w.sim.Clock.Now().Add(25 * time.Minute)})
	w.ok(err)
	return d
}

// wantNoFaultOfOurs fails when Shopify answered any call with an error, a throttled one included.
func (w *world) wantNoFaultOfOurs() {
	w.Helper()
	for _, r := range w.sim.Requests("") {
		if len(r.Errors) > 0 {
			w.Errorf("%s was answered with errors: %v", r.Op, r.Errors)
		}
	}
}

func TestEveryMethodWorksAgainstTheSimulatedShopify(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()

	found, err := w.client.ReadVariants(ctx, 1, []int64{oak, oiled, rust, bench, oil, stool, rocker, set, folding, 999}, nil)
	w.ok(err)
	if len(found) != 9 {
		t.Errorf("found %d variants", len(found))
	}
	r := found[oak]
	if r.ID != oak || r.ProductID != 3001 || r.InventoryItemID != 40011 || r.SKU != "OAK-NAT" || r.Title != "Natural" || r.Handle != "oak-chair" ||
		r.ProductTitle == "" || r.ImageURL == "" || r.Price != "249.00" || !r.Active || !r.Published || !r.Tracked || r.ContinueSelling ||
		r.Components || r.SharedItem || r.Sellable != 0 {
		t.Errorf("the oak chair: %+v", r)
	}
	if found[oiled].Sellable != 5 || found[rust].Sellable != 3 || !found[bench].ContinueSelling || found[oil].Tracked ||
		found[stool].Published || !found[stool].Active || found[rocker].Active || !found[set].Components || !found[folding].SharedItem {
		t.Errorf("read %+v", found)
	}

	at, err := w.client.ReadVariants(ctx, 1, []int64{rust, oiled}, []int64{workshop})
	w.ok(err)
	if at[rust].Sellable != 0 || at[oiled].Sellable != 5 || at[rust].SKU != "READ-RST" {
		t.Errorf("in the workshop: %+v", at)
	}
	at, err = w.client.ReadVariants(ctx, 1, []int64{rust}, []int64{workshop, warehouse})
	w.ok(err)
	if at[rust].Sellable != 3 {
		t.Errorf("in both: %+v", at)
	}

	for sku, want := range map[string]int{"OAK-NAT": 1, "oak-nat": 0, "KIDS": 2, "none": 0} {
		got, err := w.client.FindVariants(ctx, 1, sku)
		w.ok(err)
		if len(got) != want {
			t.Errorf("%q finds %+v, want %d", sku, got, want)
		}
	}
	d := w.hold(71, oiled)
	if d.ID == 0 || d.HoldID != 71 || d.Completed || d.InvoiceURL == "" || d.CreatedAt.IsZero() {
		t.Errorf("created %+v", d)
	}
	drafts, err := w.sim.Drafts(chairs)
	w.ok(err)
	if len(drafts) != 1 || drafts[0].Note != "Held for Ana Smith" || drafts[0].Email != "ana@example.com" || drafts[0].Reserved != 1 ||
		!slices.Equal(drafts[0].Tags, []string{"holdfast", waitlist.TagOf(71)}) {
		t.Errorf("Shopify has %+v", drafts)
	}
	read, ok, err := w.client.ReadDraft(ctx, 1, d.ID)
	w.ok(err)
	if !ok || read != d {
		t.Errorf("read %+v, want %+v", read, d)
	}
	for _, locations := range [][]int64{nil, {workshop}} {
		read, ok, sellable, err := w.client.ReadBack(ctx, 1, d.ID, oiled, locations)
		w.ok(err)
		if !ok || read != d || sellable != 4 {
			t.Errorf("read back %+v, %v, %d", read, ok, sellable)
		}
	}
	other := w.hold(72, oiled)
	drafts2, err := w.client.FindDrafts(ctx, 1, 71)
	w.ok(err)
	if !slices.Equal(drafts2, []waitlist.Draft{d}) {
		t.Errorf("found %+v", drafts2)
	}
	all, next, err := w.client.ListDrafts(ctx, 1, time.Time{}, "")
	w.ok(err)
	if !slices.Equal(all, []waitlist.Draft{d, other}) || next != "" {
		t.Errorf("listed %+v, next %q", all, next)
	}

	orderID, err := w.sim.Pay(other.InvoiceURL)
	w.ok(err)
	read, ok, err = w.client.ReadDraft(ctx, 1, other.ID)
	w.ok(err)
	if !ok || !read.Completed || read.OrderID != orderID {
		t.Errorf("paid: %+v, order %d", read, orderID)
	}
	w.ok(w.client.DeleteDraft(ctx, 1, d.ID))
	w.ok(w.client.DeleteDraft(ctx, 1, d.ID)) // gone already
	if _, ok, err = w.client.ReadDraft(ctx, 1, d.ID); ok || err != nil {
		t.Errorf("deleted: %v, %v", ok, err)
	}
	if _, ok, sellable, err := w.client.ReadBack(ctx, 1, d.ID, oiled, nil); ok || sellable != 4 || err != nil {
		t.Errorf("read back deleted: %v, %d, %v", ok, sellable, err)
	}
	if _, err := w.client.CreateDraft(ctx, 1, waitlist.NewDraft{HoldID: 73, VariantID: oak, ReserveUntil: w.sim.Clock.Now().Add(-time.Hour)}); !errors.As(err, new(*waitlist.Rejected)) {
		t.Errorf("a date that is past: %v", err)
	}
}

func TestSecondDraftOnOneUnitIsSeenByTheReadBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok(w.sim.SetStock(chairs, shopifysim.Change{VariantID: oak, Available: 1}))
	first, second := w.hold(1, oak), w.hold(2, oak)
	for _, d := range []waitlist.Draft{first, second} {
		if _, ok, sellable, err := w.client.ReadBack(t.Context(), 1, d.ID, oak, nil); !ok || sellable != -1 || err != nil {
			t.Errorf("%v, %d, %v", ok, sellable, err)
		}
	}
	w.wantNoFaultOfOurs()
}

func TestAVariantThatWasDeletedHasNothingToSell(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.hold(1, oiled)
	w.ok(w.sim.EditVariant(chairs, oiled, shopifysim.VariantEdit{Delete: true}))
	if _, _, sellable, err := w.client.ReadBack(t.Context(), 1, d.ID, oiled, nil); sellable != -1 || err != nil {
		t.Errorf("%d, %v", sellable, err)
	}
	if _, err := w.client.CreateDraft(t.Context(), 1, waitlist.NewDraft{HoldID: 2, VariantID: oiled, ReserveUntil: w.sim.Clock.Now().Add(time.Hour)}); !errors.As(err, new(*waitlist.Rejected)) {
		t.Errorf("a draft of it: %v", err)
	}
}

func TestShopifysFaultsAreToldApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	read := func(shopID int64) error {
		_, err := w.client.ReadVariants(t.Context(), shopID, []int64{oak}, nil)
		return err
	}
	w.ok(read(1))
	var refused *waitlist.ShopRefused
	if err := read(3); !errors.As(err, &refused) || refused.Status != 401 {
		t.Errorf("a token of another shop: %v", err)
	}
	for _, status := range []int{401, 402, 403, 404, 423} {
		w.sim.Faults.Add(simkit.Fault{Target: "shopify", Mode: "status", Code: status, Count: 1})
		if err := read(1); !errors.As(err, &refused) || refused.Status != status {
			t.Errorf("%d: %v", status, err)
		}
	}
	for _, f := range []simkit.Fault{{Mode: "html_502"}, {Mode: "status", Code: 500}, {Mode: "drop_after_commit"}} {
		f.Target, f.Op, f.Count = "shopify", "nodes", 1
		w.sim.Faults.Add(f)
		err := read(1)
		if err == nil || errors.As(err, new(*waitlist.Throttled)) || errors.As(err, new(*waitlist.ShopRefused)) || errors.As(err, new(*waitlist.Rejected)) {
			t.Errorf("%s: %v", f.Mode, err)
		}
	}
	w.sim.Faults.Add(simkit.Fault{Target: "shopify", Mode: "throttle", Count: 1})
	var throttled *waitlist.Throttled
	if err := read(1); !errors.As(err, &throttled) || throttled.After <= 0 {
		t.Errorf("throttled: %v", err)
	}
	w.sim.Clock.Push(time.Minute)
	w.ok(read(1))
}

func TestADraftWhoseAnswerWasLostIsFoundByItsTag(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sim.Faults.Add(simkit.Fault{Target: "shopify", Op: "draftOrderCreate", Mode: "drop_after_commit", Count: 1})
	_, err := w.client.CreateDraft(t.Context(), 1, waitlist.NewDraft{HoldID: 9, VariantID: oiled, Currency: "EUR", ReserveUntil: w.sim.Clock.Now().Add(time.Hour)})
	if err == nil || errors.As(err, new(*waitlist.Rejected)) {
		t.Fatalf("got %v, want an unknown outcome", err)
	}
	drafts, err := w.client.FindDrafts(t.Context(), 1, 9)
	w.ok(err)
	if len(drafts) != 1 || drafts[0].HoldID != 9 || drafts[0].InvoiceURL == "" {
		t.Errorf("found %+v", drafts)
	}
}

// Reading spends the budget of the Standard plan faster than it comes back. The client never asks for
// more than there is: Shopify throttles nothing.
func TestABurstStaysWithinTheBudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := []int64{oak, 30012, oiled, green, rust, 30023, bench, oil, stool, rocker, 30071, set, 30091, folding, 30102, 30111, 30112}
	heldBack := 0
	for range 30 {
		found, err := w.client.ReadVariants(t.Context(), 1, ids, nil)
		var throttled *waitlist.Throttled
		if errors.As(err, &throttled) {
			heldBack++
			w.sim.Clock.Push(throttled.After)
			continue
		}
		w.ok(err)
		if len(found) != len(ids) {
			t.Fatalf("found %d variants of %d", len(found), len(ids))
		}
	}
	if heldBack == 0 {
		t.Error("the budget was never used up: this test shows nothing")
	}
	w.wantNoFaultOfOurs()
}

// Three hundred drafts are created as fast as a Standard shop's points come back, one in a tenth of a
// second of ten points, while four others take whatever they can get to read lists and products.
func TestPressesNeverWaitForWhatCanWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok(w.sim.SetStock(chairs, shopifysim.Change{VariantID: oiled, Available: 300}))
	ctx, stop := context.WithCancel(t.Context())
	var heldBack, synced atomic.Int64
	var all sync.WaitGroup
	pushed := make(chan struct{}, 4)
	for i := range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				var err error
				if i%2 == 0 {
					_, _, err = w.client.ListDrafts(ctx, 1, time.Time{}, "")
				} else {
					_, err = w.client.ReadProduct(ctx, 1, 3001)
				}
				switch {
				case errors.As(err, new(*waitlist.Throttled)):
					heldBack.Add(1)
					select {
					case <-pushed:
					case <-ctx.Done():
					}
				case err == nil:
					synced.Add(1)
				case ctx.Err() == nil:
					t.Errorf("syncing: %v", err)
				}
			}
		})
	}
	for i := range int64(300) {
		_, err := w.client.CreateDraft(ctx, 1, waitlist.NewDraft{HoldID: i + 1, VariantID: oiled, ReserveUntil: w.sim.Clock.Now().Add(time.Hour)})
		if err != nil {
			t.Errorf("draft %d: %v", i+1, err)
		}
		w.sim.Clock.Push(100 * time.Millisecond)
		for range cap(pushed) {
			select {
			case pushed <- struct{}{}:
			default:
			}
		}
	}
	stop()
	all.Wait()
	if heldBack.Load() == 0 || synced.Load() == 0 {
		t.Errorf("%d calls were held back and %d made: this test shows nothing", heldBack.Load(), synced.Load())
	}
	w.wantNoFaultOfOurs()
}

func TestAPlusShopsBudgetIsLearnt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := w.client.Budget(t.Context(), 2, 2000); err != nil {
		t.Error(err)
	}
	_, err := w.client.FindVariants(t.Context(), 2, "LAMP-BRS")
	w.ok(err)
	if err := w.client.Budget(t.Context(), 2, 19_000); err != nil {
		t.Errorf("a Plus shop has 20,000 points: %v", err)
	}
}

func TestListingGoesOnPageByPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var want []int64
	for id := range int64(120) {
		want = append(want, w.hold(id+1, oiled).HoldID)
		w.sim.Clock.Push(time.Second)
	}
	var got []int64
	pages := 0
	for after := ""; ; {
		drafts, next, err := w.client.ListDrafts(t.Context(), 1, time.Time{}, after)
		w.ok(err)
		pages++
		for _, d := range drafts {
			got = append(got, d.HoldID)
		}
		if next == "" {
			break
		}
		after = next
		w.sim.Clock.Push(10 * time.Second)
	}
	if !slices.Equal(got, want) || pages != 3 {
		t.Errorf("listed %d drafts in %d pages", len(got), pages)
	}
	w.wantNoFaultOfOurs()
}

func TestTwentyAtOnceHaveADraftEach(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	var wg sync.WaitGroup
	for i := range int64(20) {
		wg.Go(func() {
			hold := i + 1
			check := func(err error) {
				if err != nil {
					t.Errorf("hold %d: %v", hold, err)
				}
			}
			_, err := w.client.ReadVariants(ctx, 1, []int64{oiled}, []int64{workshop})
			check(err)
			d, err := w.client.CreateDraft(ctx, 1, waitlist.NewDraft{HoldID: hold, VariantID: oiled, ReserveUntil: w.sim.Clock.Now().Add(time.Hour)})
			check(err)
			if _, ok, _, err := w.client.ReadBack(ctx, 1, d.ID, oiled, nil); !ok {
				t.Errorf("hold %d: its draft is gone, %v", hold, err)
			}
			drafts, err := w.client.FindDrafts(ctx, 1, hold)
			check(err)
			if len(drafts) != 1 || drafts[0].ID != d.ID {
				t.Errorf("hold %d: found %+v", hold, drafts)
			}
			check(w.client.DeleteDraft(ctx, 1, d.ID))
			if err := w.client.Budget(ctx, 2, 10); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	found, err := w.client.ReadVariants(ctx, 1, []int64{oiled}, nil)
	w.ok(err)
	if found[oiled].Sellable != 5 {
		t.Errorf("%d are left of 5", found[oiled].Sellable)
	}
	w.wantNoFaultOfOurs()
}

// What the simulated Shopify sends is verified as what Shopify sends.
func TestWhatTheSimulatedShopifySendsIsVerified(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	verifier, err := shopify.NewVerifier("app", shopifysim.TestSecret, "")
	w.ok(err)
	app := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/webhooks/shopify" {
			domain, hook, err := verifier.VerifyWebhook(r)
			if err != nil || domain != chairs || hook.Topic != "products/update" || string(hook.Body) != `{"id": 1}` {
				rw.WriteHeader(http.StatusUnauthorized)
			}
			return
		}
		p, err := verifier.VerifyProxy(r, w.sim.Clock.Now(), 0)
		if err != nil || p.Shop != chairs || p.Client != "198.51.100.9" || p.PathPrefix != shopifysim.ProxyPrefix {
			t.Logf("%+v, %v", p, err)
			rw.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer app.Close()
	w.sim.Deliver(app.URL)

	for tamper, want := range map[shopifysim.Tamper]int{"": 200, "sig": 401, "none": 401, "body": 401} {
		d, err := w.sim.SendWebhook(t.Context(), shopifysim.Hook{Shop: chairs, Topic: "products/update", Body: []byte(`{"id": 1}`), Tamper: tamper})
		w.ok(err)
		if last := d.Attempts[len(d.Attempts)-1]; last.Status != want {
			t.Errorf("a webhook with tamper %q is answered %d", tamper, last.Status)
		}
	}
	for tamper, want := range map[shopifysim.Tamper]int{"": 200, "sig": 401, "none": 401, "shop": 401, "customer": 401, "query": 401, "duplicate": 401, "stale": 401} {
		res, err := w.sim.Proxy(t.Context(), shopifysim.ProxyRequest{Shop: chairs, Path: "/waitlist?variant_id=1", IP: "198.51.100.9",
			Headers: map[string]string{"X-Forwarded-For": "10.0.0.1"}, Tamper: tamper})
		w.ok(err)
		if res.Status != want {
			t.Errorf("a proxied request with tamper %q is answered %d", tamper, res.Status)
		}
	}
}

func TestTheDefaultLocationIsWhereDraftsReserve(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, err := w.client.DefaultLocation(t.Context(), 1)
	w.ok(err)
	if id != 2001 {
		t.Errorf("got %d", id)
	}
}
