package db_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"holdfast/app/db"
	"holdfast/app/db/dbtest"
	"holdfast/migrations"
)

func openEmpty(t *testing.T, o db.Options) *pgxpool.Pool {
	t.Helper()
	pool, err := db.Open(context.Background(), dbtest.EmptyURL(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// schema describes everything in the public schema, goose's and River's bookkeeping apart.
func schema(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, _ := pool.Query(context.Background(), `
		SELECT format('column %s.%s %s null=%s default=%s', table_name, column_name, data_type, is_nullable, column_default)
		FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT LIKE 'goose%'
		UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename NOT LIKE 'goose%'
		UNION ALL SELECT format('constraint %s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
		FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text NOT LIKE 'goose%'
		UNION ALL SELECT format('function %s', oid::regprocedure) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
		UNION ALL SELECT format('type %s', typname) FROM pg_type WHERE typnamespace = 'public'::regnamespace AND typtype IN ('e', 'd')
		ORDER BY 1`)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func TestEachMigrationGoesUpAndDownAndUp(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := openEmpty(t, db.Options{})
	std := stdlib.OpenDBFromPool(pool)
	defer func() { _ = std.Close() }()
	g, err := goose.NewProvider(goose.DialectPostgres, std, migrations.FS)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.ListSources()) == 0 {
		t.Fatal("there are no migrations")
	}
	for _, m := range g.ListSources() {
		before := schema(t, pool)
		if _, err := g.UpByOne(ctx); err != nil {
			t.Fatalf("%s up: %v", m.Path, err)
		}
		up := schema(t, pool)
		if _, err := g.Down(ctx); err != nil {
			t.Fatalf("%s down: %v", m.Path, err)
		}
		if down := schema(t, pool); !slices.Equal(before, down) {
			t.Errorf("%s down leaves another schema than there was before it:\n%s", m.Path, differ(before, down))
		}
		if _, err := g.UpByOne(ctx); err != nil {
			t.Fatalf("%s up again: %v", m.Path, err)
		}
		if again := schema(t, pool); !slices.Equal(up, again) {
			t.Errorf("%s up again makes another schema than the first time:\n%s", m.Path, differ(up, again))
		}
	}
}

func differ(want, got []string) string {
	var b strings.Builder
	for _, line := range want {
		if !slices.Contains(got, line) {
			b.WriteString("- " + line + "\n")
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			b.WriteString("+ " + line + "\n")
		}
	}
	return b.String()
}

func TestManyProcessesMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := dbtest.EmptyURL(t)
	ended := make(chan error)
	const many = 6
	for range many {
		go func() {
			pool, err := db.Open(ctx, url, db.Options{MaxConns: 1}) // one connection is enough
			if err != nil {
				ended <- err
				return
			}
			defer pool.Close()
			ended <- errors.Join(db.Migrate(ctx, pool), db.UpToDate(ctx, pool))
		}()
	}
	for range many {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestAnOlderSchemaIsRefusedAndANewerOneIsNot(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	refused := func(t *testing.T, pool *pgxpool.Pool) {
		t.Helper()
		err := db.UpToDate(ctx, pool)
		if !errors.Is(err, db.ErrOldSchema) || !strings.Contains(err.Error(), "holdfast migrate") {
			t.Errorf("UpToDate says %v", err)
		}
	}
	exec := func(t *testing.T, pool *pgxpool.Pool, sql string) {
		t.Helper()
		if tag, err := pool.Exec(ctx, sql); err != nil || tag.RowsAffected() == 0 {
			t.Fatalf("%s: %s, %v", sql, tag, err)
		}
	}
	t.Run("an empty database, which stays empty", func(t *testing.T) {
		t.Parallel()
		pool := openEmpty(t, db.Options{})
		refused(t, pool)
		var tables int
		if err := pool.QueryRow(ctx, `SELECT count(*) FROM pg_tables WHERE schemaname = 'public'`).Scan(&tables); err != nil || tables != 0 {
			t.Errorf("the look has made %d tables (%v)", tables, err)
		}
	})
	t.Run("the last migration is missing", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		exec(t, pool, `DELETE FROM goose_db_version WHERE version_id = (SELECT max(version_id) FROM goose_db_version)`)
		refused(t, pool)
	})
	t.Run("River's last step is missing", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		exec(t, pool, `DELETE FROM river_migration WHERE version = (SELECT max(version) FROM river_migration)`)
		refused(t, pool)
	})
	t.Run("a newer one", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		exec(t, pool, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)`)
		exec(t, pool, `INSERT INTO river_migration (line, version) VALUES ('main', 999)`)
		if err := db.UpToDate(ctx, pool); err != nil {
			t.Error(err)
		}
		if err := db.Migrate(ctx, pool); err != nil {
			t.Errorf("migrate: %v", err)
		}
	})
}
