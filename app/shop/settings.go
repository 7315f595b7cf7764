package shop

import (
	"context"
	"errors"
	"fmt"
	"net/mail"
	"time"

	"github.com/jackc/pgx/v5"
)

// Settings is what a merchant has set. The json names are those of the admin's form, too.
type Settings struct {
	HoldMinutes          int     `db:"hold_minutes" json:"hold_minutes"`                     // how long a unit is held for one person, 5 to 120
	OfferMinutesEmail    int     `db:"offer_minutes_email" json:"offer_minutes_email"`       // how long a mailed offer stands, 15 to 2,880
	OfferMinutesSMS      int     `db:"offer_minutes_sms" json:"offer_minutes_sms"`           // how long a texted offer stands, 15 to 2,880
	NoticesPerUnit       int     `db:"notices_per_unit" json:"notices_per_unit"`             // people told per unit, 1 to 100; above 1 some will find it gone
	Threshold            int     `db:"threshold" json:"threshold"`                           // units that must be there before a restock opens, at least 1
	SettleSeconds        int     `db:"settle_seconds" json:"settle_seconds"`                 // how long a rise is watched before anybody is told, 0 to 3,600
	ImplausibleUnits     int     `db:"implausible_units" json:"implausible_units"`           // a rise by more than this waits for the merchant
	TTLDays              int     `db:"ttl_days" json:"ttl_days"`                             // how long an entry waits, 1 to 730
	Locations            []int64 `db:"locations" json:"locations"`                           // the locations whose stock counts; none = all that sell online
	ReplyTo              string  `db:"reply_to" json:"reply_to"`                             // where answers to mails go; empty = nowhere
	ReserveBeforeTelling bool    `db:"reserve_before_telling" json:"reserve_before_telling"` // units are held before their people are told; see Reserves
	SkipBuyers           bool    `db:"skip_buyers" json:"skip_buyers"`                       // who buys a variant the ordinary way waits for it no longer
	AutomaticDiscounts   bool    `db:"automatic_discounts" json:"automatic_discounts"`       // the shop's automatic discounts apply to held units
	DiscountCodes        bool    `db:"discount_codes" json:"discount_codes"`                 // the checkout of a held unit takes discount codes
	QuietHours           bool    `db:"quiet_hours" json:"quiet_hours"`                       // texts go at decent hours of their recipients, and not too many to one number
	TextFrom             int     `db:"text_from" json:"text_from"`                           // the first hour, 9 to 19, in which texts go when QuietHours is on
	TextUntil            int     `db:"text_until" json:"text_until"`                         // the hour, 10 to 20, from which they do not go any more
	PassAsleep           bool    `db:"pass_asleep" json:"pass_asleep"`                       // the next in line who may be texted now is told before one who may not
	TextPrice            int     `db:"text_price" json:"text_price"`                         // what one segment of a text costs, in thousandths of the shop's currency
	TextBudgetRestock    int     `db:"text_budget_restock" json:"text_budget_restock"`       // the most that the texts of a restock may cost, in the shop's currency; 0 = no limit
	TextBudgetMonth      int     `db:"text_budget_month" json:"text_budget_month"`           // the same for those of a month (UTC)
}

// Hold is how long a unit is held for one person.
func (s Settings) Hold() time.Duration { return time.Duration(s.HoldMinutes) * time.Minute }

// Reserves says whether units are held before their people are told. With more than one notice per unit that
// cannot be: then a press decides who has the unit.
func (s Settings) Reserves() bool { return s.ReserveBeforeTelling && s.NoticesPerUnit == 1 }

// Settle is how long a rise is watched before anybody is told.
func (s Settings) Settle() time.Duration { return time.Duration(s.SettleSeconds) * time.Second }

// OfferMinutes is how long an offer by this channel ("sms" or "email") stands once it is sent.
func (s Settings) OfferMinutes(channel string) int {
	if channel == "sms" {
		return s.OfferMinutesSMS
	}
	return s.OfferMinutesEmail
}

// Fault is a value in a form that cannot be saved: which field, and what to do about it.
type Fault struct{ Field, Reason string }

func (f Fault) Error() string { return f.Field + ": " + f.Reason }

