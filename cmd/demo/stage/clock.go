package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

const (
	// longestStep is the most that the clock moves at once: what falls due is done before it moves on.
	longestStep = time.Hour
	// shortestStep is the interval of the app's sweep: more often than that nothing that is due is
	// done in production either.
	shortestStep = 30 * time.Second
)

// duration is a time.Duration in JSON: a string such as "15m", "1h30m" or "2.5s".
type duration time.Duration

func (d *duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf(`a duration is a string such as "15m" or "1h30m"`)
	}
	v, err := time.ParseDuration(text)
	if err != nil || v <= 0 {
		return fmt.Errorf(`%q is no duration: write it as "15m" or "1h30m", and longer than nothing`, text)
	}
	*d = duration(v)
	return nil
}

// ClockReading is the answer of GET and POST /sim/clock.
type ClockReading struct {
	Now    time.Time `json:"now"`
	Pushed string    `json:"pushed"` // how far it is ahead of real time
}

func (s *Stage) readClock() ClockReading {
	return ClockReading{Now: s.clock.Now(), Pushed: s.clock.Pushed().String()}
}

// pushes remembers when the clock was pushed, so that a time of it can be turned back into real time.
type pushes struct {
	mu  sync.Mutex
	all []push
}

type push struct {
	at    time.Time // real
	total time.Duration
}

func (p *pushes) add(total time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, push{time.Now(), total})
}

// real turns a time of the pushed clock into real time.
func (p *pushes) real(t time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.all) - 1; i >= 0; i-- {
		if r := t.Add(-p.all[i].total); !r.Before(p.all[i].at) {
			return r
		}
	}
	return t
}

func (s *Stage) postClock(r *http.Request) (any, error) {
	var in struct {
		Advance duration `json:"advance"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if in.Advance == 0 {
		return nil, refuse(http.StatusBadRequest, `advance is missing: say how far, as in {"advance":"15m"}`)
	}
	if err := s.advance(r.Context(), time.Duration(in.Advance)); err != nil {
		return nil, err
	}
	return s.readClock(), nil
}

// advance pushes the one clock of app and simulators. It moves to the next moment at which something
// falls due, though never by less than the sweep's interval or more than an hour, and the app sweeps after
// each step. Everything comes to rest before the clock moves on; only over a long time in which nothing
// falls due it does so once a day.
func (s *Stage) advance(ctx context.Context, by time.Duration) error {
	s.moving.Lock() // two callers do not push in turns
	defer s.moving.Unlock()
	if err := s.rest(ctx); err != nil {
		return fmt.Errorf("before the clock moves: %w", err)
	}
	for moved := time.Duration(0); by > 0; {
		step := min(by, longestStep)
		due, err := s.untilDue(ctx)
		if err != nil {
			return err
		}
		if due > 0 {
			step = min(step, max(due, shortestStep))
		}
		if err := s.step(ctx, step); err != nil {
			return err
		}
		by -= step
		moved += step
		if quiet := by > 0 && moved < 24*time.Hour && moved > 3*longestStep && (due == 0 || due > 2*longestStep); quiet {
			continue
		}
		if err := s.rest(ctx); err != nil {
			return fmt.Errorf("with %s to go: %w", by, err)
		}
		if moved >= 24*time.Hour || (due > 0 && due <= longestStep) {
			moved = 0
		}
	}
	return nil
}

// rest settles, unless no process of the app runs: then nothing can come to rest, and time passes all the
// same.
func (s *Stage) rest(ctx context.Context) error {
	if len(s.procs.ready()) == 0 {
		return nil
	}
	return s.settle(ctx, settleTimeout)
}

// untilDue is how long it is until the next thing falls due; 0 when nothing will.
func (s *Stage) untilDue(ctx context.Context) (time.Duration, error) {
	now := s.clock.Now()
	var next *time.Time
	err := s.db.QueryRow(ctx, `
		SELECT min(due) FROM (
			SELECT min(expires_at) AS due FROM holds WHERE state IN ('securing', 'active') AND expires_at > $1
			UNION ALL SELECT min(lapses_at) FROM offers WHERE state = 'open' AND lapses_at > $1
			UNION ALL SELECT min(expires_at) FROM entries WHERE state = 'waiting' AND expires_at > $1
			UNION ALL SELECT min(v.rise_since + make_interval(secs => s.settle_seconds)) FROM variants v JOIN settings s USING (shop_id)
			          WHERE v.rise_since + make_interval(secs => s.settle_seconds) > $1) dues`, now).Scan(&next)
	if err != nil {
		return 0, fmt.Errorf("what falls due next: %w", err)
	}
	if next == nil {
		return 0, nil
	}
	return next.Sub(now) + 10*time.Millisecond, nil
}

// step moves the clock, has the simulators and the app do what is due, and lets back-offs follow.
func (s *Stage) step(ctx context.Context, by time.Duration) error {
	s.clock.Push(by)
	s.pushes.add(s.clock.Pushed())
	s.sims.tick()
	if err := s.setClocks(ctx, true); err != nil {
		return err
	}
	return s.moveRetries(ctx, by)
}

// setClocks tells every running process of the app how far the clock is ahead, and lets the last of them
// sweep: by then all have the same time.
func (s *Stage) setClocks(ctx context.Context, sweep bool) error {
	up := s.procs.ready()
	for i, a := range up {
		if err := s.setClock(ctx, a, sweep && i == len(up)-1); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stage) setClock(ctx context.Context, a *process, sweep bool) error {
	body, err := json.Marshal(map[string]any{"pushed": s.clock.Pushed().String(), "sweep": sweep})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+a.ops+"/clock", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := s.procs.http.Do(req)
	if err != nil {
		if !a.running() {
			return nil // it was killed meanwhile, as by a crash fault; it asks for the time when it is started
		}
		return fmt.Errorf("set the clock of app %d: %w", a.n, err)
	}
	defer res.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(res.Body, 2048))
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("set the clock of app %d: %s: %s", a.n, res.Status, bytes.TrimSpace(said))
	}
	return nil
}

// moveRetries lets the app's back-offs follow the clock: a job that waits for its next attempt waits for
// so much less, and what is due by now is made available by River's own rule.
func (s *Stage) moveRetries(ctx context.Context, by time.Duration) error {
	_, err := s.db.Exec(ctx, `UPDATE river_job SET scheduled_at = scheduled_at - $1::interval WHERE state IN ('retryable', 'scheduled')`, by)
	if err != nil {
		return fmt.Errorf("move the retries: %w", err)
	}
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		exec := riverpgxv5.New(s.db).UnwrapExecutor(tx)
		now := time.Now()
		due, err := exec.JobSchedule(ctx, &riverdriver.JobScheduleParams{Max: 100_000, Now: &now})
		if err != nil {
			return fmt.Errorf("make due jobs available: %w", err)
		}
		woken := map[string]bool{}
		var payloads []string
		for _, d := range due {
			if !woken[d.Job.Queue] {
				woken[d.Job.Queue] = true
				payload, err := json.Marshal(map[string]string{"queue": d.Job.Queue})
				if err != nil {
					return err
				}
				payloads = append(payloads, string(payload))
			}
		}
		if len(payloads) == 0 {
			return nil
		}
		err = exec.NotifyMany(ctx, &riverdriver.NotifyManyParams{Payload: payloads, Topic: "river_insert"})
		if err != nil {
			return fmt.Errorf("wake the workers: %w", err)
		}
		return nil
	})
}
