package waitlist

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"holdfast/app/db"
	"holdfast/app/shop"
)

// Tap is a shopper's "notify me", as it came from the storefront. Nothing in it is trusted but CustomerID
// and Client, which Shopify's proxy vouches for.
type Tap struct {
	VariantID string // Shopify's numeric id, as text
	SKU       string // instead of VariantID
	Channel   string // email or sms
	Contact   string // as typed
	Name      string
	Country   string // ISO 3166: the region of a phone number without a country code
	Locale    string
	TimeZone  string // IANA: what the shopper's browser says; may be empty
	Currency  string // ISO 4217: what the storefront showed prices in
	Consent   string // version of the consent text that was agreed to
	Refused   bool   // the form asked for consent and did not get it

	CustomerID int64  // the signed-in customer; 0 for a guest
	Client     string // the client's address as Shopify's proxy saw it
}

// Joined is the answer to a tap that was accepted. It is the same for a new entry, for a repeat and for
// a suppressed contact: it depends on the input alone.
type Joined struct {
	InStock bool   // a unit can simply be bought; nothing was written
	Contact string // the contact as it was understood, for people to read
}

// The limits of taps: light enough for a household, and counted in rows, so that processes share them.
const (
	tapsPerClientAndMinute = 20
	tapsPerContactAndDay   = 10
)

// observedFresh is how long an observed stock is believed when somebody taps, and how old it may grow
// before the sweep has it read again.
const observedFresh = 5 * time.Minute

// Tap is Join behind the limits: at most 20 taps a minute of one client address and 10 a day for one
// contact of a shop, counted once the input is valid. Past them it returns *RateLimited and writes
// nothing else.
func (s *Service) Tap(ctx context.Context, shopID int64, tap Tap) (Joined, error) {
	address, err := parseTap(tap)
	if err != nil {
		return Joined{}, err
	}
	if address.Channel == SMS {
		_, texts, err := s.offersTexts(ctx, shopID)
		if err != nil {
			return Joined{}, err
		}
		if !texts {
			return Joined{}, &Invalid{"invalid_channel", "channel", "this shop sends no text messages at present: choose email"}
		}
	}
	now := s.now()
	if err := s.countTap(ctx, shopID, "client", tap.Client, now, time.Minute, tapsPerClientAndMinute); err != nil {
		return Joined{}, err
	}
	if err := s.countTap(ctx, shopID, "contact", string(address.Channel)+" "+address.Key, now, 24*time.Hour, tapsPerContactAndDay); err != nil {
		return Joined{}, err
	}
	return s.join(ctx, shopID, tap, address)
}

