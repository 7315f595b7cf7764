// Package web is everything of Holdfast that speaks HTTP to the outside: the storefront's form, the
// shopper's links, the merchant's pages inside the Shopify admin, and the webhooks of Shopify and
// Twilio. All routes stand on one screen, in routes.go.
//
// A handler decodes, calls the domain, and answers; what went wrong is turned into a status and a
// sentence in one place, errors.go. Nothing is decided here that a test of the domain could prove.
//
// Who is asking is proved anew by every request and never by a cookie (install.go has the one cookie):
//
//	storefront   Shopify's app proxy signs the query
//	shopper      the token in the link
//	merchant     Shopify's ID token, a minute old at most
//	Shopify      the signature of the raw body, or of the query that it sends a browser with
//	Twilio       the signature of the whole URL and form, and the shop's key in the path
package web

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/gorilla/sessions"

	"holdfast/app/notify"
	"holdfast/app/shop"
	"holdfast/app/shopify"
	"holdfast/app/waitlist"
	"holdfast/app/words"
	"holdfast/templates"
)

// Domain is what the pages ask of the waitlist; *waitlist.Service is it. The first group is all that
// acts for a shopper: no GET may reach it.
type Domain interface {
	Tap(ctx context.Context, shopID int64, tap waitlist.Tap) (waitlist.Joined, error)
	Claim(ctx context.Context, token string) (waitlist.Offer, error)
	Pass(ctx context.Context, token string) (waitlist.Offer, error)
	Leave(ctx context.Context, token string) error
	Unsubscribe(ctx context.Context, token string) error

	Waitable(ctx context.Context, shopID int64, variantID, sku string) (waitlist.Waitability, error)
	Look(ctx context.Context, token string) (waitlist.Offer, error)
	Place(ctx context.Context, token string) (waitlist.MyPlace, error)
	Contact(ctx context.Context, token string) (waitlist.Optout, error)

	Forecast(ctx context.Context, shopID, variantID int64) (waitlist.Forecast, error)
	Wording(ctx context.Context, shopID int64, l *words.Language) (map[string]string, error)
	SetWording(ctx context.Context, shopID int64, l *words.Language, own map[string]string) error
	Suppressed(ctx context.Context, shopID int64, a waitlist.Address) (bool, error)

	Receive(ctx context.Context, shopID int64, w waitlist.Webhook) (fresh bool, err error)
	Delivered(ctx context.Context, shopID int64, d waitlist.Delivery) error
	InboundText(ctx context.Context, shopID int64, id, from, body, optOutType string) (string, error)

	Totals(ctx context.Context, shopID int64) (waitlist.Totals, error)
	Catalogue(ctx context.Context, shopID int64) (waitlist.CatalogueProgress, error)
	Notes(ctx context.Context, shopID int64) ([]waitlist.Note, error)
	Queues(ctx context.Context, shopID, after int64) ([]waitlist.QueueRow, error)
	Queue(ctx context.Context, shopID, variantID, after int64) (waitlist.QueueRow, []waitlist.EntryRow, error)
	Restocks(ctx context.Context, shopID, after int64) ([]waitlist.RestockRow, error)
	Restock(ctx context.Context, shopID, id int64) (waitlist.RestockStory, error)
	Holds(ctx context.Context, shopID, after int64) ([]waitlist.HoldRow, error)
	OptOuts(ctx context.Context, shopID, after int64) ([]waitlist.OptOutRow, error)
	Messages(ctx context.Context, shopID, after int64) ([]waitlist.MessageRow, error)
	UnknownTopics(ctx context.Context, shopID int64) ([]waitlist.TopicCount, error)
	PrivacyRequests(ctx context.Context, shopID, after int64) ([]waitlist.PrivacyRow, error)
	PrivacyExport(ctx context.Context, shopID, id int64) (waitlist.PrivacyRow, waitlist.PersonExport, []byte, error)

	Approve(ctx context.Context, shopID, restockID int64) error
	Decline(ctx context.Context, shopID, restockID int64) error
	ReleaseHold(ctx context.Context, shopID, holdID int64) error
	RemoveEntry(ctx context.Context, shopID, entryID int64) error
	ClearNote(ctx context.Context, shopID, noteID int64) error
	Suppress(ctx context.Context, shopID int64, channel waitlist.Channel, address, reason string) error
	Lift(ctx context.Context, shopID, suppressionID int64) error
	ChangeSettings(ctx context.Context, shopID int64, set shop.Settings) error

	Pauses(ctx context.Context, shopID int64) ([]waitlist.Pause, error)
	Resume(ctx context.Context, shopID int64, channel waitlist.Channel) error
	TextsPerSecond(ctx context.Context, shopID int64) (int, error)
	SetTextsPerSecond(ctx context.Context, shopID int64, n int) error
}

// Texter sends the text that shows whether an account works; *notify.Sender is it.
type Texter interface {
	TestText(ctx context.Context, account shop.Twilio, shopName, to string) error
	Send(ctx context.Context, m waitlist.Outgoing) (providerID string, err error)
	Preview(m waitlist.Outgoing) notify.Preview
}

