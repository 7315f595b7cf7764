// Command demo runs the whole product on this machine: the built program as child processes, a PostgreSQL
// of its own, and a simulated Shopify, Twilio and mail server that scripts and people can play with. See
// package stage, and the start page at the address that it prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"holdfast/cmd/demo/stage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, errOut io.Writer) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	bin := filepath.Dir(self)
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(errOut)
	listen := flags.String("listen", "127.0.0.1:8080", "address of the app")
	sim := flags.String("sim", "127.0.0.1:8081", "address of the simulators")
	apps := flags.Int("apps", 1, "processes of the app, behind a balancer")
	data := flags.String("data", "", "folder that keeps the database (default: a temporary folder)")
	binary := flags.String("holdfast", filepath.Join(bin, "holdfast"), "the built program")
	source := flags.String("source", filepath.Dir(bin), "the project's folder, for the theme block and its renderer")
	verbose := flags.Bool("v", false, "show the app's log here instead of in a file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	case *apps < 1 || *apps > 64:
		return fmt.Errorf("-apps %d: from 1 to 64", *apps)
	}
	if _, err := os.Stat(*binary); err != nil {
		return fmt.Errorf("the program is not there: %w (build it: go build -o %s ./cmd/holdfast)", err, *binary)
	}

	logs := errOut
	if !*verbose {
		f, err := os.CreateTemp("", "holdfast-demo-*.log")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		logs = f
		fmt.Fprintf(out, "logs in %s\n", f.Name())
	}
	cache, err := os.UserCacheDir()
	if err != nil { // no home: what is downloaded then does not outlive the machine's next start
		cache = os.TempDir()
	}
	s, err := stage.Start(ctx, stage.Options{
		Binary: *binary, Listen: *listen, Sim: *sim, Apps: *apps, DataDir: *data, DatabaseURL: os.Getenv("DATABASE_URL"),
		CacheDir: filepath.Join(cache, "holdfast"), Source: *source, AppLog: logs, Log: slog.New(slog.NewTextHandler(logs, nil)),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	fmt.Fprintf(out, "ready in %.1f s\n\n", s.Took().Seconds())
	fmt.Fprintf(out, "  start here   %s/\n  the app      %s\n  inbox        %s/inbox\n", s.SimURL, s.AppURL, s.SimURL)
	fmt.Fprintf(out, "  storefront   %s/shops/%s/products/oak-chair\n  admin        %s/admin/%s\n", s.SimURL, stage.FirstShop, s.SimURL, stage.FirstShop)
	list, err := s.Processes(ctx)
	if err != nil {
		return err
	}
	for _, p := range list {
		fmt.Fprintf(out, "  app %d        pid %d at %s\n", p.N, p.PID, p.Address)
	}
	fmt.Fprintf(out, "\nCtrl-C stops everything.\n")
	<-ctx.Done()
	began := time.Now()
	if err := s.Close(); err != nil {
		return err
	}
	fmt.Fprintf(out, "stopped in %.1f s\n", time.Since(began).Seconds())
	return nil
}
