-- The merchant's own sentences in place of those of app/words.

-- +goose Up
CREATE TABLE wording (
  shop_id   bigint NOT NULL REFERENCES shops,
  language  text NOT NULL,             -- its code in app/words
  key       text NOT NULL,             -- of the sentence that it stands for
  text      text NOT NULL CHECK (text <> '' AND length(text) <= 400),
  PRIMARY KEY (shop_id, language, key)
);

-- +goose Down
DROP TABLE wording;
