package waitlist

import (
	"context"
	"time"

	"holdfast/app/shop"
)

// Shopify is what the domain needs of Shopify, for one shop at a time. A call that did not happen or
// whose outcome is unknown returns an error and is made again by whoever made it; Throttled and
// ShopRefused are told apart with errors.As.
type Shopify interface {
	// Budget returns nil when a call that may cost so many points can be made now, or *Throttled, or
	// *Away.
	// It calls nobody: it is asked before a hold's clock is started.
	Budget(ctx context.Context, shopID int64, points int) error
	// ReadVariants reads variants as they are now, each with S, its sellable quantity: at the given
	// locations, or for all online sales when there are none. A variant that does not exist is
	// missing from the map.
	ReadVariants(ctx context.Context, shopID int64, ids []int64, locations []int64) (map[int64]VariantReading, error)
	// FindVariants finds the variants that carry a SKU, at most two; their stock is to be read by id.
	FindVariants(ctx context.Context, shopID int64, sku string) ([]VariantReading, error)
	// DefaultLocation returns the location at which Shopify reserves what drafts hold. It cannot be chosen.
	DefaultLocation(ctx context.Context, shopID int64) (int64, error)
	// CreateDraft creates a draft order that reserves one unit and returns it. Shopify does not check
	// stock, and takes no idempotency key: after an unknown outcome there may be one or none.
	CreateDraft(ctx context.Context, shopID int64, d NewDraft) (Draft, error)
	// FindDrafts lists the drafts that carry the tag of a hold. The index behind it may lag: a draft
	// that was just created may be missing.
	FindDrafts(ctx context.Context, shopID, holdID int64) ([]Draft, error)
	// ListDrafts lists our drafts, of any hold, oldest first, starting after a cursor ("" = the first);
	// next is "" at the end. Only those that were changed at since or later, unless since is zero.
	ListDrafts(ctx context.Context, shopID int64, since time.Time, after string) (drafts []Draft, next string, err error)
	// ReadDraft reads a draft. ok is false when it does not exist: it was deleted.
	ReadDraft(ctx context.Context, shopID, draftID int64) (d Draft, ok bool, err error)
	// ReadBack reads, in one query, a draft (ok false: deleted) and S of its variant.
	ReadBack(ctx context.Context, shopID, draftID, variantID int64, locations []int64) (d Draft, ok bool, sellable int, err error)
	// DeleteDraft deletes a draft. Deleting one that is gone is no error.
	DeleteDraft(ctx context.Context, shopID, draftID int64) error

	// Profile reads what a shop says of itself.
	Profile(ctx context.Context, shopID int64) (shop.Profile, error)
	// StartCatalogue asks Shopify to write out every variant of a shop and returns the id under which
	// Catalogue knows the export. Throttled means that too many exports are being written already. After
	// an unknown outcome one may be written that nobody knows of, which does no harm.
	StartCatalogue(ctx context.Context, shopID int64) (operation string, err error)
	// Catalogue reads how far an export is.
	Catalogue(ctx context.Context, shopID int64, operation string) (CatalogueExport, error)
	// ReadCatalogue reads a finished export and hands its variants to each, at most 500 at a time; the
	// slice is good until each returns. An error of each ends it. Only when it returns nil has each seen
	// every variant. A reading is as old as the export, shows the product's picture and not the
	// variant's own, and leaves SharedItem false, whether or not it is; its Sellable is not S.
	ReadCatalogue(ctx context.Context, shopID int64, e CatalogueExport, each func([]VariantReading) error) error
	// ReadProduct reads every variant of a product; none when the product does not exist.
	ReadProduct(ctx context.Context, shopID, productID int64) ([]VariantReading, error)
}

// Throttled means that the shop's API budget is used up for now. The call was not made.
type Throttled struct{ After time.Duration }

func (e *Throttled) Error() string { return "Shopify's rate limit: again in " + e.After.String() }

// Away means that Shopify did not answer a shop's last calls: none is made for a while. The call was not
// made.
type Away struct {
	After time.Duration // until it is called again
	Since time.Time     // when the first of those calls was made
}

func (e *Away) Error() string {
	return "Shopify has not answered since " + e.Since.UTC().Format(time.RFC3339)
}

// ShopRefused means that Shopify refuses every call for this shop: its token is invalid, or the shop
// is frozen, locked or gone. Status is the HTTP status (401, 402, 403, 404, 423).
type ShopRefused struct {
	Status int
	Why    string
}

func (e *ShopRefused) Error() string { return "Shopify refuses this shop: " + e.Why }

// Rejected means that Shopify understood a call and says no: it will say so again.
type Rejected struct{ Why string }

func (e *Rejected) Error() string { return "Shopify says: " + e.Why }

// VariantReading is a variant as Shopify has it.
type VariantReading struct {
	ID, ProductID, InventoryItemID       int64
	SKU, Title, ProductTitle, Handle     string
	ImageURL, Price                      string
	Active                               bool // the product is sold: its status is ACTIVE or UNLISTED
	Published                            bool // to the online store
	Tracked, ContinueSelling, Components bool
	SharedItem                           bool // its inventory item backs other variants too
	Sellable                             int  // S: may be negative
}

