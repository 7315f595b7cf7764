//go:build proof

package waitlist_test

const histories = 2000
