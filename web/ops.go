package web

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// OpsConfig is what the operator's listener is made of.
type OpsConfig struct {
	// Ping fails when the database cannot be reached, UpToDate when its schema is older than the program.
	Ping, UpToDate func(ctx context.Context) error
	// Clock takes PUT /clock while the program runs against simulators; nil in production.
	Clock http.Handler
	// Metrics answers GET /metrics.
	Metrics http.Handler
	Log     *slog.Logger
}

// Ops returns the handler of the operator's listener. It asks nobody who they are and must never be
// reachable from outside.
//
//	GET /healthz   200 as long as the process answers: what a supervisor restarts on
//	GET /readyz    200 when requests can be served, else 503 with the reason: what a balancer asks
//	GET /metrics   what this process counts, for Prometheus
func Ops(c OpsConfig) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.GetHead)
	r.Get("/healthz", func(w http.ResponseWriter, r *http.Request) { writeJSON(w, http.StatusOK, opsAnswer{OK: true}) })
	r.Get("/readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		err := c.Ping(ctx)
		if err == nil {
			err = c.UpToDate(ctx)
		}
		if err != nil {
			c.Log.WarnContext(ctx, "not ready", "err", err)
			writeJSON(w, http.StatusServiceUnavailable, opsAnswer{Why: err.Error()})
			return
		}
		writeJSON(w, http.StatusOK, opsAnswer{OK: true})
	})
	r.Get("/metrics", c.Metrics.ServeHTTP)
	r.Get("/jobs", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusNotImplemented, opsAnswer{Why: "not built: the page of jobs"})
	})
	if c.Clock != nil {
		r.Put("/clock", c.Clock.ServeHTTP)
	}
	return r
}

type opsAnswer struct {
	OK  bool   `json:"ok"`
	Why string `json:"why,omitempty"`
}
