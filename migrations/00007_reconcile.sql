-- What reconciling remembers, and what it finds about the place where Shopify reserves.

-- +goose Up
ALTER TABLE shops
  ADD COLUMN reconciled_at  timestamptz,                     -- when the last complete reconcile began; NULL: all drafts are listed
  ADD COLUMN holds_off      boolean NOT NULL DEFAULT false;  -- Shopify reserves at a location that is not watched

ALTER TABLE notes DROP CONSTRAINT notes_kind_check;
ALTER TABLE notes ADD CONSTRAINT notes_kind_check CHECK (kind IN (
  'implausible', 'short', 'paid_late', 'stray_draft_paid', 'demand', 'refused_by_shopify', 'sender', 'draft_edited', 'default_location'));

-- +goose Down
DELETE FROM notes WHERE kind = 'default_location';
ALTER TABLE notes DROP CONSTRAINT notes_kind_check;
ALTER TABLE notes ADD CONSTRAINT notes_kind_check CHECK (kind IN (
  'implausible', 'short', 'paid_late', 'stray_draft_paid', 'demand', 'refused_by_shopify', 'sender', 'draft_edited'));
ALTER TABLE shops DROP COLUMN reconciled_at, DROP COLUMN holds_off;
