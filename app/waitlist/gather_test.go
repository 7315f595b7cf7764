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
	g := newPresses(func(_ context.Context, _, _ int64, offers []int64) error {
		if batches = append(batches, offers); len(batches) == 1 {
			close(begun)
			<-goOn
		}
		return nil
	})
	press := func(offer int64) error {
		_, _, err := g.ask(t.Context(), restockLine{1, 1}, offer)
		return err
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		if err := press(1); err != nil {
			t.Error(err)
		}
	})
	<-begun // the first is being committed; the others gather
	l := restockLine{1, 1}
	g.mu.Lock()
	for i := range gatherRoom {
		g.lines[l] = append(g.lines[l], waiter[int64, struct{}]{int64(i%1000 + 2), make(chan result[struct{}], 1)})
	}
	waiting := slices.Clone(g.lines[l])
	g.mu.Unlock()
	if err := press(5000); !errors.Is(err, ErrBusy) {
		t.Fatalf("with no room left: %v", err)
	}
	close(goOn)
	wait.Wait()
	for _, w := range waiting {
		if r := <-w.done; r.err != nil {
			t.Fatal(r.err)
		}
	}
	if err := press(6000); err != nil { // and the line is open again
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
	g := newPresses(func(context.Context, int64, int64, []int64) error { return lost })
	for range 3 {
		if _, _, err := g.ask(t.Context(), restockLine{1, 1}, 1); !errors.Is(err, lost) {
			t.Fatalf("%v", err)
		}
	}
}

// Many variants of a shop are to be read while a read is under way: they are one call. What was read before
// the budget was used up is not lost, and a variant that is gone is told from one that could not be read.
func TestReadsOfAShopThatComeTogetherAreOneCall(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}), make(chan struct{})
	var calls [][]int64
	throttled := &Throttled{}
	g := newReads(func(_ context.Context, _ int64, ids, locations []int64) (map[int64]VariantReading, error) {
		if !slices.Equal(locations, []int64{7, 9}) {
			t.Errorf("at locations %v", locations)
		}
		calls = append(calls, ids)
		switch len(calls) {
		case 1:
			close(begun)
			<-goOn
			return nil, nil // there is no such variant
		case 2:
			return map[int64]VariantReading{2: {ID: 2}}, throttled
		}
		return map[int64]VariantReading{ids[0]: {ID: ids[0]}}, nil
	})
	line := lineAt(1, []int64{7, 9})
	var wait sync.WaitGroup
	wait.Go(func() {
		if _, ok, err := g.ask(t.Context(), line, 1); ok || err != nil {
			t.Errorf("a variant that is gone: %v, %v", ok, err)
		}
	})
	<-begun
	g.mu.Lock()
	others := []waiter[int64, VariantReading]{{2, make(chan result[VariantReading], 1)}, {3, make(chan result[VariantReading], 1)}, {2, make(chan result[VariantReading], 1)}}
	g.lines[line] = append(g.lines[line], others...)
	g.mu.Unlock()
	close(goOn)
	wait.Wait()
	for _, w := range others {
		r := <-w.done
		if w.item == 2 && (!r.ok || r.answer.ID != 2 || r.err != nil) {
			t.Errorf("what was read: %+v", r)
		}
		if w.item == 3 && !errors.Is(r.err, throttled) {
			t.Errorf("what was not: %+v", r)
		}
	}
	if len(calls) != 2 || !slices.Equal(calls[1], []int64{2, 3}) {
		t.Errorf("calls for %v, want one for variants 2 and 3", calls)
	}
}
