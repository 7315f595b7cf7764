package shopify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"holdfast/app/waitlist"
)

// maxName is how much of a shopper's name is written in a note, in characters.
const maxName = 100

// draftNode is the fragment Draft.
type draftNode struct {
	ID               string    `json:"id"`
	Status           string    `json:"status"`
	InvoiceURL       string    `json:"invoiceUrl"`
	CreatedAt        time.Time `json:"createdAt"`
	Tags             []string  `json:"tags"`
	CustomAttributes []struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	} `json:"customAttributes"`
	Order *idNode `json:"order"`
}

func (n *draftNode) draft() (waitlist.Draft, error) {
	d := waitlist.Draft{
		HoldID:     n.hold(),
		Completed:  n.Status == "COMPLETED",
		InvoiceURL: n.InvoiceURL,
		CreatedAt:  n.CreatedAt.UTC(),
	}
	for _, a := range n.CustomAttributes {
		if a.Key == waitlist.HoldAttribute {
			d.Mark = a.Value
		}
	}
	var err error
	if d.ID, err = idOf("DraftOrder", n.ID); err != nil {
		return d, err
	}
	if n.Order != nil {
		d.OrderID, err = idOf("Order", n.Order.ID)
	}
	return d, err
}

// hold is the hold that the draft's tag says it belongs to, 0 when it says none. Only the merchant and apps
// can tag a draft.
func (n *draftNode) hold() int64 { return waitlist.HoldOf(n.Tags) }

// attributeInput is Shopify's AttributeInput.
type attributeInput struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// lineItemInput is what we use of Shopify's DraftOrderLineItemInput.
type lineItemInput struct {
	VariantID string `json:"variantId"`
	Quantity  int    `json:"quantity"`
}

// draftOrderInput is what we use of Shopify's DraftOrderInput. A field that is left out is not sent:
// null would be a value.
type draftOrderInput struct {
	LineItems                    []lineItemInput  `json:"lineItems"`
	Tags                         []string         `json:"tags"`
	CustomAttributes             []attributeInput `json:"customAttributes"`
	ReserveInventoryUntil        string           `json:"reserveInventoryUntil"`
	Email                        string           `json:"email,omitempty"`
	Note                         string           `json:"note,omitempty"`
	PresentmentCurrencyCode      string           `json:"presentmentCurrencyCode,omitempty"`
	VisibleToCustomer            bool             `json:"visibleToCustomer"`
	AcceptAutomaticDiscounts     bool             `json:"acceptAutomaticDiscounts"`
	AllowDiscountCodesInCheckout bool             `json:"allowDiscountCodesInCheckout"`
}

// CreateDraft creates the draft order of a hold: one unit, reserved until d.ReserveUntil. Shopify does
// not check that there is one, and takes no idempotency key: when the outcome is unknown the draft is
// to be looked for by FindDrafts before it is created again.
//
// A hold must not cost its person a discount, so automatic discounts and codes are allowed unless the
// merchant does not want them. The name
// goes into the note, which the merchant alone reads and the order inherits: a draft has no field for
// it, an address with nothing but a name would be a false address, and an attribute would be shown to
// the buyer. The currency is a courtesy and the unit a promise: a draft that Shopify rejects is tried
// once more in the shop's own currency.
func (c *Client) CreateDraft(ctx context.Context, shopID int64, d waitlist.NewDraft) (waitlist.Draft, error) {
	if d.HoldID <= 0 || d.VariantID <= 0 || d.ReserveUntil.IsZero() {
		return waitlist.Draft{}, errors.New("shopify: a draft needs a hold, a variant and a date until which it reserves")
	}
	input := draftOrderInput{
		LineItems:                    []lineItemInput{{VariantID: gid("ProductVariant", d.VariantID), Quantity: 1}},
		Tags:                         []string{waitlist.TagOfAll, waitlist.TagOf(d.HoldID)},
		CustomAttributes:             []attributeInput{{Key: waitlist.HoldAttribute, Value: d.Mark}},
		ReserveInventoryUntil:        d.ReserveUntil.UTC().Format(time.RFC3339),
		Email:                        d.Email,
		Note:                         note(d.Name),
		PresentmentCurrencyCode:      d.Currency,
		AcceptAutomaticDiscounts:     !d.NoAutomaticDiscounts,
		AllowDiscountCodesInCheckout: !d.NoDiscountCodes,
	}
	created, err := c.createDraft(ctx, shopID, input)
	if rejected := (*waitlist.Rejected)(nil); errors.As(err, &rejected) && input.PresentmentCurrencyCode != "" {
		input.PresentmentCurrencyCode = ""
		created, err = c.createDraft(ctx, shopID, input)
	}
	return created, err
}

