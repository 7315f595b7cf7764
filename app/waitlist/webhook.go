package waitlist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"holdfast/app/shop"
)

// TagOfAll is the tag of every draft order of ours; TagOf the tag of one hold's. Shopify allows 40
// characters.
const TagOfAll = "holdfast"

// TagOf is the tag of a hold's draft order.
func TagOf(holdID int64) string { return TagOfAll + "-" + strconv.FormatInt(holdID, 10) }

// HoldAttribute is the custom attribute of a draft order, and of the order that it becomes, which names its
// hold. Its value is signed: whoever buys may write any attribute on an order of their own.
const HoldAttribute = "_holdfast_hold"

// HoldOf finds by its tags which hold an order or draft order belongs to. It returns 0 when it is none of
// ours. Buyers cannot write tags.
func HoldOf(tags []string) int64 {
	for _, tag := range tags {
		rest, ours := strings.CutPrefix(strings.TrimSpace(tag), TagOfAll+"-")
		if id, err := strconv.ParseInt(rest, 10, 64); ours && err == nil && id > 0 {
			return id
		}
	}
	return 0
}

// Webhook is a delivery from Shopify whose signature was verified.
type Webhook struct {
	Topic     string // as in the header: inventory_levels/update
	WebhookID string // the same in every delivery of it
	EventID   string
	Triggered time.Time // when it happened, by Shopify's clock; zero when it did not say
	Body      []byte
}

// Receive stores a webhook once, by shop, topic and webhook id, and queues its work with it (promise 8). A
// repeated delivery changes nothing: fresh is false. One of an unknown topic is stored as done, without its body: that it came
// can be counted (UnknownTopics).
func (s *Service) Receive(ctx context.Context, shopID int64, w Webhook) (fresh bool, err error) {
	var triggered *time.Time
	if !w.Triggered.IsZero() {
		triggered = &w.Triggered
	}
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		var id int64
		known, now, body := KnownTopic(w.Topic), s.now(), w.Body
		var done *time.Time
		if !known {
			done, body = &now, []byte{}
		}
		err := tx.QueryRow(ctx, `
			INSERT INTO webhooks (shop_id, topic, webhook_id, event_id, body, received_at, triggered_at, done_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
			ON CONFLICT (shop_id, topic, webhook_id) DO NOTHING RETURNING id`, shopID, w.Topic, w.WebhookID, w.EventID, body, now, triggered, done).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		fresh = true
		if !known {
			s.log.WarnContext(ctx, "webhook of an unknown topic: nothing follows from it", "shop", shopID, "topic", w.Topic)
			return nil
		}
		if err := s.queue(ctx, tx, []river.InsertManyParams{{Args: WebhookJob{ShopID: shopID, WebhookID: id}}}); err != nil {
			return err
		}
		return s.point(ctx, "webhook_commit", "before")
	})
	if err != nil {
		return false, fmt.Errorf("receive %s: %w", w.Topic, err)
	}
	return fresh, s.point(ctx, "webhook_commit", "after")
}

// TopicCount is how many webhooks of a topic have come, and when the last one did.
type TopicCount struct {
	Topic string
	Count int
	Last  time.Time
}

// UnknownTopics counts a shop's webhooks of topics that the app does not know, most of all first.
func (s *Service) UnknownTopics(ctx context.Context, shopID int64) ([]TopicCount, error) {
	rows, _ := s.db.Query(ctx, `
		SELECT topic, count(*), max(received_at) FROM webhooks WHERE shop_id = $1 AND topic <> ALL ($2)
		GROUP BY topic ORDER BY count(*) DESC, topic LIMIT 100`, shopID, topics())
	return collect[TopicCount](rows, "unknown topics")
}

// payload is what is read of Shopify's payloads. A webhook is a hint that something changed; no quantity in
// it is believed, since retries carry old ones.
type payload struct {
	ID              int64        `json:"id"`
	InventoryItemID int64        `json:"inventory_item_id"`
	Status          string       `json:"status"`
	OrderID         int64        `json:"order_id"`
	Tags            string       `json:"tags"`
	Attributes      []attribute  `json:"note_attributes"`
	LineItems       []lineOfItem `json:"line_items"`
	Current         []string     `json:"current"` // scopes, of app/scopes_update

	// Of an order. What the app may not see of its customer is null or missing, whatever was asked for.
	Email        string `json:"email"`
	ContactEmail string `json:"contact_email"`
	Phone        string `json:"phone"`
	SourceName   string `json:"source_name"` // web: bought in the online store

	Customer       customer `json:"customer"`
	OrdersToRedact []int64  `json:"orders_to_redact"`
	DataRequest    struct {
		ID int64 `json:"id"`
	} `json:"data_request"`
}

