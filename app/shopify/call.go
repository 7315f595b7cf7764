package shopify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	goshopify "github.com/bold-commerce/go-shopify/v4"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

// call runs an operation for a shop and decodes its data into into, a pointer. It is made once: who
// called makes it again, or not. Its error is what waitlist.Shopify says of errors.
func (c *Client) call(ctx context.Context, shopID int64, op operation, vars map[string]any, into any) error {
	begun := time.Now()
	a, err := c.try(ctx, shopID, op, vars, into)
	if err != nil {
		err = fmt.Errorf("shopify: %s for shop %d: %w", op.name, shopID, err)
		c.log.DebugContext(ctx, "call to Shopify failed", "op", op.name, "shop", shopID, "err", err)
	}
	c.called(Call{Op: op.name, ShopID: shopID, Points: a.cost(), Took: time.Since(begun), Err: err})
	return err
}

// try is call without the telling. The answer is nil when there was none. A call that Shopify answers with
// 401 did nothing: it is made once more with another token, if there is one.
func (c *Client) try(ctx context.Context, shopID int64, op operation, vars map[string]any, into any) (*answer, error) {
	sh, g, err := c.access(ctx, shopID)
	if err != nil {
		return nil, err
	}
	a, err := c.send(ctx, c.bucket(shopID), sh.Domain, g.Token, op, vars, into)
	if a != nil && a.status == http.StatusUnauthorized {
		other, noToken := c.tokens.After401(ctx, sh, g)
		if noToken != nil {
			return a, noToken
		}
		g = other
		a, err = c.send(ctx, c.bucket(shopID), sh.Domain, g.Token, op, vars, into)
	}
	if a != nil && a.status == http.StatusOK && g.Refused {
		err = errors.Join(err, c.shops.AcceptGrant(ctx, shopID, g))
	}
	return a, err
}

// send makes one call with a token. The answer is nil when there was none.
func (c *Client) send(ctx context.Context, b *bucket, domain, token string, op operation, vars map[string]any, into any) (*answer, error) {
	text, err := op.text()
	if err != nil {
		return nil, err
	}
	probe, away := b.admit(c.now())
	if away != nil {
		return nil, away
	}
	points := float64(op.points(vars))
	if wait := b.take(points, op.keep, c.now()); wait > 0 {
		b.skip(probe)
		return nil, &waitlist.Throttled{After: wait}
	}
	caller := ctx

	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	t := &transport{shop: domain, sim: c.sim, base: c.transport}
	queryErr := c.query(ctx, t, domain, token, text, vars, into)
	b.settle(points, t.answer.throttle(), c.now())
	b.answered(t.answer, probe, caller.Err() != nil, c.now())

	if t.answer == nil {
		return nil, queryErr // it went wrong on the way; it may have arrived
	}
	err = t.answer.err()
	if throttled := (*waitlist.Throttled)(nil); errors.As(err, &throttled) && t.answer.throttle() == nil {
		b.close(c.now().Add(throttled.After))
	}
	if err == nil && queryErr != nil {
		err = fmt.Errorf("the data has another form than the document asks for: %w", queryErr)
	}
	return t.answer, err
}

// query hands the call to go-shopify. A client of its own for each call, since go-shopify's is not safe
// for concurrent use; no retries, since it sleeps through a context that has ended.
func (c *Client) query(ctx context.Context, t *transport, domain, token, text string, vars map[string]any, into any) error {
	client, err := goshopify.NewClient(c.app, domain, token,
		goshopify.WithVersion(c.version),
		goshopify.WithRetry(0),
		goshopify.WithHTTPClient(&http.Client{Transport: t}))
	if err != nil {
		return err
	}
	return client.GraphQL.Query(ctx, text, vars, into)
}

// access returns a shop and what it has granted. A shop that has left is refused here as Shopify would.
func (c *Client) access(ctx context.Context, shopID int64) (shop.Shop, shop.Grant, error) {
	sh, err := c.shops.ByID(ctx, shopID)
	if errors.Is(err, shop.ErrNotFound) || (err == nil && !sh.Installed) {
		return sh, shop.Grant{}, notInstalled()
	}
	if err != nil {
		return sh, shop.Grant{}, err
	}
	if !shop.ValidDomain(sh.Domain) {
		return sh, shop.Grant{}, fmt.Errorf("%q is not a shop's domain", sh.Domain)
	}
	g, err := c.tokens.Grant(ctx, sh)
	return sh, g, err
}

// userError is why Shopify does not do what a mutation asks for.
type userError struct {
	Field   []string `json:"field"`
	Message string   `json:"message"`
}

// rejected is nil when there is no user error.
func rejected(errs []userError) error {
	if len(errs) == 0 {
		return nil
	}
	texts := make([]string, len(errs))
	for i, e := range errs {
		texts[i] = e.Message
		if len(e.Field) > 0 {
			texts[i] = strings.Join(e.Field, ".") + ": " + e.Message
		}
	}
	return &waitlist.Rejected{Why: strings.Join(texts, "; ")}
}
