package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/app/db/dbtest"
	"holdfast/app/jobs"
	"holdfast/app/notify/inbox"
	"holdfast/app/notify/smtpsim"
	"holdfast/app/notify/twiliosim"
	"holdfast/app/shop"
	"holdfast/app/simkit"
	"holdfast/app/waitlist"
)

// These tests put the domain, this package and the two simulators together, and judge by what the simulators
// accepted.

func TestMain(m *testing.M) { dbtest.Main(m) }

const chair int64 = 101

// outboxWorld is a database with many shops, and a sender between it and the simulators.
type outboxWorld struct {
	t      *testing.T
	db     *pgxpool.Pool
	store  *shop.Store
	list   *waitlist.Service
	shelf  *shelf
	clock  *simkit.Clock
	faults *simkit.Faults
	outbox *inbox.Outbox
	twilio *twiliosim.Sim
	mail   *smtpsim.Sim
	sender *Sender

	mu     sync.Mutex
	shops  map[string]int64 // by webhook key
	deaf   int64            // a shop that Twilio's reports do not reach
	points map[string]error
}

// shelf is Shopify, as far as offers without holds go: the stock of each shop's chair.
type shelf struct {
	waitlist.Shopify
	mu    sync.Mutex
	stock map[int64]int
}

func (s *shelf) set(shopID int64, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock[shopID] = n
}

func (s *shelf) ReadVariants(_ context.Context, shopID int64, ids, _ []int64) (map[int64]waitlist.VariantReading, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[int64]waitlist.VariantReading{chair: {ID: chair, ProductID: 11, InventoryItemID: 1101, SKU: "CHAIR", ProductTitle: "Oak Chair", Handle: "chair",
		Price: "120.00", Active: true, Published: true, Tracked: true, Sellable: s.stock[shopID]}}, nil
}

func (s *shelf) Budget(context.Context, int64, int) error              { return nil }
func (s *shelf) DefaultLocation(context.Context, int64) (int64, error) { return 1, nil }
func (s *shelf) ListDrafts(context.Context, int64, time.Time, string) ([]waitlist.Draft, string, error) {
	return nil, "", nil
}

func newOutboxWorld(t *testing.T) *outboxWorld {
	t.Helper()
	w := &outboxWorld{t: t, db: dbtest.New(t), shelf: &shelf{stock: map[int64]int{}}, clock: &simkit.Clock{}, faults: &simkit.Faults{}, shops: map[string]int64{}, points: map[string]error{}}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	keys, err := shop.NewKeys([]byte("0123456789abcdef0123456789abcdef"))
	w.must(err)
	w.store = shop.NewStore(w.db, keys)
	w.outbox = inbox.New(w.clock)
	w.twilio, err = twiliosim.New(w.clock, w.faults, w.outbox, log)
	w.must(err)
	sim := httptest.NewServer(w.twilio)
	app := httptest.NewServer(http.HandlerFunc(w.callback))
	w.mail, err = smtpsim.Start("127.0.0.1:0", smtpsim.Options{ReportURL: app.URL + "/webhooks/email"}, w.faults, w.outbox, log)
	w.must(err)
	w.sender, err = New(Config{PublicURL: app.URL, SMTPURL: w.mail.URL(), EmailFrom: "restock@mail.holdfast.example", Sim: sim.URL}, w.store, log)
	w.must(err)
	inserter, err := jobs.Inserter(w.db)
	w.must(err)
	point := func(_ context.Context, name, when string) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		err := w.points[name+" "+when]
		delete(w.points, name+" "+when)
		return err
	}
	w.list = waitlist.New(w.db, inserter, keys, w.shelf, w.sender, w.clock.Now, point, log)
	t.Cleanup(func() {
		w.mail.Close()
		w.twilio.Close()
		w.sender.twilio.(*http.Transport).CloseIdleConnections()
		sim.Close()
		app.Close()
	})
	return w
}

