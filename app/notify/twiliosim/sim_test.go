package twiliosim

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"holdfast/app/notify/inbox"
	"holdfast/app/simkit"
)

var (
	first = Account{
		Shop: "first.myshopify.com", SID: "AC" + strings.Repeat("1", 32), APIKey: "SK1", APISecret: "secret1", AuthToken: "token1",
		MessagingServiceSID: "MG" + strings.Repeat("1", 32), Number: "+14155550101",
	}
	second = Account{
		Shop: "second.myshopify.com", SID: "AC" + strings.Repeat("2", 32), APIKey: "SK2", APISecret: "secret2", AuthToken: "token2",
		MessagingServiceSID: "MG" + strings.Repeat("2", 32), Number: "+14155550102", AdvancedOptOut: true,
	}
)

type world struct {
	t      *testing.T
	sim    *Sim
	clock  *simkit.Clock
	faults *simkit.Faults
	outbox *inbox.Outbox
	server *httptest.Server
	app    *httptest.Server
	posts  chan *http.Request // callbacks, with their form parsed
	answer chan int           // the app's answer to the next callback; 200 when there is none
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, clock: &simkit.Clock{}, faults: &simkit.Faults{}, posts: make(chan *http.Request, 100), answer: make(chan int, 100)}
	w.outbox = inbox.New(w.clock)
	var err error
	if w.sim, err = New(w.clock, w.faults, w.outbox, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	w.server = httptest.NewServer(w.sim)
	w.app = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		w.posts <- r
		select {
		case status := <-w.answer:
			rw.WriteHeader(status)
		default:
		}
	}))
	t.Cleanup(func() { w.sim.Close(); w.server.Close(); w.app.Close() })
	for _, a := range []Account{first, second} {
		a.InboundURL = w.app.URL + "/inbound"
		if err := w.sim.AddAccount(a); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// call asks the simulator, and checks a good answer against Twilio's description.
func (w *world) call(a Account, method, path string, form url.Values) (int, map[string]any) {
	w.t.Helper()
	q, err := http.NewRequestWithContext(w.t.Context(), method, w.server.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		w.t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	q.SetBasicAuth(a.APIKey, a.APISecret)
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	var body map[string]any
	if err := json.Unmarshal(raw, &body); err != nil {
		w.t.Fatalf("%s: %v", raw, err)
	}
	if answer.StatusCode < 300 {
		pattern := listPath
		if strings.Contains(path, "/Messages/") {
			pattern = fetchPath
		}
		item := w.sim.checks.spec.Paths.Value(pattern)
		err := openapi3filter.ValidateResponse(context.Background(), (&openapi3filter.ResponseValidationInput{
			RequestValidationInput: &openapi3filter.RequestValidationInput{
				Request: q, Route: &routers.Route{Spec: w.sim.checks.spec, Path: pattern, PathItem: item, Method: method, Operation: item.GetOperation(method)},
			},
			Status: answer.StatusCode, Header: answer.Header, Options: &openapi3filter.Options{IncludeResponseStatus: true},
		}).SetBodyBytes(raw))
		if err != nil {
			w.t.Errorf("%s %s: the answer is none of Twilio's: %v", method, path, err)
		}
	}
	return answer.StatusCode, body
}

func messages(a Account) string { return "/2010-04-01/Accounts/" + a.SID + "/Messages.json" }

func valid(a Account) url.Values {
	return url.Values{"To": {"+14155552671"}, "MessagingServiceSid": {a.MessagingServiceSID}, "Body": {"hello"}}
}

// post is the next callback, whose signature is checked.
func (w *world) post(token string) *http.Request {
	w.t.Helper()
	select {
	case r := <-w.posts:
		if r.Header.Get("X-Twilio-Signature") != Sign(token, w.app.URL+r.RequestURI, r.PostForm) {
			w.t.Errorf("%s is not signed", r.RequestURI)
		}
		return r
	case <-time.After(20 * time.Second):
		w.t.Fatal("no callback came")
		return nil
	}
}

func TestATextIsAcceptedSentAndListedNewestFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	form := valid(first)
	form.Set("StatusCallback", w.app.URL+"/status?message=1#rc=3")
	status, a := w.call(first, "POST", "/twilio"+messages(first), form)
	if status != 201 || a["status"] != "accepted" || a["from"] != nil || a["num_segments"] != "0" || a["date_sent"] != nil {
		t.Fatalf("got %d %v", status, a)
	}
	r := w.post(first.AuthToken)
	if r.RequestURI != "/status?message=1" || r.PostForm.Get("MessageStatus") != "sent" || r.PostForm.Get("MessageSid") != a["sid"] || r.PostForm.Get("AccountSid") != first.SID {
		t.Errorf("callback to %s: %v", r.RequestURI, r.PostForm)
	}
	_, b := w.call(first, "POST", messages(first), url.Values{"To": {"+14155552671"}, "From": {first.Number}, "Body": {"again"}})
	_, c := w.call(first, "POST", messages(first), url.Values{"To": {"+14155552672"}, "From": {first.Number}, "Body": {"other"}})
	if b["status"] != "queued" || b["from"] != first.Number {
		t.Errorf("from a number: %v", b)
	}
	_, list := w.call(first, "GET", messages(first)+"?To=%2B14155552671&PageSize=50", nil)
	got := list["messages"].([]any)
	if len(got) != 2 || got[0].(map[string]any)["sid"] != b["sid"] || got[1].(map[string]any)["sid"] != a["sid"] {
		t.Errorf("listed %v", got)
	}
	if got[1].(map[string]any)["from"] != first.Number || got[1].(map[string]any)["date_sent"] == nil {
		t.Errorf("sent: %v", got[1])
	}
	_, page := w.call(first, "GET", messages(first)+"?PageSize=2&Page=1", nil)
	if got := page["messages"].([]any); len(got) != 1 || page["next_page_uri"] != nil || page["previous_page_uri"] == nil {
		t.Errorf("second page: %v", page)
	}
	status, fetched := w.call(first, "GET", "/2010-04-01/Accounts/"+first.SID+"/Messages/"+c["sid"].(string)+".json", nil)
	if status != 200 || fetched["body"] != "other" {
		t.Errorf("fetched %d %v", status, fetched)
	}
	if out := w.outbox.Messages("+14155552671", "sms"); len(out) != 2 || out[0].ID != a["sid"] {
		t.Errorf("outbox %v", out)
	}
}

func TestNoAccountSeesOrUsesAnothers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, a := w.call(first, "POST", messages(first), valid(first))
	if status, body := w.call(second, "POST", messages(first), valid(first)); status != 401 || body["code"] != 20003.0 {
		t.Errorf("another's key: %d %v", status, body)
	}
	if status, body := w.call(second, "POST", messages(second), valid(first)); status != 404 || body["code"] != 20404.0 {
		t.Errorf("another's service: %d %v", status, body)
	}
	if status, _ := w.call(second, "GET", "/2010-04-01/Accounts/"+second.SID+"/Messages/"+a["sid"].(string)+".json", nil); status != 404 {
		t.Errorf("another's text: %d", status)
	}
	if _, list := w.call(second, "GET", messages(second), nil); len(list["messages"].([]any)) != 0 {
		t.Errorf("another's texts: %v", list)
	}
}

func TestWhatTwilioWouldRefuseIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		why    string
		change func(url.Values)
		status int
		code   float64
	}{
		{"no To", func(f url.Values) { f.Del("To") }, 400, 20001},
		{"an empty To", func(f url.Values) { f.Set("To", "") }, 400, 21211},
		{"To with spaces", func(f url.Values) { f.Set("To", "+1 415 555 2671") }, 400, 21211},
		{"To without +", func(f url.Values) { f.Set("To", "14155552671") }, 400, 21211},
		{"To in words", func(f url.Values) { f.Set("To", "notaphone") }, 400, 21211},
		{"no body", func(f url.Values) { f.Del("Body") }, 400, 21602},
		{"a long body", func(f url.Values) { f.Set("Body", strings.Repeat("x", 1601)) }, 400, 21617},
		{"no sender", func(f url.Values) { f.Del("MessagingServiceSid") }, 400, 21603},
		{"two senders", func(f url.Values) { f.Set("From", first.Number) }, 400, 20001},
		{"another's number", func(f url.Values) { f.Del("MessagingServiceSid"); f.Set("From", second.Number) }, 400, 21606},
		{"a malformed service", func(f url.Values) { f.Set("MessagingServiceSid", "MG1") }, 400, 20001},
		{"an unknown parameter", func(f url.Values) { f.Set("SendAsGroup", "true") }, 400, 20001},
		{"a parameter twice", func(f url.Values) { f.Add("Body", "again") }, 400, 20001},
		{"validity of no time", func(f url.Values) { f.Set("ValidityPeriod", "0") }, 400, 30045},
		{"validity of more than 10 hours", func(f url.Values) { f.Set("ValidityPeriod", "36001") }, 400, 30045},
		{"validity in words", func(f url.Values) { f.Set("ValidityPeriod", "an hour") }, 400, 20001},
		{"a callback without host", func(f url.Values) { f.Set("StatusCallback", "/status") }, 400, 21609},
		{"a callback with _ in its host", func(f url.Values) { f.Set("StatusCallback", "https://a_b.example.com/") }, 400, 21609},
		{"a picture", func(f url.Values) { f.Set("MediaUrl", "https://example.com/a.png") }, 501, 0},
		{"a schedule", func(f url.Values) { f.Set("ScheduleType", "fixed") }, 501, 0},
	} {
		form := valid(first)
		c.change(form)
		status, body := w.call(first, "POST", messages(first), form)
		if status != c.status || body["code"] != c.code || body["status"] != float64(c.status) || body["message"] == "" || len(body["message"].(string)) > 500 || body["more_info"] == "" {
			t.Errorf("%s: got %d %v, want %d with code %v", c.why, status, body, c.status, c.code)
		}
	}
	for _, path := range []string{"/2010-04-01/Accounts.json", "/2010-04-01/Accounts/" + first.SID + "/Calls.json", messages(first) + "?DateSent=2026-01-01T00:00:00Z"} {
		if status, body := w.call(first, "GET", path, nil); status != 501 || !strings.Contains(body["message"].(string), "SIMULATOR") {
			t.Errorf("%s: got %d %v", path, status, body)
		}
	}
	if n := len(w.outbox.Messages("", "")); n != 0 {
		t.Errorf("%d messages were accepted", n)
	}
}

