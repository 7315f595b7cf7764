package waitlist_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

// history is a world to which anything may happen, beside what must stay true whatever does.
type history struct {
	*world
	rt      *rapid.T
	steps   []string
	names   []string
	stopped map[string]bool // suppressed
	sent    map[int64]int   // messages accepted, by id
	deleted map[int64]bool  // drafts that the merchant deleted
	offers  int64           // the newest offer that was looked at
	fresh   int64           // units that were really new when Shopify was read, over the reads of one observe
	lacking int64           // and those that were really missing
	actions map[string]int
}

// TestAnyHistoryKeepsThePromises drives random histories of taps, stock, strangers, presses, payments, lost
// webhooks, lost answers, late indexes, clock jumps and processes that die between two steps, and looks at
// the promises after every one. At the end all faults are lifted: then the books must agree with
// Shopify's, no draft may be left over, and nobody may wait for what is there.
func TestAnyHistoryKeepsThePromises(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	actions := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		h := begin(w, rt, actions)
		rt.Repeat(map[string]func(*rapid.T){
			"": h.check, "tap": h.tap, "tap again": h.tap, "stock returns": h.restock, "a stranger buys": h.stranger,
			"a webhook": h.webhook, "press": h.press, "press too": h.press, "press twice": h.press, "pass": h.passOn, "leave": h.leaves, "stop": h.stops, "pay": h.paysFor, "pay too": h.paysFor,
			"work": h.work1, "work all": h.workAll, "work all of it": h.workAll, "time passes": h.timePasses, "sweep": h.sweeps, "reconcile": h.reconciles,
			"cut": h.cut, "lose an answer": h.loseAnswer, "observe during": h.observeDuring, "secure during": h.secureDuring, "secure during too": h.secureDuring, "release during": h.releaseDuring, "the index lags": h.lag, "the merchant deletes a draft": h.deletesDraft,
			"settings": h.changes,
		})
		h.end()
	})
	t.Logf("actions: %v", actions)
}

// begin empties the database and starts over.
func begin(w *world, rt *rapid.T, actions map[string]int) *history {
	_, err := w.db.Exec(w.t.Context(), `TRUNCATE notes, demand, tap_limits, webhooks, messages, holds, offers, restock_changes, restocks, entries, suppressions, contacts, variants, river_job`)
	w.must(err)
	reading := *w.store.variants[chair]
	reading.Sellable = 0
	w.store = newStore(w.now)
	w.store.variants[chair] = &reading
	w.outbox = &outbox{}
	w.points = map[string]func() error{}
	w.list = w.service()
	reserves := rapid.Bool().Draw(rt, "reserve before telling")
	w.settings(func(s *shop.Settings) { s.NoticesPerUnit, s.Threshold, s.ReserveBeforeTelling = 1, 1, reserves })
	h := &history{world: w, rt: rt, names: people(8), stopped: map[string]bool{}, sent: map[int64]int{}, deleted: map[int64]bool{}, actions: actions}
	w.outbox.answer = func(m waitlist.Outgoing) error {
		if h.stopped[m.To] {
			rt.Fatalf("%s was messaged after STOP", m.To)
		}
		if h.sent[m.MessageID]++; h.sent[m.MessageID] > 1 {
			rt.Fatalf("%s was told twice by message %d", m.To, m.MessageID)
		}
		if draft := h.one(`SELECT coalesce((SELECT h.draft_id FROM messages m JOIN offers o ON o.id = m.offer_id AND o.reserved JOIN holds h ON h.offer_id = o.id WHERE m.id = $1), -1)`, m.MessageID); draft != -1 && !h.deleted[draft] {
			h.store.mu.Lock()
			d := h.store.drafts[draft]
			h.store.mu.Unlock()
			if d == nil || (!d.reserved && !d.Completed) {
				rt.Fatalf("%s is told about a unit that is not held\n%s", m.To, strings.Join(h.steps, "\n"))
			}
		}
		return nil
	}
	// Most stories begin with a queue, and stock that has just returned.
	for _, name := range h.names[:rapid.IntRange(0, 6).Draw(rt, "queue")] {
		h.did("taps: %s", name)
		_, err := h.list.Join(w.t.Context(), h.shop, tap(name))
		w.must(err)
	}
	h.store.set(chair, rapid.IntRange(0, 3).Draw(rt, "stock"))
	h.did("stock is %d", h.store.stock(chair))
	h.workAll(rt)
	return h
}

