package shopify

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

func TestAnEmptySecretIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Config{
		"no client id":          {ClientSecret: testSecret},
		"no secret":             {ClientID: testClient},
		"no version":            {ClientID: testClient, ClientSecret: testSecret, APIVersion: "stable"},
		"a version of no month": {ClientID: testClient, ClientSecret: testSecret, APIVersion: "2026-11"},
		"a simulator elsewhere": {ClientID: testClient, ClientSecret: testSecret, Sim: "http://sim.example.com"},
		"a simulator by name":   {ClientID: testClient, ClientSecret: testSecret, Sim: "127.0.0.1:8081"},
	} {
		if _, err := New(c, &shops{}, time.Now, nil); err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), testSecret) {
			t.Errorf("%s: the secret is in the error: %v", name, err)
		}
	}
	if _, err := New(Config{ClientID: testClient, ClientSecret: testSecret}, &shops{}, time.Now, nil); err != nil {
		t.Errorf("what is right is refused: %v", err)
	}
}

func TestEachCallCarriesTheShopsTokenToTheShopsAddress(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, says(200, withCost(noDraft, 4, 1, 1999)))
	if _, _, err := a.client.ReadDraft(t.Context(), 1, 7); err != nil {
		t.Fatal(err)
	}
	got := a.calls()
	if len(got) != 1 || got[0].Token != testToken || got[0].Path != "/shopify/"+testShop+"/admin/api/2026-10/graphql.json" {
		t.Fatalf("called %+v", got)
	}
	if got[0].Variables["id"] != "gid://shopify/DraftOrder/7" {
		t.Errorf("asked for %v", got[0].Variables)
	}
}

// carrier is a Transport made of a function.
type carrier func(*http.Request) (*http.Response, error)

func (c carrier) RoundTrip(r *http.Request) (*http.Response, error) { return c(r) }

func TestWithoutASimulatorTheShopItselfIsCalled(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, nil)
	var called string
	var left time.Duration
	a.config.Sim = ""
	a.config.Transport = carrier(func(r *http.Request) (*http.Response, error) {
		called = r.Method + " " + r.URL.String()
		deadline, _ := r.Context().Deadline()
		left = time.Until(deadline)
		w := httptest.NewRecorder()
		w.WriteString(withCost(noDraft, 4, 1, 1999))
		return w.Result(), nil
	})
	a.start()
	if _, _, err := a.client.ReadDraft(t.Context(), 1, 7); err != nil {
		t.Fatal(err)
	}
	if want := "POST https://chairs.myshopify.com/admin/api/2026-10/graphql.json"; called != want {
		t.Errorf("called %s, want %s", called, want)
	}
	if left <= 0 || left > Timeout {
		t.Errorf("the call may take %v", left)
	}
}

func TestNothingButAShopsDomainIsCalled(t *testing.T) {
	t.Parallel()
	for _, domain := range []string{"evil.com/x.myshopify.com", "evil.com", "x.myshopify.com.evil.com", "x.myshopify.com:443@evil.com", "X.myshopify.com", ".myshopify.com", ""} {
		a := newAdmin(t, says(200, withCost(noDraft, 4, 1, 1999)))
		a.config.Sim = ""
		a.config.Transport = carrier(func(r *http.Request) (*http.Response, error) {
			t.Errorf("%q: called %s", domain, r.URL)
			return nil, errors.New("called")
		})
		a.shops.shop.Domain = domain
		a.start()
		if _, _, err := a.client.ReadDraft(t.Context(), 1, 7); err == nil {
			t.Errorf("%q: no error", domain)
		}
	}
}

func TestATokenIsNotSentToAnotherHost(t *testing.T) {
	t.Parallel()
	tr := &transport{shop: testShop, base: carrier(func(r *http.Request) (*http.Response, error) {
		t.Errorf("called %s", r.URL)
		return nil, errors.New("called")
	})}
	for _, url := range []string{"https://evil.com/", "http://" + testShop + "/", "https://" + testShop + ":8443/"} {
		if _, err := tr.RoundTrip(httptest.NewRequest(http.MethodPost, url, nil)); err == nil {
			t.Errorf("%s: no error", url)
		}
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the redirect was followed")
	}))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		a := newAdmin(t, func(w http.ResponseWriter, r *http.Request, _ request) {
			http.Redirect(w, r, elsewhere.URL, status)
		})
		if _, _, err := a.client.ReadDraft(t.Context(), 1, 7); err == nil {
			t.Errorf("%d: no error", status)
		}
	}
}