func (w *outboxWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// callback is the app's webhook.
func (w *outboxWorld) callback(rw http.ResponseWriter, r *http.Request) {
	if err := func() error {
		if r.URL.Path == "/webhooks/email" {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			report, ok, err := ReadPostmark(body)
			if err != nil || !ok {
				return fmt.Errorf("%s: %v, %w", body, ok, err)
			}
			return w.list.Delivered(r.Context(), report.ShopID, report.Delivery)
		}
		if err := r.ParseForm(); err != nil {
			return err
		}
		key := strings.Split(r.URL.Path, "/")[3]
		w.mu.Lock()
		id := w.shops[key]
		deaf := id == w.deaf
		w.mu.Unlock()
		if deaf {
			rw.WriteHeader(http.StatusServiceUnavailable)
			return nil
		}
		account, err := w.store.Twilio(r.Context(), id)
		if err != nil {
			return err
		}
		d, ok, err := ReadStatus(account, &url.URL{Scheme: "http", Host: r.Host, Path: r.URL.Path, RawQuery: r.URL.RawQuery}, r.Header, r.PostForm)
		if err != nil || !ok {
			return err
		}
		return w.list.Delivered(r.Context(), id, d)
	}(); err != nil {
		w.t.Errorf("callback: %v", err)
		rw.WriteHeader(http.StatusInternalServerError)
	}
}

// outboxShop is one shop with a chair that nobody can buy yet.
type outboxShop struct {
	*outboxWorld
	id   int64
	name string
}

func (w *outboxWorld) open(name string) *outboxShop {
	w.t.Helper()
	ctx := w.t.Context()
	domain := name + ".myshopify.com"
	id, err := w.store.Install(ctx, domain, name, "EUR", "GB", "en", "token")
	w.must(err)
	hex := fmt.Sprintf("%032x", id)
	account := shop.Twilio{AccountSID: "AC" + hex, APIKey: "SK" + hex, APISecret: "secret" + hex, AuthToken: "token" + hex, MessagingServiceSID: "MG" + hex}
	w.must(w.store.ConnectTwilio(ctx, id, account, "key-"+name))
	w.mu.Lock()
	w.shops["key-"+name] = id
	w.mu.Unlock()
	w.must(w.twilio.AddAccount(twiliosim.Account{Shop: domain, SID: account.AccountSID, APIKey: account.APIKey, APISecret: account.APISecret, AuthToken: account.AuthToken,
		MessagingServiceSID: account.MessagingServiceSID, Number: fmt.Sprintf("+1415555%04d", id)}))
	_, err = w.db.Exec(ctx, `UPDATE settings SET settle_seconds = 0, quiet_hours = false, reserve_before_telling = false WHERE shop_id = $1`, id)
	w.must(err)
	return &outboxShop{w, id, name}
}

// leave takes the shop out of later sweeps.
func (s *outboxShop) leave() {
	s.t.Helper()
	_, err := s.db.Exec(s.t.Context(), `UPDATE shops SET state = 'uninstalled', sealed_token = NULL, sealed_refresh = NULL, token_expires_at = NULL WHERE id = $1`, s.id)
	s.must(err)
}

func (s *outboxShop) join(name string, channel waitlist.Channel, contact string) {
	s.t.Helper()
	_, err := s.list.Tap(s.t.Context(), s.id, waitlist.Tap{VariantID: strconv.FormatInt(chair, 10), Channel: string(channel), Contact: contact, Name: name, Client: contact})
	s.must(err)
	s.run()
}

// stock puts units on the shelf, and does what follows.
func (s *outboxShop) stock(n int) {
	s.t.Helper()
	s.shelf.set(s.id, n)
	_, err := s.list.Receive(s.t.Context(), s.id, waitlist.Webhook{Topic: "inventory_levels/update", WebhookID: s.clock.Now().Format(time.RFC3339Nano), Body: []byte(`{"inventory_item_id":1101}`)})
	s.must(err)
	s.run()
}

// run works the shop's jobs until none gets on, and the callbacks that follow.
func (s *outboxShop) run() {
	s.t.Helper()
	for range 50 {
		for s.twilio.InFlight() > 0 { // callbacks are delivered by a goroutine of the simulator's
			select {
			case <-time.After(time.Millisecond):
			case <-s.t.Context().Done():
				s.t.Fatal("the callbacks are not taken")
			}
		}
		if !s.runOnce() && s.twilio.InFlight() == 0 {
			return
		}
	}
	s.t.Fatal("the jobs do not come to rest")
}

func (s *outboxShop) runOnce() (progress bool) {
	s.t.Helper()
	ctx := s.t.Context()
	rows, _ := s.db.Query(ctx, `SELECT id, kind, args FROM river_job WHERE (args->>'shop_id')::bigint = $1 ORDER BY id`, s.id)
	type row struct {
		ID   int64
		Kind string
		Args []byte
	}
	queued, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	s.must(err)
	for _, j := range queued {
		var a struct {
			Variant int64 `json:"variant_id"`
			Restock int64 `json:"restock_id"`
			Webhook int64 `json:"webhook_id"`
		}
		s.must(json.Unmarshal(j.Args, &a))
		switch j.Kind {
		case "observe":
			err = s.list.Observe(ctx, s.id, a.Variant)
		case "notice":
			err = s.list.Notify(ctx, s.id, a.Restock)
		case "webhook":
			err = s.list.HandleWebhook(ctx, s.id, a.Webhook)
		case "reconcile", "catalogue":
			err = nil // nothing of theirs is looked at here
		default:
			s.t.Fatalf("a job of kind %s", j.Kind)
		}
		if err == nil {
			_, err = s.db.Exec(ctx, `DELETE FROM river_job WHERE id = $1`, j.ID)
			s.must(err)
			progress = true
		}
	}
	return progress
}

// pass moves the clock, sweeps and does what follows.
func (s *outboxShop) pass(d time.Duration) {
	s.t.Helper()
	s.clock.Push(d)
	s.must(s.list.Sweep(s.t.Context()))
	s.run()
}

func (s *outboxShop) text(sql string, args ...any) string {
	s.t.Helper()
	var v string
	err := s.db.QueryRow(s.t.Context(), sql, append([]any{s.id}, args...)...).Scan(&v)
	if errors.Is(err, pgx.ErrNoRows) {
		return ""
	}
	s.must(err)
	return v
}

// state is what became of somebody: their entry, their newest offer, its message.
func (s *outboxShop) state(name string) string {
	s.t.Helper()
	return s.text(`
		SELECT concat_ws(' ', e.state, o.state, m.state) FROM entries e LEFT JOIN offers o ON o.shop_id = $1 AND o.entry_id = e.id LEFT JOIN messages m ON m.shop_id = $1 AND m.offer_id = o.id
		WHERE e.shop_id = $1 AND e.name = $2 ORDER BY o.id DESC NULLS LAST LIMIT 1`, name)
}

func (s *outboxShop) wantState(name, want string) {
	s.t.Helper()
	if got := s.state(name); got != want {
		s.t.Errorf("%s: %s is %q, want %q", s.name, name, got, want)
	}
}

// crowd lets n people wait by mail, the tenth of them at an address of its own if it is not "".
func (s *outboxShop) crowd(n int, odd string) {
	s.t.Helper()
	_, err := s.db.Exec(s.t.Context(), `
		INSERT INTO variants (shop_id, id, product_id, inventory_item_id, sku, title, product_title, handle, image_url, price, observed_at)
		VALUES ($1, $2, 11, 1101, 'CHAIR', '', 'Oak Chair', 'chair', '', '120.00', now())`, s.id, chair)
	s.must(err)
	_, err = s.db.Exec(s.t.Context(), `
		WITH c AS (
			INSERT INTO contacts (shop_id, channel, key, address, created_at)
			SELECT $1, 'email', a, a, now() FROM (SELECT CASE WHEN i = 10 AND $4 <> '' THEN $4 ELSE format('p%s@%s.example.com', i, $5::text) END AS a FROM generate_series(0, $3::int - 1) i) x
			RETURNING id
		)
		INSERT INTO entries (shop_id, variant_id, contact_id, name, state, expires_at)
		SELECT $1, $2, id, 'p' || row_number() OVER (ORDER BY id) - 1, 'waiting', now() + interval '180 days' FROM c ORDER BY id`, s.id, chair, n, odd, s.name)
	s.must(err)
}

// copies are the messages to somebody that the simulators accepted, of this shop.
func (s *outboxShop) copies(to string) []inbox.Message {
	var mine []inbox.Message
	for _, m := range s.outbox.Messages(to, "") {
		if strings.Contains(m.Body, s.name) {
			mine = append(mine, m)
		}
	}
	return mine
}

// The three who wait in the tests of Twilio's errors: two phones in different countries, and a mail.
const (
	annPhone = "+14155552671"
	bobPhone = "+447400123456"
)

// Every row of the table of errors, by answer and by report: what it does to the message, the unit, the
// opt-outs and the shop, and what comes next.
func TestEveryErrorOfTwiliosDoesWhatItsRowSays(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	for _, code := range slices.Sorted(maps.Keys(twilioErrors)) {
		row := twilioErrors[code]
		for _, way := range []string{"answer", "report"} {
			s := w.open(fmt.Sprintf("%s-%d", way, code))
			s.join("ann", waitlist.SMS, annPhone)
			s.join("bob", waitlist.SMS, bobPhone)
			s.join("cat", waitlist.Email, "cat@example.com")
			if way == "answer" {
				w.faults.Add(simkit.Fault{Target: "twilio", Op: "create", Mode: "status", Code: code, Count: 1, Shop: s.name + ".myshopify.com"})
			}
			s.stock(1)
			if way == "report" {
				mine := s.copies(annPhone)
				if len(mine) != 1 {
					t.Fatalf("%s: %d texts", s.name, len(mine))
				}
				s.must(w.twilio.Report(t.Context(), mine[0].ID, "undelivered", code))
				s.run()
			}
			suppressed := s.text(`SELECT coalesce(string_agg(reason, ','), '') FROM suppressions WHERE shop_id = $1`)
			paused := s.text(`SELECT coalesce(string_agg(prefix || CASE WHEN until IS NULL THEN ' off' ELSE ' pause' END, ','), '') FROM pauses WHERE shop_id = $1 AND ended_at IS NULL`)
			told := s.text(`SELECT count(*)::text FROM notes WHERE shop_id = $1 AND kind = 'sender'`)

			wantSuppressed, wantPaused := row.Suppress, map[string]string{"off": " off", "pause": " pause", "country": "+1415 off"}[row.Shop]
			if row.Strikes > 0 {
				wantSuppressed = "" // at its first failure
			}
			if suppressed != wantSuppressed || paused != wantPaused || (told == "1") != (row.Shop != "") {
				t.Errorf("%s: suppressed %q, paused %q, the shop was told %s times", s.name, suppressed, paused, told)
			}
			switch row.Message {
			case "retry", "once", "unknown": // the unit waits, and the message goes out once more
				s.wantState("bob", "waiting")
				s.pass(row.After + time.Second)
				s.pass(61 * time.Second) // what is looked for is looked for again after a minute
				s.wantState("ann", "offered open accepted")
				s.wantState("bob", "waiting")
				if n, want := len(s.copies(annPhone)), map[string]int{"answer": 1, "report": 2}[way]; n != want {
					t.Errorf("%s: %d copies were accepted, want %d", s.name, n, want)
				}
			case "failed": // it counts as told, and the unit is the next one's
				entry := "waiting"
				if wantSuppressed != "" {
					entry = "suppressed"
				}
				s.wantState("ann", entry+" lapsed failed")
				s.wantState("bob", "offered open accepted")
				s.wantState("cat", "waiting")
			case "unsent": // she keeps her chance; the unit is the next one's whom the shop can tell
				s.wantState("ann", "waiting withdrawn failed")
				next := "cat"
				if row.Shop == "country" {
					next = "bob"
				}
				s.wantState(next, "offered open accepted")
				if row.Shop == "pause" {
					s.pass(row.After)
				} else {
					s.stock(2)
					s.wantState("ann", "waiting withdrawn failed") // while it lasts, she is not offered another
					s.must(w.list.Resume(t.Context(), s.id, waitlist.SMS))
				}
				s.stock(3)
				s.wantState("ann", "offered open accepted")
			}
			s.leave()
		}
	}
}

func TestAPhoneThatFailsAgainAndAgainIsWrittenToNoMore(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	for _, code := range []int{30003, 30004} {
		s := w.open(fmt.Sprintf("strikes-%d", code))
		s.join("ann", waitlist.SMS, annPhone)
		w.faults.Add(simkit.Fault{Target: "twilio", Op: "create", Mode: "status", Code: code, Shop: s.name + ".myshopify.com"})
		for n := 1; n <= twilioErrors[code].Strikes; n++ {
			if got := s.state("ann"); strings.HasPrefix(got, "suppressed") {
				t.Fatalf("%d: %s before failure %d", code, got, n)
			}
			s.stock(1)
			s.pass(3 * time.Minute)
			s.stock(0)
			s.pass(time.Hour)
		}
		s.wantState("ann", "suppressed lapsed failed")
	}
}

// crashAndAnswer is one way in which a send goes wrong.
type crashAndAnswer struct {
	name  string
	fault simkit.Fault
	slow  bool // the answer does not come: the send is given up early
	// What becomes of the first in line: told is false when the provider refuses them for good.
	told bool
	// lost says that the provider took the message and its answer was lost, doubt that it may have for all
	// that anybody can know.
	lost, doubt bool
}

// A process that dies before or after the call, times all that a provider can answer. Judged by what the
// simulators accepted: nobody has two different notices, nobody more than two copies of one, and two only
// where a mail server took the first and it cannot be asked; no transient trouble costs anybody their notice;
// and no offer is left without an end.
func TestCrashesTimesAnswers(t *testing.T) {
	t.Parallel()
	answers := map[waitlist.Channel][]crashAndAnswer{
		waitlist.SMS: {
			{name: "accepted", told: true},
			{name: "429", fault: simkit.Fault{Mode: "throttle"}, told: true},
			{name: "500", doubt: true, fault: simkit.Fault{Mode: "status", Code: 500}, told: true},
			{name: "500 after it was accepted", fault: simkit.Fault{Mode: "status", Code: 500, When: "after"}, told: true, lost: true},
			{name: "503", doubt: true, fault: simkit.Fault{Mode: "status", Code: 20503}, told: true},
			{name: "no answer after it was accepted", fault: simkit.Fault{Mode: "timeout_after_commit"}, slow: true, told: true, lost: true},
			{name: "no answer", doubt: true, fault: simkit.Fault{Mode: "delay", MS: 1500}, slow: true, told: true},
			{name: "cut", doubt: true, fault: simkit.Fault{Mode: "down"}, told: true},
			{name: "cut after it was accepted", fault: simkit.Fault{Mode: "drop_after_commit"}, told: true, lost: true},
			{name: "HTML 502", doubt: true, fault: simkit.Fault{Mode: "html_502"}, told: true},
			{name: "HTML 502 after it was accepted", fault: simkit.Fault{Mode: "html_502", When: "after"}, told: true, lost: true},
			{name: "21610", fault: simkit.Fault{Mode: "status", Code: 21610}},
			{name: "21614", fault: simkit.Fault{Mode: "status", Code: 21614}},
			{name: "99999", fault: simkit.Fault{Mode: "status", Code: 99999}},
		},
		waitlist.Email: {
			{name: "accepted", told: true},
			{name: "450", fault: simkit.Fault{Mode: "status", Code: 450}, told: true},
			{name: "451 to the mail", fault: simkit.Fault{Op: "data", Mode: "status", Code: 451}, told: true},
			{name: "550", fault: simkit.Fault{Mode: "status", Code: 550}},
			{name: "554 5.7.1", fault: simkit.Fault{Mode: "status", Code: 554}},
			{name: "no answer after it was accepted", fault: simkit.Fault{Mode: "timeout_after_commit"}, slow: true, told: true, lost: true},
			{name: "no answer", doubt: true, fault: simkit.Fault{Mode: "delay", MS: 1500}, slow: true, told: true},
			{name: "cut", doubt: true, fault: simkit.Fault{Mode: "down"}, told: true},
			{name: "cut after it was accepted", fault: simkit.Fault{Mode: "drop_after_commit"}, told: true, lost: true},
		},
	}
	cut := errors.New("the process died here")
	for channel, all := range answers {
		t.Run(string(channel), func(t *testing.T) {
			t.Parallel()
			w := newOutboxWorld(t)
			quick, slow := w.sender.timeout, 300*time.Millisecond
			for i, c := range all {
				for _, crash := range []string{"", "before", "after"} {
					s := w.open(fmt.Sprintf("%s-%d%s", channel, i, crash))
					name := fmt.Sprintf("%s, %q, crash %q", channel, c.name, crash)
					ann, bob := annPhone, bobPhone
					if channel == waitlist.Email {
						ann, bob = fmt.Sprintf("ann%d%s@example.com", i, crash), fmt.Sprintf("bob%d%s@example.com", i, crash)
					}
					s.join("ann", channel, ann)
					s.join("bob", channel, bob)
					fault := ""
					if c.fault.Mode != "" {
						f := c.fault
						f.Target, f.Count = map[waitlist.Channel]string{waitlist.SMS: "twilio", waitlist.Email: "smtp"}[channel], 1
						if channel == waitlist.SMS {
							f.Op, f.Shop = "create", s.name+".myshopify.com"
						}
						fault = w.faults.Add(f)
					}
					if c.slow {
						w.sender.timeout = slow
					}
					if crash != "" {
						w.mu.Lock()
						w.points["send "+crash] = cut
						w.mu.Unlock()
					}
					s.stock(1)
					if crash != "" { // its job is taken back by the process that is started next
						restock := s.text(`SELECT id::text FROM restocks WHERE shop_id = $1`)
						id, err := strconv.ParseInt(restock, 10, 64)
						s.must(err)
						s.must(w.list.Abandoned(t.Context(), s.id, id))
						s.run()
					}
					for range 4 {
						s.pass(2 * time.Minute)
					}
					_ = w.faults.Delete(fault) // most are used up
					w.sender.timeout = quick

					copies := s.copies(ann)
					for _, m := range copies {
						if !slices.Equal(m.Links, copies[0].Links) || m.Headers["Message-Id"] != copies[0].Headers["Message-Id"] {
							t.Errorf("%s: two different notices of one offer: %v and %v", name, copies[0].Links, m.Links)
						}
					}
					most, least := 1, 1
					switch {
					case !c.told && crash != "after" && crash != "before":
						most, least = 0, 0
					case crash == "before" && c.doubt:
						least = 0 // lost from sight twice: it is not tried a third time
					case !c.told:
						least = 0 // what was answered died with the process: it is asked again
					case channel == waitlist.Email && (c.lost || crash == "after"):
						most = 2
					}
					if n := len(copies); n < least || n > most {
						t.Errorf("%s: %d copies, want %d to %d (%s)", name, n, least, most, s.state("ann"))
					}
					// In the end the unit has gone on, and the next in line has had their notice, once.
					s.pass(2 * time.Hour)
					s.pass(3 * time.Hour)
					if n := len(s.copies(bob)); n != 1 {
						t.Errorf("%s: the next in line has %d notices", name, n)
					}
					if open := s.text(`SELECT count(*)::text FROM offers WHERE shop_id = $1 AND state = 'open'`); open != "0" {
						t.Errorf("%s: %s offers have no end", name, open)
					}
					s.leave()
				}
			}
		})
	}
}

// What shows that a person cannot or must not be written to frees their unit for the next in line before the
// next sweep is over; what is told twice changes nothing.
func TestABounceAComplaintAndAnOptOutFreeTheUnitWithinOneSweep(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	for _, c := range []struct {
		name, reason string
		channel      waitlist.Channel
		happens      func(s *outboxShop, messageID string) error
	}{
		{"21610", "stop", waitlist.SMS, func(s *outboxShop, id string) error { return w.twilio.Report(t.Context(), id, "undelivered", 21610) }},
		{"STOP", "stop", waitlist.SMS, func(s *outboxShop, id string) error {
			_, err := w.list.InboundText(t.Context(), s.id, "SM-stop", annPhone, "Stop please!", "")
			return err
		}},
		{"bounce", "bounce", waitlist.Email, func(s *outboxShop, id string) error { return w.mail.Event(t.Context(), id, "bounce") }},
		{"complaint", "complaint", waitlist.Email, func(s *outboxShop, id string) error { return w.mail.Event(t.Context(), id, "complaint") }},
	} {
		s := w.open("frees-" + strings.ToLower(c.name))
		ann, bob := annPhone, bobPhone
		if c.channel == waitlist.Email {
			ann, bob = "ann."+s.name+"@example.com", "bob."+s.name+"@example.com"
		}
		s.join("ann", c.channel, ann)
		s.join("bob", c.channel, bob)
		s.stock(1)
		mine := s.copies(ann)
		if len(mine) != 1 {
			t.Fatalf("%s: %d messages", c.name, len(mine))
		}
		for range 3 {
			s.must(c.happens(s, mine[0].ID))
		}
		s.pass(30 * time.Second)
		s.wantState("bob", "offered open accepted")
		if got := s.state("ann"); !strings.HasPrefix(got, "suppressed ") {
			t.Errorf("%s: ann is %q", c.name, got)
		}
		if got := s.text(`SELECT string_agg(reason, ',') FROM suppressions WHERE shop_id = $1`); got != c.reason {
			t.Errorf("%s: suppressed because of %q", c.name, got)
		}
		if n := len(s.copies(bob)); n != 1 {
			t.Errorf("%s: the next in line has %d messages", c.name, n)
		}
	}
}

func TestAMailThatBouncedForTheTimeBeingIsSentOnceMore(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	s := w.open("soft")
	s.join("ann", waitlist.Email, "ann@example.com")
	s.join("bob", waitlist.Email, "bob@example.com")
	s.stock(1)
	s.must(w.mail.Event(t.Context(), s.copies("ann@example.com")[0].ID, "soft_bounce"))
	s.wantState("ann", "offered open pending")
	s.must(w.mail.Event(t.Context(), s.copies("ann@example.com")[0].ID, "soft_bounce")) // again, about the first copy
	s.pass(softBouncePause + time.Second)
	s.wantState("ann", "offered open accepted")
	copies := s.copies("ann@example.com")
	if len(copies) != 2 {
		t.Fatalf("%d copies", len(copies))
	}
	s.must(w.mail.Event(t.Context(), copies[0].ID, "soft_bounce")) // once more about the first
	s.wantState("ann", "offered open accepted")
	s.must(w.mail.Event(t.Context(), copies[1].ID, "soft_bounce"))
	s.run()
	s.wantState("ann", "waiting lapsed failed")
	s.wantState("bob", "offered open accepted")
	if n := s.text(`SELECT count(*)::text FROM suppressions WHERE shop_id = $1`); n != "0" {
		t.Errorf("%s suppressions for a full mailbox", n)
	}
}

// rate is what a shop's mails meet with: so many events of a kind pause it, one less does not.
type rate struct {
	kind        string
	mails, many int
}

// A shop whose mails bounce or are complained about too often is paused and told, and nobody else is.
func TestAShopAboveTheRatesOfBouncesAndComplaintsIsPausedAndTold(t *testing.T) {
	t.Parallel()
	for _, c := range rates {
		w := newOutboxWorld(t)
		s := w.open(fmt.Sprintf("rates-%s-%d", c.kind, c.mails))
		s.crowd(c.mails+c.many, "") // each of those events frees a unit for the next in line, but the last
		s.stock(c.mails)
		for i := range max(c.many, 2) {
			mine := s.copies(fmt.Sprintf("p%d@%s.example.com", i, s.name))
			s.must(w.mail.Event(t.Context(), mine[0].ID, c.kind))
			s.must(w.mail.Event(t.Context(), mine[0].ID, c.kind)) // a repeated report counts once
			paused := s.text(`SELECT count(*)::text FROM pauses WHERE shop_id = $1 AND channel = 'email' AND code = $2 || 's'`, c.kind)
			if want := c.many > 0 && i+1 >= c.many; (paused == "1") != want {
				t.Errorf("%s of %d mails: after %d, %s pauses", c.kind, c.mails, i+1, paused)
			}
		}
		if c.many == 0 {
			continue
		}
		if note := s.text(`SELECT detail FROM notes WHERE shop_id = $1 AND kind = 'sender'`); !strings.Contains(note, "are paused") {
			t.Errorf("%s: the shop was told %q", s.name, note)
		}
		other := w.open("quiet")
		other.join("ann", waitlist.Email, "ann.quiet@example.com")
		other.stock(1)
		other.wantState("ann", "offered open accepted")
		s.must(w.list.Resume(t.Context(), s.id, waitlist.Email)) // which is not the merchant's to end
		last := fmt.Sprintf("p%d", c.mails+c.many-1)
		s.run()
		s.wantState(last, "waiting")
		s.pass(judgedSpan + time.Second)
		s.wantState(last, "offered open accepted")
	}
}

const judgedSpan = 24 * time.Hour

// What became of a text whose answer was lost is learnt from the report that names its attempt, or from
// Twilio's list; either alone is enough, and the text is not sent again.
func TestALostAnswerIsLearntFromTheReportOrFromTheList(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	for name, spoil := range map[string]func(s *outboxShop){
		"report": func(s *outboxShop) {
			w.faults.Add(simkit.Fault{Target: "twilio", Op: "list", Mode: "status", Code: 500, Shop: s.name + ".myshopify.com"})
		},
		"list": func(s *outboxShop) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.deaf = s.id
		},
	} {
		s := w.open("learns-from-the-" + name)
		spoil(s)
		s.join("ann", waitlist.SMS, annPhone)
		w.faults.Add(simkit.Fault{Target: "twilio", Op: "create", Mode: "drop_after_commit", Count: 1, Shop: s.name + ".myshopify.com"})
		s.stock(1)
		for range 3 {
			s.pass(2 * time.Minute)
		}
		s.wantState("ann", "offered open accepted")
		if mine := s.copies(annPhone); len(mine) != 1 || s.text(`SELECT provider_id FROM messages WHERE shop_id = $1`) != mine[0].ID {
			t.Errorf("%s: %+v", name, mine)
		}
	}
}

