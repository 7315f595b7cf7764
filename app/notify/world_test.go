package notify

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/app/notify/inbox"
	"holdfast/app/notify/smtpsim"
	"holdfast/app/notify/twiliosim"
	"holdfast/app/shop"
	"holdfast/app/simkit"
	"holdfast/app/waitlist"
)

// The fixed cast of the tests: one shop with an account, its key, and tokens of the length of real ones.
var (
	account = shop.Twilio{
		AccountSID:          "AC" + strings.Repeat("1", 32),
		APIKey:              "SK" + strings.Repeat("2", 32),
		APISecret:           "secret3secret3secret3",
		AuthToken:           "token4token4token4",
		MessagingServiceSID: "MG" + strings.Repeat("5", 32),
	}
	notice = waitlist.Outgoing{
		ShopID: 7, MessageID: 42, Attempt: 1, AttemptedAt: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
		Name: "Ann", Locale: "en", ShopName: "Acme", ReplyTo: "help@acme.example",
		ProductTitle: "Oak Chair", VariantTitle: "Natural", ImageURL: "https://cdn.example.com/chair.jpg", Window: 30 * time.Minute,
		ReserveToken: strings.Repeat("r", shop.TokenLength), PlaceToken: strings.Repeat("q", shop.TokenLength), UnsubscribeToken: strings.Repeat("u", shop.TokenLength),
	}
)

const (
	shopKey = "key-of-shop-7"
	number  = "+14155550100"
	ann     = "+14155552671"
)

func mailNotice() waitlist.Outgoing {
	m := notice
	m.Channel, m.To = waitlist.Email, "ann@example.com"
	return m
}

func textNotice() waitlist.Outgoing {
	m := notice
	m.Channel, m.To = waitlist.SMS, ann
	return m
}

// shops answers for shop 7.
type shops struct {
	twilio shop.Twilio
	err    error
}

func (s shops) ByID(_ context.Context, id int64) (shop.Shop, error) {
	if id != 7 {
		return shop.Shop{}, shop.ErrNotFound
	}
	return shop.Shop{ID: id, TwilioKey: shopKey}, nil
}

func (s shops) Twilio(_ context.Context, id int64) (shop.Twilio, error) {
	if s.err != nil {
		return shop.Twilio{}, s.err
	}
	if id != 7 {
		return shop.Twilio{}, shop.ErrNotFound
	}
	return s.twilio, nil
}

// world is a sender between an app that takes callbacks and the two simulators.
type world struct {
	t       *testing.T
	clock   *simkit.Clock
	faults  *simkit.Faults
	outbox  *inbox.Outbox
	twilio  *twiliosim.Sim
	smtp    *smtpsim.Sim
	sim     *httptest.Server
	asked   atomic.Int32  // requests that reached the simulated Twilio
	arrived chan struct{} // one for each of them
	sender  *Sender
	app     *httptest.Server
	reports chan report // what the app read from Twilio's callbacks
}

type report struct {
	path     string
	delivery waitlist.Delivery
	ok       bool
	inbound  InboundText
	err      error
}

func newWorld(t *testing.T) *world { return newWorldWith(t, smtpsim.Options{}) }

func newWorldWith(t *testing.T, mailServer smtpsim.Options) *world {
	t.Helper()
	w := &world{t: t, clock: &simkit.Clock{}, faults: &simkit.Faults{}, reports: make(chan report, 100), arrived: make(chan struct{}, 1000)}
	log := slog.New(slog.DiscardHandler)
	w.outbox = inbox.New(w.clock)
	var err error
	if w.twilio, err = twiliosim.New(w.clock, w.faults, w.outbox, log); err != nil {
		t.Fatal(err)
	}
	w.sim = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.asked.Add(1)
		w.arrived <- struct{}{}
		w.twilio.ServeHTTP(rw, r)
	}))
	w.app = httptest.NewServer(http.HandlerFunc(w.callback))
	if w.smtp, err = smtpsim.Start("127.0.0.1:0", mailServer, w.faults, w.outbox, log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.smtp.Close()
		w.twilio.Close()
		w.sim.Close()
		w.app.Close()
	})
	if err := w.twilio.AddAccount(twiliosim.Account{
		SID: account.AccountSID, APIKey: account.APIKey, APISecret: account.APISecret, AuthToken: account.AuthToken,
		MessagingServiceSID: account.MessagingServiceSID, Number: number, InboundURL: w.app.URL + "/webhooks/twilio/" + shopKey + "/inbound",
	}); err != nil {
		t.Fatal(err)
	}
	w.sender = w.newSender(Config{PublicURL: w.app.URL, SMTPURL: w.smtp.URL(), EmailFrom: "restock@mail.holdfast.example", Sim: w.sim.URL}, shops{twilio: account})
	return w
}

