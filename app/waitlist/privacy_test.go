package waitlist_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
	"holdfast/app/words"
)

// Annabel waits twice, by mail while signed in and by text as a guest. No other test says her name.
const (
	annabel      = "Annabel Quillfeather"
	annabelMail  = "Annabel.Quill@Example.com"
	annabelPhone = "07400 123456"
	annabelID    = 7700077
)

// traces are what must stand nowhere once she is erased, in lower case; the number's last digits are looked
// for with everything but letters and digits taken out.
func traces() []string { return []string{"annabel", "quill", "7400123456"} }

// everything is every value of every column that can carry text, of every table of the database.
func everything(w *world) string {
	w.t.Helper()
	ctx := w.t.Context()
	rows, _ := w.db.Query(ctx, `
		SELECT table_schema::text, table_name::text, column_name::text, data_type::text FROM information_schema.columns
		WHERE table_schema NOT IN ('pg_catalog', 'information_schema') AND data_type IN ('text', 'character varying', 'bytea', 'json', 'jsonb', 'ARRAY') ORDER BY 1, 2, 3`)
	type column struct{ Schema, Table, Name, Type string }
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
	w.must(err)
	var all strings.Builder
	for _, c := range columns {
		name := pgx.Identifier{c.Name}.Sanitize()
		if c.Type == "bytea" {
			name = `encode(` + name + `, 'escape')`
		}
		fmt.Fprintf(&all, "== %s.%s\n%s\n", c.Table, c.Name, w.text(`SELECT coalesce(string_agg(`+name+`::text, E'\n'), '') FROM `+pgx.Identifier{c.Schema, c.Table}.Sanitize()))
	}
	return all.String()
}

// tracesIn are the places, table.column, where one of her traces stands.
func tracesIn(dump string) map[string]bool {
	found, at := map[string]bool{}, ""
	for line := range strings.Lines(strings.ToLower(dump)) {
		if rest, ok := strings.CutPrefix(line, "== "); ok {
			at = strings.TrimSpace(rest)
			continue
		}
		plain := strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' {
				return r
			}
			return -1
		}, line)
		for _, trace := range traces() {
			if strings.Contains(plain, trace) {
				found[at] = true
			}
		}
	}
	return found
}

// tenantTables are the tables whose rows carry a shop's id.
func tenantTables(w *world) []string {
	w.t.Helper()
	rows, _ := w.db.Query(w.t.Context(), `SELECT table_name::text FROM information_schema.columns WHERE table_schema = 'public' AND column_name = 'shop_id' ORDER BY 1`)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.must(err)
	return tables
}

// rowsOf is every row that carries a shop's id, for comparing.
func rowsOf(w *world, shopID int64) string {
	w.t.Helper()
	var all strings.Builder
	for _, t := range tenantTables(w) {
		if got := w.text(`SELECT coalesce(string_agg(t::text, E'\n' ORDER BY t::text), '') FROM `+pgx.Identifier{t}.Sanitize()+` t WHERE shop_id = $1`, shopID); got != "" {
			fmt.Fprintf(&all, "== %s\n%s\n", t, got)
		}
	}
	return all.String()
}

func (w *world) webhook(topic, body string) {
	w.t.Helper()
	w.webhookAt(topic, body, time.Time{})
}

func (w *world) webhookAt(topic, body string, at time.Time) {
	w.t.Helper()
	w.strangs++
	w.took(w.list.Receive(w.t.Context(), w.shop, waitlist.Webhook{Topic: topic, WebhookID: fmt.Sprintf("w%d", w.strangs), Triggered: at, Body: []byte(body)}))
}

func annabelBody() string {
	return fmt.Sprintf(`{"shop_id":1,"shop_domain":"chairs.myshopify.com","customer":{"id":%d,"email":%q,"phone":"+44 (0)7400 123-456"},"orders_to_redact":[12],"orders_requested":[12],"data_request":{"id":9999}}`,
		annabelID, strings.ToUpper(annabelMail))
}