// A mail server that is away is not called for each of a thousand mails, and the texts among them go.
func TestAProviderThatIsAwayIsCalledOnceAndTheOtherGoesOn(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	s := w.open("away")
	s.crowd(30, "")
	s.join("ann", waitlist.SMS, annPhone)
	dial, calls := w.sender.smtp.dial, 0
	w.sender.smtp.dial = func(context.Context, string, string) (net.Conn, error) {
		calls++
		return nil, errors.New("nobody is there")
	}
	s.shelf.set(s.id, 31)
	s.must(w.list.Observe(t.Context(), s.id, chair))
	id, err := strconv.ParseInt(s.text(`SELECT id::text FROM restocks WHERE shop_id = $1`), 10, 64)
	s.must(err)
	if err := w.list.Notify(t.Context(), s.id, id); err == nil {
		t.Error("Notify says that all were sent")
	}
	if calls != 1 {
		t.Errorf("the mail server was called %d times", calls)
	}
	s.wantState("ann", "offered open accepted")
	w.sender.smtp.dial = dial
	s.run()
	if n := s.text(`SELECT count(*)::text FROM messages WHERE shop_id = $1 AND state = 'accepted'`); n != "31" {
		t.Errorf("%s messages were accepted in the end", n)
	}
}

// Twilio's Compliance Toolkit holds texts back at night. One that came in the morning would tell of an offer
// that is long over: it is dropped, and the text goes when it goes at once.
func TestATextThatTwilioHoldsBackIsDroppedAndSentLater(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	s := w.open("night")
	account, err := w.store.Twilio(t.Context(), s.id)
	s.must(err)
	night := twiliosim.Account{Shop: "night.myshopify.com", SID: account.AccountSID, APIKey: account.APIKey, APISecret: account.APISecret, AuthToken: account.AuthToken,
		MessagingServiceSID: account.MessagingServiceSID, Number: "+14155550199", HoldsBack: true}
	s.must(w.twilio.AddAccount(night))
	s.join("ann", waitlist.SMS, annPhone)
	s.stock(1)
	s.wantState("ann", "offered open pending")
	if mine := s.copies(annPhone); len(mine) != 1 || mine[0].Status != "canceled" {
		t.Fatalf("%+v", mine)
	}
	night.HoldsBack = false
	s.must(w.twilio.AddAccount(night))
	s.pass(15*time.Minute + time.Second)
	s.wantState("ann", "offered open accepted")
	if mine := s.copies(annPhone); len(mine) != 2 || mine[1].Status != "sent" {
		t.Errorf("%+v", mine)
	}
}

