// Package waitlist gives returning units to the people who have waited longest, one holder per unit.
//
//	entry   Join ─▶ waiting ─allocate─▶ offered ─Claim─▶ holding ─MarkSold─▶ sold
//	                   ▲                  │lapse, pass,      │expire, release,
//	                   │                  │miss, withdraw    │refuse
//	                   └──────────────────┴──────────────────┘
//	        any live state ─▶ left | suppressed;   waiting ─▶ expired (its time-to-live)
//
//	offer   open ─▶ claimed | lapsed | passed | missed | withdrawn;   claimed ─▶ missed (its hold was refused)
//
//	hold    Claim ─▶ securing ─▶ active ─▶ sold
//	                    │           ├─▶ releasing ─▶ expired | released
//	                    └─▶ releasing ─▶ refused  (Shopify had no unit after all)
//	                                  ─▶ expired  (its time was over before it was secured)
//
// A reserved offer is one whose hold is made with it, before its person is told (shop.Settings.Reserves):
// allocate does what Claim would, the notice leaves when the hold is active, and a press marks the hold and
// goes straight to checkout. Until then the entry is offered, the offer open, and both end with the hold:
//
//	entry   waiting ─allocate─▶ offered ─press─▶ holding ─▶ ...
//	hold    allocate ─▶ securing ─▶ active, told ─press─▶ active, pressed ─▶ sold
//	                       │            └─▶ releasing ─▶ expired | released   offer lapsed or passed
//	                       └─▶ releasing ─▶ refused | expired                 offer missed: never told
//
// Shopify is the truth about stock; the counter of a restock is the truth about promises. In every
// committed state
//
//  1. units = available + live holds + sold + withdrawn, and available >= 0;
//  2. open offers without a hold never exceed available x notices_per_unit at the moment they are made;
//  3. of two waiting entries that may be told, the one that joined first is told first;
//  4. a contact, and a signed-in customer, has one live entry per variant;
//  5. nobody is told twice in a restock, unless the first offer was missed or withdrawn;
//  6. a suppressed contact is neither added nor messaged;
//  7. a unit comes back once, however often the sweep runs and wherever a process dies;
//  8. what was accepted is finished or undone, whatever dies;
//  9. every statement names the shop;
//  10. only Claim, Pass, Leave and Unsubscribe act for a shopper, and only a POST calls them.
//
// Two rules hold everywhere. Every state change is one UPDATE that names the state it leaves and looks
// at the row count: no row means that somebody else was there, and the step stops. And a transaction
// that takes several rows takes them in the order hold, restock, offer, entry, variant; it locks first
// and counts in a second statement, whose snapshot is younger than the lock.
//
// No remote call is made while a transaction is open. A step writes its intent, calls, and confirms; it
// may be run again, and by two processes at once.
//
// Read entry.go, observe.go, offer.go (and gather.go), hold.go, message.go, sweep.go, in that order;
// webhook.go is how Shopify's news comes in, catalogue.go how its variants are known, and privacy.go how a person or a shop is erased.
package waitlist
