package embedded

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// watcher is a shell that asks a process for a fast shutdown (SIGINT) when this process has ended,
// however it ended: it reads from a pipe that only this process holds open, and reading ends when
// that does.
type watcher struct {
	cmd  *exec.Cmd
	pipe io.Closer
}

func newWatcher(pid int) (*watcher, error) {
	cmd := exec.Command("/bin/sh", "-c", `trap "" INT TERM HUP; read -r _; kill -INT "$0"`, strconv.Itoa(pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C in a terminal is not for it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("watcher: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("watcher: %w", err)
	}
	return &watcher{cmd, pipe}, nil
}

// release ends the watcher. It must be called once the watched process has ended, before its number
// can be given to another one.
func (w *watcher) release() {
	_ = w.cmd.Process.Kill() // before Wait closes the pipe, which would set it off
	_ = w.cmd.Wait()
}
