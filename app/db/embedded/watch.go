package embedded

import (
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
)

// watch starts a shell that asks process pid for a fast shutdown (SIGINT) when this process has ended, however
// it ended: it reads from a pipe that only this process holds open, and reading ends when that does.
// It must be released once pid has ended, before its number can be given to another process.
func watch(pid int) (release func(), err error) {
	cmd := exec.Command("/bin/sh", "-c", `trap "" INT TERM HUP; read -r _; kill -INT "$0"`, strconv.Itoa(pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("watcher: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("watcher: %w", err)
	}
	return func() {
		_ = cmd.Process.Kill() // before the pipe is closed, which Wait does
		_ = cmd.Wait()
		_ = pipe.Close()
	}, nil
}
