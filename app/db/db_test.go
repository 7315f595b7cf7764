package db_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"holdfast/app/db"
	"holdfast/app/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestATransactionIsCommittedOrHasNeverBeen(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := dbtest.New(t)
	insert := func(tx pgx.Tx, domain string) {
		if _, err := tx.Exec(ctx, `INSERT INTO shops (domain, name) VALUES ($1, 'A shop')`, domain); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.InTx(ctx, pool, func(tx pgx.Tx) error { insert(tx, "kept.myshopify.com"); return nil }); err != nil {
		t.Fatal(err)
	}
	mine := errors.New("mine")
	if err := db.InTx(ctx, pool, func(tx pgx.Tx) error { insert(tx, "error.myshopify.com"); return mine }); err != mine {
		t.Errorf("the error came back as %v", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = db.InTx(ctx, pool, func(tx pgx.Tx) error { insert(tx, "panic.myshopify.com"); panic("mine") })
	}()
	// The rollback is said although the context is over, and the connection stays usable.
	over, cancel := context.WithCancel(ctx)
	if err := db.InTx(over, pool, func(tx pgx.Tx) error { insert(tx, "over.myshopify.com"); cancel(); return over.Err() }); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context was cancelled: %v", err)
	}
	rows, _ := pool.Query(ctx, `SELECT domain FROM shops`)
	domains, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(domains) != 1 || domains[0] != "kept.myshopify.com" {
		t.Errorf("the table holds %v", domains)
	}
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections are still out", n)
	}
}

func TestACommitThatFailsIsAnError(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := dbtest.New(t)
	if _, err := pool.Exec(ctx, `CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)`); err != nil {
		t.Fatal(err)
	}
	err := db.InTx(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO late VALUES (1), (1)`)
		return err
	})
	if !db.IsUnique(err, "late_id_key") || !strings.HasPrefix(err.Error(), "commit: ") {
		t.Errorf("a constraint that is checked at the commit: %v", err)
	}
}

func TestAUniqueViolationIsToldByItsConstraint(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := dbtest.New(t)
	const insert = `INSERT INTO shops (domain, name) VALUES ('a.myshopify.com', 'A')`
	if _, err := pool.Exec(ctx, insert); err != nil {
		t.Fatal(err)
	}
	_, err := pool.Exec(ctx, insert)
	if !db.IsUnique(err, "shops_domain_key") {
		t.Errorf("not told: %v", err)
	}
	if db.IsUnique(err, "shops_pkey") || db.IsUnique(nil, "shops_domain_key") || db.Retryable(err) {
		t.Error("told of what is something else")
	}
}

func TestADeadlockMayBeRetried(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := dbtest.New(t)
	if _, err := pool.Exec(ctx, `CREATE TABLE pair (id int PRIMARY KEY); INSERT INTO pair VALUES (1), (2)`); err != nil {
		t.Fatal(err)
	}
	var held [2]chan struct{}
	held[0], held[1] = make(chan struct{}), make(chan struct{})
	ended := make(chan error)
	for i := range 2 {
		go func() {
			ended <- db.InTx(ctx, pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, `SELECT FROM pair WHERE id = $1 FOR UPDATE`, i+1); err != nil {
					return err
				}
				close(held[i])
				<-held[1-i]
				_, err := tx.Exec(ctx, `SELECT FROM pair WHERE id = $1 FOR UPDATE`, 2-i)
				return err
			})
		}()
	}
	a, b := <-ended, <-ended
	if a == nil {
		a, b = b, a
	}
	if b != nil || !db.Retryable(a) {
		t.Errorf("two that wait for each other ended with %v and %v", a, b)
	}
	if db.Retryable(nil) || db.Retryable(&pgconn.PgError{Code: "23505"}) {
		t.Error("what would fail again is called retryable")
	}
}

func TestEverySessionIsInUTCAndNamed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := dbtest.URL(t)
	if !strings.Contains(url, "?") {
		url += "?"
	}
	for _, c := range []struct {
		url  string
		o    db.Options
		name string
		max  int32
	}{
		{url, db.Options{Name: "holdfast", MaxConns: 3}, "holdfast", 3},
		{url + "&application_name=mine&pool_max_conns=2&timezone=Asia/Tokyo", db.Options{Name: "holdfast", MaxConns: 3}, "mine", 2},
	} {
		pool, err := db.Open(ctx, c.url, c.o)
		if err != nil {
			t.Fatal(err)
		}
		var zone, name string
		err = pool.QueryRow(ctx, `SELECT current_setting('timezone'), current_setting('application_name')`).Scan(&zone, &name)
		if err != nil || zone != "UTC" || name != c.name || pool.Config().MaxConns != c.max {
			t.Errorf("zone %q, name %q, %d connections, %v", zone, name, pool.Config().MaxConns, err)
		}
		pool.Close()
	}
}

func TestOpenSaysWhatIsWrongAndNotThePassword(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, url := range []string{
		"postgres://app:hunter2@127.0.0.1:1/app",
		"postgres://app:hunter2@127.0.0.1:70000/app",
		"postgres://app:hunter2@127.0.0.1/app?pool_max_conns=many",
	} {
		pool, err := db.Open(ctx, url, db.Options{})
		if err == nil {
			pool.Close()
			t.Fatalf("%s was opened", url)
		}
		if s := err.Error(); !strings.HasPrefix(s, "database") || strings.Contains(s, "hunter2") {
			t.Errorf("the error says %q", s)
		}
	}
}
