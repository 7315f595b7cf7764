package embedded

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The program of these tests is also the other process that some of them need.
const helperArgument = "embedded-helper"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == helperArgument {
		os.Exit(helper(os.Args[2]))
	}
	os.Exit(m.Run())
}

// helper starts the server of a folder, says so, and lives until it is killed or its input ends,
// when it stops the server in order.
func helper(dir string) int {
	s, err := Start(context.Background(), options(dir, os.Stderr))
	if err != nil {
		fmt.Println("failed", err)
		return 1
	}
	fmt.Println("ready", s.cmd != nil)
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := s.Stop(); err != nil {
		fmt.Println("failed", err)
		return 1
	}
	return 0
}

func options(dir string, log io.Writer) Options {
	return Options{DataDir: dir, Log: slog.New(slog.NewTextHandler(log, nil)), Settings: map[string]string{"shared_buffers": "1MB"}}
}

// tempDir is like t.TempDir, but may be entered by the user that the server runs as.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast-embedded-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mustStart(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func query[T any](t *testing.T, s *Server, sql string) T {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, _ := conn.Query(ctx, sql)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func execute(t *testing.T, s *Server, sql string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(ctx, sql)
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// serverPID is the process of the server of a folder, from its postmaster.pid; 0 when there is none.
func serverPID(t *testing.T, dir string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "data", "postmaster.pid"))
	if err != nil || len(files) > 1 {
		t.Fatal(files, err)
	}
	if len(files) == 0 {
		return 0
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// waitUntilNobodyRuns returns when no process of the server of a folder is left, which is when its
// lock can be had.
func waitUntilNobodyRuns(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "server.lock"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }()
	select {
	case err := <-got:
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the server is still running")
	}
}

type process struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	started bool // it started the server itself
}

func startHelper(t *testing.T, dir string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(self, helperArgument, dir)}
	var log bytes.Buffer
	p.cmd.Stderr = &log
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	said, err := bufio.NewReader(out).ReadString('\n')
	switch said {
	case "ready true\n":
		p.started = true
	case "ready false\n":
	default:
		t.Fatalf("the other process says %q (%v)", said, err)
	}
	return p
}

func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait() // "signal: killed"
}

func TestAServerStartsAnswersAndStops(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	var log bytes.Buffer
	s := mustStart(t, options(dir, &log))
	if v := query[string](t, s, `SELECT current_setting('server_version_num')`); !strings.HasPrefix(v, strconv.Itoa(s.Major())) {
		t.Errorf("PostgreSQL %s runs, and Major says %d", v, s.Major())
	}
	for setting, want := range map[string]string{
		"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "listen_addresses": "",
		"server_encoding": "UTF8", "timezone": "UTC", "unix_socket_permissions": "0700",
	} {
		if got := query[string](t, s, `SELECT current_setting('`+setting+`')`); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	execute(t, s, `CREATE TABLE kept AS SELECT 'kept' AS word`)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Done():
	default:
		t.Error("stopped, but not done")
	}
	if err := s.Stop(); err != nil {
		t.Errorf("stopped again: %v", err)
	}
	if pid := serverPID(t, dir); pid != 0 {
		t.Errorf("process %d is left", pid)
	}
	s = mustStart(t, options(dir, &log))
	if word := query[string](t, s, `SELECT word FROM kept`); word != "kept" {
		t.Errorf("after a restart the row says %q", word)
	}
	if !strings.Contains(log.String(), filepath.Join(dir, strconv.Itoa(s.Major()), "data")) {
		t.Errorf("the log does not name the folder:\n%s", log.String())
	}
}

func TestKillingTheAppStopsItsServerAndTheNextStartRecovers(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	p := startHelper(t, dir)
	if !p.started {
		t.Fatal("found a server in a new folder")
	}
	other := mustStart(t, options(dir, io.Discard)) // to write with
	execute(t, other, `CREATE TABLE kept AS SELECT 7 AS n`)
	p.kill(t)
	waitUntilNobodyRuns(t, dir)
	s := mustStart(t, options(dir, io.Discard))
	if s.cmd == nil {
		t.Error("found a server where none can be")
	}
	if n := query[int](t, s, `SELECT n FROM kept`); n != 7 {
		t.Errorf("the row says %d", n)
	}
}

