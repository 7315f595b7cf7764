package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"holdfast/app/db/dbtest"
	"holdfast/app/waitlist"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestAnErrorOfTheDomainIsAVerdict(t *testing.T) {
	t.Parallel()
	var snooze *rivertype.JobSnoozeError
	var cancel *rivertype.JobCancelError
	wrap := func(err error) error { return fmt.Errorf("secure hold 7: %w", err) }

	if err := verdict(nil); err != nil {
		t.Errorf("no error: %v", err)
	}
	if err := verdict(wrap(waitlist.ErrLater)); !errors.As(err, &snooze) || snooze.Duration != soon {
		t.Errorf("later: %v", err)
	}
	for after, want := range map[time.Duration]time.Duration{0: soon, 3 * time.Second: 3 * time.Second, time.Hour: longestWait} {
		if err := verdict(wrap(&waitlist.Throttled{After: after})); !errors.As(err, &snooze) || snooze.Duration != want {
			t.Errorf("throttled for %v: %v", after, err)
		}
	}
	if err := verdict(wrap(&waitlist.Away{After: 3 * time.Second})); !errors.As(err, &snooze) || snooze.Duration != 3*time.Second {
		t.Errorf("away: %v", err)
	}
	if err := verdict(wrap(&waitlist.ShopRefused{Status: 402})); !errors.As(err, &snooze) || snooze.Duration != longestWait {
		t.Errorf("refused: %v", err)
	}
	if err := verdict(wrap(waitlist.ErrNotFound)); !errors.As(err, &cancel) {
		t.Errorf("not found: %v", err)
	}
	lost := wrap(errors.New("connection reset"))
	if err := verdict(lost); err != lost {
		t.Errorf("unknown outcome: %v, want the error itself, which is tried again", err)
	}
}

func TestPatienceGrowsToAMinuteAndNeverEnds(t *testing.T) {
	t.Parallel()
	for attempt, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, maxAttempts - 1: time.Minute} {
		got := time.Until(patience{}.NextRetry(&rivertype.JobRow{Attempt: attempt}))
		if got > want || got < want-time.Second {
			t.Errorf("after attempt %d: %v, want %v", attempt, got, want)
		}
	}
}

// A process was killed while it worked two jobs; another one lives. The successor of the first, and no
// other, has its jobs again at once.
func TestAProcessTakesBackWhatItsPredecessorWasDoing(t *testing.T) {
	t.Parallel()
	pool, ctx := dbtest.New(t), t.Context()
	inserter, err := Inserter(pool)
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := inserter.InsertManyFastTx(ctx, tx, []river.InsertManyParams{
			{Args: waitlist.SecureJob{ShopID: 1}}, {Args: waitlist.NoticeJob{ShopID: 1, RestockID: 1}}, {Args: waitlist.SecureJob{ShopID: 1}}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range []string{"a :1", "a :1", "b :1"} {
		if _, err := pool.Exec(ctx, `UPDATE river_job SET state = 'running', attempt = 1, attempted_at = now(), attempted_by = ARRAY['old', $2] WHERE id = (SELECT id FROM river_job ORDER BY id OFFSET $1 LIMIT 1)`, i, id); err != nil {
			t.Fatal(err)
		}
	}
	list := waitlist.New(pool, inserter, nil, nil, nil, time.Now, waitlist.NoPoint, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err := TakeBack(ctx, pool, list, "a :1"); err != nil {
		t.Fatal(err)
	}
	var states string
	if err := pool.QueryRow(ctx, `SELECT string_agg(state::text, ' ' ORDER BY id) FROM river_job`).Scan(&states); err != nil {
		t.Fatal(err)
	}
	if states != "available available running" {
		t.Fatalf("the jobs are %s", states)
	}
}

// The jobs that the domain queues are worked by a client as it is in the program: wired, over a database.
func TestEveryKindOfJobHasItsWorker(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	inserter, err := Inserter(pool)
	if err != nil {
		t.Fatal(err)
	}
	list := waitlist.New(pool, inserter, nil, nil, nil, time.Now, waitlist.NoPoint, slog.New(slog.NewTextHandler(io.Discard, nil)))
	client, err := New(pool, list, Config{ID: t.Name(), Workers: 4, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ended, stop := client.Subscribe(river.EventKindJobCompleted, river.EventKindJobCancelled, river.EventKindJobFailed)
	defer stop()
	if err := client.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	defer client.Stop(context.Background())
	// None of these rows exists: each worker finds nothing to do, or says so.
	for _, args := range []river.JobArgs{waitlist.SecureJob{ShopID: 1}, waitlist.ReleaseJob{ShopID: 1, HoldID: 1}, waitlist.NoticeJob{ShopID: 1, RestockID: 1}, waitlist.WebhookJob{ShopID: 1, WebhookID: 1}} {
		if _, err := client.Insert(t.Context(), args, nil); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]river.EventKind{}
	deadline := time.After(30 * time.Second)
	for len(seen) < 4 {
		select {
		case e := <-ended:
			if e.Job.Kind != "sweep" {
				seen[e.Job.Kind] = e.Kind
			}
		case <-deadline:
			t.Fatalf("worked: %v", seen)
		}
	}
	for kind, want := range map[string]river.EventKind{"secure": river.EventKindJobCancelled, "release": river.EventKindJobCancelled, "notice": river.EventKindJobCompleted, "webhook": river.EventKindJobCompleted} {
		if seen[kind] != want {
			t.Errorf("%s: %s, want %s", kind, seen[kind], want)
		}
	}
}
