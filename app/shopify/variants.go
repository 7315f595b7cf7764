package shopify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/app/waitlist"
)

const (
	// maxIDs is the longest list that Shopify takes as an argument.
	maxIDs = 250
	// fewLevels is how many locations of an item are asked for at first. Few items are stocked at more;
	// those that are, are read again with allLevels, which is also the longest page that Shopify gives.
	fewLevels = 10
	allLevels = 250
)

// variantNode is the fragment Variant, with Levels when it was asked for.
type variantNode struct {
	ID                     string `json:"id"`
	SKU                    string `json:"sku"`
	Title                  string `json:"title"`
	Price                  string `json:"price"`
	InventoryPolicy        string `json:"inventoryPolicy"`
	SellableOnlineQuantity int    `json:"sellableOnlineQuantity"`
	RequiresComponents     bool   `json:"requiresComponents"`
	Media                  struct {
		Nodes []mediaNode `json:"nodes"`
	} `json:"media"`
	Product struct {
		ID            string     `json:"id"`
		Title         string     `json:"title"`
		Handle        string     `json:"handle"`
		Status        string     `json:"status"`
		PublishedAt   *time.Time `json:"publishedAt"`
		FeaturedMedia *mediaNode `json:"featuredMedia"`
	} `json:"product"`
	InventoryItem struct {
		ID       string `json:"id"`
		Tracked  bool   `json:"tracked"`
		Variants struct {
			Nodes []idNode `json:"nodes"`
		} `json:"variants"`
		levels
	} `json:"inventoryItem"`
}

type idNode struct {
	ID string `json:"id"`
}

type mediaNode struct {
	Preview *struct {
		Image *struct {
			URL string `json:"url"`
		} `json:"image"`
	} `json:"preview"`
}

// url is the picture's address, empty while Shopify is still working on it.
func (m *mediaNode) url() string {
	if m == nil || m.Preview == nil || m.Preview.Image == nil {
		return ""
	}
	return m.Preview.Image.URL
}

type pageInfo struct {
	HasNextPage bool   `json:"hasNextPage"`
	EndCursor   string `json:"endCursor"`
}

// levels is the fragment Levels.
type levels struct {
	InventoryLevels struct {
		Nodes []struct {
			Location   idNode `json:"location"`
			Quantities []struct {
				Name     string `json:"name"`
				Quantity int    `json:"quantity"`
			} `json:"quantities"`
		} `json:"nodes"`
		PageInfo pageInfo `json:"pageInfo"`
	} `json:"inventoryLevels"`
}

// at is the sum of what is available at the given locations; a location where the item is not stocked
// has nothing.
func (l levels) at(locations []int64) int {
	sum := 0
	for _, n := range l.InventoryLevels.Nodes {
		id, err := idOf("Location", n.Location.ID)
		if err != nil || !slices.Contains(locations, id) {
			continue
		}
		for _, q := range n.Quantities {
			if q.Name == "available" {
				sum += q.Quantity
			}
		}
	}
	return sum
}

// ReadVariants reads variants as they are now, in as few calls as Shopify's limit of points allows. A
// variant that does not exist, or an id that no variant can have, is missing from the map. All numbers
// of one variant are from one query. With an error comes what had been read before it: a shop's budget may
// not last for all of many variants.
//
// Sellable is Shopify's sellableOnlineQuantity when no locations are given, else the sum of available
// at those locations.
func (c *Client) ReadVariants(ctx context.Context, shopID int64, ids, locations []int64) (map[int64]waitlist.VariantReading, error) {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return id <= 0 })
	slices.Sort(ids)
	ids = slices.Compact(ids)

	found := make(map[int64]waitlist.VariantReading, len(ids))
	if len(locations) == 0 {
		_, err := c.readVariants(ctx, shopID, nodes, ids, nil, 0, found)
		return found, err
	}
	more, err := c.readVariants(ctx, shopID, nodesAt, ids, locations, fewLevels, found)
	if err != nil {
		return found, err
	}
	more, err = c.readVariants(ctx, shopID, nodesAt, more, locations, allLevels, found)
	if err != nil {
		return found, err
	}
	if len(more) > 0 {
		return found, fmt.Errorf("shopify: variant %d of shop %d is stocked at more than %d locations", more[0], shopID, allLevels)
	}
	return found, nil
}

// readVariants reads into found and returns the ids that have more levels than were asked for.
func (c *Client) readVariants(ctx context.Context, shopID int64, op operation, ids, locations []int64, levels int, found map[int64]waitlist.VariantReading) (more []int64, err error) {
	size := min(maxIDs, maxCost/(op.perID+op.perLvl*levels))
	for chunk := range slices.Chunk(ids, size) {
		gids := make([]string, len(chunk))
		for i, id := range chunk {
			gids[i] = gid("ProductVariant", id)
		}
		vars := map[string]any{"ids": gids}
		if levels > 0 {
			vars["levels"] = levels
		}
		var data struct {
			Nodes []*variantNode `json:"nodes"`
		}
		if err := c.call(ctx, shopID, op, vars, &data); err != nil {
			return nil, err
		}
		for _, n := range data.Nodes {
			if n == nil {
				continue
			}
			r, err := c.reading(n)
			if err != nil {
				return nil, fmt.Errorf("shopify: read variants of shop %d: %w", shopID, err)
			}
			if levels > 0 {
				if n.InventoryItem.InventoryLevels.PageInfo.HasNextPage {
					more = append(more, r.ID)
					continue
				}
				r.Sellable = n.InventoryItem.at(locations)
			}
			found[r.ID] = r
		}
	}
	return more, nil
}

