package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/app/jobs"
	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

// claim: people press on one restock at once, each as soon as the one before them was answered. Every design
// makes the same writes: the counter (or the unit's row), the offer, the hold, the entry, and a job that wakes
// whoever secures.
var claim = scenario{
	name:  "claim",
	about: "presses on one counter, in the domain itself (no HTTP), units for everybody",
	open: func(ctx context.Context, b *bench) ([]design, func() error, error) {
		w, err := b.open(ctx)
		if err != nil {
			return nil, closing(w), err
		}
		if err := w.alone(ctx); err != nil {
			return nil, closing(w), err
		}
		var designs []design
		for _, pressers := range []int{1, 8, 64, 512} {
			group := fmt.Sprintf("%d pressers", pressers)
			acts := b.of(min(40_000, 4000*pressers), 20)
			designs = append(designs, design{group, "gathered", func(ctx context.Context) (sample, error) {
				return w.claims(ctx, pressers, acts, 10*time.Second, w.gathered)
			}})
			if pressers == 512 {
				designs = append(designs, design{group, "the same with the offer read before and after", func(ctx context.Context) (sample, error) {
					return w.claims(ctx, pressers, acts, 10*time.Second, w.pressed)
				}})
			}
			for _, base := range baselines {
				best := 0
				designs = append(designs, design{group, base.name, func(ctx context.Context) (sample, error) {
					if best == 0 {
						var err error
						if best, err = w.bestPool(ctx, b, base, pressers, acts); err != nil {
							return sample{}, err
						}
					}
					got, err := w.claims(ctx, pressers, acts, 3*time.Second, w.by(base, best))
					got.Note = fmt.Sprintf("pool of %d", best)
					return got, err
				}})
			}
			if pressers == 512 {
				designs = append(designs, design{group, "bulk ceiling: one client, 256 a statement", func(ctx context.Context) (sample, error) { return w.bulk(ctx, acts) }})
			}
		}
		return designs, closing(w), nil
	},
}

// refuse: the same when nothing is left: whoever presses now keeps their place and is told so.
var refuse = scenario{
	name:  "refuse",
	about: "512 pressers on one counter after its last unit",
	open: func(ctx context.Context, b *bench) ([]design, func() error, error) {
		w, err := b.open(ctx)
		if err != nil {
			return nil, closing(w), err
		}
		if err := w.alone(ctx); err != nil {
			return nil, closing(w), err
		}
		acts := b.of(40_000, 20)
		return []design{
			{"", "nothing left", func(ctx context.Context) (sample, error) {
				return w.claimsOn(ctx, 512, 0, acts, 10*time.Second, w.gathered)
			}},
			{"", "nothing left, pressed once more", func(ctx context.Context) (sample, error) {
				return w.claimsOn(ctx, 512, 0, acts, 10*time.Second, func(ctx context.Context, p *presses) (act, func(), error) {
					do, done, err := w.pressed(ctx, p)
					if err != nil {
						return nil, nil, err
					}
					_, err = closedLoop(ctx, 512, len(p.offers), time.Minute, do)
					return do, done, err
				})
			}},
			{"", "units for everybody (claim)", func(ctx context.Context) (sample, error) {
				return w.claims(ctx, 512, acts, 10*time.Second, w.gathered)
			}},
		}, closing(w), nil
	},
}

// alone stops the program: its jobs would be measured, too.
func (w *world) alone(ctx context.Context) error {
	_, err := w.c.App(ctx, "kill", 0)
	return err
}

// presses are the offers of one restock that are pressed.
type presses struct {
	shopID, restock int64
	offers          []int64
	apart           bool // the units are counted elsewhere than in the restock's row
}

// opening prepares a design for some presses; done is called after them.
type opening func(ctx context.Context, p *presses) (do act, done func(), err error)

func (w *world) claims(ctx context.Context, pressers, n int, most time.Duration, open opening) (sample, error) {
	return w.claimsOn(ctx, pressers, n, n, most, open)
}

func (w *world) claimsOn(ctx context.Context, pressers, units, told int, most time.Duration, open opening) (sample, error) {
	if err := w.empty(ctx); err != nil {
		return sample{}, err
	}
	restock, offers, err := w.offered(ctx, lamp, units, told)
	if err != nil {
		return sample{}, err
	}
	p := &presses{shopID: w.shopID, restock: restock, offers: offers}
	do, done, err := open(ctx, p)
	if err != nil {
		return sample{}, err
	}
	defer done()
	got, err := closedLoop(ctx, pressers, told, most, do)
	if err != nil {
		return got, err
	}
	// The books, whatever the design.
	pressed := len(got.Latencies)
	held, err := w.count(ctx, `SELECT count(*) FROM holds WHERE shop_id = $1 AND restock_id = $2`, w.shopID, restock)
	if err != nil {
		return got, err
	}
	left, err := w.count(ctx, `SELECT available FROM restocks WHERE shop_id = $1 AND id = $2`, w.shopID, restock)
	if err != nil {
		return got, err
	}
	if counted := left == units-held; held != min(units, pressed) || (!counted && !p.apart) {
		return got, fmt.Errorf("%d presses on %d units: %d are held, %d left", pressed, units, held, left)
	}
	return got, nil
}

// domain is the domain in this process, over a pool of its own, without Shopify.
func (w *world) domain(ctx context.Context, size int) (*waitlist.Service, func(), error) {
	pool, err := w.pool(ctx, size)
	if err != nil {
		return nil, nil, err
	}
	inserter, err := jobs.Inserter(pool)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	nowhere := func(context.Context, string, string) error { return nil }
	return waitlist.New(pool, inserter, w.Keys(), w.shopify, nil, time.Now, nowhere, slog.New(slog.NewTextHandler(io.Discard, nil))), pool.Close, nil
}

// gathered is the product's press itself: what Claim does between its reads of the offer.
func (w *world) gathered(ctx context.Context, p *presses) (act, func(), error) {
	list, done, err := w.domain(ctx, 8)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, i int) (bool, error) {
		return true, list.Press(ctx, p.shopID, p.restock, p.offers[i])
	}, done, nil
}

// pressed is all of Claim.
func (w *world) pressed(ctx context.Context, p *presses) (act, func(), error) {
	list, done, err := w.domain(ctx, 8)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, i int) (bool, error) {
		o, err := list.Claim(ctx, w.Keys().Token(shop.Reserve, p.offers[i]))
		return o.State == "securing" || o.State == "gone", err
	}, done, nil
}

// baseline is another way of claiming a unit.
type baseline struct {
	name    string
	prepare string // a statement on the restock $1, $2 units
	claim   func(ctx context.Context, pool *pgxpool.Pool, p *presses, offers []int64) error
}

const (
	claimedOffer = `UPDATE offers SET state = 'claimed', ended_at = now() WHERE shop_id = $1 AND id = $2 AND state = 'open' RETURNING entry_id`
	newHold      = `INSERT INTO holds (shop_id, restock_id, offer_id, entry_id, variant_id, state, hold_minutes, claimed_at)
		SELECT $1, $2, $3, e.id, e.variant_id, 'securing', t.hold_minutes, now() FROM entries e JOIN settings t ON t.shop_id = $1 WHERE e.shop_id = $1 AND e.id = $4`
	holding = `UPDATE entries SET state = 'holding' WHERE shop_id = $1 AND id = $2 AND state = 'offered'`
	wake    = `INSERT INTO river_job (args, kind, max_attempts, queue) SELECT jsonb_build_object('shop_id', $1::bigint), 'secure', 25, 'holds'`
	// together does all of it for some offers, as far as the units go; unit takes the units and returns rows.
	together = `
		WITH unit AS (%s), o AS (
			UPDATE offers o SET state = 'claimed', ended_at = now() FROM unnest($3::bigint[]) AS p (id)
			WHERE o.shop_id = $1 AND o.id = p.id AND o.state = 'open' AND (SELECT count(*) FROM unit) >= 1 RETURNING o.id, o.entry_id
		), h AS (
			INSERT INTO holds (shop_id, restock_id, offer_id, entry_id, variant_id, state, hold_minutes, claimed_at)
			SELECT $1, $2, o.id, e.id, e.variant_id, 'securing', t.hold_minutes, now() FROM o JOIN entries e ON e.shop_id = $1 AND e.id = o.entry_id JOIN settings t ON t.shop_id = $1
			RETURNING id
		), m AS (
			UPDATE entries e SET state = 'holding' FROM o WHERE e.shop_id = $1 AND e.id = o.entry_id AND e.state = 'offered'
		), j AS (
			INSERT INTO river_job (args, kind, max_attempts, queue) SELECT jsonb_build_object('shop_id', $1::bigint), 'secure', 25, 'holds' FROM h LIMIT 1
		)
		SELECT count(*) FROM h`
	fromCounter = `UPDATE restocks SET available = available - cardinality($3::bigint[]), live = live + cardinality($3::bigint[]) WHERE shop_id = $1 AND id = $2 AND available >= cardinality($3::bigint[]) RETURNING id`
	fromUnits   = `UPDATE bench_units SET taken = true WHERE id IN (SELECT id FROM bench_units WHERE restock_id = $2 AND NOT taken LIMIT cardinality($3::bigint[]) FOR UPDATE SKIP LOCKED) RETURNING id`
)

