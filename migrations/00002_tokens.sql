-- Access tokens that expire, in pairs with the token that renews them, and what the shop granted.

-- +goose Up
ALTER TABLE shops
  ADD COLUMN sealed_refresh      bytea,        -- renews sealed_token; NULL: sealed_token does not expire
  ADD COLUMN token_expires_at    timestamptz,  -- of sealed_token
  ADD COLUMN refreshing_until    timestamptz,  -- a process is renewing the pair; NULL or past: none is
  ADD COLUMN token_refused_at    timestamptz,  -- since when Shopify refuses token and renewal; NULL: it does not
  ADD COLUMN scopes              text NOT NULL DEFAULT '',           -- granted, joined by commas; '' = not known
  ADD COLUMN scopes_at           timestamptz NOT NULL DEFAULT '-infinity',   -- when Shopify said so
  ADD COLUMN installed_at        timestamptz NOT NULL DEFAULT '-infinity',   -- last
  ADD CONSTRAINT token_and_refresh CHECK (sealed_refresh IS NULL OR sealed_token IS NOT NULL),
  ADD CONSTRAINT refresh_and_expiry CHECK ((sealed_refresh IS NULL) = (token_expires_at IS NULL)),
  ADD CONSTRAINT uninstalled_has_no_token CHECK (state = 'installed' OR sealed_token IS NULL);

-- A webhook that comes late must not end an installation that is younger than it.
ALTER TABLE webhooks
  ADD COLUMN triggered_at  timestamptz;  -- when it happened, by Shopify's word; NULL: it did not say

-- +goose Down
ALTER TABLE webhooks DROP COLUMN triggered_at;
ALTER TABLE shops
  DROP CONSTRAINT token_and_refresh, DROP CONSTRAINT refresh_and_expiry, DROP CONSTRAINT uninstalled_has_no_token,
  DROP COLUMN sealed_refresh, DROP COLUMN token_expires_at, DROP COLUMN refreshing_until, DROP COLUMN token_refused_at,
  DROP COLUMN scopes, DROP COLUMN scopes_at, DROP COLUMN installed_at;
