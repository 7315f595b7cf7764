-- Holds are secured in press order, by any number of workers: each takes the oldest that nobody is at.

-- +goose Up
ALTER TABLE holds
  ADD COLUMN secured_by_until timestamptz;   -- a worker is securing it; NULL or past: none is
CREATE INDEX holds_securing ON holds (shop_id, id) WHERE state = 'securing';

-- +goose Down
DROP INDEX holds_securing;
ALTER TABLE holds DROP COLUMN secured_by_until;