func (h *history) did(format string, args ...any) {
	h.steps = append(h.steps, fmt.Sprintf(format, args...))
	h.actions[strings.Fields(format)[0]]++
}

func (h *history) someone(rt *rapid.T) string { return rapid.SampledFrom(h.names).Draw(rt, "who") }

// fine passes what a fault may answer; anything else ends the history.
func (h *history) fine(err error) {
	if err != nil && !errors.Is(err, errCut) && !errors.Is(err, errLost) && !errors.Is(err, waitlist.ErrLater) {
		h.rt.Fatalf("%v\n%s", err, strings.Join(h.steps, "\n"))
	}
}

// took is fine for Receive.
func (h *history) took(_ bool, err error) { h.fine(err) }

var errLost = errors.New("the answer was lost")

func (h *history) tap(rt *rapid.T) {
	name := h.someone(rt)
	h.did("taps: %s", name)
	_, err := h.list.Join(h.t.Context(), h.shop, tap(name))
	h.fine(err)
}

func (h *history) restock(rt *rapid.T) {
	n := rapid.IntRange(1, 3).Draw(rt, "units")
	h.did("restock of %d", n)
	h.store.add(chair, n)
	if rapid.Bool().Draw(rt, "webhook") {
		h.webhookArrives()
	}
}

func (h *history) stranger(rt *rapid.T) {
	if h.store.stock(chair) < 1 {
		return
	}
	h.did("stranger buys")
	h.buy(1)
	if rapid.Bool().Draw(rt, "webhook") {
		h.webhookArrives()
	}
}

func (h *history) webhook(*rapid.T) { h.did("webhook"); h.webhookArrives() }

func (h *history) webhookArrives() {
	h.strangs++
	h.took(h.list.Receive(h.t.Context(), h.shop, waitlist.Webhook{Topic: "inventory_levels/update", WebhookID: fmt.Sprintf("w%d", h.strangs), Body: []byte(`{"inventory_item_id":1101,"available":7}`)}))
}

// links are the reserve tokens of offers that somebody might press now.
func (h *history) links(state string) []string {
	rows, _ := h.db.Query(h.t.Context(), `SELECT id FROM offers WHERE state = ANY ($1) ORDER BY id DESC LIMIT 10`, strings.Fields(state))
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	h.must(err)
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = h.keys.Token(shop.Reserve, id)
	}
	return all
}

func (h *history) press(rt *rapid.T) {
	if links := h.links("open claimed missed"); len(links) > 0 {
		link := rapid.SampledFrom(links).Draw(rt, "link")
		h.did("press")
		_, err := h.list.Claim(h.t.Context(), link)
		h.fine(err)
	}
}

func (h *history) passOn(rt *rapid.T) {
	if links := h.links("open claimed"); len(links) > 0 {
		link := rapid.SampledFrom(links).Draw(rt, "link")
		h.did("pass")
		_, err := h.list.Pass(h.t.Context(), link)
		h.fine(err)
	}
}

func (h *history) leaves(rt *rapid.T) {
	name := h.someone(rt)
	if h.one(`SELECT count(*) FROM entries e JOIN contacts c ON c.id = e.contact_id WHERE c.key = $1 AND e.ended_at IS NULL`, name+"@example.com") == 0 {
		return
	}
	h.did("leaves: %s", name)
	h.fine(h.list.Leave(h.t.Context(), h.keys.Token(shop.Place, h.entry(name))))
}

func (h *history) stops(rt *rapid.T) {
	if len(h.stopped) > 2 {
		return
	}
	name := h.someone(rt)
	h.did("stops: %s", name)
	h.fine(h.list.Suppress(h.t.Context(), h.shop, waitlist.Email, name+"@example.com", waitlist.Stop))
	h.stopped[name+"@example.com"] = true
}

