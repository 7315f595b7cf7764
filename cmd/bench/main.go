// Command bench measures what must be quick, each thing beside its baselines in one run on one machine. The
// program is a process of its own over the embedded PostgreSQL, whose durability is PostgreSQL's default;
// Shopify and the mail server are simulated, in this process. Absolute numbers are this machine's: what counts
// is how those of one run stand to each other.
//
//	bench -rounds 3 -json bench.json
//	bench -only '^claim$' -entries 10000
package main

import (
	"cmp"
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
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// scenario is something that is measured.
type scenario struct {
	name  string
	about string
	// open prepares it and returns its designs, which are measured in turns, round by round. close is called
	// when all rounds are over.
	open func(ctx context.Context, b *bench) (designs []design, close func() error, err error)
}

// design is one way of doing it: the product's, or a baseline.
type design struct {
	group string // what is compared: the first design of a group is the product's, the others stand beside it
	name  string
	run   func(ctx context.Context) (sample, error)
}

// sample is one round of one design.
type sample struct {
	Latencies []time.Duration // of each act, from the moment at which it was due
	Span      time.Duration   // from the first to the last
	Failed    int             // acts with another answer than they must have
	Calls     int             // of Shopify, while it ran
	Memory    int64           // most resident memory of the program's process so far, in bytes; 0 when there was none
	Note      string
}

func (s sample) rate() float64 { return float64(len(s.Latencies)) / max(s.Span.Seconds(), 1e-9) }

// result is all rounds of a design.
type result struct {
	Scenario string  `json:"scenario"`
	Group    string  `json:"group,omitempty"`
	Design   string  `json:"design"`
	Rounds   int     `json:"rounds"`
	Acts     int     `json:"acts"`
	PerSec   float64 `json:"per_second"` // median of the rounds
	Ratio    float64 `json:"ratio"`      // of the group's first design to this one, by rate; median of the rounds
	P50      float64 `json:"p50_ms"`     // of all rounds' acts, as are the others
	P95      float64 `json:"p95_ms"`
	P99      float64 `json:"p99_ms"`
	Longest  float64 `json:"longest_ms"`
	Failed   int     `json:"failed"`
	Calls    int     `json:"shopify_calls"`
	MemoryMB float64 `json:"memory_mb"`
	Note     string  `json:"note,omitempty"` // of the last round
}

// report is what the file holds.
type report struct {
	At      time.Time `json:"at"`
	CPUs    int       `json:"cpus"`
	Go      string    `json:"go"`
	Entries int       `json:"entries"`
	Results []result  `json:"results"`
}

// scenarios are in the order of the path: told, pressed, ended; then what stands beside it.
var scenarios = []scenario{claim, refuse, drop, press, join, notice, sweep, pages, observe}

// bench is what the scenarios are run with.
type bench struct {
	binary string
	// entries is the size of the largest table; everything else is as much smaller as it is smaller than a
	// million.
	entries  int
	progress io.Writer
}

const fullEntries = 1_000_000

// of scales a number of the full size, and never below least.
func (b *bench) of(full, least int) int {
	return max(least, int(int64(full)*int64(b.entries)/fullEntries))
}

func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.progress, "  "+format+"\n", args...) }

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
	entries := flags.Int("entries", fullEntries, "entries of the largest table; everything else is scaled with it")
	file := flags.String("json", "", "file that the numbers are written to, too")
	page := flags.String("o", "", "file that the table is written to, too, as docs/bench.md")
	binary := flags.String("holdfast", filepath.Join(filepath.Dir(self), "holdfast"), "the built program")
	if err := flags.Parse(args); err != nil {
		return err
	}
	which, err := regexp.Compile(*only)
	switch {
	case err != nil:
		return fmt.Errorf("-only: %w", err)
	case flags.NArg() > 0:
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	case *rounds < 1:
		return fmt.Errorf("-rounds %d: at least 1", *rounds)
	case *entries < 100 || *entries > 10*fullEntries:
		return fmt.Errorf("-entries %d: from 100 to %d", *entries, 10*fullEntries)
	}
	if _, err := os.Stat(*binary); err != nil {
		return fmt.Errorf("the program is not there: %w (build it: go build -o %s ./cmd/holdfast)", err, *binary)
	}
	b := &bench{binary: *binary, entries: *entries, progress: progress}
	r := report{At: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), Go: runtime.Version(), Entries: *entries}
	for _, s := range scenarios {
		if !which.MatchString(s.name) {
			continue
		}
		fmt.Fprintf(progress, "%s: %s\n", s.name, s.about)
		results, err := measure(ctx, b, s, *rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		r.Results = append(r.Results, results...)
	}
	if len(r.Results) == 0 {
		return fmt.Errorf("-only %q names no scenario", *only)
	}
	if err := table(out, r.Results); err != nil {
		return err
	}
	if *page != "" {
		if err := os.WriteFile(*page, []byte(markdown(r)), 0o644); err != nil {
			return err
		}
	}
	if *file == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*file, append(text, '\n'), 0o644)
}

