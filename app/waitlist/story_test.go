package waitlist_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

func TestTheStoryOfTheChairs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben", "cem", "dee", "eva", "fay", "gus")

	w.stock(4)
	w.wantTold("ana", "ben", "cem", "dee")
	w.wantCounter("4 4 0 0 0")

	w.press("ana")
	w.press("cem")
	w.run()
	w.wantHold("ana", "active")
	w.wantHold("cem", "active")
	w.wantCounter("4 2 2 0 0")

	w.pays("ana")
	w.wantState("ana", waitlist.Sold)
	w.wantCounter("4 2 1 1 0")
	w.wantTold("ana", "ben", "cem", "dee")

	w.pass(15 * time.Minute) // cem lets the hold run out
	w.wantHold("cem", "expired")
	w.wantState("cem", waitlist.Waiting)
	w.wantTold("ana", "ben", "cem", "dee", "eva")
	w.wantCounter("4 3 0 1 0")
	if drafts := w.store.open(); len(drafts) != 0 {
		t.Fatalf("%d drafts are left over", len(drafts))
	}
}

func TestAPressShowsItsHoldFromReservingToCheckout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	w.stock(1)

	if o := w.press("ana"); o.State != "securing" || o.CheckoutURL != "" {
		t.Fatalf("after the press: %+v", o)
	}
	w.run()
	o, err := w.list.Look(t.Context(), w.link("ana"))
	w.must(err)
	if o.State != "held" || o.CheckoutURL == "" || !o.Until.Equal(w.now().Add(15*time.Minute)) {
		t.Fatalf("once secured: %+v", o)
	}
	if again := w.press("ana"); again.State != "held" || again.CheckoutURL != o.CheckoutURL {
		t.Fatalf("a second press: %+v", again)
	}
	d := w.store.open()[0]
	if !d.until.Equal(o.Until.Add(10*time.Minute)) || d.visible.Email != "ana@example.com" {
		t.Fatalf("the draft reserves until %v for %q", d.until, d.visible.Email)
	}
	w.pays("ana")
	if o, _ := w.list.Look(t.Context(), w.link("ana")); o.State != "sold" {
		t.Fatalf("once paid: %s", o.State)
	}
}

func TestOneUnitHasOneHolderHoweverManyPressAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.NoticesPerUnit = 64 })
	names := people(64)
	w.join(names...)
	w.stock(1)
	w.wantTold(names...)

	lists := []*waitlist.Service{w.list, w.service()}
	var wait sync.WaitGroup
	states := make([]string, len(names))
	for i, name := range names {
		link := w.link(name)
		wait.Go(func() {
			o, err := lists[i%2].Claim(t.Context(), link)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			states[i] = o.State
		})
	}
	wait.Wait()
	count := map[string]int{}
	for _, s := range states {
		count[s]++
	}
	if count["securing"] != 1 || count["gone"] != 63 {
		t.Fatalf("the presses were answered %v", count)
	}
	w.run()
	w.wantCounter("1 0 1 0 0")
	if n := w.one(`SELECT count(*) FROM entries WHERE state = 'waiting'`); n != 63 {
		t.Fatalf("%d keep their place, want 63", n)
	}
}

func TestTheSameLinkPressedManyTimesIsOneHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben")
	w.stock(2)
	link := w.link("ana")
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			if o, err := w.list.Claim(t.Context(), link); err != nil || o.State != "securing" {
				t.Errorf("%s, %v", o.State, err)
			}
		})
	}
	wait.Wait()
	w.wantCounter("2 1 1 0 0")
}

func TestStrangersWhoBoughtFirstLeaveOneHolderAndNoDraft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	names := people(64)
	w.join(names...)
	w.stock(64)
	w.buy(63) // every webhook lost
	for _, name := range names {
		w.press(name)
	}
	w.run()
	if active, refused := w.one(`SELECT count(*) FROM holds WHERE state = 'active'`), w.one(`SELECT count(*) FROM holds WHERE state = 'refused'`); active != 1 || refused != 63 {
		t.Fatalf("%d active and %d refused, want 1 and 63", active, refused)
	}
	w.wantHold(names[0], "active") // the one who pressed first
	if n := len(w.store.open()); n != 1 {
		t.Fatalf("%d drafts, want the holder's alone", n)
	}
	if n := w.one(`SELECT count(*) FROM entries WHERE state = 'waiting'`); n != 63 {
		t.Fatalf("%d keep their place, want 63", n)
	}
	w.wantOffer(names[63], "missed")
}

