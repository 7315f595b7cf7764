package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// patch is a rule taken out of the program.
type patch struct {
	file  string
	story string
	tests []testName // each must fail
}

// testName is a test, and the flags that it is run with.
type testName struct{ pkg, name, flags string }

var testLine = regexp.MustCompile(`^(\./\S+) (Test\w+)((?: -\S+)*)$`)

// readPatch reads the header of a patch.
func readPatch(file string) (patch, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return patch{}, err
	}
	p := patch{file: file}
	for line := range strings.Lines(string(text)) {
		comment, ok := strings.CutPrefix(line, "#")
		if !ok {
			break
		}
		comment = strings.TrimSpace(comment)
		if s, ok := strings.CutPrefix(comment, "story:"); ok {
			p.story = strings.TrimSpace(p.story + " " + strings.TrimSpace(s))
		} else if s, ok := strings.CutPrefix(comment, "test:"); ok {
			m := testLine.FindStringSubmatch(strings.TrimSpace(s))
			if m == nil {
				return patch{}, fmt.Errorf("%s: %q is not `# test: ./package TestName [flags]`", file, strings.TrimSpace(line))
			}
			p.tests = append(p.tests, testName{m[1], m[2], m[3]})
		} else if p.story != "" && len(p.tests) == 0 {
			p.story += " " + comment // the story goes on
		}
	}
	if p.story == "" || len(p.tests) == 0 {
		return patch{}, fmt.Errorf("%s: a patch begins with `# story: ...` and `# test: ./package TestName`", file)
	}
	return p, nil
}

// runPatches takes out one rule after the other, on a copy of the repository in root.
func (r *report) runPatches(ctx context.Context, root, pattern string) error {
	files, err := filepath.Glob(filepath.Join(root, "proof", pattern+".patch"))
	if err != nil {
		return err
	}
	var patches []patch
	var problems []error
	for _, f := range files {
		p, err := readPatch(f)
		problems = append(problems, err)
		patches = append(patches, p)
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "holdfast-proof-")
	if err != nil {
		return err
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(r.log, err)
		}
	}()
	if err := copyRepository(ctx, root, dir); err != nil {
		return err
	}
	whole := map[testName]outcome{} // with nothing taken out
	for _, p := range patches {
		begun := time.Now()
		x := result{name: filepath.Base(p.file), story: p.story}
		for _, t := range p.tests {
			x.test = strings.TrimSpace(x.test + " " + t.name + t.flags)
			if _, ok := whole[t]; !ok {
				if whole[t], err = runOne(ctx, dir, t); err != nil {
					return err
				}
			}
			if whole[t] != passed {
				x.wrong = fmt.Sprintf("%s of %s, with nothing taken out: %s", t.name, t.pkg, whole[t])
			}
		}
		if x.wrong == "" {
			if x.wrong, err = tryPatch(ctx, dir, p); err != nil {
				return err
			}
		}
		x.took = time.Since(begun)
		r.add(&r.patches, x)
	}
	return nil
}

// tryPatch applies a patch to the copy in dir, runs its tests, and takes the patch back. It returns
// what is not as it must be.
func tryPatch(ctx context.Context, dir string, p patch) (wrong string, err error) {
	file, err := filepath.Abs(p.file)
	if err != nil {
		return "", err
	}
	// Not as part of any repository: the copy is none.
	apply := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", append(append([]string{"apply"}, args...), file)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	if out, err := apply(); err != nil {
		return "does not apply: " + out, nil
	}
	for _, t := range p.tests {
		o, err := runOne(ctx, dir, t)
		if err != nil {
			return "", err
		}
		switch o {
		case failed:
		case passed:
			wrong = t.name + " does not notice"
		case unbuilt:
			wrong = "does not compile"
		case missing:
			wrong = t.name + " did not run"
		}
	}
	if out, err := apply("-R"); err != nil {
		return "", fmt.Errorf("%s cannot be taken back: %s", p.file, out)
	}
	return wrong, nil
}

func runOne(ctx context.Context, dir string, t testName) (outcome, error) {
	args := append([]string{"-count=1", "-timeout", "10m", "-vet=off", "-run", "^" + t.name + "$", t.pkg}, strings.Fields(t.flags)...)
	events, err := goTest(ctx, dir, args...)
	if err != nil {
		return "", err
	}
	return events.of(t.name), nil
}

// copyRepository copies the files of the repository in root as they are now, with what is not yet
// tracked and without what is ignored.
func copyRepository(ctx context.Context, root, to string) error {
	list, err := gitOutput(ctx, root, "ls-files", "-z", "-co", "--exclude-standard")
	if err != nil {
		return err
	}
	for _, name := range strings.Split(strings.TrimSuffix(list, "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // tracked, and deleted
		}
		if err != nil {
			return err
		}
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, text, info.Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}
