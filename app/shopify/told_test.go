package shopify

import (
	"net/http"
	"testing"
	"time"

	"holdfast/app/waitlist"
)

func TestTheOutcomeOfACallIsOneWord(t *testing.T) {
	t.Parallel()
	for want, answers := range map[string]func(http.ResponseWriter, *http.Request, request){
		"ok":        says(200, withCost(noDraft, 4, 1, 1999)),
		"throttled": says(429, ""),
		"refused":   says(402, ""),
		"rejected":  says(200, `{"errors":[{"message":"bad","extensions":{"code":"INVALID_VARIABLE"}}]}`),
		"failed":    says(502, ""),
	} {
		a := newAdmin(t, answers)
		var got []string
		a.config.Called = func(c Call) {
			if got = append(got, c.Outcome()); c.Took <= 0 {
				t.Errorf("%s took %v", want, c.Took)
			}
		}
		a.start()
		a.read()
		if len(got) != 1 || got[0] != want {
			t.Errorf("told %v, want %s", got, want)
		}
	}
	if got := (Call{Err: &waitlist.Away{}}).Outcome(); got != "away" {
		t.Errorf("a call that was not made: %s", got)
	}
}

func TestShopsThatAreShortOrSilentAreCounted(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, saysInTurn(withCost(noDraft, 4, 1, 399)))
	if got := a.client.Budgets(); got != (Budgets{}) {
		t.Errorf("nobody was called: %+v", got)
	}
	a.read()
	if got := a.client.Budgets(); got != (Budgets{Shops: 1, Low: 1}) {
		t.Errorf("399 points of 2,000: %+v", got)
	}
	a.clock.Advance(time.Second)
	if got := a.client.Budgets(); got != (Budgets{Shops: 1}) {
		t.Errorf("a second later: %+v", got)
	}
	a.answers = says(502, "")
	for range breakAfter {
		a.read()
	}
	if got := a.client.Budgets(); got != (Budgets{Shops: 1, Away: 1}) {
		t.Errorf("not answered: %+v", got)
	}
}

// A hold's clock is started when the budget allows its calls: not while none would be made.
func TestThereIsNoBudgetWhileShopifyIsAway(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, says(502, ""))
	for range breakAfter {
		a.read()
	}
	err := a.client.Budget(t.Context(), 1, 10)
	if got := (Call{Err: err}).Outcome(); got != "away" {
		t.Errorf("got %v", err)
	}
	a.clock.Advance(firstPause)
	if err := a.client.Budget(t.Context(), 1, 10); err != nil {
		t.Errorf("one call may look whether it is back: %v", err)
	}
}
