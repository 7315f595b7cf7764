package stage

import "syscall"

// dieWithParent has the kernel kill a child when the thread that started it ends. Its own process group
// keeps a Ctrl-C at the terminal from reaching it: it is stopped in order instead.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
