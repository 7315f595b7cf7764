package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// process is one operating-system process of the app: always the same addresses, and at most one
// child at a time that has them.
type process struct {
	n      int    // from 1
	listen string // public listener, host:port
	ops    string // operator's listener, host:port

	mu     sync.Mutex
	cmd    *exec.Cmd
	ended  chan struct{}  // closed when the child is gone
	ready  bool           // has answered /readyz since it was started
	ending syscall.Signal // sent to it to end it; 0 = none
	tail   *tail
}

// processes starts, kills and watches the app's child processes. A child does not outlive the process
// that started it, whatever ends that (on Linux; elsewhere a killed demo leaves its children behind).
type processes struct {
	binary string
	env    []string
	log    io.Writer
	spawn  chan func() // run on one thread that lives as long as the processes do
	http   *http.Client
	onUp   func(context.Context, *process) error // called when a process answers, before it is given requests

	mu  sync.Mutex
	all []*process
	at  int // the round robin's last turn
}

// startTimeout is the longest that a child may take from its start until /readyz answers 200.
const startTimeout = 60 * time.Second

// termTimeout is the longest that a child may take to stop after SIGTERM; it is killed then.
const termTimeout = 30 * time.Second

// newProcesses prepares n processes of a binary without starting any. common is the environment of all
// of them; nothing of this process's environment is handed on.
func newProcesses(ctx context.Context, binary string, n int, common []string, log io.Writer, onUp func(context.Context, *process) error) (*processes, error) {
	p := &processes{
		binary: binary, env: common, log: log, onUp: onUp, spawn: make(chan func()),
		http: &http.Client{Timeout: 5 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true}},
	}
	taken := map[string]bool{}
	for i := range n {
		listen, err := freeAddress(ctx, taken)
		if err != nil {
			return nil, err
		}
		ops, err := freeAddress(ctx, taken)
		if err != nil {
			return nil, err
		}
		p.all = append(p.all, &process{n: i + 1, listen: listen, ops: ops})
	}
	// The parent-death signal of Linux is sent when the thread that started the child ends, not when
	// its process does (prctl(2), PR_SET_PDEATHSIG): so one thread starts them all and stays.
	go func() {
		runtime.LockOSThread()
		for f := range p.spawn {
			f()
		}
	}()
	return p, nil
}

// freeAddress finds a loopback port that nobody uses, below the range that systems hand out to outgoing
// connections (from 32768 on Linux): a child that is started again must get its port back.
func freeAddress(ctx context.Context, taken map[string]bool) (string, error) {
	var last error
	for range 200 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.IntN(12000)))
		if taken[addr] {
			continue
		}
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", addr)
		if err != nil {
			last = err
			continue
		}
		l.Close()
		taken[addr] = true
		return addr, nil
	}
	return "", fmt.Errorf("no free loopback port between 20000 and 32000: %w", last)
}

func (p *processes) environment(a *process) []string {
	return append(append([]string(nil), p.env...), "LISTEN="+a.listen, "OPS_LISTEN="+a.ops)
}

// run starts the binary with a subcommand and waits for its end. Its output is part of the error.
func (p *processes) run(ctx context.Context, args ...string) error {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, p.binary, args...)
	cmd.Env = p.env
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, p.log), io.MultiWriter(&out, p.log)
	cmd.SysProcAttr = dieWithParent()
	result := make(chan error, 1)
	p.spawn <- func() { result <- cmd.Start() }
	err := <-result
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("%s %v: %w\n%s", p.binary, args, err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// start starts the processes that are not running (all, or the one numbered n) and returns when each
// answers /readyz.
func (p *processes) start(ctx context.Context, n int) error {
	which, err := p.pick(n)
	if err != nil {
		return err
	}
	errs := make([]error, len(which))
	var wait sync.WaitGroup
	for i, a := range which {
		wait.Go(func() { errs[i] = p.startOne(ctx, a) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

func (p *processes) startOne(ctx context.Context, a *process) error {
	a.mu.Lock()
	for a.cmd != nil {
		ending, ended := a.ending != 0, a.ended
		a.mu.Unlock()
		if !ending {
			return p.awaitReady(ctx, a)
		}
		<-ended
		a.mu.Lock()
	}
	a.tail = &tail{}
	out := &prefixed{w: io.MultiWriter(p.log, a.tail), prefix: fmt.Sprintf("app %d | ", a.n)}
	cmd := exec.Command(p.binary, "serve")
	cmd.Env = p.environment(a)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error, 1)
	p.spawn <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		a.mu.Unlock()
		return fmt.Errorf("start the app: %w", err)
	}
	ended := make(chan struct{})
	a.cmd, a.ended, a.ready, a.ending = cmd, ended, false, 0
	a.mu.Unlock()
	go func() {
		cmd.Wait() // how it ended is seen by whoever waits for it
		a.mu.Lock()
		a.cmd, a.ready = nil, false
		a.mu.Unlock()
		close(ended)
	}()
	return p.awaitReady(ctx, a)
}

func (p *processes) awaitReady(ctx context.Context, a *process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		a.mu.Lock()
		running, ready, ended, said := a.cmd != nil, a.ready, a.ended, a.tail
		a.mu.Unlock()
		if !running {
			return fmt.Errorf("app %d ended before it was ready:\n%s", a.n, said)
		}
		if ready {
			return nil
		}
		if p.answers(ctx, "http://"+a.ops+"/readyz") {
			if err := p.onUp(ctx, a); err != nil {
				return err
			}
			a.mu.Lock()
			a.ready = a.cmd != nil
			a.mu.Unlock()
			continue
		}
		select {
		case <-tick.C:
		case <-ended:
		case <-ctx.Done():
			return fmt.Errorf("app %d is not ready: %w; it says:\n%s", a.n, ctx.Err(), said)
		}
	}
}

func (p *processes) answers(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	res, err := p.http.Do(req)
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// end sends a signal to the processes that run (all, or the one numbered n) and returns when they are
// gone. One that does not obey SIGTERM within termTimeout is killed.
func (p *processes) end(n int, sig syscall.Signal) error {
	which, err := p.pick(n)
	if err != nil {
		return err
	}
	var wait sync.WaitGroup
	for _, a := range which {
		wait.Go(func() { a.end(sig) })
	}
	wait.Wait()
	return nil
}

func (a *process) end(sig syscall.Signal) {
	a.mu.Lock()
	cmd, ended := a.cmd, a.ended
	a.ready, a.ending = false, sig // the balancer sends it nothing from here on
	a.mu.Unlock()
	if cmd == nil {
		return
	}
	cmd.Process.Signal(sig) // it fails only for a process that has ended
	late := time.NewTimer(termTimeout)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
		cmd.Process.Kill()
		<-ended
	}
}

func (a *process) running() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cmd != nil
}

// killPID kills the child with a process id, and returns its number. It fails when the id is none of
// the children's: nothing else is ever killed.
func (p *processes) killPID(pid int) (int, error) {
	for _, a := range p.all {
		a.mu.Lock()
		ours := a.cmd != nil && a.cmd.Process.Pid == pid
		a.mu.Unlock()
		if ours {
			a.end(syscall.SIGKILL)
			return a.n, nil
		}
	}
	return 0, fmt.Errorf("no running app process has the id %d", pid)
}

func (p *processes) pick(n int) ([]*process, error) {
	if n == 0 {
		return p.all, nil
	}
	if n < 1 || n > len(p.all) {
		return nil, refuse(http.StatusBadRequest, "n: there is no process %d, they are numbered 1 to %d", n, len(p.all))
	}
	return p.all[n-1 : n], nil
}

// next returns the address of the running process whose turn it is, or "" when none runs.
func (p *processes) next() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range p.all {
		p.at = (p.at + 1) % len(p.all)
		a := p.all[p.at]
		a.mu.Lock()
		ready := a.ready
		a.mu.Unlock()
		if ready {
			return a.listen
		}
	}
	return ""
}

