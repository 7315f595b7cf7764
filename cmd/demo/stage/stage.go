// Package stage puts the whole product on one machine: PostgreSQL, the simulated Shopify, Twilio and mail
// server on a listener of their own, and the built program as child processes that can be killed while
// the simulators live on. cmd/demo is a stage with flags; an end-to-end test is a stage with a Client.
//
//	          ┌──────────── the simulators' address ────────────┐
//	script ──▶│ /sim/...   control calls                        │
//	person ──▶│ /          start page, storefront, admin, inbox │◀── Shopify's, Twilio's and mail's side of the
//	          └───────┬─────────────────────────────────────────┘    program's requests
//	                  │ webhooks, app proxy, admin pages
//	                  ▼
//	         the app's address (balancer) ─▶ holdfast serve, holdfast serve, ...  ─▶ PostgreSQL
//
// The clock of app and simulators is one: real time plus what was pushed (clock.go). Nothing that the
// stage says about the app comes from the app: entries, dump and invariants are read from the rows
// (entries.go, dump.go, invariants.go) and from the simulators' own records.
package stage

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/app/db"
	"holdfast/app/db/embedded"
	"holdfast/app/shop"
	"holdfast/app/shopify/shopifysim"
	"holdfast/app/simkit"
)

// What the app and the simulated Shopify share. They are worth nothing anywhere else.
const (
	ClientID     = "5d3f0c8a7be94c12a6f0e1b2c3d4e5f6"
	ClientSecret = "demo-client-secret-of-no-value"
)

// FirstShop is the shop of the demo's stories.
const FirstShop = "chairs.myshopify.com"

// Options say how a stage is set up. Only Binary is required.
type Options struct {
	Binary      string // the built program
	Listen      string // the app's address; "" = a free loopback port
	Sim         string // the simulators' address; "" = a free loopback port
	Apps        int    // processes of the app; 0 = 1
	DataDir     string // keeps the database and the keys; "" = a temporary folder, removed at the end
	DatabaseURL string // "" = a PostgreSQL of its own; else a new schema in this database, dropped at the end
	CacheDir    string // where a PostgreSQL that had to be downloaded is kept
	Source      string // the project's folder, for the storefront's pages; "" = there are none
	AppLog      io.Writer
	AppEnv      []string // further environment of the app's processes
	Log         *slog.Logger
}

// Stage is everything, running.
type Stage struct {
	AppURL string // where the app is reached: http://127.0.0.1:8080
	SimURL string // where the simulators are reached

	o         Options
	log       *slog.Logger
	ctx       context.Context // ends when the stage is closed
	closing   <-chan struct{}
	cancel    context.CancelFunc
	began     time.Time
	startTook time.Duration
	ready     atomic.Bool // everything has been started once
	dbLost    atomic.Bool // the database is down, as a fault asked for

	postgres *embedded.Server // nil with a database that was given
	db       *pgxpool.Pool
	dbURL    string
	keys     *shop.Keys
	store    *shop.Store
	clock    *simkit.Clock
	pushes   pushes
	faults   *simkit.Faults
	sims     *simulators
	procs    *processes
	notices  notices

	moving     sync.Mutex // held while the clock moves, the stage is reset or the database is down
	background sync.WaitGroup
	undo       []func() error // what Close does, last first
}