// countTap counts one tap in its window, or returns *RateLimited when the window is full.
func (s *Service) countTap(ctx context.Context, shopID int64, kind, key string, now time.Time, window time.Duration, limit int) error {
	start := now.Truncate(window)
	tag, err := s.db.Exec(ctx, `
		INSERT INTO tap_limits AS t (shop_id, kind, key, window_start, taps) VALUES ($1, $2, $3, $4, 1)
		ON CONFLICT (shop_id, kind, key, window_start) DO UPDATE SET taps = t.taps + 1 WHERE t.taps < $5`,
		shopID, kind, s.keys.Hash(shopID, "tap", key), start, limit)
	if err != nil {
		return fmt.Errorf("count tap: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return &RateLimited{RetryAfter: start.Add(window).Sub(now)}
	}
	return nil
}

func parseTap(tap Tap) (Address, error) {
	if tap.Channel != string(Email) && tap.Channel != string(SMS) {
		return Address{}, &Invalid{"invalid_channel", "channel", `choose "email" or "sms"`}
	}
	if strings.TrimSpace(tap.VariantID) == "" && strings.TrimSpace(tap.SKU) == "" {
		return Address{}, &Invalid{"missing_variant", "variant_id", "say which variant: its Shopify id as variant_id, or its sku"}
	}
	address, err := ParseAddress(Channel(tap.Channel), tap.Contact, strings.ToUpper(strings.TrimSpace(tap.Country)))
	if err != nil {
		return Address{}, err
	}
	if tap.Refused {
		return Address{}, &Invalid{"consent_required", "consent", "please tick the box: we need your consent to send you this message"}
	}
	return address, nil
}

// Join gives one contact one place in the queue of a variant (promise 4).
//
// A contact that is live in the queue keeps its entry: the repeat renews time-to-live, name, locale,
// country, currency and consent, never joined_at, state or address. So does a signed-in customer who
// is live there by another contact. Two entries that both exist before anybody could know that they are
// one person's stay two: neither place is taken away. After sold, left or expired a tap is a new entry at
// the end.
//
// A suppressed contact gets the same answer and no row (promise 6). Nothing is sent.
//
// It returns *Invalid for input that cannot be used, ErrUnknownVariant and ErrAmbiguousSKU; nothing is
// written then, except that what was asked for is counted (see countDemand). Shopify is asked only about
// a variant whose stock was never read.
func (s *Service) Join(ctx context.Context, shopID int64, tap Tap) (Joined, error) {
	address, err := parseTap(tap)
	if err != nil {
		return Joined{}, err
	}
	return s.join(ctx, shopID, tap, address)
}

func (s *Service) join(ctx context.Context, shopID int64, tap Tap, address Address) (Joined, error) {
	v, learned, err := s.findVariant(ctx, shopID, tap.VariantID, tap.SKU, true)
	if errors.Is(err, ErrUnknownVariant) {
		if err := s.countDemand(ctx, shopID, tap, address); err != nil {
			return Joined{}, err
		}
	}
	if err != nil {
		return Joined{}, err
	}
	if v.inStock(s.now()) {
		return Joined{InStock: true, Contact: address.Shown}, nil
	}
	set, err := shop.LoadSettings(ctx, s.db, shopID)
	if err != nil {
		return Joined{}, err
	}
	err = s.untilSettled(ctx, "join", func(tx pgx.Tx) error {
		err := s.enter(ctx, tx, shopID, v.ID, learned, tap, address, set.TTLDays)
		if db.IsUnique(err, "entries_one_customer") {
			return errAgain // the same customer came in by another contact just now
		}
		return err
	})
	if err != nil {
		return Joined{}, err
	}
	return Joined{Contact: address.Shown}, nil
}

// errAgain rolls a transaction back that found its rows changed by somebody else; it is run again.
var errAgain = errors.New("changed meanwhile")

// enter locks the contact and then, in a second statement, looks for a suppression and for a live entry:
// whoever suppresses a contact holds the same lock, so the two never pass each other.
func (s *Service) enter(ctx context.Context, tx pgx.Tx, shopID, variantID int64, learned *VariantReading, tap Tap, address Address, ttlDays int) error {
	now := s.now()
	hashes := s.keys.Hashes(shopID, string(address.Channel), address.Key)
	var contact int64
	err := tx.QueryRow(ctx, `
		INSERT INTO contacts AS c (shop_id, channel, key, address, created_at)
		SELECT $1, $2, $3, $4, $5
		WHERE NOT EXISTS (SELECT FROM suppressions WHERE shop_id = $1 AND channel = $2 AND contact_hash = ANY ($6))
		ON CONFLICT (shop_id, channel, key) DO UPDATE SET channel = c.channel
		RETURNING id`, shopID, address.Channel, address.Key, address.Send, now, hashes).Scan(&contact)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // suppressed: the answer is the same, and there is no row
	}
	if err != nil {
		return err
	}
	if learned != nil {
		if err := s.keepVariant(ctx, tx, shopID, *learned); err != nil {
			return err
		}
	}
	var clean, renewed, added bool
	err = tx.QueryRow(ctx, `
		WITH clean AS (
			SELECT WHERE NOT EXISTS (SELECT FROM suppressions WHERE shop_id = $1 AND channel = $3 AND contact_hash = ANY ($4))
		), mine AS (
			SELECT id, state FROM entries
			WHERE shop_id = $1 AND variant_id = $2 AND state IN ('waiting', 'offered', 'holding')
			  AND (contact_id = $5 OR customer_id = nullif($6, 0))
			ORDER BY contact_id <> $5, joined_at, id LIMIT 1
		), renewed AS (
			UPDATE entries e SET expires_at = $7, name = coalesce(nullif($8, ''), name), locale = coalesce(nullif($9, ''), locale),
			       country = coalesce(nullif($10, ''), country), currency = coalesce(nullif($11, ''), currency),
			       consent = coalesce(nullif($12, ''), consent), zones = CASE contact_id WHEN $5 THEN $13 ELSE zones END,
			       customer_id = coalesce(customer_id, CASE WHEN NOT EXISTS (
			           SELECT FROM entries o WHERE o.shop_id = $1 AND o.variant_id = $2 AND o.customer_id = $6 AND o.state IN ('waiting', 'offered', 'holding')) THEN nullif($6, 0) END)
			FROM mine, clean WHERE e.shop_id = $1 AND e.id = mine.id AND e.state IN ('waiting', 'offered', 'holding')
			RETURNING e.id
		), added AS (
			INSERT INTO entries (shop_id, variant_id, contact_id, customer_id, state, expires_at, name, locale, country, currency, consent, zones)
			SELECT $1, $2, $5, nullif($6, 0), 'waiting', $7, $8, $9, $10, $11, $12, $13 FROM clean WHERE NOT EXISTS (SELECT FROM mine)
			RETURNING id
		)
		SELECT EXISTS (SELECT FROM clean), EXISTS (SELECT FROM renewed), EXISTS (SELECT FROM added)`,
		shopID, variantID, address.Channel, hashes, contact, tap.CustomerID, now.AddDate(0, 0, ttlDays),
		clip(tap.Name, 100), clip(tap.Locale, 35), clip(strings.ToUpper(tap.Country), 2), clip(strings.ToUpper(tap.Currency), 3), clip(tap.Consent, 64),
		zonesOf(address, tap.TimeZone, tap.Country),
	).Scan(&clean, &renewed, &added)
	switch {
	case err != nil:
		return err
	case clean && !renewed && !added:
		return errAgain // the entry ended between the look and the renewal: this tap is a new one
	case !added:
		return nil
	}
	return s.hint(ctx, tx, shopID, variantID)
}

