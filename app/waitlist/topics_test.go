package waitlist_test

import (
	"fmt"
	"testing"
	"time"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

// later is a time of Shopify's after everybody has joined, whose time is the database's own.
func later() time.Time { return time.Now().Add(time.Hour) }

func TestAWebhookOfAnUnknownTopicIsKeptOnceAndCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"a", "a", "b", "a"} {
		w.took(w.list.Receive(t.Context(), w.shop, waitlist.Webhook{Topic: "themes/publish", WebhookID: id, Body: []byte(`not even JSON`)}))
	}
	w.webhook("shop/update", `{}`)
	counts, err := w.list.UnknownTopics(t.Context(), w.shop)
	w.must(err)
	if len(counts) != 1 || counts[0].Topic != "themes/publish" || counts[0].Count != 2 || !counts[0].Last.Equal(w.now()) {
		t.Fatalf("counted %+v", counts)
	}
	if n := w.one(`SELECT count(*) FROM river_job WHERE kind = 'webhook'`); n != 1 {
		t.Fatalf("%d jobs for one known webhook", n)
	}
	if n := w.one(`SELECT count(*) FROM webhooks WHERE topic = 'themes/publish' AND done_at IS NOT NULL AND body = ''`); n != 2 {
		t.Fatalf("%d are put away without their bodies", n)
	}
}

func TestACancelledOrderIsMarkedAndItsUnitGoesToTheNextInLine(t *testing.T) {
	t.Parallel()
	for name, deliver := range map[string]func(w *world, order int64){
		"after its sale": func(w *world, order int64) {
			w.webhook("draft_orders/update", fmt.Sprintf(`{"id":%d,"status":"completed","order_id":%d}`, w.draftOf("ann"), order))
			w.run()
			w.webhook("orders/cancelled", fmt.Sprintf(`{"id":%d,"line_items":[{"variant_id":%d,"quantity":1}]}`, order, chair))
		},
		"before anything else of it is known": func(w *world, order int64) {
			w.webhook("orders/cancelled", fmt.Sprintf(`{"id":%d,"tags":"holdfast, holdfast-%d","line_items":[{"variant_id":%d,"quantity":1}]}`, order, w.hold("ann"), chair))
		},
		"after a sale whose order was not known": func(w *world, order int64) {
			w.webhook("draft_orders/update", fmt.Sprintf(`{"id":%d,"status":"completed"}`, w.draftOf("ann")))
			w.run()
			w.webhook("orders/cancelled", fmt.Sprintf(`{"id":%d,"tags":"holdfast-%d","line_items":[{"variant_id":%d,"quantity":1}]}`, order, w.hold("ann"), chair))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.join("ann", "ben")
			w.stock(1)
			w.press("ann")
			w.run()
			order, err := w.store.pay(w.draftOf("ann"))
			w.must(err)
			w.store.add(chair, 1) // cancelled and restocked before we hear of it
			deliver(w, order)
			w.run()
			w.wantHold("ann", "sold")
			if n := w.one(`SELECT count(*) FROM holds WHERE id = $1 AND order_id = $2 AND cancelled_at IS NOT NULL`, w.hold("ann"), order); n != 1 {
				t.Fatal("the hold does not say that its order was cancelled")
			}
			w.wantState("ben", waitlist.Offered)
			rows, err := w.list.Holds(t.Context(), w.shop, 0)
			w.must(err)
			if len(rows) != 1 || rows[0].CancelledAt == nil {
				t.Fatalf("the merchant sees %+v", rows)
			}
		})
	}
}

func TestAnOrderThatIsNotOursCancelsNoHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ann")
	w.stock(1)
	w.press("ann")
	w.run()
	w.pays("ann")
	w.webhook("orders/cancelled", fmt.Sprintf(`{"id":4711,"note_attributes":[{"name":"_holdfast_hold","value":%q}],"line_items":[{"variant_id":%d,"quantity":1}]}`,
		w.keys.Token(shop.HoldMark, w.hold("ann")), chair)) // her attribute, copied to another order
	w.run()
	if n := w.one(`SELECT count(*) FROM holds WHERE cancelled_at IS NOT NULL`); n != 0 {
		t.Fatal("cancelling another order has marked the hold")
	}
}

func TestAShopThatChangesIsReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenants := shop.NewStore(w.db, w.keys)
	w.store.profile.Name, w.store.profile.Currency, w.store.profile.Country, w.store.profile.Locale = "Chairs & More", "SEK", "SE", "sv"
	w.webhook("shop/update", `{"name":"an older name","currency":"USD"}`) // late: what it says is not believed
	w.run()
	sh, err := tenants.ByID(t.Context(), w.shop)
	w.must(err)
	if sh.Name != "Chairs & More" || sh.Currency != "SEK" || sh.Country != "SE" || sh.Locale != "sv" || sh.Domain != "chairs.myshopify.com" {
		t.Fatalf("the shop is %+v", sh)
	}

	w.webhook("app/uninstalled", `{}`)
	w.webhook("shop/update", `{}`)
	w.run()
	if n := w.store.calls["Profile"]; n != 1 || w.one(`SELECT count(*) FROM webhooks WHERE done_at IS NULL`) != 0 {
		t.Fatalf("a shop that has left was read: %d reads", n)
	}
}

func TestAMerchantWhoEditsADraftOfOursIsToldAndTheBooksFollow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lines   string
		stock   int // what it does to Shopify's stock of the chair
		notes   int64
		counter string
	}{
		"one more unit":     {fmt.Sprintf(`[{"variant_id":%d,"quantity":2}]`, chair), -1, 1, "2 0 1 0 1"},
		"another variant":   {`[{"variant_id":999,"quantity":1}]`, +1, 1, "3 2 1 0 0"},
		"an empty draft":    {`[]`, +1, 1, "3 2 1 0 0"},
		"one more thing":    {fmt.Sprintf(`[{"variant_id":%d,"quantity":1},{"variant_id":null,"quantity":1}]`, chair), 0, 1, "2 1 1 0 0"},
		"nothing of weight": {fmt.Sprintf(`[{"variant_id":%d,"quantity":1}]`, chair), 0, 0, "2 1 1 0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.join("ann")
			w.stock(2)
			w.press("ann")
			w.run()
			w.store.add(chair, c.stock)
			w.webhook("draft_orders/update", fmt.Sprintf(`{"id":%d,"status":"open","line_items":%s}`, w.draftOf("ann"), c.lines))
			w.run()
			if n := w.one(`SELECT count(*) FROM notes WHERE kind = 'draft_edited'`); n != c.notes {
				t.Errorf("%d notes, want %d", n, c.notes)
			}
			w.observe()
			w.wantCounter(c.counter)
			w.wantHold("ann", "active")
			w.pays("ann")
			w.wantHold("ann", "sold")
		})
	}
}

func TestADraftThatTheMerchantMarksAsPaidIsSold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ann")
	w.stock(1)
	w.press("ann")
	w.run()
	w.pays("ann") // Shopify completes it in the same way, and says so in the same words
	w.wantHold("ann", "sold")
	w.wantCounter("1 0 0 1 0")
}

