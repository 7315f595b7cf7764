package dbtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The program of these tests is also a test process that shares a server, for as long as its input is open.
const userArgument = "dbtest-user"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == userArgument {
		url, _, err := shared(os.Args[2])
		fmt.Println(url, err)
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	Main(m)
}

type sharer struct {
	cmd *exec.Cmd
	url string
}

func startSharer(t *testing.T, dir string) sharer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, userArgument, dir)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := sharer{cmd: cmd}
	t.Cleanup(func() { s.kill() })
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url, ok := strings.CutSuffix(said, " <nil>\n")
	if !ok {
		t.Fatalf("the other process says %q", said)
	}
	s.url = url
	return s
}

func (s sharer) kill() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait() // "signal: killed"
	}
}

func TestTheServerStopsWithTheLastTestProcessThoughItWasKilled(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "holdfast-dbtest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil { // the server may run as another user
		t.Fatal(err)
	}
	a, b := startSharer(t, dir), startSharer(t, dir)
	if a.url != b.url {
		t.Errorf("two servers, %s and %s", a.url, b.url)
	}
	a.kill() // it has started the keeper
	if !answers(b.url) {
		t.Error("the server has gone with the process that started it, and is still needed")
	}
	ctx := context.Background()
	admin, err := pgx.Connect(ctx, b.url)
	if err != nil {
		t.Fatal(err)
	}
	left := databasePrefix + "0_leftbehind"
	if _, err := admin.Exec(ctx, `CREATE DATABASE `+left); err != nil {
		t.Fatal(err)
	}
	if err := admin.Close(ctx); err != nil {
		t.Fatal(err)
	}
	b.kill()
	waitForLock(t, filepath.Join(dir, "postgres", "*", "server.lock")) // the server has it while it runs
	if answers(b.url) {
		t.Error("the server runs for nobody")
	}

	c := startSharer(t, dir)
	if admin, err = pgx.Connect(ctx, c.url); err != nil {
		t.Fatal(err)
	}
	var there bool
	if err := admin.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, left).Scan(&there); err != nil || there {
		t.Errorf("a killed test's database is still there: %v, %v", there, err)
	}
	if err := admin.Close(ctx); err != nil {
		t.Fatal(err)
	}
	c.kill()
	waitForLock(t, filepath.Join(dir, "postgres", "*", "server.lock"))
	waitForLock(t, filepath.Join(dir, "users.lock")) // the keeper has it until it ends, and then the folder can go
}

func waitForLock(t *testing.T, pattern string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) != 1 {
		t.Fatal(pattern, files, err)
	}
	got := make(chan error, 1)
	go func() {
		f, err := lock(files[0], syscall.LOCK_EX)
		if err == nil {
			err = f.Close()
		}
		got <- err
	}()
	select {
	case err := <-got:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s is still locked", files[0])
	}
}
