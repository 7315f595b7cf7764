package shopify

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"holdfast/app/waitlist"
)

// variantJSON is a variant as Shopify answers it; more is merged into it by being later.
func variantJSON(id int64, more string) string {
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`{"id":"gid://shopify/ProductVariant/%d","sku":"OAK","title":"Natural","price":"249.00","inventoryPolicy":"DENY",
		"sellableOnlineQuantity":%d,"requiresComponents":false,"media":{"nodes":[]},
		"product":{"id":"gid://shopify/Product/3","title":"Oak chair","handle":"oak-chair","status":"ACTIVE","publishedAt":"2026-01-01T00:00:00Z","featuredMedia":null},
		"inventoryItem":{"id":"gid://shopify/InventoryItem/4","tracked":true,"variants":{"nodes":[{"id":"gid://shopify/ProductVariant/%d"}]}}%s}`, id, id%100, id, more)
}

// answerNodes answers nodes(ids:) by a function of each variant's id; "" means that there is none.
func answerNodes(t *testing.T, of func(id int64, q request) string) func(http.ResponseWriter, *http.Request, request) {
	return func(w http.ResponseWriter, _ *http.Request, q request) {
		var all []string
		for _, v := range q.Variables["ids"].([]any) {
			id, err := idOf("ProductVariant", v.(string))
			if err != nil {
				t.Error(err)
			}
			text := of(id, q)
			if text == "" {
				text = "null"
			}
			all = append(all, text)
		}
		io.WriteString(w, withCost(`{"nodes":[`+strings.Join(all, ",")+`]}`, 990, 500, 1500))
	}
}

func TestVariantsAreReadInAsFewCallsAsTheirCostAllows(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, answerNodes(t, func(id int64, _ request) string {
		if id == 7 {
			return ""
		}
		return variantJSON(id, "")
	}))
	ids := []int64{-1, 0, 5, 5}
	for id := range int64(140) {
		ids = append(ids, id+1)
	}
	found, err := a.client.ReadVariants(t.Context(), 1, ids, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := found[7]; ok || len(found) != 139 || found[42].Sellable != 42 {
		t.Errorf("found %d variants, 42 is %+v", len(found), found[42])
	}
	var sizes []int
	for _, q := range a.calls() {
		sizes = append(sizes, len(q.Variables["ids"].([]any)))
	}
	if !slices.Equal(sizes, []int{66, 66, 8}) {
		t.Errorf("asked for %v at a time", sizes)
	}
	for _, q := range a.calls() {
		if nodes.points(map[string]any{"ids": make([]string, len(q.Variables["ids"].([]any)))}) > maxCost {
			t.Error("a call costs more than Shopify takes")
		}
	}
}

func TestWhatWasReadBeforeTheBudgetWasUsedUpIsNotLost(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, saysInTurn(withCost(`{"nodes":[`+variantJSON(1, "")+`]}`, 990, 990, 10)))
	ids := make([]int64, 100)
	for i := range ids {
		ids[i] = int64(i + 1)
	}
	found, err := a.client.ReadVariants(t.Context(), 1, ids, nil)
	var throttled *waitlist.Throttled
	if !errors.As(err, &throttled) || len(found) != 1 || len(a.calls()) != 1 {
		t.Errorf("read %d variants in %d calls, %v", len(found), len(a.calls()), err)
	}
}

func TestNoVariantsAreNoCall(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, says(500, ""))
	for _, locations := range [][]int64{nil, {1}} {
		if found, err := a.client.ReadVariants(t.Context(), 1, []int64{0}, locations); err != nil || len(found) != 0 {
			t.Errorf("got %v, %v", found, err)
		}
	}
	if found, err := a.client.FindVariants(t.Context(), 1, " "); err != nil || len(found) != 0 {
		t.Errorf("got %v, %v", found, err)
	}
	if len(a.calls()) > 0 {
		t.Error("Shopify was called")
	}
}

func TestStockIsCountedAtTheWatchedLocations(t *testing.T) {
	t.Parallel()
	level := func(location, available int) string {
		return fmt.Sprintf(`{"location":{"id":"gid://shopify/Location/%d"},"quantities":[{"name":"available","quantity":%d}]}`, location, available)
	}
	item := func(more bool, levels ...string) string {
		return fmt.Sprintf(`"inventoryItem":{"id":"gid://shopify/InventoryItem/4","tracked":true,"variants":{"nodes":[]},
			"inventoryLevels":{"nodes":[%s],"pageInfo":{"hasNextPage":%t}}}`, strings.Join(levels, ","), more)
	}
	a := newAdmin(t, answerNodes(t, func(id int64, q request) string {
		switch {
		case id == 1:
			return variantJSON(1, item(false, level(11, 2), level(12, -5), level(13, 100)))
		case q.Variables["levels"] == float64(fewLevels): // 2 is stocked at more locations than were asked for
			return variantJSON(2, item(true, level(11, 1)))
		default:
			return variantJSON(2, item(false, level(11, 1), level(12, 3)))
		}
	}))
	found, err := a.client.ReadVariants(t.Context(), 1, []int64{1, 2}, []int64{11, 12, 99})
	if err != nil {
		t.Fatal(err)
	}
	if found[1].Sellable != -3 || found[2].Sellable != 4 {
		t.Errorf("counted %d and %d, want -3 and 4", found[1].Sellable, found[2].Sellable)
	}
	calls := a.calls()
	if len(calls) != 2 || len(calls[1].Variables["ids"].([]any)) != 1 {
		t.Errorf("called %d times", len(calls))
	}
}

