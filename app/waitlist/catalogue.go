package waitlist

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
)

// The catalogue: every variant of a shop, so that a theme's question about one asks Shopify nothing, and what
// a shop sells is known while Shopify is away. It is read from an export:
//
//	due ─▶ asked for ─▶ Shopify writes it ─▶ read, 500 variants at a time ─▶ due again in a day
//	                        └─ failed ─▶ asked for again
//
// and mended between two by what products/* webhooks say, product by product. How far it is stands in the
// shop's row of catalogues: whoever goes on, goes on from there. Of two words about a variant the later one
// counts, and nobody is told anything by it: stock is read by Observe alone.
const (
	// catalogueEvery is how long an export is good enough: what webhooks lost is mended by the next.
	catalogueEvery = 24 * time.Hour
	// An export takes Shopify seconds or hours: it is looked at when half as much time again has passed as
	// it took so far, within these bounds.
	soonestLook, latestLook = 250 * time.Millisecond, 15 * time.Second
	// readingSpan is how long one job reads an export; the next goes on where it was.
	readingSpan = 30 * time.Second
	// productEvery is how often a product is read at most, however many webhooks it has.
	productEvery = 5 * time.Second
)

// Wait asks to be called again after a time: what is waited for is not there yet. Nothing is wrong.
type Wait struct{ After time.Duration }

func (e *Wait) Error() string { return "not there yet: again in " + e.After.String() }

// catalogue is a row of catalogues.
type catalogue struct {
	Operation *string    `db:"operation"`
	AskedAt   *time.Time `db:"asked_at"`
	Kept      int        `db:"kept"`
}

// sweepCatalogue queues the export that is due.
func (s *Service) sweepCatalogue(ctx context.Context, shopID int64, now time.Time) (int, error) {
	return 0, pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE catalogues SET due_at = $2 WHERE shop_id = $1 AND due_at <= $3`, shopID, now.Add(catalogueEvery), now)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return s.queue(ctx, tx, []river.InsertManyParams{{Args: CatalogueJob{ShopID: shopID}}})
	})
}

// ReadCatalogue takes a shop's export on: it asks for one when none is under way, looks how far it is, and
// reads it when it is written. It returns *Wait until it is read to its end; it may be called any number of
// times, after a kill and twice at once, and goes on where the export is. After an answer to the asking that
// was lost there may be an export that nobody reads, which does no harm.
func (s *Service) ReadCatalogue(ctx context.Context, shopID int64) error {
	if err := s.readCatalogue(ctx, shopID); err != nil {
		return fmt.Errorf("catalogue of shop %d: %w", shopID, s.shopifyTrouble(ctx, shopID, err))
	}
	return nil
}

func (s *Service) readCatalogue(ctx context.Context, shopID int64) error {
	rows, _ := s.db.Query(ctx, `SELECT operation, asked_at, kept FROM catalogues c JOIN shops s ON s.id = c.shop_id WHERE c.shop_id = $1 AND s.state = 'installed'`, shopID)
	c, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[catalogue])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // the app was removed
	}
	if err != nil {
		return err
	}
	if c.Operation == nil {
		asked := s.now()
		operation, err := s.shopify.StartCatalogue(ctx, shopID)
		if err != nil {
			return err
		}
		// Not when another was asked for meanwhile: that one is read.
		if _, err := s.db.Exec(ctx, `UPDATE catalogues SET operation = $2, asked_at = $3, objects = 0, kept = 0 WHERE shop_id = $1 AND operation IS NULL`, shopID, operation, asked); err != nil {
			return err
		}
		return &Wait{soonestLook}
	}
	export, err := s.shopify.Catalogue(ctx, shopID, *c.Operation)
	if err != nil {
		return err
	}
	if _, err := s.db.Exec(ctx, `UPDATE catalogues SET objects = $3 WHERE shop_id = $1 AND operation = $2`, shopID, *c.Operation, export.Objects); err != nil {
		return err
	}
	switch export.State {
	case ExportRunning:
		return &Wait{min(latestLook, max(soonestLook, s.now().Sub(*c.AskedAt)/2))}
	case ExportFinished:
		return s.readExport(ctx, shopID, c, export)
	}
	if _, err := s.db.Exec(ctx, `UPDATE catalogues SET operation = NULL, asked_at = NULL WHERE shop_id = $1 AND operation = $2`, shopID, *c.Operation); err != nil {
		return err
	}
	return fmt.Errorf("Shopify could not export it: %s", export.Why) // asked for again, with growing patience
}

// errOther ends the reading of an export that another process reads, or that is wanted no more.
var errOther = errors.New("another export is read")

// readExport keeps the variants of an export that were not kept yet. The file does not change, so those that
// were are the first ones of it.
func (s *Service) readExport(ctx context.Context, shopID int64, c catalogue, export CatalogueExport) error {
	began, seen, kept := s.now(), 0, c.Kept
	err := s.shopify.ReadCatalogue(ctx, shopID, export, func(batch []VariantReading) error {
		if skip := min(len(batch), max(0, kept-seen)); skip > 0 {
			seen, batch = seen+skip, batch[skip:]
		}
		if len(batch) == 0 {
			return nil
		}
		if s.now().Sub(began) > readingSpan {
			return &Wait{0}
		}
		err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, `UPDATE catalogues SET kept = kept + $4 WHERE shop_id = $1 AND operation = $2 AND kept = $3`, shopID, export.Operation, kept, len(batch))
			if err != nil {
				return err
			}
			if tag.RowsAffected() == 0 {
				return errOther
			}
			return s.keepVariants(ctx, tx, shopID, batch, *c.AskedAt)
		})
		if err == nil {
			seen, kept = seen+len(batch), kept+len(batch)
		}
		return err
	})
	if errors.Is(err, errOther) {
		return &Wait{latestLook} // whoever reads it may die
	}
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			UPDATE catalogues SET operation = NULL, asked_at = NULL, read_at = asked_at WHERE shop_id = $1 AND operation = $2 AND kept = $3`, shopID, export.Operation, kept)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		// What is not in it was deleted before it was written. Whoever waits for it is seen to by Observe.
		if _, err := tx.Exec(ctx, `UPDATE variants SET active = false WHERE shop_id = $1 AND read_at < $2 AND active`, shopID, *c.AskedAt); err != nil {
			return err
		}
		// One line does not tell who shares an inventory item; all of them together do.
		_, err = tx.Exec(ctx, `
			UPDATE variants v SET shared_item = i.shared
			FROM (SELECT inventory_item_id, count(*) > 1 AS shared FROM variants WHERE shop_id = $1 AND active GROUP BY 1) i
			WHERE v.shop_id = $1 AND v.inventory_item_id = i.inventory_item_id AND v.shared_item <> i.shared AND v.read_at <= $2`, shopID, *c.AskedAt)
		return err
	})
}