// reading is what a node says.
//
// A product is published to the online store when its publishedAt is set and past. The other fields
// that tell need the scopes read_publications or read_product_listings, or (onlineStoreUrl) are null
// for every product of a store that is behind a password. UNLISTED counts as active: such a product is
// sold to whoever has its link, as the people do who wait for it.
func (c *Client) reading(n *variantNode) (waitlist.VariantReading, error) {
	r := waitlist.VariantReading{
		SKU: n.SKU, Title: n.Title, ProductTitle: n.Product.Title, Handle: n.Product.Handle, Price: n.Price,
		ImageURL:        n.Product.FeaturedMedia.url(),
		Active:          n.Product.Status == "ACTIVE" || n.Product.Status == "UNLISTED",
		Published:       n.Product.PublishedAt != nil && !n.Product.PublishedAt.After(c.now()),
		Tracked:         n.InventoryItem.Tracked,
		ContinueSelling: n.InventoryPolicy == "CONTINUE",
		Components:      n.RequiresComponents,
		SharedItem:      len(n.InventoryItem.Variants.Nodes) > 1,
		Sellable:        n.SellableOnlineQuantity,
	}
	if len(n.Media.Nodes) > 0 && n.Media.Nodes[0].url() != "" { // its own picture rather than the product's
		r.ImageURL = n.Media.Nodes[0].url()
	}
	var err error
	if r.ID, err = idOf("ProductVariant", n.ID); err != nil {
		return r, err
	}
	if r.ProductID, err = idOf("Product", n.Product.ID); err != nil {
		return r, err
	}
	r.InventoryItemID, err = idOf("InventoryItem", n.InventoryItem.ID)
	return r, err
}

// pageOfProduct is how many variants of a product are asked for at once. Most products have fewer.
const pageOfProduct = 25

// ReadProduct reads every variant of a product as it is now; none when the product does not exist. Sellable
// counts all online sales, as ReadVariants does without locations. A product that is changed between two
// pages may be read half before and half after.
//
// A product may have 2,048 variants, more than a shop's points may last for at once: between two pages it
// waits until they do, so it is to be given the time. Without it the error is *waitlist.Throttled.
func (c *Client) ReadProduct(ctx context.Context, shopID, productID int64) ([]waitlist.VariantReading, error) {
	var all []waitlist.VariantReading
	vars := map[string]any{"id": gid("Product", productID), "first": pageOfProduct}
	for {
		var data struct {
			Product *struct {
				Variants struct {
					Nodes    []*variantNode `json:"nodes"`
					PageInfo pageInfo       `json:"pageInfo"`
				} `json:"variants"`
			} `json:"product"`
		}
		err := c.call(ctx, shopID, product, vars, &data)
		if throttled := (*waitlist.Throttled)(nil); errors.As(err, &throttled) && len(all) > 0 && pause(ctx, throttled.After) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if data.Product == nil {
			return nil, nil
		}
		for _, n := range data.Product.Variants.Nodes {
			r, err := c.reading(n)
			if err != nil {
				return nil, fmt.Errorf("shopify: read product %d of shop %d: %w", productID, shopID, err)
			}
			all = append(all, r)
		}
		page := data.Product.Variants.PageInfo
		if !page.HasNextPage {
			return all, nil
		}
		if page.EndCursor == "" || page.EndCursor == vars["after"] {
			return nil, fmt.Errorf("shopify: read product %d of shop %d: a page of its variants leads nowhere", productID, shopID)
		}
		vars["after"] = page.EndCursor
	}
}

// pause waits, and says whether there was the time to.
func pause(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// FindVariants finds the variants that carry exactly this SKU, at most two: one is the answer, two mean
// that the SKU does not tell them apart. An empty SKU finds nothing. Shopify's search also finds SKUs
// that are alike, in other cases for example; those are left out.
func (c *Client) FindVariants(ctx context.Context, shopID int64, sku string) ([]waitlist.VariantReading, error) {
	if strings.TrimSpace(sku) == "" {
		return nil, nil
	}
	var data struct {
		ProductVariants struct {
			Nodes []*variantNode `json:"nodes"`
		} `json:"productVariants"`
	}
	if err := c.call(ctx, shopID, productVariants, map[string]any{"query": "sku:" + quoted(sku)}, &data); err != nil {
		return nil, err
	}
	var found []waitlist.VariantReading
	for _, n := range data.ProductVariants.Nodes {
		if n == nil || n.SKU != sku || len(found) == 2 {
			continue
		}
		r, err := c.reading(n)
		if err != nil {
			return nil, fmt.Errorf("shopify: find a SKU in shop %d: %w", shopID, err)
		}
		found = append(found, r)
	}
	return found, nil
}

// DefaultLocation returns the id of the location at which drafts reserve.
func (c *Client) DefaultLocation(ctx context.Context, shopID int64) (int64, error) {
	var data struct {
		Location *idNode `json:"location"`
	}
	if err := c.call(ctx, shopID, defaultLocation, nil, &data); err != nil {
		return 0, err
	}
	if data.Location == nil {
		return 0, fmt.Errorf("shopify: shop %d has no default location", shopID)
	}
	return idOf("Location", data.Location.ID)
}