// received is a stored webhook, without its body.
type received struct {
	ID         int64
	Topic      string
	WebhookID  string
	At         time.Time // when it happened, by Shopify's clock when it said so
	ReceivedAt time.Time
}

type attribute struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

type lineOfItem struct {
	VariantID int64 `json:"variant_id"` // 0 for a line of no variant
	Quantity  int   `json:"quantity"`
}

// variants are those of an order's lines.
func (p payload) variants() (ids []int64) {
	for _, line := range p.LineItems {
		if line.VariantID != 0 && !slices.Contains(ids, line.VariantID) {
			ids = append(ids, line.VariantID)
		}
	}
	return ids
}

// topics are all that the app subscribes to.
func topics() []string {
	return []string{
		"inventory_levels/update", "inventory_items/update", "products/create", "products/update", "products/delete",
		"draft_orders/create", "draft_orders/update", "draft_orders/delete", "orders/create", "orders/cancelled",
		"shop/update", "app/uninstalled", "app/scopes_update", "customers/data_request", "customers/redact", "shop/redact",
	}
}

// KnownTopic says whether anything may follow from webhooks of a topic. One that is not known comes of a
// subscription that somebody has added; it is kept and counted, and nothing is done.
func KnownTopic(topic string) bool { return slices.Contains(topics(), topic) }

// holdOf is the hold of an order or draft order: by its signed attribute, else by its tag; 0 for none.
func (s *Service) holdOf(p payload) int64 {
	for _, a := range p.Attributes {
		if a.Name == HoldAttribute {
			if id, err := s.keys.ParseToken(shop.HoldMark, fmt.Sprint(a.Value)); err == nil {
				return id
			}
		}
	}
	return HoldOf(strings.Split(p.Tags, ","))
}

// HandleWebhook does the work of a stored webhook and marks it done. It may be run again: each of its steps
// changes nothing the second time. A topic that nothing follows from is done at once.
//
// What is kept of a webhook that is done is that it came, so that a repeat is known: its body goes, since it
// may carry people's data and nothing reads it again.
func (s *Service) HandleWebhook(ctx context.Context, shopID, webhookID int64) error {
	w := received{ID: webhookID}
	var body []byte
	err := s.db.QueryRow(ctx, `
		SELECT topic, webhook_id, body, coalesce(triggered_at, received_at), received_at FROM webhooks
		WHERE shop_id = $1 AND id = $2 AND done_at IS NULL`, shopID, webhookID).Scan(&w.Topic, &w.WebhookID, &body, &w.At, &w.ReceivedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("webhook %d: %w", webhookID, err)
	}
	var p payload
	if err = json.Unmarshal(body, &p); err != nil {
		s.log.ErrorContext(ctx, "webhook has a body that is no JSON of its topic; it is put away", "shop", shopID, "topic", w.Topic, "webhook", webhookID, "err", err)
		if err = nil; isPrivacy(w.Topic) {
			err = s.unreadable(ctx, shopID, w)
		}
	} else {
		err = s.follow(ctx, shopID, w, p)
	}
	if err != nil {
		return fmt.Errorf("webhook %d, %s: %w", webhookID, w.Topic, s.shopifyTrouble(ctx, shopID, err))
	}
	if _, err := s.db.Exec(ctx, `UPDATE webhooks SET done_at = $3, body = '' WHERE shop_id = $1 AND id = $2 AND done_at IS NULL`, shopID, webhookID, s.now()); err != nil {
		return fmt.Errorf("webhook %d: %w", webhookID, err)
	}
	return nil
}

