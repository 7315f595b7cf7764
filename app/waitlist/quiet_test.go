package waitlist_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

const (
	british    = "+447400123456"
	california = "+14155552671"
)

// joinByText lets a number wait; zone is what its browser says.
func (w *world) joinByText(number, zone string) {
	w.t.Helper()
	_, err := w.list.Join(w.t.Context(), w.shop, waitlist.Tap{VariantID: fmt.Sprint(chair), Channel: "sms", Contact: number, Name: number, Country: "GB", Locale: "en", TimeZone: zone})
	w.must(err)
}

func (w *world) wantToldAt(want ...string) {
	w.t.Helper()
	if got := w.outbox.to(); !slices.Equal(got, want) {
		w.t.Fatalf("told %v, want %v", got, want)
	}
}

// until moves the clock to an hour of the day in UTC, without letting anything happen on the way.
func (w *world) until(hour int) {
	now := w.now()
	at := time.Date(now.Year(), now.Month(), now.Day(), hour, 0, 0, 0, time.UTC)
	if !at.After(now) {
		at = at.AddDate(0, 0, 1)
	}
	w.move(at.Sub(now))
}

func eachForm(t *testing.T, story func(*testing.T, *world)) {
	for _, reserves := range []bool{false, true} {
		t.Run(fmt.Sprintf("reserves=%v", reserves), func(t *testing.T) {
			t.Parallel()
			story(t, newWorld(t, func(s *shop.Settings) { s.ReserveBeforeTelling = reserves }))
		})
	}
}

// Whoever is asleep keeps the place, the next who is awake is told, no clock runs; in the morning the sleeper
// is first.
func TestTheNextAwakeIsToldFirstAndNobodyLosesAPlace(t *testing.T) {
	t.Parallel()
	eachForm(t, func(t *testing.T, w *world) {
		w.joinByText(california, "") // 4 in the morning
		w.joinByText(british, "")    // noon
		w.join("ann")
		w.stock(1)
		w.wantToldAt(british)
		if n := w.one(`SELECT count(*) FROM offers o JOIN entries e ON e.id = o.entry_id WHERE e.name = $1`, california); n != 0 {
			t.Fatalf("%d offers to a sleeper", n)
		}
		w.until(18) // 10 in California; the offer to the British number has lapsed
		w.pass(0)
		w.pass(5 * time.Minute)
		w.wantToldAt(british, california)
	})
}

func TestAUnitWaitsForTheSleeperWhenTheMerchantSaysSo(t *testing.T) {
	t.Parallel()
	eachForm(t, func(t *testing.T, w *world) {
		w.settings(func(s *shop.Settings) { s.PassAsleep = false })
		w.joinByText(california, "")
		w.join("ann", "ben")
		w.stock(2)
		w.wantToldAt("ann@example.com")
		w.until(18)
		w.pass(0)
		w.run()
		if got := w.outbox.to(); !slices.Contains(got, california) {
			t.Fatalf("told %v", got)
		}
	})
}

func TestATextWaitsForADecentHourInEveryZone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, number, zone string
		hour               int // UTC, on Tuesday the 3rd of March
		told               bool
	}{
		{"before nine", british, "", 8, false},
		{"at nine", british, "", 9, true},
		{"before eight in the evening", british, "", 19, true},
		{"at eight in the evening", british, "", 20, false},
		{"the browser's zone, not the number's", british, "Asia/Tokyo", 9, true},
		{"night where the browser is", british, "Asia/Tokyo", 15, false},
		{"a zone that there is not: the number's", british, "Mars/Olympus", 9, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.joinByText(c.number, c.zone)
			w.until(c.hour)
			w.stock(1)
			if told := len(w.outbox.to()) == 1; told != c.told {
				t.Errorf("told: %v", told)
			}
		})
	}
}

func TestANumberOfSeveralZonesIsTextedWhenAllAreAwake(t *testing.T) {
	t.Parallel()
	for hour, told := range map[int]bool{9: true, 11: false, 8: false} { // 9 in London is 18 in Tokyo
		w := newWorld(t)
		w.joinByText(british, "")
		_, err := w.db.Exec(t.Context(), `UPDATE entries SET zones = '{Europe/London,Asia/Tokyo}'`)
		w.must(err)
		w.until(hour)
		w.stock(1)
		if got := len(w.outbox.to()) == 1; got != told {
			t.Errorf("at %d: told %v", hour, got)
		}
	}
}

