package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Options say where the server lives and which it is.
type Options struct {
	// DataDir is where the data is kept, in a subfolder for each major version of PostgreSQL. It is
	// made when it does not exist. Required.
	DataDir string
	// CacheDir is where downloaded server binaries are kept. Empty means that nothing is downloaded.
	CacheDir string
	// BinDir is the folder that holds initdb and postgres. Empty means: look for them.
	BinDir string
	// Repository is the Maven repository that binaries are downloaded from. Empty means Maven
	// Central.
	Repository string
	// Log gets a line when a server is made, started, found running, and stopped. Required.
	Log *slog.Logger
	// Settings are further settings of the server, as in postgresql.conf.
	Settings map[string]string
	// Unsafe trades durability for speed, for tests: a power cut may leave the data unreadable.
	Unsafe bool
}

const (
	// Name is the name of the database, and of the role that owns it.
	name = "holdfast"
	// A socket's path is limited by the kernel: sockaddr_un.sun_path has 108 bytes on Linux and 104
	// on macOS, its end included.
	socketPathMax = 103
	startTimeout  = 90 * time.Second
	retryEvery    = 30 * time.Millisecond
	logSizeMax    = 10 << 20
)

// Server is a running PostgreSQL, started by this process or found running.
type Server struct {
	url     string
	version int
	log     *slog.Logger

	// Of a server that this process started; nil for one that was found.
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	once sync.Once
	err  error // of Stop
}

// Start returns the server of o.DataDir, which accepts connections. If another process has started it,
// that one is used; else it is started, and made first if it does not exist. A server that is just
// being started or stopped by another process is waited for.
//
// It chooses the newest PostgreSQL of those that have data in DataDir, or the newest of all when none
// has. It never leaves data unused without saying so: data of another major version only is an error.
func Start(ctx context.Context, o Options) (*Server, error) {
	s, err := start(ctx, o, installed)
	if err != nil {
		return nil, fmt.Errorf("embedded PostgreSQL: %w", err)
	}
	return s, nil
}

func start(ctx context.Context, o Options, look func(ctx context.Context) []string) (*Server, error) {
	if o.DataDir == "" || o.Log == nil {
		return nil, errors.New("Options.DataDir and Options.Log must be given")
	}
	root, err := filepath.Abs(o.DataDir)
	if err != nil {
		return nil, err
	}
	bin, err := choose(ctx, o, root, look)
	if err != nil {
		return nil, err
	}
	who, err := unprivileged()
	if err != nil {
		return nil, err
	}
	if err := who.mayRun(bin.dir); err != nil {
		return nil, err
	}
	dir := filepath.Join(root, strconv.Itoa(bin.major))
	if err := who.own(dir); err != nil {
		return nil, err
	}
	sock, err := who.socketDir(dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout) // a download may take as long as it takes
	defer cancel()
	l := launch{Options: o, bin: bin, who: who, dir: dir, data: filepath.Join(dir, "data"), sock: sock}
	return l.run(ctx)
}

// URL is the address of the server's database, for pgx.
func (s *Server) URL() string { return s.url }

// Major is the server's major version.
func (s *Server) Major() int { return s.version }

// Done is closed when the server that this process started has ended, by Stop or by itself. For a
// server that was found running it is never closed.
func (s *Server) Done() <-chan struct{} { return s.done }

// Stop stops the server if this process started it, and returns when it has ended; open connections
// are cut, and their transactions rolled back. A server that was found running is left to whoever
// started it. Stop may be called more than once.
func (s *Server) Stop() error {
	if s.cmd == nil {
		return nil
	}
	s.once.Do(func() {
		begun := time.Now()
		// SIGINT is PostgreSQL's fast shutdown, SIGQUIT the immediate one, after which the next
		// start recovers from the log.
		for _, try := range []struct {
			signal syscall.Signal
			wait   time.Duration
		}{{syscall.SIGINT, 30 * time.Second}, {syscall.SIGQUIT, 10 * time.Second}, {syscall.SIGKILL, 5 * time.Second}} {
			if err := s.cmd.Process.Signal(try.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
				s.err = fmt.Errorf("embedded PostgreSQL: stop: %w", err)
				return
			}
			select {
			case <-s.done:
				s.log.Info("embedded PostgreSQL stopped", "took", time.Since(begun).Round(time.Millisecond))
				return
			case <-time.After(try.wait):
			}
		}
		s.err = fmt.Errorf("embedded PostgreSQL: process %d cannot be stopped", s.cmd.Process.Pid)
	})
	return s.err
}

// launch is one attempt to have a server on one folder.
type launch struct {
	Options
	bin             binaries
	who             user
	dir, data, sock string
}

