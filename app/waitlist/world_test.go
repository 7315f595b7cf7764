package waitlist_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/app/db/dbtest"
	"holdfast/app/jobs"
	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

const chair int64 = 101

// world is one shop with one variant, in a database of its own, beside a plain Shopify and a clock that
// stands still until it is moved.
type world struct {
	t      testing.TB
	db     *pgxpool.Pool
	list   *waitlist.Service
	shop   int64
	keys   *shop.Keys
	store  *store
	outbox *outbox

	mu      sync.Mutex
	time    time.Time
	points  map[string]func() error // cut or observe a step at a named point
	strangs int
}

func newWorld(t testing.TB, change ...func(*shop.Settings)) *world {
	t.Helper()
	w := &world{t: t, db: dbtest.New(t), time: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC), points: map[string]func() error{}}
	var err error
	w.keys, err = shop.NewKeys([]byte("0123456789abcdef0123456789abcdef"))
	w.must(err)
	store := shop.NewStore(w.db, w.keys)
	w.shop, err = store.Install(t.Context(), "chairs.myshopify.com", "Chairs", "EUR", "GB", "en", "token")
	w.must(err)
	w.sendsTexts(w.shop)
	w.store, w.outbox = newStore(w.now), &outbox{}
	w.store.variants[chair] = &waitlist.VariantReading{ID: chair, ProductID: 11, InventoryItemID: 1101, SKU: "CHAIR", Title: "Oak", ProductTitle: "Chair",
		Handle: "chair", Price: "120.00", Active: true, Published: true, Tracked: true}
	w.list = w.service()
	w.settings(append([]func(*shop.Settings){func(s *shop.Settings) { s.SettleSeconds, s.ReserveBeforeTelling = 0, false }}, change...)...)
	t.Cleanup(func() {
		if !t.Failed() {
			w.checkBooks()
		}
	})
	return w
}

// sendsTexts gives a shop a Twilio account.
func (w *world) sendsTexts(shopID int64) {
	w.t.Helper()
	account := shop.Twilio{AccountSID: "AC1", APIKey: "SK1", APISecret: "s", AuthToken: "t", MessagingServiceSID: "MG1"}
	w.must(shop.NewStore(w.db, w.keys).ConnectTwilio(w.t.Context(), shopID, account, fmt.Sprint("key-", shopID)))
}

// service is another process over the same database.
func (w *world) service() *waitlist.Service {
	inserter, err := jobs.Inserter(w.db)
	w.must(err)
	point := func(_ context.Context, name, when string) error {
		w.mu.Lock()
		f := w.points[name+" "+when]
		w.mu.Unlock()
		if f != nil {
			return f()
		}
		return nil
	}
	return waitlist.New(w.db, inserter, w.keys, w.store, w.outbox, w.now, point, slog.New(slog.NewTextHandler(io.Discard, nil)))
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// took is must for Receive.
func (w *world) took(_ bool, err error) {
	w.t.Helper()
	w.must(err)
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.time
}

// pass moves the clock, sweeps and does what follows.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	w.move(d)
	w.must(w.list.Sweep(w.t.Context()))
	w.run()
}

func (w *world) move(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.time = w.time.Add(d)
}

func (w *world) at(point string, f func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.points[point] = f
}

// once cuts the step at a point, the next time it comes by.
func (w *world) once(point string) {
	w.at(point, func() error {
		w.at(point, nil)
		return errCut
	})
}

var errCut = errors.New("the process died here")

func (w *world) settings(change ...func(*shop.Settings)) {
	w.t.Helper()
	set, err := shop.LoadSettings(w.t.Context(), w.db, w.shop)
	w.must(err)
	for _, f := range change {
		f(&set)
	}
	w.must(w.list.ChangeSettings(w.t.Context(), w.shop, set))
}

func (w *world) join(who ...string) {
	w.t.Helper()
	for _, name := range who {
		got, err := w.list.Join(w.t.Context(), w.shop, tap(name))
		w.must(err)
		if got.InStock {
			w.t.Fatalf("join of %s: in stock", name)
		}
	}
}

