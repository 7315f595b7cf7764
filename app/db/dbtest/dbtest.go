// Package dbtest gives each test a PostgreSQL database of its own, with the schema in it and nothing
// else, in a few tens of milliseconds: it is cloned from a template that is migrated once.
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		t.Parallel()
//		pool := dbtest.New(t)
//
// All test processes of one user share one server, which starts with the first test that asks for a
// database and stops when the last process has ended, however it ended. It is fast and not durable:
// nothing in it survives a power cut. With TEST_DATABASE_URL set, the server at that address is used
// instead; its role must be allowed to create databases.
package dbtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/app/db"
	"holdfast/migrations"
)

// MaxConns is the size of the pools that New returns.
const MaxConns = 10

// this is what the tests of this process share.
var this struct {
	main    bool      // Main was called: this program can be the keeper
	users   io.Closer // held as long as this process lives
	drops   sync.WaitGroup
	drop    sync.Mutex // one DROP DATABASE at a time is enough
	prepare sync.Once
	server  server
	err     error
}

// server is where databases are cloned, and from what.
type server struct {
	url      string // of its maintenance database
	own      bool   // it is the shared one, and not that of TEST_DATABASE_URL
	template string
}

// Main is the TestMain of a package whose tests use New or URL: it runs the tests, and waits until
// their databases are gone.
func Main(m *testing.M) {
	if dir, ok := keeperFolder(os.Args); ok {
		os.Exit(keep(dir))
	}
	this.main = true
	code := m.Run()
	this.drops.Wait()
	os.Exit(code)
}

// New returns a pool on a new database that has the schema of package migrations and River's. The
// database is dropped when the test ends. A connection that the test has not given back by then is an
// error of the test.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := db.Open(context.Background(), URL(t), db.Options{Name: "test", MaxConns: MaxConns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() { pool.Close(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(10 * time.Second):
			t.Errorf("%d connections were not given back: is a Rows not closed, or a transaction not ended?", pool.Stat().AcquiredConns())
		}
	})
	return pool
}

// URL is like New, but returns the address of the new database, for a test that starts programs.
func URL(t testing.TB) string {
	t.Helper()
	return create(t, true)
}

// EmptyURL returns the address of a new database that has nothing in it, for tests of the migrations
// themselves.
func EmptyURL(t testing.TB) string {
	t.Helper()
	return create(t, false)
}

func create(t testing.TB, migrated bool) string {
	t.Helper()
	this.prepare.Do(func() {
		this.server, this.err = prepare(os.Getenv("TEST_DATABASE_URL"))
	})
	if this.err != nil {
		t.Fatal(this.err)
	}
	s := this.server
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	admin, err := pgx.Connect(ctx, s.url)
	if err != nil {
		t.Fatalf("test database: %v", err)
	}
	defer func() { _ = admin.Close(ctx) }()
	name := databasePrefix + strconv.FormatInt(time.Now().Unix(), 36) + "_" + strings.ToLower(rand.Text()[:12])
	how := `CREATE DATABASE ` + name + ` TEMPLATE template0`
	if migrated {
		how = `CREATE DATABASE ` + name + ` TEMPLATE ` + s.template
		if s.own { // twice as fast as the default, where nothing is ever synced
			how += ` STRATEGY file_copy`
		}
	}
	if _, err := admin.Exec(ctx, how); err != nil {
		t.Fatalf("test database: %v", err)
	}
	t.Cleanup(func() {
		this.drops.Go(func() { // takes longer than the making; nobody need wait for it but Main
			this.drop.Lock()
			defer this.drop.Unlock()
			if err := dropDatabase(s.url, name); err != nil {
				fmt.Fprintf(os.Stderr, "dbtest: %v\n", err) // swept away by a later run
			}
		})
	})
	return withDatabase(s.url, name)
}

const (
	databasePrefix = "holdfast_test_" // then the time of its making, in base 36, and a random part
	templatePrefix = "holdfast_template_"
	templateLock   = 0x74656d706c617465 // "template"
)

