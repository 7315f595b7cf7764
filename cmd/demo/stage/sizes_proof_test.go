//go:build proof

package stage

import "time"

const (
	thousand       = 1000
	thousandWithin = 3 * time.Minute
)

var lostBy = []string{"drop_after_commit", "html_502", "timeout_after_commit"}