func tap(name string) waitlist.Tap {
	return waitlist.Tap{VariantID: fmt.Sprint(chair), Channel: "email", Contact: name + "@example.com", Name: name, Country: "GB", Locale: "en"}
}

// people names n people.
func people(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("p%03d", i+1)
	}
	return all
}

// stock sets what Shopify has and does what its webhook would.
func (w *world) stock(n int) {
	w.t.Helper()
	w.store.set(chair, n)
	w.hint()
	w.run()
}

func (w *world) hint() {
	w.t.Helper()
	w.strangs++
	w.took(w.list.Receive(w.t.Context(), w.shop, waitlist.Webhook{Topic: "inventory_levels/update", WebhookID: fmt.Sprintf("w%d", w.strangs), Body: []byte(`{"inventory_item_id":1101,"location_id":1,"available":99}`)}))
}

func (w *world) observe() {
	w.t.Helper()
	if err := w.service().Observe(w.t.Context(), w.shop, chair); err != nil && !errors.Is(err, waitlist.ErrLater) {
		w.t.Fatal(err)
	}
}

// run works the queued jobs, in order, until none is left or none gets on. A job that fails is kept.
func (w *world) run() {
	w.t.Helper()
	for range 200 {
		if !w.runOnce() {
			return
		}
	}
	w.t.Fatal("the jobs do not come to rest")
}

func (w *world) runOnce() (progress bool) {
	w.t.Helper()
	w.must(w.list.SecurersGone(w.t.Context(), w.shop)) // the clock stands still: nobody's pause would end
	rows, _ := w.db.Query(w.t.Context(), `SELECT id, kind, args FROM river_job WHERE state = 'available' ORDER BY id`)
	type row struct {
		ID   int64
		Kind string
		Args []byte
	}
	queued, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	w.must(err)
	last := w.one(`SELECT coalesce(max(id), 0) FROM river_job`)
	for _, j := range queued {
		err := w.work(w.list, j.Kind, j.Args)
		if err == nil || errors.Is(err, waitlist.ErrNotFound) {
			_, err = w.db.Exec(w.t.Context(), `DELETE FROM river_job WHERE id = $1`, j.ID)
			w.must(err)
			progress = true
		}
	}
	return progress || w.one(`SELECT coalesce(max(id), 0) FROM river_job`) > last
}

func (w *world) work(list *waitlist.Service, kind string, args []byte) error {
	var a struct {
		Shop    int64 `json:"shop_id"`
		Variant int64 `json:"variant_id"`
		Hold    int64 `json:"hold_id"`
		Restock int64 `json:"restock_id"`
		Webhook int64 `json:"webhook_id"`
		Product int64 `json:"product_id"`
	}
	w.must(json.Unmarshal(args, &a))
	ctx := w.t.Context()
	switch kind {
	case "observe":
		// In a process of its own: run from within a read of stock, it would otherwise wait for that read.
		return w.service().Observe(ctx, a.Shop, a.Variant)
	case "secure":
		return list.SecureNext(ctx, a.Shop)
	case "release":
		return list.Release(ctx, a.Shop, a.Hold)
	case "notice":
		return list.Notify(ctx, a.Shop, a.Restock)
	case "webhook":
		return list.HandleWebhook(ctx, a.Shop, a.Webhook)
	case "reconcile":
		return list.Reconcile(ctx, a.Shop)
	case "catalogue":
		return list.ReadCatalogue(ctx, a.Shop)
	case "product":
		return list.ReadProduct(ctx, a.Shop, a.Product)
	}
	w.t.Fatalf("a job of an unknown kind: %s", kind)
	return nil
}

// dropJobs forgets the queued jobs of a kind.
func (w *world) dropJobs(kind string) {
	w.t.Helper()
	_, err := w.db.Exec(w.t.Context(), `DELETE FROM river_job WHERE kind = $1`, kind)
	w.must(err)
}

func (w *world) one(sql string, args ...any) int64 {
	w.t.Helper()
	var n int64
	w.must(w.db.QueryRow(w.t.Context(), sql, args...).Scan(&n))
	return n
}

