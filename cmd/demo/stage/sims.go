package stage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5"

	"holdfast/app/notify/inbox"
	"holdfast/app/notify/smtpsim"
	"holdfast/app/notify/twiliosim"
	"holdfast/app/shop"
	"holdfast/app/shopify/shopifysim"
	"holdfast/app/waitlist"
	"holdfast/cmd/demo/storefront"
)

// simulators are everything around the app that is not the app: Shopify with its storefront, Twilio and
// the mail server.
type simulators struct {
	s                 *Stage
	shopify           *shopifysim.Server
	outbox            *inbox.Outbox
	twilio            *twiliosim.Sim
	mail              *smtpsim.Sim
	inbox             http.Handler           // /inbox and the control calls about messages
	storefront        *storefront.Storefront // nil when it could not be started
	storefrontTrouble string                 // why
	running           sync.WaitGroup
}

// newSimulators starts them. What was started before an error is for close to end.
func newSimulators(s *Stage) (*simulators, error) {
	sims := &simulators{s: s}
	var err error
	sims.shopify, err = shopifysim.New(shopifysim.Options{
		Clock: s.clock, Faults: s.faults, ClientID: ClientID, ClientSecret: ClientSecret, Public: s.SimURL, Log: s.log,
		AppURL: func() string { return s.AppURL }, Install: sims.install, Documents: os.Getenv(shopifysim.DocumentsVariable),
	})
	if err != nil {
		return sims, err
	}
	sims.running.Go(func() { sims.shopify.Run(s.ctx) })
	sims.outbox = inbox.New(s.clock)
	if sims.twilio, err = twiliosim.New(s.clock, s.faults, sims.outbox, s.log); err != nil {
		return sims, err
	}
	if sims.mail, err = smtpsim.Start("127.0.0.1:0", smtpsim.Options{ReportURL: s.AppURL + "/webhooks/email/" + mailKey}, s.faults, sims.outbox, s.log); err != nil {
		return sims, err
	}
	if sims.inbox, err = inbox.Handler(sims.outbox, sims.twilio, sims.mail); err != nil {
		return sims, err
	}

	if s.o.Source == "" {
		sims.storefrontTrouble = "the project's folder was not given"
		return sims, nil
	}
	sims.storefront, err = storefront.New(storefront.Deps{
		Extension: filepath.Join(s.o.Source, "storefront-extension", "extensions", "notify-me"),
		Node:      filepath.Join(s.o.Source, "cmd", "demo", "storefront", "node"),
		Log:       s.log, Product: sims.product, Proxy: sims.shopify.ServeProxy,
		Buy: func(_ context.Context, domain, variantID string) error {
			id, err := strconv.ParseInt(variantID, 10, 64)
			if err != nil {
				return fmt.Errorf("variant %q: %w", variantID, err)
			}
			_, err = sims.shopify.Buy(domain, id, 1, "")
			if no, ok := errors.AsType[*shopifysim.Error](err); ok && no.Status == http.StatusConflict {
				return storefront.ErrSoldOut
			}
			return err
		},
	})
	if err != nil {
		// Everything else works without it.
		sims.storefront, sims.storefrontTrouble = nil, err.Error()
		s.log.Warn("no storefront pages", "err", err)
	}
	return sims, nil
}

// close ends what the simulators have running; their context has ended.
func (s *simulators) close() error {
	s.running.Wait()
	if s.twilio != nil {
		s.twilio.Close()
	}
	if s.mail != nil {
		s.mail.Close()
	}
	if s.storefront != nil {
		s.storefront.Close()
	}
	return nil
}

// inFlight counts what is on its way between the simulators and the app: webhooks, and messages and what
// Twilio reports of them.
func (s *simulators) inFlight() (hooks, messages int) {
	return s.shopify.InFlight(), s.twilio.InFlight() + s.mail.InFlight()
}

// tick does what fell due at the simulators when the clock was pushed.
func (s *simulators) tick() { s.shopify.Tick() }

func (s *simulators) reset() error {
	s.twilio.Reset()
	s.outbox.Reset()
	return s.shopify.Reset()
}