func (c *Client) createDraft(ctx context.Context, shopID int64, input draftOrderInput) (waitlist.Draft, error) {
	var data struct {
		DraftOrderCreate struct {
			DraftOrder *draftNode  `json:"draftOrder"`
			UserErrors []userError `json:"userErrors"`
		} `json:"draftOrderCreate"`
	}
	if err := c.call(ctx, shopID, draftOrderCreate, map[string]any{"input": input}, &data); err != nil {
		return waitlist.Draft{}, err
	}
	n := data.DraftOrderCreate.DraftOrder
	if n == nil {
		err := rejected(data.DraftOrderCreate.UserErrors)
		if err == nil {
			err = errors.New("the answer names neither a draft nor a reason")
		}
		return waitlist.Draft{}, fmt.Errorf("shopify: create a draft in shop %d: %w", shopID, err)
	}
	created, err := n.draft()
	if err != nil {
		return waitlist.Draft{}, fmt.Errorf("shopify: create a draft in shop %d: %w", shopID, err)
	}
	return created, nil
}

// note words a draft's note. A name is whatever somebody typed.
func note(name string) string {
	name = strings.Join(strings.FieldsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if runes := []rune(name); len(runes) > maxName {
		name = string(runes[:maxName])
	}
	if name == "" {
		return ""
	}
	return "Held for " + name
}

// draftPage is the answer of draftOrders.
type draftPage struct {
	DraftOrders struct {
		Nodes    []*draftNode `json:"nodes"`
		PageInfo pageInfo     `json:"pageInfo"`
	} `json:"draftOrders"`
}

// ours are the drafts of the page that belong to a hold, oldest first. A search finds by words, and a
// merchant may use our tag: what names no hold is none of ours.
func (p draftPage) ours() ([]waitlist.Draft, error) {
	var drafts []waitlist.Draft
	for _, n := range p.DraftOrders.Nodes {
		if n == nil || n.hold() == 0 {
			continue
		}
		d, err := n.draft()
		if err != nil {
			return nil, err
		}
		drafts = append(drafts, d)
	}
	return drafts, nil
}

// FindDrafts lists the drafts of a hold, oldest first, at most ten. Shopify finds them by an index that
// may lag: a draft that was just created may be missing.
func (c *Client) FindDrafts(ctx context.Context, shopID, holdID int64) ([]waitlist.Draft, error) {
	var page draftPage
	vars := map[string]any{"query": "tag:" + quoted(waitlist.TagOf(holdID)), "first": 10}
	if err := c.call(ctx, shopID, draftOrders, vars, &page); err != nil {
		return nil, err
	}
	drafts, err := page.ours()
	if err != nil {
		return nil, fmt.Errorf("shopify: find the draft of hold %d of shop %d: %w", holdID, shopID, err)
	}
	return slices.DeleteFunc(drafts, func(d waitlist.Draft) bool { return d.HoldID != holdID }), nil
}

// ListDrafts lists the drafts of all holds, paid ones too, oldest first, from the one after a cursor;
// "" is the first page. Only those that were changed at since or later, unless since is zero; Shopify keeps
// that time to the second, so since is rounded down. next is the cursor of the next page, "" at the end; a
// page may be empty and not the last. The index behind it may lag.
func (c *Client) ListDrafts(ctx context.Context, shopID int64, since time.Time, after string) (drafts []waitlist.Draft, next string, err error) {
	var page draftPage
	query := "tag:" + quoted(waitlist.TagOfAll)
	if !since.IsZero() {
		query += " updated_at:>=" + quoted(since.UTC().Format(time.RFC3339))
	}
	vars := map[string]any{"query": query, "first": 50}
	if after != "" {
		vars["after"] = after
	}
	if err := c.call(ctx, shopID, allDraftOrders, vars, &page); err != nil {
		return nil, "", err
	}
	drafts, err = page.ours()
	if err != nil {
		return nil, "", fmt.Errorf("shopify: list the drafts of shop %d: %w", shopID, err)
	}
	if page.DraftOrders.PageInfo.HasNextPage {
		next = page.DraftOrders.PageInfo.EndCursor
	}
	return drafts, next, nil
}

// ReadDraft reads a draft. ok is false when it does not exist: it was deleted.
func (c *Client) ReadDraft(ctx context.Context, shopID, draftID int64) (d waitlist.Draft, ok bool, err error) {
	var data struct {
		DraftOrder *draftNode `json:"draftOrder"`
	}
	if err := c.call(ctx, shopID, draftOrder, map[string]any{"id": gid("DraftOrder", draftID)}, &data); err != nil {
		return d, false, err
	}
	return asked(data.DraftOrder, shopID, draftID)
}

// asked is the draft that was asked for by its id, and whether there is one.
func asked(n *draftNode, shopID, draftID int64) (d waitlist.Draft, ok bool, err error) {
	if n == nil {
		return d, false, nil
	}
	if d, err = n.draft(); err != nil {
		return waitlist.Draft{}, false, fmt.Errorf("shopify: read draft %d of shop %d: %w", draftID, shopID, err)
	}
	return d, true, nil
}

// ReadBack reads, in one query, a draft (ok is false when it was deleted) and what is sellable of its
// variant, counted as by ReadVariants. Of a variant that was deleted there is nothing to sell, not even
// what is reserved: sellable is -1.
func (c *Client) ReadBack(ctx context.Context, shopID, draftID, variantID int64, locations []int64) (d waitlist.Draft, ok bool, sellable int, err error) {
	vars := map[string]any{"draft": gid("DraftOrder", draftID), "variant": gid("ProductVariant", variantID)}
	op := readBack
	if len(locations) > 0 {
		op = readBackAt
		vars["levels"] = fewLevels
	}
	for {
		var data struct {
			DraftOrder     *draftNode `json:"draftOrder"`
			ProductVariant *struct {
				SellableOnlineQuantity int    `json:"sellableOnlineQuantity"`
				InventoryItem          levels `json:"inventoryItem"`
			} `json:"productVariant"`
		}
		if err := c.call(ctx, shopID, op, vars, &data); err != nil {
			return d, false, 0, err
		}
		switch v := data.ProductVariant; {
		case v == nil:
			sellable = -1
		case len(locations) == 0:
			sellable = v.SellableOnlineQuantity
		case v.InventoryItem.InventoryLevels.PageInfo.HasNextPage:
			if vars["levels"] == allLevels {
				return d, false, 0, fmt.Errorf("shopify: variant %d of shop %d is stocked at more than %d locations", variantID, shopID, allLevels)
			}
			vars["levels"] = allLevels
			continue
		default:
			sellable = v.InventoryItem.at(locations)
		}
		d, ok, err = asked(data.DraftOrder, shopID, draftID)
		return d, ok, sellable, err
	}
}

// DeleteDraft deletes a draft, which gives back what it reserved at once. Deleting one that is gone is
// no error. Shopify deletes a paid draft, too, which undoes nothing: read it first.
func (c *Client) DeleteDraft(ctx context.Context, shopID, draftID int64) error {
	var data struct {
		DraftOrderDelete struct {
			DeletedID  *string     `json:"deletedId"`
			UserErrors []userError `json:"userErrors"`
		} `json:"draftOrderDelete"`
	}
	vars := map[string]any{"input": map[string]any{"id": gid("DraftOrder", draftID)}}
	if err := c.call(ctx, shopID, draftOrderDelete, vars, &data); err != nil {
		return err
	}
	if data.DraftOrderDelete.DeletedID != nil {
		return nil
	}
	// User errors of draft orders have no code, only words. Whether it is gone is asked, not guessed.
	if _, ok, err := c.ReadDraft(ctx, shopID, draftID); err != nil || !ok {
		return err
	}
	err := rejected(data.DraftOrderDelete.UserErrors)
	if err == nil {
		err = errors.New("the answer names neither a deleted draft nor a reason")
	}
	return fmt.Errorf("shopify: delete draft %d of shop %d: %w", draftID, shopID, err)
}