func (w *world) text(sql string, args ...any) string {
	w.t.Helper()
	var s string
	w.must(w.db.QueryRow(w.t.Context(), sql, args...).Scan(&s))
	return s
}

// link is the reserve token of somebody's newest offer.
func (w *world) link(name string) string {
	w.t.Helper()
	return w.keys.Token(shop.Reserve, w.one(`
		SELECT o.id FROM offers o JOIN entries e ON e.shop_id = o.shop_id AND e.id = o.entry_id JOIN contacts c ON c.shop_id = e.shop_id AND c.id = e.contact_id
		WHERE c.key = $1 ORDER BY o.id DESC LIMIT 1`, name+"@example.com"))
}

func (w *world) entry(name string) int64 {
	w.t.Helper()
	return w.one(`SELECT e.id FROM entries e JOIN contacts c ON c.shop_id = e.shop_id AND c.id = e.contact_id WHERE c.key = $1 ORDER BY e.id DESC LIMIT 1`, name+"@example.com")
}

// press claims somebody's offer and leaves what follows to run.
func (w *world) press(name string) waitlist.Offer {
	w.t.Helper()
	o, err := w.list.Claim(w.t.Context(), w.link(name))
	w.must(err)
	return o
}

// hold is somebody's newest hold.
func (w *world) hold(name string) int64 {
	w.t.Helper()
	return w.one(`SELECT id FROM holds WHERE entry_id = $1 ORDER BY id DESC LIMIT 1`, w.entry(name))
}

func (w *world) draftOf(name string) int64 {
	w.t.Helper()
	return w.one(`SELECT draft_id FROM holds WHERE id = $1`, w.hold(name))
}

// buy is a stranger who buys in the storefront; no webhook tells of it.
func (w *world) buy(n int) { w.store.add(chair, -n) }

// pays pays somebody's draft and brings Shopify's webhook.
func (w *world) pays(name string) {
	w.t.Helper()
	id := w.draftOf(name)
	order, err := w.store.pay(id)
	w.must(err)
	w.strangs++
	w.took(w.list.Receive(w.t.Context(), w.shop, waitlist.Webhook{Topic: "draft_orders/update", WebhookID: fmt.Sprintf("w%d", w.strangs),
		Body: fmt.Appendf(nil, `{"id":%d,"status":"completed","order_id":%d}`, id, order)}))
	w.run()
}

func (w *world) wantTold(names ...string) {
	w.t.Helper()
	var want []string
	for _, n := range names {
		want = append(want, n+"@example.com")
	}
	if got := w.outbox.to(); !slices.Equal(got, want) {
		w.t.Fatalf("told %v, want %v", got, want)
	}
}

func (w *world) wantState(name, state string) {
	w.t.Helper()
	if got := w.text(`SELECT state FROM entries WHERE id = $1`, w.entry(name)); got != state {
		w.t.Fatalf("%s is %s, want %s", name, got, state)
	}
}

func (w *world) wantOffer(name, state string) {
	w.t.Helper()
	if got := w.text(`SELECT state FROM offers WHERE entry_id = $1 ORDER BY id DESC LIMIT 1`, w.entry(name)); got != state {
		w.t.Fatalf("%s's offer is %s, want %s", name, got, state)
	}
}

func (w *world) wantHold(name, state string) {
	w.t.Helper()
	if got := w.text(`SELECT state FROM holds WHERE id = $1`, w.hold(name)); got != state {
		w.t.Fatalf("%s's hold is %s, want %s", name, got, state)
	}
}

// counter is the newest restock as "units available live sold withdrawn".
func (w *world) counter() string {
	w.t.Helper()
	return w.text(`SELECT concat_ws(' ', units, available, live, sold, withdrawn) FROM restocks ORDER BY id DESC LIMIT 1`)
}

func (w *world) wantCounter(want string) {
	w.t.Helper()
	if got := w.counter(); got != want {
		w.t.Fatalf("units available live sold withdrawn: %s, want %s", got, want)
	}
}

func (w *world) checkBooks() {
	w.t.Helper()
	if err := w.books(); err != nil {
		w.t.Fatal(err)
	}
}

