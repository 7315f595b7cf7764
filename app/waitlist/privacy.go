package waitlist

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/app/shop"
)

// Shopify's privacy topics: what is stored of a customer is given to the merchant (customers/data_request) or
// erased (customers/redact), and a shop that has removed the app is erased (shop/redact). Each request is
// recorded with what was done, and the record carries nobody's data: who was meant is a keyed hash.
//
// A customer is found by Shopify's id, by the mail address and by the phone number, whatever way they are
// spelled: most who wait have never signed in. What was joined by a contact that belongs to somebody else, too,
// is matched entry by entry, so that nobody reads or loses what another customer has joined.

const (
	// exportKept is how long the answer to a data request can be read.
	exportKept = 30 * 24 * time.Hour
	// redactPatience is how long the erasing of a customer waits for what is under way: Shopify may be away, or
	// refuse the shop. It must be done within 30 days of the request (Shopify's rule for all apps).
	redactPatience = 7 * 24 * time.Hour
	// eraseChunk is how many rows of a shop one transaction erases.
	eraseChunk = 5000
)

// customer is how Shopify names a customer in an order, a draft order or a privacy request. What the app may
// not see is null or missing.
type customer struct {
	ID    int64  `json:"id"`
	Email string `json:"email"`
	Phone string `json:"phone"`
}

// person is a customer as far as they can be found here.
type person struct {
	CustomerID int64
	Addresses  []Address
}

// personOf understands a customer, and the same one as they are named elsewhere: the first id counts, and every
// address. One that cannot be understood was never a contact.
func (s *Service) personOf(ctx context.Context, shopID int64, names ...customer) (person, error) {
	var country string
	if err := s.db.QueryRow(ctx, `SELECT country FROM shops WHERE id = $1`, shopID).Scan(&country); err != nil {
		return person{}, err
	}
	var who person
	for _, c := range names {
		who.CustomerID = cmp.Or(who.CustomerID, c.ID)
		for _, given := range []struct {
			channel Channel
			typed   string
		}{{Email, c.Email}, {SMS, c.Phone}} {
			a, err := ParseAddress(given.channel, given.typed, country)
			if err == nil && !slices.ContainsFunc(who.Addresses, a.same) {
				who.Addresses = append(who.Addresses, a)
			}
		}
	}
	return who, nil
}

// same says whether two addresses are one contact.
func (a Address) same(b Address) bool { return a.Channel == b.Channel && a.Key == b.Key }

func (who person) channels() (channels, keys []string) {
	for _, a := range who.Addresses {
		channels, keys = append(channels, string(a.Channel)), append(keys, a.Key)
	}
	return
}

// hashes are the keyed hashes by which a person is recognised in the records of privacy requests, by every
// configured key, that of the first key first for each.
func (s *Service) hashes(shopID int64, who person) (all [][]byte) {
	if who.CustomerID != 0 {
		all = append(all, s.keys.Hashes(shopID, "customer", strconv.FormatInt(who.CustomerID, 10))...)
	}
	for _, a := range who.Addresses {
		all = append(all, s.keys.Hashes(shopID, string(a.Channel), a.Key)...)
	}
	return all
}

// theirs are the ids of a person's contacts and entries: the contacts by address; the entries by those, and by
// the customer's id. The contacts are locked as a tap of theirs would lock them.
func (s *Service) theirs(ctx context.Context, q shop.Querier, shopID int64, who person) (contacts, entries []int64, err error) {
	channels, keys := who.channels()
	rows, _ := q.Query(ctx, `
		SELECT c.id FROM contacts c JOIN unnest($2::text[], $3::text[]) a(channel, key) ON c.channel = a.channel AND c.key = a.key
		WHERE c.shop_id = $1 ORDER BY c.id FOR NO KEY UPDATE OF c`, shopID, channels, keys)
	if contacts, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil {
		return nil, nil, err
	}
	rows, _ = q.Query(ctx, `SELECT id FROM entries WHERE shop_id = $1 AND (contact_id = ANY ($2) OR customer_id = nullif($3::bigint, 0)) ORDER BY id`, shopID, contacts, who.CustomerID)
	entries, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	return contacts, entries, err
}

// recordRequest records that a privacy request has come, once.
func (s *Service) recordRequest(ctx context.Context, shopID int64, w received, requestID int64, people [][]byte) error {
	if people == nil {
		people = [][]byte{}
	}
	_, err := s.db.Exec(ctx, `
		INSERT INTO privacy_requests (shop_id, topic, webhook_id, request_id, people, received_at) VALUES ($1, $2, $3, nullif($4::bigint, 0), $5, $6)
		ON CONFLICT (shop_id, topic, webhook_id) DO NOTHING`, shopID, w.Topic, w.WebhookID, requestID, people, w.ReceivedAt)
	return err
}

