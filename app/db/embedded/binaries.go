package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"

	"holdfast/app/db"
)

// binaries is a folder that holds initdb and postgres of one version.
type binaries struct {
	dir   string
	major int
}

// choose finds the binaries to run on the data in root.
func choose(ctx context.Context, o Options, root string, look func(context.Context) []string) (binaries, error) {
	var found, old []binaries
	dirs := []string{o.BinDir}
	if o.BinDir == "" {
		dirs = look(ctx)
	}
	for _, dir := range dirs {
		b, err := inspect(ctx, dir)
		switch {
		case err != nil && o.BinDir != "":
			return binaries{}, err
		case err != nil: // not a server's folder after all
		case b.major < db.OldestMajor:
			old = append(old, b)
		default:
			found = append(found, b)
		}
	}
	kept := dataIn(root)
	// Those that have data first, then the newest; of equals, the one that was found first.
	slices.SortStableFunc(found, func(a, b binaries) int {
		return cmp.Or(cmp.Compare(rank(kept, b.major), rank(kept, a.major)), cmp.Compare(b.major, a.major))
	})
	if len(found) > 0 && (len(kept) == 0 || slices.Contains(kept, found[0].major)) {
		return found[0], nil
	}
	if o.BinDir != "" && len(found) == 0 {
		return binaries{}, fmt.Errorf("%s is PostgreSQL %d, and Holdfast needs %d or newer", old[0].dir, old[0].major, db.OldestMajor)
	}
	why := "no PostgreSQL server was found"
	if len(old) > 0 {
		why = fmt.Sprintf("only PostgreSQL %d was found, in %s", old[0].major, old[0].dir)
	}
	if len(kept) > 0 && !slices.Contains(kept, downloadMajor) {
		if len(found) > 0 {
			why = fmt.Sprintf("only PostgreSQL %d was found, in %s", found[0].major, found[0].dir)
		}
		return binaries{}, fmt.Errorf("%s, but %s holds data of PostgreSQL %d: install that version, move the data with pg_upgrade, or choose another data folder",
			why, root, kept[len(kept)-1])
	}
	if o.CacheDir == "" || o.BinDir != "" {
		return binaries{}, fmt.Errorf("%s: %s", why, installHint(runtime.GOOS))
	}
	b, err := download(ctx, o)
	if err != nil {
		return binaries{}, fmt.Errorf("%s, and PostgreSQL %d could not be downloaded (%w): %s", why, downloadMajor, err, installHint(runtime.GOOS))
	}
	return b, nil
}

func rank(kept []int, major int) int {
	if slices.Contains(kept, major) {
		return 1
	}
	return 0
}

// dataIn lists the major versions that have data in root, in rising order.
func dataIn(root string) []int {
	var majors []int
	files, _ := filepath.Glob(filepath.Join(root, "*", "data", "PG_VERSION")) // fails for a bad pattern alone
	for _, f := range files {
		if n, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(f)))); err == nil {
			majors = append(majors, n)
		}
	}
	slices.Sort(majors)
	return majors
}

func installHint(goos string) string {
	const elsewhere = ", or set DATABASE_URL to a PostgreSQL that runs elsewhere"
	if goos == "darwin" {
		return "install one with `brew install postgresql@17`" + elsewhere
	}
	return "install one with `apt-get update && apt-get install -y postgresql` (Debian, Ubuntu) or your system's package manager" + elsewhere
}

// installed lists the folders where a PostgreSQL server may be, best first.
func installed(ctx context.Context) []string {
	var dirs []string
	if p, err := exec.LookPath("postgres"); err == nil {
		// A link may stand alone in its folder; initdb is beside what it points to.
		if p, err := filepath.EvalSymlinks(p); err == nil {
			dirs = append(dirs, filepath.Dir(p))
		}
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
		"/usr/pgsql-*/bin",                                   // the PostgreSQL project's RPMs
		"/opt/homebrew/opt/postgresql*/bin",                  // Homebrew on Apple silicon
		"/usr/local/opt/postgresql*/bin",                     // Homebrew on Intel
		"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
		"/usr/local/pgsql/bin",                               // built from source
	} {
		found, _ := filepath.Glob(pattern) // fails for a bad pattern alone
		dirs = append(dirs, found...)
	}
	return dirs
}

var versionLine = regexp.MustCompile(`^postgres \(PostgreSQL\) (\d+)`)

// inspect asks the server in dir for its version.
func inspect(ctx context.Context, dir string) (binaries, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return binaries{}, fmt.Errorf("%s is not a folder of PostgreSQL's server: %w", dir, err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version")
	cmd.Env = environment()
	out, err := cmd.Output()
	if err != nil {
		return binaries{}, fmt.Errorf("%s/postgres --version: %w", dir, err)
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return binaries{}, fmt.Errorf("%s/postgres --version says %q", dir, out)
	}
	major, err := strconv.Atoi(string(m[1]))
	return binaries{dir, major}, err
}

// What is downloaded when nothing is installed.
const (
	downloadVersion = embeddedpostgres.V18
	downloadMajor   = 18
)

// download fetches server binaries into the cache, unless they are there.
func download(ctx context.Context, o Options) (binaries, error) {
	cache, err := filepath.Abs(o.CacheDir)
	if err != nil {
		return binaries{}, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return binaries{}, err
	}
	lock, err := os.OpenFile(filepath.Join(cache, "download.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return binaries{}, err
	}
	defer func() { _ = lock.Close() }() // which unlocks it
	for {                               // another process may be downloading
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return binaries{}, err
		}
		pause(ctx, retryEvery)
		if ctx.Err() != nil {
			return binaries{}, ctx.Err()
		}
	}
	home := filepath.Join(cache, "pg"+strconv.Itoa(downloadMajor))
	if b, err := inspect(ctx, filepath.Join(home, "bin")); err == nil {
		return b, nil
	}
	o.Log.Info("embedded PostgreSQL: downloading the server, this once", "version", string(downloadVersion), "folder", home)
	scratch, err := os.MkdirTemp(cache, "scratch-")
	if err != nil {
		return binaries{}, err
	}
	c := embeddedpostgres.DefaultConfig().Version(downloadVersion).
		BinariesPath(home).CachePath(cache).RuntimePath(filepath.Join(scratch, "run")).DataPath(filepath.Join(scratch, "data")).
		// The library downloads only on its way to starting a server on a TCP port. A locale that
		// does not exist makes it stop at initdb, when the binaries are there; they are looked at
		// below, and its error says nothing else that matters once they work.
		Locale("holdfast-needs-the-binaries-alone").Port(0).Logger(io.Discard)
	if o.Repository != "" {
		c = c.BinaryRepositoryURL(o.Repository)
	}
	ended := make(chan error, 1)
	go func() {
		err := embeddedpostgres.NewDatabase(c).Start()
		ended <- errors.Join(err, os.RemoveAll(scratch))
	}()
	select {
	case <-ctx.Done():
		return binaries{}, ctx.Err()
	case fetchErr := <-ended:
		b, err := inspect(ctx, filepath.Join(home, "bin"))
		if err != nil {
			return binaries{}, errors.Join(fetchErr, err)
		}
		return b, nil
	}
}
