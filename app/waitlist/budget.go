package waitlist

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/app/shop"
)

// overBudget says why a text of so many segments would cost more than the shop wants to spend on a restock or in
// a month (UTC), or "". Texting is paused then until the merchant lets it go on, and they are told: it is a pause
// like any other, so that nobody is offered a unit who could not be told. What was spent before they let it go on
// is not counted again.
//
// It is asked after the shop's turn was taken, so that whoever else sends for it has committed.
func (s *Service) overBudget(ctx context.Context, tx pgx.Tx, n notice, set shop.Settings, segments int, now time.Time) (why string, err error) {
	if n.Channel != SMS || set.TextPrice == 0 || set.TextBudgetRestock == 0 && set.TextBudgetMonth == 0 {
		return "", nil
	}
	year, month, _ := now.UTC().Date()
	var restock, inMonth int
	err = tx.QueryRow(ctx, `
		WITH resumed AS (
			SELECT coalesce(max(ended_at), '-infinity') AS at FROM pauses WHERE shop_id = $1 AND channel = 'sms' AND code = 'budget'
		)
		SELECT coalesce(sum(m.segments) FILTER (WHERE o.restock_id = $2), 0), coalesce(sum(m.segments) FILTER (WHERE m.sending_at >= $3), 0)
		FROM resumed, messages m JOIN offers o ON o.shop_id = $1 AND o.id = m.offer_id
		WHERE m.shop_id = $1 AND m.channel = 'sms' AND m.segments > 0 AND m.sending_at >= resumed.at AND (o.restock_id = $2 OR m.sending_at >= $3)`,
		n.ShopID, n.RestockID, time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)).Scan(&restock, &inMonth)
	if err != nil {
		return "", err
	}
	over := func(spent, budget int) bool { return budget > 0 && (spent+segments)*set.TextPrice > budget*1000 }
	switch {
	case over(restock, set.TextBudgetRestock):
		why = fmt.Sprintf("the budget of %d for the texts of one restock is used up", set.TextBudgetRestock)
	case over(inMonth, set.TextBudgetMonth):
		why = fmt.Sprintf("the budget of %d for the texts of a month is used up", set.TextBudgetMonth)
	default:
		return "", nil
	}
	return why, s.pause(ctx, tx, n.ShopID, SMS, "", "budget", why, 0)
}

// Forecast is what it would cost to tell everybody who waits for a variant by text.
type Forecast struct {
	Texts    int    // people who wait for a text
	Segments int    // as how many texts these are paid
	Mills    int    // what they cost, in thousandths of the currency
	Currency string // ISO 4217
	Over     bool   // more than the shop wants to spend on one restock
}

// Forecast words one text for each language that is waited in, and counts. What is then sent may differ by what
// a link or a name is longer.
func (s *Service) Forecast(ctx context.Context, shopID, variantID int64) (Forecast, error) {
	set, err := shop.LoadSettings(ctx, s.db, shopID)
	if err != nil {
		return Forecast{}, err
	}
	var f Forecast
	m := Outgoing{ShopID: shopID, Channel: SMS, Window: time.Duration(set.OfferMinutesSMS) * time.Minute, HoldMinutes: set.HoldMinutes,
		Reserved: set.Reserves(), ReserveToken: s.keys.Token(shop.Reserve, 1)}
	rows, _ := s.db.Query(ctx, `
		SELECT s.name, s.locale, s.currency, v.product_title, v.title, e.locale, count(*)
		FROM entries e JOIN contacts c ON c.shop_id = $1 AND c.id = e.contact_id AND c.channel = 'sms'
		JOIN variants v ON v.shop_id = $1 AND v.id = e.variant_id JOIN shops s ON s.id = $1
		WHERE e.shop_id = $1 AND e.variant_id = $2 AND e.state = 'waiting' GROUP BY 1, 2, 3, 4, 5, 6`, shopID, variantID)
	type group struct {
		Shop, ShopLocale, Currency, Product, Variant, Locale string
		People                                               int
	}
	groups, err := pgx.CollectRows(rows, pgx.RowToStructByPos[group])
	if err != nil {
		return f, fmt.Errorf("forecast: %w", err)
	}
	for _, g := range groups {
		m.ShopName, m.ShopLocale, m.ProductTitle, m.VariantTitle, m.Locale = g.Shop, g.ShopLocale, g.Product, g.Variant, g.Locale
		if m.Wording, err = s.Wording(ctx, shopID, languageOf(m)); err != nil {
			return f, err
		}
		f.Currency = g.Currency
		f.Texts += g.People
		f.Segments += g.People * s.sender.Segments(m)
	}
	f.Mills = f.Segments * set.TextPrice
	f.Over = set.TextBudgetRestock > 0 && f.Mills > set.TextBudgetRestock*1000
	return f, nil
}
