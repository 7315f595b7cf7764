package shopify

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/app/waitlist"
)

// draftJSON is a draft of a hold as Shopify answers it.
func draftJSON(id, hold int64) string {
	return fmt.Sprintf(`{"id":"gid://shopify/DraftOrder/%d","status":"OPEN","invoiceUrl":"https://chairs.myshopify.com/1/invoices/%d",
		"createdAt":"2026-11-30T12:00:01Z","tags":["holdfast","holdfast-%d"],"customAttributes":[{"key":"_holdfast_hold","value":"%d"}],"order":null}`, id, id, hold, hold)
}

func TestADraftHoldsOneUnitForOnePerson(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, saysInTurn(`{"data":{"draftOrderCreate":{"draftOrder":`+draftJSON(9, 5)+`,"userErrors":[]}}}`))
	d, err := a.client.CreateDraft(t.Context(), 1, waitlist.NewDraft{Mark: "mark",
		HoldID: 5, VariantID: 41, Name: "Ana  Smith\n", Email: "ana@example.com", Currency: "SEK",
		ReserveUntil: time.Date(2026, 11, 30, 13, 25, 0, 0, time.FixedZone("", 3600)),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := waitlist.Draft{ID: 9, HoldID: 5, InvoiceURL: "https://chairs.myshopify.com/1/invoices/9", CreatedAt: time.Date(2026, 11, 30, 12, 0, 1, 0, time.UTC), Mark: "5"}
	if d != want {
		t.Errorf("got %+v, want %+v", d, want)
	}
	wantInput(t, a.calls()[0], `{
		"lineItems": [{"variantId": "gid://shopify/ProductVariant/41", "quantity": 1}],
		"tags": ["holdfast", "holdfast-5"],
		"customAttributes": [{"key": "_holdfast_hold", "value": "mark"}],
		"reserveInventoryUntil": "2026-11-30T12:25:00Z",
		"email": "ana@example.com", "note": "Held for Ana Smith", "presentmentCurrencyCode": "SEK",
		"visibleToCustomer": false, "acceptAutomaticDiscounts": true, "allowDiscountCodesInCheckout": true}`)
}

func TestWhatIsNotKnownOfAPersonIsNotSent(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, saysInTurn(`{"data":{"draftOrderCreate":{"draftOrder":`+draftJSON(9, 5)+`,"userErrors":[]}}}`))
	if _, err := a.client.CreateDraft(t.Context(), 1, waitlist.NewDraft{Mark: "mark", HoldID: 5, VariantID: 41, Name: " \t", ReserveUntil: a.clock.Now()}); err != nil {
		t.Fatal(err)
	}
	wantInput(t, a.calls()[0], `{
		"lineItems": [{"variantId": "gid://shopify/ProductVariant/41", "quantity": 1}],
		"tags": ["holdfast", "holdfast-5"],
		"customAttributes": [{"key": "_holdfast_hold", "value": "mark"}],
		"reserveInventoryUntil": "2026-11-30T12:00:00Z",
		"visibleToCustomer": false, "acceptAutomaticDiscounts": true, "allowDiscountCodesInCheckout": true}`)
}

func wantInput(t *testing.T, q request, want string) {
	t.Helper()
	var w any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(q.Variables["input"], w) {
		t.Errorf("sent %v\nwant %v", q.Variables["input"], w)
	}
}

func TestANoteIsBoundedAndInOneLine(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"":                       "",
		"\x00\n":                 "",
		"Ana\r\nSmith\x1b":       "Held for Ana Smith",
		strings.Repeat("é", 500): "Held for " + strings.Repeat("é", maxName),
	} {
		if got := note(name); got != want {
			t.Errorf("note(%q) = %q", name, got)
		}
	}
}

func TestADraftWithoutAHoldIsNotCreated(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, says(500, ""))
	for _, d := range []waitlist.NewDraft{
		{VariantID: 1, ReserveUntil: a.clock.Now()}, {HoldID: 1, ReserveUntil: a.clock.Now()}, {HoldID: 1, VariantID: 1},
	} {
		if _, err := a.client.CreateDraft(t.Context(), 1, d); err == nil {
			t.Errorf("%+v was created", d)
		}
	}
	if len(a.calls()) > 0 {
		t.Error("Shopify was called")
	}
}