func TestAShopThatLeftIsRefusedWithoutACall(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*shops){
		"unknown":     func(s *shops) { s.shop.ID = 2 },
		"uninstalled": func(s *shops) { s.shop.Installed = false },
		"no token":    func(s *shops) { s.token = "" },
	} {
		a := newAdmin(t, says(200, withCost(noDraft, 4, 1, 1999)))
		spoil(a.shops)
		_, _, err := a.client.ReadDraft(t.Context(), 1, 7)
		var refused *waitlist.ShopRefused
		if !errors.As(err, &refused) || refused.Status != 401 {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
		if len(a.calls()) > 0 {
			t.Errorf("%s: Shopify was called", name)
		}
	}
	a := newAdmin(t, says(200, withCost(noDraft, 4, 1, 1999)))
	a.shops.err = errors.New("the database is down")
	var refused *waitlist.ShopRefused
	if _, _, err := a.client.ReadDraft(t.Context(), 1, 7); err == nil || errors.As(err, &refused) || !errors.Is(err, a.shops.err) {
		t.Errorf("a database that is down is told as %v", err)
	}
}

func TestErrorsAreToldApart(t *testing.T) {
	t.Parallel()
	const throttled = `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}],"extensions":{"cost":{
		"requestedQueryCost":103.5,"actualQueryCost":null,"throttleStatus":{"maximumAvailable":2000.0,"currentlyAvailable":3.5,"restoreRate":100.0}}}}`
	rejected := &waitlist.Rejected{}
	unknown := errors.New("any other")
	for name, c := range map[string]struct {
		status int
		body   string
		want   error // its type counts, and what is set in it
	}{
		"throttled":                {200, throttled, &waitlist.Throttled{After: time.Second}},
		"throttled without a cost": {200, `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}]}`, &waitlist.Throttled{After: time.Second}},
		"too many requests":        {429, `{"errors":"Exceeded"}`, &waitlist.Throttled{After: 2500 * time.Millisecond}},
		"invalid token":            {401, `{"errors":"[API] Invalid API key or access token (unrecognized login or wrong password)"}`, &waitlist.ShopRefused{Status: 401}},
		"frozen":                   {402, `{"errors":"Unavailable Shop"}`, &waitlist.ShopRefused{Status: 402}},
		"forbidden":                {403, `{"errors":"Forbidden"}`, &waitlist.ShopRefused{Status: 403}},
		"gone":                     {404, `{"errors":"Not Found"}`, &waitlist.ShopRefused{Status: 404}},
		"gone, with a page":        {404, `<html>`, &waitlist.ShopRefused{Status: 404}},
		"locked":                   {423, `{"errors":"Locked"}`, &waitlist.ShopRefused{Status: 423}},
		"scope missing":            {200, `{"data":{"draftOrder":null},"errors":[{"message":"Access denied for draftOrder field.","path":["draftOrder"],"extensions":{"code":"ACCESS_DENIED"}}]}`, &waitlist.ShopRefused{Status: 403}},
		"bad variable":             {200, `{"errors":[{"message":"Variable $id of type ID! was provided invalid value","extensions":{"code":"INVALID_VARIABLE"}}]}`, rejected},
		"gateway":                  {502, `<html>Bad gateway</html>`, unknown},
		"redirect to a login":      {302, ``, unknown},
		"not JSON":                 {200, `<html>Loading</html>`, unknown},
		"empty":                    {200, ``, unknown},
		"no data":                  {200, `{}`, unknown},
		"null data":                {200, `{"data":null}`, unknown},
		"a list":                   {200, `[]`, unknown},
		"errors that are text":     {200, `{"errors":"Query parameters are invalid"}`, unknown},
		"errors that are a number": {200, `{"errors":7}`, unknown},
		"an error inside":          {200, `{"data":{"draftOrder":null},"errors":[{"message":"Internal error","extensions":{"code":"INTERNAL_SERVER_ERROR"}}]}`, unknown},
		"throttled half way":       {200, `{"data":{"draftOrder":null},"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}]}`, unknown},
		"data of another form":     {200, `{"data":{"draftOrder":[1]}}`, unknown},
		"a draft of another kind":  {200, `{"data":{"draftOrder":{"id":"gid://shopify/Order/1","status":"OPEN"}}}`, unknown},
		"longer than the bound":    {200, `{"data":{"draftOrder":null},"x":"` + strings.Repeat("x", maxAnswer) + `"}`, unknown},
		"nearly as long":           {200, `{"data":{"draftOrder":null},"x":"` + strings.Repeat("x", maxAnswer-100) + `"}`, nil},
		"a list of no errors":      {200, `{"data":{"draftOrder":null},"errors":[]}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAdmin(t, func(w http.ResponseWriter, _ *http.Request, _ request) {
				w.Header().Set("Retry-After", "2.5")
				w.Header().Set("X-Request-Id", "request-1")
				w.WriteHeader(c.status)
				w.Write([]byte(c.body))
			})
			_, _, err := a.client.ReadDraft(t.Context(), 1, 7)
			var (
				throttled *waitlist.Throttled
				refused   *waitlist.ShopRefused
				no        *waitlist.Rejected
			)
			isThrottled, isRefused, isRejected := errors.As(err, &throttled), errors.As(err, &refused), errors.As(err, &no)
			switch want := c.want.(type) {
			case nil:
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			case *waitlist.Throttled:
				if !isThrottled || throttled.After != want.After {
					t.Errorf("got %v, want to wait %v", err, want.After)
				}
			case *waitlist.ShopRefused:
				if !isRefused || refused.Status != want.Status || refused.Why == "" {
					t.Errorf("got %v, want a refusal with %d", err, want.Status)
				}
			case *waitlist.Rejected:
				if !isRejected {
					t.Errorf("got %v, want it rejected", err)
				}
			default:
				if err == nil || isThrottled || isRefused || isRejected {
					t.Errorf("got %v, want an error of unknown outcome", err)
				}
			}
			if strings.Contains(err.Error(), testToken) || strings.Contains(a.logged.String(), testToken) {
				t.Errorf("the token was told: %v / %s", err, a.logged)
			}
			if len(a.calls()) != 1 {
				t.Errorf("called %d times", len(a.calls()))
			}
		})
	}
}

func TestASearchThatWasNotUnderstoodIsNoAnswer(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, says(200, `{"data":{"draftOrders":{"nodes":[],"pageInfo":{"hasNextPage":false,"endCursor":null}}},
		"extensions":{"search":[{"path":["draftOrders"],"query":"tag:x","warnings":[{"field":"tag","message":"Invalid search field for this query.","code":"invalid_field"}]}]}}`))
	if _, err := a.client.FindDrafts(t.Context(), 1, 5); err == nil {
		t.Error("everything there is was taken for what was looked for")
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	a := newAdmin(t, func(_ http.ResponseWriter, r *http.Request, _ request) {
		close(arrived)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	if _, _, err := a.client.ReadDraft(ctx, 1, 7); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's end", err)
	}
}

func TestEveryCallIsTold(t *testing.T) {
	t.Parallel()
	type told struct {
		op   string
		shop int64
		cost float64
		ok   bool
	}
	var mu sync.Mutex
	var got []told
	a := newAdmin(t, saysInTurn(withCost(noDraft, 4, 2.5, 3), `{"errors":"x"}`))
	a.config.Called = func(c Call) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, told{c.Op, c.ShopID, c.Points, c.Err == nil})
	}
	a.start()
	a.client.ReadDraft(t.Context(), 1, 7)
	a.client.ReadDraft(t.Context(), 1, 7)                                                                         // answered by an error
	a.client.CreateDraft(t.Context(), 1, waitlist.NewDraft{HoldID: 1, VariantID: 2, ReserveUntil: a.clock.Now()}) // held back
	want := []told{{"draftOrder", 1, 2.5, true}, {"draftOrder", 1, 0, false}, {"draftOrderCreate", 1, 0, false}}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("told %v, want %v", got, want)
	}
	if len(a.calls()) != 2 {
		t.Errorf("called %d times", len(a.calls()))
	}
}

func TestManyCallsAtOnce(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, says(200, withCost(noDraft, 4, 1, 1900)))
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, ok, err := a.client.ReadDraft(t.Context(), 1, int64(i+1)); ok || err != nil {
				t.Errorf("draft %d: %v, %v", i+1, ok, err)
			}
			if err := a.client.Budget(t.Context(), 1, 10); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(a.calls()) != 20 {
		t.Errorf("called %d times", len(a.calls()))
	}
}

var _ Shops = (*shop.Store)(nil)
