//go:build !proof

package waitlist_test

// histories is how many random histories are told; make proof tells more.
const histories = 50
