package waitlist

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"holdfast/app/shop"
)

// Optout is what the unsubscribe page shows.
type Optout struct {
	ShopID       int64
	ShopName     string
	Channel      Channel
	Contact      string // masked, for people to read
	Unsubscribed bool   // the row says so
	Locale       string // of the shopper, BCP 47; may be empty
	ShopLocale   string
}

// Contact shows whom an unsubscribe link is for, or returns ErrInvalidLink. It changes nothing.
func (s *Service) Contact(ctx context.Context, token string) (Optout, error) {
	o, _, err := s.contact(ctx, token)
	return o, err
}

func (s *Service) contact(ctx context.Context, token string) (Optout, Address, error) {
	var o Optout
	var a Address
	id, err := s.keys.ParseToken(shop.Unsubscribe, token)
	if err != nil {
		return o, a, err
	}
	err = s.db.QueryRow(ctx, `
		SELECT s.id, s.name, c.channel, c.key, c.address,
		       coalesce((SELECT e.locale FROM entries e WHERE e.shop_id = c.shop_id AND e.contact_id = c.id ORDER BY e.id DESC LIMIT 1), ''), s.locale
		FROM contacts c JOIN shops s ON s.id = c.shop_id WHERE c.id = $1`, id).Scan(&o.ShopID, &o.ShopName, &a.Channel, &a.Key, &a.Send, &o.Locale, &o.ShopLocale)
	if errors.Is(err, pgx.ErrNoRows) {
		return o, a, ErrInvalidLink
	}
	if err != nil {
		return o, a, fmt.Errorf("contact: %w", err)
	}
	o.Channel, o.Contact = a.Channel, Mask(a.Channel, a.Send)
	err = s.db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM suppressions WHERE shop_id = $1 AND channel = $2 AND contact_hash = ANY ($3))`,
		o.ShopID, a.Channel, s.keys.Hashes(o.ShopID, string(a.Channel), a.Key)).Scan(&o.Unsubscribed)
	if err != nil {
		return o, a, fmt.Errorf("contact: %w", err)
	}
	return o, a, nil
}

// Unsubscribe suppresses the contact of an unsubscribe link and ends its live entries. Doing it again
// changes nothing.
func (s *Service) Unsubscribe(ctx context.Context, token string) error {
	o, address, err := s.contact(ctx, token)
	if err != nil {
		return err
	}
	return s.suppress(ctx, o.ShopID, address, Unsubscribed)
}

// Suppress writes that a contact is never to be messaged by a shop (promise 6), and ends its live entries
// with their open offers and live holds. The first reason stays. It returns *Invalid for an address that
// cannot be understood; phones need their country code.
func (s *Service) Suppress(ctx context.Context, shopID int64, channel Channel, typed, reason string) error {
	address, err := ParseAddress(channel, typed, "")
	if err != nil {
		return err
	}
	return s.suppress(ctx, shopID, address, reason)
}

func (s *Service) suppress(ctx context.Context, shopID int64, a Address, reason string) error {
	return s.untilSettled(ctx, "suppress", func(tx pgx.Tx) error { return s.suppressIn(ctx, tx, shopID, a, reason) })
}

// suppressIn is suppress inside the caller's transaction.
func (s *Service) suppressIn(ctx context.Context, tx pgx.Tx, shopID int64, a Address, reason string) error {
	now := s.now()
	var contact int64
	err := tx.QueryRow(ctx, `
		INSERT INTO contacts AS c (shop_id, channel, key, address, created_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (shop_id, channel, key) DO UPDATE SET channel = c.channel RETURNING id`,
		shopID, a.Channel, a.Key, a.Send, now).Scan(&contact)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO suppressions (shop_id, channel, contact_hash, reason, address, created_at)
		SELECT $1, $2, $3, $4, $5, $6 WHERE NOT EXISTS (SELECT FROM suppressions WHERE shop_id = $1 AND channel = $2 AND contact_hash = ANY ($7))
		ON CONFLICT DO NOTHING`, shopID, a.Channel, s.keys.Hash(shopID, string(a.Channel), a.Key), reason, a.Send, now, s.keys.Hashes(shopID, string(a.Channel), a.Key))
	if err != nil {
		return err
	}
	return s.endContact(ctx, tx, shopID, contact)
}

// endContact ends the live entries of a suppressed contact.
func (s *Service) endContact(ctx context.Context, tx pgx.Tx, shopID, contactID int64) error {
	return s.end(ctx, tx, shopID, `SELECT id, state FROM entries WHERE shop_id = $1 AND contact_id = $2 AND state IN ('waiting', 'offered', 'holding') ORDER BY id`, contactID, Suppressed, true)
}

// Lift takes back a suppression that the merchant put there. It returns ErrNotFound for any other: what
// a shopper asked for is not the merchant's to undo.
func (s *Service) Lift(ctx context.Context, shopID, suppressionID int64) error {
	tag, err := s.db.Exec(ctx, `DELETE FROM suppressions WHERE shop_id = $1 AND id = $2 AND reason = 'merchant'`, shopID, suppressionID)
	if err != nil {
		return fmt.Errorf("lift: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return ErrNotFound
	}
	return nil
}

// InboundText works a text that a shopper sent: STOP in any of its forms suppresses the phone, START
// lifts a STOP of the same phone at the same shop, anything else is ignored. It returns "stop", "start"
// or "". A text is known by the provider's id: one that comes again, however much later, changes nothing.
func (s *Service) InboundText(ctx context.Context, shopID int64, id, from, body, optOutType string) (string, error) {
	kind := ClassifyReply(body, optOutType)
	if kind == "" {
		return "", nil
	}
	a, err := ParseAddress(SMS, from, "")
	if err != nil {
		return kind, err
	}
	return kind, s.untilSettled(ctx, "inbound text", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `INSERT INTO inbound_texts (shop_id, sid, received_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, shopID, id, s.now())
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		if kind == "stop" {
			return s.suppressIn(ctx, tx, shopID, a, Stop)
		}
		_, err = tx.Exec(ctx, `DELETE FROM suppressions WHERE shop_id = $1 AND channel = 'sms' AND contact_hash = ANY ($2) AND reason = 'stop'`,
			shopID, s.keys.Hashes(shopID, string(SMS), a.Key))
		return err
	})
}
