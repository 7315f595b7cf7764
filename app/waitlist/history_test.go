package waitlist_test

import (
	"context"
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
	"pgregory.net/rapid"

	"holdfast/app/jobs"
	"holdfast/app/shop"
	"holdfast/app/shopify"
	"holdfast/app/shopify/shopifysim"
	"holdfast/app/simkit"
	"holdfast/app/waitlist"
)

// What the histories are about: the oak chair of the simulated Shopify's demo, sold out, and its shop.
const (
	chairs      = "chairs.myshopify.com"
	oak         = 30011
	workshop    = 2001
	enoughSteps = 40
)

// history is a shop to which anything may happen: the domain against PostgreSQL and, by the program's own
// client, the simulated Shopify, beside a plain account of what was done, from which follows what must be
// true whatever happens.
type history struct {
	*world
	rt    *rapid.T
	sim   *shopifysim.Test
	calls *calls
	names []string
	steps []string

	// The account.
	stopped map[string]bool // addresses that said STOP
	sent    map[int64]int   // messages accepted, by id
	touched map[int64]bool  // drafts that the merchant did something to
	offers  int64           // the newest offer that was looked at
	hooks   map[shopifysim.ID]bool
	edits   int  // what the merchant did to drafts, which may take a unit each
	planted bool // Shopify may answer wrongly
}

// calls is the program's client of Shopify. Something can be made to happen before a call, or when it was
// answered and its caller has not seen the answer yet.
type calls struct {
	*shopify.Client
	mu    sync.Mutex
	then  map[string]func()
	reads func(sellable int64) // told what a read of the variant answers
}

func (c *calls) around(op string, call func() error) error {
	now := func(when string) {
		c.mu.Lock()
		f := c.then[when+" "+op]
		delete(c.then, when+" "+op)
		c.mu.Unlock()
		if f != nil {
			f()
		}
	}
	now("before")
	err := call()
	now("after")
	return err
}

func (c *calls) ReadVariants(ctx context.Context, shopID int64, ids, locations []int64) (found map[int64]waitlist.VariantReading, err error) {
	err = c.around("ReadVariants", func() error {
		found, err = c.Client.ReadVariants(ctx, shopID, ids, locations)
		c.mu.Lock()
		reads := c.reads
		c.mu.Unlock()
		if v, ok := found[oak]; ok && reads != nil {
			reads(int64(v.Sellable))
		}
		return err
	})
	return found, err
}

func (c *calls) CreateDraft(ctx context.Context, shopID int64, n waitlist.NewDraft) (d waitlist.Draft, err error) {
	err = c.around("CreateDraft", func() error { d, err = c.Client.CreateDraft(ctx, shopID, n); return err })
	return d, err
}

func (c *calls) FindDrafts(ctx context.Context, shopID, holdID int64) (found []waitlist.Draft, err error) {
	err = c.around("FindDrafts", func() error { found, err = c.Client.FindDrafts(ctx, shopID, holdID); return err })
	return found, err
}

func (c *calls) ReadDraft(ctx context.Context, shopID, id int64) (d waitlist.Draft, ok bool, err error) {
	err = c.around("ReadDraft", func() error { d, ok, err = c.Client.ReadDraft(ctx, shopID, id); return err })
	return d, ok, err
}

func (c *calls) ReadBack(ctx context.Context, shopID, id, variant int64, locations []int64) (d waitlist.Draft, ok bool, sellable int, err error) {
	err = c.around("ReadBack", func() error {
		d, ok, sellable, err = c.Client.ReadBack(ctx, shopID, id, variant, locations)
		return err
	})
	return d, ok, sellable, err
}

func (c *calls) DeleteDraft(ctx context.Context, shopID, id int64) error {
	return c.around("DeleteDraft", func() error { return c.Client.DeleteDraft(ctx, shopID, id) })
}

// act is one thing that may happen. It is done when it can be (a draft is only paid when there is one), and
// returns false when it could not be.
type act struct {
	name  string
	slots int // of 63: its share of the draws
	do    func(*history, *rapid.T) bool
}

var acts = []act{
	{"tap", 4, (*history).tap},
	{"restock", 4, (*history).restock},
	{"stranger buys", 5, (*history).stranger},
	{"press", 4, (*history).press},
	{"pass", 4, (*history).passOn},
	{"pay", 4, (*history).paysFor},
	{"leave or STOP", 4, (*history).leaves},
	{"time passes", 4, (*history).timePasses},
	{"settings", 3, (*history).changes},
	{"merchant and draft", 4, (*history).merchant},
	{"webhook fault", 4, (*history).webhooks},
	{"API fault", 4, (*history).fault},
	{"crash", 4, (*history).crash},
	{"work", 4, (*history).works},
	{"interleaving", 7, (*history).interleaves},
}

// slots are the acts as they are drawn: what is seldom possible more often.
var slots = func() (all []act) {
	for _, a := range acts {
		for range a.slots {
			all = append(all, a)
		}
	}
	return all
}()

