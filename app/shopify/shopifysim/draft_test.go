package shopifysim

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// want checks available, reserved, committed and on hand of a variant.
func want(t *testing.T, s *Test, variant int64, available, reserved, committed, onHand int) {
	t.Helper()
	inv, err := s.Inventory(chairs, variant)
	if err != nil {
		t.Fatal(err)
	}
	if inv.Available != available || inv.Reserved != reserved || inv.Committed != committed || inv.OnHand != onHand {
		t.Errorf("variant %d: available %d, reserved %d, committed %d, on hand %d; want %d, %d, %d, %d",
			variant, inv.Available, inv.Reserved, inv.Committed, inv.OnHand, available, reserved, committed, onHand)
	}
}

func wantStatus(t *testing.T, err error, status int) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Status != status {
		t.Errorf("error %v, want one with status %d", err, status)
	}
}

func theDraft(t *testing.T, s *Test, gid string) Draft {
	t.Helper()
	drafts, err := s.Drafts(chairs)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range drafts {
		if strings.HasSuffix(gid, "/"+d.ID.String()) {
			return d
		}
	}
	t.Fatalf("no draft %s among %v", gid, drafts)
	return Draft{}
}

func TestADraftReservesAUnitAndASecondOneOversells(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	create(t, s, chairs, diningTable, "")
	want(t, s, diningTable, 0, 1, 0, 1)
	create(t, s, chairs, diningTable, "")
	want(t, s, diningTable, -1, 2, 0, 1)
	a := get(t, s, chairs, stockDoc, variantVar(diningTable))
	if a.at(t, "productVariant.sellableOnlineQuantity") != -1.0 || a.at(t, "productVariant.availableForSale") != false {
		t.Errorf("read back %s, want -1 and not for sale", a.raw)
	}
}

func TestADraftReservesAtTheFirstLocationWhetherItHasStockOrNot(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	create(t, s, chairs, readRust, "") // 3 in the warehouse, none in the workshop
	inv, err := s.Inventory(chairs, readRust)
	if err != nil {
		t.Fatal(err)
	}
	if l := inv.Locations; l[0].Name != "Workshop" || l[0].Available != -1 || l[0].Reserved != 1 || l[1].Available != 3 || inv.Sellable != 2 {
		t.Errorf("levels %+v sellable %d, want -1 in the workshop, 3 in the warehouse, 2 sellable", l, inv.Sellable)
	}
}

func TestADraftWithoutADateReservesNothing(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	get(t, s, chairs, createDoc, `{"input":{"lineItems":[{"variantId":"gid://shopify/ProductVariant/30091","quantity":1}]}}`)
	want(t, s, diningTable, 1, 0, 0, 1)
}