// clip keeps at most n characters of a text from outside, without control characters.
func clip(text string, n int) string {
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return -1
		}
		return r
	}, text))
	if r := []rune(text); len(r) > n {
		return string(r[:n])
	}
	return text
}

// countDemand counts what was asked for and is not in the catalogue: at most 200 characters of it and a
// keyed hash of who asked, at most 1,000 rows per shop and day. When 3 different contacts have asked for
// the same thing within 7 days, the merchant gets a note.
func (s *Service) countDemand(ctx context.Context, shopID int64, tap Tap, address Address) error {
	asked := tap.VariantID
	if asked == "" {
		asked = "SKU " + tap.SKU
	}
	day := s.now().UTC().Truncate(24 * time.Hour)
	asked = clip(asked, 200)
	if asked == "" {
		return nil
	}
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			INSERT INTO demand (shop_id, day, asked, contact_hash)
			SELECT $1, $2, $3, $4 WHERE (SELECT count(*) FROM demand WHERE shop_id = $1 AND day = $2) < 1000
			ON CONFLICT DO NOTHING`, shopID, day, asked, s.keys.Hash(shopID, "demand", string(address.Channel)+" "+address.Key))
		if err != nil {
			return fmt.Errorf("count demand: %w", err)
		}
		var contacts int
		err = tx.QueryRow(ctx, `SELECT count(DISTINCT contact_hash) FROM demand WHERE shop_id = $1 AND asked = $2 AND day > $3`,
			shopID, asked, day.AddDate(0, 0, -7)).Scan(&contacts)
		if err != nil {
			return fmt.Errorf("count demand: %w", err)
		}
		if contacts < 3 {
			return nil
		}
		return s.note(ctx, tx, shopID, "demand", asked, fmt.Sprintf("%d people asked to be told about %s within 7 days, and the shop has no such variant on sale.", contacts, asked))
	})
}

// note tells the merchant something that needs a person, once until it is put away.
func (s *Service) note(ctx context.Context, tx pgx.Tx, shopID int64, kind, subject, detail string) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO notes (shop_id, kind, subject, detail, created_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (shop_id, kind, subject) WHERE cleared_at IS NULL DO NOTHING`, shopID, kind, subject, detail, s.now())
	if err != nil {
		return fmt.Errorf("note %s: %w", kind, err)
	}
	return nil
}