func TestOpenOffersNeverExceedTheUnits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join(people(5)...)
	w.stock(2)
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() { w.observe() })
	}
	wait.Wait()
	w.run()
	w.wantTold("p001", "p002")

	w.pass(61 * time.Minute) // nobody pressed: the units go on
	w.wantTold("p001", "p002", "p003", "p004")
	w.wantOffer("p001", "lapsed")
	w.wantState("p001", waitlist.Waiting)
}

func TestFirstComeFirstTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("zoe", "yan", "xia", "wim")
	w.join("wim", "xia", "zoe") // asking twice changes nothing
	w.stock(1)
	w.wantTold("zoe")
	_, err := w.list.Pass(t.Context(), w.link("zoe"))
	w.must(err)
	w.run()
	w.wantTold("zoe", "yan")
	w.wantState("zoe", waitlist.Waiting)
}

func TestNobodyIsToldTwiceInARestock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	w.stock(1)
	w.pass(61 * time.Minute)
	w.pass(10 * time.Minute)
	w.wantTold("ana") // told, passed by: the unit is there to be bought
	w.stock(0)        // sold to somebody else: the restock is over
	w.stock(1)
	w.wantTold("ana", "ana")
}

func TestAMissedOfferMayBeOfferedAgainInTheSameRestock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.NoticesPerUnit = 2 })
	w.join("ana", "ben")
	w.stock(1)
	w.wantTold("ana", "ben")
	w.press("ana")
	old := w.link("ben")
	if o := w.press("ben"); o.State != "gone" {
		t.Fatalf("ben: %s", o.State)
	}
	w.run()
	_, err := w.list.Pass(t.Context(), w.link("ana"))
	w.must(err)
	w.run()
	w.wantTold("ana", "ben", "ben")
	if o, err := w.list.Look(t.Context(), old); err != nil || o.State != "open" {
		t.Fatalf("the old link shows %s, %v: it must show the newest offer", o.State, err)
	}
}

func TestASuppressedContactIsNeitherAddedNorMessaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(w.list.Suppress(t.Context(), w.shop, waitlist.Email, "Ana@Example.com", waitlist.Bounced))
	a, err := w.list.Join(t.Context(), w.shop, tap("ana"))
	w.must(err)
	b, err := w.list.Join(t.Context(), w.shop, tap("ben"))
	w.must(err)
	if a.InStock != b.InStock || a.Contact != "ana@example.com" {
		t.Fatalf("the answers differ: %+v, %+v", a, b)
	}
	w.dropJobs("observe")
	if n := w.one(`SELECT count(*) FROM entries`); n != 1 {
		t.Fatalf("%d entries, want ben's alone", n)
	}

	// Between the offer and the send: the check is made again where it is sent.
	w.stock(0)
	w.store.set(chair, 1)
	w.observe()
	_, err = w.db.Exec(t.Context(), `INSERT INTO suppressions (shop_id, channel, contact_hash, reason, created_at) VALUES ($1, 'email', $2, 'stop', now())`,
		w.shop, w.keys.Hash(w.shop, "email", "ben@example.com"))
	w.must(err)
	w.run()
	w.wantTold()
	if reason := w.text(`SELECT reason FROM messages`); reason != "opted out" {
		t.Fatalf("the message ended because of %q", reason)
	}
}

func TestASuppressionAndATapOfTheSameContactNeverPassEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 30 {
		name := fmt.Sprintf("ana%d", i)
		var wait sync.WaitGroup
		wait.Go(func() {
			if _, err := w.list.Join(t.Context(), w.shop, tap(name)); err != nil {
				t.Error(err)
			}
		})
		wait.Go(func() {
			if err := w.list.Suppress(t.Context(), w.shop, waitlist.Email, name+"@example.com", waitlist.Stop); err != nil {
				t.Error(err)
			}
		})
		wait.Wait()
	}
	if n := w.one(`SELECT count(*) FROM entries WHERE state = 'waiting'`); n != 0 {
		t.Fatalf("%d suppressed contacts wait", n)
	}
}

