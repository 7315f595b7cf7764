package dbtest_test

import (
	"context"
	"testing"

	"holdfast/app/db"
	"holdfast/app/db/dbtest"
)

func TestEachTestHasAMigratedDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, b := dbtest.New(t), dbtest.New(t)
	if err := db.UpToDate(ctx, a); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Exec(ctx, `INSERT INTO shops (domain, name) VALUES ('a.myshopify.com', 'A')`); err != nil {
		t.Fatal(err)
	}
	var shops int
	if err := b.QueryRow(ctx, `SELECT count(*) FROM shops`).Scan(&shops); err != nil {
		t.Fatal(err)
	}
	if shops != 0 {
		t.Errorf("the second database has %d shops of the first", shops)
	}
}
