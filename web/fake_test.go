package web

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"holdfast/app/notify"
	"holdfast/app/shop"
	"holdfast/app/shopify"
	"holdfast/app/waitlist"
	"holdfast/app/words"
)

const (
	testShop   = "chairs.myshopify.com"
	testClient = "0123456789abcdef0123456789abcdef"
	testSecret = "shpss_secret"
	goodToken  = "AAAAAAAAAAAAAAAAAAAAAAAA"
	twilioKey  = "k3y"
)

var testNow = time.Date(2026, 12, 1, 14, 17, 0, 0, time.UTC)

// fake is a domain that answers what it is told to and remembers what it was asked to change.
type fake struct {
	unknown []waitlist.TopicCount
	Domain  // any method that a test does not expect panics

	mu    sync.Mutex
	acts  []string // what was changed, in order
	err   error    // what every call fails with
	state string   // of the offer and the entry
	tap   waitlist.Tap
	hook  waitlist.Webhook
	set   shop.Settings

	joined   waitlist.Joined
	waitable waitlist.Waitability
	picture  string // address of the item's picture; empty = one that no test loads
	name     string // of the shop, the product and the variant; empty = those of testItem
	rows     int    // in every list
	notes    []waitlist.Note
	asked    *int
	after    int64
}

func (f *fake) act(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acts = append(f.acts, what)
	return f.err
}

func (f *fake) done() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.acts)
}

func (f *fake) setAfter(after int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = after
}

func (f *fake) setState(state string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = state
}

var testItem = waitlist.Item{VariantID: 41, ProductTitle: "Oak chair", VariantTitle: "Natural", ImageURL: "https://cdn.shopify.com/chair.jpg",
	Price: "129.0", Currency: "EUR", URL: "https://chairs.myshopify.com/products/oak-chair?variant=41"}

// item is what is waited for, and the name of its shop.
func (f *fake) item() (waitlist.Item, string) {
	item, shop := testItem, "Chairs & Co"
	if f.picture != "" {
		item.ImageURL = f.picture
	}
	if f.name != "" {
		item.ProductTitle, item.VariantTitle, shop = f.name, f.name, f.name
	}
	return item, shop
}

func (f *fake) offer() waitlist.Offer {
	f.mu.Lock()
	defer f.mu.Unlock()
	item, shop := f.item()
	o := waitlist.Offer{ShopID: 1, ShopName: shop, Item: item, State: f.state, HoldMinutes: 15, Now: testNow, PlaceToken: goodToken}
	switch f.state {
	case "open", "reserved":
		o.State, o.Reserved = "open", f.state == "reserved"
		o.Until, o.Retry = testNow.Add(28*time.Minute), 15*time.Second
	case "securing":
		o.Retry = 1500 * time.Millisecond
	case "held":
		o.Until, o.CheckoutURL, o.Retry = testNow.Add(15*time.Minute), "https://chairs.myshopify.com/invoices/1", 15*time.Second
	case "gone", "lapsed", "passed", "expired":
		o.Place = 3
	}
	return o
}

func (f *fake) token(token string) error {
	if f.err != nil {
		return f.err
	}
	if token != goodToken {
		return waitlist.ErrInvalidLink
	}
	return nil
}

