// Package simkit is what the simulators share: the one clock of app and simulators, and the faults that
// a script asks for. It is imported by the simulators, the demo and tests, never by the program.
package simkit

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

// Clock is real time plus what was pushed. The zero Clock is real time.
type Clock struct {
	mu     sync.RWMutex
	pushed time.Duration
}

// Now is the clock's time, in UTC.
func (c *Clock) Now() time.Time { return time.Now().UTC().Add(c.Pushed()) }

// Pushed is how far the clock is ahead of real time.
func (c *Clock) Pushed() time.Duration {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.pushed
}

// Push moves the clock forward. A clock never goes back: d must not be negative.
func (c *Clock) Push(d time.Duration) {
	if d < 0 {
		panic("simkit: a clock does not go back")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pushed += d
}

// Fault is what a script asks a simulator to do wrong.
type Fault struct {
	ID          string  `json:"id"`
	Target      string  `json:"target"`                // shopify, twilio, smtp, webhooks, app, db
	Op          string  `json:"op,omitempty"`          // GraphQL root field, or the app's named point; empty = every
	Mode        string  `json:"mode"`                  // throttle, status, timeout_after_commit, ...
	When        string  `json:"when,omitempty"`        // for delay: before or after the answer is computed
	Until       string  `json:"until,omitempty"`       // for delay: "lifted" = until the fault is deleted
	Count       int     `json:"count,omitempty"`       // how often; 0 = until deleted
	MS          int     `json:"ms,omitempty"`          // for delay and index_lag
	Code        int     `json:"code,omitempty"`        // for status: the HTTP (or provider's) code
	Probability float64 `json:"probability,omitempty"` // 0 = always
	Shop        string  `json:"shop,omitempty"`        // only this shop's requests
}

// Delay is the fault's MS as a duration.
func (f Fault) Delay() time.Duration { return time.Duration(f.MS) * time.Millisecond }

type planted struct {
	Fault
	left   int // firings left; -1 = no limit
	lifted chan struct{}
}

// Faults is the set of faults that are planted now. The zero value has none.
type Faults struct {
	mu   sync.Mutex
	next int
	all  []*planted
	held int
}

// Add plants a fault and returns its id.
func (s *Faults) Add(f Fault) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	f.ID = strconv.Itoa(s.next)
	left := f.Count
	if left == 0 {
		left = -1
	}
	s.all = append(s.all, &planted{f, left, make(chan struct{})})
	return f.ID
}

// Delete lifts one fault, or every fault when id is empty. It fails for an id that is not planted.
func (s *Faults) Delete(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kept []*planted
	for _, p := range s.all {
		if id == "" || p.ID == id {
			close(p.lifted)
		} else {
			kept = append(kept, p)
		}
	}
	if id != "" && len(kept) == len(s.all) {
		return fmt.Errorf("no fault with id %q", id)
	}
	s.all = kept
	return nil
}

// Take returns the faults that fire now for a request to target, and counts them. A fault that has
// fired as often as it should stays only to be lifted.
func (s *Faults) Take(target, op, shop string) []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	var fire []Fault
	for _, p := range s.all {
		if p.left == 0 || p.Target != target || (p.Op != "" && p.Op != op) || (p.Shop != "" && p.Shop != shop) {
			continue
		}
		if p.Probability > 0 && rand.Float64() >= p.Probability {
			continue
		}
		if p.left > 0 {
			p.left--
		}
		fire = append(fire, p.Fault)
	}
	return fire
}

// Wait holds a request back for a delay fault: for its time, or until it is lifted. It returns false
// when gone is closed first.
func (s *Faults) Wait(f Fault, gone <-chan struct{}) bool {
	if f.Until != "lifted" {
		select {
		case <-time.After(f.Delay()):
			return true
		case <-gone:
			return false
		}
	}
	s.mu.Lock()
	var lifted chan struct{}
	for _, p := range s.all {
		if p.ID == f.ID {
			lifted = p.lifted
		}
	}
	if lifted == nil { // lifted already
		s.mu.Unlock()
		return true
	}
	s.held++
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.held--; s.mu.Unlock() }()
	select {
	case <-lifted:
		return true
	case <-gone:
		return false
	}
}

// Held is the number of requests that wait for a fault to be lifted.
func (s *Faults) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// List returns the planted faults.
func (s *Faults) List() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Fault, len(s.all))
	for i, p := range s.all {
		all[i] = p.Fault
	}
	return all
}