// Waitability is what a product page needs to know of a variant.
type Waitability struct {
	State    string // in_stock, waitable or not_waitable
	Channels []Channel
	Consent  map[Channel]ConsentText
	Waiting  int // live entries of its queue
}

// ConsentText is what a shopper agrees to. Version names the text for ever: a changed text has another.
type ConsentText struct{ Version, Text string }

// Waitable answers the theme block. It changes nothing: a variant that is not in the catalogue is read from
// Shopify and forgotten again.
func (s *Service) Waitable(ctx context.Context, shopID int64, variantID, sku string) (Waitability, error) {
	if strings.TrimSpace(variantID) == "" && strings.TrimSpace(sku) == "" {
		return Waitability{}, &Invalid{"missing_variant", "variant_id", "say which variant: its Shopify id as variant_id, or its sku"}
	}
	var w Waitability
	name, texts, err := s.offersTexts(ctx, shopID)
	if err != nil {
		return w, err
	}
	w.Channels = []Channel{Email}
	w.Consent = map[Channel]ConsentText{Email: consentByEmail(name)}
	if texts {
		w.Channels = append(w.Channels, SMS)
		w.Consent[SMS] = consentByText(name)
	}
	v, _, err := s.findVariant(ctx, shopID, variantID, sku, false)
	switch {
	case errors.Is(err, ErrUnknownVariant):
		w.State = "not_waitable"
		return w, nil
	case err != nil:
		return w, err
	case v.inStock(s.now()):
		w.State = "in_stock"
	default:
		w.State = "waitable"
	}
	err = s.db.QueryRow(ctx, `SELECT count(*) FROM entries WHERE shop_id = $1 AND variant_id = $2 AND state IN ('waiting', 'offered', 'holding')`, shopID, v.ID).Scan(&w.Waiting)
	if err != nil {
		return w, fmt.Errorf("waitable: %w", err)
	}
	return w, nil
}

// offersTexts says whether shoppers may choose texts: the shop's Twilio account was checked, and nothing is
// wrong with it that the merchant has to put right.
func (s *Service) offersTexts(ctx context.Context, shopID int64) (shopName string, texts bool, err error) {
	err = s.db.QueryRow(ctx, `
		SELECT name, sealed_twilio IS NOT NULL AND NOT EXISTS (SELECT FROM pauses WHERE shop_id = $1 AND channel = 'sms' AND prefix = '' AND ended_at IS NULL AND until IS NULL)
		FROM shops WHERE id = $1`, shopID).Scan(&shopName, &texts)
	if err != nil {
		return "", false, fmt.Errorf("whether texts are offered: %w", err)
	}
	return shopName, texts, nil
}

func consentByEmail(shopName string) ConsentText {
	return ConsentText{"email-1", "Email me when this is back. " + shopName + " may send me messages about this item; every one has a link to stop them."}
}

func consentByText(shopName string) ConsentText {
	return ConsentText{"sms-1", "Text me when this is back. I agree that " + shopName + " may send automated text messages about this item (about 1 to 3 per restock). Consent is not a condition of purchase. Msg & data rates may apply. Reply STOP to stop, HELP for help."}
}

// variant is a row of variants, as far as Join and Observe need it.
type variant struct {
	ID              int64      `db:"id"`
	Active          bool       `db:"active"`
	Published       bool       `db:"published"`
	Tracked         bool       `db:"tracked"`
	ContinueSelling bool       `db:"continue_selling"`
	Unholdable      bool       `db:"unholdable"` // a bundle, or shares its inventory item: no unit of it can be held
	Sellable        *int       `db:"sellable"`
	ObservedAt      *time.Time `db:"observed_at"`
}