func TestStopEndsOffersAndHoldsAndTheUnitsGoOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben", "cem", "dee")
	w.stock(2)
	w.press("ana")
	w.run()
	w.must(w.list.Suppress(t.Context(), w.shop, waitlist.Email, "ana@example.com", waitlist.Complained))
	w.must(w.list.Suppress(t.Context(), w.shop, waitlist.Email, "ben@example.com", waitlist.Unsubscribed))
	w.run()
	w.wantState("ana", waitlist.Suppressed)
	w.wantHold("ana", "released")
	w.wantState("ben", waitlist.Suppressed)
	w.wantTold("ana", "ben", "cem", "dee")
	if n := len(w.store.open()); n != 0 {
		t.Fatalf("%d drafts are left over", n)
	}
}

func TestTextsCannotBeChosenWhileTheShopSendsNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	store := shop.NewStore(w.db, w.keys)
	tap := waitlist.Tap{VariantID: "101", Channel: "sms", Contact: "+447400123456"}
	try := func(offered bool) {
		t.Helper()
		answer, err := w.list.Waitable(t.Context(), w.shop, "101", "")
		w.must(err)
		if slices.Contains(answer.Channels, waitlist.SMS) != offered {
			t.Errorf("channels: %v", answer.Channels)
		}
		_, err = w.list.Tap(t.Context(), w.shop, tap)
		var invalid *waitlist.Invalid
		if offered && err != nil || !offered && (!errors.As(err, &invalid) || invalid.Code != "invalid_channel") {
			t.Errorf("texts offered: %v, and the answer to a tap is %v", offered, err)
		}
	}
	account, err := store.Twilio(t.Context(), w.shop)
	w.must(err)
	w.must(store.DisconnectTwilio(t.Context(), w.shop))
	try(false)
	if n := w.one(`SELECT count(*) FROM entries`); n != 0 {
		t.Errorf("%d entries were written", n)
	}
	w.must(store.ConnectTwilio(t.Context(), w.shop, account, "another key"))
	if key := w.text(`SELECT twilio_key FROM shops WHERE id = $1`, w.shop); key != fmt.Sprint("key-", w.shop) {
		t.Errorf("the address that Twilio posts to has changed to %s", key)
	}
	try(true)
	w.outbox.answer = func(waitlist.Outgoing) error {
		return &waitlist.SendError{Outcome: waitlist.ShopFault, Sender: waitlist.SenderOff, Code: "20003", Why: "the account is closed"}
	}
	w.stock(1)
	w.stock(0)
	try(false)
	w.must(w.list.Resume(t.Context(), w.shop, waitlist.SMS))
	try(true)
}

// Nothing in the provider's signature says when a text was sent, so a genuine one can be posted again.
func TestATextThatIsPostedAgainChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const phone = "+447400123456"
	text := func(id, body, want string) {
		t.Helper()
		_, err := w.list.InboundText(t.Context(), w.shop, id, phone, body, "")
		w.must(err)
		if got := w.text(`SELECT coalesce(string_agg(reason, ','), '') FROM suppressions`); got != want {
			t.Errorf("after %s %s: %q, want %q", id, body, got, want)
		}
	}
	text("SM1", "STOP", "stop")
	text("SM2", "START", "")
	text("SM1", "STOP", "")
	text("SM3", "stop", "stop")
	text("SM2", "START", "stop")
	text("SM4", "hello", "stop")
	text("SM5", "START", "")
}

func TestFiftyTapsOfOneContactAreOnePlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	first := w.text(`SELECT joined_at::text FROM entries`)
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			if _, err := w.list.Join(t.Context(), w.shop, tap("ana")); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if n := w.one(`SELECT count(*) FROM entries`); n != 1 {
		t.Fatalf("%d entries", n)
	}
	if got := w.text(`SELECT joined_at::text FROM entries`); got != first {
		t.Fatalf("joined_at moved from %s to %s", first, got)
	}
}