// Start starts everything and returns when the app answers. Whatever was started is stopped again when
// something does not start. Close must be called.
func Start(ctx context.Context, o Options) (_ *Stage, err error) {
	if o.Binary == "" {
		return nil, errors.New("stage: Binary is missing: build cmd/holdfast and give its path")
	}
	if o.Apps == 0 {
		o.Apps = 1
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.AppLog == nil {
		o.AppLog = io.Discard
	}
	s := &Stage{o: o, log: o.Log, began: time.Now(), clock: &simkit.Clock{}, faults: &simkit.Faults{}}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.closing = s.ctx.Done()
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()

	if err := s.openData(); err != nil {
		return nil, err
	}
	if err := s.openDatabase(ctx); err != nil {
		return nil, err
	}
	appListener, err := s.listen(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("the app's address: %w", err)
	}
	simListener, err := s.listen(o.Sim)
	if err != nil {
		return nil, fmt.Errorf("the simulators' address: %w", err)
	}
	s.AppURL, s.SimURL = "http://"+appListener.Addr().String(), "http://"+simListener.Addr().String()

	keys, err := s.loadKeys()
	if err != nil {
		return nil, err
	}
	s.sims, err = newSimulators(s)
	s.undo = append(s.undo, s.sims.close)
	if err != nil {
		return nil, err
	}
	s.procs, err = newProcesses(ctx, o.Binary, o.Apps, append([]string{
		"DATABASE_URL=" + s.dbURL, "HOLDFAST_URL=" + s.AppURL, "HOLDFAST_SIM=" + s.SimURL, "HOLDFAST_KEYS=" + keys,
		"SHOPIFY_CLIENT_ID=" + ClientID, "SHOPIFY_CLIENT_SECRET=" + ClientSecret,
		"SMTP_URL=" + s.sims.mail.URL(), "EMAIL_FROM=notices@holdfast.example", "EMAIL_WEBHOOK_KEY=" + mailKey,
	}, o.AppEnv...), &locked{w: o.AppLog}, s.onUp)
	if err != nil {
		return nil, err
	}
	s.undo = append(s.undo, func() error { s.procs.close(); return nil })
	routes, err := s.routes()
	if err != nil {
		return nil, err
	}
	s.serve(simListener, routes)
	s.serve(appListener, balancer(s.procs, s.log))

	if err := s.procs.run(ctx, "migrate"); err != nil {
		return nil, err
	}
	if s.db, err = db.Open(ctx, s.dbURL, db.Options{Name: "holdfast demo", MaxConns: 8}); err != nil {
		return nil, err
	}
	s.undo = append(s.undo, func() error { s.db.Close(); return nil })
	s.store = shop.NewStore(s.db, s.keys)
	if err := s.procs.start(ctx, 0); err != nil {
		return nil, err
	}
	if err := s.seed(ctx); err != nil {
		return nil, err
	}
	s.startTook = time.Since(s.began)
	s.ready.Store(true)
	return s, nil
}

// onUp gives a process that was just started the time, before it is sent anything.
func (s *Stage) onUp(ctx context.Context, a *process) error { return s.setClock(ctx, a, false) }

// Took is how long Start took until everything was ready.
func (s *Stage) Took() time.Duration { return s.startTook }

// DatabaseURL is where the app's rows are, for whoever measures: it may fill tables before the app is asked.
func (s *Stage) DatabaseURL() string { return s.dbURL }

// Keys are the app's: they sign the links of what was put into the tables.
func (s *Stage) Keys() *shop.Keys { return s.keys }

// IDToken is what App Bridge would send with a merchant's request, good for a minute.
func (s *Stage) IDToken(domain string) string {
	return idToken(domain, ClientID, ClientSecret, s.clock.Now(), "")
}

// Processes says which processes of the app there are.
func (s *Stage) Processes(ctx context.Context) ([]Process, error) { return s.procs.list(ctx) }

// Close stops everything in the reverse order of its start and removes what was temporary. Nothing that
// the stage started runs when it returns.
func (s *Stage) Close() error {
	s.cancel()
	s.background.Wait()
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i]())
	}
	s.undo = nil
	return errors.Join(errs...)
}

// listen takes an address on loopback; nothing of the stage is meant for anybody else.
func (s *Stage) listen(address string) (net.Listener, error) {
	if address == "" {
		address = "127.0.0.1:0"
	}
	var lc net.ListenConfig
	l, err := lc.Listen(s.ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		l.Close()
		return nil, fmt.Errorf("%s is not a loopback address: the demo's secrets are public, it must not be reached from outside", address)
	}
	return l, nil
}

// serve answers on a listener until the stage is closed.
func (s *Stage) serve(l net.Listener, h http.Handler) {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return s.ctx },
	}
	s.background.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("a listener of the demo failed", "address", l.Addr().String(), "err", err)
		}
	})
	context.AfterFunc(s.ctx, func() { server.Close() })
}

// openData makes the folder that the database and the keys lie in.
func (s *Stage) openData() error {
	if s.o.DataDir != "" {
		return os.MkdirAll(s.o.DataDir, 0o755)
	}
	dir, err := os.MkdirTemp("", "holdfast-demo-")
	if err != nil {
		return fmt.Errorf("a temporary folder: %w", err)
	}
	s.o.DataDir = dir
	s.undo = append(s.undo, func() error { return os.RemoveAll(dir) })
	// The database server may run as another user, who must get through.
	return os.Chmod(dir, 0o755)
}