// answerRequest records what was done, beside what was counted before.
func (s *Service) answerRequest(ctx context.Context, tx shop.Execer, shopID int64, w received, outcome string, counts map[string]int, export any) error {
	if counts == nil {
		counts = map[string]int{}
	}
	var until *time.Time
	if export != nil {
		t := s.now().Add(exportKept)
		until = &t
	}
	_, err := tx.Exec(ctx, `
		UPDATE privacy_requests SET done_at = $4, outcome = $5, counts = counts || $6, export = $7, export_until = $8
		WHERE shop_id = $1 AND topic = $2 AND webhook_id = $3 AND done_at IS NULL`, shopID, w.Topic, w.WebhookID, s.now(), outcome, counts, export, until)
	return err
}

// PersonExport is all that is stored of a customer, in the merchant's hands as JSON and as a page. Times are
// UTC.
type PersonExport struct {
	Contacts []ExportedContact `json:"contacts"`
	Places   []ExportedPlace   `json:"places"`
	Messages []ExportedMessage `json:"messages"`
	OptOuts  []ExportedOptOut  `json:"opt_outs"`
}

// ExportedContact is an address that the customer can be reached by.
type ExportedContact struct {
	Channel string    `json:"channel"`
	Address string    `json:"address"`
	Since   time.Time `json:"since"`
}

// ExportedPlace is an entry, with the holds that it had.
type ExportedPlace struct {
	Product  string         `json:"product"`
	Variant  string         `json:"variant"`
	Contact  string         `json:"contact"`
	Customer int64          `json:"customer_id,omitempty"`
	Name     string         `json:"name"`
	Locale   string         `json:"locale"`
	Country  string         `json:"country"`
	Currency string         `json:"currency"`
	Consent  string         `json:"consent_version"`
	Zones    []string       `json:"time_zones,omitempty"`
	State    string         `json:"state"`
	Joined   time.Time      `json:"joined_at"`
	Ended    *time.Time     `json:"ended_at,omitempty"`
	Holds    []ExportedHold `json:"holds,omitempty"`
}

// ExportedHold is a unit that was held, and the draft order and order that it became.
type ExportedHold struct {
	State string     `json:"state"`
	Since time.Time  `json:"since"`
	Until *time.Time `json:"until,omitempty"`
	Draft *int64     `json:"draft_order_id,omitempty"`
	Order *int64     `json:"order_id,omitempty"`
}

// ExportedMessage is a message that was to be sent. Its text is not kept.
type ExportedMessage struct {
	Channel  string     `json:"channel"`
	To       string     `json:"to"`
	State    string     `json:"state"`
	Created  time.Time  `json:"created_at"`
	Accepted *time.Time `json:"accepted_at,omitempty"`
}

// ExportedOptOut is the wish not to be messaged.
type ExportedOptOut struct {
	Channel string    `json:"channel"`
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"`
}

// exportCustomer writes down what is stored of a customer.
func (s *Service) exportCustomer(ctx context.Context, shopID int64, w received, p payload) error {
	who, err := s.personOf(ctx, shopID, p.Customer)
	if err != nil {
		return err
	}
	if err := s.recordRequest(ctx, shopID, w, p.DataRequest.ID, s.hashes(shopID, who)); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		export, counts, err := s.export(ctx, tx, shopID, who)
		if err != nil {
			return err
		}
		return s.answerRequest(ctx, tx, shopID, w, "exported", counts, export)
	})
}