func TestOneSignedInCustomerHasOnePlaceByWhateverContact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var wait sync.WaitGroup
	for i := range 12 {
		wait.Go(func() {
			tp := tap(fmt.Sprintf("ana%d", i))
			tp.CustomerID = 77
			if _, err := w.list.Join(t.Context(), w.shop, tp); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if n := w.one(`SELECT count(*) FROM entries`); n != 1 {
		t.Fatalf("%d places for one person", n)
	}
}

// Somebody waits as a guest by one contact and signed in by another, and then taps signed in by the first:
// both places were there before anybody could know that they are one person's.
func TestAGuestWhoTurnsOutToWaitAlreadyKeepsBothPlaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	signedIn := func(name string) waitlist.Tap {
		tp := tap(name)
		tp.CustomerID = 77
		return tp
	}
	w.join("home")
	for _, name := range []string{"work", "home", "work", "other"} {
		w.move(24 * time.Hour)
		if _, err := w.list.Join(t.Context(), w.shop, signedIn(name)); err != nil {
			t.Fatalf("tap by %s: %v", name, err)
		}
	}
	if got := w.text(`SELECT string_agg(c.key || ' ' || coalesce(e.customer_id, 0) || ' ' || to_char(e.expires_at AT TIME ZONE 'UTC', 'MM-DD'), ', ' ORDER BY e.joined_at, e.id)
		FROM entries e JOIN contacts c ON c.id = e.contact_id`); got != "home@example.com 0 08-31, work@example.com 77 09-02" {
		t.Fatalf("entries: %s", got) // each tap renewed its contact's entry; one by a new contact, the customer's
	}
	if _, err := w.list.Join(t.Context(), w.shop, tap("work")); err != nil {
		t.Fatal(err)
	}
	if n := w.one(`SELECT count(*) FROM entries`); n != 2 {
		t.Fatalf("%d entries", n)
	}
}

func TestARepeatRenewsWhatItMayAndNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	before := w.text(`SELECT joined_at || state || (SELECT address FROM contacts) FROM entries`)
	w.move(24 * time.Hour)
	tp := tap("ana")
	tp.Contact, tp.Name, tp.Locale, tp.Country, tp.Consent = "ANA@example.com", "Ana B.", "de", "DE", "email-2"
	_, err := w.list.Join(t.Context(), w.shop, tp)
	w.must(err)
	if after := w.text(`SELECT joined_at || state || (SELECT address FROM contacts) FROM entries`); after != before {
		t.Fatalf("%s became %s", before, after)
	}
	if got := w.text(`SELECT concat_ws(' ', name, locale, country, consent) FROM entries`); got != "Ana B. de DE email-2" {
		t.Fatalf("renewed: %s", got)
	}
	if n := w.one(`SELECT count(*) FROM entries WHERE expires_at = $1`, w.now().AddDate(0, 0, 180)); n != 1 {
		t.Fatal("the time-to-live was not renewed")
	}
}

func TestAfterSoldLeftOrExpiredATapIsANewEntryAtTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben")
	w.must(w.list.Leave(t.Context(), w.keys.Token(shop.Place, w.entry("ana"))))
	w.join("ana")
	w.stock(1)
	w.wantTold("ben")
}

func TestTheTimeToLiveEndsAWaitingEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.TTLDays = 1 })
	w.join("ana")
	w.pass(25 * time.Hour)
	w.wantState("ana", waitlist.Expired)
	w.stock(1)
	w.wantTold()
}

func TestInStockWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ben") // so that the variant is known
	w.must(w.list.Leave(t.Context(), w.keys.Token(shop.Place, w.entry("ben"))))
	w.run()
	w.stock(3)
	before := w.dump()
	got, err := w.list.Join(t.Context(), w.shop, tap("ana"))
	w.must(err)
	if !got.InStock || w.dump() != before {
		t.Fatalf("%+v, or something was written", got)
	}
	// What was read long ago is not believed.
	w.move(6 * time.Minute)
	if got, err := w.list.Join(t.Context(), w.shop, tap("ana")); err != nil || got.InStock {
		t.Fatalf("%+v %v", got, err)
	}
}

