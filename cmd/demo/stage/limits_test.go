package stage

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// count asks the app's rows.
func (s *scene) count(sql string, args ...any) (n int) {
	s.t.Helper()
	s.must(s.s.db.QueryRow(s.t.Context(), sql, args...).Scan(&n))
	return n
}

func (s *scene) last(sql string) (at time.Time) {
	s.t.Helper()
	s.must(s.s.db.QueryRow(s.t.Context(), sql).Scan(&at))
	return at
}

// analyze does what autovacuum does within a minute, wherever it is not off as it is in tests: without any
// statistics PostgreSQL takes every index that begins with the shop for a good one.
func (s *scene) analyze() {
	s.t.Helper()
	_, err := s.s.db.Exec(s.t.Context(), `ANALYZE`)
	s.must(err)
}

// until lets time pass in steps of a second, each begun when the app only waits, until nothing is left of
// what sql counts. It returns how long that took by the clock of app and simulators.
func (s *scene) until(limit time.Duration, sql string) time.Duration {
	s.t.Helper()
	began := s.s.clock.Now()
	for s.idle(); s.count(sql) > 0; s.idle() {
		if gone := s.s.clock.Now().Sub(began); gone > limit {
			s.t.Fatalf("after %s there are still %d: %s", gone, s.count(sql), sql)
		}
		s.analyze()
		s.must(s.s.step(s.t.Context(), time.Second))
	}
	return s.s.clock.Now().Sub(began)
}

const securing = `SELECT count(*) FROM holds WHERE state = 'securing'`

// 300 people press at once (make test has fewer, sizes_test.go) in a shop on the smallest plan, whose points pay
// for six holds a second.
func threeHundredPressesOnASmallPlan(t *testing.T, binary string) {
	const people = pressers
	s := newScene(t, binary, 1)
	s.set(map[string]any{"settle_seconds": 0})
	for n := range people {
		s.join(n + 1)
	}
	s.analyze()
	s.stock(people)
	s.analyze()
	for i, status := range s.pressAll(people) {
		if status != http.StatusSeeOther {
			t.Errorf("the press of %s: %d", person(i+1), status)
		}
	}
	began := s.s.clock.Now()
	s.until(40*time.Second, securing)
	if last := s.last(`SELECT max(activated_at) FROM holds`).Sub(began); last > 40*time.Second {
		t.Errorf("the last was secured after %s", last)
	} else {
		t.Logf("all were secured within %s", last.Round(time.Second))
	}
	if n := s.count(`SELECT count(*) FROM holds WHERE state = 'active'`); n != people {
		t.Errorf("%d holds are active", n)
	}
	// A hold's clock is started when its draft is about to be created: those of younger ones later, but for
	// the few that are worked at side by side.
	if n := s.count(`SELECT count(*) FROM (SELECT expires_at < lag(expires_at) OVER (ORDER BY id) - interval '5 seconds' AS early FROM holds) h WHERE early`); n != 0 {
		t.Errorf("%d holds were secured before an older one", n)
	}
	// The drafts are listed next, page by page, from what the bucket has beside what is kept for holds.
	_, err := s.s.db.Exec(t.Context(), `UPDATE shops SET reconcile_at = '-infinity'`)
	s.must(err)
	s.must(s.s.step(t.Context(), time.Second))
	s.until(3*time.Minute, `SELECT count(*) FROM river_job WHERE kind = 'reconcile' AND state NOT IN ('completed', 'cancelled', 'discarded')`)
	s.settle()
}

