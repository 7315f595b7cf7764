-- The words are those of the README: a shop's variants, the entries that wait for them, restocks,
-- offers, holds and messages. Every tenant table has shop_id first in its key and in its foreign
-- keys, so that no row can point at another shop's row and the database can be split by shop.

-- +goose Up
CREATE TABLE shops (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  domain         text NOT NULL UNIQUE CHECK (domain ~ '^[a-z0-9][a-z0-9-]*\.myshopify\.com$'),
  name           text NOT NULL,
  currency       text NOT NULL DEFAULT 'USD',
  country        text NOT NULL DEFAULT 'US' CHECK (country ~ '^[A-Z]{2}$'),
  locale         text NOT NULL DEFAULT 'en',
  state          text NOT NULL DEFAULT 'installed' CHECK (state IN ('installed', 'uninstalled')),
  sealed_token   bytea,                       -- Shopify's access token, sealed for this shop
  sealed_twilio  bytea,                       -- the shop's own Twilio credentials, sealed
  twilio_key     text UNIQUE,                 -- unguessable part of the shop's Twilio webhook URLs
  trouble        text,                        -- why Shopify refused the last call; NULL when it did not
  reconcile_at   timestamptz NOT NULL DEFAULT '-infinity',   -- drafts are listed again when this is past
  created_at     timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE settings (
  shop_id                bigint PRIMARY KEY REFERENCES shops,
  hold_minutes           int NOT NULL DEFAULT 15   CHECK (hold_minutes BETWEEN 5 AND 120),
  offer_minutes_email    int NOT NULL DEFAULT 60   CHECK (offer_minutes_email BETWEEN 15 AND 2880),
  offer_minutes_sms      int NOT NULL DEFAULT 30   CHECK (offer_minutes_sms BETWEEN 15 AND 2880),
  notices_per_unit       int NOT NULL DEFAULT 1    CHECK (notices_per_unit BETWEEN 1 AND 100),
  threshold              int NOT NULL DEFAULT 1    CHECK (threshold BETWEEN 1 AND 1000000),
  settle_seconds         int NOT NULL DEFAULT 30   CHECK (settle_seconds BETWEEN 0 AND 3600),
  implausible_units      int NOT NULL DEFAULT 1000 CHECK (implausible_units BETWEEN 1 AND 1000000),
  ttl_days               int NOT NULL DEFAULT 180  CHECK (ttl_days BETWEEN 1 AND 730),
  locations              bigint[] NOT NULL DEFAULT '{}',      -- watched locations; none = all that sell online
  reply_to               text NOT NULL DEFAULT ''
);

-- A variant as it was last read, its last observed stock, and the state of OBSERVE between two runs.
CREATE TABLE variants (
  shop_id             bigint NOT NULL REFERENCES shops,
  id                  bigint NOT NULL,         -- Shopify's variant id
  product_id          bigint NOT NULL,
  inventory_item_id   bigint NOT NULL,
  sku                 text NOT NULL DEFAULT '',
  title               text NOT NULL DEFAULT '',
  product_title       text NOT NULL DEFAULT '',
  handle              text NOT NULL DEFAULT '',
  image_url           text NOT NULL DEFAULT '',
  price               text NOT NULL DEFAULT '',
  active              boolean NOT NULL DEFAULT true,   -- the product's status is ACTIVE and the variant exists
  published           boolean NOT NULL DEFAULT true,   -- to the online store
  tracked             boolean NOT NULL DEFAULT true,
  continue_selling    boolean NOT NULL DEFAULT false,  -- policy CONTINUE: always for sale
  components          boolean NOT NULL DEFAULT false,  -- a bundle: no stock of its own, cannot be held
  shared_item         boolean NOT NULL DEFAULT false,  -- its inventory item backs other variants too
  sellable            int,                             -- S as last read; NULL until then
  observed_at         timestamptz,
  hint_seq            bigint NOT NULL DEFAULT 0,       -- grows with every hint
  seen_seq            bigint NOT NULL DEFAULT 0,       -- the hint_seq that the last finished observe began with
  rise_since          timestamptz,                     -- since when there is more than we know of
  asked               int,                             -- an implausible S that waits for the merchant
  approved_to         int,                             -- the S up to which the merchant said yes
  declined            int,                             -- the S to which the merchant said no
  PRIMARY KEY (shop_id, id),
  CHECK (seen_seq <= hint_seq)
) WITH (fillfactor = 70);
CREATE INDEX variants_by_sku ON variants (shop_id, sku) WHERE sku <> '';
CREATE INDEX variants_by_item ON variants (shop_id, inventory_item_id);
CREATE INDEX variants_by_product ON variants (shop_id, product_id);
CREATE INDEX variants_settling ON variants (rise_since) WHERE rise_since IS NOT NULL;
CREATE INDEX variants_unseen ON variants (shop_id) WHERE hint_seq <> seen_seq;

-- A contact is an address of one channel, as one shop knows it. Its row is what Join and Suppress lock, so
-- that a suppression and a tap of the same contact never pass each other.
CREATE TABLE contacts (
  shop_id     bigint NOT NULL REFERENCES shops,
  id          bigint GENERATED ALWAYS AS IDENTITY,
  channel     text NOT NULL CHECK (channel IN ('email', 'sms')),
  key         text NOT NULL,                 -- what makes it unique: lower-case mail address, or E.164
  address     text NOT NULL,                 -- what is sent to: as first typed, normalised
  created_at  timestamptz NOT NULL,
  PRIMARY KEY (shop_id, id),
  UNIQUE (shop_id, channel, key)
);
CREATE UNIQUE INDEX contacts_id ON contacts (id);   -- a link names the contact alone

-- A suppression outlives its contact: it is kept as a keyed hash when the address itself is erased.
CREATE TABLE suppressions (
  shop_id       bigint NOT NULL REFERENCES shops,
  channel       text NOT NULL CHECK (channel IN ('email', 'sms')),
  contact_hash  bytea NOT NULL,
  id            bigint GENERATED ALWAYS AS IDENTITY,
  reason        text NOT NULL CHECK (reason IN ('stop', 'unsubscribe', 'bounce', 'complaint', 'merchant')),
  address       text,                        -- for the merchant's list; NULL once erased
  created_at    timestamptz NOT NULL,
  PRIMARY KEY (shop_id, channel, contact_hash)
);
CREATE UNIQUE INDEX suppressions_list ON suppressions (shop_id, id);

CREATE TABLE entries (
  shop_id      bigint NOT NULL REFERENCES shops,
  id           bigint GENERATED ALWAYS AS IDENTITY,
  variant_id   bigint NOT NULL,
  contact_id   bigint NOT NULL,
  customer_id  bigint,                       -- the signed-in customer, when Shopify said who it is
  state        text NOT NULL CHECK (state IN ('waiting', 'offered', 'holding', 'sold', 'left', 'expired', 'suppressed')),
  joined_at    timestamptz NOT NULL DEFAULT clock_timestamp(),   -- the database's time, for order alone
  expires_at   timestamptz NOT NULL,         -- end of the time-to-live of a waiting entry
  name         text NOT NULL DEFAULT '',
  locale       text NOT NULL DEFAULT '',
  country      text NOT NULL DEFAULT '',
  currency     text NOT NULL DEFAULT '',
  consent      text NOT NULL DEFAULT '',     -- version of the consent text that was agreed to
  ended_at     timestamptz,
  PRIMARY KEY (shop_id, id),
  FOREIGN KEY (shop_id, variant_id) REFERENCES variants,
  FOREIGN KEY (shop_id, contact_id) REFERENCES contacts,
  CHECK ((state IN ('waiting', 'offered', 'holding')) = (ended_at IS NULL))
);
CREATE UNIQUE INDEX entries_id ON entries (id);     -- a link names the entry alone
-- Promise 4: one person, one place.
CREATE UNIQUE INDEX entries_one_place ON entries (shop_id, variant_id, contact_id) WHERE state IN ('waiting', 'offered', 'holding');
CREATE UNIQUE INDEX entries_one_customer ON entries (shop_id, variant_id, customer_id) WHERE state IN ('waiting', 'offered', 'holding') AND customer_id IS NOT NULL;
-- Who is next.
CREATE INDEX entries_queue ON entries (shop_id, variant_id, joined_at, id) WHERE state = 'waiting';
CREATE INDEX entries_due ON entries (expires_at) WHERE state = 'waiting';
CREATE INDEX entries_by_contact ON entries (shop_id, contact_id);
CREATE INDEX entries_by_variant ON entries (shop_id, variant_id, id);

-- Promise 1: units = available + live holds + sold + withdrawn, and available >= 0. live moves with the holds
-- in the same transaction. rose and fell only ever grow: they are the fence between a read of Shopify and the
-- counter (app/waitlist/observe.go).
CREATE TABLE restocks (
  shop_id     bigint NOT NULL REFERENCES shops,
  id          bigint GENERATED ALWAYS AS IDENTITY,
  variant_id  bigint NOT NULL,
  state       text NOT NULL CHECK (state IN ('waiting_approval', 'open', 'closed')),
  units       int NOT NULL CHECK (units >= 0),
  available   int NOT NULL CHECK (available >= 0),
  live        int NOT NULL DEFAULT 0 CHECK (live >= 0),
  sold        int NOT NULL DEFAULT 0 CHECK (sold >= 0),
  withdrawn   int NOT NULL DEFAULT 0 CHECK (withdrawn >= 0),
  rose        bigint NOT NULL DEFAULT 0 CHECK (rose >= 0),
  fell        bigint NOT NULL DEFAULT 0 CHECK (fell >= 0),
  short       boolean NOT NULL DEFAULT false,
  opened_at   timestamptz NOT NULL,
  closed_at   timestamptz,
  PRIMARY KEY (shop_id, id),
  FOREIGN KEY (shop_id, variant_id) REFERENCES variants,
  CONSTRAINT promise_1 CHECK (units = available + live + sold + withdrawn),
  CONSTRAINT closed_is_empty CHECK (state <> 'closed' OR (available = 0 AND live = 0)),
  CONSTRAINT unapproved_is_empty CHECK (state <> 'waiting_approval' OR units = 0),
  CHECK ((state = 'closed') = (closed_at IS NOT NULL))
) WITH (fillfactor = 40);                            -- room for HOT updates of the counter
CREATE UNIQUE INDEX restocks_one_open ON restocks (shop_id, variant_id) WHERE state <> 'closed';
CREATE INDEX restocks_by_variant ON restocks (shop_id, variant_id, id);

-- What units and withdrawn are recounted from, written in the transaction that changes them.
CREATE TABLE restock_changes (
  shop_id     bigint NOT NULL,
  id          bigint GENERATED ALWAYS AS IDENTITY,
  restock_id  bigint NOT NULL,
  kind        text NOT NULL CHECK (kind IN ('open', 'grow', 'shrink')),
  by          int NOT NULL CHECK (by > 0),
  sellable    int NOT NULL,                         -- S as it was read
  at          timestamptz NOT NULL,
  PRIMARY KEY (shop_id, id),
  FOREIGN KEY (shop_id, restock_id) REFERENCES restocks
);
CREATE INDEX restock_changes_by_restock ON restock_changes (shop_id, restock_id, id);

CREATE TABLE offers (
  shop_id         bigint NOT NULL,
  id              bigint GENERATED ALWAYS AS IDENTITY,
  restock_id      bigint NOT NULL,
  entry_id        bigint NOT NULL,
  state           text NOT NULL CHECK (state IN ('open', 'claimed', 'lapsed', 'passed', 'missed', 'withdrawn')),
  window_minutes  int NOT NULL CHECK (window_minutes > 0),
  lapses_at       timestamptz NOT NULL,
  created_at      timestamptz NOT NULL,
  ended_at        timestamptz,
  PRIMARY KEY (shop_id, id),
  FOREIGN KEY (shop_id, restock_id) REFERENCES restocks,
  FOREIGN KEY (shop_id, entry_id) REFERENCES entries,
  CHECK ((state = 'open') = (ended_at IS NULL))
);
CREATE UNIQUE INDEX offers_id ON offers (id);        -- a link names the offer alone
-- Promise 5: told at most once per restock, missed and withdrawn offers apart.
CREATE UNIQUE INDEX offers_told_once ON offers (shop_id, restock_id, entry_id) WHERE state NOT IN ('missed', 'withdrawn');
CREATE INDEX offers_due ON offers (lapses_at) WHERE state = 'open';
CREATE INDEX offers_open ON offers (shop_id, restock_id, id) WHERE state = 'open';
CREATE INDEX offers_by_entry ON offers (shop_id, entry_id, id);

CREATE TABLE holds (
  shop_id       bigint NOT NULL,
  id            bigint GENERATED ALWAYS AS IDENTITY,
  restock_id    bigint NOT NULL,
  offer_id      bigint NOT NULL,
  entry_id      bigint NOT NULL,
  variant_id    bigint NOT NULL,
  state         text NOT NULL CHECK (state IN ('securing', 'active', 'releasing', 'sold', 'expired', 'released', 'refused')),
  reason        text CHECK (reason IN ('expired', 'released', 'refused')),
  by_shopper    boolean NOT NULL DEFAULT false,      -- released by the shopper's own act
  hold_minutes  int NOT NULL CHECK (hold_minutes > 0),
  claimed_at    timestamptz NOT NULL,
  expires_at    timestamptz,                         -- NULL until the draft is about to be created
  draft_id      bigint,                              -- written once, while securing
  invoice_url   text,
  activated_at  timestamptz,
  ended_at      timestamptz,
  order_id      bigint,
  paid_late_at  timestamptz,                         -- paid after it had ended unsold
  PRIMARY KEY (shop_id, id),
  UNIQUE (shop_id, offer_id),
  UNIQUE (shop_id, draft_id),
  FOREIGN KEY (shop_id, restock_id) REFERENCES restocks,
  FOREIGN KEY (shop_id, offer_id) REFERENCES offers,
  FOREIGN KEY (shop_id, entry_id) REFERENCES entries,
  CHECK (state <> 'active' OR (draft_id IS NOT NULL AND expires_at IS NOT NULL AND activated_at IS NOT NULL)),
  CHECK (state NOT IN ('releasing', 'expired', 'released', 'refused') OR reason IS NOT NULL),
  CHECK (state NOT IN ('expired', 'released', 'refused') OR reason = state),
  CHECK ((state IN ('securing', 'active', 'releasing')) = (ended_at IS NULL)),
  CHECK (paid_late_at IS NULL OR state IN ('expired', 'released', 'refused'))
);
CREATE INDEX holds_live ON holds (shop_id, restock_id, id) WHERE state IN ('securing', 'active', 'releasing');
CREATE UNIQUE INDEX holds_one_live ON holds (shop_id, entry_id) WHERE state IN ('securing', 'active', 'releasing');
CREATE INDEX holds_due ON holds (expires_at) WHERE state IN ('securing', 'active');
CREATE INDEX holds_unclocked ON holds (claimed_at) WHERE state = 'securing' AND expires_at IS NULL;
CREATE INDEX holds_by_entry ON holds (shop_id, entry_id, id);

CREATE TABLE messages (
  shop_id      bigint NOT NULL,
  id           bigint GENERATED ALWAYS AS IDENTITY,
  kind         text NOT NULL CHECK (kind IN ('notice')),
  channel      text NOT NULL CHECK (channel IN ('email', 'sms')),
  contact_id   bigint NOT NULL,
  entry_id     bigint NOT NULL,
  offer_id     bigint NOT NULL,
  state        text NOT NULL CHECK (state IN ('pending', 'sending', 'accepted', 'delivered', 'failed', 'unknown', 'cancelled')),
  attempts     int NOT NULL DEFAULT 0,
  sending_at   timestamptz,                          -- when the last attempt was committed, before its call
  provider_id  text,
  error_code   text,
  reason       text,                                 -- why cancelled, failed or unknown, in plain words
  created_at   timestamptz NOT NULL,
  accepted_at  timestamptz,
  PRIMARY KEY (shop_id, id),
  UNIQUE (shop_id, offer_id, kind),
  FOREIGN KEY (shop_id, contact_id) REFERENCES contacts,
  FOREIGN KEY (shop_id, entry_id) REFERENCES entries,
  FOREIGN KEY (shop_id, offer_id) REFERENCES offers,
  CHECK (state = 'pending' OR state = 'cancelled' OR attempts > 0)
);
CREATE INDEX messages_by_entry ON messages (shop_id, entry_id);
CREATE INDEX messages_by_contact ON messages (shop_id, contact_id);
CREATE INDEX messages_by_provider ON messages (shop_id, provider_id) WHERE provider_id IS NOT NULL;
CREATE INDEX messages_unfinished ON messages (sending_at) WHERE state IN ('pending', 'sending', 'unknown');

-- A webhook is stored once, whatever its number of deliveries.
CREATE TABLE webhooks (
  shop_id       bigint NOT NULL REFERENCES shops,
  topic         text NOT NULL,
  webhook_id    text NOT NULL,
  id            bigint GENERATED ALWAYS AS IDENTITY,
  event_id      text NOT NULL DEFAULT '',
  body          bytea NOT NULL,
  received_at   timestamptz NOT NULL,
  done_at       timestamptz,
  PRIMARY KEY (shop_id, topic, webhook_id)
);
CREATE UNIQUE INDEX webhooks_id ON webhooks (shop_id, id);
CREATE INDEX webhooks_undone ON webhooks (received_at) WHERE done_at IS NULL;

-- Taps counted per client address and minute, and per contact and day, in rows so that processes share them.
CREATE TABLE tap_limits (
  shop_id       bigint NOT NULL REFERENCES shops,
  kind          text NOT NULL CHECK (kind IN ('client', 'contact')),
  key           bytea NOT NULL,
  window_start  timestamptz NOT NULL,
  taps          int NOT NULL,
  PRIMARY KEY (shop_id, kind, key, window_start)
);

-- What was asked for and is not in the catalogue: who asked is a keyed hash.
CREATE TABLE demand (
  shop_id       bigint NOT NULL REFERENCES shops,
  day           date NOT NULL,
  asked         text NOT NULL CHECK (length(asked) <= 200),
  contact_hash  bytea NOT NULL,
  PRIMARY KEY (shop_id, day, asked, contact_hash)
);

-- What needs a person: shown to the merchant until it is put away.
CREATE TABLE notes (
  shop_id     bigint NOT NULL REFERENCES shops,
  id          bigint GENERATED ALWAYS AS IDENTITY,
  kind        text NOT NULL CHECK (kind IN ('implausible', 'short', 'paid_late', 'stray_draft_paid', 'demand', 'refused_by_shopify', 'sender')),
  subject     text NOT NULL,                         -- what it is about, so that it is said once
  detail      text NOT NULL,
  created_at  timestamptz NOT NULL,
  cleared_at  timestamptz,
  PRIMARY KEY (shop_id, id)
);
CREATE UNIQUE INDEX notes_once ON notes (shop_id, kind, subject) WHERE cleared_at IS NULL;

-- +goose Down
DROP TABLE notes, demand, tap_limits, webhooks, messages, holds, offers, restock_changes, restocks, entries, suppressions, contacts, variants, settings, shops;
