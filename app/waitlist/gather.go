package waitlist

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
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

	// readMost is the most variants that are read together: what Shopify lets one query cost.
	readMost = 66
	// readTime is the longest that one read may take: a few calls, if stock is read by locations.
	readTime = 40 * time.Second
)

// ErrBusy means that too many wait already: this one was not taken, and may be made again.
var ErrBusy = errors.New("too many at once, try again")

// gatherer lets what is asked for at the same time in this process be done together, in lines: what
// arrives while one batch of a line is done forms the next. Somebody alone is a batch of one and waits for
// nobody.
//
// It is no lock: batches of several processes know nothing of each other. What was begun goes on when
// whoever asked has gone.
//
// Presses on one restock are gathered, since a row lock is held until its commit has reached the disk, so that
// presses that commit one by one queue on the counter's row; each batch is an ordinary conditional update,
// and batches of several processes are put in order by the row's lock. Reads of a shop's stock are
// gathered, since one call of Shopify's reads many variants.
type gatherer[L, T comparable, R any] struct {
	// do does a batch, each item once. Its answers hold without regard to its error; an item
	// without one has the error, or (when there is none) no answer.
	do   func(ctx context.Context, line L, items []T) (map[T]R, error)
	most int           // items that are done together
	room int           // items that may wait in one line
	time time.Duration // the longest that a batch may take

	mu    sync.Mutex
	lines map[L][]waiter[T, R] // a line is there while a goroutine works it off
}

type waiter[T, R any] struct {
	item T
	done chan result[R]
}

type result[R any] struct {
	answer R
	ok     bool
	err    error
}

// ask returns when the item has been done with its batch. ok is false when it has no answer.
func (g *gatherer[L, T, R]) ask(ctx context.Context, line L, item T) (answer R, ok bool, err error) {
	w := waiter[T, R]{item, make(chan result[R], 1)}
	g.mu.Lock()
	waiting, working := g.lines[line]
	if len(waiting) >= g.room {
		g.mu.Unlock()
		return answer, false, ErrBusy
	}
	if g.lines == nil {
		g.lines = map[L][]waiter[T, R]{}
	}
	g.lines[line] = append(waiting, w)
	g.mu.Unlock()
	if !working {
		go g.work(context.WithoutCancel(ctx), line)
	}
	select {
	case r := <-w.done:
		return r.answer, r.ok, r.err
	case <-ctx.Done():
		return answer, false, ctx.Err()
	}
}

// work does batch after batch, in order of arrival, until nobody waits.
func (g *gatherer[L, T, R]) work(ctx context.Context, line L) {
	for {
		g.mu.Lock()
		waiting := g.lines[line]
		if len(waiting) == 0 {
			delete(g.lines, line)
			g.mu.Unlock()
			return
		}
		n := min(len(waiting), g.most)
		batch := slices.Clone(waiting[:n])
		g.lines[line] = waiting[n:]
		g.mu.Unlock()

		var items []T
		for _, w := range batch {
			if !slices.Contains(items, w.item) { // the same link, pressed twice at once, is one press
				items = append(items, w.item)
			}
		}
		timed, cancel := context.WithTimeout(ctx, g.time)
		answers, err := g.do(timed, line, items)
		cancel()
		for _, w := range batch {
			answer, ok := answers[w.item]
			if ok {
				w.done <- result[R]{answer, true, nil}
			} else {
				w.done <- result[R]{err: err}
			}
		}
	}
}

// restockLine is where presses on a restock gather.
type restockLine struct{ shopID, restockID int64 }

func newPresses(claim func(ctx context.Context, shopID, restockID int64, offers []int64) error) *gatherer[restockLine, int64, struct{}] {
	return &gatherer[restockLine, int64, struct{}]{most: gatherMost, room: gatherRoom, time: gatherTime,
		do: func(ctx context.Context, l restockLine, offers []int64) (map[int64]struct{}, error) {
			return nil, claim(ctx, l.shopID, l.restockID, offers)
		}}
}

// stockLine is where reads of a shop's stock gather: those at the same locations.
type stockLine struct {
	shopID    int64
	locations string // their ids, joined by commas
}

func newReads(read func(ctx context.Context, shopID int64, ids, locations []int64) (map[int64]VariantReading, error)) *gatherer[stockLine, int64, VariantReading] {
	return &gatherer[stockLine, int64, VariantReading]{most: readMost, room: gatherRoom, time: readTime,
		do: func(ctx context.Context, l stockLine, variants []int64) (map[int64]VariantReading, error) {
			var locations []int64
			for text := range strings.SplitSeq(l.locations, ",") {
				if text == "" {
					continue
				}
				id, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return nil, err
				}
				locations = append(locations, id)
			}
			return read(ctx, l.shopID, variants, locations)
		}}
}

func lineAt(shopID int64, locations []int64) stockLine {
	texts := make([]string, len(locations))
	for i, id := range locations {
		texts[i] = strconv.FormatInt(id, 10)
	}
	return stockLine{shopID, strings.Join(texts, ",")}
}