// inStock says whether a unit can simply be bought: always when stock is not counted, else when the last
// observed stock is not older than 5 minutes and has a unit.
func (v variant) inStock(now time.Time) bool {
	if !v.Tracked || v.ContinueSelling {
		return true
	}
	return v.Sellable != nil && *v.Sellable >= 1 && v.ObservedAt != nil && now.Sub(*v.ObservedAt) <= observedFresh
}

// findVariant finds the one variant of an id, or of a SKU, that can be waited for. One that is not in the
// catalogue is read from Shopify, and returned as it was read, too: it is kept when somebody joins its queue.
// One that is in it and whose stock was never read is read when somebody is about to join, so that whoever
// can simply buy it is told so; while that cannot be done, the catalogue's word is good enough.
func (s *Service) findVariant(ctx context.Context, shopID int64, variantID, sku string, joins bool) (v variant, learned *VariantReading, err error) {
	const known = `SELECT id, active, published, tracked, continue_selling, components OR shared_item AS unholdable, sellable, observed_at FROM variants WHERE shop_id = $1`
	var rows pgx.Rows
	var id int64
	variantID, sku = strings.TrimSpace(variantID), strings.TrimSpace(sku)
	if variantID != "" {
		if id, err = strconv.ParseInt(variantID, 10, 64); err != nil || id <= 0 {
			return v, nil, ErrUnknownVariant
		}
		rows, _ = s.db.Query(ctx, known+` AND id = $2`, shopID, id)
	} else {
		if !utf8.ValidString(sku) || strings.ContainsRune(sku, 0) || len(sku) > 255 {
			return v, nil, ErrUnknownVariant
		}
		rows, _ = s.db.Query(ctx, known+` AND sku = $2 AND active ORDER BY id LIMIT 2`, shopID, sku)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[variant])
	if err != nil {
		return v, nil, fmt.Errorf("find variant: %w", err)
	}
	var readings []VariantReading
	unread := joins && len(found) == 1 && found[0].ObservedAt == nil
	if unread {
		id = found[0].ID
	}
	if len(found) == 0 || unread {
		readings, err = s.readVariants(ctx, shopID, id, sku)
		if unread && err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "stock was not read before a tap", "shop", shopID, "variant", id, "err", err)
		} else if err != nil {
			return v, nil, err
		} else {
			found = nil
		}
		now := s.now()
		for _, r := range readings {
			found = append(found, variant{r.ID, r.Active, r.Published, r.Tracked, r.ContinueSelling, r.Components || r.SharedItem, &r.Sellable, &now})
		}
	}
	switch {
	case len(found) == 0:
		return v, nil, ErrUnknownVariant
	case len(found) > 1:
		return v, nil, ErrAmbiguousSKU
	case !found[0].Active || !found[0].Published || found[0].Unholdable:
		return v, nil, ErrUnknownVariant
	}
	if len(readings) > 0 {
		learned = &readings[0]
	}
	return found[0], learned, nil
}

