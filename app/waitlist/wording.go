package waitlist

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"holdfast/app/shop"
	"holdfast/app/words"
)

// languageOf is the language of a message: the shopper's, else the shop's, else English.
func languageOf(m Outgoing) *words.Language { return words.In(m.Locale, m.ShopLocale) }

// Wording returns a shop's own sentences of a language, by their keys in app/words.
func (s *Service) Wording(ctx context.Context, shopID int64, l *words.Language) (map[string]string, error) {
	return wordingOf(ctx, s.db, shopID, l)
}

func wordingOf(ctx context.Context, q shop.Querier, shopID int64, l *words.Language) (map[string]string, error) {
	own := map[string]string{}
	rows, _ := q.Query(ctx, `SELECT key, text FROM wording WHERE shop_id = $1 AND language = $2`, shopID, l.Code)
	var key, text string
	if _, err := pgx.ForEachRow(rows, []any{&key, &text}, func() error { own[key] = text; return nil }); err != nil {
		return nil, fmt.Errorf("wording: %w", err)
	}
	return own, nil
}

// SetWording replaces a shop's own sentences of a language; one that is empty or not given is ours again. It
// returns shop.Faults for sentences that cannot be sent, joined, and changes nothing then.
func (s *Service) SetWording(ctx context.Context, shopID int64, l *words.Language, own map[string]string) error {
	var faults []error
	for _, o := range words.Owned() {
		if why := o.Fault(own[o.Key]); why != "" {
			faults = append(faults, shop.Fault{Field: o.Key, Reason: why})
		}
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM wording WHERE shop_id = $1 AND language = $2`, shopID, l.Code); err != nil {
			return err
		}
		for _, o := range words.Owned() {
			if own[o.Key] == "" || own[o.Key] == l.Say(o.Key) {
				continue
			}
			_, err := tx.Exec(ctx, `INSERT INTO wording (shop_id, language, key, text) VALUES ($1, $2, $3, $4)`, shopID, l.Code, o.Key, own[o.Key])
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("set wording: %w", err)
	}
	return nil
}

// Suppressed says whether an address has opted out of a shop's messages: not even a test goes there.
func (s *Service) Suppressed(ctx context.Context, shopID int64, a Address) (is bool, err error) {
	err = s.db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM suppressions WHERE shop_id = $1 AND channel = $2 AND contact_hash = ANY ($3))`,
		shopID, a.Channel, s.keys.Hashes(shopID, string(a.Channel), a.Key)).Scan(&is)
	if err != nil {
		return false, fmt.Errorf("suppressed: %w", err)
	}
	return is, nil
}