// ready returns the processes that run and have answered /readyz.
func (p *processes) ready() []*process {
	var up []*process
	for _, a := range p.all {
		a.mu.Lock()
		if a.ready {
			up = append(up, a)
		}
		a.mu.Unlock()
	}
	return up
}

// close stops every process and gives the thread that started them back.
func (p *processes) close() {
	p.end(0, syscall.SIGTERM)
	close(p.spawn)
}

// Process is what GET /sim/app says of one process of the app.
type Process struct {
	N       int    `json:"n"`
	PID     int    `json:"pid"` // 0 when it does not run
	Running bool   `json:"running"`
	Address string `json:"address"`   // of its public listener, host:port
	Ops     string `json:"ops"`       // of its operator's listener, host:port
	RSS     int64  `json:"rss_bytes"` // resident memory; 0 when it does not run
}

func (p *processes) list(ctx context.Context) ([]Process, error) {
	all := []Process{}
	for _, a := range p.all {
		a.mu.Lock()
		out := Process{N: a.n, Address: a.listen, Ops: a.ops}
		if a.cmd != nil && a.ending != syscall.SIGKILL { // a killed one is as good as gone
			out.PID, out.Running = a.cmd.Process.Pid, true
		}
		ended := a.ended
		a.mu.Unlock()
		if out.Running {
			rss, err := residentMemory(ctx, out.PID)
			if err != nil {
				select {
				case <-ended: // between the two looks
					out.PID, out.Running = 0, false
				default:
					return nil, fmt.Errorf("memory of process %d: %w", out.PID, err)
				}
			}
			out.RSS = rss
		}
		all = append(all, out)
	}
	return all, nil
}

// residentMemory asks ps, which Linux and macOS both have; where a slim image lacks it, Linux's /proc.
func residentMemory(ctx context.Context, pid int) (int64, error) {
	if raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)); err == nil {
		fields := bytes.Fields(raw) // proc(5): size, resident, ... in pages
		if len(fields) < 2 {
			return 0, fmt.Errorf("unexpected statm %q", raw)
		}
		pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
		return pages * int64(os.Getpagesize()), err
	}
	raw, err := exec.CommandContext(ctx, "ps", "-o", "rss=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return 0, err
	}
	kb, err := strconv.ParseInt(string(bytes.TrimSpace(raw)), 10, 64)
	return kb * 1024, err
}

// locked lets several processes write to one place, a line at a time.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// prefixed puts a prefix before every line that is written through it.
type prefixed struct {
	w      io.Writer
	prefix string
	part   []byte // a line that has not ended yet
}

func (p *prefixed) Write(b []byte) (int, error) {
	p.part = append(p.part, b...)
	for {
		end := bytes.IndexByte(p.part, '\n')
		if end < 0 {
			return len(b), nil
		}
		line := append([]byte(p.prefix), p.part[:end+1]...)
		p.part = append(p.part[:0], p.part[end+1:]...)
		if _, err := p.w.Write(line); err != nil {
			return 0, err
		}
	}
}

// tail keeps the end of what is written to it, for an error message.
type tail struct {
	mu  sync.Mutex
	end []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const keep = 4096
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, b...)
	if len(t.end) > keep {
		t.end = append([]byte(nil), t.end[len(t.end)-keep:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.end)
}