func TestALockThatAKilledServerLeftIsCleared(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	s := mustStart(t, options(dir, io.Discard))
	execute(t, s, `CREATE TABLE kept AS SELECT 7 AS n`)
	pid := serverPID(t, dir)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if serverPID(t, dir) != pid {
		t.Fatal("the killed server has left no lock")
	}
	// The worst case: the number belongs to somebody else by now, who is alive, runs as the server's
	// user and is not to be harmed.
	bystander := exec.Command("/bin/cat")
	who, err := unprivileged()
	if err != nil {
		t.Fatal(err)
	}
	bystander.SysProcAttr = &syscall.SysProcAttr{Credential: who.credential()}
	hold, err := bystander.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(dir, strconv.Itoa(s.Major()), "data", "postmaster.pid")
	text, err := os.ReadFile(lock)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte(strconv.Itoa(pid)), []byte(strconv.Itoa(bystander.Process.Pid)), 1)
	if err := os.WriteFile(lock, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s = mustStart(t, options(dir, &log))
	if n := query[int](t, s, `SELECT n FROM kept`); n != 7 {
		t.Errorf("the row says %d", n)
	}
	if !strings.Contains(log.String(), "not stopped in order") {
		t.Errorf("nothing was said:\n%s", log.String())
	}
	if err := hold.Close(); err != nil {
		t.Fatal(err)
	}
	if err := bystander.Wait(); err != nil {
		t.Errorf("the bystander: %v", err)
	}
}

func TestASecondProcessUsesTheServerOfTheFirst(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	// All at once, in a new folder: one makes the database and the server, the others wait for it.
	const many = 3
	servers := make([]*Server, many)
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			s, err := Start(context.Background(), options(dir, io.Discard))
			if err != nil {
				t.Error(err)
				return
			}
			servers[i] = s
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	var owner *Server
	for _, s := range servers {
		if s.cmd != nil && owner != nil {
			t.Fatal("two servers on one folder")
		} else if s.cmd != nil {
			owner = s
		}
	}
	p := startHelper(t, dir)
	if p.started {
		t.Error("another process has started a second server")
	}
	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		if s != owner {
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
		}
	}
	if n := query[int](t, owner, `SELECT 1`); n != 1 { // still there after those who found it have gone
		t.Error(n)
	}
	if err := owner.Stop(); err != nil {
		t.Error(err)
	}
}

func TestAFolderWithALongNameHasItsSocketElsewhere(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), strings.Repeat("long", 30))
	s := mustStart(t, options(dir, io.Discard))
	if n := query[int](t, s, `SELECT 1`); n != 1 {
		t.Error(n)
	}
	sock := query[string](t, s, `SELECT current_setting('unix_socket_directories')`)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if i, err := os.Stat(sock); err != nil || i.Mode().Perm() != 0o700 {
		t.Errorf("the socket's folder: %v, %v", i, err)
	}
	if err := os.Remove(sock); err != nil {
		t.Error(err)
	}
}

func TestTheWatcherAsksForAShutdownWhenItsProcessIsGone(t *testing.T) {
	t.Parallel()
	victim := exec.Command("/bin/cat")
	hold, err := victim.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	w, err := newWatcher(victim.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.pipe.Close(); err != nil { // as the kernel does when this process ends
		t.Fatal(err)
	}
	err = victim.Wait()
	if e := (*exec.ExitError)(nil); !errors.As(err, &e) || e.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("the process that was watched ended with %v", err)
	}
	_ = hold.Close()
	w.release()

	// One that was released does nothing.
	victim = exec.Command("/bin/cat")
	if hold, err = victim.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	if w, err = newWatcher(victim.Process.Pid); err != nil {
		t.Fatal(err)
	}
	w.release()
	if err := hold.Close(); err != nil {
		t.Fatal(err)
	}
	if err := victim.Wait(); err != nil {
		t.Errorf("a released watcher has done this: %v", err)
	}
}

