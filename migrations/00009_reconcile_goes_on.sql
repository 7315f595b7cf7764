-- How far a reconcile is that waits for Shopify's points: it goes on from there, and does not begin again.

-- +goose Up
ALTER TABLE shops
  ADD COLUMN reconciling_since timestamptz,  -- when the reconcile under way began; NULL: none is
  ADD COLUMN reconcile_cursor  text NOT NULL DEFAULT '';  -- the drafts up to here were compared in it
ALTER TABLE holds
  ADD COLUMN draft_seen_at timestamptz;      -- the last reconcile in which its draft was there, by when that began

-- +goose Down
ALTER TABLE holds DROP COLUMN draft_seen_at;
ALTER TABLE shops DROP COLUMN reconciling_since, DROP COLUMN reconcile_cursor;