// Shopify does not answer for half an hour, in the middle of 50 presses.
func shopifyIsAwayForHalfAnHour(t *testing.T, binary string) {
	const people = 50
	for _, reserves := range forms {
		t.Run(fmt.Sprintf("reserve before telling %v", reserves), func(t *testing.T) {
			t.Parallel()
			s := newScene(t, binary, 1)
			s.set(map[string]any{"settle_seconds": 0, "reserve_before_telling": reserves})
			for n := range people {
				s.join(n + 1)
			}
			if reserves {
				s.must(s.c.SetStock(t.Context(), FirstShop, oak, people))
				for s.count(`SELECT count(*) FROM holds`) == 0 {
					<-time.After(5 * time.Millisecond)
				}
			} else {
				s.stock(people)
			}
			fault, err := s.c.Fault(t.Context(), map[string]any{"target": "shopify", "mode": "status", "code": 503})
			s.must(err)
			if !reserves {
				for i, status := range s.pressAll(people) {
					if status != http.StatusSeeOther {
						t.Errorf("the press of %s: %d", person(i+1), status)
					}
				}
			}
			for range 30 {
				s.must(s.s.step(t.Context(), time.Minute))
			}
			s.must(s.c.Lift(t.Context(), fault))
			s.until(10*time.Minute, `SELECT count(*) FROM holds WHERE state IN ('securing', 'releasing')`)
			s.advance(2 * time.Minute) // what had its last try just before
			if n := s.count(`SELECT count(*) FROM holds h WHERE h.state NOT IN ('active', 'refused', 'expired')`); n != 0 {
				t.Errorf("%d presses have no end", n)
			}
			if live, drafts := s.count(`SELECT count(*) FROM holds WHERE state = 'active'`), s.openDrafts(); live != drafts {
				t.Errorf("%d live holds, %d drafts", live, drafts)
			}
			s.advance(3 * time.Hour)
			if n := s.openDrafts(); n != 0 {
				t.Errorf("%d drafts are left over", n)
			}
		})
	}
}

// The answer to a mutation is lost, while the index behind a search lags, and the program is killed: there
// are never two drafts that live for one hold, and no unit is lost.
func aLostAnswerLeavesOneDraft(t *testing.T, binary string) {
	for _, op := range []string{"draftOrderCreate", "draftOrderDelete"} {
		for _, mode := range lostBy {
			for _, kill := range killedAt {
				for _, reserves := range forms {
					if mode == "timeout_after_commit" && kill != "" {
						continue // ten real seconds each
					}
					t.Run(strings.TrimSpace(fmt.Sprintf("%s %s %s %v", op, mode, kill, reserves)), func(t *testing.T) {
						t.Parallel()
						s := newScene(t, binary, 1)
						s.set(map[string]any{"settle_seconds": 0, "reserve_before_telling": reserves})
						s.join(1)
						s.join(2)
						s.settle()
						_, err := s.c.Fault(t.Context(), map[string]any{"target": "shopify", "mode": "index_lag", "ms": 20_000})
						s.must(err)
						_, err = s.c.Fault(t.Context(), map[string]any{"target": "shopify", "op": op, "mode": mode, "count": 1})
						s.must(err)
						var crash string
						if kill != "" {
							crash, err = s.c.Fault(t.Context(), map[string]any{"target": "app", "op": kill, "mode": "crash_after", "count": 1})
							s.must(err)
						}
						revive := func() {
							if kill == "" {
								return
							}
							if all, err := s.c.App(t.Context(), "start", 0); err != nil && len(all) == 0 {
								if f, ok := err.(*Failed); !ok || f.Status != http.StatusConflict {
									s.must(err) // it may not have been killed yet
								}
							}
						}
						s.must(s.c.SetStock(t.Context(), FirstShop, oak, 1))
						act := func(name string, what func() bool) {
							t.Helper()
							for range 1000 {
								revive()
								if what() {
									return
								}
								<-time.After(50 * time.Millisecond)
							}
							t.Fatalf("%s: it does not come to be", name)
						}
						act("told", func() bool { return s.count(`SELECT count(*) FROM messages WHERE state = 'accepted'`) == 1 })
						act("held", func() bool {
							s.press(1)
							return s.count(`SELECT count(*) FROM holds WHERE state = 'active' AND pressed`) == 1
						})
						act("passed on", func() bool {
							status, _, _, err := s.c.Page(t.Context(), "POST", s.link(1, "/r/")+"/pass", url.Values{})
							return err == nil && status == http.StatusSeeOther
						})
						act("told the next", func() bool { return s.count(`SELECT count(*) FROM offers WHERE state = 'open'`) == 1 })
						// The next one's unit is reserved by now, or is not to be: no point is passed any more at which the program may still die.
						act("reserved for the next", func() bool {
							return s.count(`SELECT count(*) FROM holds WHERE state IN ('securing', 'releasing')`) == 0
						})
						if kill != "" {
							_ = s.c.Lift(t.Context(), crash) // it may have fired
							revive()
						}
						s.advance(11 * time.Minute) // the reconcile of the next minutes finds what the index hid
						live := 0
						if reserves {
							live = 1
						}
						if n := s.openDrafts(); n != live {
							t.Errorf("%d drafts are open, want %d", n, live)
						}
						s.wantReserve(2, "open")
						s.press(2)
						s.settle()
						s.must(s.c.Pay(t.Context(), s.wantReserve(2, "held").CheckoutURL))
						s.settle()
						s.wantStates("waiting", "sold")
						stock, err := s.c.Inventory(t.Context(), FirstShop, oak)
						s.must(err)
						if stock.Available != 0 || stock.Reserved != 0 {
							t.Errorf("a unit was leaked: %+v", stock)
						}
					})
				}
			}
		}
	}
}