// What a mailbox provider holds against our sender is nobody's fault who waits. Each refusal costs one person
// this chance; before it costs a whole queue theirs, the sender rests.
func TestASenderThatIsRefusedInARowRests(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	s := w.open("refused")
	s.crowd(5, "")
	fault := w.faults.Add(simkit.Fault{Target: "smtp", Mode: "status", Code: 554})
	s.stock(1)
	for n, want := range []string{"waiting lapsed failed", "waiting lapsed failed", "waiting lapsed failed", "waiting", "waiting"} {
		s.wantState(fmt.Sprintf("p%d", n), want)
	}
	if n := s.text(`SELECT count(*)::text FROM suppressions WHERE shop_id = $1`); n != "0" {
		t.Errorf("%s people are suppressed", n)
	}
	if n := s.text(`SELECT count(*)::text FROM notes WHERE shop_id = $1 AND kind = 'sender'`); n != "2" {
		t.Errorf("the shop was told %s times, want of the refusal and of the pause", n)
	}
	s.must(w.faults.Delete(fault))
	s.pass(time.Hour + time.Second)
	s.wantState("p3", "offered open accepted")
}

// A shop's texts go no faster than its senders send: what queues at Twilio is told of an offer that runs out.
func TestAShopsTextsGoNoFasterThanItsRate(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	s, other := w.open("slow"), w.open("other")
	for i := range 55 {
		s.join(fmt.Sprint("p", i), waitlist.SMS, fmt.Sprintf("+4474001234%02d", i))
	}
	s.stock(15)
	first := s.text(`SELECT count(*)::text FROM messages WHERE shop_id = $1 AND state = 'accepted'`)
	if n, err := strconv.Atoi(first); err != nil || n < 10 || n > 13 { // ten seconds' worth at once
		t.Errorf("%s texts went at once", first)
	}
	other.join("ann", waitlist.SMS, annPhone)
	other.stock(1)
	other.wantState("ann", "offered open accepted") // another shop's rate is its own
	s.pass(10 * time.Second)
	if n := s.text(`SELECT count(*)::text FROM messages WHERE shop_id = $1 AND state = 'accepted'`); n != "15" {
		t.Errorf("%s texts went in the end", n)
	}
	s.must(w.list.SetTextsPerSecond(t.Context(), s.id, 50))
	s.stock(55)
	if n := s.text(`SELECT count(*)::text FROM messages WHERE shop_id = $1 AND state = 'accepted'`); n != "55" {
		t.Errorf("%s texts went at a higher rate", n)
	}
}