var baselines = []baseline{
	{name: "SELECT FOR UPDATE, UPDATE, INSERT", claim: func(ctx context.Context, pool *pgxpool.Pool, p *presses, offers []int64) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			var available int
			if err := tx.QueryRow(ctx, `SELECT available FROM restocks WHERE shop_id = $1 AND id = $2 FOR UPDATE`, p.shopID, p.restock).Scan(&available); err != nil {
				return err
			}
			if available < 1 {
				return errors.New("nothing left")
			}
			var entry int64
			if err := tx.QueryRow(ctx, claimedOffer, p.shopID, offers[0]).Scan(&entry); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `UPDATE restocks SET available = available - 1, live = live + 1 WHERE shop_id = $1 AND id = $2`, p.shopID, p.restock); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, newHold, p.shopID, p.restock, offers[0], entry); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, holding, p.shopID, entry); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, wake, p.shopID)
			return err
		})
	}},
	{name: "one conditional statement a press", claim: inOne(fromCounter)},
	{name: "one row a unit, SKIP LOCKED", claim: inOne(fromUnits), prepare: `
		WITH gone AS (DELETE FROM bench_units) INSERT INTO bench_units (restock_id) SELECT $1 FROM generate_series(1, $2)`},
}

func inOne(unit string) func(ctx context.Context, pool *pgxpool.Pool, p *presses, offers []int64) error {
	text := fmt.Sprintf(together, unit)
	return func(ctx context.Context, pool *pgxpool.Pool, p *presses, offers []int64) error {
		var held int
		if err := pool.QueryRow(ctx, text, p.shopID, p.restock, offers).Scan(&held); err != nil {
			return err
		}
		if held != len(offers) {
			return fmt.Errorf("%d of %d are held", held, len(offers))
		}
		return nil
	}
}

// by opens a baseline with a pool of some size.
func (w *world) by(base baseline, size int) opening {
	return func(ctx context.Context, p *presses) (act, func(), error) {
		pool, err := w.pool(ctx, size)
		if err != nil {
			return nil, nil, err
		}
		if base.prepare != "" {
			p.apart = true
			err := w.exec(ctx,
				sql(`CREATE TABLE IF NOT EXISTS bench_units (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, restock_id bigint NOT NULL, taken boolean NOT NULL DEFAULT false)`),
				sql(`CREATE INDEX IF NOT EXISTS bench_units_free ON bench_units (restock_id, id) WHERE NOT taken`),
				sql(base.prepare, p.restock, len(p.offers)), sql(`ANALYZE bench_units`))
			if err != nil {
				pool.Close()
				return nil, nil, err
			}
		}
		return func(ctx context.Context, i int) (bool, error) {
			return true, base.claim(ctx, pool, p, p.offers[i:i+1])
		}, pool.Close, nil
	}
}

// bestPool finds the pool with which a baseline is at its best.
func (w *world) bestPool(ctx context.Context, b *bench, base baseline, pressers, acts int) (best int, err error) {
	rate := 0.0
	for size := 1; size <= 64 && size <= max(1, 2*pressers); size *= 2 {
		got, err := w.claims(ctx, pressers, min(acts, 4000), time.Second, w.by(base, size))
		if err != nil {
			return 0, fmt.Errorf("pool of %d: %w", size, err)
		}
		b.say("%d pressers, %s: %.0f/s with a pool of %d", pressers, base.name, got.rate(), size)
		if got.rate() > rate {
			best, rate = size, got.rate()
		}
	}
	return best, nil
}

// bulk is what the machine can write at most: one client that claims 256 units with each statement.
func (w *world) bulk(ctx context.Context, n int) (sample, error) {
	const each = 256
	n = max(1, n/each) * each
	return w.claims(ctx, 1, n, 10*time.Second, func(ctx context.Context, p *presses) (act, func(), error) {
		pool, err := w.pool(ctx, 1)
		if err != nil {
			return nil, nil, err
		}
		many := inOne(fromCounter)
		return func(ctx context.Context, i int) (bool, error) {
			if i%each != 0 {
				return true, nil // one of those that the first of them has claimed
			}
			return true, many(ctx, pool, p, p.offers[i:min(len(p.offers), i+each)])
		}, pool.Close, nil
	})
}