func (s *Service) export(ctx context.Context, tx pgx.Tx, shopID int64, who person) (export PersonExport, counts map[string]int, err error) {
	contacts, entries, err := s.theirs(ctx, tx, shopID, who)
	if err != nil {
		return export, nil, err
	}
	rows, _ := tx.Query(ctx, `SELECT channel, address, created_at FROM contacts WHERE shop_id = $1 AND id = ANY ($2) ORDER BY id`, shopID, contacts)
	if export.Contacts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[ExportedContact]); err != nil {
		return export, nil, err
	}
	rows, _ = tx.Query(ctx, `
		SELECT v.product_title, v.title, c.address, coalesce(e.customer_id, 0), e.name, e.locale, e.country, e.currency, e.consent, e.zones, e.state, e.joined_at, e.ended_at,
		       coalesce((SELECT json_agg(json_build_object('state', h.state, 'since', h.claimed_at, 'until', h.expires_at, 'draft_order_id', h.draft_id, 'order_id', h.order_id) ORDER BY h.id)
		                 FROM holds h WHERE h.shop_id = $1 AND h.entry_id = e.id), '[]')
		FROM entries e JOIN contacts c ON c.shop_id = $1 AND c.id = e.contact_id JOIN variants v ON v.shop_id = $1 AND v.id = e.variant_id
		WHERE e.shop_id = $1 AND e.id = ANY ($2) ORDER BY e.id`, shopID, entries)
	if export.Places, err = pgx.CollectRows(rows, pgx.RowToStructByPos[ExportedPlace]); err != nil {
		return export, nil, err
	}
	rows, _ = tx.Query(ctx, `
		SELECT m.channel, c.address, m.state, m.created_at, m.accepted_at FROM messages m JOIN contacts c ON c.shop_id = $1 AND c.id = m.contact_id
		WHERE m.shop_id = $1 AND m.entry_id = ANY ($2) ORDER BY m.id`, shopID, entries)
	if export.Messages, err = pgx.CollectRows(rows, pgx.RowToStructByPos[ExportedMessage]); err != nil {
		return export, nil, err
	}
	rows, _ = tx.Query(ctx, `SELECT channel, reason, created_at FROM suppressions WHERE shop_id = $1 AND contact_hash = ANY ($2) ORDER BY id`, shopID, s.hashes(shopID, who))
	if export.OptOuts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[ExportedOptOut]); err != nil {
		return export, nil, err
	}
	return export, map[string]int{"contacts": len(export.Contacts), "places": len(export.Places), "messages": len(export.Messages), "opt-outs": len(export.OptOuts)}, nil
}

// redactCustomer erases a customer. Their live entries end first, and their holds are released, so that the
// draft orders that carry their name are deleted; it returns ErrLater until that is over, or *Away while
// Shopify refuses the shop. A hold that is paid meanwhile is sold, and its order is Shopify's to redact. A shop
// that has left cannot be called, and after a week nothing is waited for any more.
//
// What the books are recounted from stays: entries, offers, holds and messages, without anything that says
// whose they were. Opt-outs stay as keyed hashes: who asked never to be messaged is not messaged when they
// come again.
func (s *Service) redactCustomer(ctx context.Context, shopID int64, w received, p payload) error {
	who, err := s.personOf(ctx, shopID, p.Customer)
	if err != nil {
		return err
	}
	if err := s.recordRequest(ctx, shopID, w, 0, s.hashes(shopID, who)); err != nil {
		return err
	}
	err = s.untilSettled(ctx, "redact", func(tx pgx.Tx) error {
		_, entries, err := s.theirs(ctx, tx, shopID, who)
		if err != nil {
			return err
		}
		return s.end(ctx, tx, shopID, `SELECT id, state FROM entries WHERE shop_id = $1 AND id = ANY ($2) AND state IN ('waiting', 'offered', 'holding') ORDER BY id`, entries, Left, true)
	})
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		contacts, entries, err := s.theirs(ctx, tx, shopID, who)
		if err != nil {
			return err
		}
		if err := s.underWay(ctx, tx, shopID, w, entries); err != nil {
			return err
		}
		// Orders of theirs that were made from somebody else's hold.
		if _, err := tx.Exec(ctx, `UPDATE holds SET order_id = NULL WHERE shop_id = $1 AND order_id = ANY ($2)`, shopID, p.OrdersToRedact); err != nil {
			return err
		}
		counts, err := s.erase(ctx, tx, shopID, who, contacts, entries)
		if err != nil {
			return err
		}
		return s.answerRequest(ctx, tx, shopID, w, "erased", counts, nil)
	})
}