// prepare finds or starts the server, and makes the template unless it is there.
func prepare(given string) (server, error) {
	s := server{url: given}
	if given == "" {
		if !this.main {
			return s, errors.New("dbtest: this package's tests need `func TestMain(m *testing.M) { dbtest.Main(m) }`")
		}
		dir, err := folder()
		if err != nil {
			return s, fmt.Errorf("dbtest: %w", err)
		}
		if s.url, this.users, err = shared(dir); err != nil {
			return s, fmt.Errorf("dbtest: %w", err)
		}
		s.own = true
	}
	var err error
	if s.template, err = templateName(); err != nil {
		return s, fmt.Errorf("dbtest: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := s.makeTemplate(ctx); err != nil {
		return s, fmt.Errorf("dbtest: template: %w", err)
	}
	return s, nil
}

// templateName changes with the schema: it is a hash of the migrations and of River's version.
func templateName() (string, error) {
	h := sha256.New()
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		return "", err
	}
	for _, name := range names {
		text, err := fs.ReadFile(migrations.FS, name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s\n", name, len(text), text)
	}
	_, river, err := db.SchemaVersion()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(h, "river %d\n", river)
	return templatePrefix + hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// makeTemplate makes the template under another name, until it is whole.
func (s server) makeTemplate(ctx context.Context) error {
	admin, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer func() { _ = admin.Close(ctx) }() // which also gives the lock back
	if _, err := admin.Exec(ctx, `SELECT pg_advisory_lock($1)`, int64(templateLock)); err != nil {
		return err
	}
	var exists bool
	if err := admin.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, s.template).Scan(&exists); err != nil || exists {
		return err
	}
	if !s.own { // the keeper does it for the shared server
		if err := sweep(ctx, admin, time.Now().Add(-2*time.Hour)); err != nil {
			return err
		}
	}
	unfinished := s.template + "_new"
	if _, err := admin.Exec(ctx, `DROP DATABASE IF EXISTS `+unfinished+` WITH (FORCE)`); err != nil {
		return err
	}
	if _, err := admin.Exec(ctx, `CREATE DATABASE `+unfinished+` TEMPLATE template0`); err != nil {
		return err
	}
	pool, err := db.Open(ctx, withDatabase(s.url, unfinished), db.Options{Name: "test template"})
	if err != nil {
		return err
	}
	err = db.Migrate(ctx, pool)
	pool.Close()
	if err != nil {
		return err
	}
	_, err = admin.Exec(ctx, `ALTER DATABASE `+unfinished+` RENAME TO `+s.template)
	return err
}

// sweep drops what killed runs have left: test databases that were made before a time, and the
// templates of all but the last few schemas.
func sweep(ctx context.Context, admin *pgx.Conn, before time.Time) error {
	rows, _ := admin.Query(ctx, `SELECT datname FROM pg_database WHERE starts_with(datname, $1) OR starts_with(datname, $2) ORDER BY oid DESC`,
		databasePrefix, templatePrefix)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	templates := 0
	for _, name := range names {
		if strings.HasPrefix(name, templatePrefix) {
			if templates++; templates <= 3 {
				continue
			}
		} else {
			made, _, _ := strings.Cut(strings.TrimPrefix(name, databasePrefix), "_")
			at, err := strconv.ParseInt(made, 36, 64)
			if err != nil || !time.Unix(at, 0).Before(before) {
				continue
			}
		}
		_, err := admin.Exec(ctx, `DROP DATABASE IF EXISTS `+pgx.Identifier{name}.Sanitize())
		if e := (*pgconn.PgError)(nil); err != nil && !(errors.As(err, &e) && e.Code == "55006") { // in use after all
			return err
		}
	}
	return nil
}

func dropDatabase(server, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	admin, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	_, err = admin.Exec(ctx, `DROP DATABASE `+name+` WITH (FORCE)`)
	return errors.Join(err, admin.Close(ctx))
}

func withDatabase(server, name string) string {
	u, err := url.Parse(server)
	if err != nil { // it has been connected to with this
		panic(err)
	}
	u.Path = "/" + name
	return u.String()
}
