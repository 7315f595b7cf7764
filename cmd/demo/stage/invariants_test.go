package stage

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/app/db/dbtest"
	"holdfast/app/shop"
)

const chair = 30011

// ledgerOf is a database with one story written by hand, and the evidence that goes with it: of six
// people, in order, 1 bought, 2 holds, 3 let a hold run out, 4 was refused a unit that a stranger got,
// 5 is offered one and 6 waits. Restock 1 had five units; two of them are gone without a hold.
type ledgerOf struct {
	db       querier
	keys     *shop.Keys
	evidence Evidence
	t        *testing.T
}

type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// newLedger writes the story into an empty database.
func newLedger(t *testing.T, db querier) *ledgerOf {
	t.Helper()
	keys, err := shop.NewKeys(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	l := &ledgerOf{db: db, keys: keys, t: t}
	l.exec(`
		INSERT INTO shops (domain, name) VALUES ('chairs.myshopify.com', 'Chairs');
		INSERT INTO settings (shop_id) VALUES (1);
		INSERT INTO variants (shop_id, id, product_id, inventory_item_id, sellable) VALUES (1, 30011, 3001, 40011, 1);
		INSERT INTO contacts (shop_id, channel, key, address, created_at) SELECT 1, 'email', 'p' || n || '@example.com', 'P' || n || '@example.com', at(0) FROM generate_series(1, 6) n;
		INSERT INTO entries (shop_id, variant_id, contact_id, state, joined_at, expires_at, ended_at) VALUES
			(1, 30011, 1, 'sold',    at(1), at(9999), at(200)),
			(1, 30011, 2, 'holding', at(2), at(9999), NULL),
			(1, 30011, 3, 'waiting', at(3), at(9999), NULL),
			(1, 30011, 4, 'waiting', at(4), at(9999), NULL),
			(1, 30011, 5, 'offered', at(5), at(9999), NULL),
			(1, 30011, 6, 'waiting', at(6), at(9999), NULL);
		INSERT INTO restocks (shop_id, variant_id, state, units, available, live, sold, withdrawn, rose, fell, opened_at)
			VALUES (1, 30011, 'open', 5, 1, 1, 1, 2, 1, 4, at(100));
		INSERT INTO restock_changes (shop_id, restock_id, kind, by, sellable, at) VALUES
			(1, 1, 'open', 4, 4, at(100)), (1, 1, 'grow', 1, 1, at(150)), (1, 1, 'shrink', 1, 0, at(400));
		INSERT INTO offers (shop_id, restock_id, entry_id, state, window_minutes, lapses_at, created_at, ended_at) VALUES
			(1, 1, 1, 'claimed', 60, at(3700), at(100), at(110)),
			(1, 1, 2, 'claimed', 60, at(3700), at(100), at(111)),
			(1, 1, 3, 'claimed', 60, at(3700), at(100), at(112)),
			(1, 1, 4, 'missed',  60, at(3700), at(100), at(120)),
			(1, 1, 5, 'open',    60, at(5700), at(1200), NULL);
		INSERT INTO holds (shop_id, restock_id, offer_id, entry_id, variant_id, state, reason, hold_minutes, claimed_at, expires_at, draft_id, invoice_url, activated_at, ended_at, order_id) VALUES
			(1, 1, 1, 1, 30011, 'sold',    NULL,      15, at(110), at(1010), 9001, 'x', at(111), at(200),  9501),
			(1, 1, 2, 2, 30011, 'active',  NULL,      15, at(111), at(5000), 9002, 'x', at(112), NULL,     NULL),
			(1, 1, 3, 3, 30011, 'expired', 'expired', 15, at(112), at(1012), 9003, 'x', at(113), at(1100), NULL),
			(1, 1, 4, 4, 30011, 'refused', 'refused', 15, at(113), at(1013), 9004, NULL, NULL,   at(1250), NULL);
		UPDATE offers SET ended_at = at(113) WHERE id = 4;
		INSERT INTO messages (shop_id, kind, channel, contact_id, entry_id, offer_id, state, attempts, sending_at, created_at)
			SELECT 1, 'notice', 'email', entry_id, entry_id, id, 'accepted', 1, created_at + interval '1 second', created_at FROM offers`)
	l.evidence = Evidence{
		Settled: true, Now: at(1300), Real: func(t time.Time) time.Time { return t },
		Stock: map[Variant]Stock{{FirstShop, chair}: {Sellable: 1, Reserved: 1, Committed: 1, Available: map[int64]int{2001: 1, 2002: 4}}},
		Drafts: []HeldDraft{
			{Shop: FirstShop, ID: 9001, HoldID: 1, VariantID: chair, Paid: true},
			{Shop: FirstShop, ID: 9002, HoldID: 2, VariantID: chair, Open: true},
		},
	}
	for offer := int64(1); offer <= 5; offer++ {
		sent := at(101)
		if offer == 5 {
			sent = at(1201)
		}
		l.evidence.Sent = append(l.evidence.Sent, Sent{ID: fmt.Sprint("m", offer), To: fmt.Sprintf("P%d@example.com", offer), At: sent, Tokens: []string{keys.Token(shop.Reserve, offer)}})
	}
	return l
}

// with is the story as a transaction sees it, with evidence of its own.
func (l *ledgerOf) with(t *testing.T, tx pgx.Tx) *ledgerOf {
	e := l.evidence
	e.Drafts, e.Sent = slices.Clone(e.Drafts), slices.Clone(e.Sent)
	return &ledgerOf{db: tx, keys: l.keys, evidence: e, t: t}
}

// at is a moment of the story, in seconds from its start.
func at(seconds int) time.Time {
	return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

// exec runs statements in which at(n) stands for a moment of the story.
func (l *ledgerOf) exec(sql string) {
	l.t.Helper()
	start := at(0).Format(time.RFC3339)
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(sql, "at(")
		out.WriteString(before)
		if !found {
			break
		}
		seconds, after, ok := strings.Cut(rest, ")")
		if !ok || strings.Trim(seconds, "0123456789") != "" {
			l.t.Fatalf("at(%s", rest)
		}
		fmt.Fprintf(&out, "('%s'::timestamptz + interval '%s seconds')", start, seconds)
		sql = after
	}
	if _, err := l.db.Exec(l.t.Context(), out.String()); err != nil {
		l.t.Fatalf("%s\n%s", err, out.String())
	}
}

func (l *ledgerOf) recount() Report {
	l.t.Helper()
	var r Report
	var err error
	if tx, ok := l.db.(pgx.Tx); ok {
		r, err = recount(l.t.Context(), tx, l.keys, l.evidence)
	} else {
		r, err = Recount(l.t.Context(), l.db.(*pgxpool.Pool), l.keys, l.evidence)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

func TestAStoryThatKeepsEveryPromiseIsFoundInOrder(t *testing.T) {
	t.Parallel()
	l := newLedger(t, dbtest.New(t))
	r := l.recount()
	if !r.OK || len(r.Why) != 0 {
		t.Fatalf("why: %q", r.Why)
	}
	if len(r.Restocks) != 1 {
		t.Fatalf("%d restocks", len(r.Restocks))
	}
	got := r.Restocks[0]
	if got.Units != 5 || got.Available != 1 || got.Live != 1 || got.Sold != 1 || got.Withdrawn != 2 || got.OpenOffers != 1 || got.Told != 4 ||
		got.Holds["active"] != 1 || got.Holds["expired"] != 1 || got.Shopify.Sellable != 1 {
		t.Errorf("%+v", got)
	}
}

// Each number, state and record of the story is spoilt once; the recount must say what no longer fits.
func TestEachSpoiltNumberIsNamed(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	story := newLedger(t, db) // each case is a transaction that is rolled back
	const unbound = `ALTER TABLE restocks DROP CONSTRAINT promise_1;`
	for name, c := range map[string]struct {
		sql  string
		do   func(*ledgerOf)
		want string
	}{
		"units":             {sql: unbound + `UPDATE restocks SET units = 6`, want: "promise 1: restock 1 says units = 6, its rows say 5"},
		"available":         {sql: unbound + `UPDATE restocks SET available = 2`, want: "promise 1: restock 1 says available = 2, its rows say 1"},
		"live":              {sql: unbound + `UPDATE restocks SET live = 0`, want: "promise 1: restock 1 says live = 0, its rows say 1"},
		"sold":              {sql: unbound + `UPDATE restocks SET sold = 2`, want: "promise 1: restock 1 says sold = 2, its rows say 1"},
		"withdrawn":         {sql: unbound + `UPDATE restocks SET withdrawn = 1`, want: "promise 1: restock 1 says withdrawn = 1, its rows say 2"},
		"sums that agree":   {sql: `UPDATE restocks SET units = 6, available = 2`, want: "promise 1: restock 1 says units = 6, its rows say 5"},
		"a change lost":     {sql: `DELETE FROM restock_changes WHERE kind = 'grow'`, want: "promise 1: restock 1 says units = 5, its rows say 4"},
		"a shrink too many": {sql: `INSERT INTO restock_changes (shop_id, restock_id, kind, by, sellable, at) VALUES (1, 1, 'shrink', 2, 0, at(500))`, want: "promise 1: restock 1 has 5 units and has given 6"},
		"a hold too many": {
			sql:  `INSERT INTO offers (shop_id, id, restock_id, entry_id, state, window_minutes, lapses_at, created_at, ended_at) OVERRIDING SYSTEM VALUE VALUES (1, 6, 1, 6, 'claimed', 60, at(9000), at(1210), at(1220)); INSERT INTO holds (shop_id, restock_id, offer_id, entry_id, variant_id, state, hold_minutes, claimed_at) VALUES (1, 1, 6, 6, 30011, 'securing', 15, at(1220)); UPDATE entries SET state = 'holding' WHERE id = 6`,
			want: "promise 1: restock 1 says live = 1, its rows say 2",
		},
		"a closed restock with a live hold": {sql: `ALTER TABLE restocks DROP CONSTRAINT closed_is_empty; UPDATE restocks SET state = 'closed', closed_at = at(1300)`, want: "promise 1: restock 1 is closed with 1 available, 1 live holds and 1 open offers"},
		"offered without an offer":          {sql: `UPDATE offers SET state = 'lapsed', ended_at = at(1250) WHERE id = 5`, want: "promise 1: entry 5 is offered, with 0 open offers"},
		"holding without a hold":            {sql: `UPDATE entries SET state = 'holding' WHERE id = 6`, want: "promise 1: entry 6 is holding, with 0 open offers and 0 live holds"},
		"waiting with a hold":               {sql: `UPDATE entries SET state = 'waiting' WHERE id = 2`, want: "promise 1: entry 2 is waiting, with 0 open offers and 1 live holds"},
		"gone with an offer":                {sql: `UPDATE entries SET state = 'left', ended_at = at(1250) WHERE id = 5`, want: "promise 1: entry 5 is left, with 1 open offers"},
		"a hold on an offer that is over":   {sql: `UPDATE offers SET state = 'missed' WHERE id = 2`, want: "promise 1: hold 2 is active, its offer 2 is missed"},
		"an offer beyond the units": {
			sql:  `INSERT INTO offers (shop_id, id, restock_id, entry_id, state, window_minutes, lapses_at, created_at) OVERRIDING SYSTEM VALUE VALUES (1, 6, 1, 6, 'open', 60, at(9000), at(1250)); UPDATE entries SET state = 'offered' WHERE id = 6`,
			want: "promise 2: restock 1 has 2 open offers for 1 available units",
		},
		"an offer beyond the units, long ago": {
			sql:  `INSERT INTO offers (shop_id, id, restock_id, entry_id, state, window_minutes, lapses_at, created_at, ended_at) OVERRIDING SYSTEM VALUE VALUES (1, 6, 1, 6, 'lapsed', 60, at(1240), at(1210), at(1240))`,
			want: "promise 2: at 2026-11-30T12:20:10Z restock 1 had 2 open offers for 1 available units",
		},
		"told out of turn": {sql: `UPDATE entries SET joined_at = at(50) WHERE id = 5; UPDATE entries SET joined_at = at(49) WHERE id = 6`, want: "promise 3: entry 5 was told in restock 1 at 2026-11-30T12:20:00Z, before entry 6"},
		"a missed one passed over": {
			sql:  `UPDATE holds SET ended_at = at(600) WHERE id = 4`,
			want: "promise 3: entry 5 was told in restock 1 at 2026-11-30T12:20:00Z, before entry 4",
		},
		"told in the wrong order": {
			sql:  `UPDATE messages SET sending_at = sending_at + interval '1 minute' WHERE offer_id = 2`,
			do:   func(l *ledgerOf) { s := l.evidence.Sent; s[1], s[2] = s[2], s[1] },
			want: "promise 3: message m2 to P2@example.com was sent after that of entry 3, which had joined later",
		},
		"two places of one contact": {
			sql:  `DROP INDEX entries_one_place; INSERT INTO entries (shop_id, variant_id, contact_id, state, expires_at) VALUES (1, 30011, 6, 'waiting', at(9999))`,
			want: "promise 4: entries 6 and 7 both keep a place for email p6@example.com",
		},
		"two places of one customer": {
			sql:  `DROP INDEX entries_one_customer; UPDATE entries SET customer_id = 77 WHERE id IN (5, 6)`,
			want: "promise 4: entries 5 and 6 both keep a place for customer 77",
		},
		"told twice in one restock": {
			sql:  `DROP INDEX offers_told_once; INSERT INTO offers (shop_id, id, restock_id, entry_id, state, window_minutes, lapses_at, created_at, ended_at) OVERRIDING SYSTEM VALUE VALUES (1, 6, 1, 3, 'lapsed', 60, at(1240), at(1150), at(1160))`,
			want: "promise 5: entry 3 was told twice in restock 1, by offers 3 and 6",
		},
		"sent twice": {do: func(l *ledgerOf) {
			again := l.evidence.Sent[4]
			again.ID = "m6"
			l.evidence.Sent = append(l.evidence.Sent, again)
		}, want: "promise 5: offer 5 was sent 2 times to P5@example.com; 0 attempts were in doubt and 0 not delivered"},
		"sent for nothing":               {do: func(l *ledgerOf) { l.evidence.Sent[0].Tokens = []string{l.keys.Token(shop.Reserve, 99)} }, want: "promise 5: message m1 to P1@example.com tells of offer 99, which no row has"},
		"a forged link":                  {do: func(l *ledgerOf) { l.evidence.Sent[0].Tokens = []string{"AAAAAAAAAAAAAAAAAAAAAAAA"} }, want: "promise 5: message m1 to P1@example.com has a reserve link that is not ours"},
		"a place in spite of an opt-out": {do: func(l *ledgerOf) { l.suppress(6, 1290) }, want: "promise 6: entry 6 is waiting, and its contact was suppressed"},
		"a message in spite of an opt-out": {
			do:   func(l *ledgerOf) { l.suppress(5, 1100) },
			want: "promise 6: message m5 was sent to P5@example.com at 2026-11-30T12:20:01Z, after the opt-out at 2026-11-30T12:18:20Z",
		},
		"Shopify has fewer":           {do: func(l *ledgerOf) { l.sellable(0) }, want: "promise 1: restock 1 has 1 available, and Shopify has only 0 for sale"},
		"Shopify has more":            {do: func(l *ledgerOf) { l.sellable(2) }, want: "promise 1: restock 1 has 1 available and 0 holds in between, and Shopify has 2 for sale"},
		"other locations are watched": {sql: `UPDATE settings SET locations = '{2002}'`, want: "promise 1: restock 1 has 1 available and 0 holds in between, and Shopify has 4 for sale"},
		"a hold without a draft":      {do: func(l *ledgerOf) { l.evidence.Drafts = l.evidence.Drafts[:1] }, want: "promise 1: hold 2 is active, and Shopify does not have its draft"},
		"a hold on a paid draft":      {do: func(l *ledgerOf) { d := &l.evidence.Drafts[1]; d.Open, d.Paid = false, true }, want: "promise 8: draft 9002 was paid, and its hold 2 is active"},
		"a draft left over": {do: func(l *ledgerOf) {
			l.evidence.Drafts = append(l.evidence.Drafts, HeldDraft{Shop: FirstShop, ID: 9003, HoldID: 3, VariantID: chair, Open: true})
		}, want: "promise 7: draft 9003 is left over: its hold 3 is expired"},
		"a second draft of one hold": {do: func(l *ledgerOf) {
			l.evidence.Drafts = append(l.evidence.Drafts, HeldDraft{Shop: FirstShop, ID: 9012, HoldID: 2, VariantID: chair, Open: true})
		}, want: "promise 7: draft 9012 is left over: its hold 2 is active"},
		"a draft of no hold": {do: func(l *ledgerOf) {
			l.evidence.Drafts = append(l.evidence.Drafts, HeldDraft{Shop: FirstShop, ID: 9013, HoldID: 88, VariantID: chair, Open: true})
		}, want: "promise 1: draft 9013 of chairs.myshopify.com is for hold 88, which no row has"},
		"sold without an order": {sql: `UPDATE holds SET order_id = NULL WHERE id = 1`, do: func(l *ledgerOf) { l.evidence.Drafts = l.evidence.Drafts[1:] }, want: "promise 1: hold 1 is sold, and Shopify has neither a paid draft nor an order for it"},
	} {
		t.Run(name, func(t *testing.T) {
			tx, err := db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(t.Context())
			l := story.with(t, tx)
			if c.sql != "" {
				l.exec(c.sql)
			}
			if c.do != nil {
				c.do(l)
			}
			r := l.recount()
			for _, why := range r.Why {
				if strings.HasPrefix(why, c.want) {
					if r.OK {
						t.Error("ok in spite of a reason")
					}
					return
				}
			}
			t.Errorf("ok %v, why %q; want %q", r.OK, r.Why, c.want)
		})
	}
}

func (l *ledgerOf) suppress(entry, when int) {
	l.t.Helper()
	address := fmt.Sprintf("p%d@example.com", entry)
	_, err := l.db.Exec(l.t.Context(), `INSERT INTO suppressions (shop_id, channel, contact_hash, reason, created_at) VALUES (1, 'email', $1, 'unsubscribe', $2)`,
		l.keys.Hash(1, "email", address), at(when))
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *ledgerOf) sellable(n int) {
	stock := maps.Clone(l.evidence.Stock)
	stock[Variant{FirstShop, chair}] = Stock{Sellable: n}
	l.evidence.Stock = stock
}

// What is in flight, was lost on the way or waits for a person is not held against the app.
func TestWhatTheAppCannotKnowIsNotHeldAgainstIt(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	story := newLedger(t, db) // each case is a transaction that is rolled back
	for name, c := range map[string]struct {
		sql string
		do  func(*ledgerOf)
	}{
		"in flight":             {do: func(l *ledgerOf) { l.sellable(9); l.evidence.Settled = false }},
		"a lost webhook":        {do: func(l *ledgerOf) { l.sellable(0); l.evidence.Unheard = map[Variant]bool{{FirstShop, chair}: true} }},
		"a rise that settles":   {sql: `UPDATE variants SET rise_since = at(1290)`, do: func(l *ledgerOf) { l.sellable(3) }},
		"a rise that is asked":  {sql: `UPDATE variants SET asked = 5000`, do: func(l *ledgerOf) { l.sellable(5000) }},
		"a shop that is gone":   {sql: `UPDATE shops SET state = 'uninstalled'`, do: func(l *ledgerOf) { l.sellable(7) }},
		"always for sale":       {sql: `UPDATE variants SET continue_selling = true`, do: func(l *ledgerOf) { l.sellable(-3) }},
		"an old setting":        {sql: `UPDATE offers SET state = 'lapsed', ended_at = at(1300) WHERE id = 5; UPDATE entries SET state = 'waiting' WHERE id = 5; INSERT INTO offers (shop_id, id, restock_id, entry_id, state, window_minutes, lapses_at, created_at, ended_at) OVERRIDING SYSTEM VALUE VALUES (1, 6, 1, 6, 'lapsed', 60, at(1240), at(1200), at(1240))`, do: func(l *ledgerOf) { l.evidence.Notices = map[string]int{FirstShop: 2} }},
		"a text without Twilio": {sql: `UPDATE contacts SET channel = 'sms' WHERE id = 6; UPDATE entries SET joined_at = at(0) WHERE id = 6`},
	} {
		t.Run(name, func(t *testing.T) {
			tx, err := db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(t.Context())
			l := story.with(t, tx)
			if c.sql != "" {
				l.exec(c.sql)
			}
			if c.do != nil {
				c.do(l)
			}
			if r := l.recount(); !r.OK {
				t.Errorf("why: %q", r.Why)
			}
		})
	}
}
