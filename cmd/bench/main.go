// Command bench measures the program beside its baselines, in one run on one machine: the program is a
// process of its own over a PostgreSQL with default durability, and Shopify and the mail server are
// simulated. Absolute numbers are this machine's; what counts is how they stand to each other.
//
//	bench -rounds 3 -json bench.json
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"text/tabwriter"
	"time"
)

// scenario is something that is measured; its designs are measured in turns, round by round.
type scenario struct {
	name    string
	about   string
	designs []design
}

// design is one way of doing it: the product's, or a baseline.
type design struct {
	name string
	run  func(ctx context.Context, b *bench) (sample, error)
}

// sample is one round of one design.
type sample struct {
	Latencies []time.Duration // of each act, from the moment at which it was due
	Span      time.Duration   // from the first to the last
	Failed    int             // acts with another answer than they must have
	Calls     int             // of Shopify, while it ran
}

// result is all rounds of a design.
type result struct {
	Scenario string  `json:"scenario"`
	Design   string  `json:"design"`
	Rounds   int     `json:"rounds"`
	Acts     int     `json:"acts"`
	PerSec   float64 `json:"per_second"` // median of the rounds
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	Failed   int     `json:"failed"`
	Calls    int     `json:"shopify_calls"`
}

// bench is what the scenarios are run with.
type bench struct {
	binary string
	log    io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	only := flags.String("only", ".", "scenarios to run, as a regular expression")
	rounds := flags.Int("rounds", 3, "rounds of each design")
	file := flags.String("json", "", "file that the numbers are written to, too")
	binary := flags.String("holdfast", filepath.Join(filepath.Dir(self), "holdfast"), "the built program")
	if err := flags.Parse(args); err != nil {
		return err
	}
	which, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if *rounds < 1 {
		return fmt.Errorf("-rounds %d: at least 1", *rounds)
	}
	if _, err := os.Stat(*binary); err != nil {
		return fmt.Errorf("the program is not there: %w (build it: go build -o %s ./cmd/holdfast)", err, *binary)
	}
	b := &bench{binary: *binary, log: io.Discard}
	var results []result
	for _, s := range []scenario{press} {
		if !which.MatchString(s.name) {
			continue
		}
		fmt.Fprintf(progress, "%s: %s\n", s.name, s.about)
		samples := make([][]sample, len(s.designs))
		for round := range *rounds {
			for i, d := range s.designs {
				fmt.Fprintf(progress, "  round %d of %d, %s\n", round+1, *rounds, d.name)
				got, err := d.run(ctx, b)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", s.name, d.name, err)
				}
				samples[i] = append(samples[i], got)
			}
		}
		for i, d := range s.designs {
			results = append(results, summed(s.name, d.name, samples[i]))
		}
	}
	if len(results) == 0 {
		return fmt.Errorf("-only %q names no scenario", *only)
	}
	if err := table(out, results); err != nil {
		return err
	}
	if *file == "" {
		return nil
	}
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*file, append(text, '\n'), 0o644)
}

// summed is the sum of all rounds: the median of the rates, the percentiles over every act.
func summed(scenario, design string, samples []sample) result {
	r := result{Scenario: scenario, Design: design, Rounds: len(samples)}
	var all []time.Duration
	var rates []float64
	for _, s := range samples {
		all = append(all, s.Latencies...)
		rates = append(rates, float64(len(s.Latencies))/s.Span.Seconds())
		r.Failed += s.Failed
		r.Calls += s.Calls
	}
	slices.Sort(all)
	slices.Sort(rates)
	r.Acts, r.PerSec = len(all), rates[len(rates)/2]
	r.P50, r.P99 = percentile(all, 50), percentile(all, 99)
	return r
}

// percentile is the nearest-rank percentile of sorted times, in milliseconds.
func percentile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := int(math.Ceil(p / 100 * float64(len(sorted))))
	return float64(sorted[max(0, at-1)].Microseconds()) / 1000
}

func table(out io.Writer, results []result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "scenario\tdesign\tacts\tper second\tp50 ms\tp99 ms\tfailed\tShopify calls\t")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%s\t%d\t%.0f\t%.1f\t%.1f\t%d\t%d\t\n", r.Scenario, r.Design, r.Acts, r.PerSec, r.P50, r.P99, r.Failed, r.Calls)
	}
	return w.Flush()
}
