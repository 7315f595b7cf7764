package waitlist

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"holdfast/app/shop"
)

// Channel is how a contact is reached.
type Channel string

const (
	Email Channel = "email"
	SMS   Channel = "sms"
)

// The states of an entry.
const (
	Waiting    = "waiting"
	Offered    = "offered"
	Holding    = "holding"
	Sold       = "sold"
	Left       = "left"
	Expired    = "expired"
	Suppressed = "suppressed"
)

// Why a contact is never to be messaged by a shop.
const (
	Stop         = "stop"        // answered STOP to a text
	Unsubscribed = "unsubscribe" // by the link or the button of a mail program
	Bounced      = "bounce"      // the address is dead
	Complained   = "complaint"   // reported as spam
	ByMerchant   = "merchant"    // the merchant put it there
)

var (
	// ErrInvalidLink is every link that is not ours or that names nothing any more.
	ErrInvalidLink = shop.ErrToken
	// ErrNotFound is a row that this shop does not have.
	ErrNotFound = errors.New("not found")
	// ErrUnknownVariant is a variant that cannot be waited for: unknown, archived, draft or unpublished.
	ErrUnknownVariant = errors.New("unknown variant")
	// ErrAmbiguousSKU is a SKU that several variants carry.
	ErrAmbiguousSKU = errors.New("several variants have this SKU")
	// ErrLater is a step that cannot go on now and must be run again: nothing is wrong.
	ErrLater = errors.New("later")
)

// Invalid is input that cannot be used: Code is one of the codes of the storefront API, Field the
// field at fault and Message a sentence for the person who typed it.
type Invalid struct{ Code, Field, Message string }

func (e *Invalid) Error() string { return e.Message }

// RateLimited is a tap that comes too soon after too many others. Nothing was written.
type RateLimited struct{ RetryAfter time.Duration }

func (e *RateLimited) Error() string {
	return "too many requests, try again in " + e.RetryAfter.String()
}

// Service is the domain over one database. Its methods may be called by any number of goroutines and
// processes at once.
type Service struct {
	db      *pgxpool.Pool
	jobs    *river.Client[pgx.Tx]
	keys    *shop.Keys
	shopify Shopify
	sender  Sender
	now     func() time.Time
	point   Point
	log     *slog.Logger
	presses *gatherer[restockLine, int64, struct{}]
	reads   *gatherer[stockLine, int64, VariantReading]
}

// Point is asked at the named points where a process may die: claim_commit, draft_create,
// draft_delete, send, release_commit, webhook_commit; when is "before" or "after". In production it
// does nothing; the demo and the crash tests let it kill the process, or cut the step by an error.
type Point func(ctx context.Context, name, when string) error

// NoPoint is the Point of production.
func NoPoint(context.Context, string, string) error { return nil }

// New returns the domain. jobs needs to insert only. now is the clock of everything but the order of
// the queue, which is the database's.
func New(db *pgxpool.Pool, jobs *river.Client[pgx.Tx], keys *shop.Keys, shopify Shopify, sender Sender, now func() time.Time, point Point, log *slog.Logger) *Service {
	s := &Service{db: db, jobs: jobs, keys: keys, shopify: shopify, sender: sender, now: now, point: point, log: log}
	s.presses = newPresses(s.claim)
	s.reads = newReads(func(ctx context.Context, shopID int64, ids, locations []int64) (map[int64]VariantReading, error) {
		return s.shopify.ReadVariants(ctx, shopID, ids, locations)
	})
	return s
}
