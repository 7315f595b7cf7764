// Package db is the ground that the domain stands on: a pool of connections to PostgreSQL, the
// transaction, and the schema.
//
//	Open      a pool, checked
//	Migrate   brings the schema up to date
//	UpToDate  refuses a schema that is older than the program
//	InTx      a transaction: committed, or as if it had never been
//
// Package embedded starts a PostgreSQL when none is configured; package dbtest gives each test a
// database of its own.
package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// OldestMajor is the oldest major version of PostgreSQL that Holdfast runs on.
const OldestMajor = 15

// Options are what may differ between two pools on one database.
type Options struct {
	// Name is what pg_stat_activity shows as application_name: "holdfast", "holdfast migrate".
	Name string
	// MaxConns is the most connections that the pool opens. 0 means pgx's default: the number of
	// CPUs, and at least 4.
	MaxConns int
	// MinConns are kept open when idle, so that a burst does not begin with handshakes.
	MinConns int
}

const (
	connectTimeout = 10 * time.Second
	// A transaction that has been idle for so long has lost its process: no step of Holdfast waits
	// for anything but PostgreSQL inside a transaction. Without the limit its row locks would stay
	// until TCP gave up, up to two hours later.
	idleInTransaction = "60s"
	// No statement of the program needs a fraction of this. Migrations run without it.
	statementTimeout = "60s"
)

// Open returns a pool of connections to the database at url, after one of them has answered. What
// the url says (pool_max_conns, application_name, sslmode, connect_timeout, ...) goes before what
// Options and Open say. Every session's time zone is UTC, and times are scanned as UTC.
//
// The error says what was wrong, and never contains the password.
func Open(ctx context.Context, url string, o Options) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	given, err := pgx.ParseConfig(url) // still has the pool_ parameters, which pgxpool takes out
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	if _, ok := given.RuntimeParams["pool_max_conns"]; !ok && o.MaxConns > 0 {
		c.MaxConns = int32(o.MaxConns)
	}
	if _, ok := given.RuntimeParams["pool_min_conns"]; !ok && o.MinConns > 0 {
		c.MinConns = min(int32(o.MinConns), c.MaxConns)
	}
	if _, ok := c.ConnConfig.RuntimeParams["application_name"]; !ok && o.Name != "" {
		c.ConnConfig.RuntimeParams["application_name"] = o.Name
	}
	c.ConnConfig.RuntimeParams["timezone"] = "UTC"
	if c.ConnConfig.ConnectTimeout == 0 {
		c.ConnConfig.ConnectTimeout = connectTimeout
	}
	// By SET and not as startup parameters, which PgBouncer refuses unless it tracks them.
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SET idle_in_transaction_session_timeout = '`+idleInTransaction+`';
			SET statement_timeout = '`+statementTimeout+`'`)
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	if err := check(ctx, pool); err != nil {
		pool.Close()
		return nil, fmt.Errorf("database: %w", err)
	}
	return pool, nil
}

func check(ctx context.Context, pool *pgxpool.Pool) error {
	var version int
	err := pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&version)
	if err != nil {
		return err
	}
	if version < OldestMajor*10000 {
		return fmt.Errorf("this is PostgreSQL %d, and Holdfast needs %d or newer", version/10000, OldestMajor)
	}
	return nil
}

// InTx runs do in a transaction (READ COMMITTED, PostgreSQL's default) and commits it. When do
// returns an error or panics, everything is rolled back and the error is returned as it is. An error
// of the commit itself is wrapped; after one whose connection broke, it is unknown whether the
// commit happened, as always. InTx never runs do a second time.
func InTx(ctx context.Context, pool *pgxpool.Pool, do func(tx pgx.Tx) error) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	// After a commit this does nothing. The context may be over by now; the rollback has a right to
	// be said all the same, or the connection would have to be thrown away.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = tx.Rollback(ctx) // a connection that cannot roll back is closed by pgx, which rolls back
	}()
	if err := do(tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// IsUnique reports whether err is a violation of the unique constraint or unique index of this name.
func IsUnique(err error, constraint string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "23505" && e.ConstraintName == constraint
}

// Lost reports whether err means that the database could not be reached, or that the connection to it broke:
// what was asked for has not been written, or it is unknown whether it has. PostgreSQL itself says so with
// class 57P (shutting down, starting up) and class 08.
func Lost(err error) bool {
	var connecting *pgconn.ConnectError
	var e *pgconn.PgError
	switch {
	case errors.As(err, &connecting), errors.Is(err, pgconn.ErrConnClosed), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EPIPE), pgconn.Timeout(err):
		return true
	case errors.As(err, &e):
		return strings.HasPrefix(e.Code, "57P") || strings.HasPrefix(e.Code, "08")
	}
	return false
}

// Retryable reports whether the transaction that ended with err was undone by PostgreSQL for the
// sake of another one, and may well succeed when it is run again from its beginning: a serialization
// failure (40001) or a deadlock (40P01).
func Retryable(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == "40001" || e.Code == "40P01")
}