func TestACurrencyThatShopifyDoesNotTakeDoesNotCostTheUnit(t *testing.T) {
	t.Parallel()
	created := `{"data":{"draftOrderCreate":{"draftOrder":` + draftJSON(9, 5) + `,"userErrors":[]}}}`
	d := waitlist.NewDraft{HoldID: 5, VariantID: 41, Currency: "XXX", ReserveUntil: time.Unix(2e9, 0)}
	for name, no := range map[string]string{
		"by the schema": `{"errors":[{"message":"Variable $input of type DraftOrderInput! was provided invalid value for presentmentCurrencyCode","extensions":{"code":"INVALID_VARIABLE"}}]}`,
		"by the shop":   `{"data":{"draftOrderCreate":{"draftOrder":null,"userErrors":[{"field":["input","presentmentCurrencyCode"],"message":"is not enabled"}]}}}`,
	} {
		a := newAdmin(t, saysInTurn(no, created))
		if _, err := a.client.CreateDraft(t.Context(), 1, d); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		calls := a.calls()
		if len(calls) != 2 {
			t.Errorf("%s: called %d times", name, len(calls))
			continue
		}
		if c, ok := calls[1].Variables["input"].(map[string]any)["presentmentCurrencyCode"]; ok {
			t.Errorf("%s: sent %v again", name, c)
		}
	}
	// Not when the draft may have been created: there would be two.
	a := newAdmin(t, says(502, "<html>"))
	if _, err := a.client.CreateDraft(t.Context(), 1, d); err == nil || len(a.calls()) != 1 {
		t.Errorf("an unknown outcome: called %d times, %v", len(a.calls()), err)
	}
}

func TestADraftThatShopifyDoesNotTakeIsRejected(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, saysInTurn(`{"data":{"draftOrderCreate":{"draftOrder":null,"userErrors":[
		{"field":null,"message":"Product with ID 41 is no longer available."},{"field":["email"],"message":"Email is invalid"}]}}}`))
	_, err := a.client.CreateDraft(t.Context(), 1, waitlist.NewDraft{HoldID: 5, VariantID: 41, ReserveUntil: a.clock.Now()})
	var no *waitlist.Rejected
	if !errors.As(err, &no) || no.Why != "Product with ID 41 is no longer available.; email: Email is invalid" {
		t.Errorf("got %v", err)
	}
	if len(a.calls()) != 1 {
		t.Errorf("called %d times", len(a.calls()))
	}
}

func TestOnlyDraftsOfTheHoldAreFound(t *testing.T) {
	t.Parallel()
	merchants := `{"id":"gid://shopify/DraftOrder/3","status":"OPEN","createdAt":"2026-11-30T12:00:01Z","tags":["holdfast","holdfast-","holdfast-x"],"customAttributes":[{"key":"_holdfast_hold","value":"all"}],"order":null}`
	paid := strings.Replace(strings.Replace(draftJSON(4, 5), `"OPEN"`, `"COMPLETED"`, 1), `"order":null`, `"order":{"id":"gid://shopify/Order/77"}`, 1)
	a := newAdmin(t, saysInTurn(`{"data":{"draftOrders":{"nodes":[`+draftJSON(1, 5)+`,`+draftJSON(2, 55)+`,`+merchants+`,`+paid+`],
		"pageInfo":{"hasNextPage":true,"endCursor":"c1"}}}}`))
	found, err := a.client.FindDrafts(t.Context(), 1, 5)
	if err != nil || len(found) != 2 || found[0].ID != 1 || found[1].ID != 4 || !found[1].Completed || found[1].OrderID != 77 || found[0].Completed {
		t.Errorf("found %+v, %v", found, err)
	}
	if q := a.calls()[0].Variables; q["query"] != "tag:'holdfast-5'" {
		t.Errorf("searched for %v", q)
	}
	all, next, err := a.client.ListDrafts(t.Context(), 1, time.Time{}, "c0")
	var holds []int64
	for _, d := range all {
		holds = append(holds, d.HoldID)
	}
	if err != nil || next != "c1" || !slices.Equal(holds, []int64{5, 55, 5}) {
		t.Errorf("listed drafts of %v, next %q, %v", holds, next, err)
	}
	if q := a.calls()[1].Variables; q["query"] != "tag:'holdfast'" || q["after"] != "c0" {
		t.Errorf("searched for %v", q)
	}
}

