package shopify

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"holdfast/app/waitlist"
)

// wantWait fails unless the budget of shop 1 says to wait so long before a call of so many points.
func (a *admin) wantWait(points int, want time.Duration) {
	a.t.Helper()
	err := a.client.Budget(a.t.Context(), 1, points)
	var throttled *waitlist.Throttled
	switch {
	case want == 0 && err != nil:
		a.t.Errorf("%d points: %v", points, err)
	case want > 0 && (!errors.As(err, &throttled) || throttled.After != want):
		a.t.Errorf("%d points: got %v, want to wait %v", points, err, want)
	}
}

func TestABudgetIsWhatShopifySaidAndTheClock(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, says(200, withCost(noDraft, 4, 1, 15)))
	a.wantWait(2000, 0) // not called yet: the smallest plan's
	a.client.ReadDraft(t.Context(), 1, 7)
	a.wantWait(15, 0)
	a.wantWait(20, 50*time.Millisecond)
	a.wantWait(115, time.Second)
	a.clock.Advance(time.Second)
	a.wantWait(115, 0)
	a.wantWait(116, 10*time.Millisecond)
	a.clock.Advance(time.Hour)
	a.wantWait(2000, 0)
	a.wantWait(9999, 0) // more than a full bucket cannot be waited for
	if err := a.client.Budget(t.Context(), 2, 2000); err != nil {
		t.Errorf("one shop's calls took from another's budget: %v", err)
	}
}

func TestACallIsHeldBackWhenTheBudgetIsUsedUp(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, says(200, withCost(noDraft, 4, 1, 1)))
	a.client.ReadDraft(t.Context(), 1, 7)
	_, _, err := a.client.ReadDraft(t.Context(), 1, 7)
	var throttled *waitlist.Throttled
	if !errors.As(err, &throttled) || throttled.After != 20*time.Millisecond {
		t.Fatalf("got %v, want to wait for the 2 points that are missing", err)
	}
	if len(a.calls()) != 1 {
		t.Errorf("Shopify was called %d times", len(a.calls()))
	}
	a.clock.Advance(throttled.After)
	if _, _, err := a.client.ReadDraft(t.Context(), 1, 7); err != nil {
		t.Errorf("after the wait: %v", err)
	}
}

func TestCallsUnderWayAreSubtracted(t *testing.T) {
	t.Parallel()
	arrived, goOn := make(chan struct{}), make(chan struct{})
	a := newAdmin(t, func(w http.ResponseWriter, r *http.Request, q request) {
		close(arrived)
		<-goOn
		says(200, withCost(noDraft, 4, 1, 1999))(w, r, q)
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.client.ReadDraft(t.Context(), 1, 7)
	}()
	<-arrived
	a.wantWait(1997, 0)
	a.wantWait(2000, 30*time.Millisecond)
	close(goOn)
	<-done
	a.wantWait(1999, 0)
}

func TestACallThatWasNotAnsweredHasCostItsPoints(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, says(502, "<html>"))
	a.client.ReadDraft(t.Context(), 1, 7)
	a.wantWait(1997, 0)
	a.wantWait(2000, 30*time.Millisecond)
}

func TestTooManyRequestsCloseTheBudgetForAWhile(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, func(w http.ResponseWriter, _ *http.Request, _ request) {
		w.Header().Set("Retry-After", "4")
		w.WriteHeader(429)
	})
	a.client.ReadDraft(t.Context(), 1, 7)
	a.wantWait(1, 4*time.Second)
	a.clock.Advance(3 * time.Second)
	a.wantWait(1, time.Second)
	a.clock.Advance(time.Second)
	a.wantWait(1, 0)
}

func TestARetryAfterIsNeverTakenAtItsWord(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{
		"": time.Second, "soon": time.Second, "-1": time.Second, "0": time.Second, "NaN": time.Second,
		"2.0": 2 * time.Second, "0.25": 250 * time.Millisecond, "86400": time.Minute, "Inf": time.Minute,
	} {
		if got := retryAfter(header); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}
