package waitlist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
// repeated delivery changes nothing.
func (s *Service) Receive(ctx context.Context, shopID int64, w Webhook) error {
	var triggered *time.Time
	if !w.Triggered.IsZero() {
		triggered = &w.Triggered
	}
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		var id int64
		err := tx.QueryRow(ctx, `
			INSERT INTO webhooks (shop_id, topic, webhook_id, event_id, body, received_at, triggered_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (shop_id, topic, webhook_id) DO NOTHING RETURNING id`, shopID, w.Topic, w.WebhookID, w.EventID, w.Body, s.now(), triggered).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.queue(ctx, tx, []river.InsertManyParams{{Args: WebhookJob{ShopID: shopID, WebhookID: id}}}); err != nil {
			return err
		}
		return s.point(ctx, "webhook_commit", "before")
	})
	if err != nil {
		return fmt.Errorf("receive %s: %w", w.Topic, err)
	}
	return s.point(ctx, "webhook_commit", "after")
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
	VariantID int64 `json:"variant_id"`
}

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
		return s.hintWhere(ctx, shopID, `product_id = $2`, p.ID)
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
		if p.Status != "completed" {
			return nil
		}
		var hold int64
		err := s.db.QueryRow(ctx, `SELECT id FROM holds WHERE shop_id = $1 AND draft_id = $2`, shopID, p.ID).Scan(&hold)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // a draft that no hold took is reconcile's
		}
		if err != nil {
			return err
		}
		return s.MarkSold(ctx, shopID, hold, p.OrderID)
	case "draft_orders/delete":
		return s.draftGone(ctx, shopID, p.ID)
	case "orders/create":
		return s.orderCreated(ctx, shopID, p)
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

// orderCreated marks a hold sold by its order: one that carries the hold's attribute or tag and its
// variant, and whose draft is completed or gone. Anybody can write an attribute; only Shopify completes a
// draft.
func (s *Service) orderCreated(ctx context.Context, shopID int64, p payload) error {
	id := s.holdOf(p)
	if id == 0 {
		return nil
	}
	h, err := s.loadHold(ctx, shopID, id)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	holds := false
	for _, line := range p.LineItems {
		holds = holds || line.VariantID == h.VariantID
	}
	if !holds || h.DraftID == nil {
		return nil
	}
	d, there, err := s.shopify.ReadDraft(ctx, shopID, *h.DraftID)
	if err != nil {
		return err
	}
	if there && !d.Completed {
		return nil
	}
	return s.MarkSold(ctx, shopID, id, p.ID)
}

// hintWhere hints every variant that a condition over variants names ($1 shop, $2 id).
func (s *Service) hintWhere(ctx context.Context, shopID int64, where string, id int64) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `SELECT id FROM variants WHERE shop_id = $1 AND `+where, shopID, id)
		variants, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		return s.hint(ctx, tx, shopID, variants...)
	})
}
