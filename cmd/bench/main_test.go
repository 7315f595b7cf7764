package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPercentilesAreNearestRanks(t *testing.T) {
	t.Parallel()
	var ms []time.Duration
	for i := range 200 {
		ms = append(ms, time.Duration(i+1)*time.Millisecond)
	}
	for p, want := range map[float64]float64{50: 100, 99: 198, 100: 200} {
		if got := percentile(ms, p); got != want {
			t.Errorf("p%g is %g, want %g", p, got, want)
		}
	}
	if got := percentile(nil, 99); got != 0 {
		t.Errorf("of nothing: %g", got)
	}
}

func TestRoundsAreSummedAndShownBesideEachOther(t *testing.T) {
	t.Parallel()
	fast := []sample{{Latencies: []time.Duration{time.Millisecond, 3 * time.Millisecond}, Span: time.Second, Calls: 1}, {Latencies: []time.Duration{2 * time.Millisecond}, Span: 100 * time.Millisecond, Failed: 1}, {Latencies: []time.Duration{2 * time.Millisecond}, Span: time.Second}}
	r := summed("press", design{name: "held"}, fast, fast)
	if r.Rounds != 3 || r.Acts != 4 || r.PerSec != 2 || r.P50 != 2 || r.P99 != 3 || r.Failed != 1 || r.Calls != 1 {
		t.Fatalf("%+v", r)
	}
	var out bytes.Buffer
	if err := table(&out, []result{r}); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(out.String(), "\n"); len(lines) != 3 || !strings.Contains(lines[1], "press") {
		t.Fatalf("%s", out.String())
	}
}

func TestWhatCannotBeMeasuredIsSaid(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-only (":                            "-only",
		"-rounds 0":                          "-rounds",
		"-entries 3":                         "-entries",
		"-only press now":                    "now",
		"-holdfast /nowhere/holdfast":        "build it",
		"-holdfast /dev/null -only ^nothing": "names no scenario",
	} {
		if err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// Each scenario, as small as it can be, with the program as it is: it measures something, and nothing fails.
func TestEveryScenarioMeasures(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "holdfast")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "holdfast/cmd/holdfast").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	file, page := filepath.Join(t.TempDir(), "bench.json"), filepath.Join(t.TempDir(), "bench.md")
	if err := run(t.Context(), []string{"-holdfast", binary, "-only", "^(drop|press|join|notify|sweep|pages|refuse)$", "-rounds", "1", "-entries", "100", "-json", file, "-o", page}, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, x := range r.Results {
		seen[x.Scenario] = true
		if (x.Acts == 0 && x.Design != "presses meanwhile") || x.Failed > 0 {
			t.Errorf("%+v", x)
		}
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "| drop |") {
		t.Errorf("the page: %s, %v", text, err)
	}
	if len(seen) != 7 {
		t.Errorf("measured: %v", seen)
	}
}