// annabelWaits has her wait at a shop by both channels.
func (w *world) annabelWaits(shopID int64) {
	w.t.Helper()
	w.sendsTexts(shopID)
	for _, tap := range []waitlist.Tap{
		{VariantID: fmt.Sprint(chair), Channel: "email", Contact: annabelMail, Name: annabel, Country: "GB", Locale: "en", CustomerID: annabelID},
		{VariantID: fmt.Sprint(chair), Channel: "sms", Contact: annabelPhone, Name: annabel, Country: "GB", Locale: "en"},
	} {
		_, err := w.list.Tap(w.t.Context(), shopID, tap)
		w.must(err)
	}
	_, err := w.list.Tap(w.t.Context(), shopID, waitlist.Tap{SKU: "no such thing, tell " + annabelMail, Channel: "email", Contact: annabelMail})
	if !errors.Is(err, waitlist.ErrUnknownVariant) {
		w.t.Fatal(err)
	}
}

// annabelIsEverywhere leaves her traces wherever they may come to stand, and looks that a search finds them.
func (w *world) annabelIsEverywhere() {
	w.t.Helper()
	ctx := w.t.Context()
	w.outbox.answer = func(m waitlist.Outgoing) error {
		return &waitlist.SendError{Outcome: waitlist.GiveUp, Why: "550 no such user here: <" + m.To + ">"}
	}
	w.must(w.list.Suppress(ctx, w.shop, "sms", "+447400123456", waitlist.Stop))
	w.stock(1) // her mail is refused with her address in the answer
	w.outbox.answer = nil
	w.webhook("customers/data_request", annabelBody())
	w.run()
	w.webhook("customers/data_request", annabelBody())
	_, err := w.db.Exec(ctx, `
		INSERT INTO river_job (kind, args, state, max_attempts, finalized_at, errors)
		VALUES ('notice', jsonb_build_object('shop_id', $1::bigint, 'restock_id', 1), 'cancelled', 5, now(), ARRAY[jsonb_build_object('error', 'refused: <' || $2::text || '>')])`, w.shop, strings.ToLower(annabelMail))
	w.must(err)
	_, err = w.db.Exec(ctx, `INSERT INTO notes (shop_id, kind, subject, detail, created_at) VALUES ($1, 'sender', 'sms', 'not accepted: +447400123456 is no mobile', now())`, w.shop)
	w.must(err)
	found := tracesIn(everything(w))
	for _, place := range []string{"contacts.key", "contacts.address", "entries.name", "suppressions.address", "messages.reason", "webhooks.body", "privacy_requests.export", "river_job.errors", "notes.detail", "demand.asked"} {
		if !found[place] {
			w.t.Fatalf("the search does not find her in %s, only in %v: it would prove nothing", place, found)
		}
	}
}

func TestACustomerWhoIsErasedStandsNowhereAndTheBooksAddUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	other, err := shop.NewStore(w.db, w.keys).Install(ctx, "tables.myshopify.com", "Tables", "EUR", "GB", "en", "token")
	w.must(err)
	w.annabelWaits(w.shop)
	w.join("ben")
	w.annabelIsEverywhere()
	w.run()
	before := everything(w)
	w.stock(0)
	w.webhook("customers/redact", annabelBody())
	w.run()
	if found := tracesIn(everything(w)); len(found) > 0 {
		t.Fatalf("she still stands in %v", found)
	}
	if !strings.Contains(before, annabelMail) {
		t.Fatal("she was gone before she was erased")
	}

	w.annabelWaits(other)
	w.run()
	theirs := rowsOf(w, other)
	w.webhook("customers/redact", annabelBody())
	w.run()
	if got := rowsOf(w, other); got != theirs {
		t.Fatalf("another shop's rows have changed:\n%s\nwere\n%s", got, theirs)
	}

	// Who said STOP is still not added, and who did not may come back.
	w.annabelWaits(w.shop)
	if n := w.one(`SELECT count(*) FROM contacts WHERE shop_id = $1 AND channel = 'sms' AND key LIKE '+44%'`, w.shop); n != 0 {
		t.Fatal("a phone that had opted out was added after it was erased")
	}
	if n := w.one(`SELECT count(*) FROM entries e JOIN contacts c ON c.id = e.contact_id WHERE e.shop_id = $1 AND c.key = lower($2) AND e.state = 'waiting'`, w.shop, annabelMail); n != 1 {
		t.Fatal("her mail address had not opted out, and cannot join again")
	}
	requests, err := w.list.PrivacyRequests(ctx, w.shop, 0)
	w.must(err)
	first := requests[1] // of the two to erase
	if len(requests) != 4 || first.Outcome != "erased" || first.Counts["places"] != 2 || first.Counts["contacts"] != 2 || first.Counts["opt-outs kept as a hash"] != 1 {
		t.Fatalf("what was done is recorded as %+v", requests)
	}
}

