//go:build proof

package waitlist_test

const (
	histories = 2000
	rarest    = 0.05
)
