package stage

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
)

// soon is how near, in real time, the next attempt of a job must be for it to be in flight. What waits
// longer waits for the clock.
const soon = 15 * time.Second

// inFlight is what has been started and is not done.
type inFlight struct {
	Hooks     int            `json:"webhooks_queued"`   // at the simulated Shopify
	Callbacks int            `json:"callbacks_queued"`  // at the simulated Twilio
	Unworked  int            `json:"webhooks_unworked"` // stored by the app, their work not done
	Jobs      map[string]int `json:"jobs"`              // by kind and state
	Messages  int            `json:"messages"`          // being sent
	Held      int            `json:"requests_held"`     // kept by a fault until it is lifted
	running   int            // of Jobs, those that a worker has
	waiting   int            // of Jobs, those that no worker has
	Later     int            `json:"later"`        // jobs whose next attempt is further away
	Unseen    int            `json:"hints_unseen"` // hints that no observe has seen yet
	moved     [2]int64       // grows with everything that passes through, so that two looks can be compared
}

// quiet says that nothing is in flight but what faults hold back until they are lifted.
func (f inFlight) quiet() bool {
	if f.Hooks > 0 || f.Callbacks > 0 || f.waiting > 0 {
		return false
	}
	// A job whose request is held is running, and so may be its webhook and its message.
	if f.running > f.Held {
		return false
	}
	return f.running > 0 || (f.Unworked == 0 && f.Messages == 0)
}

// nothing says that nothing is in flight, nothing is held back and nothing waits for a later attempt: the
// app knows all that it will ever know.
func (f inFlight) nothing() bool {
	return f.quiet() && f.running == 0 && f.Held == 0 && f.Later == 0 && f.Unseen == 0
}

// look counts what is in flight. The simulators are counted before and after the rows: what passes from
// one to the other is in one of them at any moment, but perhaps not in the one that is looked at.
func (s *Stage) look(ctx context.Context) (inFlight, error) {
	f := inFlight{Jobs: map[string]int{}, Held: s.faults.Held()}
	f.Hooks, f.Callbacks = s.sims.inFlight()
	rows, _ := s.db.Query(ctx, `
		SELECT kind || ' ' || state AS what, count(*) FILTER (WHERE state = 'running') AS running, count(*) FILTER (WHERE state <> 'running') AS waiting
		FROM river_job
		WHERE kind = ANY ($1) AND (state IN ('available', 'running', 'pending') OR (state IN ('retryable', 'scheduled') AND scheduled_at <= now() + $2::interval))
		GROUP BY 1`, jobKinds, soon)
	jobs, err := pgx.CollectRows(rows, pgx.RowToStructByName[struct {
		What             string
		Running, Waiting int
	}])
	if err != nil {
		return f, fmt.Errorf("look at the jobs: %w", err)
	}
	for _, j := range jobs {
		f.Jobs[j.What] = j.Running + j.Waiting
		f.running += j.Running
		f.waiting += j.Waiting
	}
	// A webhook or message whose job waits for longer is not in flight; one without a job is, since
	// somebody must still find it.
	err = s.db.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM webhooks w WHERE done_at IS NULL AND NOT EXISTS (
		          SELECT FROM river_job j WHERE j.kind = 'webhook' AND (j.args->>'shop_id')::bigint = w.shop_id AND (j.args->>'webhook_id')::bigint = w.id
		          AND j.state IN ('retryable', 'scheduled') AND j.scheduled_at > now() + $1::interval)),
		       (SELECT count(*) FROM messages m JOIN offers o ON o.shop_id = m.shop_id AND o.id = m.offer_id
		        WHERE m.state IN ('pending', 'sending') AND m.send_after IS NULL AND o.state = 'open' AND NOT EXISTS (
		          SELECT FROM river_job j WHERE j.kind = 'notice' AND (j.args->>'shop_id')::bigint = o.shop_id AND (j.args->>'restock_id')::bigint = o.restock_id
		          AND j.state IN ('retryable', 'scheduled') AND j.scheduled_at > now() + $1::interval)),
		       (SELECT count(*) FROM river_job WHERE kind = ANY ($2) AND state IN ('retryable', 'scheduled') AND scheduled_at > now() + $1::interval),
		       (SELECT count(*) FROM variants WHERE hint_seq <> seen_seq) + (SELECT count(*) FROM product_hints WHERE hint_seq <> seen_seq),
		       coalesce((SELECT max(id) FROM river_job WHERE kind = ANY ($2)), 0), coalesce((SELECT max(id) FROM webhooks), 0)`, soon, jobKinds).
		Scan(&f.Unworked, &f.Messages, &f.Later, &f.Unseen, &f.moved[0], &f.moved[1])
	if err != nil {
		return f, fmt.Errorf("look at what is in flight: %w", err)
	}
	hooks, callbacks := s.sims.inFlight()
	f.Hooks, f.Callbacks = max(f.Hooks, hooks), max(f.Callbacks, callbacks)
	return f, nil
}

// settleTimeout is how long a settle waits when the caller does not say.
const settleTimeout = 30 * time.Second

// settle returns when nothing is in flight: two looks in a row find nothing, and nothing has passed
// between them. It fails with 504 and what is still in flight when that does not come to be in time.
func (s *Stage) settle(ctx context.Context, timeout time.Duration) error {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	var before inFlight
	for first := true; ; first = false {
		f, err := s.look(ctx)
		down := err != nil && s.dbLost.Load() // it comes back; until then nothing is known to be at rest
		if err != nil && !down {
			return err
		}
		if !down && f.quiet() && !first && before.quiet() && f.moved == before.moved {
			return nil
		}
		pause := 5 * time.Millisecond
		if down || !f.quiet() {
			pause = 25 * time.Millisecond
		}
		before = f
		if down {
			before.waiting = 1
		}
		select {
		case <-time.After(pause):
		case <-deadline.C:
			return &refusal{http.StatusGatewayTimeout, fmt.Sprintf("not settled after %s", timeout), map[string]any{"in_flight": f}}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Stage) postSettle(r *http.Request) (any, error) {
	var in struct {
		Timeout duration `json:"timeout"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	timeout := time.Duration(in.Timeout)
	if timeout == 0 {
		timeout = settleTimeout
	}
	began := time.Now()
	if err := s.settle(r.Context(), timeout); err != nil {
		return nil, err
	}
	return map[string]any{"settled": true, "took_ms": time.Since(began).Milliseconds()}, nil
}
