package embedded

import (
	"os/exec"
	"syscall"
)

// startBound starts cmd so that it is stopped when this thread ends, by a fast shutdown that the
// kernel asks for.
func startBound(cmd *exec.Cmd) (release func(), err error) {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGINT
	return func() {}, cmd.Start()
}