// books recounts every restock from rows that are not the sums themselves, and looks at the promises that
// hold in every committed state. It returns what does not hold.
func (w *world) books() error {
	ctx := context.Background()
	rows, _ := w.db.Query(ctx, `
		SELECT r.id, r.units, r.available, r.live, r.sold, r.withdrawn,
		       coalesce((SELECT sum(by) FROM restock_changes c WHERE c.restock_id = r.id AND kind IN ('open', 'grow')), 0),
		       coalesce((SELECT sum(by) FROM restock_changes c WHERE c.restock_id = r.id AND kind = 'shrink'), 0),
		       (SELECT count(*) FROM holds h WHERE h.restock_id = r.id AND h.state IN ('securing', 'active', 'releasing')),
		       (SELECT count(*) FROM holds h WHERE h.restock_id = r.id AND h.state = 'sold'),
		       (SELECT count(*) FROM holds h WHERE h.restock_id = r.id AND h.state = 'refused')
		FROM restocks r`)
	var id, units, available, live, sold, withdrawn, came, shrank, holds, sales, refused int64
	_, err := pgx.ForEachRow(rows, []any{&id, &units, &available, &live, &sold, &withdrawn, &came, &shrank, &holds, &sales, &refused}, func() error {
		if units != came || live != holds || sold != sales || withdrawn != shrank+refused || available != came-holds-sales-shrank-refused {
			return fmt.Errorf("restock %d: units %d (came %d), available %d, live %d (holds %d), sold %d (%d), withdrawn %d (shrank %d, refused %d)",
				id, units, came, available, live, holds, sold, sales, withdrawn, shrank, refused)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for what, sql := range map[string]string{
		"an entry is offered without an open offer, or the other way round":                      `SELECT count(*) FROM entries e WHERE (e.state = 'offered') <> EXISTS (SELECT FROM offers o WHERE o.entry_id = e.id AND o.state = 'open' AND (NOT o.reserved OR e.state IN ('offered', 'waiting', 'holding')))`,
		"an open reserved offer without a live hold that nobody pressed, or the other way round": `SELECT count(*) FROM offers o WHERE (o.reserved AND o.state = 'open') <> EXISTS (SELECT FROM holds h WHERE h.offer_id = o.id AND NOT h.pressed AND h.state IN ('securing', 'active', 'releasing'))`,
		"a message about a unit that was not held when it was sent":                              `SELECT count(*) FROM messages m JOIN offers o ON o.id = m.offer_id JOIN holds h ON h.offer_id = o.id WHERE o.reserved AND m.attempts > 0 AND m.outcome IS DISTINCT FROM 'shop_fault' AND (h.activated_at IS NULL OR h.notice_at IS NULL OR h.notice_at < h.activated_at)`,
		"an entry holds without a live hold":                                                     `SELECT count(*) FROM entries e WHERE e.state = 'holding' AND NOT EXISTS (SELECT FROM holds h WHERE h.entry_id = e.id AND h.state IN ('securing', 'active', 'releasing'))`,
		"a suppressed contact is live":                                                           `SELECT count(*) FROM entries e JOIN contacts c ON c.id = e.contact_id JOIN suppressions s ON s.address = c.address AND s.channel = c.channel WHERE e.state IN ('waiting', 'offered', 'holding')`,
	} {
		var n int64
		if err := w.db.QueryRow(ctx, sql).Scan(&n); err != nil {
			return err
		}
		if n != 0 {
			return fmt.Errorf("%s: %d times", what, n)
		}
	}
	return nil
}

// dump is all rows of the tables that a shopper's act may touch.
func (w *world) dump() string {
	w.t.Helper()
	var all strings.Builder
	for _, table := range []string{"contacts", "suppressions", "entries", "restocks", "restock_changes", "offers", "holds", "messages", "webhooks", "notes", "river_job"} {
		all.WriteString(w.text(`SELECT coalesce(string_agg(t::text, E'\n' ORDER BY t::text), '') FROM ` + table + ` t`))
	}
	return all.String()
}
