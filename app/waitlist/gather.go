package waitlist

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// gatherMost is the most presses that commit together.
	gatherMost = 512
	// gatherRoom is how many presses may wait on one restock in one process.
	gatherRoom = 8192
	// gatherTime is the longest that one commit of presses may take.
	gatherTime = 10 * time.Second
)

// ErrBusy means that too many presses wait already: this one was not taken, and may be made again.
var ErrBusy = errors.New("too many press at once, try again")

// gatherer lets the presses on one restock that arrive together in this process commit together. A row lock
// is held until its commit has reached the disk, so presses that commit one by one queue on the counter's
// row; those that arrive while one batch commits form the next. A lone press is a batch of one and waits
// for nobody.
//
// It is no lock: each batch is an ordinary conditional update, and batches of several processes are put in
// order by the counter's row lock. A press that is being committed goes on when its shopper has gone; they
// see its hold when they come back.
type gatherer struct {
	commit func(ctx context.Context, shopID, restockID int64, offers []int64) error

	mu    sync.Mutex
	lines map[line][]waiter // a line is there while a goroutine works it off
}

type line struct{ shopID, restockID int64 }

type waiter struct {
	offer int64
	done  chan error
}

// press returns when the press on an offer has been committed, with its batch's error.
func (g *gatherer) press(ctx context.Context, shopID, restockID, offer int64) error {
	l, w := line{shopID, restockID}, waiter{offer, make(chan error, 1)}
	g.mu.Lock()
	waiting, working := g.lines[l]
	if len(waiting) >= gatherRoom {
		g.mu.Unlock()
		return ErrBusy
	}
	if g.lines == nil {
		g.lines = map[line][]waiter{}
	}
	g.lines[l] = append(waiting, w)
	g.mu.Unlock()
	if !working {
		go g.work(context.WithoutCancel(ctx), l)
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// work commits batch after batch, in order of arrival, until nobody waits.
func (g *gatherer) work(ctx context.Context, l line) {
	for {
		g.mu.Lock()
		waiting := g.lines[l]
		if len(waiting) == 0 {
			delete(g.lines, l)
			g.mu.Unlock()
			return
		}
		n := min(len(waiting), gatherMost)
		batch := slices.Clone(waiting[:n])
		g.lines[l] = waiting[n:]
		g.mu.Unlock()

		var offers []int64
		for _, w := range batch {
			if !slices.Contains(offers, w.offer) { // the same link, pressed twice at once, is one press
				offers = append(offers, w.offer)
			}
		}
		timed, cancel := context.WithTimeout(ctx, gatherTime)
		err := g.commit(timed, l.shopID, l.restockID, offers)
		cancel()
		for _, w := range batch {
			w.done <- err
		}
	}
}