// keepVariants keeps what was read of variants with an export or a product, as it was at a time. A variant of
// which something later is known stays as it is. Neither is the stock in it S, nor is the picture the
// variant's own, so both stay where an own read has been.
func (s *Service) keepVariants(ctx context.Context, tx pgx.Tx, shopID int64, batch []VariantReading, at time.Time) error {
	n := len(batch)
	id, product, item := make([]int64, n), make([]int64, n), make([]int64, n)
	sku, title, productTitle, handle, image, price := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	active, published, tracked, goesOn, components := make([]bool, n), make([]bool, n), make([]bool, n), make([]bool, n), make([]bool, n)
	for i, r := range batch {
		id[i], product[i], item[i] = r.ID, r.ProductID, r.InventoryItemID
		sku[i], title[i], productTitle[i], handle[i], image[i], price[i] = r.SKU, r.Title, r.ProductTitle, r.Handle, r.ImageURL, r.Price
		active[i], published[i], tracked[i], goesOn[i], components[i] = r.Active, r.Published, r.Tracked, r.ContinueSelling, r.Components
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO variants AS v (shop_id, read_at, id, product_id, inventory_item_id, sku, title, product_title, handle, image_url, price, active, published, tracked, continue_selling, components)
		SELECT $1, $2, * FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::bool[], $13::bool[], $14::bool[], $15::bool[], $16::bool[]) AS r (id)
		ORDER BY r.id
		ON CONFLICT (shop_id, id) DO UPDATE SET read_at = excluded.read_at, product_id = excluded.product_id, inventory_item_id = excluded.inventory_item_id, sku = excluded.sku,
			title = excluded.title, product_title = excluded.product_title, handle = excluded.handle, image_url = CASE WHEN v.observed_at IS NULL THEN excluded.image_url ELSE v.image_url END,
			price = excluded.price, active = excluded.active, published = excluded.published, tracked = excluded.tracked, continue_selling = excluded.continue_selling, components = excluded.components
		WHERE v.read_at < excluded.read_at`,
		shopID, at, id, product, item, sku, title, productTitle, handle, image, price, active, published, tracked, goesOn, components)
	if err != nil {
		return fmt.Errorf("keep variants: %w", err)
	}
	return nil
}

// hintProduct says that something about a product may have changed: it is read after the caller's transaction
// has committed, once for any number of hints, and none is lost.
func (s *Service) hintProduct(ctx context.Context, tx pgx.Tx, shopID, productID int64) error {
	var idle bool
	err := tx.QueryRow(ctx, `
		INSERT INTO product_hints AS p (shop_id, product_id) VALUES ($1, $2)
		ON CONFLICT (shop_id, product_id) DO UPDATE SET hint_seq = p.hint_seq + 1 RETURNING seen_seq = hint_seq - 1`, shopID, productID).Scan(&idle)
	if err != nil {
		return fmt.Errorf("hint product %d: %w", productID, err)
	}
	if !idle {
		return nil // a job waits for it already
	}
	return s.queue(ctx, tx, []river.InsertManyParams{{Args: ProductJob{ShopID: shopID, ProductID: productID}}})
}

// ReadProduct reads the variants of a product that was hinted and keeps them; those that it has no more are
// inactive from then on. It returns *Wait when the product was read a moment ago, or hinted meanwhile.
func (s *Service) ReadProduct(ctx context.Context, shopID, productID int64) error {
	if err := s.readProduct(ctx, shopID, productID); err != nil {
		return fmt.Errorf("product %d: %w", productID, s.shopifyTrouble(ctx, shopID, err))
	}
	return nil
}

func (s *Service) readProduct(ctx context.Context, shopID, productID int64) error {
	var hints, seen int64
	var before *time.Time
	err := s.db.QueryRow(ctx, `
		SELECT hint_seq, seen_seq, read_at FROM product_hints p JOIN shops s ON s.id = p.shop_id
		WHERE p.shop_id = $1 AND product_id = $2 AND s.state = 'installed'`, shopID, productID).Scan(&hints, &seen, &before)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	now := s.now()
	if before != nil {
		if early := productEvery - now.Sub(*before); early > 0 && hints > seen {
			return &Wait{early}
		}
	}
	readings, err := s.shopify.ReadProduct(ctx, shopID, productID)
	if err != nil {
		return err
	}
	ids := make([]int64, len(readings))
	for i, r := range readings {
		ids[i] = r.ID
	}
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if len(readings) > 0 {
			if err := s.keepVariants(ctx, tx, shopID, readings, now); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, `UPDATE variants SET active = false WHERE shop_id = $1 AND product_id = $2 AND NOT id = ANY ($3) AND read_at < $4 AND active`, shopID, productID, ids, now); err != nil {
			return err
		}
		for _, r := range readings {
			if _, err := tx.Exec(ctx, `UPDATE variants SET shared_item = $3 WHERE shop_id = $1 AND id = $2 AND shared_item <> $3 AND read_at = $4`, shopID, r.ID, r.SharedItem, now); err != nil {
				return err
			}
		}
		tag, err := tx.Exec(ctx, `UPDATE product_hints SET seen_seq = greatest(seen_seq, $3), read_at = $4 WHERE shop_id = $1 AND product_id = $2 AND hint_seq = $3`, shopID, productID, hints, now)
		if err != nil || tag.RowsAffected() > 0 {
			return err
		}
		return &Wait{productEvery} // it was hinted while it was read: once more
	})
}

// CatalogueProgress is how far the catalogue of a shop is.
type CatalogueProgress struct {
	Reading       bool       // an export is under way
	Kept, Objects int        // of it: variants that were read, and that Shopify has written so far
	ReadAt        *time.Time // as of when the last whole one was; nil: there was none yet
}

// Catalogue shows how far the catalogue of a shop is.
func (s *Service) Catalogue(ctx context.Context, shopID int64) (CatalogueProgress, error) {
	var p CatalogueProgress
	err := s.db.QueryRow(ctx, `SELECT operation IS NOT NULL, kept, objects, read_at FROM catalogues WHERE shop_id = $1`, shopID).Scan(&p.Reading, &p.Kept, &p.Objects, &p.ReadAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("catalogue: %w", err)
	}
	return p, nil
}