// follow does what follows from a webhook.
func (s *Service) follow(ctx context.Context, shopID int64, w received, p payload) error {
	switch w.Topic {
	case "inventory_levels/update":
		return s.hintWhere(ctx, shopID, `inventory_item_id = $2`, p.InventoryItemID)
	case "inventory_items/update":
		return s.hintWhere(ctx, shopID, `inventory_item_id = $2`, p.ID)
	case "products/create", "products/update", "products/delete":
		return s.productChanged(ctx, shopID, p.ID)
	case "draft_orders/create":
		id := s.holdOf(p)
		if id == 0 {
			return nil
		}
		h, err := s.loadHold(ctx, shopID, id)
		if errors.Is(err, ErrNotFound) || (err == nil && h.DraftID != nil && h.owns(p.ID)) {
			return nil
		}
		if err != nil {
			return err
		}
		d, there, err := s.shopify.ReadDraft(ctx, shopID, p.ID)
		if err != nil || !there {
			return err
		}
		if h.owns(d.ID) {
			// The answer to its create may have been lost, and the index may not show it yet: it is the
			// hold's from now on, or a second one would be created.
			return s.takeDraft(ctx, shopID, h.ID, d)
		}
		return s.reconcileDraft(ctx, shopID, d)
	case "draft_orders/update":
		return s.draftUpdated(ctx, shopID, p)
	case "draft_orders/delete":
		return s.draftGone(ctx, shopID, p.ID)
	case "orders/create":
		own, err := s.orderCreated(ctx, shopID, p)
		if err != nil {
			return err
		}
		return s.skipBuyer(ctx, shopID, w, p, own)
	case "orders/cancelled":
		return s.orderCancelled(ctx, shopID, w, p)
	case "shop/update":
		return s.shopUpdated(ctx, shopID)
	case "app/uninstalled":
		return shop.Uninstall(ctx, s.db, shopID, w.At)
	case "app/scopes_update":
		return shop.RecordScopes(ctx, s.db, shopID, p.Current, w.At)
	case "customers/data_request":
		return s.exportCustomer(ctx, shopID, w, p)
	case "customers/redact":
		return s.redactCustomer(ctx, shopID, w, p)
	case "shop/redact":
		return s.redactShop(ctx, shopID, w)
	}
	return nil
}

func isPrivacy(topic string) bool {
	return topic == "customers/data_request" || topic == "customers/redact" || topic == "shop/redact"
}

// shopUpdated reads what a shop says of itself and keeps it: its name and prices' currency are shown, and its
// country understands phone numbers.
func (s *Service) shopUpdated(ctx context.Context, shopID int64) error {
	var installed bool
	err := s.db.QueryRow(ctx, `SELECT state = 'installed' FROM shops WHERE id = $1`, shopID).Scan(&installed)
	if err != nil || !installed {
		return err // one that has left cannot be read, and is read when it comes back
	}
	p, err := s.shopify.Profile(ctx, shopID)
	if err != nil {
		return err
	}
	return shop.UpdateProfile(ctx, s.db, shopID, p)
}

// draftUpdated marks a hold sold whose draft is completed: it was paid, or the merchant marked it as paid. A
// draft that the merchant has edited so that it is no longer for the one unit that is held is a note for them;
// what Shopify then has is found by the observe that follows.
func (s *Service) draftUpdated(ctx context.Context, shopID int64, p payload) error {
	var hold, variantID int64
	var live bool
	err := s.db.QueryRow(ctx, `
		SELECT id, variant_id, state IN ('securing', 'active') FROM holds WHERE shop_id = $1 AND draft_id = $2`, shopID, p.ID).Scan(&hold, &variantID, &live)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // a draft that no hold took is reconcile's
	}
	if err != nil {
		return err
	}
	if p.Status == "completed" {
		return s.MarkSold(ctx, shopID, hold, p.OrderID)
	}
	if !live || p.LineItems == nil || (len(p.LineItems) == 1 && p.LineItems[0].VariantID == variantID && p.LineItems[0].Quantity == 1) {
		return nil
	}
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if err := s.note(ctx, tx, shopID, "draft_edited", fmt.Sprintf("draft %d", p.ID),
			"A draft order that holds one unit for a shopper was edited, and is no longer for that one unit. Their link leads to what it says now. Release the hold if they should not have it."); err != nil {
			return err
		}
		return s.hint(ctx, tx, shopID, append(p.variants(), variantID)...)
	})
}

// orderCreated marks a hold sold by its order: one that carries the hold's attribute or tag and its
// variant, and whose draft is completed or gone. Anybody can write an attribute; only Shopify completes a
// draft. It returns the hold's entry, or 0 when the order is of no hold.
func (s *Service) orderCreated(ctx context.Context, shopID int64, p payload) (entry int64, err error) {
	id := s.holdOf(p)
	if id == 0 {
		return 0, nil
	}
	h, err := s.loadHold(ctx, shopID, id)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if !slices.Contains(p.variants(), h.VariantID) || h.DraftID == nil {
		return 0, nil
	}
	d, there, err := s.shopify.ReadDraft(ctx, shopID, *h.DraftID)
	if err != nil {
		return 0, err
	}
	if there && !d.Completed {
		return h.EntryID, nil
	}
	return h.EntryID, s.MarkSold(ctx, shopID, id, p.ID)
}