// paysFor pays a draft whose link is out, and may bring its webhooks.
func (h *history) paysFor(rt *rapid.T) {
	rows, _ := h.db.Query(h.t.Context(), `SELECT draft_id FROM holds WHERE activated_at IS NOT NULL ORDER BY id DESC LIMIT 5`)
	out, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	h.must(err)
	if len(out) == 0 {
		return
	}
	id := rapid.SampledFrom(out).Draw(rt, "draft")
	order, err := h.store.pay(id)
	if err != nil {
		return // gone, paid or out of stock
	}
	h.did("pays draft %d", id)
	hold := h.one(`SELECT id FROM holds WHERE draft_id = $1`, id)
	h.strangs++
	switch rapid.IntRange(0, 2).Draw(rt, "webhook") {
	case 0:
		h.took(h.list.Receive(h.t.Context(), h.shop, waitlist.Webhook{Topic: "draft_orders/update", WebhookID: fmt.Sprintf("d%d", h.strangs), Body: fmt.Appendf(nil, `{"id":%d,"status":"completed","order_id":%d}`, id, order)}))
	case 1:
		h.took(h.list.Receive(h.t.Context(), h.shop, waitlist.Webhook{Topic: "orders/create", WebhookID: fmt.Sprintf("o%d", h.strangs),
			Body: fmt.Appendf(nil, `{"id":%d,"note_attributes":[{"name":"_holdfast_hold","value":%q}],"line_items":[{"variant_id":%d}]}`, order, h.keys.Token(shop.HoldMark, hold), chair)}))
	}
}

// work1 works one queued job, any of them.
func (h *history) work1(rt *rapid.T) {
	rows, _ := h.db.Query(h.t.Context(), `SELECT id FROM river_job WHERE state = 'available' ORDER BY id`)
	queued, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	h.must(err)
	if len(queued) == 0 {
		return
	}
	h.workJob(rapid.SampledFrom(queued).Draw(rt, "job"))
}

