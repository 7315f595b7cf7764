package waitlist

import (
	"context"
	"time"

	"holdfast/app/shop"
)

// ---- entry.go

// Tap is a shopper's "notify me", as it came from the storefront: nothing in it is trusted but
// CustomerID and Client, which Shopify's proxy vouches for.
type Tap struct {
	VariantID                                        string // a number, as text
	SKU                                              string // instead of VariantID
	Channel, Contact, Name, Country, Locale, Consent string
	Currency                                         string
	CustomerID                                       int64  // the signed-in customer; 0 for a guest
	Client                                           string // the client's address as Shopify's proxy saw it
}

// Joined is the answer to a tap that was accepted. It is the same for a new entry, for a repeat and for
// a suppressed contact: it depends on the input alone.
type Joined struct {
	InStock bool   // the unit can simply be bought; nothing was written
	Contact string // the contact as it was understood, for people to read
}

// Join gives one contact one place in the queue of a variant.
func (s *Service) Join(ctx context.Context, shopID int64, tap Tap) (Joined, error) { panic("soon") }

// Waitability is what a product page needs to know of a variant.
type Waitability struct {
	State    string // in_stock, waitable or not_waitable
	Channels []Channel
	Consent  map[Channel]ConsentText
	Waiting  int // live entries in its queue
}

// ConsentText is what a shopper agrees to, and its version.
type ConsentText struct{ Version, Text string }

// Waitable answers the theme block. It changes nothing.
func (s *Service) Waitable(ctx context.Context, shopID int64, variantID, sku string) (Waitability, error) {
	panic("soon")
}

// MyPlace is what the page of a place shows.
type MyPlace struct {
	ShopID   int64
	ShopName string
	Item     Item
	State    string // of the entry
	Place    int    // position in the queue, from 1; 0 when it is not waiting
	Reserve  string // token of the newest offer's page when there is an open offer or a live hold
	Locale   string
}

// Item is what is waited for, for people to see.
type Item struct {
	VariantID                            int64
	ProductTitle, VariantTitle, ImageURL string
	Price, Currency                      string
	URL                                  string // of the product page on the storefront
}

// Place shows a place in the queue by its link. It changes nothing.
func (s *Service) Place(ctx context.Context, token string) (MyPlace, error) { panic("soon") }

// Leave ends the entry of a place link, its open offer and its live hold.
func (s *Service) Leave(ctx context.Context, token string) error { panic("soon") }

// Optout is what the unsubscribe page shows.
type Optout struct {
	ShopID       int64
	ShopName     string
	Channel      Channel
	Contact      string // masked, for people to read
	Unsubscribed bool   // the row says so
	Locale       string
}

// Contact shows whom an unsubscribe link is for. It changes nothing.
func (s *Service) Contact(ctx context.Context, token string) (Optout, error) { panic("soon") }

// Unsubscribe suppresses the contact of an unsubscribe link and ends its live entries.
func (s *Service) Unsubscribe(ctx context.Context, token string) error { panic("soon") }

// Suppress writes that a contact is never to be messaged by a shop, and ends its live entries with
// their open offers and live holds. address is normalised first; *Invalid when it cannot be.
func (s *Service) Suppress(ctx context.Context, shopID int64, channel Channel, address, reason string) error {
	panic("soon")
}

// Lift takes a suppression back: the merchant's own, or a STOP by the START of the same phone.
func (s *Service) Lift(ctx context.Context, shopID, suppressionID int64) error { panic("soon") }

// ---- offer.go

// Offer is what the reserve page and its status show.
type Offer struct {
	ShopID   int64
	ShopName string
	Locale   string
	Item     Item
	// State: open, securing, held, gone, lapsed, passed, sold, expired, left, invalid.
	State       string
	Until       time.Time // of the offer when open, of the hold when held; zero otherwise
	HoldMinutes int       // how long a press would hold the unit
	CheckoutURL string    // only when held
	Place       int       // position in the queue when the entry is waiting again
	PlaceToken  string
	Now         time.Time // the server's time
	Retry       time.Duration
}

// Look shows a reserve link's newest offer of its entry and restock. It changes nothing.
func (s *Service) Look(ctx context.Context, token string) (Offer, error) { panic("soon") }

// Claim is the press. Whatever the outcome, the offer as it then stands is returned; a press that was
// made before shows the same hold.
func (s *Service) Claim(ctx context.Context, token string) (Offer, error) { panic("soon") }

// Pass is "no thanks": the open offer ends, or the live hold is released. The entry keeps its place.
func (s *Service) Pass(ctx context.Context, token string) (Offer, error) { panic("soon") }

// ---- observe.go, hold.go, message.go, sweep.go: called by jobs

func (s *Service) Observe(ctx context.Context, shopID int64, variantIDs ...int64) error {
	panic("soon")
}
func (s *Service) Secure(ctx context.Context, shopID, holdID int64) error    { panic("soon") }
func (s *Service) Release(ctx context.Context, shopID, holdID int64) error   { panic("soon") }
func (s *Service) Notify(ctx context.Context, shopID, messageID int64) error { panic("soon") }
func (s *Service) Reconcile(ctx context.Context, shopID int64) error         { panic("soon") }
func (s *Service) Sweep(ctx context.Context) error                           { panic("soon") }

// ---- webhook.go

// Webhook is a delivery from Shopify whose signature was verified.
type Webhook struct {
	Topic, WebhookID, EventID string // topic as in the header: inventory_levels/update
	Body                      []byte
}

// Receive stores a webhook once and queues its work. A repeated delivery changes nothing.
func (s *Service) Receive(ctx context.Context, shopID int64, w Webhook) error { panic("soon") }