func TestWhoeverBoughtTheOrdinaryWayIsNotToldLater(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]string{
		"by the order's email":     `"email":"ANN@example.com"`,
		"by its contact email":     `"email":null,"contact_email":"ann@example.com"`,
		"by the customer's email":  `"customer":{"id":5,"email":"ann@example.com"}`,
		"by the customer's id":     `"email":"somebody@example.com","customer":{"id":77}`,
		"by a phone as it is said": `"phone":"07400 123 456"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ann := tap("ann")
			ann.CustomerID = 77
			if name == "by a phone as it is said" {
				ann.Channel, ann.Contact = "sms", "+447400123456"
			}
			_, err := w.list.Join(t.Context(), w.shop, ann)
			w.must(err)
			w.join("ben")
			w.webhookAt("orders/create", fmt.Sprintf(`{"id":1,"source_name":"web",%s,"line_items":[{"variant_id":%d,"quantity":1}]}`, order, chair), later())
			w.run()
			if got := w.text(`SELECT state || ' ' || reason FROM entries ORDER BY id LIMIT 1`); got != "left bought" {
				t.Fatalf("her entry is %s", got)
			}
			w.stock(1)
			w.wantTold("ben")
		})
	}
}

func TestABuyersOfferAndHoldGoToTheNextInLine(t *testing.T) {
	t.Parallel()
	bought := fmt.Sprintf(`{"id":1,"source_name":"web","email":"ann@example.com","line_items":[{"variant_id":%d,"quantity":1}]}`, chair)
	for name, c := range map[string]struct {
		reserve bool
		press   bool
		offer   string
	}{
		"an open offer":             {false, false, "withdrawn"},
		"a hold":                    {false, true, "claimed"},
		"a hold that was told of":   {true, false, "lapsed"},
		"a hold made before, taken": {true, true, "claimed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(s *shop.Settings) { s.ReserveBeforeTelling = c.reserve })
			w.join("ann", "ben")
			w.stock(1)
			w.wantTold("ann")
			if c.press {
				w.press("ann")
				w.run()
				w.wantHold("ann", "active")
			}
			w.webhookAt("orders/create", bought, later())
			w.run()
			w.wantState("ann", waitlist.Left)
			w.wantOffer("ann", c.offer)
			w.wantTold("ann", "ben")
			for _, d := range w.store.open() {
				if d.visible.Email == "ann@example.com" {
					t.Fatal("her draft was left")
				}
			}
		})
	}
}

func TestWhoBuysSomethingElseOrJoinsAfterBuyingOrIsToStayStays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		skip  bool
		at    time.Time
		lines string
	}{
		"another variant":               {true, later(), `[{"variant_id":999,"quantity":1},{"variant_id":null,"quantity":1}]`},
		"bought long before she joined": {true, time.Now().Add(-time.Hour), fmt.Sprintf(`[{"variant_id":%d,"quantity":1}]`, chair)},
		"the merchant wants it so":      {false, later(), fmt.Sprintf(`[{"variant_id":%d,"quantity":1}]`, chair)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(s *shop.Settings) { s.SkipBuyers = c.skip })
			w.join("ann")
			w.webhookAt("orders/create", fmt.Sprintf(`{"id":1,"source_name":"web","email":"ann@example.com","line_items":%s}`, c.lines), c.at)
			w.run()
			w.wantState("ann", waitlist.Waiting)
		})
	}
}

func TestTheOrderOfAHoldDoesNotCountAsBoughtTheOrdinaryWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("ann")
	_, err := w.list.Join(t.Context(), w.shop, waitlist.Tap{VariantID: fmt.Sprint(chair), Channel: "sms", Contact: "+447400123456", Name: "Ann"})
	w.must(err)
	w.stock(1)
	w.press("ann")
	w.run()
	order, err := w.store.pay(w.draftOf("ann"))
	w.must(err)
	w.webhookAt("orders/create", fmt.Sprintf(`{"id":%d,"source_name":"web","email":"ann@example.com","phone":"+447400123456","tags":"holdfast-%d","line_items":[{"variant_id":%d,"quantity":1}]}`,
		order, w.hold("ann"), chair), later())
	w.run()
	w.wantState("ann", waitlist.Sold)
	if got := w.text(`SELECT string_agg(e.state, ' ' ORDER BY e.id) FROM entries e`); got != "sold left" {
		t.Fatalf("her two places are %s", got)
	}
}

func TestOrdersWithoutTheirCustomersSayThatTheAppIsNotApprovedForThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenants := shop.NewStore(w.db, w.keys)
	for i, c := range []struct {
		order  string
		hidden bool
	}{
		{`"source_name":"pos","customer":null`, false},
		{`"source_name":"web","email":null,"phone":null,"customer":null`, true},
		{`"source_name":"pos"`, true},
		{`"source_name":"web"`, true},
		{`"source_name":"web","customer":{"id":5}`, false}, // level 1: the customer without addresses
	} {
		w.webhook("orders/create", fmt.Sprintf(`{"id":%d,%s,"line_items":[{"variant_id":%d,"quantity":1}]}`, i+1, c.order, chair))
		w.run()
		sh, err := tenants.ByID(t.Context(), w.shop)
		w.must(err)
		if sh.CustomersHidden != c.hidden {
			t.Errorf("after order %d, hidden is %v", i+1, sh.CustomersHidden)
		}
	}
}

func TestDiscountsApplyToAHeldUnitAsTheMerchantHasSet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ automatic, codes bool }{{true, true}, {false, true}, {true, false}, {false, false}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if set, err := shop.LoadSettings(t.Context(), w.db, w.shop); err != nil || !set.AutomaticDiscounts || !set.DiscountCodes || !set.SkipBuyers {
				t.Fatalf("a new shop has %+v, %v", set, err)
			}
			w.settings(func(s *shop.Settings) { s.AutomaticDiscounts, s.DiscountCodes = c.automatic, c.codes })
			w.join("ann")
			w.stock(1)
			w.press("ann")
			w.run()
			if d := w.store.open()[0].visible; d.NoAutomaticDiscounts == c.automatic || d.NoDiscountCodes == c.codes {
				t.Fatalf("the draft is %+v", d)
			}
		})
	}
}
