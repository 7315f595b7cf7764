package stage

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"holdfast/app/db/dbtest"
)

// startPlayed starts a stage whose app is played by the test binary: enough to prove what the stage does
// with processes, clock and rows. The story with the real program is in story_test.go.
func startPlayed(t *testing.T, apps int) (*Stage, *Client) {
	t.Helper()
	s, err := Start(t.Context(), Options{
		Binary: os.Args[0], Apps: apps, DatabaseURL: dbtest.EmptyURL(t), DataDir: t.TempDir(), AppEnv: []string{"STAGE_TEST_APP=app"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, s.Client()
}

func TestAFaultAtANamedPointKillsTheProcessThatComesThere(t *testing.T) {
	t.Parallel()
	s, c := startPlayed(t, 2)
	before, err := s.Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Fault(t.Context(), map[string]any{"target": "app", "op": "send", "mode": "crash_after", "count": 1}); err != nil {
		t.Fatal(err)
	}
	pass := func(point string) (int, string) {
		status, body, _, err := c.Page(t.Context(), "POST", s.AppURL+"/crash?point="+point, nil)
		if err != nil {
			t.Fatal(err)
		}
		return status, body
	}
	if status, body := pass("claim_commit"); status != 200 || body != "before 200 after 200 " {
		t.Errorf("a point without a fault: %d %q", status, body)
	}
	if status, body := pass("send"); status != 502 {
		t.Errorf("the point of the fault: %d %q", status, body)
	}
	after, err := s.Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after[0].Running == after[1].Running {
		t.Errorf("one of two processes should be dead: %+v", after)
	}
	if status, body := pass("send"); status != 200 {
		t.Errorf("a fault of count 1 fired twice: %d %q", status, body)
	}
	started, err := c.App(t.Context(), "start", 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range started {
		if !p.Running || p.Address != before[i].Address {
			t.Errorf("after the start %+v, at first %+v", p, before[i])
		}
	}
}

func TestTheClockOfEveryProcessIsPushed(t *testing.T) {
	t.Parallel()
	s, c := startPlayed(t, 2)
	if err := c.Advance(t.Context(), 90*time.Minute); err != nil {
		t.Fatal(err)
	}
	clocks := func() (swept int) {
		for _, a := range s.procs.ready() {
			status, body, _, err := c.Page(t.Context(), "GET", "http://"+a.listen+"/clock", nil)
			if err != nil || status != 200 {
				t.Fatal(status, err)
			}
			var got struct {
				Pushed string
				Sweep  bool
			}
			if err := json.Unmarshal([]byte(body), &got); err != nil || got.Pushed != "1h30m0s" {
				t.Errorf("the clock of app %d was set by %q", a.n, body)
			}
			if got.Sweep {
				swept++
			}
		}
		return swept
	}
	if swept := clocks(); swept != 1 {
		t.Errorf("%d of 2 processes swept", swept)
	}
	// One that is started later has the same time.
	if _, err := c.App(t.Context(), "kill", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.App(t.Context(), "start", 1); err != nil {
		t.Fatal(err)
	}
	clocks()
	var now ClockReading
	if err := c.Do(t.Context(), "GET", "/sim/clock", nil, &now); err != nil {
		t.Fatal(err)
	}
	if now.Pushed != "1h30m0s" || time.Until(now.Now) < 89*time.Minute {
		t.Errorf("%+v", now)
	}
}

func TestAJobThatWaitsForItsNextAttemptFollowsTheClock(t *testing.T) {
	t.Parallel()
	s, c := startPlayed(t, 1)
	var soon, later int64
	insert := `INSERT INTO river_job (args, kind, max_attempts, state, scheduled_at) VALUES ('{}', 'secure', 5, 'retryable', now() + $1::interval) RETURNING id`
	for wait, id := range map[time.Duration]*int64{40 * time.Minute: &soon, 3 * time.Hour: &later} {
		if err := s.db.QueryRow(t.Context(), insert, wait).Scan(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.moveRetries(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[int64]string{soon: "available", later: "retryable"} {
		var state string
		var in time.Duration
		if err := s.db.QueryRow(t.Context(), `SELECT state, scheduled_at - now() FROM river_job WHERE id = $1`, id).Scan(&state, &in); err != nil {
			t.Fatal(err)
		}
		if state != want || in > 2*time.Hour {
			t.Errorf("job %d is %s in %s, want %s", id, state, in, want)
		}
	}
	// The one that is due is in flight, and nobody works it: the settle gives up and says so.
	err := c.Do(t.Context(), "POST", "/sim/settle", map[string]string{"timeout": "50ms"}, nil)
	if f, ok := err.(*Failed); !ok || f.Status != http.StatusGatewayTimeout || !strings.Contains(f.Body, `"secure available":1`) {
		t.Errorf("settle: %v", err)
	}
	if _, err := s.db.Exec(t.Context(), `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE id = $1`, soon); err != nil {
		t.Fatal(err)
	}
	if err := c.Settle(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAResetPutsEverythingBackButTheClock(t *testing.T) {
	t.Parallel()
	s, c := startPlayed(t, 1)
	first, err := c.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if first["shops"].Rows != 2 || first["settings"].Rows != 2 {
		t.Errorf("the demo's shops are not there: %+v", first)
	}
	if err := c.Advance(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := c.SetStock(t.Context(), FirstShop, "30011", 9); err != nil {
		t.Fatal(err)
	}
	if _, err := c.App(t.Context(), "kill", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Exec(t.Context(), `INSERT INTO notes (shop_id, kind, subject, detail, created_at) VALUES (1, 'demand', 'x', 'y', now())`); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Fault(t.Context(), map[string]any{"target": "shopify", "mode": "throttle"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Do(t.Context(), "POST", "/sim/reset", nil, nil); err != nil {
		t.Fatal(err)
	}
	again, err := c.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for table, d := range first {
		if again[table].Rows != d.Rows {
			t.Errorf("%s had %d rows, and has %d after the reset", table, d.Rows, again[table].Rows)
		}
	}
	inv, err := c.Inventory(t.Context(), FirstShop, "30011")
	if err != nil || inv.Available != 0 {
		t.Errorf("stock after the reset: %+v, %v", inv, err)
	}
	if len(s.faults.List()) != 0 || s.clock.Pushed() != time.Minute || len(s.procs.ready()) != 1 {
		t.Errorf("faults %v, pushed %s, %d processes", s.faults.List(), s.clock.Pushed(), len(s.procs.ready()))
	}
	report, err := c.Invariants(t.Context())
	if err != nil || !report.OK {
		t.Errorf("invariants: %+v, %v", report, err)
	}
}

func TestAStageThatCannotStartLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	_, err := Start(t.Context(), Options{Binary: os.Args[0], DatabaseURL: url, DataDir: t.TempDir(), AppEnv: []string{"STAGE_TEST_APP=broken"}})
	if err == nil || !strings.Contains(err.Error(), "cannot migrate: no such database") {
		t.Fatalf("%v", err)
	}
	if _, err := Start(t.Context(), Options{Binary: os.Args[0], Listen: "0.0.0.0:0", DatabaseURL: url, DataDir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "not a loopback address") {
		t.Errorf("%v", err)
	}
}