func TestTheLastPageHasNoNext(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, saysInTurn(`{"data":{"draftOrders":{"nodes":[],"pageInfo":{"hasNextPage":false,"endCursor":"c1"}}}}`))
	if all, next, err := a.client.ListDrafts(t.Context(), 1, time.Time{}, ""); len(all) != 0 || next != "" || err != nil {
		t.Errorf("got %v, %q, %v", all, next, err)
	}
	if _, ok := a.calls()[0].Variables["after"]; ok {
		t.Error("the first page is asked for after something")
	}
}

func TestReadingBackIsOneQuery(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer    string
		locations []int64
		ok        bool
		sellable  int
	}{
		"open":          {`{"draftOrder":` + draftJSON(9, 5) + `,"productVariant":{"sellableOnlineQuantity":-1}}`, nil, true, -1},
		"draft gone":    {`{"draftOrder":null,"productVariant":{"sellableOnlineQuantity":3}}`, nil, false, 3},
		"variant gone":  {`{"draftOrder":` + draftJSON(9, 5) + `,"productVariant":null}`, nil, true, -1},
		"both gone":     {`{"draftOrder":null,"productVariant":null}`, []int64{1}, false, -1},
		"at a location": {`{"draftOrder":` + draftJSON(9, 5) + `,"productVariant":{"inventoryItem":{"inventoryLevels":{"nodes":[{"location":{"id":"gid://shopify/Location/1"},"quantities":[{"name":"available","quantity":2}]},{"location":{"id":"gid://shopify/Location/2"},"quantities":[{"name":"available","quantity":40}]}],"pageInfo":{"hasNextPage":false}}}}}`, []int64{1}, true, 2},
	} {
		a := newAdmin(t, saysInTurn(`{"data":`+c.answer+`}`))
		d, ok, sellable, err := a.client.ReadBack(t.Context(), 1, 9, 41, c.locations)
		if err != nil || ok != c.ok || sellable != c.sellable || (ok && (d.ID != 9 || d.HoldID != 5)) {
			t.Errorf("%s: %+v, %v, %d, %v", name, d, ok, sellable, err)
		}
		if len(a.calls()) != 1 {
			t.Errorf("%s: called %d times", name, len(a.calls()))
		}
	}
}

func TestReadingBackAsksForMoreLocationsWhenThereAre(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, func(w http.ResponseWriter, _ *http.Request, q request) {
		fmt.Fprintf(w, `{"data":{"draftOrder":%s,"productVariant":{"inventoryItem":{"inventoryLevels":{"nodes":[{"location":{"id":"gid://shopify/Location/1"},"quantities":[{"name":"available","quantity":%v}]}],"pageInfo":{"hasNextPage":%t}}}}}}`,
			draftJSON(9, 5), q.Variables["levels"], q.Variables["levels"] == float64(fewLevels))
	})
	_, ok, sellable, err := a.client.ReadBack(t.Context(), 1, 9, 41, []int64{1})
	if err != nil || !ok || sellable != allLevels {
		t.Errorf("got %v, %d, %v", ok, sellable, err)
	}
}

func TestDeletingADraftThatIsGoneIsNoError(t *testing.T) {
	t.Parallel()
	refuses := `{"data":{"draftOrderDelete":{"deletedId":null,"userErrors":[{"field":["id"],"message":"whatever the words are"}]}}}`
	a := newAdmin(t, saysInTurn(`{"data":{"draftOrderDelete":{"deletedId":"gid://shopify/DraftOrder/9","userErrors":[]}}}`))
	if err := a.client.DeleteDraft(t.Context(), 1, 9); err != nil || len(a.calls()) != 1 {
		t.Errorf("deleted: %v, %d calls", err, len(a.calls()))
	}
	a = newAdmin(t, saysInTurn(refuses, `{"data":{"draftOrder":null}}`))
	if err := a.client.DeleteDraft(t.Context(), 1, 9); err != nil {
		t.Errorf("gone: %v", err)
	}
	a = newAdmin(t, saysInTurn(refuses, `{"data":{"draftOrder":`+draftJSON(9, 5)+`}}`))
	var no *waitlist.Rejected
	if err := a.client.DeleteDraft(t.Context(), 1, 9); !errors.As(err, &no) {
		t.Errorf("still there: %v", err)
	}
	a = newAdmin(t, saysInTurn(refuses, `{"errors":"away"}`))
	if err := a.client.DeleteDraft(t.Context(), 1, 9); err == nil || errors.As(err, &no) {
		t.Errorf("unknown whether it is there: %v", err)
	}
}
