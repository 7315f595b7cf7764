-- Every variant of a shop is known before anybody asks for it: an export at the installation and once a day,
-- and what products/* webhooks say between two.

-- +goose Up
CREATE TABLE catalogues (
  shop_id     bigint PRIMARY KEY REFERENCES shops,
  due_at      timestamptz NOT NULL DEFAULT '-infinity',  -- when the next export is asked for
  operation   text,                                      -- Shopify's id of the export under way; NULL: none is
  asked_at    timestamptz,                               -- when it was asked for: nothing in it is older
  objects     int NOT NULL DEFAULT 0,                    -- variants that Shopify has written so far
  kept        int NOT NULL DEFAULT 0,                    -- variants that were read of it so far
  read_at     timestamptz,                               -- when the last one that was read to its end had been asked for; NULL: none was
  CHECK ((operation IS NULL) = (asked_at IS NULL)),
  CHECK (kept >= 0 AND objects >= 0)
);
INSERT INTO catalogues (shop_id) SELECT id FROM shops WHERE state = 'installed';

-- A product that is to be read: a thousand webhooks of it are one read.
CREATE TABLE product_hints (
  shop_id     bigint NOT NULL REFERENCES shops,
  product_id  bigint NOT NULL,
  hint_seq    bigint NOT NULL DEFAULT 1,   -- grows with every hint
  seen_seq    bigint NOT NULL DEFAULT 0,   -- the hint_seq with which the last finished read began
  read_at     timestamptz,                 -- when that was
  PRIMARY KEY (shop_id, product_id),
  CHECK (seen_seq <= hint_seq)
);

ALTER TABLE variants ADD COLUMN read_at timestamptz NOT NULL DEFAULT '-infinity';  -- what stands here is not older: a later word counts more
UPDATE variants SET read_at = observed_at WHERE observed_at IS NOT NULL;

-- +goose Down
ALTER TABLE variants DROP COLUMN read_at;
DROP TABLE product_hints;
DROP TABLE catalogues;