// underWay returns nil when nothing of these entries is live or being sent any more and no older webhook
// waits that may carry their customer, or when that is not waited for.
func (s *Service) underWay(ctx context.Context, tx pgx.Tx, shopID int64, w received, entries []int64) error {
	var live, sending, unread, installed bool
	var trouble string
	err := tx.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM entries WHERE shop_id = $1 AND id = ANY ($2) AND state IN ('waiting', 'offered', 'holding'))
		       OR EXISTS (SELECT FROM holds WHERE shop_id = $1 AND entry_id = ANY ($2) AND state IN ('securing', 'active', 'releasing')),
		       EXISTS (SELECT FROM messages WHERE shop_id = $1 AND entry_id = ANY ($2) AND state = 'sending'),
		       EXISTS (SELECT FROM webhooks WHERE shop_id = $1 AND done_at IS NULL AND id < $3 AND (topic LIKE 'orders/%' OR topic LIKE 'draft_orders/%')),
		       state = 'installed', coalesce(trouble, '')
		FROM shops WHERE id = $1`, shopID, entries, w.ID).Scan(&live, &sending, &unread, &installed, &trouble)
	switch {
	case err != nil:
		return err
	case sending: // what becomes of it may name the address; the sweep ends it within a minute
		return ErrLater
	case !live && !unread:
		return nil
	case installed && s.now().Before(w.ReceivedAt.Add(redactPatience)):
		if trouble != "" {
			return &Away{After: time.Minute, Since: w.ReceivedAt}
		}
		return ErrLater
	}
	s.log.WarnContext(ctx, "a customer is erased although something of theirs is still under way", "shop", shopID, "webhook", w.ID, "installed", installed)
	// What these would tell has been found by reconciling long since.
	_, err = tx.Exec(ctx, `UPDATE webhooks SET done_at = $3, body = '' WHERE shop_id = $1 AND done_at IS NULL AND id < $2 AND (topic LIKE 'orders/%' OR topic LIKE 'draft_orders/%')`, shopID, w.ID, s.now())
	return err
}

// erase erases what says who these entries and contacts belong to.
func (s *Service) erase(ctx context.Context, tx pgx.Tx, shopID int64, who person, contacts, entries []int64) (counts map[string]int, err error) {
	// Each contact's entries go to a row in its place that nobody can be reached by. One that has other
	// people's entries, too, keeps those.
	rows, _ := tx.Query(ctx, `
		SELECT c.id, c.channel, c.key, c.address FROM contacts c
		WHERE c.shop_id = $1 AND (c.id = ANY ($2) OR c.id IN (SELECT contact_id FROM entries WHERE shop_id = $1 AND id = ANY ($3))) ORDER BY c.id FOR UPDATE`, shopID, contacts, entries)
	type reached struct {
		ID int64
		Address
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r reached, err error) {
		return r, row.Scan(&r.ID, &r.Channel, &r.Key, &r.Send)
	})
	if err != nil {
		return nil, err
	}
	tag, err := tx.Exec(ctx, `UPDATE holds SET invoice_url = NULL, order_id = NULL WHERE shop_id = $1 AND entry_id = ANY ($2)`, shopID, entries)
	if err != nil {
		return nil, err
	}
	counts = map[string]int{"places": len(entries), "holds": int(tag.RowsAffected())}
	for _, c := range all {
		var stays int64
		err := tx.QueryRow(ctx, `
			INSERT INTO contacts (shop_id, channel, key, address, created_at) VALUES ($1, $2, 'erased ' || gen_random_uuid(), '', $3) RETURNING id`, shopID, c.Channel, s.now()).Scan(&stays)
		if err != nil {
			return nil, err
		}
		tag, err = tx.Exec(ctx, `
			WITH moved AS (
				UPDATE entries SET contact_id = $3, customer_id = NULL, name = '', locale = '', country = '', zones = '{}'
				WHERE shop_id = $1 AND contact_id = $2 AND id = ANY ($4) RETURNING id
			)
			UPDATE messages m SET contact_id = $3, provider_id = NULL, reason = NULL FROM moved WHERE m.shop_id = $1 AND m.entry_id = moved.id`, shopID, c.ID, stays, entries)
		if err != nil {
			return nil, err
		}
		counts["messages"] += int(tag.RowsAffected())
		tag, err = tx.Exec(ctx, `DELETE FROM contacts c WHERE shop_id = $1 AND id = $2 AND NOT EXISTS (SELECT FROM entries e WHERE e.shop_id = $1 AND e.contact_id = c.id)`, shopID, c.ID)
		if err != nil {
			return nil, err
		}
		if tag.RowsAffected() == 1 {
			counts["contacts"]++
			if !slices.ContainsFunc(who.Addresses, c.same) {
				who.Addresses = append(who.Addresses, c.Address)
			}
		}
	}
	return counts, s.eraseMentions(ctx, tx, shopID, who, counts)
}

// eraseMentions erases a person where they stand by their addresses alone: opt-outs keep the keyed hash,
// counted taps and demand lose it, what was exported of them is dropped, and a text that names an address goes.
func (s *Service) eraseMentions(ctx context.Context, tx pgx.Tx, shopID int64, who person, counts map[string]int) error {
	var taps, asked [][]byte
	var named []string
	for _, a := range who.Addresses {
		taps = append(taps, s.keys.Hashes(shopID, "tap", string(a.Channel)+" "+a.Key)...)
		asked = append(asked, s.keys.Hashes(shopID, "demand", string(a.Channel)+" "+a.Key)...)
		named = append(named, strings.ToLower(a.Key), strings.ToLower(a.Send))
	}
	hashes := s.hashes(shopID, who)
	tag, err := tx.Exec(ctx, `UPDATE suppressions SET address = NULL WHERE shop_id = $1 AND contact_hash = ANY ($2)`, shopID, hashes)
	if err != nil {
		return err
	}
	counts["opt-outs kept as a hash"] = int(tag.RowsAffected())
	for _, step := range []struct {
		sql string
		arg any
	}{
		{`DELETE FROM tap_limits WHERE shop_id = $1 AND key = ANY ($2)`, taps},
		{`DELETE FROM demand WHERE shop_id = $1 AND contact_hash = ANY ($2)`, asked},
		{`DELETE FROM demand WHERE shop_id = $1 AND EXISTS (SELECT FROM unnest($2::text[]) n WHERE strpos(lower(asked), n) > 0)`, named},
		{`DELETE FROM notes WHERE shop_id = $1 AND EXISTS (SELECT FROM unnest($2::text[]) n WHERE strpos(lower(subject || ' ' || detail), n) > 0)`, named},
		{`UPDATE messages SET reason = NULL WHERE shop_id = $1 AND EXISTS (SELECT FROM unnest($2::text[]) n WHERE strpos(lower(reason), n) > 0)`, named},
		{`UPDATE privacy_requests SET export = NULL WHERE shop_id = $1 AND export IS NOT NULL AND people && $2`, hashes},
		// A mail server's answer names whom it refuses, and a failed job keeps its error.
		{`UPDATE river_job SET errors = NULL WHERE (args->>'shop_id')::bigint = $1 AND errors IS NOT NULL AND EXISTS (SELECT FROM unnest($2::text[]) n WHERE strpos(lower(errors::text), n) > 0)`, named},
	} {
		if _, err := tx.Exec(ctx, step.sql, shopID, step.arg); err != nil {
			return err
		}
	}
	return nil
}

// erasedWithShop are the tables that shop/redact empties of a shop's rows, those that refer to others first.
// Opt-outs stay as keyed hashes, and so does the shop that keys them; what was asked and done stays, too.
func erasedWithShop() []string {
	return []string{"notes", "demand", "tap_limits", "webhooks", "messages", "holds", "offers", "restock_changes", "restocks", "entries", "contacts", "variants", "product_hints", "catalogues", "pauses", "senders", "inbound_texts", "wording", "settings"}
}

// redactShop erases a shop 48 hours after it has removed the app. One that has installed it again since then is
// not touched. The rows go in chunks, each under a lock of the shop's row that an installation takes, too, so that
// nothing of a new installation is erased.
func (s *Service) redactShop(ctx context.Context, shopID int64, w received) error {
	if err := s.recordRequest(ctx, shopID, w, 0, nil); err != nil {
		return err
	}
	gone := func(do func(tx pgx.Tx) error) (ok bool, err error) {
		err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
			err := tx.QueryRow(ctx, `SELECT state = 'uninstalled' AND installed_at <= $2 FROM shops WHERE id = $1 FOR UPDATE`, shopID, w.At).Scan(&ok)
			if err != nil || !ok {
				return err
			}
			return do(tx)
		})
		return ok, err
	}
	for _, table := range erasedWithShop() {
		for n := int64(eraseChunk); n == eraseChunk; {
			ok, err := gone(func(tx pgx.Tx) error {
				name := pgx.Identifier{table}.Sanitize()
				tag, err := tx.Exec(ctx, `DELETE FROM `+name+` WHERE shop_id = $1 AND ctid = ANY (ARRAY (SELECT ctid FROM `+name+` WHERE shop_id = $1 LIMIT $2))`, shopID, eraseChunk)
				if n = tag.RowsAffected(); err != nil {
					return err
				}
				_, err = tx.Exec(ctx, `
					UPDATE privacy_requests SET counts = counts || jsonb_build_object($4::text, coalesce((counts->>$4)::bigint, 0) + $5)
					WHERE shop_id = $1 AND topic = $2 AND webhook_id = $3 AND done_at IS NULL`, shopID, w.Topic, w.WebhookID, table, n)
				return err
			})
			if err != nil {
				return fmt.Errorf("erase %s: %w", table, err)
			}
			if !ok {
				return s.answerRequest(ctx, s.db, shopID, w, "kept", nil, nil)
			}
		}
	}
	ok, err := gone(func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE suppressions SET address = NULL WHERE shop_id = $1`, shopID)
		if err != nil {
			return err
		}
		counts := map[string]int{"opt-outs kept as a hash": int(tag.RowsAffected())}
		if _, err := tx.Exec(ctx, `UPDATE privacy_requests SET export = NULL WHERE shop_id = $1 AND export IS NOT NULL`, shopID); err != nil {
			return err
		}
		// This very job is running; it carries ids alone.
		if _, err := tx.Exec(ctx, `DELETE FROM river_job WHERE (args->>'shop_id')::bigint = $1 AND state <> 'running'`, shopID); err != nil {
			return err
		}
		if err := shop.Erase(ctx, tx, s.keys, shopID); err != nil {
			return err
		}
		return s.answerRequest(ctx, tx, shopID, w, "erased", counts, nil)
	})
	if err == nil && !ok {
		err = s.answerRequest(ctx, s.db, shopID, w, "kept", nil, nil)
	}
	return err
}

