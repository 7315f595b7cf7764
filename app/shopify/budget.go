package shopify

import (
	"math"
	"sync"
	"time"
)

// throttleStatus is what Shopify says of a shop's points with every GraphQL answer.
type throttleStatus struct {
	MaximumAvailable   float64 `json:"maximumAvailable"`
	CurrentlyAvailable float64 `json:"currentlyAvailable"`
	RestoreRate        float64 `json:"restoreRate"` // a second
}

// bucket is what we believe that a shop has left of its points (Shopify's leaky bucket: a call takes
// its requested cost, what it did not use is given back when it is answered, and points flow back at a
// steady rate). Beliefs err on the side of waiting: a call that is under way is subtracted whether or
// not Shopify has counted it already.
type bucket struct {
	mu        sync.Mutex
	max       float64
	rate      float64
	available float64 // at
	at        time.Time
	underWay  float64   // points of the calls without an answer yet
	closed    time.Time // no call before: Shopify answered 429
	breaker
}

// newBucket is the bucket of a shop that was not heard of yet, on Shopify's smallest plan: 100 points
// a second, 2,000 at most.
func newBucket(now time.Time) *bucket {
	return &bucket{max: 2000, rate: 100, available: 2000, at: now}
}

// wait is how long to wait before a call of so many points can be made; 0 = now.
func (b *bucket) wait(points float64, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waitLocked(points, 0, now)
}

func (b *bucket) waitLocked(points, keep float64, now time.Time) time.Duration {
	if now.Before(b.closed) {
		return b.closed.Sub(now)
	}
	missing := math.Min(points+keep*b.max, b.max) - (b.levelLocked(now) - b.underWay)
	return refill(missing, b.rate)
}

// take takes the points of a call out of the bucket, or returns how long to wait. The call must leave a
// share of the bucket to calls that matter more, unless it is full.
func (b *bucket) take(points, keep float64, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait := b.waitLocked(points, keep, now)
	if wait == 0 {
		b.underWay += points
	}
	return wait
}

// settle ends a call that took points. Without a status (no answer, or one without cost) the points
// are gone.
func (b *bucket) settle(points float64, status *throttleStatus, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.underWay -= points
	if status == nil {
		b.available, b.at = b.levelLocked(now)-points, now
		return
	}
	b.max, b.rate = status.MaximumAvailable, status.RestoreRate
	b.available, b.at = status.CurrentlyAvailable, now
}

// close keeps every call back for a while.
func (b *bucket) close(until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until.After(b.closed) {
		b.closed = until
	}
}

func (b *bucket) levelLocked(now time.Time) float64 {
	passed := math.Max(0, now.Sub(b.at).Seconds())
	return math.Min(b.max, b.available+b.rate*passed)
}

// refill is how long it takes until so many points have come back, in whole milliseconds, rounded up.
func refill(points, rate float64) time.Duration {
	if points <= 0 {
		return 0
	}
	return time.Duration(math.Ceil(points/rate*1000)) * time.Millisecond
}
