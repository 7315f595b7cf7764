-- What Shopify's remaining topics say: privacy requests, cancelled orders, edited drafts, ordinary buyers.

-- +goose Up
-- A request of Shopify's to give out or to erase what is stored of a customer, or of a whole shop, and what was
-- done. It carries nobody's data once it is done, but the export of a data request until that is dropped.
CREATE TABLE privacy_requests (
  shop_id       bigint NOT NULL REFERENCES shops,
  id            bigint GENERATED ALWAYS AS IDENTITY,
  topic         text NOT NULL CHECK (topic IN ('customers/data_request', 'customers/redact', 'shop/redact')),
  webhook_id    text NOT NULL,
  request_id    bigint,                              -- Shopify's id of a data request
  people        bytea[] NOT NULL DEFAULT '{}',       -- keyed hashes of the customer's id and addresses
  received_at   timestamptz NOT NULL,
  done_at       timestamptz,
  outcome       text CHECK (outcome IN ('exported', 'erased', 'kept', 'unreadable')),
  counts        jsonb NOT NULL DEFAULT '{}',         -- numbers of what was exported or erased, by kind
  export        jsonb,                               -- what is stored of the customer; NULL once it is dropped
  export_until  timestamptz,                         -- when it is dropped
  PRIMARY KEY (shop_id, id),
  UNIQUE (shop_id, topic, webhook_id),
  CHECK ((done_at IS NULL) = (outcome IS NULL)),
  CHECK (export IS NULL OR export_until IS NOT NULL)
);
CREATE INDEX privacy_requests_exports ON privacy_requests (export_until) WHERE export IS NOT NULL;
CREATE INDEX entries_by_customer ON entries (shop_id, customer_id) WHERE customer_id IS NOT NULL;

-- The body of a webhook is needed until its work is done, and no longer: it may carry people's data.
UPDATE webhooks SET body = '' WHERE done_at IS NOT NULL;

ALTER TABLE holds
  ADD COLUMN cancelled_at timestamptz,               -- of the order that it became
  ADD CONSTRAINT cancelled_was_paid CHECK (cancelled_at IS NULL OR state = 'sold' OR paid_late_at IS NOT NULL);
CREATE INDEX holds_by_order ON holds (shop_id, order_id) WHERE order_id IS NOT NULL;

ALTER TABLE entries
  ADD COLUMN reason text CHECK (reason IN ('bought'));   -- why it has left, when not by its shopper's word

ALTER TABLE settings
  ADD COLUMN skip_buyers          boolean NOT NULL DEFAULT true,
  ADD COLUMN automatic_discounts  boolean NOT NULL DEFAULT true,
  ADD COLUMN discount_codes       boolean NOT NULL DEFAULT true;

-- Whether Shopify shows who bought: protected customer data, which it approves for each app.
ALTER TABLE shops
  ADD COLUMN customers_hidden_at timestamptz;        -- since when orders come without their customers; NULL: they do not

ALTER TABLE notes DROP CONSTRAINT notes_kind_check;
ALTER TABLE notes ADD CONSTRAINT notes_kind_check CHECK (kind IN (
  'implausible', 'short', 'paid_late', 'stray_draft_paid', 'demand', 'refused_by_shopify', 'sender', 'draft_edited'));

-- +goose Down
DELETE FROM notes WHERE kind = 'draft_edited';
ALTER TABLE notes DROP CONSTRAINT notes_kind_check;
ALTER TABLE notes ADD CONSTRAINT notes_kind_check CHECK (kind IN (
  'implausible', 'short', 'paid_late', 'stray_draft_paid', 'demand', 'refused_by_shopify', 'sender'));
ALTER TABLE shops DROP COLUMN customers_hidden_at;
ALTER TABLE settings DROP COLUMN skip_buyers, DROP COLUMN automatic_discounts, DROP COLUMN discount_codes;
ALTER TABLE entries DROP COLUMN reason;
DROP INDEX holds_by_order;
ALTER TABLE holds DROP CONSTRAINT cancelled_was_paid, DROP COLUMN cancelled_at;
DROP INDEX entries_by_customer;
DROP TABLE privacy_requests;