func TestSundayInNorthAmericaBeginsAtNoon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.move(6 * 24 * time.Hour) // Sunday the 8th of March: summer time began that morning in Los Angeles
	w.joinByText(california, "")
	w.until(18) // 11 there
	w.stock(1)
	w.wantToldAt()
	w.move(time.Hour)
	w.pass(0)
	w.wantToldAt(california)
}

func TestQuietHoursCanBeTurnedOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.QuietHours = false })
	w.joinByText(california, "")
	w.stock(1)
	w.wantToldAt(california)
}

// The evening begins between the offer and its text: the text is cancelled with the reason, the unit goes on,
// and the place is kept.
func TestATextThatComesTooLateInTheEveningIsCancelled(t *testing.T) {
	t.Parallel()
	eachForm(t, func(t *testing.T, w *world) {
		w.until(19)
		w.move(59*time.Minute + 59*time.Second)
		w.joinByText(british, "")
		w.join("ann")
		w.store.set(chair, 1)
		w.hint()
		for w.one(`SELECT count(*) FROM messages`) == 0 {
			if !w.runOnce() {
				t.Fatal("no message")
			}
			if w.one(`SELECT count(*) FROM offers`) > 0 {
				w.move(time.Second)
				break
			}
		}
		w.run()
		w.wantToldAt("ann@example.com")
		if why := w.text(`SELECT m.reason FROM messages m WHERE channel = 'sms' AND state = 'cancelled'`); why != "it is not an hour to text them at" {
			t.Errorf("cancelled because %q", why)
		}
		if state := w.text(`SELECT state FROM entries WHERE name = $1`, british); state != waitlist.Waiting {
			t.Errorf("the sleeper is %s", state)
		}
	})
}

// One number is texted 10 minutes apart, and 3 times in a day; what cannot be told waits in its place.
func TestANumberIsNotTextedTooOften(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const others = 4
	for i := range int64(others) {
		id := chair + 100 + i
		w.store.variants[id] = &waitlist.VariantReading{ID: id, ProductID: 11, InventoryItemID: 2000 + id, Title: fmt.Sprint(i), ProductTitle: "Chair", Active: true, Published: true, Tracked: true}
		_, err := w.list.Join(t.Context(), w.shop, waitlist.Tap{VariantID: fmt.Sprint(id), Channel: "sms", Contact: british, Country: "GB"})
		w.must(err)
		w.run()
		w.store.set(id, 1)
	}
	told := func() int { return len(w.outbox.to()) }
	again := func() {
		w.pass(5*time.Minute + time.Second)
	}
	again()
	if told() != 1 {
		t.Fatalf("%d texts at once", told())
	}
	again()
	if told() != 1 {
		t.Fatalf("%d texts within 10 minutes", told())
	}
	for range 6 {
		again()
	}
	if told() != 3 {
		t.Fatalf("%d texts within an hour, want 3", told())
	}
	w.move(24 * time.Hour)
	again()
	if told() != 4 {
		t.Fatalf("%d texts a day later, want 4", told())
	}
}

// A message is sent by a read of the last minute: what was sold or taken off sale meanwhile is not announced,
// and nothing is while Shopify cannot be asked.
func TestAMessageIsSentByAFreshRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		later     time.Duration
		meanwhile func(*world)
		want      string // the message's state and reason
		told      int
	}{
		"sold":        {61 * time.Second, func(w *world) { w.buy(1) }, "cancelled: its unit was sold before it was sent", 0},
		"unpublished": {61 * time.Second, func(w *world) { w.store.variants[chair].Published = false }, "cancelled: the variant is not on sale", 0},
		"the consent ran out": {61 * time.Second, func(w *world) {
			_, err := w.db.Exec(w.t.Context(), `UPDATE entries SET expires_at = $1`, w.now())
			w.must(err)
		}, "cancelled: what they agreed to has run out", 0},
		"nothing has happened":   {61 * time.Second, func(w *world) {}, "accepted: ", 1},
		"read half a minute ago": {30 * time.Second, func(w *world) { w.buy(1) }, "accepted: ", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.join("ann")
			w.dropJobs("observe")
			w.store.set(chair, 1)
			w.observe()
			w.move(c.later)
			c.meanwhile(w)
			w.run()
			if got := w.text(`SELECT state || ': ' || coalesce(reason, '') FROM messages`); got != c.want {
				t.Errorf("the message is %q, want %q", got, c.want)
			}
			if n := len(w.outbox.to()); n != c.told {
				t.Errorf("%d told, want %d", n, c.told)
			}
		})
	}
}
