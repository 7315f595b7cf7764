//go:build !linux

package stage

import "syscall"

// dieWithParent cannot be had outside Linux: a child survives a demo that is killed with SIGKILL, until
// somebody ends it. Its own process group keeps a Ctrl-C at the terminal from reaching it: it is stopped
// in order instead.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
