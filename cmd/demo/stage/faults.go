package stage

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/app/notify/smtpsim"
	"holdfast/app/notify/twiliosim"
	"holdfast/app/simkit"
)

// modes are the faults that each target can have.
var modes = map[string][]string{
	"shopify":  {"throttle", "status", "timeout_after_commit", "drop_after_commit", "delay", "html_502", "index_lag", "token_expired", "bulk_failed"},
	"twilio":   {"throttle", "status", "timeout_after_commit", "drop_after_commit", "delay", "html_502", "down"},
	"smtp":     {"status", "timeout_after_commit", "drop_after_commit", "delay", "down"},
	"webhooks": {"duplicate", "lose", "reorder", "delay"},
	"app":      {"crash_before", "crash_after"},
	"db":       {"down"},
}

// points are the moments at which the app can be made to die, as it names them itself.
var points = []string{"claim_commit", "draft_create", "draft_delete", "send", "release_commit", "webhook_commit"}

// checkFault refuses a fault that could never fire, because a name in it is wrong.
func checkFault(f simkit.Fault) error {
	bad := func(field, value string, allowed []string) error {
		return refuse(http.StatusBadRequest, "%s: %q is none of %s", field, value, strings.Join(allowed, ", "))
	}
	of, ok := modes[f.Target]
	switch {
	case f.ID != "":
		return refuse(http.StatusBadRequest, "id: it is given by the answer, not by you")
	case !ok:
		return bad("target", f.Target, slices.Sorted(maps.Keys(modes)))
	case !slices.Contains(of, f.Mode):
		return bad("mode of target "+f.Target, f.Mode, of)
	case f.Target == "app" && f.Op != "" && !slices.Contains(points, f.Op):
		return bad("op of target app", f.Op, points)
	case f.When != "" && f.When != "before" && f.When != "after":
		return bad("when", f.When, []string{"before", "after"})
	case f.When != "" && f.Mode != "delay":
		return refuse(http.StatusBadRequest, "when: it belongs to mode delay; mode %s says when by itself", f.Mode)
	case f.Until != "" && f.Until != "lifted":
		return bad("until", f.Until, []string{"lifted"})
	case f.Until != "" && f.Mode != "delay":
		return refuse(http.StatusBadRequest, "until: it belongs to mode delay")
	case f.Mode == "delay" && f.Until == "" && f.MS == 0:
		return refuse(http.StatusBadRequest, `ms: say for how long in milliseconds, or give "until":"lifted"`)
	case f.Mode == "status" && f.Code == 0:
		return refuse(http.StatusBadRequest, "code: say which code is to be answered")
	case f.MS < 0, f.Count < 0, f.Code < 0, f.Probability < 0, f.Probability > 1:
		return refuse(http.StatusBadRequest, "ms, count and code are 0 or more, probability is from 0 to 1")
	}
	var err error
	switch f.Target {
	case "twilio":
		err = twiliosim.CheckFault(f)
	case "smtp":
		err = smtpsim.CheckFault(f)
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "%s", err)
	}
	return nil
}

func (s *Stage) postFault(r *http.Request) (any, error) {
	var f simkit.Fault
	if err := decode(r, &f); err != nil {
		return nil, err
	}
	if err := checkFault(f); err != nil {
		return nil, err
	}
	switch f.Target {
	case "app":
		// The same point is asked before and after; the fault must not be spent by the other one.
		f.Target = "app " + strings.TrimPrefix(f.Mode, "crash_")
	case "db":
		if s.postgres == nil {
			return nil, notBuilt("target db for a database that the demo did not start (DATABASE_URL is set)")
		}
		id := s.faults.Add(f)
		return map[string]string{"id": id}, s.loseDatabase(f.Delay(), id)
	}
	return map[string]string{"id": s.faults.Add(f)}, nil
}

func (s *Stage) deleteFault(r *http.Request) (any, error) {
	id := r.URL.Query().Get("id")
	if err := s.faults.Delete(id); err != nil {
		return nil, refuse(http.StatusNotFound, "%s", err)
	}
	return map[string]any{"deleted": true}, nil
}

// loseDatabase stops PostgreSQL, and starts it again after a time, or when the fault with the id is
// lifted.
func (s *Stage) loseDatabase(for_ time.Duration, id string) error {
	s.moving.Lock()
	s.dbLost.Store(true)
	if err := s.postgres.Stop(); err != nil {
		s.moving.Unlock()
		return fmt.Errorf("stop the database: %w", err)
	}
	f := simkit.Fault{ID: id, MS: int(for_.Milliseconds())}
	if for_ == 0 {
		f.Until = "lifted"
	}
	s.background.Go(func() {
		defer s.moving.Unlock()
		s.faults.Wait(f, s.closing)
		if err := s.startDatabase(context.WithoutCancel(s.ctx)); err != nil {
			s.log.Error("the database does not start again", "err", err)
			return
		}
		s.db.Reset() // its connections are to the server that was stopped
		s.dbLost.Store(false)
	})
	return nil
}

// atPoint answers the app, which asks at each of its named points whether to go on. When a fault says
// that it dies there, it is killed and never answered.
func (s *Stage) atPoint(r *http.Request) (any, error) {
	point, when := r.PathValue("point"), r.URL.Query().Get("when")
	pid, err := strconv.Atoi(r.URL.Query().Get("pid"))
	if err != nil || !slices.Contains(points, point) || (when != "before" && when != "after") {
		return nil, refuse(http.StatusBadRequest, "ask as in /crash/claim_commit?when=before&pid=4711; the points are %s", strings.Join(points, ", "))
	}
	if len(s.faults.Take("app "+when, point, "")) == 0 {
		return map[string]any{"go_on": true}, nil
	}
	n, err := s.procs.killPID(pid)
	if err != nil {
		return nil, err
	}
	s.log.Info("killed at a named point", "app", n, "point", point, "when", when)
	<-r.Context().Done() // the one who asked is dead
	return nil, r.Context().Err()
}
