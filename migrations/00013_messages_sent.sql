-- A sender is judged by what it sent in a day.

-- +goose Up
DROP INDEX messages_accepted;
CREATE INDEX messages_sent ON messages (shop_id, channel, sending_at) WHERE sending_at IS NOT NULL;

-- +goose Down
DROP INDEX messages_sent;
CREATE INDEX messages_accepted ON messages (shop_id, channel, accepted_at) WHERE accepted_at IS NOT NULL;
