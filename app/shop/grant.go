package shop

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Grant is what a shop lets the app act for it with: an access token and, unless that never expires, the
// token that renews both. Renewing replaces the pair (Shopify rotates its refresh tokens), so the two are
// always stored together.
type Grant struct {
	Token   string
	Expires time.Time // of Token; zero: it does not expire
	Refresh string    // empty: Token does not expire
	Scopes  string    // granted, joined by commas as Shopify writes them; empty = not known
	Refused bool      // Shopify has refused Token, and to renew it: the merchant must open the app again

	sealed []byte // Token as it is stored: tells this grant from those before and after it
}

// Profile is what a shop says of itself when it installs the app.
type Profile struct {
	Domain, Name string
	Currency     string // ISO 4217
	Country      string // ISO 3166, upper case
	Locale       string
}

const (
	sealedToken   = "shopify token"
	sealedRefresh = "shopify refresh token"
)

// Execer is a pool or a transaction.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// InstallGrant creates the shop or, when it was here before, installs it again, at the time now: profile
// and grant are replaced, settings and queue are kept. The next sweep has its catalogue read, and its draft orders
// listed, so that those are deleted which the former installation has left. It returns the shop's id.
func (s *Store) InstallGrant(ctx context.Context, p Profile, g Grant, now time.Time) (int64, error) {
	if !ValidDomain(p.Domain) {
		return 0, fmt.Errorf("install: %q is not a shop domain", p.Domain)
	}
	if g.Token == "" {
		return 0, fmt.Errorf("install %s: the access token is empty", p.Domain)
	}
	var id int64
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE shops SET domain = $1 WHERE domain = ANY ($2)`, p.Domain, erasedDomains(s.keys, p.Domain)); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `
			INSERT INTO shops (domain, name, currency, country, locale) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (domain) DO UPDATE SET name = $2, currency = $3, country = $4, locale = $5
			RETURNING id`, p.Domain, p.Name, p.Currency, p.Country, p.Locale).Scan(&id)
		if err != nil {
			return err
		}
		token, refresh, expires := s.seal(id, g)
		if _, err := tx.Exec(ctx, `
			UPDATE shops SET state = 'installed', trouble = NULL, sealed_token = $2, sealed_refresh = $3, token_expires_at = $4,
			       refreshing_until = NULL, token_refused_at = NULL, scopes = $5, scopes_at = $6, installed_at = $6, reconcile_at = '-infinity', reconciled_at = NULL,
			       reconciling_since = NULL, reconcile_cursor = ''
			WHERE id = $1`, id, token, refresh, expires, g.Scopes, now); err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, `INSERT INTO catalogues (shop_id) VALUES ($1) ON CONFLICT (shop_id) DO UPDATE SET due_at = '-infinity', operation = NULL, asked_at = NULL`, id); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO settings (shop_id) VALUES ($1) ON CONFLICT DO NOTHING`, id)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("install %s: %w", p.Domain, err)
	}
	return id, nil
}

// seal returns the columns of a grant.
func (s *Store) seal(shopID int64, g Grant) (token, refresh []byte, expires *time.Time) {
	token = s.keys.Seal(shopID, sealedToken, []byte(g.Token))
	if g.Refresh != "" {
		refresh, expires = s.keys.Seal(shopID, sealedRefresh, []byte(g.Refresh)), &g.Expires
	}
	return token, refresh, expires
}

// Grant returns what an installed shop has granted, expired or not, or ErrNotFound when it has granted
// nothing or the app is not installed any more.
func (s *Store) Grant(ctx context.Context, shopID int64) (Grant, error) {
	var g Grant
	var refresh []byte
	var expires *time.Time
	err := s.db.QueryRow(ctx, `
		SELECT sealed_token, sealed_refresh, token_expires_at, scopes, token_refused_at IS NOT NULL
		FROM shops WHERE id = $1 AND state = 'installed' AND sealed_token IS NOT NULL`, shopID).Scan(&g.sealed, &refresh, &expires, &g.Scopes, &g.Refused)
	if errors.Is(err, pgx.ErrNoRows) {
		return Grant{}, ErrNotFound
	}
	if err != nil {
		return Grant{}, fmt.Errorf("read the grant of shop %d: %w", shopID, err)
	}
	token, err := s.keys.Open(shopID, sealedToken, g.sealed)
	if err != nil {
		return Grant{}, fmt.Errorf("read the access token of shop %d: %w", shopID, err)
	}
	g.Token = string(token)
	if refresh == nil {
		return g, nil
	}
	renews, err := s.keys.Open(shopID, sealedRefresh, refresh)
	if err != nil {
		return Grant{}, fmt.Errorf("read the refresh token of shop %d: %w", shopID, err)
	}
	g.Refresh, g.Expires = string(renews), *expires
	return g, nil
}

