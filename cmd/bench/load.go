package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// act is one thing that is asked for: the i-th. ok is false for an answer that it must not have.
type act func(ctx context.Context, i int) (ok bool, err error)

// closedLoop has a number of clients act one after the other, each as soon as it has its answer, until n acts
// are done or the time is up. A latency is how long a client waited.
func closedLoop(ctx context.Context, clients, n int, most time.Duration, do act) (sample, error) {
	latencies, errs := make([]time.Duration, n), make([]error, clients)
	var next, failed atomic.Int64
	began := time.Now()
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for ctx.Err() == nil && time.Since(began) < most {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				asked := time.Now()
				ok, err := do(ctx, i)
				latencies[i] = time.Since(asked)
				if err != nil {
					errs[c] = err
					return
				}
				if !ok {
					failed.Add(1)
				}
			}
		})
	}
	all.Wait()
	s := sample{Latencies: latencies[:min(n, int(next.Load()))], Span: time.Since(began), Failed: int(failed.Load())}
	return s, errors.Join(append(errs, ctx.Err())...)
}

// openLoop has n acts due at even distances within a span, whatever became of those before. A latency is
// counted from the moment at which its act was due.
func openLoop(ctx context.Context, n int, span time.Duration, do act) (sample, error) {
	latencies, errs := make([]time.Duration, n), make([]error, n)
	var failed atomic.Int64
	began := time.Now()
	var all sync.WaitGroup
	for i := range n {
		due := began.Add(span * time.Duration(i) / time.Duration(n))
		if err := wait(ctx, time.Until(due)); err != nil {
			errs[i] = err
			break
		}
		all.Go(func() {
			ok, err := do(ctx, i)
			latencies[i], errs[i] = time.Since(due), err
			if !ok {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	return sample{Latencies: latencies, Span: time.Since(began), Failed: int(failed.Load())}, errors.Join(errs...)
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// until waits for something that is looked for every 50 ms, and says whether it came to be in time.
func until(ctx context.Context, most time.Duration, done func() (bool, error)) (bool, error) {
	for late := time.Now().Add(most); ; {
		ok, err := done()
		if ok || err != nil {
			return ok, err
		}
		if time.Now().After(late) {
			return false, nil
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return false, err
		}
	}
}

// browser is many people's browsers and providers: their connections are kept, and no redirect is followed.
var browser = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport:     &http.Transport{MaxIdleConnsPerHost: 512, MaxConnsPerHost: 512, DisableCompression: true},
}

// fetch makes a request and reads its answer to the end.
func fetch(req *http.Request) (status int, body []byte, err error) {
	res, err := browser.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, body, err
}
