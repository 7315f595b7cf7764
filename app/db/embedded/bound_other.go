//go:build unix && !linux

package embedded

import "os/exec"

// startBound starts cmd so that it is stopped when this process ends. Only Linux has a parent death
// signal, so a watcher does it.
func startBound(cmd *exec.Cmd) (release func(), err error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w, err := newWatcher(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	return w.release, nil
}
