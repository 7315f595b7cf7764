package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/app/db"
	"holdfast/app/shop"
	"holdfast/app/waitlist"
	"holdfast/cmd/demo/stage"
)

const (
	// plus is a shop on Shopify's largest plan, and lamp a sold-out variant of it.
	plus       = "lamps.myshopify.com"
	lamp int64 = 31011
	// other is another sold-out variant of it.
	other int64 = 31012
)

// world is a stage with the program as a process of its own, and what a measurement needs of it.
type world struct {
	*stage.Stage
	c      *stage.Client
	db     *pgxpool.Pool // of whoever measures
	shopID int64         // of plus
	app    string        // base URL of the program's process, past the balancer, which would cost as much as it does
	ops    string

	shopify waitlist.Shopify // of the domain in this process; nil: it is not asked
}

// open starts everything.
func (b *bench) open(ctx context.Context) (_ *world, err error) {
	s, err := stage.Start(ctx, stage.Options{Binary: b.binary, AppEnv: []string{"HOLDFAST_SIM_CRASH=off"}})
	if err != nil {
		return nil, err
	}
	w := &world{Stage: s, c: s.Client()}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.db, err = w.pool(ctx, 4); err != nil {
		return nil, err
	}
	list, err := s.Processes(ctx)
	if err != nil {
		return nil, err
	}
	w.app, w.ops = "http://"+list[0].Address, "http://"+list[0].Ops
	err = w.db.QueryRow(ctx, `SELECT id FROM shops WHERE domain = $1`, plus).Scan(&w.shopID)
	return w, err
}

func (w *world) close() error {
	if w.db != nil {
		w.db.Close()
	}
	return w.Close()
}

// pool opens connections of a baseline's own.
func (w *world) pool(ctx context.Context, size int) (*pgxpool.Pool, error) {
	return db.Open(ctx, w.DatabaseURL(), db.Options{Name: "bench", MaxConns: size, MinConns: min(size, 4)})
}

// exec runs statements, each with the arguments that it names.
func (w *world) exec(ctx context.Context, statements ...statement) error {
	for _, st := range statements {
		if _, err := w.db.Exec(ctx, st.sql, st.args...); err != nil {
			return fmt.Errorf("%.60q: %w", st.sql, err)
		}
	}
	return nil
}

type statement struct {
	sql  string
	args []any
}

func sql(text string, args ...any) statement { return statement{text, args} }

// empty takes everything out that waits, was offered or is held, and the jobs.
func (w *world) empty(ctx context.Context) error {
	return w.exec(ctx, sql(`TRUNCATE messages, holds, offers, restock_changes, restocks, entries, contacts, webhooks, tap_limits, river_job CASCADE`))
}

// variants makes the rows of variants that are sold out in the simulated Shopify, as their first tap would.
func (w *world) variants(ctx context.Context, ids ...int64) error {
	return w.exec(ctx, sql(`
		INSERT INTO variants (shop_id, id, product_id, inventory_item_id, title, product_title, handle, price, sellable, observed_at)
		SELECT $1, id, 3101, id + 10000, 'Brass', 'Desk lamp', 'desk-lamp', '180.00', 0, now() FROM unnest($2::bigint[]) AS id
		ON CONFLICT DO NOTHING`, w.shopID, ids))
}

// queue puts n people into the queue of a variant, in one state.
func (w *world) queue(ctx context.Context, variant int64, who, state string, n int) error {
	return w.exec(ctx, sql(`
		WITH c AS (
			INSERT INTO contacts (shop_id, channel, key, address, created_at)
			SELECT $1, 'email', a, a, now() FROM generate_series(1, $5) AS i, format('%s%s@example.com', $3::text, i) AS a
			RETURNING id
		)
		INSERT INTO entries (shop_id, variant_id, contact_id, state, joined_at, expires_at, locale, consent)
		SELECT $1, $2, c.id, $4, now() - interval '1 day' + c.id * interval '1 microsecond', now() + interval '90 days', 'en', 'email-1' FROM c ORDER BY c.id`,
		w.shopID, variant, who, state, n))
}

