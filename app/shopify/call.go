package shopify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	goshopify "github.com/bold-commerce/go-shopify/v4"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

// call runs an operation for a shop and decodes its data into into, a pointer. It is made once: who
// called makes it again, or not. Its error is what waitlist.Shopify says of errors.
func (c *Client) call(ctx context.Context, shopID int64, op operation, vars map[string]any, into any) error {
	a, err := c.try(ctx, shopID, op, vars, into)
	if err != nil {
		err = fmt.Errorf("shopify: %s for shop %d: %w", op.name, shopID, err)
		c.log.DebugContext(ctx, "call to Shopify failed", "op", op.name, "shop", shopID, "err", err)
	}
	c.called(op.name, shopID, a.cost(), err)
	return err
}

// try is call without the telling. The answer is nil when there was none.
func (c *Client) try(ctx context.Context, shopID int64, op operation, vars map[string]any, into any) (*answer, error) {
	domain, token, err := c.access(ctx, shopID)
	if err != nil {
		return nil, err
	}
	text, err := op.text()
	if err != nil {
		return nil, err
	}
	points := float64(op.points(vars))
	bucket := c.bucket(shopID)
	if wait := bucket.take(points, c.now()); wait > 0 {
		return nil, &waitlist.Throttled{After: wait}
	}

	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	t := &transport{shop: domain, sim: c.sim, base: c.transport}
	queryErr := c.query(ctx, t, domain, token, text, vars, into)
	bucket.settle(points, t.answer.throttle(), c.now())

	if t.answer == nil {
		return nil, queryErr // it went wrong on the way; it may have arrived
	}
	err = t.answer.err()
	if throttled := (*waitlist.Throttled)(nil); errors.As(err, &throttled) && t.answer.throttle() == nil {
		bucket.close(c.now().Add(throttled.After))
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

// access returns a shop's domain and token. A shop that has left is refused here as Shopify would.
func (c *Client) access(ctx context.Context, shopID int64) (domain, token string, err error) {
	sh, err := c.shops.ByID(ctx, shopID)
	if err == nil && sh.Installed {
		token, err = c.shops.Token(ctx, shopID)
	}
	if errors.Is(err, shop.ErrNotFound) || (err == nil && token == "") {
		return "", "", &waitlist.ShopRefused{Status: http.StatusUnauthorized, Why: "the app is not installed in the shop"}
	}
	if err != nil {
		return "", "", err
	}
	if !shop.ValidDomain(sh.Domain) {
		return "", "", fmt.Errorf("%q is not a shop's domain", sh.Domain)
	}
	return sh.Domain, token, nil
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