// bits draws one of 2^n numbers, each as often as the others: rapid's own draws prefer small ones. What is
// found shrinks to 0.
func bits(n int) *rapid.Generator[int] {
	return rapid.Custom(func(t *rapid.T) int {
		x := 0
		for range n {
			x *= 2
			if rapid.Bool().Draw(t, "bit") {
				x++
			}
		}
		return x
	})
}

// slot is the number of a slot, or 0, which is nothing.
var slot = bits(6)

// TestAnyHistoryKeepsThePromises drives random histories of taps, stock, strangers, presses, payments,
// webhooks that are lost, late or doubled, answers that are lost, a late index, a merchant who does things to
// our drafts, clock jumps, two transactions that meet at a lock, and processes that die between two steps, and
// looks at the promises after every one. At the end all faults are lifted: then the books must agree with
// Shopify's, no draft may be left over, and nobody may wait for what is there.
//
// A step of a history is an act that could be done; there are at least 40, and no act is rarer than one step
// in twenty (in the few histories of every test run, not much): the test counts them. A failure shrinks to steps that do nothing but those it needs.
func TestAnyHistoryKeepsThePromises(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sim := shopifysim.NewTest(t)
	counts, least, told := map[string]int{}, 1000, 0
	rapid.Check(t, func(rt *rapid.T) {
		h := begin(w, sim, rt)
		done := 0
		for draws := 0; draws < 400 && done < enoughSteps; draws++ {
			n := slot.Draw(rt, "act")
			if n == 0 {
				continue
			}
			h.check()
			h.pass(5 * time.Second) // what is throttled is not for ever
			if a := slots[n-1]; a.do(h, rt) {
				counts[a.name]++
				done++
			}
		}
		h.check()
		h.end()
		least, told = min(least, done), told+1
	})
	steps := 0
	for _, n := range counts {
		steps += n
	}
	for _, a := range acts {
		share := float64(counts[a.name]) / float64(steps)
		t.Logf("%-20s %6d  %4.1f %%", a.name, counts[a.name], 100*share)
		if share < rarest {
			t.Errorf("%s is rarer than %v of the steps", a.name, rarest)
		}
	}
	if t.Logf("%d histories of at least %d steps", told, least); least < enoughSteps {
		t.Errorf("a history has %d steps", least)
	}
}

// begin empties the database and starts over.
func begin(w *world, sim *shopifysim.Test, rt *rapid.T) *history {
	h := &history{world: w, rt: rt, sim: sim, names: people(8), stopped: map[string]bool{}, sent: map[int64]int{}, touched: map[int64]bool{}, hooks: map[shopifysim.ID]bool{}}
	ctx := w.t.Context()
	tables := w.text(`SELECT string_agg(quote_ident(relname), ', ') FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
		AND (relname = 'river_job' OR relname NOT LIKE 'river_%') AND relname NOT IN ('goose_db_version', 'shops', 'settings')`)
	_, err := w.db.Exec(ctx, `TRUNCATE `+tables)
	w.must(err)
	_, err = w.db.Exec(ctx, `UPDATE shops SET trouble = NULL, reconcile_at = '-infinity', reconciled_at = NULL, reconciling_since = NULL, reconcile_cursor = ''`)
	w.must(err)
	_, err = shop.NewStore(w.db, w.keys).Install(ctx, chairs, "Chairs", "EUR", "GB", "en", sim.Token(chairs))
	w.must(err)
	w.must(sim.Reset())
	w.must(sim.Faults.Delete(""))
	w.must(sim.SetPlan(chairs, shopifysim.Plus))
	w.points = map[string]func() error{}
	w.outbox = &outbox{answer: h.arrives}
	h.start()
	reserves := rapid.Bool().Draw(rt, "reserve before telling")
	w.settings(func(s *shop.Settings) { s.NoticesPerUnit, s.Threshold, s.ReserveBeforeTelling = 1, 1, reserves })
	// Most stories begin with a queue, and stock that has just returned.
	for _, name := range h.names[:bits(3).Draw(rt, "queue")] {
		h.taps(name)
	}
	h.stockIs(bits(2).Draw(rt, "stock"))
	h.deliver()
	h.workAll()
	return h
}

// start starts a process with nothing in its memory, over the same database.
func (h *history) start() {
	client, err := shopify.New(shopify.Config{ClientID: "app", ClientSecret: shopifysim.TestSecret, Sim: h.sim.URL}, shop.NewStore(h.db, h.keys), h.sim.Clock.Now, slog.New(slog.DiscardHandler))
	h.must(err)
	h.calls = &calls{Client: client, then: map[string]func(){}}
	h.list = h.process()
}

// process is a process over the same client of Shopify.
func (h *history) process() *waitlist.Service {
	inserter, err := jobs.Inserter(h.db)
	h.must(err)
	point := func(_ context.Context, name, when string) error {
		h.mu.Lock()
		f := h.points[name+" "+when]
		h.mu.Unlock()
		if f != nil {
			return f()
		}
		return nil
	}
	return waitlist.New(h.db, inserter, h.keys, h.calls, h.outbox, h.sim.Clock.Now, point, slog.New(slog.NewTextHandler(io.Discard, nil)))
}

func (h *history) did(format string, args ...any) {
	h.steps = append(h.steps, fmt.Sprintf(format, args...))
}

