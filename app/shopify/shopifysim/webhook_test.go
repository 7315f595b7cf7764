package shopifysim

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/app/simkit"
)

// app is an app that receives webhooks: it answers what status says, and hands on what it got.
type app struct {
	url  string
	got  chan hook
	mu   sync.Mutex
	code int
}

type hook struct {
	header http.Header
	raw    []byte
	body   map[string]any
}

func newApp(t *testing.T, s *Test) *app {
	t.Helper()
	a := &app{got: make(chan hook, 1000), code: http.StatusOK}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/webhooks/shopify" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		h := hook{header: r.Header, raw: raw}
		if err := json.Unmarshal(raw, &h.body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		a.mu.Lock()
		code := a.code
		a.mu.Unlock()
		w.WriteHeader(code)
		a.got <- h
	}))
	t.Cleanup(srv.Close)
	a.url = srv.URL
	s.Deliver(srv.URL)
	return a
}

func (a *app) answer(code int) { a.mu.Lock(); defer a.mu.Unlock(); a.code = code }

// next waits for the next webhook that arrives.
func (a *app) next(t *testing.T) hook {
	t.Helper()
	select {
	case h := <-a.got:
		return h
	case <-time.After(20 * time.Second):
		t.Fatal("no webhook came")
		return hook{}
	}
}

func (a *app) topics(t *testing.T, n int) []string {
	t.Helper()
	var all []string
	for range n {
		all = append(all, a.next(t).header.Get("X-Shopify-Topic"))
	}
	slices.Sort(all)
	return all
}

// until waits for a state that the simulator reaches by itself.
func until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !reached() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not yet: %s", what)
		}
	}
}

func settled(t *testing.T, s *Test) {
	t.Helper()
	until(t, "no webhook is in flight", func() bool { return s.InFlight() == 0 })
}

// tried waits until the first webhook of the chairs was tried so often.
func tried(t *testing.T, s *Test, n int) {
	t.Helper()
	until(t, "the webhook was tried", func() bool { return len(s.Webhooks(chairs)[0].Attempts) >= n })
}