// unreadable records a privacy request that could not be understood: it must not look as if it had been
// answered.
func (s *Service) unreadable(ctx context.Context, shopID int64, w received) error {
	if err := s.recordRequest(ctx, shopID, w, 0, nil); err != nil {
		return err
	}
	return s.answerRequest(ctx, s.db, shopID, w, "unreadable", nil, nil)
}

// dropExports drops the answers to data requests whose time is over.
func (s *Service) dropExports(ctx context.Context, now time.Time) error {
	_, err := s.db.Exec(ctx, `UPDATE privacy_requests SET export = NULL WHERE export IS NOT NULL AND export_until <= $1`, now)
	return err
}

// PrivacyRow is a privacy request as the merchant sees it.
type PrivacyRow struct {
	ID          int64
	Topic       string // customers/data_request, customers/redact or shop/redact
	RequestID   *int64 // Shopify's id of a data request
	ReceivedAt  time.Time
	DoneAt      *time.Time
	Outcome     string         // exported, erased, kept (the shop was installed again) or unreadable; empty until it is done
	Counts      map[string]int // of what was exported or erased, by kind
	Readable    bool           // its export can still be read
	ExportUntil *time.Time
}

const privacyColumns = `id, topic, request_id, received_at, done_at, coalesce(outcome, ''), counts, export IS NOT NULL, export_until`