func TestErasingACustomerEndsTheirHoldFirstAndTheUnitGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.annabelWaits(w.shop)
	w.join("ben")
	w.stock(1)
	mail := w.keys.Token(shop.Reserve, w.one(`SELECT max(id) FROM offers`))
	_, err := w.list.Claim(t.Context(), mail)
	w.must(err)
	w.run()
	if open := w.store.open(); len(open) != 1 || open[0].visible.Name != annabel {
		t.Fatalf("her hold is not backed by a draft in her name: %+v", open)
	}

	w.store.then("ReadDraft", func() error { return errors.New("Shopify is away") })
	w.webhook("customers/redact", annabelBody())
	err = w.list.HandleWebhook(t.Context(), w.shop, w.one(`SELECT max(id) FROM webhooks`))
	if !errors.Is(err, waitlist.ErrLater) {
		t.Fatalf("erasing did not wait for the release: %v", err)
	}
	if len(tracesIn(everything(w))) == 0 {
		t.Fatal("she was erased while her draft was still there")
	}
	w.run()
	if found := tracesIn(everything(w)); len(found) > 0 {
		t.Fatalf("she still stands in %v", found)
	}
	for _, d := range w.store.open() {
		if d.visible.Name == annabel {
			t.Fatal("a draft in her name was left")
		}
	}
	w.wantState("ben", waitlist.Offered)
	w.wantCounter("1 1 0 0 0")
	if o, err := w.list.Look(t.Context(), mail); err != nil || o.State != "left" {
		t.Fatalf("her old link shows %s, %v", o.State, err)
	}
}

func TestAHoldThatIsPaidWhileItsCustomerIsErasedIsSold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.annabelWaits(w.shop)
	w.stock(1)
	_, err := w.list.Claim(t.Context(), w.keys.Token(shop.Reserve, w.one(`SELECT max(id) FROM offers`)))
	w.must(err)
	w.run()
	w.webhook("customers/redact", annabelBody())
	err = w.list.HandleWebhook(t.Context(), w.shop, w.one(`SELECT max(id) FROM webhooks`))
	if !errors.Is(err, waitlist.ErrLater) {
		t.Fatal(err)
	}
	_, err = w.store.pay(w.one(`SELECT draft_id FROM holds`))
	w.must(err)
	w.run()
	w.wantCounter("1 0 0 1 0")
	if found := tracesIn(everything(w)); len(found) > 0 {
		t.Fatalf("she still stands in %v", found)
	}
}

func TestErasingACustomerDoesNotWaitForShopifyForEver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.annabelWaits(w.shop)
	w.stock(1)
	_, err := w.list.Claim(t.Context(), w.keys.Token(shop.Reserve, w.one(`SELECT max(id) FROM offers`)))
	w.must(err)
	w.run()
	w.webhook("customers/redact", annabelBody())
	redact := w.one(`SELECT max(id) FROM webhooks`)
	_, err = w.db.Exec(t.Context(), `UPDATE shops SET trouble = 'the shop is frozen' WHERE id = $1`, w.shop)
	w.must(err)
	var away *waitlist.Away
	if err := w.list.HandleWebhook(t.Context(), w.shop, redact); !errors.As(err, &away) || away.After != time.Minute {
		t.Fatalf("while the shop is frozen: %v", err)
	}
	w.move(7 * 24 * time.Hour)
	w.must(w.list.HandleWebhook(t.Context(), w.shop, redact))
	if found := tracesIn(everything(w)); len(found) > 0 {
		t.Fatalf("she still stands in %v", found)
	}
	w.run() // the release still needs nothing but ids
	w.wantCounter("1 1 0 0 0")
}