// One bad contact, or one whose mail cannot be written, costs the other 999 nothing.
func TestOneBadContactOfAThousandStopsNothing(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	s := w.open("thousand")
	s.crowd(thousand, "not an address")
	w.faults.Add(simkit.Fault{Target: "smtp", Mode: "status", Code: 550, Count: 1})
	s.stock(thousand)
	if n := s.text(`SELECT count(*)::text FROM messages WHERE shop_id = $1 AND state = 'accepted'`); n != strconv.Itoa(thousand-2) {
		t.Errorf("%s of %d messages were accepted", n, thousand)
	}
	if n := s.text(`SELECT string_agg(outcome, ',' ORDER BY outcome) FROM messages WHERE shop_id = $1 AND state = 'failed'`); n != "dead,give_up" {
		t.Errorf("failed: %s", n)
	}
}

// Once more, and never a third time.
func TestAMailServerThatSwallowsItsAnswersIsSentEachMailTwice(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	s := w.open("swallows")
	s.join("ann", waitlist.Email, "ann@example.com")
	w.faults.Add(simkit.Fault{Target: "smtp", Mode: "drop_after_commit"})
	s.stock(1)
	for range 10 {
		s.pass(5 * time.Minute)
	}
	if n := len(s.copies("ann@example.com")); n != 2 {
		t.Errorf("%d copies", n)
	}
	s.wantState("ann", "offered open unknown")
	s.pass(time.Hour)
	s.wantState("ann", "waiting lapsed unknown")
}

// However many workers come for one message, the provider is called once.
func TestTwoWorkersNeverCallForOneMessage(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	s := w.open("workers")
	for i := range 20 {
		s.join(fmt.Sprint("p", i), waitlist.Email, fmt.Sprintf("p%d@example.com", i))
	}
	s.shelf.set(s.id, 20)
	s.must(w.list.Observe(t.Context(), s.id, chair))
	id, err := strconv.ParseInt(s.text(`SELECT id::text FROM restocks WHERE shop_id = $1`), 10, 64)
	s.must(err)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for {
				err := w.list.Notify(t.Context(), s.id, id)
				if !errors.Is(err, waitlist.ErrLater) {
					if err != nil {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	workers.Wait()
	if n := len(w.outbox.Messages("", "")); n != 20 {
		t.Errorf("%d mails were accepted, want 20", n)
	}
	if n := s.text(`SELECT count(*)::text FROM messages WHERE shop_id = $1 AND state = 'accepted' AND attempts = 1`); n != "20" {
		t.Errorf("%s messages were accepted at their first attempt", n)
	}
}