func TestAWebhookIsSignedOverItsRawBody(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	a := newApp(t, s)
	if err := s.SetStock(chairs, Change{VariantID: oakNatural, Available: 4}); err != nil {
		t.Fatal(err)
	}
	h := a.next(t)
	if h.header.Get("X-Shopify-Hmac-Sha256") != SignWebhook(TestSecret, h.raw) {
		t.Error("the signature is not that of the body")
	}
	for key, want := range map[string]string{
		"X-Shopify-Topic": "inventory_levels/update", "X-Shopify-Shop-Domain": chairs, "X-Shopify-Api-Version": APIVersion, "Content-Type": "application/json",
	} {
		if got := h.header.Get(key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	for _, key := range []string{"X-Shopify-Webhook-Id", "X-Shopify-Event-Id", "X-Shopify-Triggered-At"} {
		if h.header.Get(key) == "" {
			t.Errorf("%s is missing", key)
		}
	}
	if h.body["inventory_item_id"] != 40011.0 || h.body["location_id"] != 2001.0 || h.body["available"] != 4.0 || h.body["admin_graphql_api_id"] != "gid://shopify/InventoryLevel/2001?inventory_item_id=40011" {
		t.Errorf("the body is %s", h.raw)
	}
}

func TestEveryChangeOfAvailableIsTold(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	a := newApp(t, s)
	id := create(t, s, chairs, diningTable, "")
	if got := a.topics(t, 2); !slices.Equal(got, []string{"draft_orders/create", "inventory_levels/update"}) {
		t.Errorf("a reservation tells %v", got)
	}
	s.Clock.Push(10 * time.Minute)
	s.Tick()
	if got := a.topics(t, 1); got[0] != "inventory_levels/update" {
		t.Errorf("its date tells %v", got)
	}
	get(t, s, chairs, deleteDoc, `{"input":{"id":"`+id+`"}}`)
	if got := a.topics(t, 1); got[0] != "draft_orders/delete" {
		t.Errorf("deleting it then tells %v: there was nothing left to give back", got)
	}
	id = create(t, s, chairs, diningTable, "")
	a.topics(t, 2)
	get(t, s, chairs, deleteDoc, `{"input":{"id":"`+id+`"}}`)
	if got := a.topics(t, 2); !slices.Equal(got, []string{"draft_orders/delete", "inventory_levels/update"}) {
		t.Errorf("deleting a reserving draft tells %v", got)
	}
	order, err := s.Buy(chairs, diningTable, 1, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := a.topics(t, 2); !slices.Equal(got, []string{"inventory_levels/update", "orders/create"}) {
		t.Errorf("a purchase tells %v", got)
	}
	if err := s.CancelOrder(order, true); err != nil {
		t.Fatal(err)
	}
	if got := a.topics(t, 2); !slices.Equal(got, []string{"inventory_levels/update", "orders/cancelled"}) {
		t.Errorf("a cancellation tells %v", got)
	}
	settled(t, s)
	if len(a.got) != 0 {
		t.Errorf("%d webhooks more than there was news", len(a.got))
	}
}

func TestAPaidDraftIsToldWithItsOrderAttributesAndTags(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	id := create(t, s, chairs, diningTable, `,"tags":["holdfast-7","holdfast"],"customAttributes":[{"key":"_holdfast_hold","value":"7"}]`)
	a := newApp(t, s)
	order, err := s.Pay(theDraft(t, s, id).InvoiceURL)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]hook{}
	for range 2 { // available did not change: the unit was reserved
		h := a.next(t)
		seen[h.header.Get("X-Shopify-Topic")] = h
	}
	d, o := seen["draft_orders/update"].body, seen["orders/create"].body
	if d["status"] != "completed" || d["order_id"] != float64(order) || d["tags"] != "holdfast, holdfast-7" || d["completed_at"] == nil {
		t.Errorf("draft_orders/update is %v", d)
	}
	if _, ok := d["reserve_inventory_until"]; ok {
		t.Error("the payload carries reserve_inventory_until, which Shopify's does not")
	}
	for topic, body := range map[string]map[string]any{"draft_orders/update": d, "orders/create": o} {
		note := body["note_attributes"].([]any)[0].(map[string]any)
		line := body["line_items"].([]any)[0].(map[string]any)
		if note["name"] != "_holdfast_hold" || note["value"] != "7" || line["variant_id"] != float64(diningTable) || line["quantity"] != 1.0 {
			t.Errorf("%s is %v", topic, body)
		}
	}
}

func TestWhatAMerchantDoesToAVariantIsTold(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	a := newApp(t, s)
	no, dead, price := false, "ARCHIVED", "300.00"
	for _, c := range []struct {
		edit   VariantEdit
		topics []string
	}{
		{VariantEdit{Tracked: &no}, []string{"inventory_items/update", "products/update"}},
		{VariantEdit{Status: &dead, Price: &price}, []string{"products/update"}},
		{VariantEdit{Delete: true}, []string{"products/delete"}},
	} {
		if err := s.EditVariant(chairs, diningTable, c.edit); err != nil {
			t.Fatal(err)
		}
		if got := a.topics(t, len(c.topics)); !slices.Equal(got, c.topics) {
			t.Errorf("%+v tells %v, want %v", c.edit, got, c.topics)
		}
	}
	if err := s.AddProduct(chairs, ProductSpec{Handle: "new", Variants: []VariantSpec{{SKU: "NEW"}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.SetPlan(chairs, Plus); err != nil {
		t.Fatal(err)
	}
	if err := s.Uninstall(chairs); err != nil {
		t.Fatal(err)
	}
	if got := a.topics(t, 3); !slices.Equal(got, []string{"app/uninstalled", "products/create", "shop/update"}) {
		t.Errorf("told %v", got)
	}
}

func TestAWebhookIsTriedAgainWithItsOriginalPayload(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	a := newApp(t, s)
	a.answer(http.StatusServiceUnavailable)
	if err := s.SetStock(chairs, Change{VariantID: oakNatural, Available: 4}); err != nil {
		t.Fatal(err)
	}
	first := a.next(t)
	a.answer(http.StatusOK)
	if err := s.SetStock(chairs, Change{VariantID: oakNatural, Available: 9}); err != nil {
		t.Fatal(err)
	}
	if h := a.next(t); h.body["available"] != 9.0 {
		t.Errorf("between the tries came %s", h.raw)
	}
	second := a.next(t)
	if string(second.raw) != string(first.raw) || second.header.Get("X-Shopify-Webhook-Id") != first.header.Get("X-Shopify-Webhook-Id") {
		t.Errorf("the second try is %s, want the first: %s", second.raw, first.raw)
	}
	settled(t, s)
	all := s.Webhooks(chairs)
	if len(all) != 2 || len(all[0].Attempts) != 2 || all[0].State != "delivered" || all[0].Attempts[0].Status != 503 || all[0].Attempts[1].Status != 200 {
		t.Errorf("the record says %+v", all)
	}
}

func TestAWebhookIsGivenUpAfterEightTriesWhichFollowTheClock(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	a := newApp(t, s)
	a.answer(http.StatusFound) // a redirect is a failure
	if err := s.SetStock(chairs, Change{VariantID: oakNatural, Available: 4}); err != nil {
		t.Fatal(err)
	}
	for i := range tries {
		a.next(t)
		tried(t, s, i+1)
		s.Clock.Push(time.Minute)
		s.Tick()
	}
	settled(t, s)
	if d := s.Webhooks(chairs)[0]; d.State != "failed" || len(d.Attempts) != tries {
		t.Errorf("after %d tries it is %s", len(d.Attempts), d.State)
	}
	if len(a.got) != 0 {
		t.Error("it was tried once more")
	}
}

func TestWhileTheAppIsAwayForLongAWebhookIsNotInFlightAndComesWhenTheAppIsBack(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	a := newApp(t, s)
	a.answer(http.StatusServiceUnavailable)
	if err := s.SetStock(chairs, Change{VariantID: oakNatural, Available: 4}); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		a.next(t)
		tried(t, s, i+1)
		if n := s.InFlight(); n != 1 {
			t.Errorf("%d in flight after %d tries, want 1: a short absence is waited for", n, i+1)
		}
		s.Clock.Push(10 * time.Second)
		s.Tick()
	}
	a.next(t)
	tried(t, s, 6) // the next try waits for 8 s: longer than a script should
	if n := s.InFlight(); n != 0 {
		t.Errorf("%d in flight, want none", n)
	}
	a.answer(http.StatusOK)
	s.RetryNow()
	a.next(t)
	settled(t, s)
	if d := s.Webhooks(chairs)[0]; d.State != "delivered" {
		t.Errorf("it is %s", d.State)
	}
}

func TestWebhooksCanBeDoubledLostDelayedAndReordered(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	a := newApp(t, s)
	set := func(n int) {
		t.Helper()
		if err := s.SetStock(chairs, Change{VariantID: oakNatural, Available: n}); err != nil {
			t.Fatal(err)
		}
	}
	fault := func(f simkit.Fault) string { f.Target = "webhooks"; return s.Faults.Add(f) }

	fault(simkit.Fault{Mode: "duplicate", Count: 1})
	set(1)
	one, two := a.next(t), a.next(t)
	if string(one.raw) != string(two.raw) || one.header.Get("X-Shopify-Webhook-Id") != two.header.Get("X-Shopify-Webhook-Id") {
		t.Errorf("a duplicate is the same webhook: %s and %s", one.raw, two.raw)
	}

	fault(simkit.Fault{Mode: "lose", Op: "inventory_levels/update", Count: 1})
	set(2)
	set(3)
	if h := a.next(t); h.body["available"] != 3.0 {
		t.Errorf("after a lost one came %s, want 3", h.raw)
	}

	settled(t, s)
	s.hooks.alone = time.Hour
	fault(simkit.Fault{Mode: "reorder", Count: 1})
	set(4)
	if n := s.InFlight(); n != 1 {
		t.Errorf("%d in flight while one waits to be overtaken, want 1", n)
	}
	set(5)
	if h := a.next(t); h.body["available"] != 5.0 {
		t.Errorf("first came %s, want 5", h.raw)
	}
	if h := a.next(t); h.body["available"] != 4.0 {
		t.Errorf("then came %s, want 4", h.raw)
	}

	s.hooks.alone = time.Millisecond
	fault(simkit.Fault{Mode: "reorder", Count: 1})
	set(6) // and nothing follows
	if h := a.next(t); h.body["available"] != 6.0 {
		t.Errorf("came %s, want 6", h.raw)
	}

	held := fault(simkit.Fault{Mode: "delay", Until: "lifted", Count: 1})
	set(7)
	fault(simkit.Fault{Mode: "delay", MS: 3_600_000, Count: 1})
	set(8)
	set(9)
	if h := a.next(t); h.body["available"] != 9.0 {
		t.Errorf("came %s, want 9", h.raw)
	}
	settled(t, s) // what a fault delays is not in flight
	if err := s.Faults.Delete(held); err != nil {
		t.Fatal(err)
	}
	if h := a.next(t); h.body["available"] != 7.0 {
		t.Errorf("came %s, want 7", h.raw)
	}
	s.Clock.Push(time.Hour)
	s.Tick()
	if h := a.next(t); h.body["available"] != 8.0 {
		t.Errorf("came %s, want 8", h.raw)
	}
	settled(t, s)
	var states []string
	for _, d := range s.Webhooks(chairs) {
		states = append(states, d.State)
	}
	if strings.Count(strings.Join(states, " "), "delivered") != len(states)-1 || !slices.Contains(states, "lost") {
		t.Errorf("states %v, want all delivered but the lost one", states)
	}
}

func TestAWebhookCanBeReplayedAndSentByHand(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	a := newApp(t, s)
	if err := s.SetStock(chairs, Change{VariantID: oakNatural, Available: 4}); err != nil {
		t.Fatal(err)
	}
	first := a.next(t)
	settled(t, s)
	if err := s.Replay(int64(s.Webhooks(chairs)[0].ID)); err != nil {
		t.Fatal(err)
	}
	if again := a.next(t); string(again.raw) != string(first.raw) || again.header.Get("X-Shopify-Webhook-Id") != first.header.Get("X-Shopify-Webhook-Id") {
		t.Errorf("the replay is %s", again.raw)
	}
	wantStatus(t, s.Replay(1), http.StatusNotFound)

	for tamper, good := range map[Tamper]bool{"": true, "sig": false, "none": false, "body": false} {
		d, err := s.SendWebhook(t.Context(), Hook{Shop: chairs, Topic: "shop/redact", Body: json.RawMessage(`{"shop_id":1001}`), Headers: map[string]string{"X-Extra": "1"}, Tamper: tamper})
		if err != nil || d.State != "delivered" {
			t.Fatalf("%s: %+v %v", tamper, d, err)
		}
		h := a.next(t)
		if (h.header.Get("X-Shopify-Hmac-Sha256") == SignWebhook(TestSecret, h.raw)) != good || h.header.Get("X-Extra") != "1" {
			t.Errorf("tamper %q: signed rightly %v, want %v", tamper, !good, good)
		}
	}
	_, err := s.SendWebhook(t.Context(), Hook{Shop: chairs, Topic: "x", Body: json.RawMessage(`{}`), Tamper: "odd"})
	wantStatus(t, err, http.StatusBadRequest)
}

func TestWithoutAnAppWebhooksAreKept(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	if err := s.SetStock(chairs, Change{VariantID: oakNatural, Available: 4}); err != nil {
		t.Fatal(err)
	}
	if all := s.Webhooks(chairs); len(all) != 1 || all[0].State != "kept" || s.InFlight() != 0 {
		t.Errorf("%+v", all)
	}
	if n := len(s.Webhooks(lamps)); n != 0 {
		t.Errorf("%d of the other shop", n)
	}
}
