//go:build proof

package stage

import "time"

const (
	thousand       = 1000
	thousandWithin = 3 * time.Minute
)

const pressers = 300

var killedAt = []string{"", "draft_create", "draft_delete"}

var lostBy = []string{"drop_after_commit", "html_502", "timeout_after_commit"}

var forms = []bool{false, true}

const writes = 20

const filled = 100_000
