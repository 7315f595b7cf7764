//go:build !proof

package waitlist_test

// histories is how many random histories are told, and rarest the share of the steps that each act must have.
// Make proof tells more, of which more can be asked.
const (
	histories = 50
	rarest    = 0.03
)