func (f *fake) Tap(_ context.Context, _ int64, tap waitlist.Tap) (waitlist.Joined, error) {
	f.tap = tap
	return f.joined, f.act("tap")
}
func (f *fake) Waitable(context.Context, int64, string, string) (waitlist.Waitability, error) {
	return f.waitable, f.err
}
func (f *fake) Look(_ context.Context, token string) (waitlist.Offer, error) {
	return f.offer(), f.token(token)
}
func (f *fake) Claim(_ context.Context, token string) (waitlist.Offer, error) {
	f.act("claim")
	return f.offer(), f.token(token)
}
func (f *fake) Pass(_ context.Context, token string) (waitlist.Offer, error) {
	f.act("pass")
	return f.offer(), f.token(token)
}
func (f *fake) Place(_ context.Context, token string) (waitlist.MyPlace, error) {
	item, shop := f.item()
	p := waitlist.MyPlace{ShopID: 1, ShopName: shop, Item: item, State: f.state, Place: 3}
	if f.state == waitlist.Offered || f.state == waitlist.Holding {
		p.Place, p.Reserve = 0, goodToken
	}
	return p, f.token(token)
}
func (f *fake) Leave(_ context.Context, token string) error {
	f.act("leave")
	return f.token(token)
}
func (f *fake) Contact(_ context.Context, token string) (waitlist.Optout, error) {
	_, shop := f.item()
	return waitlist.Optout{ShopID: 1, ShopName: shop, Channel: waitlist.Email, Contact: "a••@example.com", Unsubscribed: f.state == "unsubscribed"}, f.token(token)
}
func (f *fake) Unsubscribe(_ context.Context, token string) error {
	f.act("unsubscribe")
	return f.token(token)
}
func (f *fake) Receive(_ context.Context, _ int64, w waitlist.Webhook) (bool, error) {
	f.hook = w
	return f.state != "repeated", f.act("receive")
}
func (f *fake) Delivered(_ context.Context, _ int64, d waitlist.Delivery) error {
	return f.act(strings.TrimSpace("delivered " + d.ProviderID + " " + d.Status + " " + d.To))
}
func (f *fake) InboundText(_ context.Context, _ int64, id, from, body, _ string) (string, error) {
	return "stop", f.act("text " + id + " " + from + " " + body)
}

func (f *fake) Catalogue(context.Context, int64) (waitlist.CatalogueProgress, error) {
	return waitlist.CatalogueProgress{Reading: true, Kept: 12000, Objects: 100000}, f.err
}

func (f *fake) Totals(context.Context, int64) (waitlist.Totals, error) {
	return waitlist.Totals{Waiting: 23, Offered: 2, Holding: 1, Sold: 4, OpenRestocks: 1}, f.err
}
func (f *fake) Notes(context.Context, int64) ([]waitlist.Note, error) { return f.notes, f.err }

// times returns row numbers, newest first, or in order.
func (f *fake) times() []int64 {
	ids := make([]int64, f.rows)
	for i := range ids {
		ids[i] = int64(i + 1)
	}
	return ids
}
func ptr[T any](v T) *T { return &v }

func pick[T any](i int64, from ...T) T { return from[int(i-1)%len(from)] }

