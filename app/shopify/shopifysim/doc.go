// Package shopifysim is a simulated Shopify: its Admin GraphQL endpoint, its inventory, its draft orders
// and their checkout pages, its webhooks and its app proxy. Tests, the demo and the measurements use it;
// the program never imports it.
//
// It is honest rather than kind. A document is parsed, validated and its variables coerced against the
// real Admin schema (2026-10); scopes are checked, costs counted and throttled. What Shopify does not
// check is not checked: a draft order on stock that is not there is accepted and drives available to -1.
// What Shopify has and this package does not simulate is a loud error that begins with "SIMULATOR", never
// an empty success, and nothing is changed by it.
//
//	request ─▶ token, faults ─▶ parse, validate, coerce ─▶ cost, bucket ─▶ resolvers ─▶ answer (graphql.go)
//	                                                                           │
//	merchant, buyers (control.go, checkout.go) ─▶ inventory, drafts, orders (stock.go, draft.go)
//	                                                                           │
//	                                               ledger, webhooks (webhook.go) ─▶ the app
//
// Everything that a script can do over HTTP is a method of Server, too.
//
// # The demo's world
//
// Ids are fixed and the same after every Reset. Prices are in the shop's currency.
//
//	chairs.myshopify.com   shop 1001, Standard, EUR
//	  locations            2001 Workshop (the first: drafts reserve here), 2002 Warehouse,
//	                       2003 Showroom (does not fulfil online orders)
//	  3001 oak-chair       30011 Natural OAK-NAT 249.00 sold out · 30012 Smoked OAK-SMK 279.00 sold out ·
//	                       30013 White oiled OAK-WHT 259.00, 5 in stock
//	  3002 reading-chair   30021 Green READ-GRN 590.00 sold out at two locations ·
//	                       30022 Rust READ-RST 590.00, 3 at the Warehouse, 0 at the Workshop ·
//	                       30023 Blue READ-BLU 590.00, 2 in the Showroom only: not for sale online
//	  3003 garden-bench    30031 BENCH 420.00 sold out, inventory policy CONTINUE
//	  3004 chair-oil       30041 OIL 14.50 not tracked
//	  3005 cork-stool      30051 STOOL 120.00 sold out, not published to the online store
//	  3006 old-rocker      30061 ROCKER 310.00 sold out, status ARCHIVED
//	  3007 next-lounge     30071 LOUNGE 990.00 sold out, status DRAFT
//	  3008 dining-set      30081 SET 1290.00 a bundle: 4 x 30013 and 1 x 30091
//	  3009 dining-table    30091 TABLE 690.00, 1 in stock
//	  3010 folding-chair   30101 Beech FOLD 79.00 and 30102 Beech, boxed FOLD-BOX 79.00 share inventory item
//	                       40101, sold out
//	  3011 kids-chair      30111 Red KIDS 89.00 and 30112 Yellow KIDS 89.00: one SKU twice, sold out
//	lamps.myshopify.com    shop 1002, Plus, USD
//	  locations            2101 Studio
//	  3101 desk-lamp       31011 Brass LAMP-BRS 180.00 sold out · 31012 Black LAMP-BLK 160.00 sold out ·
//	                       31013 Copper LAMP-COP 190.00, 8 in stock
//	  3102 paper-lantern   31021 LANTERN 45.00 sold out
//	  3103 floor-lamp      31031 FLOOR 320.00 sold out
//
// The inventory item of variant 3xxxx is 4xxxx. Ids of draft orders, orders and everything that is made
// later are unique over all shops and are not used again after a Reset.
//
// # Tokens
//
// The app is approved in every shop from the start. It gets its tokens as from Shopify: by an ID token
// (Server.IDToken), a code of the authorize page, or a refresh token, at a shop's token endpoint
// (oauth.go). A token that was asked for with expiring=1 ends after an hour of the simulated clock; a
// superseded refresh token is refused once what replaced it was used; uninstalling ends them all. Until
// then a shop takes Server.Token as well, for tests that are not about tokens.
//
// # Where nobody knows
//
// Where Shopify's behaviour is documented nowhere and was not observed, the simulation takes the answer
// that is harder on the app, and the comment at that place says "Assumed".
package shopifysim
