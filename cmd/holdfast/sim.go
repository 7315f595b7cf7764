package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"holdfast/app/waitlist"
)

// simClock is real time plus what the demo pushed it ahead. It takes PUT /clock on the operator's
// listener: {"pushed": "15m0s", "sweep": true}. With sweep, what has fallen due is swept before it answers.
type simClock struct {
	pushed atomic.Int64
	sweep  func(context.Context) error
	log    *slog.Logger
}

// start takes the clock's time from the demo, so that a process that is started late does not begin in the past.
func (c *simClock) start(ctx context.Context, sim string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, sim+"/sim/clock", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("the demo's clock: %w", err)
	}
	defer answer.Body.Close()
	var clock struct {
		Pushed string `json:"pushed"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&clock); err != nil {
		return fmt.Errorf("the demo's clock: %s: %w", answer.Status, err)
	}
	pushed, err := time.ParseDuration(clock.Pushed)
	if err != nil {
		return fmt.Errorf("the demo's clock: %w", err)
	}
	c.pushed.Store(int64(pushed))
	return nil
}

func (c *simClock) now() time.Time {
	return time.Now().UTC().Add(time.Duration(c.pushed.Load()))
}

func (c *simClock) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Pushed string `json:"pushed"`
		Sweep  bool   `json:"sweep"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1000)).Decode(&ask); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	pushed, err := time.ParseDuration(ask.Pushed)
	if err != nil || pushed < 0 {
		http.Error(w, "pushed is how far the clock is ahead, such as 15m0s", http.StatusBadRequest)
		return
	}
	c.pushed.Store(int64(pushed))
	if ask.Sweep {
		if err := c.sweep(r.Context()); err != nil {
			c.log.ErrorContext(r.Context(), "sweep failed", "err", err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// crashPoint asks the demo at each named point whether to go on. The demo that wants the process dead
// kills it and never answers.
func crashPoint(sim string) waitlist.Point {
	client := &http.Client{}
	return func(ctx context.Context, name, when string) error {
		ask := sim + "/crash/" + url.PathEscape(name) + "?" + url.Values{"when": {when}, "pid": {strconv.Itoa(os.Getpid())}}.Encode()
		req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, ask, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("crash point %s: %w", name, err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New("crash point " + name + ": the demo answered " + answer.Status)
		}
		return nil
	}
}