func (f *fake) Queues(_ context.Context, _, after int64) (rows []waitlist.QueueRow, _ error) {
	f.setAfter(after)
	for _, i := range f.times() {
		rows = append(rows, waitlist.QueueRow{VariantID: 40 + i, ProductTitle: pick(i, "Oak chair", "Lounge chair with a rather long name, in four woods", "Stool"), VariantTitle: pick(i, "Natural", "Smoked / Large", "Default Title"),
			SKU: pick(i, "OAK-NAT", "LNG-SMK-L", ""), Waiting: int(i * 7), Offered: int(i % 3), HoldingN: int(i % 2), Sellable: pick(i, ptr(0), ptr(2), nil), ObservedAt: pick(i, &testNow, &testNow, nil),
			NotHoldable: pick(i, "", "", "It is a bundle without stock of its own")})
	}
	return rows, f.err
}
func (f *fake) Queue(_ context.Context, _, variantID, after int64) (q waitlist.QueueRow, rows []waitlist.EntryRow, _ error) {
	f.setAfter(after)
	if variantID != 41 {
		return q, nil, waitlist.ErrNotFound
	}
	for _, i := range f.times() {
		rows = append(rows, waitlist.EntryRow{ID: 100 + i, VariantID: 41, ProductTitle: "Oak chair", VariantTitle: "Natural", Contact: pick(i, "a••@example.com", "+44 •••• ••3456", "some.long.address••@subdomain.example.org"),
			Channel: pick(i, waitlist.Email, waitlist.SMS), Name: pick(i, "Ana", "", "Benjamin Featherstone"), State: pick(i, waitlist.Waiting, waitlist.Offered, waitlist.Holding), Place: pick(i, int(i), 0, 0),
			JoinedAt: testNow.Add(-time.Duration(100-i) * time.Hour), ExpiresAt: testNow.Add(1000 * time.Hour), TimesTold: int(i % 3)})
	}
	return waitlist.QueueRow{VariantID: 41, ProductTitle: "Oak chair", VariantTitle: "Natural", Waiting: 7, Offered: 1, HoldingN: 1, Sellable: ptr(0)}, rows, f.err
}
func (f *fake) Restocks(_ context.Context, _, after int64) (rows []waitlist.RestockRow, _ error) {
	f.setAfter(after)
	for _, i := range f.times() {
		rows = append(rows, f.restockRow(60-i))
	}
	return rows, f.err
}
func (f *fake) restockRow(id int64) waitlist.RestockRow {
	return waitlist.RestockRow{ID: id, VariantID: 41, ProductTitle: "Oak chair", VariantTitle: "Natural", State: pick(id, "open", "closed", "waiting_approval"), Units: 4, Available: 1, Live: 1, Sold: 1, Withdrawn: 1,
		OpenOffers: 1, Told: 4, Short: id%5 == 0, OpenedAt: testNow.Add(-time.Hour), Asked: f.asked}
}
func (f *fake) Restock(_ context.Context, _, id int64) (waitlist.RestockStory, error) {
	if id > 60 {
		return waitlist.RestockStory{}, waitlist.ErrNotFound
	}
	s := waitlist.RestockStory{RestockRow: f.restockRow(id), Changes: []waitlist.RestockChange{{Kind: "open", By: 3, Sellable: 3, At: testNow.Add(-time.Hour)}, {Kind: "grow", By: 1, Sellable: 2, At: testNow.Add(-30 * time.Minute)}, {Kind: "shrink", By: 1, Sellable: 0, At: testNow.Add(-20 * time.Minute)}}}
	for _, i := range f.times() {
		s.Offers = append(s.Offers, waitlist.OfferRow{ID: i, EntryID: i, Contact: "a••@example.com", State: pick(i, "open", "claimed", "lapsed", "missed"), Message: pick(i, "accepted", "delivered", "failed", ""), CreatedAt: testNow.Add(-50 * time.Minute), LapsesAt: testNow.Add(10 * time.Minute), EndedAt: pick(i, nil, &testNow, &testNow)})
	}
	s.Holds, _ = f.Holds(context.Background(), 1, 0)
	return s, f.err
}
func (f *fake) Holds(_ context.Context, _, after int64) (rows []waitlist.HoldRow, _ error) {
	f.setAfter(after)
	for _, i := range f.times() {
		h := waitlist.HoldRow{ID: 90 - i, RestockID: 55, EntryID: i, VariantID: 41, ProductTitle: "Oak chair", VariantTitle: "Natural", Contact: "a••@example.com", State: pick(i, "active", "securing", "sold", "expired"), ClaimedAt: testNow.Add(-5 * time.Minute)}
		switch h.State {
		case "active":
			h.ExpiresAt, h.DraftID = ptr(testNow.Add(10*time.Minute)), ptr(int64(1234567890123))
		case "sold":
			h.ExpiresAt, h.EndedAt, h.DraftID, h.OrderID, h.CancelledAt = &testNow, &testNow, ptr(int64(1234567890124)), ptr(int64(5550001112223)), &testNow
		case "expired":
			h.ExpiresAt, h.EndedAt, h.DraftID, h.PaidLateAt = &testNow, &testNow, ptr(int64(1234567890125)), &testNow
		}
		rows = append(rows, h)
	}
	return rows, f.err
}
func (f *fake) OptOuts(_ context.Context, _, after int64) (rows []waitlist.OptOutRow, _ error) {
	f.setAfter(after)
	for _, i := range f.times() {
		rows = append(rows, waitlist.OptOutRow{ID: i, Channel: pick(i, waitlist.Email, waitlist.SMS), Address: pick(i, "a••@example.com", "+44 •••• ••3456", ""), Reason: pick(i, "merchant", "stop", "bounce", "unsubscribe"), CreatedAt: testNow, Liftable: i%4 == 1})
	}
	return rows, f.err
}
func (f *fake) Messages(_ context.Context, _, after int64) (rows []waitlist.MessageRow, _ error) {
	f.setAfter(after)
	for _, i := range f.times() {
		rows = append(rows, waitlist.MessageRow{ID: 500 - i, Channel: pick(i, waitlist.Email, waitlist.SMS), Contact: pick(i, "a••@example.com", "+44 •••• ••3456"), ProductTitle: "Oak chair", VariantTitle: "Natural", State: pick(i, "delivered", "failed", "pending", "unknown"),
			ErrorCode: pick(i, "", "30005", "", ""), Reason: pick(i, "", "The number does not exist", "", "The provider did not answer in time"), Attempts: 1, CreatedAt: testNow, AcceptedAt: pick(i, &testNow, nil)})
	}
	return rows, f.err
}

