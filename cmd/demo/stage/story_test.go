package stage

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/app/db/dbtest"
)

// What the whole thing must show, with the program as it is built for production. It is built once.
func TestWithTheRealProgram(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "holdfast")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "holdfast/cmd/holdfast").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for name, story := range map[string]func(*testing.T, string){
		"TheStoryOfTheChairs":                         theStoryOfTheChairs,
		"OpeningALinkChangesNothing":                  openingALinkChangesNothing,
		"OneOfManyWhoPressAtOnceGetsTheUnit":          oneOfManyWhoPressAtOnceGetsTheUnit,
		"UnitsThatStrangersBoughtArePromisedToNobody": unitsThatStrangersBoughtArePromisedToNobody,
		"AKillAtANamedPointLosesNothing":              aKillAtANamedPointLosesNothing,
		"WhatIsRefusedWritesNothing":                  whatIsRefusedWritesNothing,
		"AShopComesAndGoesAndComesBack":               aShopComesAndGoesAndComesBack,
		"AStopIsHeardAtBothEnds":                      aStopIsHeardAtBothEnds,
		"ABounceAndAComplaintAreHeard":                aBounceAndAComplaintAreHeard,
		"AMerchantConnectsTwilio":                     aMerchantConnectsTwilio,
		"KilledAtRandomUnderLoad":                     killedAtRandomUnderLoad,
		"TheDatabaseIsLostForAWhile":                  theDatabaseIsLostForAWhile,
		"StoppedUnderLoadNothingFails":                stoppedUnderLoadNothingFails,
		"OneContactOneRestockAndALateRead":            oneContactOneRestockAndALateRead,
		"ReserveBeforeTelling":                        reserveBeforeTelling,
		"ARestockBoughtDownToThreeTellsThree":         aRestockBoughtDownToThreeTellsThree,
		"AThousandAreToldInOrder":                     aThousandAreToldInOrder,
		"CustomersAndShopsAreErased":                  customersAndShopsAreErased,
		"ThreeHundredPressesOnASmallPlan":             threeHundredPressesOnASmallPlan,
		"ShopifyIsAwayForHalfAnHour":                  shopifyIsAwayForHalfAnHour,
		"ALostAnswerLeavesOneDraft":                   aLostAnswerLeavesOneDraft,
		"StockAtTheSecondPlaceIsNoPhantom":            stockAtTheSecondPlaceIsNoPhantom,
		"AMerchantTouchesOurDrafts":                   aMerchantTouchesOurDrafts,
		"BuyersAndCancelledOrders":                    buyersAndCancelledOrders,
		"WhatRefusesAShopIsShownAndCounted":           whatRefusesAShopIsShownAndCounted,
		"AFloodOfWebhooksFindsEveryRestockOnce":       aFloodOfWebhooksFindsEveryRestockOnce,
		"TheCatalogueIsReadAndMended":                 theCatalogueIsReadAndMended,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, binary)
		})
	}
}

// scene is a stage with the real program, and the steps of a story on it. Every step fails the test when
// it cannot be done.
type scene struct {
	t   *testing.T
	s   *Stage
	c   *Client
	log *said
}

// said is what the program has logged.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *said) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *said) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newScene(t *testing.T, binary string, apps int) *scene {
	t.Helper()
	return newSceneOn(t, binary, apps, dbtest.EmptyURL(t))
}

// newSceneOn plays on the database at a URL, or, for "", on a PostgreSQL of its own that can be lost.
func newSceneOn(t *testing.T, binary string, apps int, database string) *scene {
	t.Helper()
	log := &said{}
	data, err := os.MkdirTemp("", "holdfast-scene-") // not TempDir, which the user who runs PostgreSQL cannot enter
	if err == nil {
		err = os.Chmod(data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(data) })
	s, err := Start(t.Context(), Options{Binary: binary, Apps: apps, DatabaseURL: database, DataDir: data, AppLog: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the app says:\n%s", log)
		}
	})
	sc := &scene{t, s, s.Client(), log}
	// The stories press on offers whose unit is not held yet, unless they say otherwise.
	sc.must(sc.c.Settings(t.Context(), FirstShop, map[string]any{"reserve_before_telling": false}))
	return sc
}

