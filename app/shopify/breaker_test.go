package shopify

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"holdfast/app/waitlist"
)

func (a *admin) read() error {
	_, _, err := a.client.ReadDraft(a.t.Context(), 1, 7)
	return err
}

// wantAway fails unless a call is kept back for so long.
func (a *admin) wantAway(after time.Duration) {
	a.t.Helper()
	calls := len(a.calls())
	err := a.read()
	var away *waitlist.Away
	if !errors.As(err, &away) || away.After != after || !away.Since.Equal(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)) {
		a.t.Errorf("%v, want to be kept back for %v", err, after)
	}
	if len(a.calls()) != calls {
		a.t.Error("Shopify was called all the same")
	}
}

func TestAShopThatIsNotAnsweredIsLeftAlone(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, says(502, "<html>"))
	for range breakAfter {
		if err := a.read(); err == nil || errors.As(err, new(*waitlist.Away)) {
			t.Fatalf("%v", err)
		}
	}
	for _, pause := range []time.Duration{5, 10, 20, 40, 60, 60} {
		pause *= time.Second
		a.wantAway(pause)
		a.clock.Advance(pause - time.Second)
		a.wantAway(time.Second)
		a.clock.Advance(time.Second)
		if err := a.read(); err == nil || errors.As(err, new(*waitlist.Away)) { // the one that is let through
			t.Fatalf("%v", err)
		}
	}
	a.clock.Advance(time.Minute)
	a.answers = says(200, withCost(noDraft, 4, 1, 1900))
	if err := a.read(); err != nil {
		t.Fatalf("Shopify is back: %v", err)
	}
	if err := a.read(); err != nil {
		t.Fatalf("and stays: %v", err)
	}
}

func TestOneCallAtATimeLooksWhetherShopifyIsBack(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, says(503, ""))
	for range breakAfter {
		a.read()
	}
	a.clock.Advance(firstPause)
	arrived, answer := make(chan struct{}), make(chan struct{})
	a.answers = func(w http.ResponseWriter, r *http.Request, q request) {
		close(arrived)
		<-answer
		says(200, withCost(noDraft, 4, 1, 1900))(w, r, q)
	}
	done := make(chan error)
	go func() { done <- a.read() }()
	<-arrived
	a.wantAway(time.Second)
	close(answer)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	a.answers = says(200, withCost(noDraft, 4, 1, 1900))
	if err := a.read(); err != nil {
		t.Fatal(err)
	}
}

// Two calls were under way when Shopify fell silent. They fail while the probe is under way: neither lets
// another call through, nor makes the pause longer than the probe says.
func TestCallsFromBeforeThePauseChangeNothingWhenTheyFail(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, nil)
	// call sends a call whose answer is a 503 as soon as fail is closed; done is closed when it has ended.
	call := func(ctx context.Context) (fail, done chan struct{}) {
		arrived := make(chan struct{})
		fail, done = make(chan struct{}), make(chan struct{})
		a.answers = func(w http.ResponseWriter, r *http.Request, _ request) {
			close(arrived)
			select {
			case <-fail:
			case <-r.Context().Done():
			}
			w.WriteHeader(503)
		}
		go func() {
			defer close(done)
			a.client.ReadDraft(ctx, 1, 7)
		}()
		<-arrived
		return fail, done
	}
	oldFails, oldDone := call(t.Context())
	ctx, giveUp := context.WithCancel(t.Context())
	_, givenUp := call(ctx)
	a.answers = says(503, "")
	for range breakAfter {
		a.read()
	}
	a.clock.Advance(firstPause)
	probeFails, probeDone := call(t.Context())
	a.answers = says(503, "")

	giveUp()
	<-givenUp
	a.wantAway(time.Second) // the probe is still the only one
	close(oldFails)
	<-oldDone
	a.wantAway(time.Second)
	close(probeFails)
	<-probeDone
	a.wantAway(2 * firstPause)
}

func TestARefusalIsAnAnswer(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 402, 403, 404, 423, 429} {
		a := newAdmin(t, says(status, ""))
		for range 2 * breakAfter {
			err := a.read()
			if errors.As(err, new(*waitlist.Away)) {
				t.Errorf("%d: %v", status, err)
			}
			a.clock.Advance(time.Minute)
		}
	}
}

// Points that are short are spent on reserving units first, then on reading stock, then on the rest.
func TestWhatMattersMoreIsServedFirst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		left              float64
		draft, read, list bool
	}{{2000, true, true, true}, {1200, true, true, true}, {1100, true, true, false}, {420, true, true, false}, {410, true, false, false}, {10, true, false, false}, {2, false, false, false}} {
		b := newBucket(time.Unix(0, 0))
		b.available = c.left
		for name, op := range map[string]struct {
			op   operation
			vars map[string]any
			may  bool
		}{
			"a draft":      {draftOrder, nil, c.draft},
			"a stock read": {nodes, map[string]any{"ids": []string{"1"}}, c.read},
			"a listing":    {allDraftOrders, map[string]any{"first": 50}, c.list},
		} {
			if wait := b.take(float64(op.op.points(op.vars)), op.op.keep, time.Unix(0, 0)); (wait == 0) != op.may {
				t.Errorf("with %g points %s waits %v", c.left, name, wait)
			} else if wait == 0 {
				b.settle(0, &throttleStatus{2000, c.left, 100}, time.Unix(0, 0))
				b.underWay = 0
			}
		}
	}
	// A call that costs more than may be spent is possible once the bucket is full.
	b := newBucket(time.Unix(0, 0))
	if wait := b.take(1500, forOthers, time.Unix(0, 0)); wait != 0 {
		t.Errorf("with a full bucket: %v", wait)
	}
}