func (f *fake) UnknownTopics(context.Context, int64) ([]waitlist.TopicCount, error) {
	return f.unknown, f.err
}

func (f *fake) PrivacyRequests(_ context.Context, _, after int64) (rows []waitlist.PrivacyRow, _ error) {
	f.setAfter(after)
	for _, i := range f.times() {
		rows = append(rows, waitlist.PrivacyRow{ID: 300 - i, Topic: pick(i, "customers/data_request", "customers/redact", "customers/redact", "shop/redact"), ReceivedAt: testNow,
			DoneAt: pick(i, &testNow, &testNow, nil, &testNow), Outcome: pick(i, "exported", "erased", "", "kept"), Counts: map[string]int{"places": 2}, Readable: i%4 == 1, ExportUntil: pick(i, &testNow, nil, nil, nil)})
	}
	return rows, f.err
}
func (f *fake) PrivacyExport(_ context.Context, _, id int64) (waitlist.PrivacyRow, waitlist.PersonExport, []byte, error) {
	return waitlist.PrivacyRow{ID: id, Topic: "customers/data_request", ReceivedAt: testNow, DoneAt: &testNow, Outcome: "exported", Readable: true, ExportUntil: &testNow},
		waitlist.PersonExport{
			Contacts: []waitlist.ExportedContact{{Channel: "email", Address: "ann@example.com", Since: testNow}},
			Places:   []waitlist.ExportedPlace{{Product: "Oak chair", Contact: "ann@example.com", Name: "Ann <b>", State: "sold", Joined: testNow, Holds: []waitlist.ExportedHold{{State: "sold", Since: testNow, Order: ptr(int64(5550001112223))}}}},
			Messages: []waitlist.ExportedMessage{{Channel: "email", To: "ann@example.com", State: "delivered", Created: testNow}},
			OptOuts:  []waitlist.ExportedOptOut{{Channel: "sms", Reason: "stop", Since: testNow}},
		}, []byte(`{"places":[]}`), f.err
}

func at(what string, id int64) string { return what + " " + strconv.FormatInt(id, 10) }

func (f *fake) Approve(_ context.Context, _, id int64) error     { return f.act(at("approve", id)) }
func (f *fake) Decline(_ context.Context, _, id int64) error     { return f.act(at("decline", id)) }
func (f *fake) ReleaseHold(_ context.Context, _, id int64) error { return f.act(at("release", id)) }
func (f *fake) RemoveEntry(_ context.Context, _, id int64) error { return f.act(at("remove", id)) }
func (f *fake) ClearNote(_ context.Context, _, id int64) error   { return f.act(at("clear", id)) }
func (f *fake) Lift(_ context.Context, _, id int64) error        { return f.act(at("lift", id)) }
func (f *fake) Suppress(_ context.Context, _ int64, c waitlist.Channel, address, reason string) error {
	return f.act("suppress " + string(c) + " " + address + " " + reason)
}
func (f *fake) ChangeSettings(_ context.Context, _ int64, set shop.Settings) error {
	f.set = set
	return f.act("settings")
}

