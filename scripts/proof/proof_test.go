package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository makes a little one, with a rule, its test, and a patch for each name in patches.
func repository(t *testing.T, patches map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"go.mod":     "module little\n\ngo 1.26\n",
		".gitignore": "ignored\n",
		"ignored":    "",
		"rule/rule.go": `package rule

// Take takes a unit, if there is one.
func Take(units int) int {
	if units == 0 {
		return 0
	}
	return units - 1
}
`,
		"rule/rule_test.go": `package rule

import "testing"

func TestNothingIsTakenFromNothing(t *testing.T) {
	if n := Take(0); n != 0 {
		t.Error(n)
	}
}

func TestOneIsTaken(t *testing.T) {
	if n := Take(2); n != 1 {
		t.Error(n)
	}
}

func TestIsBroken(t *testing.T) { t.Error("always") }
`,
	}
	for name, text := range patches {
		files["proof/"+name] = text
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("git", "init", "-q")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

func change(header, to string) string {
	return header + `
diff --git a/rule/rule.go b/rule/rule.go
--- a/rule/rule.go
+++ b/rule/rule.go
@@ -2,7 +2,7 @@

 // Take takes a unit, if there is one.
 func Take(units int) int {
-	if units == 0 {
+	` + to + `
 		return 0
 	}
 	return units - 1
`
}

func TestAPatchMustBeNoticedByTheTestThatItNames(t *testing.T) {
	t.Parallel()
	const story = "# story: a unit is taken\n#   from nothing | and so on\n"
	want := map[string]string{
		"a-noticed.patch":   "",
		"b-unnoticed.patch": "TestOneIsTaken does not notice",
		"c-half.patch":      "TestOneIsTaken does not notice",
		"d-compile.patch":   "does not compile",
		"e-stale.patch":     "does not apply: ",
		"f-no-test.patch":   "TestNoSuch of ./rule, with nothing taken out: missing",
		"g-broken.patch":    "TestIsBroken of ./rule, with nothing taken out: failed",
		"h-panics.patch":    "",
		"i-after.patch":     "", // the patches before it were taken back
	}
	noticed := change(story+"# test: ./rule TestNothingIsTakenFromNothing", "if units < 0 {")
	root := repository(t, map[string]string{
		"a-noticed.patch":   noticed,
		"b-unnoticed.patch": change(story+"# test: ./rule TestOneIsTaken", "if units < 0 {"),
		"c-half.patch":      change(story+"# test: ./rule TestNothingIsTakenFromNothing\n# test: ./rule TestOneIsTaken", "if units < 0 {"),
		"d-compile.patch":   change(story+"# test: ./rule TestOneIsTaken", "if unit < 0 {"),
		"e-stale.patch":     strings.ReplaceAll(change(story+"# test: ./rule TestOneIsTaken", "if units < 0 {"), "units == 0", "units == 1"),
		"f-no-test.patch":   change(story+"# test: ./rule TestNoSuch", "if units < 0 {"),
		"g-broken.patch":    change(story+"# test: ./rule TestIsBroken", "if units < 0 {"),
		"h-panics.patch":    change(story+"# test: ./rule TestOneIsTaken", `if panic("now"); units == 0 {`),
		"i-after.patch":     noticed,
	})
	r := report{log: io.Discard}
	if err := r.runPatches(context.Background(), root, "*"); err != nil {
		t.Fatal(err)
	}
	if len(r.patches) != len(want) {
		t.Errorf("%d patches were tried, want %d", len(r.patches), len(want))
	}
	for _, x := range r.patches {
		if w := want[x.name]; x.wrong != w && (w == "" || !strings.HasPrefix(x.wrong, w)) {
			t.Errorf("%s: %q, want %q", x.name, x.wrong, w)
		}
		if x.story != "a unit is taken from nothing | and so on" {
			t.Errorf("%s tells %q", x.name, x.story)
		}
	}
	if r.ok() {
		t.Error("the report says that all is well")
	}
}

func TestAPatchWithoutAHeaderIsRefused(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"":                                "begins with",
		"# story: of nothing":             "begins with",
		"# test: ./rule TestOneIsTaken":   "begins with",
		"# story: x\n# test: rule TestIt": "is not `# test: ./package TestName [flags]`",
	} {
		root := repository(t, map[string]string{"x.patch": change(header, "if units < 0 {")})
		r := report{log: io.Discard}
		if err := r.runPatches(context.Background(), root, "*"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with the header %q: %v", header, err)
		}
	}
}

func TestTheCopyHoldsWhatIsNotIgnored(t *testing.T) {
	t.Parallel()
	root, to := repository(t, nil), t.TempDir()
	if err := copyRepository(context.Background(), root, to); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(to, "rule", "rule.go")); err != nil {
		t.Error(err)
	}
	for _, not := range []string{"ignored", ".git"} {
		if _, err := os.Stat(filepath.Join(to, not)); err == nil {
			t.Errorf("%s was copied", not)
		}
	}
}

func TestTheReportNamesWhatFailed(t *testing.T) {
	t.Parallel()
	all := events{
		{Action: "start", Package: "holdfast/a"},
		{Action: "run", Package: "holdfast/a", Test: "TestA"},
		{Action: "pass", Package: "holdfast/a", Test: "TestA/sub"},
		{Action: "pass", Package: "holdfast/a", Test: "TestA"},
		{Action: "run", Package: "holdfast/a", Test: "TestB"},
		{Action: "output", Package: "holdfast/a", Test: "TestB", Output: "wrong\n"},
		{Action: "fail", Package: "holdfast/a", Test: "TestB"},
		{Action: "fail", Package: "holdfast/a", Elapsed: 1.5},
		{Action: "build-output", ImportPath: "holdfast/b", Output: "does not compile\n"},
		{Action: "fail", Package: "holdfast/b", FailedBuild: "holdfast/b"},
	}
	p := all.packages()
	if len(p) != 2 {
		t.Fatalf("%d packages", len(p))
	}
	if a := p[0]; a.passed != 1 || !a.failed || strings.Join(a.failures, " ") != "TestB" || !strings.Contains(a.output, "wrong") || a.took.Seconds() != 1.5 {
		t.Errorf("a: %+v", a)
	}
	if b := p[1]; !b.failed || !strings.Contains(b.output, "does not compile") {
		t.Errorf("b: %+v", b)
	}
	path := filepath.Join(t.TempDir(), "docs", "proof.md")
	r := report{log: io.Discard, patches: []result{{name: "a.patch", story: "one | two", test: "TestA", wrong: "TestA does not notice"}}}
	if err := r.write(context.Background(), path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"**Not everything is as it must be.**", `| a.patch | one \| two | TestA | **TestA does not notice** |`, "commit "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}