// orderCancelled marks the hold that became an order, and looks for its units: they may be on sale again. The
// webhook of the order's creation may come later than this one, or never.
func (s *Service) orderCancelled(ctx context.Context, shopID int64, w received, p payload) error {
	if _, err := s.orderCreated(ctx, shopID, p); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			UPDATE holds SET cancelled_at = $4, order_id = $2
			WHERE shop_id = $1 AND (order_id = $2 OR (id = $3 AND order_id IS NULL)) AND (state = 'sold' OR paid_late_at IS NOT NULL) AND cancelled_at IS NULL`,
			shopID, p.ID, s.holdOf(p), w.At)
		if err != nil {
			return err
		}
		return s.hint(ctx, tx, shopID, p.variants()...)
	})
}

// skipBuyer takes whoever bought a variant the ordinary way out of its queue, unless the merchant has set that
// they stay: who has one need not be told that it is back. They are recognised by the order's customer and
// addresses, and what they joined after they had bought stays. own is the entry whose hold the order is of, which
// is settled by its hold.
//
// An app that Shopify has not approved for protected customer data gets orders without their customers. An order
// of the online store has an address at least, so that one without any says that this is so: the merchant is
// told.
func (s *Service) skipBuyer(ctx context.Context, shopID int64, w received, p payload, own int64) error {
	hidden := p.Email == "" && p.ContactEmail == "" && p.Phone == "" && p.Customer == (customer{})
	if hidden && p.SourceName != "web" {
		return nil // sold over a counter, to nobody in particular
	}
	if err := shop.HideCustomers(ctx, s.db, shopID, hidden, w.At); err != nil || hidden {
		return err
	}
	set, err := shop.LoadSettings(ctx, s.db, shopID)
	if errors.Is(err, shop.ErrNotFound) || (err == nil && !set.SkipBuyers) {
		return nil
	}
	if err != nil {
		return err
	}
	who, err := s.personOf(ctx, shopID, p.Customer, customer{Email: p.Email, Phone: p.Phone}, customer{Email: p.ContactEmail})
	if err != nil {
		return err
	}
	channels, keys := who.channels()
	return s.untilSettled(ctx, "skip buyer", func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `
			SELECT e.id FROM entries e JOIN contacts c ON c.shop_id = $1 AND c.id = e.contact_id
			WHERE e.shop_id = $1 AND e.variant_id = ANY ($2) AND e.state IN ('waiting', 'offered', 'holding') AND e.id <> $3 AND e.joined_at <= $4
			  AND (e.customer_id = nullif($5::bigint, 0) OR EXISTS (SELECT FROM unnest($6::text[], $7::text[]) a(channel, key) WHERE a.channel = c.channel AND a.key = c.key))
			ORDER BY e.id`, shopID, p.variants(), own, w.At, who.CustomerID, channels, keys)
		entries, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(entries) == 0 {
			return err
		}
		// In the order of locks: holds, offers, entries.
		if err := s.startRelease(ctx, tx, shopID, `entry_id = ANY ($4)`, entries, "released", false); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE offers SET state = 'withdrawn', ended_at = $3 WHERE shop_id = $1 AND entry_id = ANY ($2) AND state = 'open' AND NOT reserved`, shopID, entries, s.now()); err != nil {
			return err
		}
		if err := s.end(ctx, tx, shopID, `SELECT id, state FROM entries WHERE shop_id = $1 AND id = ANY ($2) AND state IN ('waiting', 'offered', 'holding') ORDER BY id`, entries, Left, false); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE entries SET reason = 'bought' WHERE shop_id = $1 AND id = ANY ($2) AND state = 'left'`, shopID, entries)
		return err
	})
}

// productChanged has a product read again, and the stock of its variants that anybody ever waited for.
func (s *Service) productChanged(ctx context.Context, shopID, productID int64) error {
	if productID <= 0 {
		return nil // no product has such an id
	}
	if err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error { return s.hintProduct(ctx, tx, shopID, productID) }); err != nil {
		return err
	}
	return s.hintWhere(ctx, shopID, `product_id = $2`, productID)
}

// hintWhere hints every variant that a condition over variants names ($1 shop, $2 id), of those that anybody
// ever waited for.
func (s *Service) hintWhere(ctx context.Context, shopID int64, where string, id int64) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `SELECT id FROM variants WHERE shop_id = $1 AND observed_at IS NOT NULL AND `+where, shopID, id)
		variants, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		return s.hint(ctx, tx, shopID, variants...)
	})
}
