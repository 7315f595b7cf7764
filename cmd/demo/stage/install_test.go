package stage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

// asked counts the requests of one kind that the app made of the simulated Shopify for a shop.
func (s *scene) asked(domain, op string) (n int) {
	for _, r := range s.s.sims.shopify.Requests(domain) {
		if r.Op == op {
			n++
		}
	}
	return n
}

// installed reads the shop and its grant from the app's rows.
func (s *scene) installed(domain string) (shop.Shop, shop.Grant) {
	s.t.Helper()
	sh, err := s.s.store.ByDomain(s.t.Context(), domain)
	s.must(err)
	if !sh.Installed {
		return sh, shop.Grant{}
	}
	g, err := s.s.store.Grant(s.t.Context(), sh.ID)
	s.must(err)
	return sh, g
}

// strayDraft makes a draft order that the app believes to be deleted, and keeps its webhook back.
func (s *scene) strayDraft(holdID int) {
	s.t.Helper()
	_, err := s.c.Fault(s.t.Context(), map[string]any{"target": "webhooks", "op": "draft_orders/create", "mode": "lose", "count": 1})
	s.must(err)
	_, g := s.installed(FirstShop)
	body, err := json.Marshal(map[string]any{
		"query": `mutation draftOrderCreate($input: DraftOrderInput!) { draftOrderCreate(input: $input) { draftOrder { id } userErrors { message } } }`,
		"variables": map[string]any{"input": map[string]any{
			"lineItems": []any{map[string]any{"variantId": "gid://shopify/ProductVariant/30013", "quantity": 1}},
			"tags":      []string{waitlist.TagOfAll, fmt.Sprintf("%s-%d", waitlist.TagOfAll, holdID)},
		}},
	})
	s.must(err)
	req, err := http.NewRequestWithContext(s.t.Context(), "POST", s.s.SimURL+"/shopify/"+FirstShop+"/admin/api/2026-10/graphql.json", bytes.NewReader(body))
	s.must(err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Shopify-Access-Token", g.Token)
	res, err := http.DefaultClient.Do(req)
	s.must(err)
	res.Body.Close()
	if s.openDrafts() != 1 {
		s.t.Fatalf("%d open drafts, status %d", s.openDrafts(), res.StatusCode)
	}
}

// A shop installs the app, uses it for three hours with two processes, leaves, and comes back.
func aShopComesAndGoesAndComesBack(t *testing.T, binary string) {
	s := newScene(t, binary, 2)
	sh, g := s.installed(FirstShop)
	if sh.Name != "Chairs" || sh.Currency != "EUR" || sh.Country != "IE" || g.Refresh == "" || s.asked(FirstShop, "oauth/token_exchange") != 1 {
		t.Fatalf("installed %+v with %d exchanges", sh, s.asked(FirstShop, "oauth/token_exchange"))
	}

	s.join(1)
	s.join(2)
	// A token lasts an hour and is renewed in its last five minutes. A push reaches the processes one after the
	// other, so a token is never left to end during one: each round comes to rest a few minutes before.
	seen := map[string]bool{g.Token: true}
	for round := 1; round <= 3; round++ {
		s.must(s.c.Advance(t.Context(), 50*time.Minute))
		s.must(s.c.Advance(t.Context(), 6*time.Minute))
		var asking sync.WaitGroup
		for i := range 50 { // each of them has the app look for a SKU that it does not know
			asking.Go(func() {
				in := map[string]any{"shop": FirstShop, "method": "GET", "path": fmt.Sprintf("/waitlist?sku=NONE-%d-%d", round, i)}
				if err := s.c.Do(t.Context(), "POST", "/sim/proxy", in, nil); err != nil {
					t.Error(err)
				}
			})
		}
		asking.Wait()
		_, g := s.installed(FirstShop)
		if n := s.asked(FirstShop, "oauth/refresh_token"); n != round || seen[g.Token] {
			t.Fatalf("after round %d: %d refreshes, a token that was there before: %v", round, n, seen[g.Token])
		}
		seen[g.Token] = true
	}
	s.must(s.c.Advance(t.Context(), 15*time.Minute)) // three hours and a little

	// One is told, holds and lets go; the draft of that hold is left over.
	s.stock(1)
	s.press(1)
	s.settle()
	held := s.wantReserve(1, "held")
	if _, _, _, err := s.c.Page(t.Context(), "POST", s.link(1, "/r/")+"/pass", nil); err != nil {
		t.Fatal(err)
	}
	s.settle()
	if s.openDrafts() != 0 || held.CheckoutURL == "" {
		t.Fatalf("%d drafts after letting go", s.openDrafts())
	}
	s.wantStates("waiting", "offered")
	s.strayDraft(1)

	told := s.told()
	s.must(s.c.Do(t.Context(), "POST", "/sim/shops/"+FirstShop+"/uninstall", nil, nil))
	s.must(s.c.Settle(t.Context()))
	if sh, _ := s.installed(FirstShop); sh.Installed || sh.HasToken {
		t.Fatalf("after uninstalling: %+v", sh)
	}
	if got, err := s.s.admin(t.Context(), FirstShop, "GET", "/", "", nil, ""); err != nil || got.Status != http.StatusForbidden {
		t.Errorf("the admin of a shop that has left: %d, %v", got.Status, err)
	}
	calls := len(s.s.sims.shopify.Requests(FirstShop))
	s.must(s.c.SetStock(t.Context(), FirstShop, oak, 5))
	s.must(s.c.Settle(t.Context()))
	s.wantStates("waiting", "offered")
	if now := s.told(); !slices.Equal(now, told) {
		t.Errorf("told after the shop has left: %v", now[len(told):])
	}
	if n := len(s.s.sims.shopify.Requests(FirstShop)); n != calls {
		t.Errorf("%d calls for a shop that has left", n-calls)
	}

	s.must(s.c.Do(t.Context(), "POST", "/sim/shops/"+FirstShop+"/install", nil, nil))
	s.must(s.c.Advance(t.Context(), time.Minute))
	again, g := s.installed(FirstShop)
	if again.ID != sh.ID || seen[g.Token] || again.Trouble != "" || s.openDrafts() != 0 {
		t.Errorf("back as %+v, %d drafts left over", again, s.openDrafts())
	}
	s.settle()
	if s.press(2); s.asked(FirstShop, "oauth/token_exchange") != 3 { // the second was the one that Shopify refused
		t.Errorf("%d exchanges", s.asked(FirstShop, "oauth/token_exchange"))
	}
	s.settle()
	s.wantReserve(2, "held")
}
