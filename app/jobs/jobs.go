// Package jobs lets River call the domain: each worker decodes, calls and returns a verdict. What a job
// does, and why it may run twice, stands with the function it calls.
package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"holdfast/app/waitlist"
)

const (
	// timeout is the longest that a job may take: a send, or a few calls of Shopify.
	timeout = 60 * time.Second
	// rescueAfter is when a job that never ended is taken from a process that must have died.
	rescueAfter = 2 * time.Minute
	// soon is when a step that should look again is run again.
	soon = 400 * time.Millisecond
	// longestWait bounds the wait between two tries of a job that fails: nothing accepted is given up.
	longestWait = time.Minute
	sweepEvery  = 30 * time.Second
	// gathered is how many times more observes are worked at once than other jobs: they wait together for
	// one read of their shop's stock.
	gathered = 4
)

// Inserter returns a client that queues jobs and works none: the domain's.
func Inserter(pool *pgxpool.Pool) (*river.Client[pgx.Tx], error) {
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{MaxAttempts: maxAttempts})
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	return client, nil
}

// maxAttempts is as good as for ever: the column is a smallint.
const maxAttempts = math.MaxInt16

// sweepJob asks for Sweep. It is queued every 30 seconds by whichever process River elects.
type sweepJob struct{}

func (sweepJob) Kind() string { return "sweep" }

// Config is what a working client needs.
type Config struct {
	// ID names the process. A process that starts under the ID of one that was killed takes back what
	// that one was doing; no two that live may share one.
	ID      string
	Workers int // jobs worked at once in each queue, in this process
	Log     *slog.Logger
}

