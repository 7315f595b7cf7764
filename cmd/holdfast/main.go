// Command holdfast is the program that merchants install: it serves the storefront's form, the shopper's
// links, the merchant's pages and the webhooks, and works the jobs that follow.
//
//	holdfast serve     serve and work until SIGTERM
//	holdfast migrate   bring the schema up to date
//	holdfast check     say what is wrong with the configuration and the database
//
// It is configured by the environment (config.go). Any number of processes may serve one database.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: holdfast [-embedded] serve | migrate | check

  serve     serve and work until SIGTERM
  migrate   bring the schema of the database up to date
  check     say what is wrong with the configuration and the database

The environment is described in README.md, "Configuration".
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "holdfast:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, env func(string) string) error {
	flags := flag.NewFlagSet("holdfast", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	embedded := flags.Bool("embedded", false, "keep the database on this machine, although the address is public")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return errors.New("wrong flag")
	}
	if flags.NArg() != 1 {
		fmt.Fprint(os.Stderr, usage)
		return errors.New("say what to do: serve, migrate or check")
	}
	do, ok := map[string]func(context.Context, config, *slog.Logger) error{"serve": serve, "migrate": migrate, "check": check}[flags.Arg(0)]
	if !ok {
		fmt.Fprint(os.Stderr, usage)
		return fmt.Errorf("unknown command %q", flags.Arg(0))
	}
	c, err := readConfig(env, *embedded)
	if err != nil {
		return fmt.Errorf("the configuration has faults:\n%w", err)
	}
	return do(ctx, c, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}