func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// person is a shopper with an address of their own.
func person(n int) string { return fmt.Sprintf("shopper%d@example.com", n) }

func (s *scene) join(n int) {
	s.t.Helper()
	got, err := s.c.Join(s.t.Context(), FirstShop, fmt.Sprintf("203.0.%d.%d", 113+n/250, n%250), Tap{VariantID: oak, Channel: "email", Contact: person(n), Name: fmt.Sprint("Shopper ", n), Consent: "1"})
	s.must(err)
	if want := fmt.Sprintf(`{"status":"accepted","contact":%q}`, person(n)); got.Status != http.StatusAccepted || string(got.Body) != want {
		s.t.Fatalf("join %d: %d %s", n, got.Status, got.Body)
	}
}

const oak = "30011" // the oak chair, sold out

func (s *scene) stock(n int) {
	s.t.Helper()
	s.must(s.c.SetStock(s.t.Context(), FirstShop, oak, n))
	s.settle()
}

// settle brings everything to rest and finds every promise kept.
func (s *scene) settle() {
	s.t.Helper()
	var report Report
	for range 5 { // the periodic sweep may begin between the two calls
		s.must(s.c.Settle(s.t.Context()))
		var err error
		report, err = s.c.Invariants(s.t.Context())
		s.must(err)
		if !report.OK {
			s.t.Fatalf("invariants: %s", strings.Join(report.Why, "\n"))
		}
		if report.Settled {
			return
		}
	}
	s.t.Fatalf("it does not settle: %+v", report.InFlight)
}

func (s *scene) advance(by time.Duration) {
	s.t.Helper()
	s.must(s.c.Advance(s.t.Context(), by))
	s.settle()
}

// told lists who has been sent a message, in order.
func (s *scene) told() []string {
	s.t.Helper()
	all, err := s.c.Messages(s.t.Context(), "")
	s.must(err)
	var to []string
	for _, m := range all {
		to = append(to, m.To)
	}
	return to
}

// link is the link of a kind in the last message to somebody.
func (s *scene) link(n int, kind string) string {
	s.t.Helper()
	all, err := s.c.Messages(s.t.Context(), person(n))
	s.must(err)
	if len(all) == 0 {
		s.t.Fatalf("nobody has told %s", person(n))
	}
	link := all[len(all)-1].Link(kind)
	if link == "" {
		s.t.Fatalf("no %s link in %q", kind, all[len(all)-1].Body)
	}
	return link
}

// press presses the button of the reserve page and returns the status of the page that follows.
func (s *scene) press(n int) int {
	s.t.Helper()
	status, _, _, err := s.c.Page(s.t.Context(), "POST", s.link(n, "/r/"), url.Values{})
	s.must(err)
	return status
}

// pressAll has people 1 to n press at the same time and returns the statuses.
func (s *scene) pressAll(n int) []int {
	s.t.Helper()
	links, statuses, errs := make([]string, n), make([]int, n), make([]error, n)
	for i := range n {
		links[i] = s.link(i+1, "/r/")
	}
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { statuses[i], _, _, errs[i] = s.c.Page(s.t.Context(), "POST", links[i], url.Values{}) })
	}
	wait.Wait()
	s.must(errors.Join(errs...))
	return statuses
}

// wantReserve looks at how a reserve link stands.
func (s *scene) wantReserve(n int, state string) ReserveStatus {
	s.t.Helper()
	got, err := s.c.ReserveStatus(s.t.Context(), s.link(n, "/r/"))
	s.must(err)
	if got.State != state {
		s.t.Errorf("the reserve link of %s is %s, want %s", person(n), got.State, state)
	}
	return got
}

// wantStates compares the queue, from its head, with the states that are expected.
func (s *scene) wantStates(want ...string) {
	s.t.Helper()
	entries, err := s.c.Entries(s.t.Context(), FirstShop, oak)
	s.must(err)
	var got []string
	for _, e := range entries {
		got = append(got, e.State)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		s.t.Errorf("the queue is %v, want %v", got, want)
	}
}

