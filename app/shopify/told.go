package shopify

import (
	"errors"
	"time"

	"holdfast/app/waitlist"
)

// Call is a call that has ended, or that was not made, for whoever counts.
type Call struct {
	Op     string // the root field that it asked for: draftOrderCreate, nodes, ...
	ShopID int64
	// Points is what it cost: 0 when Shopify did not say, or was not asked.
	Points float64
	// Took is how long its caller has waited, in real time.
	Took time.Duration
	Err  error
}

// Outcome is what became of a call, in one word:
//
//	ok         Shopify has answered; its answer may still be that it does not do what a mutation asks for
//	throttled  kept back by the budget, or refused by Shopify's rate limit
//	refused    the shop takes no call of the app
//	rejected   Shopify says that the call makes no sense
//	away       not made: Shopify did not answer the last ones
//	failed     no answer, or none that can be used: it may have been carried out
func (c Call) Outcome() string {
	switch {
	case c.Err == nil:
		return "ok"
	case errors.As(c.Err, new(*waitlist.Throttled)):
		return "throttled"
	case errors.As(c.Err, new(*waitlist.ShopRefused)):
		return "refused"
	case errors.As(c.Err, new(*waitlist.Rejected)):
		return "rejected"
	case errors.As(c.Err, new(*waitlist.Away)):
		return "away"
	default:
		return "failed"
	}
}

// Budgets is how the shops are that this process has called.
type Budgets struct {
	Shops int
	Low   int // have less than a fifth of their points left
	Away  int // are left alone, since Shopify does not answer for them
}

// Budgets counts the shops that this process has called, by what is believed of them now.
func (c *Client) Budgets() Budgets {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, now := Budgets{Shops: len(c.buckets)}, c.now()
	for _, b := range c.buckets {
		b.mu.Lock()
		if b.levelLocked(now)-b.underWay < forReserving*b.max {
			n.Low++
		}
		if b.pause > 0 {
			n.Away++
		}
		b.mu.Unlock()
	}
	return n
}