// tenants is one installed shop.
type tenants struct {
	shop      shop.Shop
	set       shop.Settings
	connected []shop.Twilio // what was stored; an empty one deletes
}

func (t *tenants) ByDomain(_ context.Context, domain string) (shop.Shop, error) {
	if domain != t.shop.Domain {
		return shop.Shop{}, shop.ErrNotFound
	}
	return t.shop, nil
}
func (t *tenants) ByTwilioKey(_ context.Context, key string) (shop.Shop, error) {
	if key != t.shop.TwilioKey {
		return shop.Shop{}, shop.ErrNotFound
	}
	return t.shop, nil
}
func (t *tenants) Settings(context.Context, int64) (shop.Settings, error) { return t.set, nil }
func (t *tenants) Twilio(context.Context, int64) (shop.Twilio, error) {
	return shop.Twilio{AccountSID: "AC1", APIKey: "SK1", APISecret: "s", AuthToken: "auth", MessagingServiceSID: "MG1"}, nil
}

func (t *tenants) ConnectTwilio(_ context.Context, _ int64, account shop.Twilio, key string) error {
	t.connected = append(t.connected, account)
	if key == "" {
		return errors.New("no key")
	}
	return nil
}
func (t *tenants) DisconnectTwilio(context.Context, int64) error {
	t.connected = append(t.connected, shop.Twilio{})
	return nil
}

func (f *fake) Forecast(context.Context, int64, int64) (waitlist.Forecast, error) {
	return waitlist.Forecast{Texts: 12, Segments: 24, Mills: 240, Currency: "EUR", Over: true}, f.err
}
func (f *fake) Wording(context.Context, int64, *words.Language) (map[string]string, error) {
	return map[string]string{"mail.subject": "Your {item}"}, f.err
}
func (f *fake) SetWording(_ context.Context, _ int64, l *words.Language, own map[string]string) error {
	return f.act("wording " + l.Code + " " + own["text"])
}
func (f *fake) Suppressed(_ context.Context, _ int64, a waitlist.Address) (bool, error) {
	return a.Key == "out@example.com", f.err
}

func (f *fake) Pauses(context.Context, int64) ([]waitlist.Pause, error) {
	until := testNow.Add(time.Hour)
	return []waitlist.Pause{
		{Channel: waitlist.SMS, Prefix: "+49", Reason: "texts to this country are switched off", Since: testNow},
		{Channel: waitlist.Email, Reason: "3 of the last day's 40 went to addresses that do not exist", Since: testNow, Until: &until},
	}, f.err
}
func (f *fake) Resume(_ context.Context, _ int64, channel waitlist.Channel) error {
	return f.act("resume " + string(channel))
}
func (f *fake) TextsPerSecond(context.Context, int64) (int, error) { return 3, f.err }
func (f *fake) SetTextsPerSecond(_ context.Context, _ int64, n int) error {
	if n < 1 || n > 100 {
		return &waitlist.Invalid{Code: "invalid_rate", Field: "per_second", Message: "choose a whole number from 1 to 100"}
	}
	return f.act("rate " + strconv.Itoa(n))
}

// texter is Twilio, as far as tests of an account go.
type texter struct {
	err  error
	to   []string
	sent []waitlist.Outgoing
}

func (x *texter) Send(_ context.Context, m waitlist.Outgoing) (string, error) {
	x.sent = append(x.sent, m)
	return "id", nil
}

func (x *texter) Preview(m waitlist.Outgoing) notify.Preview {
	return notify.Preview{Subject: "subject of " + m.Locale, Mail: "mail", Text: "text " + m.Wording["text"], Segments: 2, GSM: false}
}

func (x *texter) TestText(_ context.Context, _ shop.Twilio, _, to string) error {
	x.to = append(x.to, to)
	return x.err
}

