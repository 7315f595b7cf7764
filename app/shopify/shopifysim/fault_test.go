package shopifysim

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/app/simkit"
)

func plant(s *Test, f simkit.Fault) string {
	f.Target = "shopify"
	return s.Faults.Add(f)
}

func TestAFaultBeforeTheCommitChangesNothing(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	for _, c := range []struct {
		fault  simkit.Fault
		status int
		text   string
	}{
		{simkit.Fault{Mode: "status", Code: 423}, 423, "Locked"},
		{simkit.Fault{Mode: "status", Code: 429}, 429, "Too Many Requests"},
		{simkit.Fault{Mode: "html_502"}, 502, "<html>"},
		{simkit.Fault{Mode: "token_expired"}, 401, "Invalid API key or access token"},
		{simkit.Fault{Mode: "throttle"}, 200, "THROTTLED"},
	} {
		c.fault.Op, c.fault.Count = "draftOrderCreate", 1
		plant(s, c.fault)
		if a := get(t, s, chairs, readDoc, `{"id":"gid://shopify/DraftOrder/1"}`); a.at(t, "draftOrder") != nil {
			t.Errorf("another operation was touched: %s", a.raw)
		}
		if a := ask(t, s, chairs, createDoc, draftInput(s, diningTable, time.Hour, "")); a.status != c.status || !strings.Contains(a.raw, c.text) {
			t.Errorf("%s: %d %s, want %d %s", c.fault.Mode, a.status, a.raw, c.status, c.text)
		}
		want(t, s, diningTable, 1, 0, 0, 1)
	}
	create(t, s, chairs, diningTable, "") // each of them fired once
}

func TestAnAnswerCanBeLostAfterTheCommit(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	plant(s, simkit.Fault{Mode: "drop_after_commit", Op: "draftOrderCreate", Count: 1})
	if a, err := post(t.Context(), s, chairs, s.Token(chairs), createDoc, draftInput(s, diningTable, time.Hour, "")); err == nil {
		t.Errorf("dropped, and yet answered %d %s", a.status, a.raw)
	}
	want(t, s, diningTable, 0, 1, 0, 1)

	plant(s, simkit.Fault{Mode: "timeout_after_commit", Op: "draftOrderCreate", Count: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := post(ctx, s, chairs, s.Token(chairs), createDoc, draftInput(s, diningTable, time.Hour, "")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the client's own timeout", err)
	}
	want(t, s, diningTable, -1, 2, 0, 1)
	until(t, "both are recorded", func() bool { return len(s.Requests(chairs)) == 2 })
	for _, r := range s.Requests(chairs) {
		if r.Status != 0 || !strings.Contains(string(r.Answer), "draftOrderCreate") {
			t.Errorf("recorded as %d %s, want the answer that nobody got", r.Status, r.Answer)
		}
	}
}

func TestAnAnswerThatIsDelayedShowsTheMomentAtWhichItWasComputed(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	for _, c := range []struct {
		when string
		want float64
	}{{"after", 1}, {"before", 7}} {
		if err := s.SetStock(chairs, Change{VariantID: diningTable, Available: 1}); err != nil {
			t.Fatal(err)
		}
		id := plant(s, simkit.Fault{Mode: "delay", When: c.when, Until: "lifted", Op: "productVariant", Count: 1})
		got := make(chan answer, 1)
		go func() {
			a, err := post(t.Context(), s, chairs, s.Token(chairs), stockDoc, variantVar(diningTable))
			if err != nil {
				t.Errorf("the delayed read: %v", err)
			}
			got <- a
		}()
		until(t, "the request is held", func() bool { return s.Faults.Held() == 1 })
		if err := s.SetStock(chairs, Change{VariantID: diningTable, Available: 7}); err != nil {
			t.Fatal(err)
		}
		if err := s.Faults.Delete(id); err != nil {
			t.Fatal(err)
		}
		if a := <-got; a.at(t, "productVariant.sellableOnlineQuantity") != c.want {
			t.Errorf("delayed %s: %s, want %v", c.when, a.raw, c.want)
		}
	}
}

func TestARequestThatIsHeldNoticesThatItsClientWentAway(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	plant(s, simkit.Fault{Mode: "delay", Until: "lifted", Op: "draftOrderCreate"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := post(ctx, s, chairs, s.Token(chairs), createDoc, draftInput(s, diningTable, time.Hour, ""))
		done <- err
	}()
	until(t, "the request is held", func() bool { return s.Faults.Held() == 1 })
	cancel()
	if err := <-done; err == nil {
		t.Error("the request was answered")
	}
	until(t, "it is held no more", func() bool { return s.Faults.Held() == 0 })
	want(t, s, diningTable, 1, 0, 0, 1)
}

func TestAnIndexThatLagsMissesWhatWasJustCreated(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	id := create(t, s, chairs, oakWhite, `,"tags":["holdfast-7"]`)
	found := func() int {
		t.Helper()
		return len(get(t, s, chairs, findDoc, `{"q":"tag:'holdfast-7'"}`).at(t, "draftOrders.nodes").([]any))
	}
	fault := plant(s, simkit.Fault{Mode: "index_lag", Op: "draftOrders", MS: 60_000})
	if n := found(); n != 0 {
		t.Errorf("%d found, want the index behind", n)
	}
	if a := get(t, s, chairs, readDoc, `{"id":"`+id+`"}`); a.at(t, "draftOrder.id") != id {
		t.Errorf("by id: %s, want no lag there", a.raw)
	}
	s.Clock.Push(2 * time.Minute)
	if n := found(); n != 1 {
		t.Errorf("%d found two minutes later, want 1", n)
	}
	if err := s.Faults.Delete(fault); err != nil {
		t.Fatal(err)
	}
	plant(s, simkit.Fault{Mode: "index_lag", Op: "draftOrders", Count: 1})
	if n := found(); n != 0 {
		t.Errorf("%d found by an index without an end to its lag", n)
	}
	if n := found(); n != 1 {
		t.Errorf("%d found, want 1 when it is over", n)
	}
}

func TestAFaultForEveryOperationCountsARequestOnce(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	plant(s, simkit.Fault{Mode: "status", Code: http.StatusServiceUnavailable, Count: 2})
	both := `{shop{name} draftOrder(id:"gid://shopify/DraftOrder/1"){id}}`
	for i, status := range []int{503, 503, 200} {
		if a := ask(t, s, chairs, both, ""); a.status != status {
			t.Errorf("request %d: %d, want %d", i+1, a.status, status)
		}
	}
	plant(s, simkit.Fault{Mode: "status", Code: http.StatusServiceUnavailable, Op: "draftOrder", Count: 1, Shop: chairs})
	if a := ask(t, s, lamps, both, ""); a.status != 200 {
		t.Errorf("another shop: %d", a.status)
	}
	if a := ask(t, s, chairs, both, ""); a.status != 503 {
		t.Errorf("a fault for the second field: %d, want 503", a.status)
	}
}