// mount adds the simulators' own calls and pages.
func (s *simulators) mount(mux chi.Router) {
	s.shopify.Routes(mux)
	front := func(w http.ResponseWriter, r *http.Request) {
		if s.storefront == nil {
			http.Error(w, "The storefront pages are not available: "+s.storefrontTrouble, http.StatusNotImplemented)
			return
		}
		s.storefront.ServeHTTP(w, r)
	}
	for _, path := range []string{"/inbox", "/sim/messages", "/sim/sms", "/sim/sms_status", "/sim/mail_event"} {
		mux.Handle(path, s.inbox)
	}
	mux.Handle("/twilio/*", s.twilio)
	mux.HandleFunc("/shops/*", front)
	mux.HandleFunc("/storefront/*", front)
}

// mailKey is the key in the address that the simulated mail provider reports to.
const mailKey = "demo-reports-on-mails-go-here"

// seedShop is what a shop's merchant has set up beside the app: an account at Twilio.
type seedShop struct {
	domain    string
	twilio    shop.Twilio
	twilioKey string
}

func seedOf(domain string) seedShop {
	return seedShop{domain: domain, twilio: twilioOf(domain), twilioKey: "demo-" + digest(domain, "key")}
}

// install opens the app in a shop's admin, where it was approved just now: the app installs itself.
func (s *simulators) install(ctx context.Context, domain string) error {
	reply, err := s.s.admin(ctx, domain, http.MethodGet, "/", "", nil, "")
	if err != nil {
		return err
	}
	if reply.Status != http.StatusOK {
		return refuse(http.StatusBadGateway, "the app answers %d when it is opened in %s for the first time", reply.Status, domain)
	}
	return nil
}

// twilioOf is the simulated Twilio account of a shop, the same at every start.
func twilioOf(domain string) shop.Twilio {
	return shop.Twilio{
		AccountSID: "AC" + digest(domain, "account"), APIKey: "SK" + digest(domain, "api key"), APISecret: digest(domain, "api secret"),
		AuthToken: digest(domain, "auth token"), MessagingServiceSID: "MG" + digest(domain, "service"),
	}
}

// open gives a shop its account at the simulated Twilio, with a number of its own.
func (s *simulators) open(sh seedShop) error {
	var number strings.Builder
	for _, c := range sh.twilio.AccountSID[2:9] {
		number.WriteByte('0' + byte(c)%10)
	}
	return s.twilio.AddAccount(twiliosim.Account{
		Shop: sh.domain, SID: sh.twilio.AccountSID, APIKey: sh.twilio.APIKey, APISecret: sh.twilio.APISecret, AuthToken: sh.twilio.AuthToken,
		MessagingServiceSID: sh.twilio.MessagingServiceSID, Number: "+1555" + number.String(),
		InboundURL: s.s.AppURL + "/webhooks/twilio/" + sh.twilioKey + "/inbound",
	})
}

// digest makes 32 hexadecimal digits of a shop and a word.
func digest(domain, what string) string {
	sum := sha256.Sum256([]byte(domain + " " + what))
	return hex.EncodeToString(sum[:16])
}

// shop finds a shop of the simulated Shopify.
func (s *simulators) shop(domain string) (shopifysim.Shop, bool) {
	for _, sh := range s.shopify.Shops() {
		if sh.Shop == domain {
			return sh, true
		}
	}
	return shopifysim.Shop{}, false
}

// product is what a product page of the storefront shows.
func (s *simulators) product(domain, handle string) (storefront.Product, bool) {
	sh, _ := s.shop(domain)
	for _, p := range sh.Products {
		if p.Handle != handle || !p.Published || p.Status != "ACTIVE" {
			continue
		}
		out := storefront.Product{
			ID: p.ID.String(), Handle: p.Handle, Title: p.Title, ImageURL: p.Image,
			Shop: storefront.Shop{Name: sh.Name, Currency: sh.Currency, Country: sh.Country, Locale: "en"},
		}
		for _, v := range p.Variants {
			out.Variants = append(out.Variants, storefront.Variant{ID: v.VariantID.String(), Title: v.Title, Price: v.Price, Available: v.ForSale})
		}
		return out, true
	}
	return storefront.Product{}, false
}