func (l launch) run(ctx context.Context) (*Server, error) {
	begun := time.Now()
	lock, err := os.OpenFile(filepath.Join(l.dir, "server.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }() // the server has it too, from then on
	for {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
		}
		// Somebody runs it, starts it or stops it.
		if err := l.ready(ctx); err == nil {
			l.Log.Info("embedded PostgreSQL is running already", "version", l.bin.major, "folder", l.data)
			return l.server(), nil
		} else if ctx.Err() != nil {
			return nil, fmt.Errorf("another process holds %s, but its server cannot be used: %w", lock.Name(), err)
		}
		pause(ctx, retryEvery)
	}

	if _, err := os.Stat(filepath.Join(l.data, "PG_VERSION")); errors.Is(err, os.ErrNotExist) {
		if err := l.initdb(ctx); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	// Nobody runs it, so this is what a crash left behind.
	if err := os.Remove(filepath.Join(l.data, "postmaster.pid")); err == nil {
		l.Log.Warn("embedded PostgreSQL was not stopped in order the last time; it recovers now", "folder", l.data)
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}

	s := l.server()
	if err := l.spawn(s, lock); err != nil {
		return nil, err
	}
	for {
		err := l.ready(ctx)
		if err == nil {
			break
		}
		select {
		case <-s.done:
			return nil, fmt.Errorf("the server ended at once: %s; its log is %s", l.lastLines(), l.logPath())
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("the server does not answer: %w; its log is %s", err, l.logPath()), s.Stop())
		case <-time.After(retryEvery):
		}
	}
	l.Log.Info("embedded PostgreSQL is running", "version", l.bin.major, "folder", l.data, "took", time.Since(begun).Round(time.Millisecond))
	return s, nil
}

func (l launch) server() *Server {
	return &Server{url: l.url(name), version: l.bin.major, log: l.Log, done: make(chan struct{})}
}

// url names everything that pgx would else take from PGHOST, PGPORT and the like.
func (l launch) url(database string) string {
	q := url.Values{"host": {l.sock}, "port": {"5432"}, "sslmode": {"disable"}}
	return (&url.URL{Scheme: "postgres", User: url.User(name), Path: "/" + database, RawQuery: q.Encode()}).String()
}

// ready returns nil once the server accepts connections and the database is there.
func (l launch) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, l.url(name))
	if err == nil {
		return conn.Close(ctx)
	}
	if e := (*pgconn.PgError)(nil); !errors.As(err, &e) || e.Code != "3D000" { // no such database
		return err
	}
	conn, err = pgx.Connect(ctx, l.url("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `CREATE DATABASE `+name)
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) && (e.Code == "42P04" || e.Code == "23505") { // another process was quicker
		err = nil
	}
	return errors.Join(err, conn.Close(ctx))
}

// initdb makes the cluster, under another name until it is whole.
func (l launch) initdb(ctx context.Context) error {
	unfinished := l.data + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	// The socket's folder guards the server, so who may connect is trusted. Locale C sorts by code
	// point, the same on every machine and after every update of its C library.
	args := []string{"-D", unfinished, "-U", name, "-A", "trust", "--encoding=UTF8", "--locale=C"}
	if l.Unsafe {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(l.bin.dir, "initdb"), args...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = environment(), l.dir, &syscall.SysProcAttr{Credential: l.who.credential()}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd.Path, err, bytes.TrimSpace(out))
	}
	if err := os.Rename(unfinished, l.data); err != nil {
		return err
	}
	l.Log.Info("embedded PostgreSQL: a new database was made", "version", l.bin.major, "folder", l.data)
	return nil
}

// spawn starts the server. It gets the lock as an open file, keeps it for as long as any of its
// processes lives, and is told by the kernel or by a watcher when this process dies.
func (l launch) spawn(s *Server, lock *os.File) error {
	if i, err := os.Stat(l.logPath()); err == nil && i.Size() > logSizeMax {
		if err := os.Rename(l.logPath(), l.logPath()+".1"); err != nil {
			return err
		}
	}
	// A file, not a pipe: whoever started this process would wait for a pipe to be closed.
	out, err := os.OpenFile(l.logPath(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // the server has its own

	settings := map[string]string{
		"listen_addresses": "", "unix_socket_directories": l.sock, "unix_socket_permissions": "0700",
		"timezone": "UTC", "log_timezone": "UTC", "cluster_name": name,
		// A restock fills tables within seconds, and a plan that was made for empty ones is a bad one.
		"autovacuum_naptime": "5s",
	}
	if l.Unsafe {
		for _, k := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
			settings[k] = "off"
		}
	}
	for k, v := range l.Settings {
		settings[k] = v
	}
	args := []string{"-D", l.data, "-p", "5432"}
	for k, v := range settings {
		args = append(args, "-c", k+"="+v)
	}
	cmd := exec.Command(filepath.Join(l.bin.dir, "postgres"), args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = environment(), l.dir, out, out, []*os.File{lock}
	// A process group of its own: Ctrl-C in a terminal is for this process, which then stops the
	// server when its own work is done.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: l.who.credential(), Setpgid: true}

	started := make(chan error)
	go func() {
		// The parent death signal comes when the thread that started the server ends, which need not
		// be when the process does: so this goroutine keeps its thread until the server is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		release, err := startBound(cmd)
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // how it ended is in its log
		release()
		close(s.done)
	}()
	if err := <-started; err != nil {
		return err
	}
	s.cmd = cmd
	return nil
}

func (l launch) logPath() string { return filepath.Join(l.dir, "server.log") }

// lastLines are what the server said last, for an error.
func (l launch) lastLines() string {
	all, err := os.ReadFile(l.logPath())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(all)), "\n")
	return strings.Join(lines[max(0, len(lines)-4):], " | ")
}

// environment is the server's whole environment: nothing of ours, so that no PGPORT or LC_ALL of
// this process changes what it does.
func environment() []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