// openDatabase starts a PostgreSQL, or makes a schema in the one that was given.
func (s *Stage) openDatabase(ctx context.Context) error {
	if s.o.DatabaseURL == "" {
		if err := s.startDatabase(ctx); err != nil {
			return err
		}
		s.undo = append(s.undo, func() error { return s.postgres.Stop() })
		s.dbURL = s.postgres.URL()
		return nil
	}
	schema := "holdfast_demo_" + strings.ToLower(rand.Text()[:10])
	run := func(ctx context.Context, sql string) error {
		conn, err := pgx.Connect(ctx, s.o.DatabaseURL)
		if err != nil {
			return fmt.Errorf("DATABASE_URL: %w", err)
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, sql)
		return err
	}
	if err := run(ctx, `CREATE SCHEMA `+schema); err != nil {
		return fmt.Errorf("a schema for the demo: %w", err)
	}
	s.undo = append(s.undo, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // the stage's own context has ended
		defer cancel()
		return run(ctx, `DROP SCHEMA `+schema+` CASCADE`)
	})
	u, err := url.Parse(s.o.DatabaseURL)
	if err != nil || u.Scheme == "" {
		return errors.New("DATABASE_URL: give it as a URL, postgres://user@host/database")
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	s.dbURL = u.String()
	return nil
}

func (s *Stage) startDatabase(ctx context.Context) error {
	server, err := embedded.Start(ctx, embedded.Options{DataDir: filepath.Join(s.o.DataDir, "postgres"), CacheDir: s.o.CacheDir, Log: s.log})
	if err != nil {
		return fmt.Errorf("the demo's database: %w", err)
	}
	s.postgres = server
	return nil
}