func TestErasingACustomerOfAShopThatHasLeftWaitsForNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.annabelWaits(w.shop)
	w.stock(1)
	_, err := w.list.Claim(t.Context(), w.keys.Token(shop.Reserve, w.one(`SELECT max(id) FROM offers`)))
	w.must(err)
	w.run()
	w.webhook("app/uninstalled", `{}`)
	w.run()
	w.webhook("customers/redact", annabelBody())
	w.must(w.list.HandleWebhook(t.Context(), w.shop, w.one(`SELECT max(id) FROM webhooks`)))
	if found := tracesIn(everything(w)); len(found) > 0 {
		t.Fatalf("she still stands in %v", found)
	}
}

func TestTapsPressesAndErasingAtOnceLeaveTheBooksRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.annabelWaits(w.shop)
	w.join("ben")
	w.stock(2)
	links := []string{w.keys.Token(shop.Reserve, 1), w.keys.Token(shop.Reserve, 2)}
	for range 5 {
		w.webhook("customers/redact", annabelBody())
	}
	first, last := w.one(`SELECT min(id) FROM webhooks WHERE topic = 'customers/redact'`), w.one(`SELECT max(id) FROM webhooks`)
	var all sync.WaitGroup
	for id := first; id <= last; id++ {
		all.Go(func() {
			if err := w.service().HandleWebhook(t.Context(), w.shop, id); err != nil && !errors.Is(err, waitlist.ErrLater) {
				t.Error(err)
			}
		})
		all.Go(func() {
			_, err := w.service().Join(t.Context(), w.shop, waitlist.Tap{VariantID: fmt.Sprint(chair), Channel: "email", Contact: annabelMail, Name: annabel, CustomerID: annabelID})
			if err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if _, err := w.list.Claim(t.Context(), links[id%2]); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	w.run()
	w.webhook("customers/redact", annabelBody())
	w.run()
	if found := tracesIn(everything(w)); len(found) > 0 {
		t.Fatalf("she still stands in %v", found)
	}
	if n := w.one(`SELECT count(*) FROM webhooks WHERE done_at IS NULL`); n != 0 {
		t.Fatalf("%d webhooks are not done", n)
	}
}

func TestADataRequestShowsWhatIsStoredForThirtyDays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.annabelWaits(w.shop)
	w.join("ben")
	w.must(w.list.Suppress(t.Context(), w.shop, "sms", "+447400123456", waitlist.Stop))
	w.stock(1)
	w.webhook("customers/data_request", annabelBody())
	w.run()
	requests, err := w.list.PrivacyRequests(t.Context(), w.shop, 0)
	w.must(err)
	if len(requests) != 1 || !requests[0].Readable || requests[0].Outcome != "exported" || *requests[0].RequestID != 9999 || !requests[0].ExportUntil.Equal(w.now().AddDate(0, 0, 30)) {
		t.Fatalf("the merchant sees %+v", requests)
	}
	_, export, text, err := w.list.PrivacyExport(t.Context(), w.shop, requests[0].ID)
	w.must(err)
	if len(export.Contacts) != 2 || len(export.Places) != 2 || len(export.Messages) != 1 || len(export.OptOuts) != 1 || export.Places[0].Name != annabel || export.Places[0].Product != "Chair" {
		t.Fatalf("exported: %s", text)
	}
	var again waitlist.PersonExport
	if err := json.Unmarshal(text, &again); err != nil || strings.Contains(string(text), "ben@") {
		t.Fatalf("%v in %s", err, text)
	}
	if _, _, _, err := w.list.PrivacyExport(t.Context(), w.shop+1, requests[0].ID); !errors.Is(err, waitlist.ErrNotFound) {
		t.Fatalf("another shop reads it: %v", err)
	}
	w.pass(30 * 24 * time.Hour)
	if _, _, _, err := w.list.PrivacyExport(t.Context(), w.shop, requests[0].ID); !errors.Is(err, waitlist.ErrNotFound) {
		t.Fatalf("it can be read after thirty days: %v", err)
	}
	if w.one(`SELECT count(*) FROM privacy_requests WHERE export IS NOT NULL`) != 0 {
		t.Fatal("it is hidden and not dropped")
	}
}

func TestACustomerWhoTypedAnothersAddressNeitherReadsNorErasesThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const desk int64 = 102
	w.store.variants[desk] = &waitlist.VariantReading{ID: desk, ProductID: 12, InventoryItemID: 1102, ProductTitle: "Desk", Active: true, Published: true, Tracked: true}
	w.annabelWaits(w.shop)
	_, err := w.list.Join(t.Context(), w.shop, waitlist.Tap{VariantID: fmt.Sprint(desk), Channel: "email", Contact: annabelMail, Name: "Mallory", CustomerID: 666})
	w.must(err)
	const mallory = `{"customer":{"id":666,"email":"mallory@example.com","phone":null},"orders_to_redact":[],"data_request":{"id":1}}`
	w.webhook("customers/data_request", mallory)
	w.run()
	_, export, text, err := w.list.PrivacyExport(t.Context(), w.shop, w.one(`SELECT id FROM privacy_requests`))
	w.must(err)
	if len(export.Places) != 1 || export.Places[0].Product != "Desk" || strings.Contains(string(text), annabel) {
		t.Fatalf("exported: %s", text)
	}
	w.webhook("customers/redact", mallory)
	w.run()
	if n := w.one(`SELECT count(*) FROM entries e JOIN contacts c ON c.id = e.contact_id WHERE e.state = 'waiting' AND e.name = $1`, annabel); n != 2 {
		t.Fatalf("%d of her places are left", n)
	}
	if dump := everything(w); strings.Contains(dump, "Mallory") || strings.Contains(dump, "mallory") {
		t.Fatal("he was not erased")
	}
}