func testTenants() *tenants {
	return &tenants{
		shop: shop.Shop{ID: 1, Domain: testShop, Name: "Chairs & Co", Currency: "EUR", Country: "DE", Locale: "en", Installed: true, TwilioKey: twilioKey, HasToken: true},
		set:  shop.Settings{HoldMinutes: 15, OfferMinutesEmail: 60, OfferMinutesSMS: 30, NoticesPerUnit: 1, Threshold: 1, SettleSeconds: 30, ImplausibleUnits: 1000, TTLDays: 180, Locations: []int64{}, QuietHours: true, TextFrom: 9, TextUntil: 20, PassAsleep: true, TextPrice: 10},
	}
}

func newConfig(t testing.TB, f *fake) Config {
	t.Helper()
	verifier, err := shopify.NewVerifier(testClient, testSecret, "")
	if err != nil {
		t.Fatal(err)
	}
	// A shop that is not installed asks Shopify to let it in; here nobody answers.
	unreachable, err := shopify.New(shopify.Config{ClientID: testClient, ClientSecret: testSecret, Transport: silent{}}, nil, func() time.Time { return testNow }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return Config{Domain: f, Shops: testTenants(), Texter: &texter{}, Shopify: verifier, Install: unreachable, CookieKeys: [][]byte{[]byte(strings.Repeat("k", 32))}, URL: &url.URL{Scheme: "https", Host: "app.example.com"}, ClientID: testClient,
		Now: func() time.Time { return testNow }, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

// silent is a network on which nobody answers.
type silent struct{}

func (silent) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("nobody answers")
}

func newWeb(t testing.TB, f *fake) http.Handler {
	t.Helper()
	h, err := New(newConfig(t, f))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// send makes a request; headers are name, value, name, value.
func send(t testing.TB, h http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, in)
	r.Host = "app.example.com"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// proxied signs a path and query as Shopify's app proxy does.
func proxied(path string, query url.Values) string {
	q := url.Values{"shop": {testShop}, "path_prefix": {"/apps/notify"}, "timestamp": {strconv.FormatInt(testNow.Unix(), 10)}, "logged_in_customer_id": {"77"}}
	for k, v := range query {
		q[k] = v
	}
	keys := make([]string, 0, len(q))
	for k := range q {
		keys = append(keys, k+"="+strings.Join(q[k], ","))
	}
	slices.Sort(keys)
	mac := hmac.New(sha256.New, []byte(testSecret))
	mac.Write([]byte(strings.Join(keys, "")))
	q.Set("signature", hex.EncodeToString(mac.Sum(nil)))
	return path + "?" + q.Encode()
}

// signedWebhook are the headers of a webhook with this body.
func signedWebhook(body, topic, domain string) []string {
	mac := hmac.New(sha256.New, []byte(testSecret))
	mac.Write([]byte(body))
	return []string{"X-Shopify-Hmac-Sha256", base64.StdEncoding.EncodeToString(mac.Sum(nil)), "X-Shopify-Topic", topic, "X-Shopify-Shop-Domain", domain, "X-Shopify-Webhook-Id", "w-1", "X-Shopify-Event-Id", "e-1"}
}

// idToken is an ID token of a shop; change may spoil its claims.
func idToken(t testing.TB, domain, secret string, change func(jwt.MapClaims)) string {
	t.Helper()
	claims := jwt.MapClaims{"iss": "https://" + domain + "/admin", "dest": "https://" + domain, "aud": testClient, "sub": "42",
		"exp": testNow.Add(time.Minute).Unix(), "nbf": testNow.Add(-time.Second).Unix(), "iat": testNow.Unix(), "jti": "j", "sid": "s"}
	if change != nil {
		change(claims)
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func bearer(t testing.TB) []string {
	return []string{"Authorization", "Bearer " + idToken(t, testShop, testSecret, nil)}
}

const formType = "application/x-www-form-urlencoded"

// twilioSignature is Twilio's: HMAC-SHA1 of the address, followed by each field of the form with its
// value, in the order of their names.
func twilioSignature(address string, form url.Values) string {
	mac := hmac.New(sha1.New, []byte("auth"))
	mac.Write([]byte(address))
	for _, name := range slices.Sorted(maps.Keys(form)) {
		mac.Write([]byte(name + form.Get(name)))
	}
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