// measure runs all rounds of a scenario.
func measure(ctx context.Context, b *bench, s scenario, rounds int) (_ []result, err error) {
	designs, close, err := s.open(ctx, b)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, close()) }()
	samples := make([][]sample, len(designs))
	for round := range rounds {
		for i, d := range designs {
			got, err := d.run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", d.group, d.name, err)
			}
			samples[i] = append(samples[i], got)
			one := summed(s.name, d, []sample{got}, nil)
			b.say("round %d of %d, %s%s: %d acts, %.0f/s, p99 %.1f ms %s", round+1, rounds, prefix(d.group), d.name, one.Acts, one.PerSec, one.P99, got.Note)
		}
	}
	var results []result
	first := 0
	for i, d := range designs {
		if d.group != designs[first].group {
			first = i
		}
		results = append(results, summed(s.name, d, samples[i], samples[first]))
	}
	return results, nil
}

func prefix(group string) string {
	if group == "" {
		return ""
	}
	return group + ", "
}

// summed is the sum of all rounds: medians of rates and ratios, percentiles over every act. first are the
// rounds of the group's first design, nil for none.
func summed(scenario string, d design, samples, first []sample) result {
	r := result{Scenario: scenario, Group: d.group, Design: d.name, Rounds: len(samples)}
	var all []time.Duration
	var rates, ratios []float64
	for i, s := range samples {
		all = append(all, s.Latencies...)
		rates = append(rates, s.rate())
		if first != nil && s.rate() > 0 {
			ratios = append(ratios, first[i].rate()/s.rate())
		}
		r.Failed += s.Failed
		r.Calls += s.Calls
		r.MemoryMB = max(r.MemoryMB, float64(s.Memory)/1e6)
		r.Note = cmp.Or(s.Note, r.Note)
	}
	slices.Sort(all)
	r.Acts, r.PerSec, r.Ratio = len(all), median(rates), median(ratios)
	r.P50, r.P95, r.P99, r.Longest = percentile(all, 50), percentile(all, 95), percentile(all, 99), percentile(all, 100)
	return r
}

func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[len(of)/2]
}

// percentile is the nearest-rank percentile of sorted times, in milliseconds.
func percentile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := int(math.Ceil(p / 100 * float64(len(sorted))))
	return float64(sorted[max(0, at-1)].Microseconds()) / 1000
}

// markdown is the report as a page.
func markdown(r report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# What is quick\n\nWritten by `make bench ARGS='-o docs/bench.md'` on %s, with %s on %d CPUs that also ran PostgreSQL, the simulators and\n"+
		"the load, and with %d entries in the largest table. Within a group the first design is the product's; `x` is how many times as\n"+
		"many acts a second it does as the one in the row. Numbers are this machine's, and what they must be stands in no test.\n\n"+
		"| scenario | group | design | acts | a second | x | p50 ms | p95 ms | p99 ms | failed | calls of Shopify | MB | |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
		r.At.Format("2006-01-02 15:04 UTC"), r.Go, r.CPUs, r.Entries)
	for _, x := range r.Results {
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %.0f | %.2f | %.2f | %.1f | %.1f | %d | %d | %.0f | %s |\n",
			x.Scenario, x.Group, x.Design, x.Acts, x.PerSec, x.Ratio, x.P50, x.P95, x.P99, x.Failed, x.Calls, x.MemoryMB, x.Note)
	}
	return b.String()
}

func table(out io.Writer, results []result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "scenario\tgroup\tdesign\tacts\tper second\tfirst is x\tp50 ms\tp95 ms\tp99 ms\tlongest\tfailed\tShopify calls\tMB\t")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%.0f\t%.2f\t%.2f\t%.1f\t%.1f\t%.0f\t%d\t%d\t%.0f\t%s\n",
			r.Scenario, r.Group, r.Design, r.Acts, r.PerSec, r.Ratio, r.P50, r.P95, r.P99, r.Longest, r.Failed, r.Calls, r.MemoryMB, r.Note)
	}
	return w.Flush()
}