func TestADraftKeepsWhatItWasGiven(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	id := create(t, s, chairs, diningTable, `,"tags":["holdfast-7","holdfast"],"email":"ana@example.com","note":"for Ana","customAttributes":[{"key":"_holdfast_hold","value":"7"}],"visibleToCustomer":false,"acceptAutomaticDiscounts":true,"allowDiscountCodesInCheckout":true,"presentmentCurrencyCode":"USD"`)
	a := get(t, s, chairs, `query($id:ID!){draftOrder(id:$id){tags email note2 customAttributes{key value} visibleToCustomer acceptAutomaticDiscounts allowDiscountCodesInCheckout presentmentCurrencyCode currencyCode totalPriceSet{shopMoney{amount currencyCode}} lineItems(first:1){nodes{title variant{id} quantity originalUnitPriceSet{shopMoney{amount}}}}}}`, `{"id":"`+id+`"}`)
	for path, want := range map[string]any{
		"tags.0": "holdfast", "tags.1": "holdfast-7", "email": "ana@example.com", "note2": "for Ana", "customAttributes.0.value": "7",
		"visibleToCustomer": false, "acceptAutomaticDiscounts": true, "presentmentCurrencyCode": "USD", "currencyCode": "EUR",
		"totalPriceSet.shopMoney.amount": "690.00", "lineItems.nodes.0.variant.id": "gid://shopify/ProductVariant/30091", "lineItems.nodes.0.quantity": 1.0,
	} {
		if got := a.at(t, "draftOrder."+path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
	d := theDraft(t, s, id)
	if d.Status != "OPEN" || d.Reserved != 1 || d.OrderID != nil || d.VariantID != diningTable || !strings.HasPrefix(d.InvoiceURL, s.URL+"/shopify/"+chairs+"/1001/invoices/") {
		t.Errorf("the script sees %+v", d)
	}
}

func TestADraftThatShopifyWouldRefuseIsRefusedInItsWords(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	if err := s.EditVariant(chairs, oakNatural, VariantEdit{Delete: true}); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 41)
	for _, c := range []struct{ vars, message, field string }{
		{draftInput(s, diningTable, -time.Minute, ""), "Reserve until can't be in the past", "<nil>"},
		{draftInput(s, oakNatural, time.Minute, ""), "Product with ID 30011 is no longer available.", "<nil>"},
		{`{"input":{"lineItems":[]}}`, "Add at least 1 product", "<nil>"},
		{`{"input":{}}`, "Add at least 1 product", "<nil>"},
		{draftInput(s, diningTable, time.Minute, `,"email":"ana"`), "Email is invalid", "[email]"},
		{draftInput(s, diningTable, time.Minute, `,"tags":["fine","`+long+`"]`), "Title Tag exceeds the maximum length of 40 characters", "[input tags 1]"},
	} {
		a := get(t, s, chairs, createDoc, c.vars)
		e := a.at(t, "draftOrderCreate.userErrors.0").(map[string]any)
		if e["message"] != c.message || fmt.Sprint(e["field"]) != c.field || a.at(t, "draftOrderCreate.draftOrder") != nil {
			t.Errorf("%s: %s, want %q at %s", c.vars, a.raw, c.message, c.field)
		}
	}
	want(t, s, diningTable, 1, 0, 0, 1)
}

func TestDeletingAnOpenDraftGivesItsUnitBackAtOnceAndKillsItsInvoice(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	id := create(t, s, chairs, diningTable, "")
	url := theDraft(t, s, id).InvoiceURL
	a := get(t, s, chairs, deleteDoc, `{"input":{"id":"`+id+`"}}`)
	if a.at(t, "draftOrderDelete.deletedId") != id {
		t.Errorf("deleted %s", a.raw)
	}
	want(t, s, diningTable, 1, 0, 0, 1)
	if a := get(t, s, chairs, readDoc, `{"id":"`+id+`"}`); a.at(t, "draftOrder") != nil {
		t.Errorf("read %s, want null", a.raw)
	}
	_, err := s.Pay(url)
	wantStatus(t, err, http.StatusNotFound)
	again := get(t, s, chairs, deleteDoc, `{"input":{"id":"`+id+`"}}`)
	if again.at(t, "draftOrderDelete.deletedId") != nil || again.at(t, "draftOrderDelete.userErrors.0.message") != "Draft order not found" {
		t.Errorf("a second delete: %s", again.raw)
	}
	want(t, s, diningTable, 1, 0, 0, 1)
}

func TestWhoHoldsTheLastUnitCanPayForIt(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	id := create(t, s, chairs, diningTable, `,"tags":["holdfast-7"],"customAttributes":[{"key":"_holdfast_hold","value":"7"}]`)
	url := theDraft(t, s, id).InvoiceURL
	if _, err := s.Buy(chairs, diningTable, 1, ""); err == nil {
		t.Error("a stranger bought the reserved unit")
	}
	order, err := s.Pay(url)
	if err != nil {
		t.Fatal(err)
	}
	want(t, s, diningTable, 0, 0, 1, 1)
	a := get(t, s, chairs, readDoc, `{"id":"`+id+`"}`)
	if a.at(t, "draftOrder.status") != "COMPLETED" || a.at(t, "draftOrder.order.id") != fmt.Sprintf("gid://shopify/Order/%d", order) || a.at(t, "draftOrder.completedAt") == nil {
		t.Errorf("read %s, want it completed with its order", a.raw)
	}
	o := get(t, s, chairs, fmt.Sprintf(`{order(id:"gid://shopify/Order/%d"){tags customAttributes{key value} lineItems(first:5){nodes{variant{id} quantity}}}}`, order), "")
	if o.at(t, "order.tags.0") != "holdfast-7" || o.at(t, "order.customAttributes.0.value") != "7" || o.at(t, "order.lineItems.nodes.0.variant.id") != "gid://shopify/ProductVariant/30091" {
		t.Errorf("the order is %s, want the draft's tags and attributes", o.raw)
	}
	_, err = s.Pay(url)
	wantStatus(t, err, http.StatusConflict)
}

func TestDeletingACompletedDraftUndoesNothing(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	id := create(t, s, chairs, diningTable, "")
	order, err := s.Pay(theDraft(t, s, id).InvoiceURL)
	if err != nil {
		t.Fatal(err)
	}
	if a := get(t, s, chairs, deleteDoc, `{"input":{"id":"`+id+`"}}`); a.at(t, "draftOrderDelete.deletedId") != id {
		t.Errorf("delete: %s, want it accepted", a.raw)
	}
	want(t, s, diningTable, 0, 0, 1, 1)
	if a := get(t, s, chairs, fmt.Sprintf(`{order(id:"gid://shopify/Order/%d"){name cancelledAt}}`, order), ""); a.at(t, "order.name") != "#1001" || a.at(t, "order.cancelledAt") != nil {
		t.Errorf("the order is %s, want it untouched", a.raw)
	}
}

func TestWhenTheDatePassesShopifyRestocksButTheDraftStaysOpenAndPayableWhileThereIsStock(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	first, second := create(t, s, chairs, diningTable, ""), create(t, s, chairs, diningTable, "")
	one, two := theDraft(t, s, first).InvoiceURL, theDraft(t, s, second).InvoiceURL
	want(t, s, diningTable, -1, 2, 0, 1)
	s.Clock.Push(9 * time.Minute)
	s.Tick()
	want(t, s, diningTable, -1, 2, 0, 1)
	s.Clock.Push(time.Minute)
	a := get(t, s, chairs, readDoc, `{"id":"`+first+`"}`)
	if a.at(t, "draftOrder.status") != "OPEN" {
		t.Errorf("read %s, want it open", a.raw)
	}
	want(t, s, diningTable, 1, 0, 0, 1)
	if _, err := s.Pay(one); err != nil {
		t.Errorf("with stock: %v, want it payable", err)
	}
	want(t, s, diningTable, 0, 0, 1, 1)
	_, err := s.Pay(two)
	wantStatus(t, err, http.StatusConflict)
	if d := theDraft(t, s, second); d.Status != "OPEN" {
		t.Errorf("the other draft is %s, want it open still", d.Status)
	}
	if err := s.SetStock(chairs, Change{VariantID: diningTable, Available: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pay(two); err != nil {
		t.Errorf("after a delivery: %v, want it payable", err)
	}
}

func TestADeletedDraftWhoseDateHasPassedGivesNothingBackTwice(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	id := create(t, s, chairs, diningTable, "")
	s.Clock.Push(11 * time.Minute)
	get(t, s, chairs, deleteDoc, `{"input":{"id":"`+id+`"}}`)
	want(t, s, diningTable, 1, 0, 0, 1)
}

func TestTheMerchantCompletesADraftWithoutALookAtStock(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	id := create(t, s, chairs, oakNatural, "")
	want(t, s, oakNatural, -1, 1, 0, 0)
	s.Clock.Push(11 * time.Minute)
	if _, err := s.CompleteDraft(int64(theDraft(t, s, id).ID)); err != nil {
		t.Fatal(err)
	}
	want(t, s, oakNatural, -1, 0, 1, 0)
	_, err := s.CompleteDraft(int64(theDraft(t, s, id).ID))
	wantStatus(t, err, http.StatusConflict)
}

func TestACheckoutThatWasOpenedBeforeAnEditNoLongerCompletesTheDraft(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	id := create(t, s, chairs, diningTable, `,"customAttributes":[{"key":"_holdfast_hold","value":"7"}]`)
	d := theDraft(t, s, id)
	res, err := http.Get(d.InvoiceURL)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if err := s.EditDraft(int64(d.ID), 0); err != nil {
		t.Fatal(err)
	}
	order, err := s.Pay(d.InvoiceURL)
	if err != nil || order == 0 {
		t.Fatalf("pay: %d %v, want an order", order, err)
	}
	if d := theDraft(t, s, id); d.Status != "OPEN" || d.OrderID != nil || d.Reserved != 1 {
		t.Errorf("the draft is %+v, want it open and reserving", d)
	}
	want(t, s, diningTable, -1, 1, 1, 1)
	_, err = s.Pay(d.InvoiceURL)
	wantStatus(t, err, http.StatusConflict)
}

func TestStrangersBuyWhatIsThereAndNoMore(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	order, err := s.Buy(chairs, oakWhite, 3, "x@example.com")
	if err != nil {
		t.Fatal(err)
	}
	want(t, s, oakWhite, 2, 0, 3, 5)
	_, err = s.Buy(chairs, oakWhite, 3, "")
	wantStatus(t, err, http.StatusConflict)
	for _, gone := range []int64{30051, 30061, 30071, 1} { // unpublished, archived, draft, unknown
		_, err = s.Buy(chairs, gone, 1, "")
		wantStatus(t, err, http.StatusNotFound)
	}
	if _, err := s.Buy(chairs, readRust, 2, ""); err != nil { // from the warehouse
		t.Error(err)
	}
	if _, err := s.Buy(chairs, 30031, 2, ""); err != nil { // CONTINUE: oversells
		t.Error(err)
	}
	want(t, s, 30031, -2, 0, 2, 0)
	if _, err := s.Buy(chairs, 30041, 2, ""); err != nil { // not tracked: in nobody's books
		t.Error(err)
	}
	want(t, s, 30041, 0, 0, 0, 0)
	if _, err := s.Buy(chairs, 30081, 1, ""); err == nil { // the bundle needs 4 white chairs, 2 are left
		t.Error("a bundle was sold that cannot be made")
	}
	if err := s.CancelOrder(order, true); err != nil {
		t.Fatal(err)
	}
	want(t, s, oakWhite, 5, 0, 0, 5)
	wantStatus(t, s.CancelOrder(order, true), http.StatusConflict)
	if _, err := s.Buy(chairs, 30081, 1, ""); err != nil {
		t.Error(err)
	}
	want(t, s, oakWhite, 1, 0, 4, 5)
	want(t, s, diningTable, 0, 0, 1, 1)
}

func TestAnOrderThatIsCancelledWithoutRestockingTakesItsUnitsAway(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	order, err := s.Buy(chairs, oakWhite, 2, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CancelOrder(order, false); err != nil {
		t.Fatal(err)
	}
	want(t, s, oakWhite, 3, 0, 0, 3)
	wantStatus(t, s.CancelOrder(1, false), http.StatusNotFound)
}

func TestTheLedgerAddsUpToTheStock(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	a, b := create(t, s, chairs, oakWhite, ""), create(t, s, chairs, oakWhite, "")
	c := create(t, s, chairs, oakWhite, "")
	if _, err := s.Pay(theDraft(t, s, a).InvoiceURL); err != nil {
		t.Fatal(err)
	}
	get(t, s, chairs, deleteDoc, `{"input":{"id":"`+b+`"}}`)
	s.Clock.Push(time.Hour)
	if _, err := s.Buy(chairs, oakWhite, 1, ""); err != nil {
		t.Fatal(err)
	}
	if err := s.SetStock(chairs, Change{VariantID: oakWhite, Available: 9}, Change{VariantID: oakWhite, Available: 2, LocationID: 2002}); err != nil {
		t.Fatal(err)
	}
	ledger, err := s.Ledger(chairs)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	available, reserved, committed := 0, 0, 0
	for i, e := range ledger {
		if e.Seq != i+1 {
			t.Errorf("entry %d has number %d", i+1, e.Seq)
		}
		if e.InventoryItemID == oakWhite+10000 {
			kinds = append(kinds, e.Kind)
			available += e.Available
			reserved += e.Reserved
			committed += e.Committed
		}
	}
	want(t, s, oakWhite, available, reserved, committed, available+reserved+committed)
	if got := strings.Join(kinds, " "); got != "opening reserve reserve reserve paid release expire sale set set" {
		t.Errorf("the ledger tells %q", got)
	}
	if d := theDraft(t, s, c); d.Reserved != 0 {
		t.Errorf("the third draft still holds %d", d.Reserved)
	}
}

func TestAResetBringsTheFixedWorldBack(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	before := fmt.Sprint(s.Shops())
	id := create(t, s, chairs, oakWhite, "")
	if err := s.AddShop(ShopSpec{Shop: "tables.myshopify.com", Products: []ProductSpec{{Handle: "t", Variants: []VariantSpec{{SKU: "T", Available: 2}}}}}); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, s.AddShop(ShopSpec{Shop: "tables.myshopify.com"}), http.StatusConflict)
	wantStatus(t, s.AddShop(ShopSpec{Shop: "evil.com/x.myshopify.com"}), http.StatusBadRequest)
	if n := len(s.Shops()); n != 3 {
		t.Errorf("%d shops, want 3", n)
	}
	if err := s.Reset(); err != nil {
		t.Fatal(err)
	}
	if after := fmt.Sprint(s.Shops()); after != before {
		t.Errorf("after the reset %s, want %s", after, before)
	}
	if next := create(t, s, chairs, oakWhite, ""); next == id {
		t.Errorf("the id %s was given out twice", id)
	}
}