// HandleWebhook does the work of a stored webhook.
func (s *Service) HandleWebhook(ctx context.Context, shopID, webhookID int64) error { panic("soon") }

// Delivery is what a provider reports of a message after it was accepted.
type Delivery struct {
	MessageID  int64  // ours, when the report carries it; else 0
	ProviderID string // the provider's
	Status     string // delivered or failed
	Outcome    Outcome
	Code, Why  string
}

// Delivered records a provider's report. Reports may be late, doubled and out of order.
func (s *Service) Delivered(ctx context.Context, shopID int64, d Delivery) error { panic("soon") }

// InboundText works a text that a shopper sent: STOP in any of its forms suppresses the phone, START
// lifts a STOP of the same phone, anything else is ignored. It returns which of the two it was, or "".
func (s *Service) InboundText(ctx context.Context, shopID int64, from, body, optOutType string) (string, error) {
	panic("soon")
}

// ---- report.go: what the merchant sees. after is the id of the last row of the page before, 0 for
// the first page; a page has at most PageSize rows. None of them changes anything.

// PageSize is the most rows of an admin page.
const PageSize = 50

type QueueRow struct {
	VariantID                  int64
	ProductTitle, VariantTitle string
	SKU, ImageURL              string
	Waiting, Offered, HoldingN int
	Sellable                   *int
	ObservedAt                 *time.Time
	NotHoldable                string // why units of it cannot be held; empty when they can
}

type EntryRow struct {
	ID, VariantID int64
	ProductTitle  string
	VariantTitle  string
	Contact       string // masked
	Channel       Channel
	Name, State   string
	Place         int // 0 when not waiting
	JoinedAt      time.Time
	ExpiresAt     time.Time
	TimesTold     int
}

type RestockRow struct {
	ID, VariantID                           int64
	ProductTitle, VariantTitle              string
	State                                   string
	Units, Available, Live, Sold, Withdrawn int
	OpenOffers, Told                        int
	Short                                   bool
	Asked                                   *int // the implausible S that waits for a yes
	OpenedAt                                time.Time
	ClosedAt                                *time.Time
}

type RestockStory struct {
	RestockRow
	Changes []RestockChange
	Offers  []OfferRow
	Holds   []HoldRow
}

type RestockChange struct {
	Kind         string // open, grow, shrink
	By, Sellable int
	At           time.Time
}

type OfferRow struct {
	ID, EntryID int64
	Contact     string // masked
	State       string
	Message     string // the state of its message
	CreatedAt   time.Time
	LapsesAt    time.Time
	EndedAt     *time.Time
}

type HoldRow struct {
	ID, RestockID, EntryID, VariantID int64
	ProductTitle, VariantTitle        string
	Contact                           string // masked
	State, Reason                     string
	ClaimedAt                         time.Time
	ExpiresAt, EndedAt, PaidLateAt    *time.Time
	DraftID, OrderID                  *int64
}

type OptOutRow struct {
	ID        int64
	Channel   Channel
	Address   string // masked; empty once erased
	Reason    string
	CreatedAt time.Time
	Liftable  bool // only the merchant's own can be taken back here
}

type MessageRow struct {
	ID                         int64
	Channel                    Channel
	Contact                    string // masked
	ProductTitle, VariantTitle string
	State, ErrorCode, Reason   string
	Attempts                   int
	CreatedAt                  time.Time
	AcceptedAt                 *time.Time
}

type Note struct {
	ID                    int64
	Kind, Subject, Detail string
	CreatedAt             time.Time
}

// Totals are today's numbers of a shop's home page.
type Totals struct{ Waiting, Offered, Holding, Sold, OpenRestocks int }

func (s *Service) Totals(ctx context.Context, shopID int64) (Totals, error)            { panic("soon") }
func (s *Service) Notes(ctx context.Context, shopID int64) ([]Note, error)             { panic("soon") }
func (s *Service) Queues(ctx context.Context, shopID, after int64) ([]QueueRow, error) { panic("soon") }
func (s *Service) Queue(ctx context.Context, shopID, variantID, after int64) (QueueRow, []EntryRow, error) {
	panic("soon")
}
func (s *Service) Restocks(ctx context.Context, shopID, after int64) ([]RestockRow, error) {
	panic("soon")
}
func (s *Service) Restock(ctx context.Context, shopID, id int64) (RestockStory, error) { panic("soon") }
func (s *Service) Holds(ctx context.Context, shopID, after int64) ([]HoldRow, error)   { panic("soon") }
func (s *Service) OptOuts(ctx context.Context, shopID, after int64) ([]OptOutRow, error) {
	panic("soon")
}
func (s *Service) Messages(ctx context.Context, shopID, after int64) ([]MessageRow, error) {
	panic("soon")
}

// ---- what the merchant does

// Approve lets an implausible restock, or rise, go on.
func (s *Service) Approve(ctx context.Context, shopID, restockID int64) error { panic("soon") }

// Decline refuses it.
func (s *Service) Decline(ctx context.Context, shopID, restockID int64) error { panic("soon") }

// ReleaseHold ends a live hold; its unit goes to the next in line.
func (s *Service) ReleaseHold(ctx context.Context, shopID, holdID int64) error { panic("soon") }

// RemoveEntry ends an entry as Leave does.
func (s *Service) RemoveEntry(ctx context.Context, shopID, entryID int64) error { panic("soon") }

// ClearNote puts a note away.
func (s *Service) ClearNote(ctx context.Context, shopID, noteID int64) error { panic("soon") }

// ChangeSettings saves settings and has every variant that people wait for observed again.
func (s *Service) ChangeSettings(ctx context.Context, shopID int64, set shop.Settings) error {
	panic("soon")
}