// loadKeys reads the app's master keys from the data folder, or makes and keeps them: what the database
// has sealed must open the next time.
func (s *Stage) loadKeys() (string, error) {
	path := filepath.Join(s.o.DataDir, "keys")
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		key := make([]byte, 32)
		rand.Read(key)
		raw = []byte(base64.StdEncoding.EncodeToString(key))
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("the demo's keys: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(string(raw))
	if err != nil {
		return "", fmt.Errorf("the demo's keys in %s: %w", path, err)
	}
	if s.keys, err = shop.NewKeys(key); err != nil {
		return "", fmt.Errorf("the demo's keys in %s: %w", path, err)
	}
	return string(raw), nil
}

// seed installs the app in the simulated shops, by opening it in each one's admin, and sets it up as their
// merchants would.
func (s *Stage) seed(ctx context.Context) error {
	for _, sh := range s.sims.shopify.Shops() {
		if err := s.install(ctx, sh.Shop); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stage) install(ctx context.Context, domain string) error {
	if err := s.sims.install(ctx, domain); err != nil {
		return err
	}
	installed, err := s.store.ByDomain(ctx, domain)
	if err != nil {
		return fmt.Errorf("seed %s: %w", domain, err)
	}
	set := seedOf(domain)
	if err := s.sims.open(set); err != nil {
		return err
	}
	if err := s.store.ConnectTwilio(ctx, installed.ID, set.twilio, set.twilioKey); err != nil {
		return err
	}
	// Its messaging service is one that carriers let send a hundred texts a second.
	if _, err := s.db.Exec(ctx, `INSERT INTO senders (shop_id, channel, per_second) VALUES ($1, 'sms', 100) ON CONFLICT (shop_id, channel) DO UPDATE SET per_second = 100`, installed.ID); err != nil {
		return fmt.Errorf("seed %s: %w", domain, err)
	}
	// Nobody wants to wait for half a minute in a demo, or until the morning.
	if _, err := s.db.Exec(ctx, `UPDATE settings SET settle_seconds = 0, quiet_hours = false WHERE shop_id = $1`, installed.ID); err != nil {
		return fmt.Errorf("seed %s: %w", domain, err)
	}
	return nil
}

// postShop makes another shop that has the app installed.
func (s *Stage) postShop(r *http.Request) (any, error) {
	var spec shopifysim.ShopSpec
	if err := decode(r, &spec); err != nil {
		return nil, err
	}
	if err := s.sims.shopify.AddShop(spec); err != nil {
		return nil, err
	}
	sh, ok := s.sims.shop(spec.Shop)
	if !ok {
		return nil, fmt.Errorf("the new shop %s is not there", spec.Shop)
	}
	return sh, s.install(r.Context(), sh.Shop)
}

// postReset puts everything back to the start: no rows, no jobs, no faults, an empty outbox, the shops as
// at first, every process of the app started anew. Only the clock stays where it is: a clock does not go
// back.
func (s *Stage) postReset(r *http.Request) (any, error) {
	s.moving.Lock()
	defer s.moving.Unlock()
	ctx := r.Context()
	if err := s.faults.Delete(""); err != nil {
		return nil, err
	}
	if err := s.procs.end(0, syscall.SIGKILL); err != nil {
		return nil, err
	}
	if err := s.sims.reset(); err != nil {
		return nil, fmt.Errorf("reset: %w", err)
	}
	if err := empty(ctx, s.db); err != nil {
		return nil, fmt.Errorf("reset: %w", err)
	}
	s.notices.reset()
	if err := s.procs.start(ctx, 0); err != nil {
		return nil, fmt.Errorf("reset: %w", err)
	}
	if err := s.seed(ctx); err != nil {
		return nil, fmt.Errorf("reset: %w", err)
	}
	return map[string]any{"reset": true, "clock": s.readClock()}, nil
}

func (s *Stage) getApp(r *http.Request) (any, error) { return s.procs.list(r.Context()) }

func (s *Stage) postApp(r *http.Request) (any, error) {
	var in struct {
		Do string `json:"do"`
		N  int    `json:"n"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	var err error
	switch in.Do {
	case "kill":
		err = s.procs.end(in.N, syscall.SIGKILL)
	case "term":
		err = s.procs.end(in.N, syscall.SIGTERM)
	case "start":
		err = s.procs.start(r.Context(), in.N)
		s.sims.shopify.RetryNow()
	default:
		return nil, refuse(http.StatusBadRequest, "do: %q is none of kill, term, start", in.Do)
	}
	if err != nil {
		return nil, err
	}
	return s.procs.list(r.Context())
}

func (s *Stage) getDump(r *http.Request) (any, error) { return Dump(r.Context(), s.db) }

// routes is everything that the simulators' address answers.
func (s *Stage) routes() (http.Handler, error) {
	mux := chi.NewRouter()
	call := func(method, path string, c call) {
		mux.Method(method, path, answer(s.log, func(r *http.Request) (any, error) {
			if !s.ready.Load() {
				return nil, refuse(http.StatusServiceUnavailable, "still starting; ask /readyz")
			}
			answer, err := c(r)
			if no, refused := errors.AsType[*refusal](err); err != nil && s.dbLost.Load() && !(refused && no.status < 500) {
				err = refuse(http.StatusServiceUnavailable, "the database is down, as a fault asked for: %s", err)
			}
			return answer, err
		}))
	}
	call("GET", "/sim/app", s.getApp)
	call("POST", "/sim/app", s.postApp)
	call("POST", "/sim/clock", s.postClock)
	call("POST", "/sim/settle", s.postSettle)
	call("POST", "/sim/faults", s.postFault)
	call("DELETE", "/sim/faults", s.deleteFault)
	call("GET", "/sim/dump", s.getDump)
	call("GET", "/sim/invariants", s.getInvariants)
	call("GET", "/sim/entries", s.getEntries)
	call("GET", "/sim/settings", s.getSettings)
	call("POST", "/sim/settings", s.postSettings)
	call("POST", "/sim/admin", s.postAdmin)
	call("POST", "/sim/reset", s.postReset)
	call("GET", "/readyz", func(*http.Request) (any, error) {
		if len(s.procs.ready()) == 0 {
			return nil, refuse(http.StatusServiceUnavailable, "no process of the app runs; start one with POST /sim/app")
		}
		return map[string]any{"ready": true}, nil
	})
	// The app asks these while it starts, too.
	mux.Method("GET", "/sim/clock", answer(s.log, func(*http.Request) (any, error) { return s.readClock(), nil }))
	mux.Method("POST", "/crash/{point}", answer(s.log, s.atPoint))
	s.sims.mount(mux)
	call("POST", "/sim/shops", s.postShop) // in place of Shopify's own, which would not tell the app
	if err := s.pages(mux); err != nil {
		return nil, err
	}
	return mux, nil
}
