//go:build !proof

package stage

import "time"

// thousand is how many people are told in order, and the time they may take on the smallest plan.
const (
	thousand       = 200
	thousandWithin = 45 * time.Second
)

// pressers press at once on the smallest plan: more than its bucket pays for.
const pressers = 180

// killedAt are the points at which the program is killed when an answer is lost; "" is not at all.
var killedAt = []string{"", "draft_create"}

// lostBy are the ways in which an answer is lost. The proof has all of them.
var lostBy = []string{"drop_after_commit"}

// forms are the values of reserve before telling with which a story about faults is told.
var forms = []bool{true}

// writes are the stocks that are written of each variant in the flood.
const writes = 6

// filled is how many variants a large catalogue has.
const filled = 3_000