// New returns a client that works the domain's jobs. Call TakeBack, then Start; Stop waits for the jobs
// under way.
func New(pool *pgxpool.Pool, list *waitlist.Service, c Config) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	for _, err := range []error{
		add(workers, func(ctx context.Context, a waitlist.ObserveJob) error {
			return list.Observe(ctx, a.ShopID, a.VariantID)
		}),
		add(workers, func(ctx context.Context, a waitlist.SecureJob) error { return list.SecureNext(ctx, a.ShopID) }),
		add(workers, func(ctx context.Context, a waitlist.ReleaseJob) error { return list.Release(ctx, a.ShopID, a.HoldID) }),
		add(workers, func(ctx context.Context, a waitlist.NoticeJob) error { return list.Notify(ctx, a.ShopID, a.RestockID) }),
		add(workers, func(ctx context.Context, a waitlist.WebhookJob) error {
			return list.HandleWebhook(ctx, a.ShopID, a.WebhookID)
		}),
		add(workers, func(ctx context.Context, a waitlist.ReconcileJob) error { return list.Reconcile(ctx, a.ShopID) }),
		add(workers, func(ctx context.Context, a waitlist.CatalogueJob) error { return list.ReadCatalogue(ctx, a.ShopID) }),
		add(workers, func(ctx context.Context, a waitlist.ProductJob) error {
			return list.ReadProduct(ctx, a.ShopID, a.ProductID)
		}),
		add(workers, func(ctx context.Context, _ sweepJob) error { return list.Sweep(ctx) }),
	} {
		if err != nil {
			return nil, fmt.Errorf("jobs: %w", err)
		}
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		ID:      c.ID,
		Workers: workers,
		Queues: map[string]river.QueueConfig{
			river.QueueDefault:      {MaxWorkers: c.Workers},
			waitlist.QueueHolds:     {MaxWorkers: c.Workers},
			waitlist.QueueObserve:   {MaxWorkers: gathered * c.Workers}, // one call reads for many
			waitlist.QueueCatalogue: {MaxWorkers: 2},
		},
		Logger:               c.Log,
		ErrorHandler:         &faults{c.Log},
		JobTimeout:           timeout,
		RescueStuckJobsAfter: rescueAfter,
		MaxAttempts:          maxAttempts,
		RetryPolicy:          patience{},
		FetchCooldown:        20 * time.Millisecond,
		FetchPollInterval:    500 * time.Millisecond,
		SoftStopTimeout:      20 * time.Second,

		CompletedJobRetentionPeriod: 24 * time.Hour,
		PeriodicJobs: []*river.PeriodicJob{
			river.NewPeriodicJob(river.PeriodicInterval(sweepEvery), func() (river.JobArgs, *river.InsertOpts) {
				// A sweep that failed is not tried again: the next one does its work.
				return sweepJob{}, &river.InsertOpts{MaxAttempts: 1, UniqueOpts: river.UniqueOpts{ByState: []rivertype.JobState{
					rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning, rivertype.JobStateRetryable, rivertype.JobStateScheduled}}}
			}, &river.PeriodicJobOpts{RunOnStart: true}),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	return client, nil
}

type worker[T river.JobArgs] struct {
	river.WorkerDefaults[T]
	work func(context.Context, T) error
}

func (w *worker[T]) Work(ctx context.Context, job *river.Job[T]) error {
	return verdict(w.work(ctx, job.Args))
}

func add[T river.JobArgs](workers *river.Workers, work func(context.Context, T) error) error {
	return river.AddWorkerSafely(workers, &worker[T]{work: work})
}

// verdict is the only place where a domain error becomes River's: look again soon, wait for the budget,
// nothing to do any more, or try again with growing patience.
func verdict(err error) error {
	var throttled *waitlist.Throttled
	var away *waitlist.Away
	var refused *waitlist.ShopRefused
	var wait *waitlist.Wait
	switch {
	case err == nil:
		return nil
	case errors.Is(err, waitlist.ErrLater):
		return river.JobSnooze(soon)
	case errors.As(err, &wait):
		return river.JobSnooze(max(soon, min(wait.After, longestWait)))
	case errors.As(err, &throttled):
		return river.JobSnooze(max(soon, min(throttled.After, longestWait)))
	case errors.As(err, &away):
		return river.JobSnooze(max(soon, min(away.After, longestWait)))
	case errors.As(err, &refused):
		return river.JobSnooze(longestWait) // the merchant sees why; nothing is given up
	case errors.Is(err, waitlist.ErrNotFound):
		return river.JobCancel(err)
	}
	return err
}

// patience waits 1, 2, 4 ... seconds between tries, a minute at most.
type patience struct{}

func (patience) NextRetry(job *rivertype.JobRow) time.Time {
	wait := longestWait
	if job.Attempt < 7 {
		wait = min(longestWait, time.Second<<(max(1, job.Attempt)-1))
	}
	return time.Now().UTC().Add(wait)
}

// faults logs what a job failed of, with ids alone.
type faults struct{ log *slog.Logger }

func (f *faults) HandleError(ctx context.Context, job *rivertype.JobRow, err error) *river.ErrorHandlerResult {
	f.log.WarnContext(ctx, "job failed and will be tried again", "kind", job.Kind, "job", job.ID, "attempt", job.Attempt, "args", string(job.EncodedArgs), "err", err)
	return nil
}

func (f *faults) HandlePanic(ctx context.Context, job *rivertype.JobRow, panicked any, trace string) *river.ErrorHandlerResult {
	f.log.ErrorContext(ctx, "job panicked and will be tried again", "kind", job.Kind, "job", job.ID, "attempt", job.Attempt, "args", string(job.EncodedArgs), "panic", panicked, "trace", trace)
	return nil
}

// TakeBack makes the jobs available again that a process of this ID was working when it was killed, and
// lets the domain know whose outcome is unknown by that. Without it they would wait for River's rescue, two
// minutes. Call it before Start.
func TakeBack(ctx context.Context, pool *pgxpool.Pool, list *waitlist.Service, id string) error {
	rows, _ := pool.Query(ctx, `
		UPDATE river_job SET state = 'available', scheduled_at = least(scheduled_at, now())
		WHERE state = 'running' AND attempted_by[array_upper(attempted_by, 1)] = $1
		RETURNING kind, args`, id)
	var kind string
	var args []byte
	var notices []waitlist.NoticeJob
	var securers []waitlist.SecureJob
	_, err := pgx.ForEachRow(rows, []any{&kind, &args}, func() error {
		var n waitlist.NoticeJob
		var sec waitlist.SecureJob
		switch kind {
		case n.Kind():
			notices = append(notices, n)
			return json.Unmarshal(args, &notices[len(notices)-1])
		case sec.Kind():
			securers = append(securers, sec)
			return json.Unmarshal(args, &securers[len(securers)-1])
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("take back jobs: %w", err)
	}
	for _, sec := range slices.Compact(securers) {
		if err := list.SecurersGone(ctx, sec.ShopID); err != nil {
			return fmt.Errorf("take back jobs: %w", err)
		}
	}
	for _, n := range notices {
		if err := list.Abandoned(ctx, n.ShopID, n.RestockID); err != nil {
			return fmt.Errorf("take back jobs: %w", err)
		}
	}
	return nil
}
