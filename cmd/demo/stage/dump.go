package stage

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// TableDump is one table of the app as GET /sim/dump shows it.
type TableDump struct {
	Rows   int64  `json:"rows"`
	Digest string `json:"digest"` // over all rows, whatever order they lie in
}

// jobKinds are the kinds of job that the domain queues.
var jobKinds = []string{"observe", "secure", "release", "notice", "webhook", "reconcile", "catalogue", "product"}

// unwritten are the tables and columns that no request of a shopper or merchant is behind, or that the
// product says are only counted: a dump leaves them out, so that it stands still while nothing happens.
var unwritten = map[string][]string{
	"tap_limits": nil, // nil: the whole table
	"demand":     nil,
	// When a variant was last read, and which hint that read had seen, moves with the periodic re-read.
	"variants": {"hint_seq", "seen_seq", "observed_at", "read_at"},
	// How far the catalogue is moves with the daily export.
	"catalogues":    nil,
	"product_hints": nil,
	// When the drafts are listed, and how far that is, moves with the periodic reconcile.
	"shops": {"reconcile_at", "reconciled_at", "reconciling_since", "reconcile_cursor"},
	"holds": {"draft_seen_at"},
}

// only are the rows of a table that a dump shows: the catalogue has many variants that nobody ever waited for.
var only = map[string]string{"variants": "WHERE observed_at IS NOT NULL"}

// Dump returns, for each table of the app, the number of its rows and a digest of them. Two equal dumps
// mean that in between nothing was written that still shows. Jobs are counted by what they ask for, not
// by how far they are, and those that the sweep queues by the clock not at all: reconciling, reading the catalogue, and another
// observing of a variant that was observed before.
func Dump(ctx context.Context, db *pgxpool.Pool) (map[string]TableDump, error) {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, fmt.Errorf("dump: %w", err)
	}
	defer tx.Rollback(ctx)
	tables, err := appTables(ctx, tx)
	if err != nil {
		return nil, fmt.Errorf("dump: %w", err)
	}
	out := map[string]TableDump{}
	for _, table := range tables {
		without, special := unwritten[table]
		if special && without == nil {
			continue
		}
		sql := `SELECT count(*), md5(coalesce(string_agg(row, '' ORDER BY row), '')) FROM (SELECT md5((to_jsonb(t) - $1::text[])::text) AS row FROM ` + pgx.Identifier{table}.Sanitize() + ` t ` + only[table] + `) rows`
		args := []any{append([]string{}, without...)}
		if table == "river_job" {
			sql = `SELECT count(*), md5(coalesce(string_agg(row, '' ORDER BY row), '')) FROM (
				SELECT md5(kind || ' ' || args::text) AS row FROM river_job WHERE kind = ANY ($1) AND kind NOT IN ('observe', 'reconcile', 'catalogue', 'product')
				UNION ALL SELECT DISTINCT md5(kind || ' ' || args::text) FROM river_job WHERE kind = 'observe') rows`
			args = []any{jobKinds}
		}
		var d TableDump
		if err := tx.QueryRow(ctx, sql, args...).Scan(&d.Rows, &d.Digest); err != nil {
			return nil, fmt.Errorf("dump %s: %w", table, err)
		}
		out[table] = d
	}
	return out, nil
}

// appTables are the tables of the app's schema and the one of its jobs: goose's and the rest of River's
// are bookkeeping.
func appTables(ctx context.Context, tx pgx.Tx) ([]string, error) {
	rows, _ := tx.Query(ctx, `SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename`)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	var tables []string
	for _, t := range all {
		if t == "river_job" || (!strings.HasPrefix(t, "river_") && !strings.HasPrefix(t, "goose_")) {
			tables = append(tables, t)
		}
	}
	return tables, nil
}

// empty removes every row of the app and every job, as POST /sim/reset does. The schema stays.
func empty(ctx context.Context, db *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		tables, err := appTables(ctx, tx)
		if err != nil {
			return err
		}
		for i, t := range tables {
			tables[i] = pgx.Identifier{t}.Sanitize()
		}
		_, err = tx.Exec(ctx, `TRUNCATE `+strings.Join(tables, ", ")+` RESTART IDENTITY`)
		return err
	})
}
