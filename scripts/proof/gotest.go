package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// event is a line of `go test -json` (see `go doc test2json`).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build output
	Test        string
	Elapsed     float64 // seconds
	Output      string
	FailedBuild string // of a package whose test could not be built: whose building failed
}

type events []event

// goTest runs `go test -json` in dir. That tests fail is no error, but a command that cannot run is one.
func goTest(ctx context.Context, dir string, args ...string) (events, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if e := (*exec.ExitError)(nil); err != nil && !errors.As(err, &e) {
		return nil, err
	}
	var all events
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go test %s: %w: %s", strings.Join(args, " "), err, &stderr)
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("go test %s: %v: %s", strings.Join(args, " "), err, &stderr)
	}
	return all, nil
}

// tested is what became of a package.
type tested struct {
	name     string
	passed   int // tests, without their subtests
	failed   bool
	failures []string // tests, without their subtests
	took     time.Duration
	output   string
}

// packages gathers the events of each package, in the order in which the packages began.
func (all events) packages() []*tested {
	var list []*tested
	byName := map[string]*tested{}
	built := map[string]string{} // what the compiler said
	for _, e := range all {
		if e.Package == "" {
			built[e.ImportPath] += e.Output
			continue
		}
		p := byName[e.Package]
		if p == nil {
			p = &tested{name: e.Package}
			byName[e.Package], list = p, append(list, p)
		}
		p.output += e.Output
		top := e.Test != "" && !strings.Contains(e.Test, "/")
		switch {
		case e.Action == "pass" && top:
			p.passed++
		case e.Action == "fail" && top:
			p.failures = append(p.failures, e.Test)
		case e.Action == "fail" && e.Test == "":
			p.failed = true
			p.output += built[e.FailedBuild]
		}
		if e.Test == "" && (e.Action == "pass" || e.Action == "fail") {
			p.took = time.Duration(e.Elapsed * float64(time.Second))
		}
	}
	return list
}

// outcome is what became of one test.
type outcome string

const (
	passed  outcome = "passed"
	failed  outcome = "failed"
	missing outcome = "missing" // there is no test of this name, or it was skipped
	unbuilt outcome = "unbuilt" // the package or its test does not compile
)

// of returns what became of a test that was run. One that ended with the whole program, as by a panic
// elsewhere or the time limit, has failed.
func (all events) of(test string) outcome {
	began, ended := false, missing
	for _, e := range all {
		switch {
		case e.FailedBuild != "":
			return unbuilt
		case e.Test == test && e.Action == "run":
			began = true
		case e.Test == test && e.Action == "pass":
			ended = passed
		case e.Test == test && e.Action == "fail":
			ended = failed
		case e.Test == "" && e.Action == "fail" && began && ended == missing:
			ended = failed
		}
	}
	return ended
}
