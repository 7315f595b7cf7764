// Proof runs the long forms of what `make test` runs, and writes down what it saw in docs/proof.md:
//
//   - every test with the build tag proof, with which the tests that explore histories and kill
//     processes do so many more times;
//   - every fuzz target, for a while;
//   - every patch of the folder proof, one at a time, on a copy of the repository. Each takes one rule
//     out of the program, and the test that it names must fail then, and pass without it.
//
// A patch begins with its header, as comments, and goes on as `git diff` prints it:
//
//	# story: what happens without the rule
//	# test: ./app/waitlist TestName [-flag=value ...]
//
// Run it in the root of the repository. It exits with 1 when anything is not as it must be.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	out := flag.String("o", "docs/proof.md", "file to write")
	only := flag.String("only", "tests,fuzz,patches", "what to run; the file is written only when everything is")
	pattern := flag.String("patches", "*", "the patches to try: a pattern of their names without .patch")
	fuzzTime := flag.Duration("fuzztime", time.Minute, "time for each fuzz target")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := report{begun: time.Now(), log: os.Stdout}
	err := run(ctx, &r, *only, *fuzzTime, *pattern)
	if all := *only == flag.Lookup("only").DefValue && *pattern == "*"; err == nil && all {
		err = r.write(ctx, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
	if !r.ok() {
		fmt.Fprintln(os.Stderr, "proof: not everything is as it must be")
		os.Exit(1)
	}
}

func run(ctx context.Context, r *report, only string, fuzzTime time.Duration, pattern string) error {
	for _, part := range strings.Split(only, ",") {
		var err error
		switch part {
		case "tests":
			err = r.runTests(ctx)
		case "fuzz":
			err = r.runFuzz(ctx, fuzzTime)
		case "patches":
			err = r.runPatches(ctx, ".", pattern)
		default:
			err = fmt.Errorf("-only takes tests, fuzz and patches, not %q", part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// result is one line of a table.
type result struct {
	name  string
	story string // of a patch
	test  string // of a patch
	count int    // of a package: how many tests passed
	took  time.Duration
	wrong string // what is not as it must be; "" = nothing
}

func (r result) String() string {
	s := fmt.Sprintf("%-5s %-60s %8s", "ok", r.name, r.took.Round(100*time.Millisecond))
	if r.wrong != "" {
		s = "FAIL" + s[4:] + "  " + r.wrong
	}
	return s
}

type report struct {
	begun                time.Time
	log                  io.Writer
	tests, fuzz, patches []result
}

func (r *report) ok() bool {
	for _, x := range slices.Concat(r.tests, r.fuzz, r.patches) {
		if x.wrong != "" {
			return false
		}
	}
	return true
}

func (r *report) add(to *[]result, x result) {
	*to = append(*to, x)
	fmt.Fprintln(r.log, x)
}

func (r *report) runTests(ctx context.Context) error {
	events, err := goTest(ctx, ".", "-tags", "proof", "-race", "-count=1", "-timeout", "60m", "./...")
	if err != nil {
		return err
	}
	for _, p := range events.packages() {
		x := result{name: strings.TrimPrefix(p.name, "holdfast/"), count: p.passed, took: p.took}
		if p.failed {
			x.wrong = "failed: " + strings.Join(p.failures, ", ")
			fmt.Fprintln(r.log, p.output)
		}
		if p.failed || p.passed > 0 {
			r.add(&r.tests, x)
		}
	}
	return nil
}

func (r *report) runFuzz(ctx context.Context, each time.Duration) error {
	list, err := goTest(ctx, ".", "-list", "^Fuzz", "./...")
	if err != nil {
		return err
	}
	for _, p := range list.packages() {
		if p.failed {
			return fmt.Errorf("%s: %s", p.name, p.output)
		}
		for line := range strings.Lines(p.output) {
			target := strings.TrimSpace(line)
			if !strings.HasPrefix(target, "Fuzz") {
				continue
			}
			begun := time.Now()
			events, err := goTest(ctx, ".", "-run", "^$", "-fuzz", "^"+target+"$", "-fuzztime", each.String(), p.name)
			if err != nil {
				return err
			}
			x := result{name: strings.TrimPrefix(p.name, "holdfast/") + " " + target, took: time.Since(begun)}
			for _, q := range events.packages() {
				if q.failed {
					x.wrong = "failed"
					fmt.Fprintln(r.log, q.output)
				}
			}
			r.add(&r.fuzz, x)
		}
	}
	return nil
}

// write renders docs/proof.md.
func (r *report) write(ctx context.Context, path string) error {
	commit, err := gitOutput(ctx, ".", "rev-parse", "--short=12", "HEAD")
	if err != nil {
		return err
	}
	changed, err := gitOutput(ctx, ".", "status", "--porcelain")
	if err != nil {
		return err
	}
	commit = "commit " + strings.TrimSpace(commit)
	if changed != "" {
		commit += " with changes that were not committed"
	}
	verdict := "Everything is as it must be."
	if !r.ok() {
		verdict = "**Not everything is as it must be.**"
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# Proof

Written by `+"`make proof`"+` on %s, of %s, in %s, with %s on %s/%s with %d CPUs. %s

## Every test, in its long form

With the race detector, and the build tag `+"`proof`"+`.

| package | tests passed | time | |
|---|---|---|---|
`, r.begun.UTC().Format("2006-01-02 15:04 UTC"), commit, time.Since(r.begun).Round(time.Second), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), verdict)
	for _, x := range r.tests {
		fmt.Fprintf(&b, "| %s | %d | %s | %s |\n", x.name, x.count, seconds(x.took), x.verdict("ok"))
	}
	b.WriteString("\n## Fuzzing\n\n| target | time | |\n|---|---|---|\n")
	for _, x := range r.fuzz {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", x.name, seconds(x.took), x.verdict("nothing found"))
	}
	b.WriteString("\n## Every rule, taken out\n\nEach patch takes one rule out of the program; the test must fail then, and passes without it.\n\n| patch | without the rule | test | |\n|---|---|---|---|\n")
	for _, x := range r.patches {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", x.name, cell(x.story), x.test, x.verdict("noticed"))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

func (r result) verdict(good string) string {
	if r.wrong != "" {
		return "**" + cell(r.wrong) + "**"
	}
	return good
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// cell is text that may stand in a cell of a table.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}

func gitOutput(ctx context.Context, dir string, args ...string) (string, error) {
	// The repository may belong to another user than the one who runs this, as in a container.
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "safe.directory=*"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if e := (*exec.ExitError)(nil); errors.As(err, &e) {
		return "", fmt.Errorf("git %s: %s", strings.Join(args, " "), strings.TrimSpace(string(e.Stderr)))
	}
	return string(out), err
}