func TestAnErasedShopLeavesItsOptOutsAsHashesAndNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	tenants := shop.NewStore(w.db, w.keys)
	other, err := tenants.Install(ctx, "tables.myshopify.com", "Tables", "EUR", "GB", "en", "token")
	w.must(err)
	w.join("ben")
	w.annabelWaits(w.shop)
	w.stock(1)
	w.press("ben")
	w.run() // the shop leaves while his unit is held
	w.annabelIsEverywhere()
	w.webhook("products/update", `{"id":11}`)
	w.run()
	w.stock(0)
	w.webhook("app/uninstalled", `{}`)
	w.run()
	w.join("carl") // a tap that was on its way
	_, err = w.list.InboundText(ctx, w.shop, "SM1", "+447400123457", "STOP", "")
	w.must(err)
	_, err = w.db.Exec(ctx, `INSERT INTO pauses (shop_id, channel, code, reason, since) VALUES ($1, 'sms', '20003', 'refused', now())`, w.shop)
	w.must(err)
	w.must(w.list.SetWording(ctx, w.shop, words.In("de"), map[string]string{"mail.subject": "Annabels {item}"}))
	for _, table := range tenantTables(w) {
		if !strings.Contains(rowsOf(w, w.shop), "== "+table+"\n") {
			t.Errorf("nothing of the shop stands in %s: that it is erased there would not be seen", table)
		}
	}
	w.webhook("shop/redact", `{"shop_id":1,"shop_domain":"chairs.myshopify.com"}`)
	w.run()

	dump := everything(w)
	if found := tracesIn(dump); len(found) > 0 {
		t.Fatalf("she still stands in %v", found)
	}
	for _, trace := range []string{"chairs", "Chairs", "ben@", "carl@", "Oak"} {
		if strings.Contains(dump, trace) {
			t.Errorf("%q still stands in the database", trace)
		}
	}
	var left []string
	for line := range strings.Lines(rowsOf(w, w.shop)) {
		if name, ok := strings.CutPrefix(line, "== "); ok {
			left = append(left, strings.TrimSpace(name))
		}
	}
	if fmt.Sprint(left) != "[privacy_requests suppressions]" {
		t.Errorf("rows are left in %v", left)
	}
	if n := w.one(`SELECT count(*) FROM privacy_requests WHERE topic = 'shop/redact' AND outcome = 'erased' AND (counts->>'entries')::int = 4`); n != 1 {
		t.Errorf("what was done is not recorded: %s", w.text(`SELECT string_agg(t::text, ' ') FROM privacy_requests t`))
	}

	// The same shop comes back: whoever said STOP to it is still not told, by it.
	again, err := tenants.Install(ctx, "chairs.myshopify.com", "Chairs", "EUR", "GB", "en", "token")
	w.must(err)
	if again != w.shop {
		t.Fatalf("it came back as shop %d, not %d: its opt-outs are lost", again, w.shop)
	}
	w.annabelWaits(w.shop)
	w.annabelWaits(other)
	if n := w.one(`SELECT count(*) FROM contacts WHERE shop_id = $1 AND channel = 'sms'`, w.shop); n != 0 {
		t.Error("a phone that had opted out was added after the shop came back")
	}
	if n := w.one(`SELECT count(*) FROM contacts WHERE shop_id = $1 AND channel = 'sms'`, other); n != 1 {
		t.Error("the opt-out of one shop counts at another")
	}
}

func TestErasingAShopLeavesOtherShopsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other, err := shop.NewStore(w.db, w.keys).Install(t.Context(), "tables.myshopify.com", "Tables", "EUR", "GB", "en", "token")
	w.must(err)
	w.annabelWaits(w.shop)
	w.annabelWaits(other)
	w.run()
	theirs := rowsOf(w, other)
	w.webhook("app/uninstalled", `{}`)
	w.webhook("shop/redact", `{}`)
	w.run()
	if got := rowsOf(w, other); got != theirs {
		t.Fatalf("another shop's rows have changed:\n%s\nwere\n%s", got, theirs)
	}
	if w.one(`SELECT count(*) FROM contacts WHERE shop_id = $1`, w.shop) != 0 {
		t.Fatal("the shop was not erased")
	}
}

func TestAShopThatCameBackIsNotErased(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]func(w *world){
		"before the request is worked": func(w *world) {
			_, err := shop.NewStore(w.db, w.keys).InstallGrant(w.t.Context(), shop.Profile{Domain: "chairs.myshopify.com", Name: "Chairs", Currency: "EUR", Country: "GB", Locale: "en"}, shop.Grant{Token: "new"}, w.now())
			w.must(err)
		},
		"and left again, and an old request is repeated": func(w *world) {
			_, err := shop.NewStore(w.db, w.keys).InstallGrant(w.t.Context(), shop.Profile{Domain: "chairs.myshopify.com", Name: "Chairs", Currency: "EUR", Country: "GB", Locale: "en"}, shop.Grant{Token: "new"}, w.now())
			w.must(err)
			w.webhookAt("app/uninstalled", `{}`, w.now().Add(time.Minute))
			w.run()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.join("ann")
			w.webhook("app/uninstalled", `{}`)
			w.run()
			asked := w.now()
			w.move(48 * time.Hour)
			back(w)
			w.webhookAt("shop/redact", `{}`, asked.Add(time.Hour))
			w.run()
			w.wantState("ann", waitlist.Waiting)
			if got := w.text(`SELECT outcome FROM privacy_requests`); got != "kept" {
				t.Fatalf("the outcome is %s, want kept", got)
			}
		})
	}
}

func TestARequestThatCannotBeReadIsRecordedAsSuch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.webhook("customers/redact", `{"customer":"`+annabelMail+`"}`)
	w.run()
	if got := w.text(`SELECT outcome FROM privacy_requests`); got != "unreadable" {
		t.Fatalf("the outcome is %s", got)
	}
	if found := tracesIn(everything(w)); len(found) > 0 {
		t.Fatalf("she stands in %v", found)
	}
}

func TestTheBodyOfAWebhookGoesWhenItsWorkIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, topic := range []string{"orders/create", "draft_orders/update", "products/update", "shop/update", "nobody/knows"} {
		w.webhook(topic, `{"id":12,"email":"`+annabelMail+`","note":"`+annabel+`"}`)
	}
	if len(tracesIn(everything(w))) == 0 {
		t.Fatal("the search does not find her before: it would prove nothing")
	}
	w.run()
	if found := tracesIn(everything(w)); len(found) > 0 {
		t.Fatalf("she stands in %v", found)
	}
	if n := w.one(`SELECT count(*) FROM webhooks WHERE done_at IS NOT NULL`); n != 5 {
		t.Fatalf("%d of 5 webhooks are done", n)
	}
}