// offered makes a restock of some units that everybody in the variant's queue was told of, and returns the
// tokens of their links, in order of the queue.
func (w *world) offered(ctx context.Context, variant int64, units, told int) (restock int64, offers []int64, err error) {
	if err := w.variants(ctx, variant); err != nil {
		return 0, nil, err
	}
	if err := w.queue(ctx, variant, "told"+strconv.FormatInt(variant, 10)+"-", "offered", told); err != nil {
		return 0, nil, err
	}
	err = w.db.QueryRow(ctx, `
		WITH r AS (
			INSERT INTO restocks (shop_id, variant_id, state, units, available, opened_at) VALUES ($1, $2, 'open', $3, $3, now()) RETURNING id
		), c AS (
			INSERT INTO restock_changes (shop_id, restock_id, kind, by, sellable, at) SELECT $1, id, 'open', $3, $3, now() FROM r WHERE $3 > 0
		)
		SELECT id FROM r`, w.shopID, variant, units).Scan(&restock)
	if err != nil {
		return 0, nil, err
	}
	err = w.exec(ctx,
		sql(`INSERT INTO offers (shop_id, restock_id, entry_id, state, window_minutes, lapses_at, created_at)
			SELECT $1, $3, id, 'open', 60, now() + interval '1 day', now() FROM entries WHERE shop_id = $1 AND variant_id = $2 ORDER BY joined_at, id`, w.shopID, variant, restock),
		sql(`INSERT INTO messages (shop_id, kind, channel, contact_id, entry_id, offer_id, state, attempts, sending_at, created_at, accepted_at)
			SELECT o.shop_id, 'notice', 'email', e.contact_id, e.id, o.id, 'accepted', 1, now(), now(), now()
			FROM offers o JOIN entries e ON e.shop_id = o.shop_id AND e.id = o.entry_id WHERE o.shop_id = $1 AND o.restock_id = $2 ORDER BY o.id`, w.shopID, restock),
		sql(`ANALYZE contacts, entries, offers, holds, restocks, messages`))
	if err != nil {
		return 0, nil, err
	}
	rows, err := w.db.Query(ctx, `SELECT id FROM offers WHERE shop_id = $1 AND restock_id = $2 ORDER BY id`, w.shopID, restock)
	if err != nil {
		return 0, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return 0, nil, err
		}
		offers = append(offers, id)
	}
	return restock, offers, rows.Err()
}

func (w *world) tokens(offers []int64) []string {
	tokens := make([]string, len(offers))
	for i, id := range offers {
		tokens[i] = w.Keys().Token(shop.Reserve, id)
	}
	return tokens
}

// count runs a statement that counts something.
func (w *world) count(ctx context.Context, text string, args ...any) (n int, err error) {
	err = w.db.QueryRow(ctx, text, args...).Scan(&n)
	return n, err
}

// memory is the most resident memory that the program's process ever had. Only Linux says so; elsewhere
// it is what it has now.
func (w *world) memory(ctx context.Context) (int64, error) {
	list, err := w.Processes(ctx)
	if err != nil || !list[0].Running {
		return 0, err
	}
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(list[0].PID), "status"))
	if err != nil {
		return list[0].RSS, nil
	}
	for line := range bytes.Lines(raw) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok { // proc(5): "peak resident set size", in kB
			kB, err := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB"))), 10, 64)
			return kB * 1024, err
		}
	}
	return list[0].RSS, nil
}

// closing makes close of a scenario of closers that may be nil.
func closing(worlds ...*world) func() error {
	return func() error {
		var errs []error
		for _, w := range worlds {
			if w != nil {
				errs = append(errs, w.close())
			}
		}
		return errors.Join(errs...)
	}
}

// patience is the longest that anything is waited for in a round.
const patience = 5 * time.Minute
