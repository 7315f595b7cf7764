-- Reserve before telling: an offer may have its unit held already when its person is told. The form is a
-- property of each offer and hold; the setting only decides what is made next.

-- +goose Up
ALTER TABLE settings
  ADD COLUMN reserve_before_telling boolean NOT NULL DEFAULT true;
ALTER TABLE offers
  ADD COLUMN reserved boolean NOT NULL DEFAULT false;   -- its unit is held; it ends with its hold
ALTER TABLE restocks
  ADD COLUMN telling boolean NOT NULL DEFAULT false;    -- a job is queued or at work that sends its notices
ALTER TABLE holds
  ADD COLUMN pressed       boolean NOT NULL DEFAULT true,  -- by its shopper; false: of a reserved offer, not yet
  ADD COLUMN notice_at     timestamptz,                    -- first attempt to tell, committed before the send; NULL: never told
  ADD COLUMN notice_lease  timestamptz,                    -- a send may be under way until then
  ADD CONSTRAINT unpressed_is_told_when_held CHECK (notice_at IS NULL OR activated_at IS NOT NULL);
DROP INDEX offers_due;
DROP INDEX offers_open;
CREATE INDEX offers_due ON offers (lapses_at) WHERE state = 'open' AND NOT reserved;
CREATE INDEX offers_open ON offers (shop_id, restock_id, id) WHERE state = 'open';

-- +goose Down
ALTER TABLE holds DROP CONSTRAINT unpressed_is_told_when_held, DROP COLUMN pressed, DROP COLUMN notice_at, DROP COLUMN notice_lease;
DROP INDEX offers_due;
ALTER TABLE offers DROP COLUMN reserved;
ALTER TABLE restocks DROP COLUMN telling;
CREATE INDEX offers_due ON offers (lapses_at) WHERE state = 'open';
ALTER TABLE settings DROP COLUMN reserve_before_telling;