func TestTheSettleTimeIsCountedFromTheFirstRiseAndNeverExtended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.SettleSeconds = 30 })
	w.join("ana", "ben", "cem")
	w.stock(1)
	w.wantTold()
	w.pass(20 * time.Second)
	w.stock(2) // rises again
	w.wantTold()
	w.pass(10 * time.Second)
	w.wantTold("ana", "ben")
	w.pass(time.Second)
	w.stock(1) // a fall is applied at once
	w.wantOffer("ben", "withdrawn")
	w.wantState("ben", waitlist.Waiting)
}

func TestAnImplausibleJumpWaitsForTheMerchant(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.ImplausibleUnits = 10 })
	w.join("ana", "ben")
	w.stock(500)
	w.wantTold()
	if got := w.text(`SELECT state FROM restocks`); got != "waiting_approval" {
		t.Fatalf("the restock is %s", got)
	}
	notes, err := w.list.Notes(t.Context(), w.shop)
	w.must(err)
	if len(notes) != 1 || notes[0].Kind != "implausible" {
		t.Fatalf("notes: %+v", notes)
	}
	id := w.one(`SELECT id FROM restocks`)
	w.must(w.list.Decline(t.Context(), w.shop, id))
	w.run()
	w.pass(6 * time.Minute)
	w.wantTold()
	w.stock(501)
	w.must(w.list.Approve(t.Context(), w.shop, w.one(`SELECT id FROM restocks WHERE state <> 'closed'`)))
	w.run()
	w.wantTold("ana", "ben")
	w.wantCounter("501 501 0 0 0")
}

func TestTenShuffledWebhooksOfOneRestockAreOneRestock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join(people(6)...)
	w.store.set(chair, 3)
	for range 10 {
		w.hint()
	}
	for i := range 3 { // and repeated
		w.took(w.list.Receive(t.Context(), w.shop, waitlist.Webhook{Topic: "inventory_levels/update", WebhookID: fmt.Sprintf("w%d", i+1), Body: []byte(`{"inventory_item_id":1101,"available":0}`)}))
	}
	w.run()
	if n := w.one(`SELECT count(*) FROM restocks`); n != 1 {
		t.Fatalf("%d restocks", n)
	}
	w.wantTold("p001", "p002", "p003")
}

func TestALostWebhookIsFoundByTheReRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	w.run()
	w.store.set(chair, 1)
	w.pass(4 * time.Minute)
	w.wantTold()
	w.pass(time.Minute)
	w.wantTold("ana")
}

func TestAVariantThatIsNotOnSaleTellsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	w.run()
	w.store.variants[chair].Published = false
	w.stock(2)
	w.wantTold()
	w.store.variants[chair].Published = true
	w.took(w.list.Receive(t.Context(), w.shop, waitlist.Webhook{Topic: "products/update", WebhookID: "p", Body: []byte(`{"id":11}`)}))
	w.run()
	w.wantTold("ana")
}

func TestAnUnknownVariantIsCountedAsDemand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range people(3) {
		tp := tap(name)
		tp.VariantID, tp.SKU = "", "NOT-YET"
		if _, err := w.list.Join(t.Context(), w.shop, tp); err != waitlist.ErrUnknownVariant {
			t.Fatalf("%v", err)
		}
	}
	if n := w.one(`SELECT count(*) FROM entries`) + w.one(`SELECT count(*) FROM contacts`); n != 0 {
		t.Fatal("something was written")
	}
	notes, err := w.list.Notes(t.Context(), w.shop)
	w.must(err)
	if len(notes) != 1 || notes[0].Kind != "demand" || notes[0].Subject != "SKU NOT-YET" {
		t.Fatalf("notes: %+v", notes)
	}
}

func TestASKUThatSeveralVariantsCarryIsAmbiguous(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	twin := *w.store.variants[chair]
	twin.ID = 102
	w.store.variants[102] = &twin
	tp := tap("ana")
	tp.VariantID, tp.SKU = "", "CHAIR"
	for range 2 {
		if _, err := w.list.Join(t.Context(), w.shop, tp); err != waitlist.ErrAmbiguousSKU {
			t.Fatalf("%v", err)
		}
	}
	if n := w.one(`SELECT count(*) FROM variants`); n != 0 {
		t.Fatal("a refused tap wrote something")
	}
}

