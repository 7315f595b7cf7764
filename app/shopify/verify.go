package shopify

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	goshopify "github.com/bold-commerce/go-shopify/v4"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

var (
	// ErrUnverified is whatever claims to come from Shopify and cannot show it: answer 401.
	ErrUnverified = errors.New("not verified")
	// ErrTooLarge is a webhook with a body of more than MaxWebhook bytes: answer 413.
	ErrTooLarge = errors.New("the body is too large")
)

// MaxWebhook is the longest body of a webhook that is read, in bytes.
const MaxWebhook = 5 << 20

// proxyWindow is how far the timestamp of an app proxy request may be from our clock. The signature is
// a bearer token for as long.
const proxyWindow = 90 * time.Second

// Verifier tells what comes from Shopify from what only says so. It never changes and may be used by
// any number of goroutines.
type Verifier struct {
	clientID string
	apps     []goshopify.App // one for each secret, the current one first
}

// NewVerifier returns the verifier of an app. secret signs now; oldSecret, which may be empty, is still
// good while the app's secret is being rotated.
func NewVerifier(clientID, secret, oldSecret string) (*Verifier, error) {
	if clientID == "" || secret == "" {
		// An empty secret makes signatures that anyone can make.
		return nil, errors.New("shopify: the client id and the client secret must not be empty: copy them from the app's page in the Dev Dashboard")
	}
	v := &Verifier{clientID: clientID}
	for _, s := range []string{secret, oldSecret} {
		if s != "" {
			v.apps = append(v.apps, goshopify.App{ApiKey: clientID, ApiSecret: s})
		}
	}
	return v, nil
}

// VerifyWebhook reads a webhook and returns the shop it is about and what it says, or ErrUnverified, or
// ErrTooLarge; another error means that the body could not be read to its end. Both families of headers
// are known, X-Shopify-... of webhooks and shopify-... of events.
//
// The signature covers the body alone: shop, topic and ids are Shopify's word as long as nobody else
// has seen a signed body, and are checked for their form.
func (v *Verifier) VerifyWebhook(r *http.Request) (shopDomain string, w waitlist.Webhook, err error) {
	fail := func(why string) (string, waitlist.Webhook, error) {
		return "", waitlist.Webhook{}, fmt.Errorf("webhook: %w: %s", ErrUnverified, why)
	}
	if r.Method != http.MethodPost {
		return fail("the method is not POST")
	}
	// Before the body is read: who has no signature is not worth its memory.
	signature, ok := webhookHeader(r.Header, "Hmac-Sha256")
	if !ok || signature == "" {
		return fail("there is not exactly one signature")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxWebhook+1))
	if err != nil {
		return "", waitlist.Webhook{}, fmt.Errorf("webhook: read the body: %w", err)
	}
	if len(body) > MaxWebhook {
		return "", waitlist.Webhook{}, fmt.Errorf("webhook: %w: more than %d bytes", ErrTooLarge, MaxWebhook)
	}
	if !v.signedBody(body, signature) {
		return fail("the signature is wrong")
	}

	w.Body = body
	for name, into := range map[string]*string{
		"Shop-Domain": &shopDomain, "Topic": &w.Topic, "Webhook-Id": &w.WebhookID, "Event-Id": &w.EventID,
	} {
		value, ok := webhookHeader(r.Header, name)
		if !ok || !plain(value) {
			return fail("the header " + name + " is given twice or is not plain")
		}
		*into = value
	}
	if w.Topic == "" || w.WebhookID == "" {
		return fail("a topic and an id are missing")
	}
	if !shop.ValidDomain(shopDomain) {
		return fail("the shop is not a shop's domain")
	}
	if at, ok := webhookHeader(r.Header, "Triggered-At"); ok && at != "" {
		if w.Triggered, err = time.Parse(time.RFC3339, at); err != nil {
			return fail("the header Triggered-At is no time")
		}
	}
	return shopDomain, w, nil
}

// webhookHeader returns a header of either family, "" when there is none; ok is false when there are
// several that differ.
func webhookHeader(h http.Header, name string) (value string, ok bool) {
	values := slices.Concat(h.Values("X-Shopify-"+name), h.Values("Shopify-"+name))
	if len(values) == 0 {
		return "", true
	}
	for _, other := range values[1:] {
		if other != values[0] {
			return "", false
		}
	}
	return values[0], true
}