func (s *scene) openDrafts() (n int) {
	s.t.Helper()
	drafts, err := s.c.Drafts(s.t.Context(), FirstShop)
	s.must(err)
	for _, d := range drafts {
		if d.Status == "OPEN" {
			n++
		}
	}
	return n
}

// Seven people queue for a sold-out chair and four come back: four are told, oldest first. Two press, one
// pays, one lets the hold run out; the fifth is told then, and nobody else.
func theStoryOfTheChairs(t *testing.T, binary string) {
	s := newScene(t, binary, 1)
	for n := range 7 {
		s.join(n + 1)
	}
	s.settle()
	s.wantStates("waiting", "waiting", "waiting", "waiting", "waiting", "waiting", "waiting")
	if told := s.told(); len(told) != 0 {
		t.Fatalf("a tap sends nothing, and these were told: %v", told)
	}

	s.stock(4)
	s.wantStates("offered", "offered", "offered", "offered", "waiting", "waiting", "waiting")
	if told := s.told(); !slices.Equal(told, []string{person(1), person(2), person(3), person(4)}) {
		t.Fatalf("told: %v", told)
	}

	for _, n := range []int{1, 2} {
		if status := s.press(n); status != http.StatusSeeOther {
			t.Fatalf("the press of %s: %d", person(n), status)
		}
	}
	s.settle()
	s.wantStates("holding", "holding", "offered", "offered", "waiting", "waiting", "waiting")
	first, second := s.wantReserve(1, "held"), s.wantReserve(2, "held")
	if second.Until == nil || second.CheckoutURL == "" || s.openDrafts() != 2 {
		t.Fatalf("%+v, %d open drafts", second, s.openDrafts())
	}

	s.must(s.c.Pay(t.Context(), first.CheckoutURL))
	s.settle()
	s.wantStates("sold", "holding", "offered", "offered", "waiting", "waiting", "waiting")
	s.wantReserve(1, "sold")

	s.advance(16 * time.Minute) // past the hold, not past the offers
	s.wantStates("sold", "waiting", "offered", "offered", "offered", "waiting", "waiting")
	s.wantReserve(2, "expired")
	if told := s.told(); len(told) != 5 || told[4] != person(5) {
		t.Errorf("after a hold ran out: told %v", told)
	}
	if n := s.openDrafts(); n != 0 {
		t.Errorf("%d drafts are left over", n)
	}
	// The other two offers lapse an hour after they were made; their units go to the last in line.
	s.advance(50 * time.Minute)
	s.wantStates("sold", "waiting", "waiting", "waiting", "offered", "offered", "offered")
	if told := s.told(); len(told) != 7 {
		t.Errorf("told %v", told)
	}
}

// Link previews and mail scanners open every link, some of them with HEAD.
func openingALinkChangesNothing(t *testing.T, binary string) {
	s := newScene(t, binary, 1)
	s.join(1)
	s.join(2)
	s.stock(1)
	before, err := s.c.Dump(t.Context())
	s.must(err)
	for _, method := range []string{"GET", "HEAD"} {
		for _, kind := range []string{"/r/", "/u/", "/q/"} {
			for range 3 {
				if status, body, _, err := s.c.Page(t.Context(), method, s.link(1, kind), nil); err != nil || status != http.StatusOK {
					t.Errorf("%s %s: %d, %v: %.300s", method, kind, status, err, body)
				}
			}
		}
		if status, _, _, err := s.c.Page(t.Context(), method, s.link(1, "/r/")+"/status", nil); err != nil || status != http.StatusOK {
			t.Errorf("%s status: %d, %v", method, status, err)
		}
	}
	s.settle()
	after, err := s.c.Dump(t.Context())
	s.must(err)
	for table := range before {
		if after[table] != before[table] {
			t.Errorf("%s was %+v, and is %+v", table, before[table], after[table])
		}
	}
	s.wantReserve(1, "open")
}