// Shops is what the pages ask of the tenants; *shop.Store is it.
type Shops interface {
	ByDomain(ctx context.Context, domain string) (shop.Shop, error)
	ByTwilioKey(ctx context.Context, key string) (shop.Shop, error)
	Settings(ctx context.Context, shopID int64) (shop.Settings, error)
	Twilio(ctx context.Context, shopID int64) (shop.Twilio, error)
	ConnectTwilio(ctx context.Context, shopID int64, t shop.Twilio, webhookKey string) error
	DisconnectTwilio(ctx context.Context, shopID int64) error
}

var (
	_ Domain = (*waitlist.Service)(nil)
	_ Shops  = (*shop.Store)(nil)
	_ Texter = (*notify.Sender)(nil)
)

// AppBridge is where Shopify serves App Bridge. The script refuses to run from anywhere else.
const AppBridge = "https://cdn.shopify.com/shopifycloud/app-bridge.js"

// Config is what the public listener is made of. Every field is needed but TrustedHops,
// AppBridgeURL, EmailWebhookKey and Webhook.
type Config struct {
	Domain  Domain
	Shops   Shops
	Texter  Texter
	Shopify *shopify.Verifier
	Install *shopify.Client
	// CookieKeys sign the cookie of an installation from outside the admin: the first signs, all verify.
	// They sign nothing else.
	CookieKeys [][]byte
	// TrustedHops is the number of proxies of our own in front of this listener that each append an
	// address to X-Forwarded-For.
	TrustedHops int
	URL         *url.URL // the public base of every link and signature: scheme and host, no path
	ClientID    string   // of the Shopify app
	// AppBridgeURL is AppBridge in production, which "" means. A simulated admin serves its own stub;
	// its origin may then frame the merchant's pages, too.
	AppBridgeURL string
	// EmailWebhookKey is the unguessable part of the address that the mail provider reports to; "" refuses
	// every report.
	EmailWebhookKey string
	// Webhook, if not nil, is told of each webhook that has come. It may be called by several goroutines at
	// once.
	Webhook func(topic string, outcome WebhookOutcome)
	Now     func() time.Time
	Log     *slog.Logger
}

// server is the public listener.
type server struct {
	Config
	assets         *assets
	nonces         *sessions.CookieStore
	frameAncestors string // of the simulated admin; empty in production
	scripts        string // script-src of the merchant's pages
}

// New returns the handler of the public listener, or what is wrong with its configuration.
func New(c Config) (http.Handler, error) {
	switch {
	case c.Domain == nil, c.Shops == nil, c.Texter == nil, c.Now == nil, c.Log == nil:
		return nil, fmt.Errorf("web: domain, shops, texter, clock or log is missing")
	case c.Shopify == nil:
		return nil, fmt.Errorf("web: the verifier of Shopify's signatures is missing: without it anybody could write")
	case c.Install == nil || len(c.CookieKeys) == 0:
		return nil, fmt.Errorf("web: what installs the app, or the keys of its cookie, is missing")
	case c.URL == nil || (c.URL.Scheme != "https" && c.URL.Scheme != "http") || c.URL.Host == "":
		return nil, fmt.Errorf("web: the public address must be like https://app.example.com")
	case c.ClientID == "":
		return nil, fmt.Errorf("web: the client id of the Shopify app is missing")
	}
	s := &server{Config: c, scripts: "script-src 'self' https://cdn.shopify.com"}
	if s.AppBridgeURL == "" {
		s.AppBridgeURL = AppBridge
	} else if s.AppBridgeURL != AppBridge {
		u, err := url.Parse(s.AppBridgeURL)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("web: %q is no address of an App Bridge script", s.AppBridgeURL)
		}
		s.frameAncestors = " " + u.Scheme + "://" + u.Host
		s.scripts += s.frameAncestors
	}
	if s.Webhook == nil {
		s.Webhook = func(string, WebhookOutcome) {}
	}
	s.nonces = s.newNonces()
	var err error
	if s.assets, err = newAssets(); err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	return s.routes(), nil
}

// Listener is the HTTP server for a handler of this package, with limits on how long a client may take.
// The longest answer is a press that waits for its batch, and the longest request a webhook of 5 MB.
func Listener(addr string, h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Addr:              addr,
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// render writes a page. It is rendered in full before the first byte goes out, so that a page that
// fails is a clean error.
func (s *server) render(w http.ResponseWriter, r *http.Request, status int, page templ.Component) error {
	var b bytes.Buffer
	if err := page.Render(r.Context(), &b); err != nil {
		return fmt.Errorf("render: %w", err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(b.Bytes()) // an error here is a client that has gone
	return nil
}

// absolute is the asset function of pages that are shown on another domain than ours.
func (s *server) absolute() templates.Assets {
	base := strings.TrimSuffix(s.URL.String(), "/")
	return func(name string) string { return base + s.assets.url(name) }
}