// A chair is stocked at two places, and Shopify reserves at the first, where there is none.
func stockAtTheSecondPlaceIsNoPhantom(t *testing.T, binary string) {
	const green = "30021"
	for _, reserves := range forms {
		for _, watched := range []string{"", "2001, 2002"} {
			t.Run(fmt.Sprintf("%v at %s", reserves, watched), func(t *testing.T) {
				t.Parallel()
				s := newScene(t, binary, 1)
				set := map[string]any{"settle_seconds": 0, "reserve_before_telling": reserves}
				if watched != "" {
					set["locations"] = strings.Split(watched, ", ")
				}
				s.set(set)
				for n := range 3 {
					got, err := s.c.Join(t.Context(), FirstShop, "203.0.113.1", Tap{VariantID: green, Channel: "email", Contact: person(n + 1), Consent: "1"})
					s.must(err)
					if got.Status != http.StatusAccepted {
						t.Fatalf("join: %d %s", got.Status, got.Body)
					}
				}
				s.must(s.c.Do(t.Context(), "POST", "/sim/inventory", map[string]any{"shop": FirstShop, "variant_id": green, "available": 2, "location_id": "2002"}, nil))
				s.settle()
				s.press(1)
				s.settle()
				s.must(s.c.Pay(t.Context(), s.wantReserve(1, "held").CheckoutURL))
				s.settle()
				s.press(2)
				s.settle()
				s.wantReserve(2, "held")
				s.advance(16 * time.Minute) // the second lets it go by
				if told := s.told(); len(told) != 3 || told[2] != person(3) {
					t.Errorf("told: %v", told)
				}
				s.advance(2 * time.Hour)
				if n := s.count(`SELECT coalesce(sum(by), 0) FROM restock_changes WHERE kind <> 'shrink'`); n != 2 {
					t.Errorf("%d units were believed to return, of 2", n)
				}
				if told := s.told(); len(told) != 3 {
					t.Errorf("told: %v", told)
				}
			})
		}
	}
}

// A merchant deletes, edits and completes drafts of ours: the books are right.
func aMerchantTouchesOurDrafts(t *testing.T, binary string) {
	for _, reserves := range forms {
		for _, do := range []string{"delete", "edit", "complete"} {
			t.Run(fmt.Sprintf("%s %v", do, reserves), func(t *testing.T) {
				t.Parallel()
				s := newScene(t, binary, 1)
				s.set(map[string]any{"settle_seconds": 0, "reserve_before_telling": reserves})
				s.join(1)
				s.join(2)
				s.stock(1)
				if !reserves {
					s.press(1)
				}
				s.settle()
				drafts, err := s.c.Drafts(t.Context(), FirstShop)
				s.must(err)
				if len(drafts) != 1 {
					t.Fatalf("%d drafts", len(drafts))
				}
				s.must(s.c.Do(t.Context(), "POST", "/sim/drafts/"+fmt.Sprint(drafts[0].ID), map[string]any{"do": do}, nil))
				s.settle()
				s.advance(2 * time.Hour)
				s.advance(2 * time.Hour)
				if do == "complete" {
					s.wantStates("sold", "waiting")
				} else {
					s.wantStates("waiting", "waiting")
					if told := s.told(); len(told) != 2 {
						t.Errorf("told: %v", told)
					}
				}
				if n := s.openDrafts(); n != 0 {
					t.Errorf("%d drafts are left over", n)
				}
			})
		}
	}
}