// readVariants reads the variant of an id, or those of a SKU, from Shopify.
func (s *Service) readVariants(ctx context.Context, shopID, id int64, sku string) ([]VariantReading, error) {
	ids := []int64{id}
	if id == 0 {
		carriers, err := s.shopify.FindVariants(ctx, shopID, sku)
		if err != nil {
			return nil, fmt.Errorf("find variant by SKU: %w", err)
		}
		ids = nil
		for _, r := range carriers {
			ids = append(ids, r.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	set, err := shop.LoadSettings(ctx, s.db, shopID)
	if err != nil {
		return nil, err
	}
	readings, err := s.shopify.ReadVariants(ctx, shopID, ids, set.Locations)
	if err != nil {
		return nil, fmt.Errorf("read variants: %w", err)
	}
	return slices.Collect(maps.Values(readings)), nil
}

// keepVariant keeps a variant that somebody waits for, with the stock that was read. It tells nobody: that
// is Observe's alone.
func (s *Service) keepVariant(ctx context.Context, tx pgx.Tx, shopID int64, r VariantReading) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO variants (shop_id, id, product_id, inventory_item_id, sku, title, product_title, handle, image_url, price,
		                      active, published, tracked, continue_selling, components, shared_item, sellable, observed_at, read_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $18)
		ON CONFLICT (shop_id, id) DO UPDATE SET image_url = excluded.image_url, shared_item = excluded.shared_item, sellable = excluded.sellable, observed_at = excluded.observed_at
		WHERE variants.observed_at IS NULL`,
		shopID, r.ID, r.ProductID, r.InventoryItemID, r.SKU, r.Title, r.ProductTitle, r.Handle, r.ImageURL, r.Price,
		r.Active, r.Published, r.Tracked, r.ContinueSelling, r.Components, r.SharedItem, r.Sellable, s.now())
	if err != nil {
		return fmt.Errorf("keep variant %d: %w", r.ID, err)
	}
	return nil
}

// MyPlace is what the page of a place shows.
type MyPlace struct {
	ShopID   int64
	ShopName string
	Item     Item
	State    string // of the entry
	Place    int    // position in the queue, from 1; CountedPlaces + 1 further back; 0 when it is not waiting
	Reserve  string // token of the reserve page while an offer is open or a hold is live; else empty
	Locale   string // of the shopper, BCP 47; may be empty

	ShopLocale string
}

// Item is what is waited for, for people to see.
type Item struct {
	VariantID                            int64
	ProductTitle, VariantTitle, ImageURL string
	Price, Currency                      string
	URL                                  string // of the product page on the storefront
}

// itemColumns are the columns of an Item, of variants v and shops s.
const itemColumns = `v.id, v.product_title, v.title, v.image_url, v.price, s.currency, 'https://' || s.domain || '/products/' || v.handle || '?variant=' || v.id`

func (i *Item) fields() []any {
	return []any{&i.VariantID, &i.ProductTitle, &i.VariantTitle, &i.ImageURL, &i.Price, &i.Currency, &i.URL}
}

// CountedPlaces is how far places are counted: when ten thousand people look at their place at once, each count
// of those before them is as long as the queue.
const CountedPlaces = 1000

// placeOf counts the position of a waiting entry e in its queue, from 1; CountedPlaces + 1 when it is further
// back, 0 when it is not waiting.
const placeOf = `CASE WHEN e.state <> 'waiting' THEN 0 ELSE (
	SELECT count(*) FROM (SELECT FROM entries f WHERE f.shop_id = e.shop_id AND f.variant_id = e.variant_id AND f.state = 'waiting'
	AND (f.joined_at, f.id) <= (e.joined_at, e.id) LIMIT 1001) before) END`

// Place shows a place in the queue by its link, or returns ErrInvalidLink. It changes nothing.
func (s *Service) Place(ctx context.Context, token string) (MyPlace, error) {
	var p MyPlace
	id, err := s.keys.ParseToken(shop.Place, token)
	if err != nil {
		return p, err
	}
	var offer int64
	err = s.db.QueryRow(ctx, `
		SELECT s.id, s.name, e.state, e.locale, s.locale, `+placeOf+`, `+itemColumns+`,
		       coalesce((SELECT o.id FROM offers o WHERE o.shop_id = e.shop_id AND o.entry_id = e.id AND o.state IN ('open', 'claimed') ORDER BY o.id DESC LIMIT 1), 0)
		FROM entries e JOIN shops s ON s.id = e.shop_id JOIN variants v ON v.shop_id = e.shop_id AND v.id = e.variant_id
		WHERE e.id = $1`, id).Scan(append(append([]any{&p.ShopID, &p.ShopName, &p.State, &p.Locale, &p.ShopLocale, &p.Place}, p.Item.fields()...), &offer)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, ErrInvalidLink
	}
	if err != nil {
		return p, fmt.Errorf("place: %w", err)
	}
	if offer != 0 && (p.State == Offered || p.State == Holding) {
		p.Reserve = s.keys.Token(shop.Reserve, offer)
	}
	return p, nil
}

// Leave ends the entry of a place link, with its open offer and its live hold. An entry that has ended is
// left as it is.
func (s *Service) Leave(ctx context.Context, token string) error {
	id, err := s.keys.ParseToken(shop.Place, token)
	if err != nil {
		return err
	}
	var shopID int64
	err = s.db.QueryRow(ctx, `SELECT shop_id FROM entries WHERE id = $1`, id).Scan(&shopID)
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrInvalidLink
	}
	if err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return s.leave(ctx, shopID, id, true)
}

// RemoveEntry is Leave by the merchant. It returns ErrNotFound for an entry that the shop does not have.
func (s *Service) RemoveEntry(ctx context.Context, shopID, entryID int64) error {
	var there bool
	err := s.db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM entries WHERE shop_id = $1 AND id = $2)`, shopID, entryID).Scan(&there)
	if err != nil {
		return fmt.Errorf("remove entry: %w", err)
	}
	if !there {
		return ErrNotFound
	}
	return s.leave(ctx, shopID, entryID, false)
}

func (s *Service) leave(ctx context.Context, shopID, entryID int64, byShopper bool) error {
	return s.untilSettled(ctx, "leave", func(tx pgx.Tx) error {
		return s.end(ctx, tx, shopID, `SELECT id, state FROM entries WHERE shop_id = $1 AND id = $2 AND state IN ('waiting', 'offered', 'holding')`, entryID, Left, byShopper)
	})
}

// untilSettled runs a transaction again while it finds its rows changed by somebody else, or was undone
// by PostgreSQL for somebody else's sake.
func (s *Service) untilSettled(ctx context.Context, what string, f func(tx pgx.Tx) error) error {
	var err error
	for range 10 {
		if err = db.InTx(ctx, s.db, f); !errors.Is(err, errAgain) && !db.Retryable(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// end ends the live entries that which selects (id, state), for one contact or some entries ($2): live holds are
// released, open offers passed, unsent messages cancelled. An entry's state says what it has (offered: an
// open offer; holding: a live hold), so its UPDATE names the state that was seen: when that has changed
// meanwhile, so may the rest have, and errAgain starts all of it over.
func (s *Service) end(ctx context.Context, tx pgx.Tx, shopID int64, which string, arg any, to string, byShopper bool) error {
	rows, _ := tx.Query(ctx, which, shopID, arg)
	type seen struct {
		ID    int64
		State string
	}
	live, err := pgx.CollectRows(rows, pgx.RowToStructByPos[seen])
	if err != nil {
		return err
	}
	if len(live) == 0 {
		return nil
	}
	ids, states := make([]int64, len(live)), make([]string, len(live))
	for i, e := range live {
		ids[i], states[i] = e.ID, e.State
	}
	if err := s.startRelease(ctx, tx, shopID, `entry_id = ANY ($4)`, ids, "released", byShopper); err != nil {
		return err
	}
	now := s.now()
	if _, err := tx.Exec(ctx, `UPDATE offers SET state = 'passed', ended_at = $3 WHERE shop_id = $1 AND entry_id = ANY ($2) AND state = 'open' AND NOT reserved`, shopID, ids, now); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE messages SET state = 'cancelled', reason = $3 WHERE shop_id = $1 AND entry_id = ANY ($2) AND state = 'pending'`, shopID, ids, "the entry ended before it was sent"); err != nil {
		return err
	}
	rows, _ = tx.Query(ctx, `
		UPDATE entries e SET state = $4, ended_at = $5 FROM unnest($2::bigint[], $3::text[]) AS seen(id, state)
		WHERE e.shop_id = $1 AND e.id = seen.id AND e.state = seen.state RETURNING e.variant_id`, shopID, ids, states, to, now)
	variants, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	if len(variants) != len(ids) {
		return errAgain
	}
	return s.hint(ctx, tx, shopID, variants...)
}