func (h *history) workJob(id int64) bool {
	var kind string
	var args []byte
	h.must(h.db.QueryRow(h.t.Context(), `SELECT kind, args FROM river_job WHERE id = $1`, id).Scan(&kind, &args))
	h.did("work %s %s", kind, args)
	h.must(h.list.SecurersGone(h.t.Context(), h.shop)) // a pause between two tries is not what is looked at
	var err error
	if kind == "observe" {
		h.observing(func() error { err = h.work(h.list, kind, args); return err })
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

func (h *history) workAll(*rapid.T) {
	for range 30 {
		rows, _ := h.db.Query(h.t.Context(), `SELECT id FROM river_job WHERE state = 'available' ORDER BY id`)
		queued, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		h.must(err)
		progress := false
		for _, id := range queued {
			progress = h.workJob(id) || progress
		}
		if !progress {
			return
		}
	}
	h.rt.Fatalf("the jobs do not come to rest\n%s", strings.Join(h.steps[max(0, len(h.steps)-60):], "\n"))
}

// told looks at offers that have just been made: never more than there is, and in order (promises 2, 3).
func (h *history) told() {
	newest := h.one(`SELECT coalesce(max(id), 0) FROM offers`)
	if newest == h.offers {
		return
	}
	if over := h.one(`SELECT count(*) FROM restocks r, settings t WHERE r.state = 'open' AND (SELECT count(*) FROM offers o WHERE o.restock_id = r.id AND o.state = 'open' AND NOT o.reserved) > r.available * t.notices_per_unit`); over > 0 {
		h.rt.Fatalf("more offers than units\n%s", strings.Join(h.steps, "\n"))
	}
	if passed := h.one(`
		SELECT count(*) FROM offers o JOIN entries e ON e.id = o.entry_id JOIN entries f ON f.variant_id = e.variant_id AND f.state = 'waiting' AND (f.joined_at, f.id) < (e.joined_at, e.id)
		WHERE o.id > $1 AND o.state = 'open' AND f.expires_at > $2 AND NOT EXISTS (SELECT FROM offers p WHERE p.entry_id = f.id AND p.restock_id = o.restock_id AND p.state NOT IN ('missed', 'withdrawn'))`, h.offers, h.now()); passed > 0 {
		h.rt.Fatalf("somebody who joined first was passed over\n%s", strings.Join(h.steps, "\n"))
	}
	h.offers = newest
}

func (h *history) timePasses(rt *rapid.T) {
	d := time.Duration(rapid.SampledFrom([]int{1, 5, 10, 16, 40}).Draw(rt, "minutes")) * time.Minute
	h.did("time %v", d)
	h.move(d)
}

func (h *history) sweeps(*rapid.T) {
	h.did("sweep")
	h.fine(h.list.Sweep(h.t.Context()))
}

func (h *history) reconciles(*rapid.T) {
	h.did("reconcile")
	h.fine(h.list.Reconcile(h.t.Context(), h.shop))
}

var points = []string{"claim_commit", "draft_create", "draft_delete", "send", "release_commit", "webhook_commit"}

// cut lets the process die at a point, the next time it comes by.
func (h *history) cut(rt *rapid.T) {
	point := rapid.SampledFrom(points).Draw(rt, "point") + " " + rapid.SampledFrom([]string{"before", "after"}).Draw(rt, "when")
	h.did("cut armed: %s", point)
	h.once(point)
}

var calls = []string{"ReadVariants", "CreateDraft", "ReadBack", "ReadDraft", "DeleteDraft", "FindDrafts"}

// loseAnswer lets a call happen and its answer be lost.
func (h *history) loseAnswer(rt *rapid.T) {
	op := rapid.SampledFrom(calls).Draw(rt, "op")
	h.did("lose armed: %s", op)
	h.store.then(op, func() error { return errLost })
}

// observeDuring lets something happen between the read of an observe and its application.
func (h *history) observeDuring(rt *rapid.T) {
	h.during(rt, "ReadVariants")
	h.observing(func() error { return h.list.Observe(h.t.Context(), h.shop, chair) })
}

// observing runs an observe and looks at what it did: it may grow the counter by what was really new at the
// moment when Shopify was read, and shrink it by what was really missing then.
func (h *history) observing(observe func() error) {
	const grew, shrank = `SELECT coalesce(sum(by), 0) FROM restock_changes WHERE kind <> 'shrink'`, `SELECT coalesce(sum(by), 0) FROM restock_changes WHERE kind = 'shrink'`
	grown, shrunk := h.one(grew), h.one(shrank)
	h.fresh, h.lacking = 0, 0
	h.store.reads = func(stock int64) {
		known := h.one(`
			SELECT coalesce((SELECT available FROM restocks WHERE state <> 'closed'), 0)
			     + (SELECT count(*) FROM holds WHERE state IN ('securing', 'releasing') OR (state = 'active' AND expires_at <= $1))`, h.now())
		available := h.one(`SELECT coalesce((SELECT available FROM restocks WHERE state <> 'closed'), 0)`)
		h.fresh += max(0, stock-known)
		h.lacking += max(0, available-stock)
	}
	err := observe()
	h.store.reads = nil
	if n := h.one(grew) - grown; n > h.fresh {
		h.rt.Fatalf("the counter grew by %d, and %d were new\n%s", n, h.fresh, strings.Join(h.steps, "\n"))
	}
	if n := h.one(shrank) - shrunk; n > h.lacking {
		h.rt.Fatalf("the counter shrank by %d, and %d were missing\n%s", n, h.lacking, strings.Join(h.steps, "\n"))
	}
	h.told()
	h.fine(err)
}

// secureDuring and releaseDuring do the same to a hold that is being secured or released.
func (h *history) secureDuring(rt *rapid.T) {
	if id := h.one(`SELECT coalesce(min(id), 0) FROM holds WHERE state = 'securing'`); id > 0 {
		h.during(rt, rapid.SampledFrom([]string{"CreateDraft", "ReadBack", "FindDrafts"}).Draw(rt, "op"))
		h.fine(h.list.Secure(h.t.Context(), h.shop, id))
	}
}

func (h *history) releaseDuring(rt *rapid.T) {
	if id := h.one(`SELECT coalesce(min(id), 0) FROM holds WHERE state = 'releasing'`); id > 0 {
		h.during(rt, rapid.SampledFrom([]string{"ReadDraft", "DeleteDraft", "FindDrafts"}).Draw(rt, "op"))
		h.fine(h.list.Release(h.t.Context(), h.shop, id))
	}
}

// during has one to three things happen when the next call of op has computed its answer.
func (h *history) during(rt *rapid.T, op string) {
	what := rapid.SliceOfN(rapid.SampledFrom([]string{"buy", "return", "press", "secure", "release", "pay", "pass", "overdue", "lag"}), 1, 3).Draw(rt, "what")
	h.did("during %s: %v", op, what)
	h.store.then(op, func() error {
		for _, w := range what {
			h.happens(w)
		}
		return nil
	})
}

func (h *history) happens(what string) {
	ctx := h.t.Context()
	holds := func(state string) []int64 {
		rows, _ := h.db.Query(ctx, `SELECT id FROM holds WHERE state = $1 ORDER BY id`, state)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		h.must(err)
		return ids
	}
	switch what {
	case "buy":
		if h.store.stock(chair) > 0 {
			h.buy(1)
		}
	case "return":
		h.store.add(chair, 1)
	case "press":
		if links := h.links("open"); len(links) > 0 {
			_, err := h.list.Claim(ctx, links[len(links)-1])
			h.fine(err)
		}
	case "pass":
		if links := h.links("claimed"); len(links) > 0 {
			_, err := h.list.Pass(ctx, links[0])
			h.fine(err)
		}
	case "secure":
		for _, id := range holds("securing") {
			h.fine(h.list.Secure(ctx, h.shop, id))
		}
	case "release":
		for _, id := range holds("releasing") {
			h.fine(h.list.Release(ctx, h.shop, id))
		}
	case "pay": // whose link is out; its webhooks are lost
		for _, id := range append(holds("active"), holds("releasing")...) {
			draft := h.one(`SELECT coalesce(draft_id, 0) FROM holds WHERE id = $1 AND activated_at IS NOT NULL UNION ALL SELECT 0 LIMIT 1`, id)
			if _, err := h.store.pay(draft); err == nil {
				return
			}
		}
	case "overdue":
		h.move(16 * time.Minute)
		h.fine(h.list.Sweep(ctx))
	case "lag":
		h.lag(nil)
	}
}

// lag hides the newest draft from the index.
func (h *history) lag(*rapid.T) {
	if open := h.store.open(); len(open) > 0 {
		h.did("lag")
		h.store.hide[open[len(open)-1].ID] = true
	}
}

func (h *history) deletesDraft(rt *rapid.T) {
	open := h.store.open()
	if len(open) == 0 {
		return
	}
	d := rapid.SampledFrom(open).Draw(rt, "draft")
	h.did("deletes draft %d", d.ID)
	h.deleted[d.ID] = true
	h.store.hooks["DeleteDraft"] = nil
	h.must(h.store.DeleteDraft(h.t.Context(), h.shop, d.ID))
	if rapid.Bool().Draw(rt, "webhook") {
		h.strangs++
		h.took(h.list.Receive(h.t.Context(), h.shop, waitlist.Webhook{Topic: "draft_orders/delete", WebhookID: fmt.Sprintf("x%d", h.strangs), Body: fmt.Appendf(nil, `{"id":%d}`, d.ID)}))
	}
}

func (h *history) changes(rt *rapid.T) {
	n, threshold := rapid.IntRange(1, 3).Draw(rt, "per unit"), rapid.IntRange(1, 2).Draw(rt, "threshold")
	reserves := rapid.Bool().Draw(rt, "reserve before telling")
	h.did("settings: %d per unit, threshold %d, reserve before telling %v", n, threshold, reserves)
	h.settings(func(s *shop.Settings) { s.NoticesPerUnit, s.Threshold, s.ReserveBeforeTelling = n, threshold, reserves })
}

// check looks at what holds in every committed state.
func (h *history) check(rt *rapid.T) {
	h.rt = rt
	h.checkBooks()
	if n := h.one(`SELECT count(*) FROM holds WHERE activated_at >= expires_at`); n > 0 {
		rt.Fatalf("%d holds were activated when their time was over\n%s", n, strings.Join(h.steps, "\n"))
	}
	if n := h.one(`SELECT count(*) FROM holds h JOIN offers o ON o.id = h.offer_id WHERE h.state = 'refused' AND o.state = 'claimed'`); n > 0 {
		rt.Fatalf("%d people whose hold was refused count as told\n%s", n, strings.Join(h.steps, "\n"))
	}
	if n := h.one(`SELECT count(*) FROM offers o JOIN messages m ON m.offer_id = o.id WHERE o.reserved AND o.state = 'missed' AND m.attempts > 0`); n > 0 {
		rt.Fatalf("%d people who may have been told count as never told\n%s", n, strings.Join(h.steps, "\n"))
	}
	rows, _ := h.db.Query(h.t.Context(), `SELECT draft_id FROM holds WHERE state IN ('expired', 'released', 'refused') AND draft_id IS NOT NULL`)
	ended, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	h.must(err)
	for _, id := range ended {
		if d := h.store.drafts[id]; d != nil && !d.Completed {
			rt.Fatalf("the unit of draft %d was returned, and its link is still payable\n%s", id, strings.Join(h.steps, "\n"))
		}
	}
	for _, id := range h.unbacked() {
		rt.Fatalf("the active hold of draft %d has no reserved unit\n%s", id, strings.Join(h.steps, "\n"))
	}
}

// unbacked are the drafts of active holds, in time, that reserve nothing, though nobody deleted them.
func (h *history) unbacked() []int64 {
	rows, _ := h.db.Query(h.t.Context(), `SELECT draft_id FROM holds WHERE state = 'active' AND expires_at > $1`, h.now())
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	h.must(err)
	return slices.DeleteFunc(ids, func(id int64) bool {
		d := h.store.drafts[id]
		return h.deleted[id] || (d != nil && (d.Completed || d.reserved))
	})
}

// end lifts every fault and lets time run, until all that was begun must have its end.
func (h *history) end() {
	h.store.mu.Lock()
	h.store.hooks, h.store.hide = map[string][]func() error{}, map[int64]bool{}
	h.store.mu.Unlock()
	h.mu.Lock()
	clear(h.points)
	h.mu.Unlock()
	h.did("the end")
	story := strings.Join(h.steps, "\n")
	for range 24 {
		h.move(31 * time.Minute)
		h.must(h.list.Sweep(h.t.Context()))
		h.workAll(h.rt)
		h.check(h.rt)
	}
	if n := len(h.store.open()); n > 0 {
		h.rt.Fatalf("%d drafts are left over\n%s", n, story)
	}
	if n := h.one(`SELECT count(*) FROM holds WHERE state IN ('securing', 'active', 'releasing')`); n > 0 {
		h.rt.Fatalf("%d holds have no end\n%s", n, story)
	}
	if n := h.one(`SELECT count(*) FROM offers WHERE state = 'open'`); n > 0 {
		h.rt.Fatalf("%d offers have no end\n%s", n, story)
	}
	if n := h.one(`SELECT count(*) FROM webhooks WHERE done_at IS NULL`) + h.one(`SELECT count(*) FROM messages WHERE state IN ('pending', 'sending')`); n > 0 {
		h.rt.Fatalf("%d webhooks or messages are not done\n%s", n, story)
	}
	stock := int64(h.store.stock(chair))
	if available := h.one(`SELECT coalesce(sum(available), 0) FROM restocks WHERE state <> 'closed'`); h.one(`SELECT count(*) FROM restocks WHERE state <> 'closed'`) > 0 && available != stock {
		h.rt.Fatalf("%d are available, Shopify has %d\n%s", available, stock, story)
	}
	starved := h.one(`
		SELECT count(*) FROM entries e WHERE e.state = 'waiting' AND (
			EXISTS (SELECT FROM restocks r WHERE r.state = 'open' AND r.available > 0
			        AND NOT EXISTS (SELECT FROM offers o WHERE o.entry_id = e.id AND o.restock_id = r.id AND o.state NOT IN ('missed', 'withdrawn')))
			OR (NOT EXISTS (SELECT FROM restocks WHERE state <> 'closed') AND $1 >= (SELECT threshold FROM settings)))`, stock)
	if starved > 0 {
		h.rt.Fatalf("%d wait for what is there\n%s", starved, story)
	}
}