// fakeBinaries is a folder with a server that only knows its version.
func fakeBinaries(t *testing.T, major int) string {
	t.Helper()
	dir := tempDir(t)
	for name, text := range map[string]string{
		"postgres": "#!/bin/sh\necho 'postgres (PostgreSQL) " + strconv.Itoa(major) + ".3 (Made up)'\n",
		"initdb":   "#!/bin/sh\nexit 1\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTheServerIsChosenByItsVersionAndByTheDataThatIsThere(t *testing.T) {
	t.Parallel()
	v14, v15, v16, v17 := fakeBinaries(t, 14), fakeBinaries(t, 15), fakeBinaries(t, 16), fakeBinaries(t, 17)
	for _, c := range []struct {
		name  string
		found []string
		bin   string
		data  []int
		want  string // folder, or
		err   string // part of the error
	}{
		{"the newest", []string{v15, v17, v16}, "", nil, v17, ""},
		{"the one that has data", []string{v15, v17, v16}, "", []int{16}, v16, ""},
		{"the newest that has data", []string{v15, v17, v16}, "", []int{15, 16}, v16, ""},
		{"the one that was named", []string{v17}, v15, nil, v15, ""},
		{"a folder of something else is passed over", []string{os.TempDir(), v15}, "", nil, v15, ""},
		{"none", nil, "", nil, "", "no PostgreSQL server was found: install one with "},
		{"too old", []string{v14}, "", nil, "", "only PostgreSQL 14 was found, in " + v14 + ": install one"},
		{"too old, and named", nil, v14, nil, "", "is PostgreSQL 14, and Holdfast needs 15 or newer"},
		{"not a server, and named", nil, os.TempDir(), nil, "", "is not a folder of PostgreSQL's server"},
		{"data of another version alone", []string{v17}, "", []int{15}, "", "holds data of PostgreSQL 15: install that version"},
		{"data of another version than the named one", nil, v17, []int{15}, "", "holds data of PostgreSQL 15: install that version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := tempDir(t)
			for _, major := range c.data {
				data := filepath.Join(root, strconv.Itoa(major), "data")
				if err := os.MkdirAll(data, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			o := options(root, io.Discard)
			o.BinDir = c.bin
			b, err := choose(context.Background(), o, root, func(context.Context) []string { return c.found })
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("the error is %v, want %q in it", err, c.err)
				}
			} else if err != nil || b.dir != c.want {
				t.Errorf("chosen: %v, %v, want %s", b, err, c.want)
			}
		})
	}
}

func TestWithNeitherServerNorDownloadTheErrorSaysWhatToInstall(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		http.Error(w, "no", http.StatusNotFound)
	}))
	defer away.Close()
	o := options(tempDir(t), io.Discard)
	o.CacheDir, o.Repository = tempDir(t), away.URL
	s, err := start(context.Background(), o, func(context.Context) []string { return nil })
	if err == nil {
		t.Fatal("started", s)
	}
	if !strings.Contains(err.Error(), "could not be downloaded") || !strings.Contains(err.Error(), "install one with ") {
		t.Errorf("the error says %q", err)
	}
	if len(asked) == 0 {
		t.Error("nothing was asked for")
	}
	for goos, line := range map[string]string{"linux": "apt-get install -y postgresql", "darwin": "brew install postgresql"} {
		if hint := installHint(goos); !strings.Contains(hint, line) {
			t.Errorf("on %s: %q", goos, hint)
		}
	}
}

func TestTheBinariesAreDownloadedOnce(t *testing.T) {
	t.Parallel()
	o := options(tempDir(t), io.Discard)
	o.CacheDir = tempDir(t)
	// What a download leaves: with it there, nobody is asked.
	home := filepath.Join(o.CacheDir, "pg"+strconv.Itoa(downloadMajor))
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fakeBinaries(t, downloadMajor), filepath.Join(home, "bin")); err != nil {
		t.Fatal(err)
	}
	b, err := choose(context.Background(), o, o.DataDir, func(context.Context) []string { return nil })
	if err != nil || b.major != downloadMajor {
		t.Errorf("chosen: %v, %v", b, err)
	}
}

func TestAFolderThatTheServersUserCannotReachIsToldBeforeAnythingIsMade(t *testing.T) {
	t.Parallel()
	stranger := user{name: "user stranger", uid: 54321, gid: 54321, other: true}
	closed := filepath.Join(tempDir(t), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(closed, "inside")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	err := stranger.mayEnter(inside)
	if err == nil || !strings.Contains(err.Error(), "user stranger, as whom the server must run, cannot enter "+closed) {
		t.Errorf("the error is %v", err)
	}
	if err := os.Chmod(closed, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := stranger.mayEnter(inside); err != nil {
		t.Error(err)
	}
}