// PrivacyRequests lists a shop's privacy requests, newest first.
func (s *Service) PrivacyRequests(ctx context.Context, shopID, after int64) ([]PrivacyRow, error) {
	rows, _ := s.db.Query(ctx, `SELECT `+privacyColumns+` FROM privacy_requests WHERE shop_id = $1 AND ($2 = 0 OR id < $2) ORDER BY id DESC LIMIT $3`, shopID, after, PageSize)
	return collect[PrivacyRow](rows, "privacy requests")
}

// PrivacyExport returns a data request with what is stored of its customer, as values and as the JSON that
// the merchant hands on; ErrNotFound when there is no such request, or its export was dropped.
func (s *Service) PrivacyExport(ctx context.Context, shopID, id int64) (PrivacyRow, PersonExport, []byte, error) {
	var export PersonExport
	rows, _ := s.db.Query(ctx, `SELECT `+privacyColumns+` FROM privacy_requests WHERE shop_id = $1 AND id = $2 AND export IS NOT NULL`, shopID, id)
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[PrivacyRow])
	if errors.Is(err, pgx.ErrNoRows) {
		return row, export, nil, ErrNotFound
	}
	if err != nil {
		return row, export, nil, fmt.Errorf("privacy export: %w", err)
	}
	err = s.db.QueryRow(ctx, `SELECT export FROM privacy_requests WHERE shop_id = $1 AND id = $2 AND export IS NOT NULL`, shopID, id).Scan(&export)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, export, nil, ErrNotFound
	}
	if err != nil {
		return row, export, nil, fmt.Errorf("privacy export: %w", err)
	}
	text, err := json.MarshalIndent(export, "", "  ")
	if err != nil {
		return row, export, nil, fmt.Errorf("privacy export: %w", err)
	}
	return row, export, text, nil
}