func (w *world) newSender(cfg Config, s Shops) *Sender {
	w.t.Helper()
	sender, err := New(cfg, s, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(sender.twilio.(*http.Transport).CloseIdleConnections)
	return sender
}

// callback is the app: it verifies and reads what Twilio sends.
func (w *world) callback(rw http.ResponseWriter, r *http.Request) {
	got := report{path: r.URL.Path}
	if got.err = r.ParseForm(); got.err == nil {
		signed := w.url(r.RequestURI)
		if strings.HasSuffix(r.URL.Path, "/status") {
			got.delivery, got.ok, got.err = ReadStatus(account, signed, r.Header, r.PostForm)
		} else {
			got.inbound, got.err = ReadText(account, signed, r.Header, r.PostForm)
		}
	}
	w.reports <- got
	if got.err != nil {
		rw.WriteHeader(http.StatusForbidden)
	}
}

// url is an address of the app.
func (w *world) url(path string) *url.URL {
	u, err := url.Parse(w.app.URL + path)
	if err != nil {
		w.t.Error(err)
	}
	return u
}

// report is the next callback that the app took.
func (w *world) report() report {
	w.t.Helper()
	select {
	case r := <-w.reports:
		if r.err != nil {
			w.t.Fatalf("callback to %s: %v", r.path, r.err)
		}
		return r
	case <-time.After(20 * time.Second):
		w.t.Fatal("no callback came")
		return report{}
	}
}

func (w *world) fault(f simkit.Fault) string {
	w.t.Helper()
	check := twiliosim.CheckFault
	if f.Target == "smtp" {
		check = smtpsim.CheckFault
	}
	if err := check(f); err != nil {
		w.t.Fatal(err)
	}
	return w.faults.Add(f)
}

// wantAccepted: the message was accepted, and is the only one in the outbox.
func (w *world) wantAccepted(m waitlist.Outgoing) (string, inbox.Message) {
	w.t.Helper()
	id, err := w.sender.Send(w.t.Context(), m)
	if err != nil {
		w.t.Fatalf("not accepted: %v", err)
	}
	all := w.outbox.Messages("", "")
	if len(all) != 1 {
		w.t.Fatalf("%d messages in the outbox, want one", len(all))
	}
	return id, all[0]
}

// wantFailed: the message was not accepted, with this outcome, and so many of them are in the outbox.
func (w *world) wantFailed(m waitlist.Outgoing, want waitlist.Outcome, sent int) *waitlist.SendError {
	w.t.Helper()
	return w.wantFailedIn(w.t.Context(), m, want, sent)
}

// untilAccepted is a context that ends when a message is in the outbox, as if its time were just up then.
func (w *world) untilAccepted() context.Context {
	ctx, cancel := context.WithCancel(w.t.Context())
	go func() {
		defer cancel()
		_, _ = w.outbox.Wait(ctx, 1) // it fails when the test is over
	}()
	return ctx
}

// untilArrived is a context that ends when a request has reached Twilio.
func (w *world) untilArrived() context.Context {
	ctx, cancel := context.WithCancel(w.t.Context())
	go func() {
		defer cancel()
		select {
		case <-w.arrived:
		case <-ctx.Done():
		}
	}()
	return ctx
}

func (w *world) wantFailedIn(ctx context.Context, m waitlist.Outgoing, want waitlist.Outcome, sent int) *waitlist.SendError {
	w.t.Helper()
	id, err := w.sender.Send(ctx, m)
	var failed *waitlist.SendError
	if !errors.As(err, &failed) || id != "" {
		w.t.Fatalf("got %q, %v; want it to fail", id, err)
	}
	if failed.Outcome != want {
		w.t.Errorf("outcome %q (code %s, %s), want %q", failed.Outcome, failed.Code, failed.Why, want)
	}
	if failed.Code == "" || failed.Why == "" {
		w.t.Errorf("code %q and reason %q: neither may be empty", failed.Code, failed.Why)
	}
	if got := len(w.outbox.Messages("", "")); got != sent {
		w.t.Errorf("%d messages in the outbox, want %d", got, sent)
	}
	return failed
}