// NewDraft is a draft order to be created for a hold: one unit, tagged TagOf(HoldID), with the
// attribute _holdfast_hold = Mark, not visible to the customer.
type NewDraft struct {
	HoldID, VariantID int64
	Mark              string // proves to us that an order is this hold's: buyers write attributes, too
	ReserveUntil      time.Time
	Name, Email       string // of the shopper; the email is empty for an entry by text
	Currency          string // presentment currency; empty = the shop's

	NoAutomaticDiscounts bool // the shop's automatic discounts do not apply
	NoDiscountCodes      bool // the checkout takes no discount codes
}

// Draft is a draft order of ours.
type Draft struct {
	ID         int64
	HoldID     int64 // from its attribute or tag; 0 when it is none of ours
	Completed  bool  // status COMPLETED: it was paid
	InvoiceURL string
	OrderID    int64 // of a completed draft; 0 when unknown
	CreatedAt  time.Time
	Mark       string // the value of its attribute _holdfast_hold; "" when it has none
}

// CatalogueExport is a list of every variant of a shop that Shopify was asked to write out.
type CatalogueExport struct {
	Operation string // Shopify's id of it
	State     ExportState
	Objects   int    // written so far
	URL       string // where a finished one is read, for 7 days; "" when the shop has no variants
	Why       string // of a failed one, in Shopify's words
}

// ExportState is how far an export is.
type ExportState string

const (
	ExportRunning  ExportState = "running"
	ExportFinished ExportState = "finished"
	ExportFailed   ExportState = "failed" // also when it was cancelled or is not known any more
)

// Sender sends messages.
type Sender interface {
	// Send hands one message to the provider and returns the provider's id of it. It must give up
	// well within SendTimeout. Its error, if any, is a *SendError.
	Send(ctx context.Context, m Outgoing) (providerID string, err error)
	// Find looks for a message whose outcome is unknown. found is true when the provider has it;
	// known is false when this channel's provider cannot tell.
	Find(ctx context.Context, m Outgoing) (providerID string, found, known bool, err error)
	// Segments is as how many texts a message is paid when it is sent as a text.
	Segments(m Outgoing) int
}

// SendTimeout is the longest that a send may take.
const SendTimeout = 20 * time.Second

// Outgoing is a notice, ready to be worded and sent. Its three links carry tokens; the sender puts
// the public address before them.
type Outgoing struct {
	ShopID, MessageID int64
	Attempt           int       // 1 for the first
	AttemptedAt       time.Time // when this attempt was committed
	Channel           Channel
	To                string            // E.164 or mail address
	Name              string            // of the shopper, may be empty
	Locale            string            // of the shopper, BCP 47; may be empty
	ShopLocale        string            // of the shop
	Wording           map[string]string // the merchant's own sentences for this language, by their keys in app/words
	ShopName, ReplyTo string
	ProductTitle      string
	VariantTitle      string
	ImageURL, Price   string
	Window            time.Duration // how long the offer stands once the message is accepted
	Reserved          bool          // the unit is held already, for the window
	HoldMinutes       int           // and from a press on for so long
	ReserveToken      string        // /r
	UnsubscribeToken  string        // /u
	PlaceToken        string        // /q
}

// SendError says what became of a message that was not accepted, or was not delivered, and what follows
// from it.
type SendError struct {
	Outcome Outcome
	Code    string        // the provider's code, for the log and the merchant
	Why     string        // in plain words
	All     bool          // Retry: it holds for every message by this channel, not for this one alone
	After   time.Duration // Retry and Once: wait at least this long; SenderPaused: for so long
	Strikes int           // GiveUp and Once: the so-many'th failure of a contact with this code within 30 days is a bounce; 0 = none is
	Sender  SenderEffect
}

func (e *SendError) Error() string { return e.Why }

// Outcome is what a failure means for the message and its unit.
type Outcome string

const (
	Retry     Outcome = "retry"      // it was not sent, and may be later: nothing left this machine, or the provider said "not now"
	Once      Outcome = "once"       // it was not delivered, and may be if it is sent once more while there is time
	Unknown   Outcome = "unknown"    // it may have been accepted
	DeadAddr  Outcome = "dead"       // the address does not exist: suppress it (bounce)
	OptedOut  Outcome = "opted_out"  // the provider knows of a STOP: suppress it (stop)
	GiveUp    Outcome = "give_up"    // this message will never arrive; the person is not at fault
	ShopFault Outcome = "shop_fault" // nothing leaves the shop's sender: the offer is taken back and does not count as told
)

// SenderEffect is what a failure means for the shop's other messages by the same channel.
type SenderEffect string

const (
	SenderFine    SenderEffect = ""
	SenderTold    SenderEffect = "told"    // the merchant reads of it
	SenderOff     SenderEffect = "off"     // none is sent until the merchant has checked the sender
	SenderPaused  SenderEffect = "pause"   // none is sent for a while
	SenderCountry SenderEffect = "country" // none to numbers of that country, until the merchant says so
)