// ClaimRefresh claims to renew a grant, from now until the given time, after which anybody may claim it
// again: of many processes that try, one gets true. It is false, too, when the shop has another grant by
// now. The claim is named by its end; until must lie in whole microseconds.
func (s *Store) ClaimRefresh(ctx context.Context, shopID int64, g Grant, now, until time.Time) (bool, error) {
	tag, err := s.db.Exec(ctx, `
		UPDATE shops SET refreshing_until = $4
		WHERE id = $1 AND state = 'installed' AND sealed_token = $2 AND sealed_refresh IS NOT NULL AND (refreshing_until IS NULL OR refreshing_until <= $3)`,
		shopID, g.sealed, now, until)
	if err != nil {
		return false, fmt.Errorf("claim to renew the grant of shop %d: %w", shopID, err)
	}
	return tag.RowsAffected() == 1, nil
}

// Renew stores the new pair and ends the claim, in one statement, if the claim until that time still
// stands. It is false when it does not: somebody else has claimed, the shop was installed anew or has
// left; then nothing was stored.
func (s *Store) Renew(ctx context.Context, shopID int64, until time.Time, g Grant, now time.Time) (bool, error) {
	token, refresh, expires := s.seal(shopID, g)
	tag, err := s.db.Exec(ctx, `
		UPDATE shops SET sealed_token = $3, sealed_refresh = $4, token_expires_at = $5, refreshing_until = NULL, token_refused_at = NULL,
		       scopes = CASE WHEN $6 = '' THEN scopes ELSE $6 END, scopes_at = CASE WHEN $6 = '' THEN scopes_at ELSE greatest(scopes_at, $7) END
		WHERE id = $1 AND state = 'installed' AND refreshing_until = $2`, shopID, until, token, refresh, expires, g.Scopes, now)
	if err != nil {
		return false, fmt.Errorf("renew the grant of shop %d: %w", shopID, err)
	}
	return tag.RowsAffected() == 1, nil
}

// Unclaim gives up the claim until that time, so that the next one who needs the grant may try.
func (s *Store) Unclaim(ctx context.Context, shopID int64, until time.Time) error {
	if _, err := s.db.Exec(ctx, `UPDATE shops SET refreshing_until = NULL WHERE id = $1 AND refreshing_until = $2`, shopID, until); err != nil {
		return fmt.Errorf("give up renewing the grant of shop %d: %w", shopID, err)
	}
	return nil
}

// RefuseGrant records that Shopify refuses a grant, if it is still the shop's, and ends a claim on it: the
// merchant is asked to open the app again.
func (s *Store) RefuseGrant(ctx context.Context, shopID int64, g Grant, now time.Time) error {
	_, err := s.db.Exec(ctx, `
		UPDATE shops SET token_refused_at = $3, refreshing_until = NULL
		WHERE id = $1 AND sealed_token = $2 AND token_refused_at IS NULL`, shopID, g.sealed, now)
	if err != nil {
		return fmt.Errorf("record that the grant of shop %d is refused: %w", shopID, err)
	}
	return nil
}

// AcceptGrant records that Shopify accepts a grant after all.
func (s *Store) AcceptGrant(ctx context.Context, shopID int64, g Grant) error {
	_, err := s.db.Exec(ctx, `UPDATE shops SET token_refused_at = NULL WHERE id = $1 AND sealed_token = $2 AND token_refused_at IS NOT NULL`, shopID, g.sealed)
	if err != nil {
		return fmt.Errorf("record that the grant of shop %d is accepted: %w", shopID, err)
	}
	return nil
}

