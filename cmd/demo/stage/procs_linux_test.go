package stage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A child must not outlive a demo that was killed: the database and the ports would stay taken.
func TestAKilledParentLeavesNoChild(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	parent := exec.CommandContext(ctx, os.Args[0])
	parent.Env = []string{"STAGE_TEST_APP=parent"}
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, err := out.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		t.Fatalf("the parent says %q", buf[:n])
	}
	parent.Process.Kill()
	parent.Wait()
	gone := time.NewTicker(10 * time.Millisecond)
	defer gone.Stop()
	for {
		if syscall.Kill(pid, 0) != nil || zombie(pid) {
			return
		}
		select {
		case <-gone.C:
		case <-ctx.Done():
			t.Fatal("the child outlived its parent")
		}
	}
}

// zombie says whether a process has ended and only its row in the table is left, which is so in a
// container whose first process never reaps.
func zombie(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}