func TestOneShopsFaultIsNotAnothers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.faults.Add(simkit.Fault{Target: "twilio", Mode: "status", Code: 503, Shop: first.Shop})
	if status, _ := w.call(first, "POST", messages(first), valid(first)); status != 503 {
		t.Errorf("its own: %d", status)
	}
	if status, _ := w.call(second, "POST", messages(second), valid(second)); status != 201 {
		t.Errorf("another's: %d", status)
	}
}

func TestAFaultThatIsNotSimulatedIsLoud(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, f := range []simkit.Fault{{Mode: "index_lag"}, {Mode: "status", Code: 200}, {Mode: "status", Code: 700}, {Mode: "delay", Op: "call"}} {
		if CheckFault(f) == nil {
			t.Errorf("%+v is taken", f)
		}
	}
	w.faults.Add(simkit.Fault{Target: "twilio", Mode: "index_lag"})
	if status, body := w.call(first, "POST", messages(first), valid(first)); status != 501 {
		t.Errorf("got %d %v", status, body)
	}
}

func TestWhatIsKeptUntilLiftedIsNotInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.faults.Add(simkit.Fault{Target: "twilio", Op: "create", Mode: "delay", Until: "lifted"})
	done := make(chan int)
	go func() {
		status, _ := w.call(first, "POST", messages(first), valid(first))
		done <- status
	}()
	for w.faults.Held() == 0 {
		select {
		case status := <-done:
			t.Fatalf("answered %d", status)
		default:
		}
	}
	if n := w.sim.InFlight(); n != 0 {
		t.Errorf("%d in flight", n)
	}
	if n := len(w.outbox.Messages("", "")); n != 0 {
		t.Errorf("%d messages were accepted", n)
	}
	if err := w.faults.Delete(id); err != nil {
		t.Fatal(err)
	}
	if status := <-done; status != 201 {
		t.Errorf("answered %d", status)
	}
}

func TestACallbackInDeliveryIsInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hold := make(chan struct{})
	arrived := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-hold
	}))
	defer slow.Close()
	form := valid(first)
	form.Set("StatusCallback", slow.URL)
	w.call(first, "POST", messages(first), form)
	<-arrived
	if n := w.sim.InFlight(); n < 1 {
		t.Errorf("%d in flight", n)
	}
	close(hold)
}

func TestAPhonesWordsStopAndStartDelivery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := func(a Account, body string) url.Values {
		t.Helper()
		if err := w.sim.SendText(t.Context(), "+14155552671", a.Number, body); err != nil {
			t.Fatal(err)
		}
		return w.post(a.AuthToken).PostForm
	}
	if form := text(first, " stop "); form.Get("Body") != " stop " || form.Has("OptOutType") || form.Get("AccountSid") != first.SID {
		t.Errorf("got %v", form)
	}
	if status, body := w.call(first, "POST", messages(first), valid(first)); status != 400 || body["code"] != 21610.0 {
		t.Errorf("after a stop: %d %v", status, body)
	}
	if status, _ := w.call(second, "POST", messages(second), valid(second)); status != 201 {
		t.Errorf("another account after the stop: %d", status)
	}
	text(first, "please stop") // not a word of Twilio's
	text(first, "yes")
	if status, _ := w.call(first, "POST", messages(first), valid(first)); status != 201 {
		t.Errorf("after a start: %d", status)
	}
	for body, want := range map[string]string{"STOP": "STOP", "Start": "START", "help": "HELP", "hello": ""} {
		if form := text(second, body); form.Get("OptOutType") != want {
			t.Errorf("%s: OptOutType %q", body, form.Get("OptOutType"))
		}
	}
}

func TestAControlCallThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, a := w.call(first, "POST", messages(first), valid(first))
	sid := a["sid"].(string) // sent without a StatusCallback
	for why, err := range map[string]error{
		"an unknown text":               w.sim.Report(t.Context(), "SM1", "delivered", 0),
		"an unknown status":             w.sim.Report(t.Context(), sid, "lost", 0),
		"an error code with delivered":  w.sim.Report(t.Context(), sid, "delivered", 30003),
		"no callback":                   w.sim.Report(t.Context(), sid, "delivered", 0),
		"from no phone":                 w.sim.SendText(t.Context(), "ann", first.Number, "hi"),
		"to no number":                  w.sim.SendText(t.Context(), "+14155552671", "+1", "hi"),
		"to whoever texted, nobody did": w.sim.SendText(t.Context(), "+14155552999", "", "hi"),
	} {
		var refused *inbox.Refused
		if !errors.As(err, &refused) || refused.Status < 400 || refused.Status > 499 {
			t.Errorf("%s: %v", why, err)
		}
	}
	w.answer <- 500
	err := w.sim.SendText(t.Context(), "+14155552671", first.Number, "hi")
	if err == nil || !strings.Contains(err.Error(), "500") {
		t.Errorf("an app that fails: %v", err)
	}
}

func TestResetForgetsTextsAndStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.call(first, "POST", messages(first), valid(first))
	if err := w.sim.SendText(t.Context(), "+14155552671", first.Number, "STOP"); err != nil {
		t.Fatal(err)
	}
	w.sim.Reset()
	if _, list := w.call(first, "GET", messages(first), nil); len(list["messages"].([]any)) != 0 {
		t.Errorf("texts: %v", list)
	}
	if status, _ := w.call(first, "POST", messages(first), valid(first)); status != 201 {
		t.Errorf("after the reset: %d", status)
	}
}
