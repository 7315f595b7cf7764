-- Nothing in Twilio's signature says when a text was sent: one that was worked is known by its SID, so that a
-- STOP or a START that is posted again later changes nothing.

-- +goose Up
CREATE TABLE inbound_texts (
  shop_id      bigint NOT NULL REFERENCES shops,
  sid          text NOT NULL,
  received_at  timestamptz NOT NULL,
  PRIMARY KEY (shop_id, sid)
);

-- +goose Down
DROP TABLE inbound_texts;
