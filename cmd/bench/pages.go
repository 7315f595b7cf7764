package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// pages: each page of the admin, in a database with very many entries.
var pages = scenario{
	name:  "pages",
	about: "each admin page, with 1,000,000 entries in 50 shops, a merchant who clicks on and on",
	open: func(ctx context.Context, b *bench) ([]design, func() error, error) {
		w, err := b.open(ctx)
		if err != nil {
			return nil, closing(w), err
		}
		b.say("filling %d entries in 50 shops", b.entries)
		restock, err := w.crowd(ctx, b.entries)
		if err != nil {
			return nil, closing(w), err
		}
		acts := b.of(200, 5)
		var designs []design
		for _, path := range []string{"/", "/waitlists", fmt.Sprintf("/waitlists/%d", lamp), "/restocks", fmt.Sprintf("/restocks/%d", restock), "/holds", "/opt-outs", "/messages", "/settings"} {
			designs = append(designs, design{path, "page", func(ctx context.Context) (sample, error) { return w.page(ctx, path, acts) }})
		}
		return designs, closing(w), nil
	},
}

// crowd fills the shop and 49 others with entries, and gives the shop a restock, holds, messages and opt-outs. It
// returns the restock.
func (w *world) crowd(ctx context.Context, entries int) (restock int64, err error) {
	each := max(1, entries/50)
	if err := w.variants(ctx, lamp, other); err != nil {
		return 0, err
	}
	restock, _, err = w.offered(ctx, lamp, each/4, each/4)
	if err != nil {
		return 0, err
	}
	if err := w.queue(ctx, lamp, "waits", "waiting", each/4); err != nil {
		return 0, err
	}
	if err := w.queue(ctx, other, "waits-too", "waiting", each/2); err != nil {
		return 0, err
	}
	return restock, w.exec(ctx,
		sql(`INSERT INTO shops (domain, name) SELECT format('crowd%s.myshopify.com', i), 'Crowd' FROM generate_series(1, 49) AS i`),
		sql(`INSERT INTO settings (shop_id) SELECT id FROM shops ON CONFLICT DO NOTHING`),
		sql(`INSERT INTO variants (shop_id, id, product_id, inventory_item_id, title, product_title, handle, price)
			SELECT s.id, v, 1, v, 'Oak', 'Chair', 'chair', '10.00' FROM shops s, generate_series(1, 20) AS v WHERE domain LIKE 'crowd%'`),
		sql(`INSERT INTO contacts (shop_id, channel, key, address, created_at)
			SELECT s.id, 'email', a, a, now() FROM shops s, generate_series(1, $1) AS i, format('p%s@example.com', i) AS a WHERE domain LIKE 'crowd%'`, each),
		sql(`INSERT INTO entries (shop_id, variant_id, contact_id, state, joined_at, expires_at, locale, consent)
			SELECT c.shop_id, 1 + c.id % 20, c.id, 'waiting', now() - interval '1 day', now() + interval '90 days', 'en', 'email-1' FROM contacts c JOIN shops s ON s.id = c.shop_id WHERE domain LIKE 'crowd%'`),
		sql(`INSERT INTO suppressions (shop_id, channel, contact_hash, reason, address, created_at)
			SELECT $1, 'email', sha256(i::text::bytea), 'stop', format('gone%s@example.com', i), now() FROM generate_series(1, $2) AS i`, w.shopID, each/4),
		sql(`WITH o AS (UPDATE offers SET state = 'claimed', ended_at = now() WHERE shop_id = $1 AND restock_id = $2 RETURNING id, entry_id), e AS (
				UPDATE entries e SET state = 'holding' FROM o WHERE e.shop_id = $1 AND e.id = o.entry_id)
			INSERT INTO holds (shop_id, restock_id, offer_id, entry_id, variant_id, state, hold_minutes, claimed_at, draft_id, invoice_url, activated_at, expires_at, pressed)
			SELECT $1, $2, o.id, o.entry_id, $3, 'active', 15, now(), 900000 + o.id, 'https://example.com', now(), now() + interval '1 day', true FROM o`, w.shopID, restock, lamp),
		sql(`UPDATE restocks SET available = 0, live = units WHERE shop_id = $1 AND id = $2`, w.shopID, restock),
		sql(`VACUUM ANALYZE`))
}

func (w *world) page(ctx context.Context, path string, n int) (sample, error) {
	token := w.IDToken(plus)
	got, err := closedLoop(ctx, 1, n, 30*time.Second, func(ctx context.Context, i int) (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.app+path, nil)
		if err != nil {
			return false, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		status, body, err := fetch(req)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%s is answered with %d %.200s", path, status, body)
		}
		return true, err
	})
	if err == nil {
		got.Memory, err = w.memory(ctx)
	}
	return got, err
}