// plain says whether a header's value is short and printable, as Shopify's are.
func plain(s string) bool {
	return len(s) <= 255 && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// signedBody compares in constant time. go-shopify reads one family of headers, and bodies without a
// bound: so it is given a request of our own making, with the body that we have read.
func (v *Verifier) signedBody(body []byte, signature string) bool {
	for _, app := range v.apps {
		if app.VerifyWebhookRequest(&http.Request{
			Header: http.Header{"X-Shopify-Hmac-Sha256": {signature}},
			Body:   io.NopCloser(bytes.NewReader(body)),
		}) {
			return true
		}
	}
	return false
}

// Proxied is what Shopify's app proxy vouches for of a request: that it came to the storefront of this
// shop, from this address. It does not vouch for a word that the shopper wrote.
type Proxied struct {
	Shop       string // its permanent domain
	PathPrefix string // under which path of the storefront the app is reached, such as /apps/notify: for links to the one who asked
	CustomerID int64  // of the customer who is signed in; 0 for a guest
	Client     string // the shopper's address; "" when it is not known
}

// The parameters that Shopify's proxy adds to the shopper's own.
const (
	paramShop      = "shop"
	paramPrefix    = "path_prefix"
	paramTimestamp = "timestamp"
	paramCustomer  = "logged_in_customer_id"
	paramSignature = "signature"
)

var (
	prefixPattern    = regexp.MustCompile(`^/(apps|a|community|tools)/[A-Za-z0-9_-]{1,100}$`)
	signaturePattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
	digitsPattern    = regexp.MustCompile(`^[0-9]{1,18}$`)
)

// VerifyProxy verifies a request that came through Shopify's app proxy, at the time now, or returns
// ErrUnverified. trustedHops is the number of proxies of our own that stand in front of this program
// and each append an address to X-Forwarded-For.
//
// A signature can be used again for as long as its timestamp is good.
func (v *Verifier) VerifyProxy(r *http.Request, now time.Time, trustedHops int) (Proxied, error) {
	fail := func(why string) (Proxied, error) {
		return Proxied{}, fmt.Errorf("app proxy: %w: %s", ErrUnverified, why)
	}
	// URL.Query, which go-shopify uses, drops what it cannot parse without a word.
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fail("the query is malformed")
	}
	// Given twice, one is the shopper's; and joined by commas "x=&x=7" and "x=,7" are signed alike.
	for _, name := range []string{paramShop, paramPrefix, paramTimestamp, paramCustomer, paramSignature, "hmac"} {
		if len(query[name]) > 1 {
			return fail("the parameter " + name + " is given twice")
		}
	}
	signature := query.Get(paramSignature)
	if !signaturePattern.MatchString(signature) {
		return fail("the signature is missing or no signature")
	}
	if !v.signedQuery(query, signature) {
		return fail("the signature is wrong")
	}
	if !digitsPattern.MatchString(query.Get(paramTimestamp)) {
		return fail("the timestamp is missing or no time")
	}
	seconds, err := strconv.ParseInt(query.Get(paramTimestamp), 10, 64)
	if err != nil {
		return fail("the timestamp is no time")
	}
	if off := now.Sub(time.Unix(seconds, 0)); off > proxyWindow || off < -proxyWindow {
		return fail("the timestamp is too old or in the future: check that this machine's clock is right")
	}
	p := Proxied{Shop: query.Get(paramShop), PathPrefix: query.Get(paramPrefix)}
	if !shop.ValidDomain(p.Shop) {
		return fail("the shop is not a shop's domain")
	}
	if !prefixPattern.MatchString(p.PathPrefix) {
		return fail("the path prefix is none of an app proxy")
	}
	if id := query.Get(paramCustomer); id != "" {
		if !digitsPattern.MatchString(id) {
			return fail("the customer is no customer")
		}
		if p.CustomerID, err = strconv.ParseInt(id, 10, 64); err != nil {
			return fail("the customer is no customer")
		}
	}
	p.Client = forwardedFor(r.Header, trustedHops)
	return p, nil
}

// signedQuery says whether a query bears the signature of one of our secrets.
//
// What is signed is "k=v" for each parameter, sorted, with several values joined by commas, and nothing
// between one and the next. So a shopper who reaches us past the proxy may cut a string that Shopify
// signed for them in other places: "a=1logged_in_customer_id=7" is one parameter there and two here.
// But a parameter of the proxy's that is made this way leaves the real one in the string as well, within
// another key or value. That is why each of their names must occur in the string as often as it is a
// parameter.
//
// go-shopify's VerifySignature has no such rule, and sorts the pairs where Shopify's own libraries sort
// the names ("a1=" comes before "a=", but "a" before "a1"); Shopify's documentation shows the former.
// Either order is good: both are made by who has the secret.
func (v *Verifier) signedQuery(query url.Values, signature string) bool {
	names := make([]string, 0, len(query))
	for name := range query {
		if name != paramSignature {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	pairs := make([]string, len(names))
	for i, name := range names {
		pairs[i] = name + "=" + strings.Join(query[name], ",")
	}
	byName := strings.Join(pairs, "")
	slices.Sort(pairs)
	byPair := strings.Join(pairs, "")

	for _, message := range []string{byName, byPair} {
		if !unambiguous(message, query) {
			return false
		}
		for _, app := range v.apps {
			if app.VerifyMessage(message, signature) { // in constant time
				return true
			}
		}
	}
	return false
}

func unambiguous(message string, query url.Values) bool {
	for _, name := range []string{paramShop, paramPrefix, paramTimestamp, paramCustomer} {
		if strings.Count(message, name+"=") != len(query[name]) {
			return false
		}
	}
	return true
}

// forwardedFor is the address of the shopper's device as Shopify's proxy saw it: the last address of
// X-Forwarded-For after those that our own proxies appended. Everything before it was written by
// whoever sent the request. It is "" when there is no such address.
func forwardedFor(h http.Header, trustedHops int) string {
	list := strings.Split(strings.Join(h.Values("X-Forwarded-For"), ","), ",")
	i := len(list) - 1 - max(trustedHops, 0)
	if i < 0 {
		return ""
	}
	text := strings.TrimSpace(list[i])
	addr, err := netip.ParseAddr(text)
	if err != nil {
		withPort, err := netip.ParseAddrPort(text)
		if err != nil {
			return ""
		}
		addr = withPort.Addr()
	}
	return addr.Unmap().WithZone("").String()
}
