package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/app/db"
	"holdfast/app/db/embedded"
	"holdfast/app/jobs"
	"holdfast/app/notify"
	"holdfast/app/shop"
	"holdfast/app/shopify"
	"holdfast/app/waitlist"
	"holdfast/web"
)

const (
	appConns  = 16 // of requests and of the work that jobs do
	jobConns  = 6  // of River's own bookkeeping
	workers   = 24 // jobs at once; most of them wait for Shopify or a mail server
	drainTime = 20 * time.Second
)

// database returns a pool on the configured database, or on the embedded PostgreSQL, and what gives
// it up.
func database(ctx context.Context, c config, o db.Options, log *slog.Logger) (*pgxpool.Pool, func(), error) {
	url, stop := c.databaseURL, func() {}
	if url == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			cache = c.data
		}
		server, err := embedded.Start(ctx, embedded.Options{DataDir: c.data, CacheDir: filepath.Join(cache, "holdfast", "postgresql"), Log: log})
		if err != nil {
			return nil, nil, err
		}
		url = server.URL()
		stop = func() {
			if err := server.Stop(); err != nil {
				log.Error("the embedded PostgreSQL did not stop", "err", err)
			}
		}
	}
	pool, err := db.Open(ctx, url, o)
	if err != nil {
		stop()
		return nil, nil, err
	}
	return pool, func() { pool.Close(); stop() }, nil
}

// migrate brings the schema up to date, past a pooler if there is one.
func migrate(ctx context.Context, c config, log *slog.Logger) error {
	c.databaseURL = c.directURL
	pool, close, err := database(ctx, c, db.Options{Name: "holdfast migrate", MaxConns: 4}, log)
	if err != nil {
		return err
	}
	defer close()
	return db.Migrate(ctx, pool)
}

// check says what is wrong with the database; the configuration was read without fault already.
func check(ctx context.Context, c config, log *slog.Logger) error {
	pool, close, err := database(ctx, c, db.Options{Name: "holdfast check", MaxConns: 2}, log)
	if err != nil {
		return err
	}
	defer close()
	if err := db.UpToDate(ctx, pool); err != nil {
		return err
	}
	fmt.Println("the configuration and the database are in order")
	return nil
}

// serve wires the program together and runs it until ctx ends; then it lets requests and jobs finish.
func serve(ctx context.Context, c config, log *slog.Logger) error {
	pool, closePool, err := database(ctx, c, db.Options{Name: "holdfast", MaxConns: appConns, MinConns: 2}, log)
	if err != nil {
		return err
	}
	defer closePool()
	if c.databaseURL == "" { // a database of our own is kept up to date by us
		if err := db.Migrate(ctx, pool); err != nil {
			return err
		}
		c.directURL = pool.Config().ConnString()
	}
	if err := db.UpToDate(ctx, pool); err != nil {
		return err
	}
	jobPool, err := db.Open(ctx, c.directURL, db.Options{Name: "holdfast jobs", MaxConns: jobConns})
	if err != nil {
		return err
	}
	defer jobPool.Close()

	now, point := func() time.Time { return time.Now().UTC() }, waitlist.Point(waitlist.NoPoint)
	var clock *simClock
	var bridge string
	if c.sim != "" {
		clock = &simClock{log: log}
		if err := clock.start(ctx, c.sim); err != nil {
			return err
		}
		now, bridge = clock.now, c.sim+"/app-bridge.js"
		if c.crash {
			point = crashPoint(c.sim)
		}
	}

	shops := shop.NewStore(pool, c.keys)
	counted := newMetrics()
	admin, err := shopify.New(shopify.Config{ClientID: c.clientID, ClientSecret: c.clientSecret, Sim: c.sim, Called: counted.called}, shops, now, log)
	if err != nil {
		return err
	}
	counted.watch(admin.Budgets)
	verifier, err := shopify.NewVerifier(c.clientID, c.clientSecret, c.clientSecretOld)
	if err != nil {
		return err
	}
	sender, err := notify.New(notify.Config{PublicURL: c.public.String(), SMTPURL: c.smtpURL, EmailFrom: c.emailFrom, DKIMKey: c.dkimKey, DKIMSelector: c.dkimSelector, Sim: c.sim}, shops, log)
	if err != nil {
		return err
	}
	inserter, err := jobs.Inserter(pool)
	if err != nil {
		return err
	}
	list := waitlist.New(pool, inserter, c.keys, admin, sender, now, point, log)
	public, err := web.New(web.Config{Domain: list, Shops: shops, Texter: sender, Shopify: verifier, Install: admin, CookieKeys: c.keys.Derived("install cookie"), TrustedHops: c.hops, URL: c.public, EmailWebhookKey: c.emailWebhookKey,
		ClientID: c.clientID, AppBridgeURL: bridge, Webhook: counted.webhook, Now: now, Log: log})
	if err != nil {
		return err
	}
	ops := web.OpsConfig{Ping: pool.Ping, UpToDate: func(ctx context.Context) error { return db.UpToDate(ctx, pool) }, Metrics: counted.handler(), Log: log}
	if clock != nil {
		clock.sweep = list.Sweep
		ops.Clock = clock
	}

	id := processID(c.listen)
	if err := jobs.TakeBack(ctx, pool, list, id); err != nil {
		return err
	}
	working, err := jobs.New(jobPool, list, jobs.Config{ID: id, Workers: workers, Log: log})
	if err != nil {
		return err
	}
	// The jobs are told to stop by Stop, which waits for those under way, and not by ctx, which would cut them.
	if err := working.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("start jobs: %w", err)
	}
	log.Info("serving", "at", c.listen, "as", c.public.String())
	// Requests and jobs finish beside each other: both have the same time.
	ended, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		select {
		case <-ctx.Done():
		case <-ended: // a listener failed
		}
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
		defer cancel()
		stopped <- working.Stop(stopping)
	}()
	err = listen(ctx, web.Listener(c.listen, public, log), web.Listener(c.opsListen, web.Ops(ops), log))
	close(ended)
	if stopErr := <-stopped; stopErr != nil && !errors.Is(stopErr, context.DeadlineExceeded) {
		err = errors.Join(err, fmt.Errorf("stop jobs: %w", stopErr))
	}
	return err
}

// processID names this process in the records of jobs. A process that starts again at the same address is
// the successor of one that has ended, and takes back what that one was doing.
func processID(listen string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return host + " " + listen
}

// listen serves until ctx ends or a listener fails, then lets the requests under way finish.
func listen(ctx context.Context, servers ...*http.Server) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wait sync.WaitGroup
	for _, s := range servers {
		l, err := net.Listen("tcp", s.Addr)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		wait.Go(func() {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				cancel(fmt.Errorf("serve %s: %w", s.Addr, err))
			}
		})
	}
	<-ctx.Done()
	stopping, done := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer done()
	var faults []error
	for _, s := range servers {
		if err := s.Shutdown(stopping); err != nil {
			faults = append(faults, fmt.Errorf("stop %s: %w", s.Addr, err))
		}
	}
	wait.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		faults = append(faults, cause)
	}
	return errors.Join(faults...)
}