// Check returns every fault of the settings, none when they can be saved.
func (s Settings) Check() []Fault {
	var faults []Fault
	between := func(field string, v, lo, hi int) {
		if v < lo || v > hi {
			faults = append(faults, Fault{field, fmt.Sprintf("choose a whole number from %d to %d", lo, hi)})
		}
	}
	between("hold_minutes", s.HoldMinutes, 5, 120)
	between("offer_minutes_email", s.OfferMinutesEmail, 15, 2880)
	between("offer_minutes_sms", s.OfferMinutesSMS, 15, 2880)
	between("notices_per_unit", s.NoticesPerUnit, 1, 100)
	between("threshold", s.Threshold, 1, 1_000_000)
	between("settle_seconds", s.SettleSeconds, 0, 3600)
	between("implausible_units", s.ImplausibleUnits, 1, 1_000_000)
	between("ttl_days", s.TTLDays, 1, 730)
	between("text_price", s.TextPrice, 0, 10_000)
	between("text_budget_restock", s.TextBudgetRestock, 0, 1_000_000)
	between("text_budget_month", s.TextBudgetMonth, 0, 1_000_000)
	between("text_from", s.TextFrom, 9, 19)
	between("text_until", s.TextUntil, 10, 20)
	if s.TextFrom >= s.TextUntil && s.TextUntil >= 10 {
		faults = append(faults, Fault{"text_until", "choose an hour after the one at which texts begin"})
	}
	if s.ReplyTo != "" {
		if a, err := mail.ParseAddress(s.ReplyTo); err != nil || a.Address != s.ReplyTo {
			faults = append(faults, Fault{"reply_to", "give one mail address, such as help@example.com"})
		}
	}
	for _, l := range s.Locations {
		if l <= 0 {
			faults = append(faults, Fault{"locations", "a location is chosen by its Shopify id, a number"})
			break
		}
	}
	return faults
}

// Settings returns what the merchant of a shop has set, or ErrNotFound.
func (s *Store) Settings(ctx context.Context, shopID int64) (Settings, error) {
	return LoadSettings(ctx, s.db, shopID)
}

// Querier is a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// LoadSettings reads a shop's settings inside whatever q is, or returns ErrNotFound.
func LoadSettings(ctx context.Context, q Querier, shopID int64) (Settings, error) {
	rows, _ := q.Query(ctx, `
		SELECT hold_minutes, offer_minutes_email, offer_minutes_sms, notices_per_unit, threshold, settle_seconds,
		       implausible_units, ttl_days, locations, reply_to, reserve_before_telling,
		       skip_buyers, automatic_discounts, discount_codes,
		       quiet_hours, text_from, text_until, pass_asleep, text_price, text_budget_restock, text_budget_month
		FROM settings WHERE shop_id = $1`, shopID)
	set, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Settings])
	if errors.Is(err, pgx.ErrNoRows) {
		return Settings{}, ErrNotFound
	}
	if err != nil {
		return Settings{}, fmt.Errorf("read settings of shop %d: %w", shopID, err)
	}
	return set, nil
}

// SaveSettings saves settings that have no fault, inside the caller's transaction; what must be looked
// at again because of them is the caller's to queue (waitlist.ChangeSettings).
func SaveSettings(ctx context.Context, tx pgx.Tx, shopID int64, set Settings) error {
	if faults := set.Check(); len(faults) > 0 {
		return faults[0]
	}
	if set.Locations == nil {
		set.Locations = []int64{}
	}
	tag, err := tx.Exec(ctx, `
		UPDATE settings SET hold_minutes = $2, offer_minutes_email = $3, offer_minutes_sms = $4, notices_per_unit = $5,
		       threshold = $6, settle_seconds = $7, implausible_units = $8, ttl_days = $9, locations = $10, reply_to = $11, reserve_before_telling = $12,
		       skip_buyers = $13, automatic_discounts = $14, discount_codes = $15, quiet_hours = $16, text_from = $17, text_until = $18, pass_asleep = $19, text_price = $20, text_budget_restock = $21, text_budget_month = $22
		WHERE shop_id = $1`, shopID, set.HoldMinutes, set.OfferMinutesEmail, set.OfferMinutesSMS, set.NoticesPerUnit,
		set.Threshold, set.SettleSeconds, set.ImplausibleUnits, set.TTLDays, set.Locations, set.ReplyTo, set.ReserveBeforeTelling,
		set.SkipBuyers, set.AutomaticDiscounts, set.DiscountCodes,
		set.QuietHours, set.TextFrom, set.TextUntil, set.PassAsleep, set.TextPrice, set.TextBudgetRestock, set.TextBudgetMonth)
	if err != nil {
		return fmt.Errorf("save settings of shop %d: %w", shopID, err)
	}
	if tag.RowsAffected() == 0 {
		return ErrNotFound
	}
	return nil
}
