package waitlist

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
)

func TestPressesPastTheRoomAreToldToTryAgain(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}), make(chan struct{})
	var batches [][]int64
	g := gatherer{commit: func(_ context.Context, _, _ int64, offers []int64) error {
		if batches = append(batches, offers); len(batches) == 1 {
			close(begun)
			<-goOn
		}
		return nil
	}}
	var wait sync.WaitGroup
	wait.Go(func() {
		if err := g.press(t.Context(), 1, 1, 1); err != nil {
			t.Error(err)
		}
	})
	<-begun // the first is being committed; the others gather
	l := line{1, 1}
	g.mu.Lock()
	for i := range gatherRoom {
		g.lines[l] = append(g.lines[l], waiter{int64(i%1000 + 2), make(chan error, 1)})
	}
	waiting := slices.Clone(g.lines[l])
	g.mu.Unlock()
	if err := g.press(t.Context(), 1, 1, 5000); !errors.Is(err, ErrBusy) {
		t.Fatalf("with no room left: %v", err)
	}
	close(goOn)
	wait.Wait()
	for _, w := range waiting {
		if err := <-w.done; err != nil {
			t.Fatal(err)
		}
	}
	if err := g.press(t.Context(), 1, 1, 6000); err != nil { // and the line is open again
		t.Fatal(err)
	}
	for _, b := range batches {
		if len(b) > gatherMost || len(slices.Compact(slices.Sorted(slices.Values(b)))) != len(b) {
			t.Fatalf("a batch of %d, or an offer twice in it", len(b))
		}
	}
}

func TestEveryPressOfABatchHasItsError(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection lost")
	g := gatherer{commit: func(context.Context, int64, int64, []int64) error { return lost }}
	for range 3 {
		if err := g.press(t.Context(), 1, 1, 1); !errors.Is(err, lost) {
			t.Fatalf("%v", err)
		}
	}
}