// catchUp is how long the app may take to find by itself what a lost webhook would have told: it reads
// stock again every 5 minutes and lists its drafts every 10.
const catchUp = 15 * time.Minute

// evidence is what the simulators know, for Recount.
func (s *simulators) evidence(ctx context.Context) (Evidence, error) {
	e := Evidence{Now: s.s.clock.Now(), Stock: map[Variant]Stock{}, Unheard: map[Variant]bool{}}
	read := map[Variant]time.Time{} // when the app last read a variant
	rows, _ := s.s.db.Query(ctx, `SELECT domain, v.id, coalesce(observed_at, '-infinity') FROM variants v JOIN shops ON shops.id = shop_id WHERE observed_at IS NOT NULL`)
	var domain string
	var id int64
	var at time.Time
	_, err := pgx.ForEachRow(rows, []any{&domain, &id, &at}, func() error {
		read[Variant{domain, id}] = at
		return nil
	})
	if err != nil {
		return e, fmt.Errorf("when the variants were read: %w", err)
	}
	for _, sh := range s.shopify.Shops() {
		byItem := map[int64][]int64{}
		for _, p := range sh.Products {
			for _, v := range p.Variants {
				byItem[int64(v.InventoryItemID)] = append(byItem[int64(v.InventoryItemID)], int64(v.VariantID))
				inv, err := s.shopify.Inventory(sh.Shop, int64(v.VariantID))
				if err != nil {
					return e, err
				}
				stock := Stock{Sellable: inv.Sellable, Reserved: inv.Reserved, Committed: inv.Committed, Available: map[int64]int{}}
				for _, l := range inv.Locations {
					stock.Available[int64(l.ID)] = l.Available
				}
				e.Stock[Variant{sh.Shop, int64(v.VariantID)}] = stock
			}
		}
		drafts, err := s.shopify.Drafts(sh.Shop)
		if err != nil {
			return e, err
		}
		for _, d := range drafts {
			for _, tag := range d.Tags {
				number, ours := strings.CutPrefix(tag, waitlist.TagOfAll+"-")
				hold, err := strconv.ParseInt(number, 10, 64)
				if ours && err == nil {
					e.Drafts = append(e.Drafts, HeldDraft{
						Shop: sh.Shop, ID: int64(d.ID), HoldID: hold, VariantID: int64(d.VariantID), Open: d.Status == "OPEN", Paid: d.Status == "COMPLETED",
					})
				}
			}
		}
		for _, d := range s.shopify.Webhooks(sh.Shop) {
			if d.State == "delivered" || d.TriggeredAt.Before(e.Now.Add(-catchUp)) {
				continue
			}
			item, variants := subject(d.Body)
			for _, id := range append(variants, byItem[item]...) {
				v := Variant{sh.Shop, id}
				// A later read has told the app all that a stock webhook would have.
				if d.Topic != "inventory_levels/update" || !read[v].After(d.TriggeredAt) {
					e.Unheard[v] = true
				}
			}
		}
	}
	for _, m := range s.outbox.Messages("", "") {
		sent := Sent{ID: m.ID, To: m.To, At: m.At}
		for _, link := range m.Links {
			if token, ok := strings.CutPrefix(link, s.s.AppURL+"/r/"); ok {
				sent.Tokens = append(sent.Tokens, token)
			}
		}
		e.Sent = append(e.Sent, sent)
	}
	return e, nil
}

// subject is what a webhook's payload is about: an inventory item, or the variants of a product's, draft's
// or order's lines.
func subject(body []byte) (item int64, variants []int64) {
	var payload struct {
		InventoryItemID int64 `json:"inventory_item_id"`
		Variants        []struct {
			ID int64 `json:"id"`
		} `json:"variants"`
		LineItems []struct {
			VariantID int64 `json:"variant_id"`
		} `json:"line_items"`
	}
	if json.Unmarshal(body, &payload) != nil {
		return 0, nil // about something else
	}
	for _, v := range payload.Variants {
		variants = append(variants, v.ID)
	}
	for _, l := range payload.LineItems {
		variants = append(variants, l.VariantID)
	}
	return payload.InventoryItemID, variants
}
