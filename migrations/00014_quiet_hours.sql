-- When texts may go: a setting of the shop, in the time of whoever gets them.

-- +goose Up
ALTER TABLE settings
  ADD COLUMN quiet_hours  boolean NOT NULL DEFAULT true,   -- texts go in the hours below alone, and not too many to one number
  ADD COLUMN text_from    int NOT NULL DEFAULT 9  CHECK (text_from BETWEEN 9 AND 20),
  ADD COLUMN text_until   int NOT NULL DEFAULT 20 CHECK (text_until BETWEEN 9 AND 20),
  ADD COLUMN pass_asleep  boolean NOT NULL DEFAULT true,   -- the next in line who is awake is told first
  ADD CONSTRAINT texts_go_at_some_time CHECK (text_from < text_until);
ALTER TABLE entries
  ADD COLUMN zones text[] NOT NULL DEFAULT '{}';           -- of an entry by text: where its shopper may be (IANA); a text must be decent in each
CREATE INDEX entries_zones ON entries (shop_id, variant_id, zones) WHERE state = 'waiting' AND zones <> '{}';

-- +goose Down
DROP INDEX entries_zones;
ALTER TABLE entries DROP COLUMN zones;
ALTER TABLE settings DROP COLUMN quiet_hours, DROP COLUMN text_from, DROP COLUMN text_until, DROP COLUMN pass_asleep;
