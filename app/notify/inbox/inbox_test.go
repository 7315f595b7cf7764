package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/app/simkit"
)

// phone notes what it is asked.
type phone struct {
	asked []string
	err   error
}

func (p *phone) SendText(_ context.Context, from, to, body string) error {
	p.asked = append(p.asked, from+" > "+to+": "+body)
	return p.err
}

func (p *phone) Report(_ context.Context, id, status string, code int) error {
	p.asked = append(p.asked, id+" "+status)
	return p.err
}

func (p *phone) Event(_ context.Context, id, kind string) error {
	p.asked = append(p.asked, id+" "+kind)
	return p.err
}

func newInbox(t *testing.T) (*Outbox, *phone, func(method, path, body string) *httptest.ResponseRecorder) {
	t.Helper()
	o, p := New(&simkit.Clock{}), &phone{}
	h, err := Handler(o, p, p)
	if err != nil {
		t.Fatal(err)
	}
	return o, p, func(method, path, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		return w
	}
}

func TestMessagesAreListedInOrderOfAcceptance(t *testing.T) {
	t.Parallel()
	o, _, ask := newInbox(t)
	o.Add(Message{ID: "1", Channel: "sms", To: "+14155552671", Body: "a https://example.com/r/1 b"})
	o.Add(Message{ID: "2", Channel: "email", To: "ann@example.com", Body: "x"})
	o.Add(Message{ID: "3", Channel: "sms", To: "+14155552672"})
	for path, want := range map[string][]string{
		"/sim/messages":                                  {"1", "2", "3"},
		"/sim/messages?channel=sms":                      {"1", "3"},
		"/sim/messages?to=ANN@example.com":               {"2"},
		"/sim/messages?to=%2B14155552671":                {"1"},
		"/sim/messages?to=+14155552671":                  {"1"}, // the + as people type it into a URL
		"/sim/messages?to=ann@example.com&channel=sms":   {},
		"/sim/messages?to=nobody@example.com&channel=":   {},
		"/sim/messages?to=ann@example.com&channel=email": {"2"},
	} {
		w := ask("GET", path, "")
		var got []struct {
			ID      string
			Links   []string
			Headers map[string]string
			At      time.Time
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || got == nil {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		ids := []string{}
		for _, m := range got {
			ids = append(ids, m.ID)
			if m.Links == nil || m.Headers == nil || time.Since(m.At) > time.Minute {
				t.Errorf("%s: %+v", path, m)
			}
		}
		if !slices.Equal(ids, want) {
			t.Errorf("%s: got %v, want %v", path, ids, want)
		}
	}
	if w := ask("GET", "/sim/messages?channel=fax", ""); w.Code != 400 {
		t.Errorf("a channel that is none: %d", w.Code)
	}
}

func TestControlCallsAreHandedOnOrRefused(t *testing.T) {
	t.Parallel()
	_, p, ask := newInbox(t)
	for _, c := range []struct {
		path, body string
		err        error
		status     int
		asked      string
	}{
		{"/sim/sms", `{"from":"+1","to":"+2","body":"STOP"}`, nil, 200, "+1 > +2: STOP"},
		{"/sim/sms", `{"from":"+1"}`, &Refused{404, "no such number"}, 404, "+1 > : "},
		{"/sim/sms", `{"from":"+1"}`, errors.New("the app is down"), 502, "+1 > : "},
		{"/sim/sms", `{"phone":"+1"}`, nil, 400, ""},
		{"/sim/sms", `nonsense`, nil, 400, ""},
		{"/sim/sms_status", `{"message_id":"SM1","status":"delivered"}`, nil, 200, "SM1 delivered"},
		{"/sim/sms_status", `{"message_id":"SM1","status":"failed","error_code":30003}`, &Refused{409, "no"}, 409, "SM1 failed"},
		{"/sim/mail_event", `{"message_id":"mail-1","kind":"bounce"}`, nil, 200, "mail-1 bounce"},
		{"/sim/mail_event", `{"message_id":"mail-1","kind":"bounce"}`, &Refused{404, "no such mail"}, 404, "mail-1 bounce"},
		{"/sim/mail_event", `{"id":"mail-1"}`, nil, 400, ""},
	} {
		p.asked, p.err = nil, c.err
		w := ask("POST", c.path, c.body)
		if w.Code != c.status || strings.Join(p.asked, ",") != c.asked || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s: %d %s, asked %q", c.path, c.body, w.Code, w.Body, p.asked)
		}
	}
	if w := ask("GET", "/sim/sms", ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", w.Code)
	}
}

func TestThePageShowsMessagesNewestFirstAndRunsNothingOfTheirs(t *testing.T) {
	t.Parallel()
	o, _, ask := newInbox(t)
	if page := ask("GET", "/inbox", "").Body.String(); !strings.Contains(page, "Nothing was sent yet") {
		t.Error("an empty inbox does not say so")
	}
	evil := `<script>alert(1)</script>`
	o.Add(Message{ID: "1", Channel: "sms", To: "+14155552671", From: evil, Body: "go https://example.com/r/1?a=1&b=2. " + evil})
	o.Add(Message{ID: "2", Channel: "email", To: "ann@example.com", Subject: evil, Body: evil, HTML: `<!doctype html><html><head></head><body>"quoted" ` + evil + `</body></html>`, Headers: map[string]string{"X": evil}})
	w := ask("GET", "/inbox", "")
	page := w.Body.String()
	if strings.Contains(page, "<script") {
		t.Error("a script got through")
	}
	if !strings.Contains(page, `<a href="https://example.com/r/1?a=1&amp;b=2" target="_blank" rel="noreferrer">https://example.com/r/1?a=1&amp;b=2</a>. &lt;script`) {
		t.Errorf("the link is not clickable:\n%s", page)
	}
	if !strings.Contains(page, `sandbox="allow-popups allow-popups-to-escape-sandbox"`) || !strings.Contains(page, `&lt;head&gt;&lt;base target=`) {
		t.Errorf("the mail is not framed:\n%s", page)
	}
	if mail, text := strings.Index(page, `<span class="kind">Mail`), strings.Index(page, `<span class="kind">Text`); mail < 0 || text < mail {
		t.Errorf("not newest first: mail at %d, text at %d", mail, text)
	}
	if !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
		t.Error("no policy")
	}
}

func TestWaitReturnsWhenThereAreEnough(t *testing.T) {
	t.Parallel()
	o := New(&simkit.Clock{})
	done := make(chan []Message)
	go func() {
		all, err := o.Wait(t.Context(), 2)
		if err != nil {
			t.Error(err)
		}
		done <- all
	}()
	o.Add(Message{ID: "1"})
	o.Add(Message{ID: "2"})
	if all := <-done; len(all) != 2 {
		t.Errorf("got %v", all)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if all, err := o.Wait(ended, 3); err == nil || len(all) != 2 {
		t.Errorf("got %v, %v", all, err)
	}
	o.Reset()
	if n := len(o.Messages("", "")); n != 0 {
		t.Errorf("%d after the reset", n)
	}
}
