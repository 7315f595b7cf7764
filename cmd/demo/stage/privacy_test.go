package stage

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// tablesWith are the tables of the app's whole database with a row that carries a text, as it is or as bytes.
func (s *scene) tablesWith(text string) (found []string) {
	s.t.Helper()
	rows, _ := s.s.db.Query(s.t.Context(), `SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename`)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	s.must(err)
	for _, table := range tables {
		var there bool
		s.must(s.s.db.QueryRow(s.t.Context(), `SELECT EXISTS (SELECT FROM `+pgx.Identifier{table}.Sanitize()+` t WHERE strpos(lower(t::text), $1) > 0 OR strpos(lower(t::text), $2) > 0)`,
			strings.ToLower(text), hex.EncodeToString([]byte(text))).Scan(&there))
		if there {
			found = append(found, table)
		}
	}
	return found
}

// hook delivers a webhook that Shopify signs, and returns the status that it is answered with.
func (s *scene) hook(topic, tamper string, body any) int {
	s.t.Helper()
	var got struct{ Status int }
	s.must(s.c.Do(s.t.Context(), "POST", "/sim/webhook", map[string]any{"shop": FirstShop, "topic": topic, "body": body, "tamper": tamper}, &got))
	return got.Status
}

// A customer asks for their data and then to be forgotten, while a unit is held for them; then the shop leaves,
// and Shopify has it erased.
func customersAndShopsAreErased(t *testing.T, binary string) {
	s := newScene(t, binary, 1)
	s.join(1)
	s.join(2)
	s.stock(1)
	s.press(1)
	s.settle()
	held := s.wantReserve(1, "held")
	customer := map[string]any{"customer": map[string]any{"id": 5550001, "email": strings.ToUpper(person(1)), "phone": nil}, "orders_requested": []int{}, "orders_to_redact": []int{}, "data_request": map[string]any{"id": 9001}}

	before, err := s.c.Dump(t.Context())
	s.must(err)
	if status := s.hook("customers/redact", "body", customer); status != http.StatusUnauthorized {
		t.Errorf("a tampered request to erase is answered %d", status)
	}
	s.settle()
	after, err := s.c.Dump(t.Context())
	s.must(err)
	if fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("a tampered request has changed something")
	}

	if status := s.hook("customers/data_request", "", customer); status != http.StatusOK {
		t.Errorf("a data request is answered %d", status)
	}
	s.settle()
	page, err := s.s.admin(t.Context(), FirstShop, "GET", "/privacy-requests/1", "", nil, "")
	s.must(err)
	if page.Status != http.StatusOK || !strings.Contains(fmt.Sprint(page.Body), person(1)) || strings.Contains(fmt.Sprint(page.Body), person(2)) {
		t.Errorf("the merchant reads, with status %d: %v", page.Status, page.Body)
	}

	if found := s.tablesWith(person(1)); fmt.Sprint(found) != "[contacts privacy_requests]" || len(s.tablesWith("Shopper 1")) == 0 {
		t.Fatalf("before erasing, the customer is found in %v", found)
	}
	if status := s.hook("customers/redact", "", customer); status != http.StatusOK {
		t.Errorf("a request to erase is answered %d", status)
	}
	s.settle()
	for _, text := range []string{person(1), "Shopper 1"} {
		if found := s.tablesWith(text); len(found) > 0 {
			t.Errorf("%s still stands in %v", text, found)
		}
	}
	if s.openDrafts() != 0 {
		t.Error("the draft order of a customer who was erased was left")
	}
	s.press(2)
	s.settle()
	s.wantReserve(2, "held")
	if s.wantReserve(1, "left"); held.CheckoutURL == "" {
		t.Error("there was no checkout to erase")
	}

	s.must(s.c.Do(t.Context(), "POST", "/sim/shops/"+FirstShop+"/uninstall", nil, nil))
	s.must(s.c.Settle(t.Context()))
	s.must(s.c.Advance(t.Context(), 48*time.Hour))
	if status := s.hook("shop/redact", "", map[string]any{"shop_id": 1, "shop_domain": FirstShop}); status != http.StatusOK {
		t.Errorf("a request to erase the shop is answered %d", status)
	}
	s.must(s.c.Settle(t.Context()))
	for _, text := range []string{person(2), "Shopper 2", FirstShop, "Oak"} {
		if found := s.tablesWith(text); len(found) > 0 {
			t.Errorf("%s still stands in %v after the shop was erased", text, found)
		}
	}
	if status := s.hook("shop/redact", "", map[string]any{"shop_id": 1, "shop_domain": FirstShop}); status != http.StatusOK {
		t.Errorf("the repeat is answered %d", status)
	}
}
