-- How often a hold's draft was asked for: after a lost answer there may be one that nobody knows of yet.

-- +goose Up
ALTER TABLE holds
  ADD COLUMN creates         int NOT NULL DEFAULT 0,   -- creates that were begun, written before each
  ADD COLUMN last_create_at  timestamptz;              -- when the last of them was

-- +goose Down
ALTER TABLE holds DROP COLUMN creates, DROP COLUMN last_create_at;
