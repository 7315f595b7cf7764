package stage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// after waits for a time, or for the end of the test.
func (s *scene) after(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.t.Context().Done():
	}
}

// again makes a request until it is answered with one of the statuses: whoever is not answered, or told to
// try again, tries again. Any other answer fails the test.
func (s *scene) again(name string, request func() (int, string, error), want ...int) (status int) {
	for until := time.Now().Add(90 * time.Second); ; {
		status, body, err := request()
		for _, w := range want {
			if err == nil && status == w {
				return status
			}
		}
		if err == nil && status != http.StatusBadGateway && status != http.StatusServiceUnavailable && status != http.StatusGatewayTimeout {
			s.t.Errorf("%s: %d %.300s", name, status, body)
			return status
		}
		if time.Now().After(until) || s.t.Context().Err() != nil {
			s.t.Errorf("%s: no answer after 90 seconds: %d %v", name, status, err)
			return status
		}
		s.after(100 * time.Millisecond)
	}
}

func (s *scene) joinAgain(n int) {
	s.again("join of "+person(n), func() (int, string, error) {
		got, err := s.c.Join(s.t.Context(), FirstShop, fmt.Sprintf("203.0.%d.%d", 113+n/250, n%250), Tap{VariantID: oak, Channel: "email", Contact: person(n), Consent: "1"})
		return answered(got, err)
	}, http.StatusAccepted)
}

// answered turns an answer through the simulated Shopify's proxy, which says 502 of a dead app by itself,
// into what again wants.
func answered(got ProxyAnswer, err error) (int, string, error) {
	var failed *Failed
	if errors.As(err, &failed) {
		return failed.Status, failed.Body, nil
	}
	return got.Status, string(got.Body), err
}

// started starts what does not run, until it does: while the database is away nothing starts.
func (s *scene) started(ctx context.Context) {
	for ctx.Err() == nil {
		_, err := s.c.App(ctx, "start", 0)
		var failed *Failed
		if err == nil || (errors.As(err, &failed) && failed.Status == http.StatusConflict) {
			return // 409: all of them run
		}
		s.after(100 * time.Millisecond)
	}
}

// Two processes serve many shoppers; one or the other is killed at any moment and started again, and the
// database is lost for a few seconds. Whoever was answered has what they were told: a tap its place, a press
// its end, a payment its sale, and every promise is kept.
func killedAtRandomUnderLoad(t *testing.T, binary string) {
	for _, reserves := range forms {
		t.Run(fmt.Sprint(reserves), func(t *testing.T) {
			t.Parallel()
			const people, units = 60, 25
			s := newSceneOn(t, binary, 2, "")
			s.set(map[string]any{"settle_seconds": 0, "reserve_before_telling": reserves})

			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var killer sync.WaitGroup
			var kills atomic.Int64
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			killer.Go(func() {
				chance := rand.New(rand.NewPCG(seed, 0))
				for round := 0; ctx.Err() == nil || kills.Load() < 5; round++ {
					s.after(time.Duration(200+chance.IntN(500)) * time.Millisecond)
					if _, err := s.c.App(t.Context(), "kill", 1+chance.IntN(2)); err == nil {
						kills.Add(1)
					}
					if round == 3 {
						if _, err := s.c.Fault(t.Context(), map[string]any{"target": "db", "mode": "down", "ms": 5000}); err != nil {
							t.Error(err)
						}
					}
					s.after(time.Duration(chance.IntN(300)) * time.Millisecond)
					s.started(t.Context())
				}
			})

			var wait sync.WaitGroup
			for first := range 6 {
				wait.Go(func() {
					for n := first + 1; n <= people; n += 6 {
						s.joinAgain(n)
					}
				})
			}
			wait.Wait()
			s.must(s.c.SetStock(t.Context(), FirstShop, oak, units))

			var paid, passed atomic.Int64
			enough, finish := context.WithTimeout(ctx, 40*time.Second)
			defer finish()
			for n := 1; n <= people; n++ {
				wait.Go(func() {
					link := ""
					for link == "" {
						if enough.Err() != nil {
							return // was not told, as it should be: there were not enough units
						}
						all, err := s.c.Messages(ctx, person(n))
						if err == nil && len(all) > 0 {
							link = all[len(all)-1].Link("/r/")
						}
						s.after(200 * time.Millisecond)
					}
					page := func(address string) func() (int, string, error) {
						return func() (int, string, error) {
							status, body, _, err := s.c.Page(ctx, "POST", address, url.Values{})
							return status, body, err
						}
					}
					s.again("press of "+person(n), page(link), http.StatusSeeOther)
					if n%4 == 0 {
						s.again("pass of "+person(n), page(link+"/pass"), http.StatusSeeOther)
						passed.Add(1)
						return
					}
					for {
						var got ReserveStatus
						s.again("status of "+person(n), func() (int, string, error) {
							status, body, _, err := s.c.Page(ctx, "GET", link+"/status", nil)
							if err == nil && status == http.StatusOK {
								got, err = s.c.ReserveStatus(ctx, link)
								if err != nil {
									return http.StatusServiceUnavailable, "", nil // it was killed between the two
								}
							}
							return status, body, err
						}, http.StatusOK)
						switch got.State {
						case "held":
							s.must(s.c.Pay(ctx, got.CheckoutURL))
							if paid.Add(1) == units {
								finish()
							}
							return
						case "securing":
						default:
							return // refused, which its end below shows
						}
						if enough.Err() != nil {
							return
						}
						s.after(200 * time.Millisecond)
					}
				})
			}
			wait.Wait()
			stop()
			killer.Wait()
			s.started(t.Context())
			s.settle()
			s.advance(3 * time.Hour)
			s.advance(3 * time.Hour)

			if n := s.count(`SELECT count(*) FROM entries`); n != people {
				t.Errorf("%d entries of %d who were told that they have their place", n, people)
			}
			if n := s.count(`SELECT count(*) FROM holds WHERE state IN ('securing', 'releasing')`); n != 0 {
				t.Errorf("%d presses have no end", n)
			}
			if n := s.count(`SELECT count(*) FROM holds WHERE state = 'sold'`); n != int(paid.Load()) {
				t.Errorf("%d are sold, %d have paid", n, paid.Load())
			}
			stock, err := s.c.Inventory(t.Context(), FirstShop, oak)
			s.must(err)
			// Whoever the mail may not have reached lets the unit go by, and when everybody was told it is for sale.
			if live := s.count(`SELECT count(*) FROM holds WHERE state = 'active'`); stock.Reserved != live || stock.Available+stock.Reserved+int(paid.Load()) != units {
				t.Errorf("%+v, %d held, %d paid, of %d", stock, live, paid.Load(), units)
			}
			t.Logf("%d kills, %d paid, %d passed", kills.Load(), paid.Load(), passed.Load())
			if paid.Load() == 0 {
				t.Error("nobody has paid")
			}
		})
	}
}

