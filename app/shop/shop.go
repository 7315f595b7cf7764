package shop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrNotFound means that no such shop is installed.
var ErrNotFound = errors.New("shop not found")

// Shop is a tenant.
type Shop struct {
	ID        int64  `db:"id"`
	Domain    string `db:"domain"` // its permanent domain, name.myshopify.com
	Name      string `db:"name"`
	Currency  string `db:"currency"` // ISO 4217
	Country   string `db:"country"`  // ISO 3166, upper case: the default region of phone numbers
	Locale    string `db:"locale"`
	Installed bool   `db:"installed"`
	Trouble   string `db:"trouble"`    // why Shopify refused the last call; empty when it did not
	TwilioKey string `db:"twilio_key"` // unguessable part of its Twilio webhook URLs; empty until Twilio is connected
	HasToken  bool   `db:"has_token"`
	Refused   bool   `db:"refused"`    // Shopify refuses its token and to renew it: the merchant must open the app again
	Scopes    string `db:"scopes"`     // granted, joined by commas; empty = not known
	HasTwilio bool   `db:"has_twilio"` // texts are offered only when this is true

	CustomersHidden bool `db:"customers_hidden"` // its orders come without who bought: the app is not approved for that data
}

// Twilio is what a merchant brings to send texts from an account of their own.
type Twilio struct {
	AccountSID          string `json:"account_sid"`
	APIKey              string `json:"api_key"`
	APISecret           string `json:"api_secret"`
	AuthToken           string `json:"auth_token"`           // signs Twilio's webhooks
	SharedKey           string `json:"shared_key,omitempty"` // signs them instead, for a merchant who does not give the auth token away
	MessagingServiceSID string `json:"messaging_service_sid"`
}

// Complete says whether nothing is missing. A blank credential is never used: a library may fall back
// to another account's.
func (t Twilio) Complete() bool {
	return t.AccountSID != "" && t.APIKey != "" && t.APISecret != "" && (t.AuthToken != "" || t.SharedKey != "") && t.MessagingServiceSID != ""
}

// Store keeps shops, their settings and their sealed secrets.
type Store struct {
	db   *pgxpool.Pool
	keys *Keys
}

// NewStore returns the store over a database and the keys that seal its secrets.
func NewStore(db *pgxpool.Pool, keys *Keys) *Store { return &Store{db: db, keys: keys} }

var domainPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}\.myshopify\.com$`)

// ValidDomain says whether s is a shop's permanent domain and nothing else. It must be asked before a
// domain from outside is used for anything: libraries accept "evil.com/x.myshopify.com".
func ValidDomain(s string) bool { return domainPattern.MatchString(s) }

const shopColumns = `id, domain, name, currency, country, locale, state = 'installed' AS installed,
	coalesce(trouble, '') AS trouble, coalesce(twilio_key, '') AS twilio_key,
	sealed_token IS NOT NULL AS has_token, token_refused_at IS NOT NULL AS refused, scopes, sealed_twilio IS NOT NULL AS has_twilio, customers_hidden_at IS NOT NULL AS customers_hidden`

// ByID returns a shop, installed or not, or ErrNotFound.
func (s *Store) ByID(ctx context.Context, id int64) (Shop, error) {
	return s.one(ctx, `SELECT `+shopColumns+` FROM shops WHERE id = $1`, id)
}

// ByDomain returns a shop, installed or not, or ErrNotFound. A string that is no shop domain is not found.
func (s *Store) ByDomain(ctx context.Context, domain string) (Shop, error) {
	if !ValidDomain(domain) {
		return Shop{}, ErrNotFound
	}
	return s.one(ctx, `SELECT `+shopColumns+` FROM shops WHERE domain = $1`, domain)
}

// ByTwilioKey returns the shop that a Twilio webhook URL belongs to, or ErrNotFound.
func (s *Store) ByTwilioKey(ctx context.Context, key string) (Shop, error) {
	return s.one(ctx, `SELECT `+shopColumns+` FROM shops WHERE twilio_key = $1 AND twilio_key <> ''`, key)
}

func (s *Store) one(ctx context.Context, sql string, arg any) (Shop, error) {
	rows, _ := s.db.Query(ctx, sql, arg)
	shop, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Shop])
	if errors.Is(err, pgx.ErrNoRows) {
		return Shop{}, ErrNotFound
	}
	if err != nil {
		return Shop{}, fmt.Errorf("read shop: %w", err)
	}
	return shop, nil
}

// Install is InstallGrant with an access token that does not expire.
func (s *Store) Install(ctx context.Context, domain, name, currency, country, locale, token string) (int64, error) {
	return s.InstallGrant(ctx, Profile{Domain: domain, Name: name, Currency: currency, Country: country, Locale: locale}, Grant{Token: token}, time.Time{})
}

// Twilio returns the shop's Twilio credentials, or ErrNotFound when it has none.
func (s *Store) Twilio(ctx context.Context, shopID int64) (Twilio, error) {
	var t Twilio
	raw, err := s.open(ctx, `SELECT sealed_twilio FROM shops WHERE id = $1`, shopID, "twilio")
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return t, fmt.Errorf("twilio credentials of shop %d: %w", shopID, err)
	}
	return t, nil
}

func (s *Store) open(ctx context.Context, sql string, shopID int64, what string) ([]byte, error) {
	var sealed []byte
	err := s.db.QueryRow(ctx, sql, shopID).Scan(&sealed)
	if errors.Is(err, pgx.ErrNoRows) || (err == nil && sealed == nil) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of shop %d: %w", what, shopID, err)
	}
	secret, err := s.keys.Open(shopID, what, sealed)
	if err != nil {
		return nil, fmt.Errorf("read %s of shop %d: %w", what, shopID, err)
	}
	return secret, nil
}

// DisconnectTwilio forgets the shop's Twilio credentials. The key of its webhook URLs stays: whoever connects
// an account again need not change it at Twilio.
func (s *Store) DisconnectTwilio(ctx context.Context, shopID int64) error {
	if _, err := s.db.Exec(ctx, `UPDATE shops SET sealed_twilio = NULL WHERE id = $1`, shopID); err != nil {
		return fmt.Errorf("disconnect twilio: %w", err)
	}
	return nil
}

// ConnectTwilio stores the shop's Twilio credentials, sealed, and the key of its webhook URLs unless it has
// one. They must have been checked: from now on shoppers can choose texts.
func (s *Store) ConnectTwilio(ctx context.Context, shopID int64, t Twilio, webhookKey string) error {
	if !t.Complete() || webhookKey == "" {
		return errors.New("connect twilio: a credential is blank")
	}
	raw, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("connect twilio: %w", err)
	}
	tag, err := s.db.Exec(ctx, `UPDATE shops SET sealed_twilio = $2, twilio_key = coalesce(twilio_key, $3) WHERE id = $1`, shopID, s.keys.Seal(shopID, "twilio", raw), webhookKey)
	if err != nil {
		return fmt.Errorf("connect twilio: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return ErrNotFound
	}
	return nil
}