func (h *history) fail(format string, args ...any) {
	h.rt.Helper()
	h.rt.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(h.steps, "\n"))
}

func (h *history) must(err error) {
	h.rt.Helper()
	if err != nil {
		h.fail("%v", err)
	}
}

// fine passes what a fault may answer; anything else ends the history. A process that died is started again.
func (h *history) fine(err error) {
	var throttled *waitlist.Throttled
	var away *waitlist.Away
	var wait *waitlist.Wait
	switch {
	case err == nil || errors.As(err, &wait) || errors.Is(err, waitlist.ErrLater) || errors.As(err, &throttled) || errors.As(err, &away):
	case errors.Is(err, errCut):
		h.did("  it died, and is started again")
		h.start()
	case !h.planted:
		h.fail("%v", err)
	}
}

// arrives looks at a message that its provider accepts.
func (h *history) arrives(m waitlist.Outgoing) error {
	if h.stopped[m.To] {
		h.fail("%s was messaged after STOP", m.To)
	}
	// Twice only when the first was lost from sight, which is known before the second is sent.
	if h.sent[m.MessageID]++; h.sent[m.MessageID] > 1+int(h.one(`SELECT least(doubts, 1) FROM messages WHERE id = $1`, m.MessageID)) {
		h.fail("%s was told %d times by message %d", m.To, h.sent[m.MessageID], m.MessageID)
	}
	draft := h.one(`SELECT coalesce((SELECT h.draft_id FROM messages m JOIN offers o ON o.id = m.offer_id AND o.reserved JOIN holds h ON h.offer_id = o.id WHERE m.id = $1), -1)`, m.MessageID)
	if d, ok := h.drafts()[draft]; draft != -1 && !h.touched[draft] && (!ok || (d.Reserved == 0 && d.Status != "COMPLETED")) {
		h.fail("%s is told about a unit that is not held", m.To)
	}
	h.did("  %s is told", m.To)
	return nil
}

// drafts are the drafts that Shopify has, by their ids.
func (h *history) drafts() map[int64]shopifysim.Draft {
	all, err := h.sim.Drafts(chairs)
	h.must(err)
	byID := map[int64]shopifysim.Draft{}
	for _, d := range all {
		byID[int64(d.ID)] = d
	}
	return byID
}

