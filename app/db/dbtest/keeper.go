package dbtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/app/db/embedded"
)

// The shared server lives in one folder, with
//
//	users.lock   held shared by every test process for as long as it lives
//	start.lock   held by the one that looks whether the server runs, and starts the keeper if not
//	url          where the server is, while it runs
//
// The keeper is a process that starts the server, waits until it gets users.lock for itself, which is
// when the last test process has ended in whatever way, and stops the server. It is this test program,
// started again with another argument, so that nothing else need be built; the server is bound to it.

const keeperArgument = "holdfast-dbtest-keeper"

func keeperFolder(args []string) (string, bool) {
	if len(args) != 3 || args[1] != keeperArgument {
		return "", false
	}
	return args[2], true
}

// shared returns the address of the shared server in dir, started if need be. The server stays until
// users is closed, which the end of this process does too. The keeper does not inherit it.
func shared(dir string) (url string, users io.Closer, err error) {
	f, err := lock(filepath.Join(dir, "users.lock"), syscall.LOCK_SH)
	if err != nil {
		return "", nil, err
	}
	url, err = ensure(dir)
	if err != nil {
		return "", nil, errors.Join(err, f.Close())
	}
	return url, f, nil
}

func ensure(dir string) (string, error) {
	one, err := lock(filepath.Join(dir, "start.lock"), syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer func() { _ = one.Close() }() // which gives it back
	if url, err := os.ReadFile(filepath.Join(dir, "url")); err == nil && answers(string(url)) {
		return string(url), nil
	}
	return startKeeper(dir)
}

func answers(url string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return false
	}
	return conn.Close(ctx) == nil
}

func startKeeper(dir string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	said, say, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer func() { _ = said.Close() }()
	out, err := os.Create(filepath.Join(dir, "keeper.log"))
	if err != nil {
		return "", errors.Join(err, say.Close())
	}
	cmd := exec.Command(self, keeperArgument, dir)
	// `go test` waits for everything that holds a test's output, so the keeper gets none of it; and a
	// session of its own, so that Ctrl-C does not reach it before the tests have ended.
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles, cmd.Dir = out, out, []*os.File{say}, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	if err := errors.Join(err, say.Close(), out.Close()); err != nil {
		return "", err
	}
	go func() { _ = cmd.Wait() }() // so that it is no zombie if it ends before this process does
	answer, err := bufio.NewReader(said).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(answer), "ready ")
	if err != nil || !ok {
		return "", fmt.Errorf("the shared server did not start: %s (see %s)", strings.TrimSpace(answer), out.Name())
	}
	return url, nil
}

// keep is the keeper. It answers on file 3 and returns the exit code.
func keep(dir string) int {
	say := os.NewFile(3, "say")
	answer := func(format string, args ...any) {
		line := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
		_, _ = io.WriteString(say, line+"\n") // the test process may be gone, which changes nothing
		_ = say.Close()
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	s, err := startServer(dir, log)
	if err != nil {
		answer("%v", err)
		return 1
	}
	address := filepath.Join(dir, "url")
	if err := os.WriteFile(address, []byte(s.URL()), 0o600); err != nil {
		answer("%v", errors.Join(err, s.Stop()))
		return 1
	}
	answer("ready %s", s.URL())

	type locked struct {
		file *os.File // held to the end: whoever comes now waits, and then starts another keeper
		err  error
	}
	idle := make(chan locked, 1)
	go func() {
		f, err := lock(filepath.Join(dir, "users.lock"), syscall.LOCK_EX)
		idle <- locked{f, err}
	}()
	select {
	case l := <-idle:
		defer func() { _ = l.file.Close() }()
		err = l.err
	case <-s.Done():
		err = errors.New("the server ended by itself")
	}
	if err := errors.Join(err, os.Remove(address), s.Stop()); err != nil {
		log.Error("keeper", "error", err)
		return 1
	}
	return 0
}

func startServer(dir string, log *slog.Logger) (*embedded.Server, error) {
	ctx := context.Background()
	data := filepath.Join(dir, "postgres")
	o := embedded.Options{
		DataDir: data, CacheDir: filepath.Join(os.TempDir(), "holdfast-postgres"), Log: log, Unsafe: true,
		Settings: map[string]string{
			"max_connections": "400", // tests are parallel, and each has a pool
			"wal_level":       "minimal", "max_wal_senders": "0", "max_wal_size": "256MB", "min_wal_size": "32MB",
			"autovacuum": "off", "jit": "off", "log_checkpoints": "off",
		},
	}
	s, err := embedded.Start(ctx, o)
	if err != nil { // a power cut may have spoilt it, and there is nothing in it to be missed
		log.Warn("the server is made anew", "error", err)
		if err := os.RemoveAll(data); err != nil {
			return nil, err
		}
		if s, err = embedded.Start(ctx, o); err != nil {
			return nil, err
		}
	}
	admin, err := pgx.Connect(ctx, s.URL())
	if err == nil {
		// The test process that waits for this keeper has made no database yet.
		err = errors.Join(sweep(ctx, admin, time.Now().Add(time.Hour)), admin.Close(ctx))
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// folder is where this user's shared server lives: in memory, when there is plenty.
func folder() (string, error) {
	base := os.TempDir()
	var fs syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &fs); err == nil && uint64(fs.Bavail)*uint64(fs.Bsize) > 4<<30 {
		base = "/dev/shm"
	}
	dir := filepath.Join(base, "holdfast-dbtest-"+strconv.Itoa(os.Getuid()))
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	i, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	// Anybody may make a folder there.
	if s, ok := i.Sys().(*syscall.Stat_t); !ok || !i.IsDir() || int(s.Uid) != os.Getuid() {
		return "", fmt.Errorf("%s is not a folder of this user: remove it", dir)
	}
	return dir, os.Chmod(dir, 0o755) // whatever the umask: the server may run as another user
}

// lock opens a file and waits for a lock on it, which its closing gives back.
func lock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
	}
}