// Uninstall records that the app was removed from a shop at a time, which is Shopify's: its tokens are
// dropped, its queue and its settings are kept. An installation that is younger than at is not touched:
// Shopify's webhook may have taken longer than the merchant.
func Uninstall(ctx context.Context, db Execer, shopID int64, at time.Time) error {
	_, err := db.Exec(ctx, `
		UPDATE shops SET state = 'uninstalled', sealed_token = NULL, sealed_refresh = NULL, token_expires_at = NULL,
		       refreshing_until = NULL, token_refused_at = NULL, scopes = '', trouble = NULL
		WHERE id = $1 AND state = 'installed' AND installed_at <= $2`, shopID, at)
	if err != nil {
		return fmt.Errorf("uninstall shop %d: %w", shopID, err)
	}
	return nil
}

// Erase erases what is stored of a shop itself, once it has removed the app and all that it had is gone. What
// stays is its row, which keys the opt-outs, with a keyed hash of its domain: when the same shop installs the
// app again, whoever has opted out of its messages still has.
func Erase(ctx context.Context, tx pgx.Tx, keys *Keys, shopID int64) error {
	var domain string
	if err := tx.QueryRow(ctx, `SELECT domain FROM shops WHERE id = $1 AND state = 'uninstalled' FOR UPDATE`, shopID).Scan(&domain); err != nil {
		return fmt.Errorf("erase shop %d: %w", shopID, err)
	}
	_, err := tx.Exec(ctx, `
		UPDATE shops SET domain = $2, name = '', currency = DEFAULT, country = DEFAULT, locale = DEFAULT, sealed_twilio = NULL, twilio_key = NULL,
		       trouble = NULL, scopes = '', customers_hidden_at = NULL
		WHERE id = $1 AND state = 'uninstalled'`, shopID, erasedDomains(keys, domain)[0])
	if err != nil {
		return fmt.Errorf("erase shop %d: %w", shopID, err)
	}
	return nil
}

// erasedDomains is what stands for the domain of a shop that was erased, by every configured key, the first
// key's first. It is
// a name of 47 characters that nobody can aim at: the hash is keyed.
func erasedDomains(keys *Keys, domain string) []string {
	var all []string
	for _, h := range keys.Hashes(0, "shop domain", domain) {
		all = append(all, "erased-"+hex.EncodeToString(h)[:40]+".myshopify.com")
	}
	return all
}

// UpdateProfile keeps what an installed shop says of itself now. Its domain is its name here and does not change.
func UpdateProfile(ctx context.Context, db Execer, shopID int64, p Profile) error {
	_, err := db.Exec(ctx, `UPDATE shops SET name = $2, currency = $3, country = $4, locale = $5 WHERE id = $1 AND state = 'installed'`,
		shopID, p.Name, p.Currency, p.Country, p.Locale)
	if err != nil {
		return fmt.Errorf("update the profile of shop %d: %w", shopID, err)
	}
	return nil
}

// HideCustomers records whether Shopify shows the app who buys, by an order that came at a time.
func HideCustomers(ctx context.Context, db Execer, shopID int64, hidden bool, at time.Time) error {
	_, err := db.Exec(ctx, `
		UPDATE shops SET customers_hidden_at = CASE WHEN $2 THEN $3::timestamptz END
		WHERE id = $1 AND (customers_hidden_at IS NOT NULL) <> $2`, shopID, hidden, at)
	if err != nil {
		return fmt.Errorf("record whether shop %d shows its customers: %w", shopID, err)
	}
	return nil
}

// RecordScopes records which scopes an installed shop grants since a time. What is older than what is known
// is not recorded.
func RecordScopes(ctx context.Context, db Execer, shopID int64, scopes []string, at time.Time) error {
	_, err := db.Exec(ctx, `UPDATE shops SET scopes = $2, scopes_at = $3 WHERE id = $1 AND state = 'installed' AND scopes_at <= $3`,
		shopID, strings.Join(scopes, ","), at)
	if err != nil {
		return fmt.Errorf("record the scopes of shop %d: %w", shopID, err)
	}
	return nil
}