// 64 people are told of one unit and press at once, through a balancer in front of two processes.
func oneOfManyWhoPressAtOnceGetsTheUnit(t *testing.T, binary string) {
	s := newScene(t, binary, 2)
	const people = 64
	s.must(s.c.Settings(t.Context(), FirstShop, map[string]any{"notices_per_unit": people}))
	for n := range people {
		s.join(n + 1)
	}
	s.stock(1)
	if told := s.told(); len(told) != people {
		t.Fatalf("%d were told", len(told))
	}
	statuses := s.pressAll(people)
	won := 0
	for n, status := range statuses {
		switch status {
		case http.StatusSeeOther:
			won++
		case http.StatusGone:
		default:
			t.Errorf("the press of %s: %d", person(n+1), status)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d presses got the one unit", won, people)
	}
	s.settle()
	entries, err := s.c.Entries(t.Context(), FirstShop, oak)
	s.must(err)
	states, place := map[string]int{}, 0
	for _, e := range entries {
		states[e.State]++
		if e.State == "waiting" {
			place++
			if e.Place != place {
				t.Errorf("%s lost their place: %d, not %d", e.Contact, e.Place, place)
			}
		}
	}
	if states["holding"] != 1 || states["waiting"] != people-1 || s.openDrafts() != 1 {
		t.Errorf("%v, %d drafts", states, s.openDrafts())
	}
}

// 64 offers stand open for 64 units, and 63 of the units are bought by strangers while every webhook is
// lost: whoever presses, one hold becomes active, and Shopify's own numbers refuse the others.
func unitsThatStrangersBoughtArePromisedToNobody(t *testing.T, binary string) {
	s := newScene(t, binary, 1)
	const people = 64
	for n := range people {
		s.join(n + 1)
	}
	s.stock(people)
	if told := s.told(); len(told) != people {
		t.Fatalf("%d were told", len(told))
	}
	fault, err := s.c.Fault(t.Context(), map[string]any{"target": "webhooks", "mode": "lose"})
	s.must(err)
	s.must(s.c.Buy(t.Context(), FirstShop, oak, people-1))
	s.pressAll(people)
	s.must(s.c.Settle(t.Context()))
	entries, err := s.c.Entries(t.Context(), FirstShop, oak)
	s.must(err)
	states, holds := map[string]int{}, map[string]int{}
	for _, e := range entries {
		states[e.State]++
		for _, h := range e.Holds {
			holds[h.State]++
		}
	}
	if states["holding"] != 1 || states["waiting"] != people-1 || holds["active"] != 1 || holds["active"]+holds["refused"] != len(entriesWithHolds(entries)) {
		t.Errorf("entries %v, holds %v", states, holds)
	}
	if n := s.openDrafts(); n != 1 {
		t.Errorf("%d drafts are open", n)
	}
	s.must(s.c.Lift(t.Context(), fault))
	s.advance(20 * time.Minute) // by then the app has read everything again
}

func entriesWithHolds(all []Entry) (with []Entry) {
	for _, e := range all {
		if len(e.Holds) > 0 {
			with = append(with, e)
		}
	}
	return with
}

// What is not understood is refused by name, and nothing is written.
func whatIsRefusedWritesNothing(t *testing.T, binary string) {
	s := newScene(t, binary, 1)
	s.join(1)
	s.settle()
	before, err := s.c.Dump(t.Context())
	s.must(err)
	for code, tap := range map[string]Tap{
		"invalid_phone":    {VariantID: oak, Channel: "sms", Contact: "12", Consent: "1"},
		"invalid_email":    {VariantID: oak, Channel: "email", Contact: "nobody at home", Consent: "1"},
		"invalid_channel":  {VariantID: oak, Channel: "pigeon", Contact: person(2), Consent: "1"},
		"missing_variant":  {Channel: "email", Contact: person(2), Consent: "1"},
		"consent_required": {VariantID: oak, Channel: "email", Contact: person(2), Consent: "false"},
		"unknown_variant":  {VariantID: "999", Channel: "email", Contact: person(2), Consent: "1"},
	} {
		got, err := s.c.Join(t.Context(), FirstShop, "203.0.113.77", tap)
		s.must(err)
		want := http.StatusBadRequest
		if code == "unknown_variant" {
			want = http.StatusNotFound
		}
		if got.Status != want || !strings.Contains(string(got.Body), fmt.Sprintf("%q", code)) {
			t.Errorf("%s: %d %s", code, got.Status, got.Body)
		}
	}
	for _, tamper := range []string{"sig", "none", "stale", "shop", "customer", "query", "duplicate"} {
		var got ProxyAnswer
		s.must(s.c.Do(t.Context(), "POST", "/sim/proxy", map[string]any{
			"shop": FirstShop, "path": "/waitlist", "body": Tap{VariantID: oak, Channel: "email", Contact: person(2), Consent: "1"}, "tamper": tamper,
		}, &got))
		if got.Status != http.StatusUnauthorized {
			t.Errorf("a proxied request spoilt by %s: %d %s", tamper, got.Status, got.Body)
		}
	}
	for _, tamper := range tampers {
		var got struct{ Status int }
		s.must(s.c.Do(t.Context(), "POST", "/sim/admin", map[string]any{"shop": FirstShop, "method": "POST", "path": "/settings", "form": map[string]any{"hold_minutes": 30}, "tamper": tamper}, &got))
		if got.Status != http.StatusUnauthorized {
			t.Errorf("an admin request spoilt by %s: %d", tamper, got.Status)
		}
	}
	for _, topic := range []string{"inventory_levels/update", "app/uninstalled", "shop/redact"} {
		for _, tamper := range []string{"sig", "none", "body"} {
			var got struct{ Status int }
			err := s.c.Do(t.Context(), "POST", "/sim/webhook", map[string]any{"shop": FirstShop, "topic": topic, "body": map[string]any{"inventory_item_id": 40011}, "tamper": tamper}, &got)
			s.must(err)
			if got.Status != http.StatusUnauthorized {
				t.Errorf("a webhook %s spoilt by %s: %+v", topic, tamper, got)
			}
		}
	}
	for _, query := range []string{"?shop=evil.com", "?shop=evil.com/x.myshopify.com", "?shop=x.myshopify.com.evil.com", "?shop=" + FirstShop + "&shop=evil.com"} {
		status, _, location, err := s.c.Page(t.Context(), "GET", s.s.AppURL+"/auth/install"+query, nil)
		s.must(err)
		if status != http.StatusBadRequest || location != "" {
			t.Errorf("an installation from %s: %d to %q", query, status, location)
		}
	}
	s.must(s.c.Settle(t.Context()))
	for _, secret := range []string{ClientSecret, s.s.sims.shopify.Token(FirstShop), person(1), person(2)} {
		if log := s.log.String(); strings.Contains(log, secret) {
			t.Errorf("the log says %s", secret)
		}
	}
	after, err := s.c.Dump(t.Context())
	s.must(err)
	for table := range before {
		if after[table] != before[table] {
			t.Errorf("%s was %+v, and is %+v", table, before[table], after[table])
		}
	}
	err = s.c.Settings(t.Context(), FirstShop, map[string]any{"hold_minutes": 4, "ttl_days": 0})
	if f, ok := err.(*Failed); !ok || f.Status != http.StatusUnprocessableEntity || !strings.Contains(f.Body, "hold_minutes") || !strings.Contains(f.Body, "ttl_days") {
		t.Errorf("settings out of range: %v", err)
	}
}

// A shopper who answers STOP is neither told nor taken into a queue again, and nobody can see it.
func aStopIsHeardAtBothEnds(t *testing.T, binary string) {
	s := newScene(t, binary, 1)
	const phone = "+447400123456"
	tap := Tap{VariantID: oak, Channel: "sms", Contact: phone, Consent: "1"}
	first, err := s.c.Join(t.Context(), FirstShop, "203.0.113.1", tap)
	s.must(err)
	s.join(2)
	s.stock(1)
	texts, err := s.c.Messages(t.Context(), phone)
	s.must(err)
	if len(texts) != 1 || texts[0].Link("/r/") == "" {
		t.Fatalf("texts: %+v", texts)
	}
	s.must(s.c.Do(t.Context(), "POST", "/sim/sms", map[string]string{"from": phone, "to": texts[0].From, "body": "Stop"}, nil))
	s.settle()
	s.wantStates("suppressed", "offered")
	s.press(2) // or the unit could simply be bought
	s.settle()
	again, err := s.c.Join(t.Context(), FirstShop, "203.0.113.1", tap)
	s.must(err)
	if again.Status != first.Status || !bytes.Equal(again.Body, first.Body) {
		t.Errorf("the answer to a suppressed contact: %d %s, to a new one %d %s", again.Status, again.Body, first.Status, first.Body)
	}
	s.stock(5)
	s.wantStates("suppressed", "holding")
	if texts, err := s.c.Messages(t.Context(), phone); err != nil || len(texts) != 1 {
		t.Errorf("%d texts after a STOP, %v", len(texts), err)
	}
}

// Texts are offered while a Twilio account is connected that works.
func aMerchantConnectsTwilio(t *testing.T, binary string) {
	s := newScene(t, binary, 1)
	texts := func(want bool) {
		t.Helper()
		answer, err := s.c.Ask(t.Context(), FirstShop, oak)
		s.must(err)
		if bytes.Contains(answer.Body, []byte(`"sms"`)) != want {
			t.Errorf("texts are to be offered: %v, the answer is %s", want, answer.Body)
		}
	}
	admin := func(path string, form map[string]string, want int, says string) {
		t.Helper()
		var reply struct {
			Status int
			Body   string
		}
		s.must(s.c.Do(t.Context(), "POST", "/sim/admin", map[string]any{"shop": FirstShop, "method": "POST", "path": path, "form": form}, &reply))
		if reply.Status != want || !strings.Contains(reply.Body, says) {
			t.Errorf("%s: %d, want %d and %q", path, reply.Status, want, says)
		}
	}
	texts(true)
	admin("/settings/senders/disconnect", nil, 303, "")
	texts(false)
	account := twilioOf(FirstShop)
	const phone = "+447400123456"
	form := map[string]string{"account_sid": account.AccountSID, "api_key": account.APIKey, "api_secret": strings.Repeat("0", 32), "auth_token": account.AuthToken,
		"messaging_service_sid": account.MessagingServiceSID, "phone": phone}
	admin("/settings/senders", form, 422, "refuses the account")
	texts(false)
	form["api_secret"] = account.APISecret
	admin("/settings/senders", form, 303, "")
	texts(true)
	if got, err := s.c.Messages(t.Context(), phone); err != nil || len(got) != 1 || !strings.Contains(got[0].Body, "this is a test") {
		t.Errorf("%+v, %v", got, err)
	}
	// An account that stops working takes texts off the storefront, until it is put right.
	_, err := s.c.Join(t.Context(), FirstShop, "203.0.113.1", Tap{VariantID: oak, Channel: "sms", Contact: phone, Consent: "1"})
	s.must(err)
	_, err = s.c.Fault(t.Context(), map[string]any{"target": "twilio", "op": "create", "mode": "status", "code": 20003, "count": 1})
	s.must(err)
	s.stock(1)
	s.wantStates("waiting")
	s.stock(0)
	texts(false)
	admin("/settings/senders/test", map[string]string{"test_phone": phone}, 303, "")
	texts(true)
	s.stock(1)
	s.wantStates("offered")
}

// A bounce and a complaint are heard as a STOP is, and nobody else can report them.
func aBounceAndAComplaintAreHeard(t *testing.T, binary string) {
	s := newScene(t, binary, 1)
	for n := range 3 {
		s.join(n + 1)
	}
	s.stock(1)
	for n, kind := range []string{"bounce", "complaint"} {
		mails, err := s.c.Messages(t.Context(), person(n+1))
		s.must(err)
		if len(mails) != 1 {
			t.Fatalf("mails: %+v", mails)
		}
		forged := `{"RecordType":"Bounce","Type":"HardBounce","Email":"` + person(n+1) + `","Metadata":{"holdfast":"` + mails[0].Headers["X-Pm-Metadata-Holdfast"] + `"}}`
		status, _, _, err := s.c.Page(t.Context(), "POST", s.s.AppURL+"/webhooks/email/guessed", url.Values{"x": {forged}})
		if s.must(err); status != 403 {
			t.Errorf("a forged report: %d", status)
		}
		event := map[string]string{"message_id": mails[0].ID, "kind": kind}
		s.must(s.c.Do(t.Context(), "POST", "/sim/mail_event", event, nil))
		s.must(s.c.Do(t.Context(), "POST", "/sim/mail_event", event, nil))
		s.settle()
	}
	s.wantStates("suppressed", "suppressed", "offered")
}

// Wherever the program is killed, a press ends with the unit held or returned, once, and nobody is told
// twice.
func aKillAtANamedPointLosesNothing(t *testing.T, binary string) {
	passedIn := map[string]string{ // the step of the story in which a point is passed
		"webhook_commit": "stock", "send": "stock", "claim_commit": "press", "draft_create": "press", "draft_delete": "pass", "release_commit": "pass",
	}
	for _, point := range points {
		for _, mode := range []string{"crash_before", "crash_after"} {
			t.Run(point+" "+mode, func(t *testing.T) {
				t.Parallel()
				s := newScene(t, binary, 1)
				// step does something; when the point lies in it, the program is killed there and started again.
				step := func(name string, do func()) {
					t.Helper()
					if passedIn[point] != name {
						do()
						s.settle()
						return
					}
					_, err := s.c.Fault(t.Context(), map[string]any{"target": "app", "op": point, "mode": mode, "count": 1})
					s.must(err)
					do()
					s.awaitDeath()
					_, err = s.c.App(t.Context(), "start", 0)
					s.must(err)
					s.settle()
				}
				s.join(1)
				s.join(2)
				step("stock", func() { s.must(s.c.SetStock(t.Context(), FirstShop, oak, 1)) })
				if point == "send" {
					// Whether that mail left is not known to the program, and no mail server can be asked: it is
					// sent once more, which its reader's program can tell by the Message-ID, and not a third time.
					s.advance(2 * time.Minute)
					s.advance(2 * time.Minute)
					mails, err := s.c.Messages(t.Context(), person(1))
					s.must(err)
					if want := map[string]int{"crash_before": 1, "crash_after": 2}[mode]; len(mails) != want {
						t.Fatalf("%d mails, want %d", len(mails), want)
					}
					for _, m := range mails {
						if m.Headers["Message-Id"] != mails[0].Headers["Message-Id"] || !slices.Equal(m.Links, mails[0].Links) {
							t.Errorf("the second mail is another one: %v, %v", m.Headers, m.Links)
						}
					}
				}
				told := slices.Compact(s.told())
				if !slices.Equal(told, []string{person(1)}) {
					t.Fatalf("told: %v", told)
				}
				step("press", func() { s.press(1) })
				if point == "claim_commit" && mode == "crash_before" { // it was never accepted, and is made again
					s.wantStates("offered", "waiting")
					s.press(1)
					s.settle()
				}
				s.wantReserve(1, "held")
				s.wantStates("holding", "waiting")
				if n := s.openDrafts(); n != 1 {
					t.Errorf("%d drafts are open", n)
				}
				step("pass", func() {
					_, _, _, err := s.c.Page(t.Context(), "POST", s.link(1, "/r/")+"/pass", url.Values{})
					s.must(err)
				})
				s.wantReserve(1, "passed")
				s.wantStates("waiting", "offered")
				if told := slices.Compact(s.told()); !slices.Equal(told, []string{person(1), person(2)}) {
					t.Errorf("told: %v", told)
				}
				if n := s.openDrafts(); n != 0 {
					t.Errorf("%d drafts are left over", n)
				}
			})
		}
	}
}

// awaitDeath returns when the one process of the app has ended.
func (s *scene) awaitDeath() {
	s.t.Helper()
	a := s.s.procs.all[0]
	a.mu.Lock()
	cmd, ended := a.cmd, a.ended
	a.mu.Unlock()
	if cmd == nil {
		return
	}
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
		s.t.Fatal("the app was not killed")
	}
}
