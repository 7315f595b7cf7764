//go:build !proof

package stage

import "time"

// thousand is how many people are told in order, and the time they may take on the smallest plan.
const (
	thousand       = 200
	thousandWithin = 45 * time.Second
)

// lostBy are the ways in which an answer is lost. The proof has all of them.
var lostBy = []string{"drop_after_commit"}