func TestTapsAreLimitedPerClientAndPerContact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var limited *waitlist.RateLimited
	for i := range 25 {
		tp := tap(fmt.Sprintf("p%d", i))
		tp.Client = "203.0.113.7"
		_, err := w.list.Tap(t.Context(), w.shop, tp)
		if i < 20 && err != nil || i >= 20 && !asLimited(err, &limited) {
			t.Fatalf("tap %d: %v", i, err)
		}
	}
	if limited.RetryAfter <= 0 || limited.RetryAfter > time.Minute {
		t.Fatalf("retry after %v", limited.RetryAfter)
	}
	for i := range 12 {
		tp := tap("ana")
		tp.Client = fmt.Sprintf("198.51.100.%d", i)
		_, err := w.list.Tap(t.Context(), w.shop, tp)
		if i < 10 && err != nil || i >= 10 && !asLimited(err, &limited) {
			t.Fatalf("tap %d of one contact: %v", i, err)
		}
	}
}

func asLimited(err error, target **waitlist.RateLimited) bool {
	l, ok := err.(*waitlist.RateLimited)
	if ok {
		*target = l
	}
	return ok
}

func TestLooksChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben")
	w.stock(1)
	before := w.dump()
	for range 3 {
		_, err := w.list.Look(t.Context(), w.link("ana"))
		w.must(err)
		_, err = w.list.Place(t.Context(), w.keys.Token(shop.Place, w.entry("ben")))
		w.must(err)
		_, err = w.list.Contact(t.Context(), w.keys.Token(shop.Unsubscribe, 1))
		w.must(err)
	}
	if w.dump() != before {
		t.Fatal("a look changed something")
	}
}

func TestALinkOfAnotherKindOrShopIsNoLink(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	w.stock(1)
	for _, token := range []string{"", "x", w.keys.Token(shop.Place, w.entry("ana")), w.keys.Token(shop.Reserve, 999999)} {
		if _, err := w.list.Claim(t.Context(), token); err != waitlist.ErrInvalidLink {
			t.Fatalf("%q: %v", token, err)
		}
		if _, err := w.list.Pass(t.Context(), token); err != waitlist.ErrInvalidLink {
			t.Fatalf("%q: %v", token, err)
		}
	}
	w.wantCounter("1 1 0 0 0")
}

func TestLeavingPassesTheUnitOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben", "cem")
	w.stock(1)
	w.must(w.list.Leave(t.Context(), w.keys.Token(shop.Place, w.entry("ana"))))
	w.run()
	w.wantTold("ana", "ben")
	w.press("ben")
	w.run()
	w.must(w.list.Leave(t.Context(), w.keys.Token(shop.Place, w.entry("ben"))))
	w.run()
	w.wantTold("ana", "ben", "cem")
	w.wantState("ben", waitlist.Left)
	w.wantHold("ben", "released")
}

func TestLeavingAndPressingAtOnceEndsOneWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	names := people(20)
	w.join(names...)
	w.stock(20)
	var wait sync.WaitGroup
	for _, name := range names {
		link, place := w.link(name), w.keys.Token(shop.Place, w.entry(name))
		wait.Go(func() {
			if _, err := w.list.Claim(t.Context(), link); err != nil {
				t.Error(err)
			}
		})
		wait.Go(func() {
			if err := w.list.Leave(t.Context(), place); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	w.run()
	if n := w.one(`SELECT count(*) FROM entries WHERE state <> 'left'`); n != 0 {
		t.Fatalf("%d did not leave", n)
	}
	if n := len(w.store.open()); n != 0 {
		t.Fatalf("%d drafts are left over", n)
	}
}

func TestTheMerchantMayEndAHoldAndTheNextIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben")
	w.stock(1)
	w.press("ana")
	w.run()
	w.must(w.list.ReleaseHold(t.Context(), w.shop, w.hold("ana")))
	w.run()
	w.wantTold("ana", "ben")
	if err := w.list.ReleaseHold(t.Context(), w.shop, w.hold("ana")); err != waitlist.ErrNotFound {
		t.Fatalf("again: %v", err)
	}
}

func TestAHoldSoldWithoutAWebhookIsFoundByReconcile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	w.stock(1)
	w.press("ana")
	w.run()
	_, err := w.store.pay(w.draftOf("ana"))
	w.must(err)
	w.must(w.list.Reconcile(t.Context(), w.shop))
	w.wantHold("ana", "sold")
	w.wantState("ana", waitlist.Sold)
}

