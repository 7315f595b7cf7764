package shopify

import (
	"net/http"
	"time"

	"holdfast/app/waitlist"
)

const (
	// breakAfter is how many calls in a row may fail before none is made for a while.
	breakAfter = 5
	// The first pause, which doubles with every call that fails after it, and the longest.
	firstPause, longestPause = 5 * time.Second, time.Minute
)

// breaker keeps calls back from a shop for which Shopify does not answer: with an error of its own
// (5xx), with something that is no answer, or not at all. When a pause is over one call is let through; it
// ends the pauses or begins a longer one. A refusal is an answer.
//
//	closed ──5 failures──▶ open ──pause over──▶ probing ──answer──▶ closed
//	                         ▲                     │
//	                         └──────failure────────┘  twice as long
type breaker struct {
	failures int           // in a row
	since    time.Time     // the first of them
	pause    time.Duration // the last pause; 0 when closed
	until    time.Time     // its end
	probing  bool          // one call is under way to see
}

// away is *waitlist.Away in a pause, and nil when it is over.
func (b *bucket) away(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pause > 0 && now.Before(b.until) {
		return &waitlist.Away{After: b.until.Sub(now), Since: b.since}
	}
	return nil
}

// admit returns nil when a call may be made, which is then answered or skipped, or *waitlist.Away. probe is
// true for the one call that looks whether Shopify is back.
func (b *bucket) admit(now time.Time) (probe bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.pause == 0:
		return false, nil
	case now.Before(b.until):
		return false, &waitlist.Away{After: b.until.Sub(now), Since: b.since}
	case b.probing:
		return false, &waitlist.Away{After: time.Second, Since: b.since}
	}
	b.probing = true
	return true, nil
}

// skip says that a call that was admitted is not made.
func (b *bucket) skip(probe bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if probe {
		b.probing = false
	}
}

// answered counts a call that was made. Nothing is learned from one that its caller gave up. Calls that were
// under way when the pauses began may end much later, while the probe is under way: an answer to one of them
// ends the pauses as any answer does, but its failure is no news.
func (b *bucket) answered(a *answer, probe, givenUp bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if probe {
		b.probing = false
	}
	if a != nil && a.status < http.StatusInternalServerError && (a.status != http.StatusOK || a.broken == nil) {
		b.breaker = breaker{}
		return
	}
	if givenUp || (b.pause > 0 && !probe) {
		return
	}
	if b.failures++; b.failures == 1 {
		b.since = now
	}
	if b.failures < breakAfter && !probe {
		return
	}
	b.pause = min(max(firstPause, 2*b.pause), longestPause)
	b.until = now.Add(b.pause)
}