func TestAnItemAtMoreLocationsThanCanBeReadIsAnError(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, answerNodes(t, func(id int64, _ request) string {
		return variantJSON(id, `"inventoryItem":{"id":"gid://shopify/InventoryItem/4","inventoryLevels":{"nodes":[],"pageInfo":{"hasNextPage":true}}}`)
	}))
	if found, err := a.client.ReadVariants(t.Context(), 1, []int64{1}, []int64{11}); err == nil {
		t.Errorf("half a sum was taken for the whole: %v", found)
	}
}

func TestAReadingSaysWhatShopifyHas(t *testing.T) {
	t.Parallel()
	const picture = `{"preview":{"image":{"url":"https://cdn.example.com/%s.jpg"}}}`
	product := func(status, published string) string {
		return `"product":{"id":"gid://shopify/Product/3","title":"Oak chair","handle":"oak-chair","status":"` + status + `","publishedAt":` + published +
			`,"featuredMedia":` + fmt.Sprintf(picture, "product") + `}`
	}
	for name, c := range map[string]struct {
		more  string
		check func(r waitlist.VariantReading) bool
	}{
		"plain": {``, func(r waitlist.VariantReading) bool {
			return r.Active && r.Published && r.Tracked && r.Price == "249.00" && r.ImageURL == ""
		}},
		"ids": {``, func(r waitlist.VariantReading) bool { return r.ID == 1 && r.ProductID == 3 && r.InventoryItemID == 4 }},
		"texts": {``, func(r waitlist.VariantReading) bool {
			return r.SKU == "OAK" && r.ProductTitle == "Oak chair" && r.Handle == "oak-chair"
		}},
		"unlisted":          {product("UNLISTED", `"2026-01-01T00:00:00Z"`), func(r waitlist.VariantReading) bool { return r.Active && r.Published }},
		"archived":          {product("ARCHIVED", `"2026-01-01T00:00:00Z"`), func(r waitlist.VariantReading) bool { return !r.Active }},
		"a draft":           {product("DRAFT", `"2026-01-01T00:00:00Z"`), func(r waitlist.VariantReading) bool { return !r.Active }},
		"not published":     {product("ACTIVE", `null`), func(r waitlist.VariantReading) bool { return r.Active && !r.Published }},
		"published later":   {product("ACTIVE", `"2026-12-24T00:00:00Z"`), func(r waitlist.VariantReading) bool { return !r.Published }},
		"the product's":     {product("ACTIVE", `null`), func(r waitlist.VariantReading) bool { return r.ImageURL == "https://cdn.example.com/product.jpg" }},
		"its own picture":   {`"media":{"nodes":[` + fmt.Sprintf(picture, "own") + `]},` + product("ACTIVE", `null`), func(r waitlist.VariantReading) bool { return r.ImageURL == "https://cdn.example.com/own.jpg" }},
		"picture not ready": {`"media":{"nodes":[{"preview":{"image":null}}]}`, func(r waitlist.VariantReading) bool { return r.ImageURL == "" }},
		"a video":           {`"media":{"nodes":[{"preview":null}]}`, func(r waitlist.VariantReading) bool { return r.ImageURL == "" }},
		"always for sale":   {`"inventoryPolicy":"CONTINUE"`, func(r waitlist.VariantReading) bool { return r.ContinueSelling }},
		"a bundle":          {`"requiresComponents":true`, func(r waitlist.VariantReading) bool { return r.Components }},
		"shared item": {`"inventoryItem":{"id":"gid://shopify/InventoryItem/4","tracked":false,"variants":{"nodes":[{"id":"a"},{"id":"b"}]}}`,
			func(r waitlist.VariantReading) bool { return r.SharedItem && !r.Tracked }},
		"oversold": {`"sellableOnlineQuantity":-2`, func(r waitlist.VariantReading) bool { return r.Sellable == -2 }},
	} {
		a := newAdmin(t, answerNodes(t, func(id int64, _ request) string { return variantJSON(id, c.more) }))
		found, err := a.client.ReadVariants(t.Context(), 1, []int64{1}, nil)
		if err != nil || !c.check(found[1]) {
			t.Errorf("%s: %+v, %v", name, found[1], err)
		}
	}
}

func TestASKUIsFoundExactly(t *testing.T) {
	t.Parallel()
	answer := func(skus ...string) string {
		var all []string
		for i, sku := range skus {
			all = append(all, variantJSON(int64(i+1), `"sku":`+string(must(json.Marshal(sku)))))
		}
		return `{"data":{"productVariants":{"nodes":[` + strings.Join(all, ",") + `]}}}`
	}
	for name, c := range map[string]struct {
		answer string
		want   []int64
	}{
		"one":        {answer("oak", "OAK-2", "OAK"), []int64{3}},
		"none":       {answer("oak", "OAK-2"), nil},
		"two":        {answer("OAK", "OAK"), []int64{1, 2}},
		"many":       {answer("OAK", "x", "OAK", "OAK"), []int64{1, 3}},
		"no results": {answer(), nil},
	} {
		a := newAdmin(t, saysInTurn(c.answer))
		found, err := a.client.FindVariants(t.Context(), 1, "OAK")
		var ids []int64
		for _, r := range found {
			ids = append(ids, r.ID)
		}
		if err != nil || !slices.Equal(ids, c.want) {
			t.Errorf("%s: found %v, %v; want %v", name, ids, err, c.want)
		}
		if q := a.calls()[0].Variables["query"]; q != "sku:'OAK'" {
			t.Errorf("searched for %v", q)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