// open are the ids of the drafts that are neither paid nor deleted, oldest first.
func (h *history) open() []int64 {
	var ids []int64
	for id, d := range h.drafts() {
		if d.Status == "OPEN" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (h *history) stock() int {
	v, err := h.sim.Inventory(chairs, oak)
	h.must(err)
	return v.Sellable
}

// stockIs has the merchant type in a stock.
func (h *history) stockIs(n int) {
	h.did("stock is set to %d", n)
	h.must(h.sim.SetStock(chairs, shopifysim.Change{VariantID: oak, Available: n}))
}

func (h *history) someone(rt *rapid.T) string { return h.names[bits(3).Draw(rt, "who")] }

func (h *history) tap(rt *rapid.T) bool {
	h.taps(h.someone(rt))
	return true
}

func (h *history) taps(name string) {
	h.did("%s taps", name)
	t := tap(name)
	t.VariantID = fmt.Sprint(oak)
	_, err := h.list.Join(h.t.Context(), h.shop, t)
	h.fine(err)
}

// restock has the merchant add units, or find that there are fewer.
func (h *history) restock(rt *rapid.T) bool {
	n := rapid.SampledFrom([]int{1, 2, 3, -1}).Draw(rt, "units") + h.stock()
	if n < 0 {
		return false
	}
	h.stockIs(n)
	return true
}

func (h *history) stranger(*rapid.T) bool {
	if h.stock() < 1 {
		return false
	}
	h.buys()
	return true
}

func (h *history) buys() {
	h.did("  a stranger buys")
	_, err := h.sim.Buy(chairs, oak, 1, "")
	h.must(err)
}

// links are the reserve tokens of offers that somebody might press now, the newest first.
func (h *history) links(states string) []string {
	rows, _ := h.db.Query(h.t.Context(), `SELECT id FROM offers WHERE state = ANY ($1) ORDER BY id DESC LIMIT 10`, strings.Fields(states))
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	h.must(err)
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = h.keys.Token(shop.Reserve, id)
	}
	return all
}

func (h *history) press(rt *rapid.T) bool {
	links := h.links("open claimed missed")
	if len(links) == 0 {
		return false
	}
	i := rapid.IntRange(0, len(links)-1).Draw(rt, "link")
	h.did("press of link %d", i)
	_, err := h.list.Claim(h.t.Context(), links[i])
	h.fine(err)
	return true
}

func (h *history) passOn(rt *rapid.T) bool {
	links := h.links("open claimed")
	if len(links) == 0 {
		return false
	}
	i := rapid.IntRange(0, len(links)-1).Draw(rt, "link")
	h.did("pass of link %d", i)
	_, err := h.list.Pass(h.t.Context(), links[i])
	h.fine(err)
	return true
}

// leaves has somebody leave the queue, or say STOP: three may, lest nobody be left.
func (h *history) leaves(rt *rapid.T) bool {
	name := h.someone(rt)
	if rapid.Bool().Draw(rt, "STOP") && len(h.stopped) < 3 {
		h.did("%s says STOP", name)
		h.fine(h.list.Suppress(h.t.Context(), h.shop, waitlist.Email, name+"@example.com", waitlist.Stop))
		h.stopped[name+"@example.com"] = true
		return true
	}
	rows, _ := h.db.Query(h.t.Context(), `SELECT split_part(c.key, '@', 1) FROM entries e JOIN contacts c ON c.id = e.contact_id WHERE e.ended_at IS NULL ORDER BY c.key`)
	live, err := pgx.CollectRows(rows, pgx.RowTo[string])
	h.must(err)
	if len(live) == 0 {
		return false
	}
	name = rapid.SampledFrom(live).Draw(rt, "leaver")
	h.did("%s leaves", name)
	h.fine(h.list.Leave(h.t.Context(), h.keys.Token(shop.Place, h.entry(name))))
	return true
}

// payable are the drafts whose link is out, the newest first.
func (h *history) payable() []shopifysim.Draft {
	rows, _ := h.db.Query(h.t.Context(), `SELECT draft_id FROM holds WHERE activated_at IS NOT NULL ORDER BY id DESC LIMIT 5`)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	h.must(err)
	drafts := h.drafts()
	var out []shopifysim.Draft
	for _, id := range ids {
		if d, ok := drafts[id]; ok && d.Status == "OPEN" {
			out = append(out, d)
		}
	}
	return out
}

// comesTo has the story go its ordinary way, lest it come to rest: somebody waits, a unit is there and
// "offered"; whoever was told presses, and a hold is "securing"; it is "active"; it is passed on and "releasing".
func (h *history) comesTo(state string) {
	h.did("somebody comes to be %s", state)
	observed := func(stock int) {
		if h.stock() != stock {
			h.stockIs(stock)
		}
		h.deliver()
		h.workAll("webhook", "observe")
	}
	if h.one(`SELECT count(*) FROM entries e WHERE state = 'waiting' AND NOT EXISTS (
		SELECT FROM offers o JOIN restocks r ON r.id = o.restock_id AND r.state = 'open' WHERE o.entry_id = e.id AND o.state NOT IN ('missed', 'withdrawn'))`) == 0 {
		observed(0) // whoever waits was told of what is there
		for _, name := range h.names {
			if !h.stopped[name+"@example.com"] && h.one(`SELECT count(*) FROM entries e JOIN contacts c ON c.id = e.contact_id WHERE c.key = $1 AND e.ended_at IS NULL`, name+"@example.com") == 0 {
				h.taps(name)
				break
			}
		}
	}
	observed(max(2, h.stock())) // the highest threshold
	if state == "offered" {
		return
	}
	if links := h.links("open"); len(links) > 0 {
		_, err := h.list.Claim(h.t.Context(), links[len(links)-1]) // of a reserved offer: as somebody who reloads the page too early
		h.fine(err)
	}
	if state == "securing" {
		return
	}
	h.workAll()
	if links := h.links("open claimed"); state == "releasing" && len(links) > 0 {
		_, err := h.list.Pass(h.t.Context(), links[0])
		h.fine(err)
	}
}

func (h *history) paysFor(rt *rapid.T) bool {
	if len(h.payable()) == 0 {
		h.comesTo("active")
	}
	out := h.payable()
	if len(out) == 0 {
		return false
	}
	return h.pays(rapid.SampledFrom(out).Draw(rt, "draft"))
}

// pays pays a draft, if it can be: its goods may be out of stock.
func (h *history) pays(d shopifysim.Draft) bool {
	_, err := h.sim.Pay(d.InvoiceURL)
	var refused *shopifysim.Error
	if err != nil && !errors.As(err, &refused) {
		h.must(err)
	}
	if err == nil {
		h.did("  draft %s is paid", d.Name)
	}
	return err == nil
}

func (h *history) timePasses(rt *rapid.T) bool {
	d := time.Duration(rapid.SampledFrom([]int{1, 2, 5, 16, 40}).Draw(rt, "minutes")) * time.Minute
	h.did("%v pass", d)
	h.pass(d)
	if rapid.Bool().Draw(rt, "sweep") {
		h.did("sweep")
		h.fine(h.list.Sweep(h.t.Context()))
	}
	return true
}

func (h *history) pass(d time.Duration) {
	h.sim.Clock.Push(d)
	h.sim.Tick()
}

func (h *history) changes(rt *rapid.T) bool {
	n, threshold := rapid.IntRange(1, 3).Draw(rt, "per unit"), rapid.IntRange(1, 2).Draw(rt, "threshold")
	reserves := rapid.Bool().Draw(rt, "reserve before telling")
	h.did("settings: %d per unit, threshold %d, reserve before telling %v", n, threshold, reserves)
	h.settings(func(s *shop.Settings) { s.NoticesPerUnit, s.Threshold, s.ReserveBeforeTelling = n, threshold, reserves })
	return true
}

// merchant deletes, edits or completes one of our drafts in the admin.
func (h *history) merchant(rt *rapid.T) bool {
	if len(h.open()) == 0 {
		h.comesTo("active")
	}
	open := h.open()
	if len(open) == 0 {
		return false
	}
	id := rapid.SampledFrom(open).Draw(rt, "draft")
	what := rapid.SampledFrom([]string{"deletes", "completes", "saves", "doubles"}).Draw(rt, "act")
	h.did("the merchant %s draft %d", what, id)
	h.touched[id] = true
	h.edits++
	var err error
	switch what {
	case "deletes":
		err = h.sim.DeleteDraft(id)
	case "completes":
		_, err = h.sim.CompleteDraft(id)
	case "saves":
		err = h.sim.EditDraft(id, 0)
	case "doubles":
		err = h.sim.EditDraft(id, 2)
	}
	h.must(err)
	return true
}

// undelivered are the webhooks that the app has not got and that were not lost, oldest first.
func (h *history) undelivered() []shopifysim.Delivery {
	return slices.DeleteFunc(h.sim.Webhooks(chairs), func(d shopifysim.Delivery) bool { return h.hooks[d.ID] })
}

func (h *history) receive(d shopifysim.Delivery) {
	h.hooks[d.ID] = true
	_, err := h.list.Receive(h.t.Context(), h.shop, waitlist.Webhook{Topic: d.Topic, WebhookID: d.WebhookID, Triggered: d.TriggeredAt, Body: d.Body})
	h.fine(err)
}

func (h *history) deliver() {
	for _, d := range h.undelivered() {
		h.receive(d)
	}
}

// webhooks loses one, delivers one before those before it, or one that was delivered again.
func (h *history) webhooks(rt *rapid.T) bool {
	what := rapid.SampledFrom([]string{"lost", "out of turn", "again"}).Draw(rt, "fault")
	all := h.undelivered()
	if what == "again" {
		all = slices.DeleteFunc(h.sim.Webhooks(chairs), func(d shopifysim.Delivery) bool { return !h.hooks[d.ID] })
	}
	if len(all) == 0 {
		return false
	}
	d := rapid.SampledFrom(all).Draw(rt, "webhook")
	h.did("webhook %s: %s", what, d.Topic)
	if what == "lost" {
		h.hooks[d.ID] = true
	} else {
		h.receive(d)
	}
	return true
}

// fault has Shopify answer wrongly, the next time it is asked for something.
func (h *history) fault(rt *rapid.T) bool {
	f := simkit.Fault{Target: "shopify", Count: 1,
		Op: rapid.SampledFrom([]string{"nodes", "draftOrderCreate", "draftOrder", "draftOrderDelete", "draftOrders"}).Draw(rt, "op")}
	switch rapid.IntRange(0, 4).Draw(rt, "fault") {
	case 0:
		f.Mode = "drop_after_commit"
	case 1:
		f.Mode, f.Code = "status", 503
	case 2:
		f.Mode = "throttle"
	case 3:
		f.Mode = "html_502"
	case 4:
		f.Op, f.Mode, f.MS, f.Count = "draftOrders", "index_lag", int(12*time.Minute/time.Millisecond), 3
	}
	h.did("fault: %s of %s", f.Mode, f.Op)
	h.sim.Faults.Add(f)
	h.planted = true
	return true
}

// crash lets the process die at a point, the next time it comes by, or now.
func (h *history) crash(rt *rapid.T) bool {
	point := rapid.SampledFrom([]string{"", "claim_commit", "draft_create", "draft_delete", "send", "release_commit", "webhook_commit"}).Draw(rt, "point")
	if point == "" {
		h.did("another process takes over")
		h.start()
		return true
	}
	point += " " + rapid.SampledFrom([]string{"before", "after"}).Draw(rt, "when")
	h.did("it will die %s", point)
	h.once(point)
	return true
}

// works delivers what is to be delivered, if it is its turn, and works one job or all; or our drafts are
// compared.
func (h *history) works(rt *rapid.T) bool {
	if rapid.Bool().Draw(rt, "webhooks") {
		h.did("webhooks are delivered")
		h.deliver()
	}
	switch rapid.SampledFrom([]string{"all", "one", "reconcile"}).Draw(rt, "work") {
	case "all":
		h.workAll()
	case "one":
		if queued := h.queued(); len(queued) > 0 {
			h.workJob(rapid.SampledFrom(queued).Draw(rt, "job"))
		}
	case "reconcile":
		h.did("reconcile")
		h.fine(h.list.Reconcile(h.t.Context(), h.shop))
	}
	return true
}

func (h *history) queued(kinds ...string) []int64 {
	rows, _ := h.db.Query(h.t.Context(), `SELECT id FROM river_job WHERE state = 'available' AND (cardinality($1::text[]) = 0 OR kind = ANY ($1)) ORDER BY id`, append([]string{}, kinds...))
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	h.must(err)
	return ids
}

func (h *history) workJob(id int64) bool {
	var kind string
	var args []byte
	h.must(h.db.QueryRow(h.t.Context(), `SELECT kind, args FROM river_job WHERE id = $1`, id).Scan(&kind, &args))
	h.did("work %s %s", kind, args)
	h.must(h.list.SecurersGone(h.t.Context(), h.shop)) // a pause between two tries is not what is looked at
	var err error
	if kind == "observe" {
		err = h.observe()
	} else {
		err = h.work(h.list, kind, args)
	}
	if err == nil || errors.Is(err, waitlist.ErrNotFound) {
		_, err = h.db.Exec(h.t.Context(), `DELETE FROM river_job WHERE id = $1`, id)
		h.must(err)
		return true
	}
	h.fine(err)
	return false
}

// workAll works what is queued, of these kinds or of all, until nothing is left or nothing gets on.
func (h *history) workAll(kinds ...string) {
	for range 30 {
		progress := false
		for _, id := range h.queued(kinds...) {
			progress = h.workJob(id) || progress
		}
		if !progress {
			return
		}
	}
	h.steps = h.steps[max(0, len(h.steps)-60):]
	h.fail("the jobs do not come to rest")
}

// observe runs an observe and looks at what it did. It is in a process of its own: run from within a read of
// stock, it would otherwise wait for that read.
func (h *history) observe() error {
	look := h.watch()
	err := h.process().Observe(h.t.Context(), h.shop, oak)
	look()
	return err
}

// watch is called before an observe, and what it returns after it: the observe may have grown the counter by
// what was really new at the moment when Shopify was read, and shrunk it by what was really missing then.
func (h *history) watch() (look func()) {
	const grew, shrank = `SELECT coalesce(sum(by), 0) FROM restock_changes WHERE kind <> 'shrink'`, `SELECT coalesce(sum(by), 0) FROM restock_changes WHERE kind = 'shrink'`
	grown, shrunk := h.one(grew), h.one(shrank)
	var fresh, lacking int64
	calls := h.calls
	calls.reads = func(sellable int64) {
		known := h.one(`
			SELECT coalesce((SELECT available FROM restocks WHERE state <> 'closed'), 0)
			     + (SELECT count(*) FROM holds WHERE state IN ('securing', 'releasing') OR (state = 'active' AND expires_at <= $1))`, h.sim.Clock.Now())
		available := h.one(`SELECT coalesce((SELECT available FROM restocks WHERE state <> 'closed'), 0)`)
		fresh += max(0, sellable-known)
		lacking += max(0, available-sellable)
	}
	return func() {
		calls.reads = nil
		if n := h.one(grew) - grown; n > fresh {
			h.fail("the counter grew by %d, and %d were new", n, fresh)
		}
		if n := h.one(shrank) - shrunk; n > lacking {
			h.fail("the counter shrank by %d, and %d were missing", n, lacking)
		}
		h.told()
	}
}

// told looks at offers that have just been made: never more than there is, and in order (promises 2, 3).
func (h *history) told() {
	newest := h.one(`SELECT coalesce(max(id), 0) FROM offers`)
	if newest == h.offers {
		return
	}
	if over := h.one(`SELECT count(*) FROM restocks r, settings t WHERE r.state = 'open' AND (SELECT count(*) FROM offers o WHERE o.restock_id = r.id AND o.state = 'open' AND NOT o.reserved) > r.available * t.notices_per_unit`); over > 0 {
		h.fail("more offers than units")
	}
	if passed := h.one(`
		SELECT count(*) FROM offers o JOIN entries e ON e.id = o.entry_id JOIN entries f ON f.variant_id = e.variant_id AND f.state = 'waiting' AND (f.joined_at, f.id) < (e.joined_at, e.id)
		WHERE o.id > $1 AND o.state = 'open' AND f.expires_at > $2 AND NOT EXISTS (SELECT FROM offers p WHERE p.entry_id = f.id AND p.restock_id = o.restock_id AND p.state NOT IN ('missed', 'withdrawn'))`, h.offers, h.sim.Clock.Now()); passed > 0 {
		h.fail("somebody who joined first was passed over")
	}
	h.offers = newest
}

// interleaves puts steps of one thing between the steps of another, or has two meet at a lock.
func (h *history) interleaves(rt *rapid.T) bool {
	ctx := h.t.Context()
	switch rapid.SampledFrom([]string{"observe", "secure", "release", "lock", "one lock"}).Draw(rt, "what") {
	case "observe":
		if rapid.Bool().Draw(rt, "first") {
			h.comesTo(rapid.SampledFrom([]string{"offered", "securing", "active", "releasing"}).Draw(rt, "state"))
		}
		h.during(rt, "ReadVariants")
		h.fine(h.observe())
	case "secure":
		if len(h.holds("securing")) == 0 {
			h.comesTo("securing")
		}
		h.during(rt, rapid.SampledFrom([]string{"CreateDraft", "ReadBack", "FindDrafts"}).Draw(rt, "op"))
		for _, id := range h.holds("securing") {
			h.fine(h.list.Secure(ctx, h.shop, id))
			break
		}
	case "release":
		if len(h.holds("releasing")) == 0 {
			h.comesTo("releasing")
		}
		h.during(rt, rapid.SampledFrom([]string{"ReadDraft", "DeleteDraft", "FindDrafts"}).Draw(rt, "op"))
		for _, id := range h.holds("releasing") {
			h.fine(h.list.Release(ctx, h.shop, id))
			break
		}
	default:
		if rapid.Bool().Draw(rt, "first") {
			h.comesTo(rapid.SampledFrom([]string{"offered", "releasing"}).Draw(rt, "state"))
		}
		return h.meet(rt)
	}
	return true
}

// during has one to three things happen before the next call of op, or when it was answered and its caller
// has not seen the answer yet.
func (h *history) during(rt *rapid.T, op string) {
	clear(h.calls.then)
	when := rapid.SampledFrom([]string{"after", "before"}).Draw(rt, "when")
	what := rapid.SliceOfN(rapid.SampledFrom([]string{"secure", "buy", "press", "release", "return", "pay", "pass", "overdue", "webhooks"}), 1, 3).Draw(rt, "what")
	h.did("%s the next %s: %v", when, op, what)
	h.calls.then[when+" "+op] = func() {
		for _, w := range what {
			h.happens(w)
		}
	}
}

// holds are the holds in a state, oldest first.
func (h *history) holds(state string) []int64 {
	rows, _ := h.db.Query(h.t.Context(), `SELECT id FROM holds WHERE state = $1 ORDER BY id`, state)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	h.must(err)
	return ids
}

func (h *history) happens(what string) {
	ctx := h.t.Context()
	switch what {
	case "buy":
		if h.stock() > 0 {
			h.buys()
		}
	case "return":
		h.stockIs(h.stock() + 1)
	case "press":
		if links := h.links("open"); len(links) > 0 {
			_, err := h.list.Claim(ctx, links[len(links)-1])
			h.fine(err)
		}
		h.happens("secure")
	case "pass":
		if links := h.links("claimed"); len(links) > 0 {
			_, err := h.list.Pass(ctx, links[0])
			h.fine(err)
		}
	case "secure":
		for _, id := range h.holds("securing") {
			h.fine(h.list.Secure(ctx, h.shop, id))
		}
	case "release":
		for _, id := range h.holds("releasing") {
			h.fine(h.list.Release(ctx, h.shop, id))
		}
	case "pay": // its webhooks come late
		for _, d := range h.payable() {
			if h.pays(d) {
				return
			}
		}
	case "overdue":
		h.pass(16 * time.Minute)
		h.fine(h.list.Sweep(ctx))
	case "webhooks":
		h.deliver()
	}
}

// meet has two things wait for the lock of the open restock, one after the other, and go on together.
func (h *history) meet(rt *rapid.T) bool {
	ctx := h.t.Context()
	tx, err := h.db.Begin(ctx)
	h.must(err)
	defer tx.Rollback(ctx)
	clear(h.calls.then)
	var restock int64
	if err := tx.QueryRow(ctx, `SELECT id FROM restocks WHERE state = 'open' FOR UPDATE`).Scan(&restock); errors.Is(err, pgx.ErrNoRows) {
		return false
	} else if err != nil {
		h.must(err)
	}
	type act struct {
		name string
		do   func(*waitlist.Service) error
	}
	observe := act{"observe", func(list *waitlist.Service) error { return list.Observe(ctx, h.shop, oak) }}
	sweep := act{"sweep", func(list *waitlist.Service) error { return list.Sweep(ctx) }}
	var can []act
	for i, token := range h.links("open") {
		can = append(can, act{fmt.Sprintf("press of link %d", i), func(list *waitlist.Service) error { _, err := list.Claim(ctx, token); return err }})
	}
	for _, id := range h.holds("releasing") {
		can = append(can, act{fmt.Sprintf("release of hold %d", id), func(list *waitlist.Service) error { return list.Release(ctx, h.shop, id) }})
	}
	for i, token := range h.links("open claimed") {
		can = append(can, act{fmt.Sprintf("pass of link %d", i), func(list *waitlist.Service) error { _, err := list.Pass(ctx, token); return err }})
	}
	// Two observes not: what one of them does could not be told from what the other does.
	can = append(can, sweep)
	first, second := rapid.SampledFrom(can).Draw(rt, "first"), observe
	switch rapid.SampledFrom([]string{"an observe", "the same", "any"}).Draw(rt, "second") {
	case "the same":
		second = first
	case "any":
		second = rapid.SampledFrom(can).Draw(rt, "act")
	}
	h.did("at one lock: %s, then %s", first.name, second.name)
	look := func() {}
	if second.name == observe.name {
		look = h.watch()
	}
	ended := make(chan error, 2)
	for n, a := range []act{first, second} {
		list := h.process() // two of one process would wait for each other
		go func() { ended <- a.do(list) }()
		h.waits(int64(n+1), ended)
	}
	h.must(tx.Rollback(ctx))
	errs := []error{<-ended, <-ended}
	look()
	for _, err := range errs {
		h.fine(err)
	}
	return true
}

// waits returns when so many wait for a lock, or have ended.
func (h *history) waits(n int64, ended chan error) {
	deadline := time.After(20 * time.Second)
	for h.one(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)+int64(len(ended)) < n {
		select {
		case <-deadline:
			h.fail("nobody waits for the lock")
		default:
		}
	}
}

// check looks at what holds in every committed state.
func (h *history) check() {
	if err := h.books(); err != nil {
		h.fail("%v", err)
	}
	for what, sql := range map[string]string{
		"holds were activated when their time was over":          `SELECT count(*) FROM holds WHERE activated_at >= expires_at`,
		"people whose hold was refused count as told":            `SELECT count(*) FROM holds h JOIN offers o ON o.id = h.offer_id WHERE h.state = 'refused' AND o.state = 'claimed'`,
		"people who may have been told count as never told":      `SELECT count(*) FROM offers o JOIN messages m ON m.offer_id = o.id WHERE o.reserved AND o.state = 'missed' AND m.attempts > 0`,
		"people were told twice in a restock":                    `SELECT count(*) FROM (SELECT FROM offers WHERE state NOT IN ('missed', 'withdrawn') GROUP BY restock_id, entry_id HAVING count(*) > 1) o`,
		"contacts have two live entries":                         `SELECT count(*) FROM (SELECT FROM entries WHERE ended_at IS NULL GROUP BY variant_id, contact_id HAVING count(*) > 1) e`,
		"restocks of one variant are not closed, beside another": `SELECT count(*) FROM (SELECT FROM restocks WHERE state <> 'closed' GROUP BY variant_id HAVING count(*) > 1) r`,
	} {
		if n := h.one(sql); n > 0 {
			h.fail("%d %s", n, what)
		}
	}
	drafts := h.drafts()
	h.checkUnits(drafts)
	rows, _ := h.db.Query(h.t.Context(), `SELECT draft_id, state IN ('expired', 'released', 'refused') FROM holds WHERE draft_id IS NOT NULL AND (state IN ('expired', 'released', 'refused') OR (state = 'active' AND expires_at > $1))`, h.sim.Clock.Now())
	var id int64
	var ended bool
	_, err := pgx.ForEachRow(rows, []any{&id, &ended}, func() error {
		d, there := drafts[id]
		switch {
		case ended && there && d.Status == "OPEN":
			h.fail("the unit of draft %d was returned, and its link is still payable", id)
		case !ended && !h.touched[id] && (!there || (d.Reserved == 0 && d.Status == "OPEN")):
			h.fail("the active hold of draft %d has no reserved unit", id)
		}
		return nil
	})
	h.must(err)
}

// checkUnits looks whether the units that are held are there: Shopify may be short only of what drafts reserve
// whose hold is not active, or no more.
func (h *history) checkUnits(drafts map[int64]shopifysim.Draft) {
	stock := h.stock() + h.edits
	if stock >= 0 {
		return
	}
	rows, _ := h.db.Query(h.t.Context(), `SELECT draft_id FROM holds WHERE state = 'active'`)
	active, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	h.must(err)
	for id, d := range drafts {
		if h.touched[id] || !slices.Contains(active, id) {
			stock += d.Reserved
		}
	}
	if stock < 0 {
		h.fail("%d units are held that are not there", -stock)
	}
}

// end lifts every fault and lets time run, until all that was begun must have its end.
func (h *history) end() {
	h.must(h.sim.Faults.Delete(""))
	h.planted = false
	h.mu.Lock()
	clear(h.points)
	h.mu.Unlock()
	h.start()
	h.did("the end")
	for range 24 {
		h.pass(31 * time.Minute)
		h.must(h.list.Sweep(h.t.Context()))
		h.workAll()
		h.check()
	}
	if n := len(h.open()); n > 0 {
		h.fail("%d drafts are left over", n)
	}
	for what, sql := range map[string]string{
		"holds have no end":     `SELECT count(*) FROM holds WHERE state IN ('securing', 'active', 'releasing')`,
		"offers have no end":    `SELECT count(*) FROM offers WHERE state = 'open'`,
		"webhooks are not done": `SELECT count(*) FROM webhooks WHERE done_at IS NULL`,
		"messages are not done": `SELECT count(*) FROM messages WHERE state IN ('pending', 'sending')`,
		"jobs are left":         `SELECT count(*) FROM river_job WHERE kind <> 'reconcile'`,
	} {
		if n := h.one(sql); n > 0 {
			h.fail("%d %s", n, what)
		}
	}
	stock := int64(h.stock())
	if available := h.one(`SELECT coalesce(sum(available), 0) FROM restocks WHERE state <> 'closed'`); h.one(`SELECT count(*) FROM restocks WHERE state <> 'closed'`) > 0 && available != stock {
		h.fail("%d are available, Shopify has %d", available, stock)
	}
	starved := h.one(`
		SELECT count(*) FROM entries e WHERE e.state = 'waiting' AND (
			EXISTS (SELECT FROM restocks r WHERE r.state = 'open' AND r.available > 0
			        AND NOT EXISTS (SELECT FROM offers o WHERE o.entry_id = e.id AND o.restock_id = r.id AND o.state NOT IN ('missed', 'withdrawn')))
			OR (NOT EXISTS (SELECT FROM restocks WHERE state <> 'closed') AND $1 >= (SELECT threshold FROM settings)))`, stock)
	if starved > 0 {
		h.fail("%d wait for what is there", starved)
	}
}