// While the database is away shoppers are asked to try again, by a page and not by a stack trace; when it
// is back everything goes on, and what was answered is there.
func theDatabaseIsLostForAWhile(t *testing.T, binary string) {
	s := newSceneOn(t, binary, 1, "")
	s.set(map[string]any{"settle_seconds": 0, "reserve_before_telling": true})
	s.join(1)
	s.join(2)
	s.stock(1)
	link := s.link(1, "/r/")
	fault, err := s.c.Fault(t.Context(), map[string]any{"target": "db", "mode": "down"})
	s.must(err)
	for _, ask := range []struct{ method, address string }{{"GET", link}, {"POST", link}, {"POST", link + "/pass"}, {"GET", link + "/status"}} {
		status, body, _, err := s.c.Page(t.Context(), ask.method, ask.address, nil)
		s.must(err)
		if status != http.StatusServiceUnavailable || !strings.Contains(body, "try again") || strings.Contains(body, "goroutine") || strings.Contains(body, "connect") {
			t.Errorf("%s %s without a database: %d %.500s", ask.method, ask.address, status, body)
		}
	}
	got, err := s.c.Join(t.Context(), FirstShop, "203.0.113.9", Tap{VariantID: oak, Channel: "email", Contact: person(3), Consent: "1"})
	s.must(err)
	if got.Status != http.StatusServiceUnavailable || got.Headers["Retry-After"] == "" {
		t.Errorf("a tap without a database: %d %v %s", got.Status, got.Headers, got.Body)
	}
	s.must(s.c.SetStock(t.Context(), FirstShop, oak, 1)) // one more, for a second person; its webhook is refused meanwhile
	s.must(s.c.Lift(t.Context(), fault))
	s.joinAgain(3)
	s.settle()
	s.advance(6 * time.Minute)
	s.wantReserve(1, "open")
	s.wantStates("offered", "offered", "waiting")
	if status := s.press(1); status != http.StatusSeeOther {
		t.Errorf("the press afterwards: %d", status)
	}
	s.wantReserve(1, "held")
}

// A process that is asked to stop answers what it was asked, ends the jobs that it has begun within 25
// seconds, and leaves the rest to the other one.
func stoppedUnderLoadNothingFails(t *testing.T, binary string) {
	const people = 40
	s := newScene(t, binary, 2)
	s.set(map[string]any{"settle_seconds": 0, "reserve_before_telling": true})
	for n := range people {
		s.join(n + 1)
	}
	var wait sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	asked := 0
	wait.Go(func() {
		for ; ctx.Err() == nil; asked++ {
			got, err := s.c.Ask(ctx, FirstShop, oak)
			if status, body, err := answered(got, err); ctx.Err() == nil && (err != nil || status != http.StatusOK) {
				t.Errorf("a question while a process stops: %d %s %v", status, body, err)
			}
		}
	})
	s.must(s.c.SetStock(t.Context(), FirstShop, oak, people/2))
	for _, n := range []int{1, 2, 1} {
		begun := time.Now()
		_, err := s.c.App(t.Context(), "term", n)
		s.must(err)
		if took := time.Since(begun); took > 25*time.Second {
			t.Errorf("it took %s to stop", took)
		}
		s.started(t.Context())
	}
	stop()
	wait.Wait()
	if asked < 10 {
		t.Errorf("only %d questions were asked", asked)
	}
	s.settle()
	s.advance(time.Minute)
	if n := s.count(`SELECT count(*) FROM offers WHERE state = 'open'`); n != people/2 {
		t.Errorf("%d are told of %d units", n, people/2)
	}
	if n := s.count(`SELECT count(*) FROM messages WHERE state = 'unknown'`); n != 0 {
		t.Errorf("%d messages of unknown fate after an orderly stop", n)
	}
}
