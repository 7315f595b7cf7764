-- What texts cost, and how much of it a shop wants to spend.

-- +goose Up
ALTER TABLE settings
  ADD COLUMN text_price           int NOT NULL DEFAULT 10 CHECK (text_price BETWEEN 0 AND 10000),           -- of one segment, in thousandths of the shop's currency
  ADD COLUMN text_budget_restock  int NOT NULL DEFAULT 0  CHECK (text_budget_restock BETWEEN 0 AND 1000000), -- in the shop's currency; 0 = no limit
  ADD COLUMN text_budget_month    int NOT NULL DEFAULT 0  CHECK (text_budget_month BETWEEN 0 AND 1000000);
ALTER TABLE messages
  ADD COLUMN segments int NOT NULL DEFAULT 0;   -- as how many texts it was sent, all attempts together; 0 for a mail

-- +goose Down
ALTER TABLE messages DROP COLUMN segments;
ALTER TABLE settings DROP COLUMN text_price, DROP COLUMN text_budget_restock, DROP COLUMN text_budget_month;