func TestAnOrderThatOnlyClaimsToBeOursSellsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	w.stock(1)
	w.press("ana")
	w.run()
	mark := w.keys.Token(shop.HoldMark, w.hold("ana"))
	order := func(id string, variant int64, mark string) {
		w.took(w.list.Receive(t.Context(), w.shop, waitlist.Webhook{Topic: "orders/create", WebhookID: id,
			Body: fmt.Appendf(nil, `{"id":9,"note_attributes":[{"name":"_holdfast_hold","value":"%s"}],"line_items":[{"variant_id":%d}]}`, mark, variant)}))
		w.run()
	}
	order("o1", chair, mark) // its draft is still open
	w.wantHold("ana", "active")
	_, err := w.store.pay(w.draftOf("ana"))
	w.must(err)
	order("o2", 999, mark) // another thing was bought
	w.wantHold("ana", "active")
	order("o3", chair, fmt.Sprint(w.hold("ana"))) // guessed by whoever bought
	w.wantHold("ana", "active")
	order("o4", chair, mark)
	w.wantHold("ana", "sold")
}

func TestAMerchantWhoDeletesAHeldDraftEndsTheHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana", "ben")
	w.stock(1)
	w.press("ana")
	w.run()
	id := w.draftOf("ana")
	w.must(w.store.DeleteDraft(t.Context(), w.shop, id))
	w.took(w.list.Receive(t.Context(), w.shop, waitlist.Webhook{Topic: "draft_orders/delete", WebhookID: "d", Body: fmt.Appendf(nil, `{"id":%d}`, id)}))
	w.run()
	w.wantHold("ana", "released")
	w.wantTold("ana", "ben")
}

// What Shopify refused is shown while it refuses, and not longer.
func TestTroubleWithShopifyIsOverWhenItAnswers(t *testing.T) {
	t.Parallel()
	for how, answers := range map[string]func(w *world){
		"a reading":   func(w *world) { w.run() },
		"a reconcile": func(w *world) { w.must(w.list.Reconcile(w.t.Context(), w.shop)) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.join("ana")
			w.run()
			w.store.then("ReadVariants", func() error { return &waitlist.ShopRefused{Status: 402, Why: "the shop is frozen"} })
			if err := w.list.Observe(t.Context(), w.shop, chair); err == nil {
				t.Fatal("the read did not fail")
			}
			trouble := `SELECT coalesce(trouble, '') FROM shops`
			if got := w.text(trouble); got != "the shop is frozen" {
				t.Fatalf("trouble is %q", got)
			}
			w.hint()
			answers(w)
			if got := w.text(trouble); got != "" {
				t.Fatalf("Shopify answers, and trouble is still %q", got)
			}
		})
	}
}

// Short silences are nothing that a merchant can do anything about.
func TestASilentShopifyIsShownAfterAMinute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	w.run()
	since := w.now()
	trouble := `SELECT coalesce(trouble, '') FROM shops`
	for _, c := range []struct {
		passed time.Duration
		want   string
	}{
		{59 * time.Second, ""},
		{time.Second, "Shopify has not answered since " + since.UTC().Format("15:04 UTC on 2 January") + "; what is to be done there is done when it does"},
	} {
		w.move(c.passed)
		w.store.then("ReadVariants", func() error { return &waitlist.Away{After: time.Second, Since: since} })
		if err := w.list.Observe(t.Context(), w.shop, chair); !errors.As(err, new(*waitlist.Away)) {
			t.Fatalf("the read did not fail: %v", err)
		}
		if got := w.text(trouble); got != c.want {
			t.Errorf("after %v trouble is %q, want %q", w.now().Sub(since), got, c.want)
		}
	}
	w.hint()
	w.run()
	if got := w.text(trouble); got != "" {
		t.Errorf("Shopify answers, and trouble is still %q", got)
	}
}

func TestPressesThatArriveTogetherCommitTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.NoticesPerUnit = 2 })
	names := people(40)
	w.join(names...)
	w.stock(20)
	var commits int
	w.at("claim_commit before", func() error { commits++; return nil }) // one line works one batch at a time
	tx, err := w.db.Begin(t.Context())
	w.must(err)
	_, err = tx.Exec(t.Context(), `SELECT FROM restocks FOR UPDATE`)
	w.must(err)

	var wait sync.WaitGroup
	press := func(name string) {
		link := w.link(name)
		wait.Go(func() {
			if o, err := w.list.Claim(t.Context(), link); err != nil || o.State != "securing" && o.State != "gone" {
				t.Errorf("%s: %s, %v", name, o.State, err)
			}
		})
	}
	press(names[0])
	w.waitForALock() // the first batch is at the counter; the others gather behind it
	for _, name := range names[1:] {
		press(name)
	}
	w.must(tx.Commit(t.Context()))
	wait.Wait()
	w.wantCounter("20 0 20 0 0")
	if commits > 20 {
		t.Fatalf("40 presses took %d commits", commits)
	}
	if o := w.press(names[0]); o.State != "securing" {
		t.Fatalf("the first to press has %s", o.State)
	}
}

func TestAPressWhoseShopperHasGoneIsStillCommitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	w.stock(1)
	ctx, leave := context.WithCancel(t.Context())
	committed := make(chan struct{})
	w.at("claim_commit before", func() error { leave(); return nil })
	w.at("claim_commit after", func() error { close(committed); return nil })
	if _, err := w.list.Claim(ctx, w.link("ana")); err == nil {
		t.Log("the answer came before the shopper had gone")
	}
	<-committed
	w.wantCounter("1 0 1 0 0")
	w.at("claim_commit after", nil)
	if o := w.press("ana"); o.State != "securing" {
		t.Fatalf("when they come back: %s", o.State)
	}
}

func TestTheDefaultLocationMustBeWatched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	set, err := shop.LoadSettings(t.Context(), w.db, w.shop)
	w.must(err)
	for _, c := range []struct {
		locations []int64
		ok        bool
	}{{[]int64{2}, false}, {[]int64{2, 1}, true}, {nil, true}} {
		set.Locations = c.locations
		err := w.list.ChangeSettings(t.Context(), w.shop, set)
		if f, fault := err.(shop.Fault); (err == nil) != c.ok || fault && f.Field != "locations" {
			t.Errorf("%v: %v", c.locations, err)
		}
	}
}

func TestWhatCannotBeHeldCannotBeWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.store.variants[chair].Components = true
	if _, err := w.list.Join(t.Context(), w.shop, tap("ana")); err != waitlist.ErrUnknownVariant {
		t.Fatalf("%v", err)
	}
	if got, err := w.list.Waitable(t.Context(), w.shop, fmt.Sprint(chair), ""); err != nil || got.State != "not_waitable" {
		t.Fatalf("%+v, %v", got, err)
	}
}

// A place is counted as far as people care; beyond that, it is said so.
func TestAPlaceFarBackIsNotCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ana")
	_, err := w.db.Exec(t.Context(), `
		WITH c AS (INSERT INTO contacts (shop_id, channel, key, address, created_at) SELECT $1, 'email', a, a, $2 FROM generate_series(1, 1500) AS i, format('crowd%s@example.com', i) AS a RETURNING id)
		INSERT INTO entries (shop_id, variant_id, contact_id, state, joined_at, expires_at, locale) SELECT $1, $3, id, 'waiting', (SELECT joined_at FROM entries) + id * interval '1 microsecond', $2 + interval '90 days', 'en' FROM c ORDER BY id`, w.shop, w.now(), chair)
	w.must(err)
	w.move(time.Hour)
	w.join("zoe")
	for name, want := range map[string]int{"ana": 1, "crowd998": 999, "crowd999": 1000, "crowd1000": 1001, "zoe": waitlist.CountedPlaces + 1} {
		p, err := w.list.Place(t.Context(), w.keys.Token(shop.Place, w.entry(name)))
		w.must(err)
		if p.Place != want {
			t.Errorf("%s has place %d, want %d", name, p.Place, want)
		}
	}
}
