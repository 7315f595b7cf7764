package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"holdfast/migrations"
)

// ErrOldSchema is what UpToDate returns, wrapped, when the database is older than the program.
var ErrOldSchema = errors.New("the database's schema is older than this program: run `holdfast migrate`, then start again")

// migrateLock is the advisory lock that whoever migrates holds: the letters of "holdfast".
const migrateLock = 0x686f6c6466617374

// Migrate brings the schema up to date: the goose files of package migrations, then River's tables.
// It may be run by any number of processes at once: one migrates, the others wait for it and find
// nothing left to do. A database that is up to date is left alone, and so is one that is newer than
// the program.
//
// Each goose file is a transaction, unless it says otherwise, and so is each of River's steps: after
// an error the schema is that of the last one that succeeded, and Migrate may be run again.
//
// It needs session state, so pool must reach PostgreSQL itself and not a PgBouncer that pools
// transactions.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	// A pool of its own, of the same database: the caller's may be too small for a lock and a
	// migration at once, and its statement timeout too short for either.
	c := pool.Config()
	c.AfterConnect = nil
	c.MaxConns, c.MinConns, c.MinIdleConns = 4, 0, 0
	own, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer own.Close()

	// goose can lock for itself, but River's migrator cannot: one lock goes round both.
	lock, err := pgx.ConnectConfig(ctx, c.ConnConfig)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer func() { _ = lock.Close(context.WithoutCancel(ctx)) }() // which gives the lock back
	if _, err := lock.Exec(ctx, `SELECT pg_advisory_lock($1)`, int64(migrateLock)); err != nil {
		return fmt.Errorf("migrate: wait for whoever migrates now: %w", err)
	}

	if err := withGoose(own, migrations.FS, func(g *goose.Provider) error {
		_, err := g.Up(ctx)
		return err
	}); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	river, err := newRiver(own)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if _, err := river.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate: River's tables: %w", err)
	}
	return nil
}

// UpToDate returns nil when the schema is what this program needs or newer, and an error that wraps
// ErrOldSchema when it is older. It only reads. A newer schema is let pass, so that the old processes
// of a rolling deployment may restart: a migration must leave the release before it working.
func UpToDate(ctx context.Context, pool *pgxpool.Pool) error {
	need, _, err := SchemaVersion()
	if err != nil {
		return err
	}
	// goose's own way to ask would create its table.
	var exists bool
	var have int64
	if err := pool.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, goose.DefaultTablename).Scan(&exists); err != nil {
		return fmt.Errorf("look at the schema: %w", err)
	}
	if exists {
		err := pool.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM `+goose.DefaultTablename+` WHERE is_applied`).Scan(&have)
		if err != nil {
			return fmt.Errorf("look at the schema: %w", err)
		}
	}
	if have < need {
		return fmt.Errorf("%w (it is at version %d, and %d is needed)", ErrOldSchema, have, need)
	}
	river, err := newRiver(pool)
	if err != nil {
		return err
	}
	v, err := river.Validate(ctx, nil)
	if err != nil {
		return fmt.Errorf("look at River's tables: %w", err)
	}
	if !v.OK {
		return fmt.Errorf("%w (River's tables: %v)", ErrOldSchema, v.Messages)
	}
	return nil
}

// SchemaVersion names the schema that Migrate makes: the number of the last goose file and that of
// River's last step. It needs no database.
func SchemaVersion() (own int64, river int, err error) {
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		return 0, 0, err
	}
	for _, name := range names {
		v, err := goose.NumericComponent(name)
		if err != nil {
			return 0, 0, fmt.Errorf("migrations/%s: %w", name, err)
		}
		own = max(own, v)
	}
	m, err := newRiver(nil)
	if err != nil {
		return 0, 0, err
	}
	for _, v := range m.AllVersions() {
		river = max(river, v.Version)
	}
	return own, river, nil
}

func withGoose(pool *pgxpool.Pool, files fs.FS, do func(*goose.Provider) error) (err error) {
	std := stdlib.OpenDBFromPool(pool)
	defer func() { err = errors.Join(err, std.Close()) }()
	g, err := goose.NewProvider(goose.DialectPostgres, std, files)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	return do(g)
}

func newRiver(pool *pgxpool.Pool) (*rivermigrate.Migrator[pgx.Tx], error) {
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("make River's migrator: %w", err)
	}
	return m, nil
}
