package waitlist_test

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"holdfast/app/db/dbtest"
)

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": strconv.Itoa(histories), "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			println(err.Error())
			os.Exit(2)
		}
	}
	dbtest.Main(m)
}
