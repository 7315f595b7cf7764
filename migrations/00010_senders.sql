-- What stands between a message and its provider: how often it may be sent again, how fast a shop sends, and
-- when its messages of a kind do not go out at all.

-- +goose Up
ALTER TABLE messages
  ADD COLUMN doubts       int NOT NULL DEFAULT 0,   -- attempts whose outcome was unknown: copies that may have left
  ADD COLUMN returns      int NOT NULL DEFAULT 0,   -- attempts that the provider took and reported as not delivered
  ADD COLUMN looked_at    timestamptz,              -- first look for a message of unknown outcome that did not find it
  ADD COLUMN send_after   timestamptz,              -- a pending message is not sent before
  ADD COLUMN outcome      text,                     -- of a failed one: what the failure means
  ADD COLUMN complained_at timestamptz;             -- its reader called it spam
CREATE INDEX messages_accepted ON messages (shop_id, channel, accepted_at) WHERE accepted_at IS NOT NULL;

-- A pause: while it lasts, nobody is offered a unit who would have to be told this way.
CREATE TABLE pauses (
  shop_id   bigint NOT NULL REFERENCES shops,
  id        bigint GENERATED ALWAYS AS IDENTITY,
  channel   text NOT NULL CHECK (channel IN ('email', 'sms')),
  prefix    text NOT NULL DEFAULT '',     -- texts to numbers that begin so, '+49'; '' = all
  code      text NOT NULL,                -- the provider's, or our own
  reason    text NOT NULL,                -- in plain words, for the merchant
  since     timestamptz NOT NULL,
  until     timestamptz,                  -- NULL: until the merchant has put it right
  ended_at  timestamptz,
  PRIMARY KEY (shop_id, id),
  CHECK (channel = 'sms' OR prefix = '')
);
CREATE UNIQUE INDEX pauses_one ON pauses (shop_id, channel, prefix) WHERE ended_at IS NULL;

-- How fast a shop sends, shared by all processes.
CREATE TABLE senders (
  shop_id     bigint NOT NULL REFERENCES shops,
  channel     text NOT NULL CHECK (channel IN ('email', 'sms')),
  per_second  int NOT NULL CHECK (per_second BETWEEN 1 AND 1000),
  next_at     timestamptz NOT NULL DEFAULT '-infinity',   -- when the next message is due at that rate
  PRIMARY KEY (shop_id, channel)
);

-- +goose Down
DROP TABLE senders, pauses;
DROP INDEX messages_accepted;
ALTER TABLE messages DROP COLUMN doubts, DROP COLUMN returns, DROP COLUMN looked_at, DROP COLUMN send_after, DROP COLUMN outcome, DROP COLUMN complained_at;
