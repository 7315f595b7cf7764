package stage

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// One buys the ordinary way and is not told again; one pays, and the order is cancelled; a draft is completed
// by hand; and Shopify sends what nobody asked for.
func buyersAndCancelledOrders(t *testing.T, binary string) {
	s := newScene(t, binary, 1)
	for n := range 4 {
		s.join(n + 1)
	}
	s.stock(1)
	s.must(s.c.Do(t.Context(), "POST", "/sim/buy", map[string]any{"shop": FirstShop, "variant_id": oak, "email": strings.ToUpper(person(2))}, nil))
	s.settle()
	s.wantStates("waiting", "left", "waiting", "waiting")
	s.stock(1)
	if told := s.told(); !slices.Equal(told, []string{person(1), person(1)}) {
		t.Fatalf("told %v", told) // her first offer was withdrawn with its unit, so that she may be told again
	}

	s.press(1)
	s.settle()
	held := s.wantReserve(1, "held")
	var paid struct {
		OrderID string `json:"order_id"`
	}
	s.must(s.c.Do(t.Context(), "POST", "/sim/pay", map[string]any{"invoice_url": held.CheckoutURL}, &paid))
	s.settle()
	s.wantStates("sold", "left", "waiting", "waiting")
	s.must(s.c.Do(t.Context(), "POST", "/sim/orders/"+paid.OrderID+"/cancel", map[string]any{"restock": true}, nil))
	s.settle()
	s.wantStates("sold", "left", "offered", "waiting")
	page, err := s.s.admin(t.Context(), FirstShop, "GET", "/holds", "", nil, "")
	s.must(err)
	if page.Status != http.StatusOK || !strings.Contains(fmt.Sprint(page.Body), "order cancelled") {
		t.Errorf("the merchant does not see that the order was cancelled: %v", page.Body)
	}

	s.press(3)
	s.settle()
	s.wantReserve(3, "held")
	drafts, err := s.c.Drafts(t.Context(), FirstShop)
	s.must(err)
	i := slices.IndexFunc(drafts, func(d DraftOrder) bool { return d.Status == "OPEN" })
	if i < 0 {
		t.Fatalf("no open draft in %+v", drafts)
	}
	draft := fmt.Sprintf("/sim/drafts/%v", drafts[i].ID)
	s.must(s.c.Do(t.Context(), "POST", draft, map[string]any{"do": "edit", "quantity": 2}, nil)) // more than there is
	s.must(s.c.Settle(t.Context()))
	if page, err = s.s.admin(t.Context(), FirstShop, "GET", "/", "", nil, ""); err != nil || !strings.Contains(fmt.Sprint(page.Body), "A draft order that holds a unit was edited") {
		t.Errorf("the merchant is not told of the edited draft: %v, %v", page.Body, err)
	}
	s.must(s.c.Do(t.Context(), "POST", draft, map[string]any{"do": "edit", "quantity": 1}, nil))
	s.settle()
	s.must(s.c.Do(t.Context(), "POST", draft, map[string]any{"do": "complete"}, nil))
	s.settle()
	s.wantStates("sold", "left", "sold", "waiting")

	if status := s.hook("themes/publish", "", map[string]any{"id": 1}); status != http.StatusOK {
		t.Errorf("a webhook of an unknown topic is answered %d", status)
	}
	s.settle()
}
