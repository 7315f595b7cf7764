package web

import (
	"testing"

	"holdfast/app/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }
