package shopify

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

const oldSecret = "the-secret-before"

func newVerifier(t testing.TB) *Verifier {
	t.Helper()
	v, err := NewVerifier(testClient, testSecret, oldSecret)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func sum(secret, message string) []byte {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(message))
	return m.Sum(nil)
}

func TestAVerifierNeedsASecret(t *testing.T) {
	t.Parallel()
	if _, err := NewVerifier(testClient, "", oldSecret); err == nil {
		t.Error("an empty secret was taken")
	}
	if _, err := NewVerifier("", testSecret, ""); err == nil {
		t.Error("an empty client id was taken")
	}
	// Without an old secret, the empty one is none.
	v, err := NewVerifier(testClient, testSecret, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := v.VerifyWebhook(webhook("", `{}`)); !errors.Is(err, ErrUnverified) {
		t.Errorf("signed with an empty secret: %v", err)
	}
}

// webhook is a webhook signed with a secret.
func webhook(secret, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/webhooks/shopify", strings.NewReader(body))
	r.Header.Set("X-Shopify-Hmac-Sha256", base64.StdEncoding.EncodeToString(sum(secret, body)))
	r.Header.Set("X-Shopify-Topic", "inventory_levels/update")
	r.Header.Set("X-Shopify-Shop-Domain", testShop)
	r.Header.Set("X-Shopify-Webhook-Id", "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043")
	r.Header.Set("X-Shopify-Event-Id", "98880550-7158-44d4-b7cd-2c97c8a091b5")
	return r
}

func TestAWebhookIsKnownByTheSignatureOfItsBytes(t *testing.T) {
	t.Parallel()
	v := newVerifier(t)
	const body = `{"inventory_item_id": 4,  "available":1}`
	for _, secret := range []string{testSecret, oldSecret} {
		domain, w, err := v.VerifyWebhook(webhook(secret, body))
		if err != nil || domain != testShop || w.Topic != "inventory_levels/update" || string(w.Body) != body ||
			w.WebhookID != "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043" || w.EventID != "98880550-7158-44d4-b7cd-2c97c8a091b5" {
			t.Errorf("got %q, %+v, %v", domain, w, err)
		}
	}
}

func TestBothFamiliesOfWebhookHeadersAreKnown(t *testing.T) {
	t.Parallel()
	r := webhook(testSecret, `{}`)
	for name, values := range maps.Clone(r.Header) {
		if short, ok := strings.CutPrefix(name, "X-Shopify-"); ok {
			r.Header.Del(name)
			r.Header["Shopify-"+short] = values
		}
	}
	r.Header.Del("Shopify-Event-Id") // is not always sent
	if domain, w, err := newVerifier(t).VerifyWebhook(r); err != nil || domain != testShop || w.WebhookID == "" || w.EventID != "" {
		t.Errorf("got %q, %+v, %v", domain, w, err)
	}
}

func TestAWebhookThatIsNotShopifysIsRefused(t *testing.T) {
	t.Parallel()
	v := newVerifier(t)
	for name, spoil := range map[string]func(r *http.Request){
		"no signature":    func(r *http.Request) { r.Header.Del("X-Shopify-Hmac-Sha256") },
		"empty signature": func(r *http.Request) { r.Header.Set("X-Shopify-Hmac-Sha256", "") },
		"another secret":  func(r *http.Request) { r.Header = webhook("guess", `{}`).Header },
		"another body":    func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(`{} `)) },
		"in hex": func(r *http.Request) {
			r.Header.Set("X-Shopify-Hmac-Sha256", hex.EncodeToString(sum(testSecret, `{}`)))
		},
		"two signatures":     func(r *http.Request) { r.Header.Add("X-Shopify-Hmac-Sha256", "x") },
		"one of each family": func(r *http.Request) { r.Header.Set("Shopify-Hmac-Sha256", "x") },
		"two shops":          func(r *http.Request) { r.Header.Add("X-Shopify-Shop-Domain", "lamps.myshopify.com") },
		"a shop elsewhere":   func(r *http.Request) { r.Header.Set("X-Shopify-Shop-Domain", "evil.com/x.myshopify.com") },
		"no shop":            func(r *http.Request) { r.Header.Del("X-Shopify-Shop-Domain") },
		"no topic":           func(r *http.Request) { r.Header.Del("X-Shopify-Topic") },
		"no id":              func(r *http.Request) { r.Header.Del("X-Shopify-Webhook-Id") },
		"a long id":          func(r *http.Request) { r.Header.Set("X-Shopify-Webhook-Id", strings.Repeat("x", 256)) },
		"an unprintable id":  func(r *http.Request) { r.Header.Set("X-Shopify-Webhook-Id", "a\x00b") },
		"a GET":              func(r *http.Request) { r.Method = http.MethodGet },
	} {
		r := webhook(testSecret, `{}`)
		spoil(r)
		domain, w, err := v.VerifyWebhook(r)
		if !errors.Is(err, ErrUnverified) || domain != "" || w.Body != nil {
			t.Errorf("%s: got %q, %+v, %v", name, domain, w, err)
		}
	}
}

func TestALongWebhookIsNotReadToItsEnd(t *testing.T) {
	t.Parallel()
	v := newVerifier(t)
	if _, w, err := v.VerifyWebhook(webhook(testSecret, strings.Repeat("x", MaxWebhook))); err != nil || len(w.Body) != MaxWebhook {
		t.Errorf("the longest that is read: %v", err)
	}
	endless := &counter{}
	r := webhook(testSecret, "")
	r.Body = io.NopCloser(endless)
	if _, _, err := v.VerifyWebhook(r); !errors.Is(err, ErrTooLarge) || errors.Is(err, ErrUnverified) {
		t.Errorf("got %v", err)
	}
	if endless.n > 2*MaxWebhook {
		t.Errorf("%d bytes were read", endless.n)
	}
	endless.n = 0
	r.Header.Del("X-Shopify-Hmac-Sha256")
	if _, _, err := v.VerifyWebhook(r); !errors.Is(err, ErrUnverified) || endless.n != 0 {
		t.Errorf("without a signature %d bytes were read: %v", endless.n, err)
	}
	r = webhook(testSecret, "")
	r.Body = io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF))
	if _, _, err := v.VerifyWebhook(r); !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, ErrUnverified) {
		t.Errorf("a body that breaks off: %v", err)
	}
}

// counter is a body without an end.
type counter struct{ n int }

func (c *counter) Read(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}

var proxyTime = time.Unix(1_796_040_000, 0)

// sign signs a query as Shopify's app proxy does: pairs sorted, values joined by commas. pick chooses
// what is sorted.
func sign(secret string, q url.Values, byPair bool) string {
	names := slices.Sorted(maps.Keys(q))
	var pairs []string
	for _, name := range names {
		if name != "signature" {
			pairs = append(pairs, name+"="+strings.Join(q[name], ","))
		}
	}
	if byPair {
		slices.Sort(pairs)
	}
	return hex.EncodeToString(sum(secret, strings.Join(pairs, "")))
}

// proxied is a query of Shopify's app proxy, with more of the shopper's own.
func proxied(more url.Values) url.Values {
	q := url.Values{
		"shop": {testShop}, "path_prefix": {"/apps/notify"}, "timestamp": {strconv.FormatInt(proxyTime.Unix(), 10)},
		"logged_in_customer_id": {""},
	}
	maps.Copy(q, more)
	return q
}

func signed(secret string, q url.Values) url.Values {
	q.Set("signature", sign(secret, q, false))
	return q
}

func proxyRequest(rawQuery string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/proxy/waitlist", nil)
	r.URL.RawQuery = rawQuery
	r.Header.Set("X-Forwarded-For", "203.0.113.7")
	return r
}

func TestTheAppProxyVouchesForTheShopAndTheCustomer(t *testing.T) {
	t.Parallel()
	v := newVerifier(t)
	for _, secret := range []string{testSecret, oldSecret} {
		q := signed(secret, proxied(url.Values{"logged_in_customer_id": {"987"}, "variant_id": {"41"}}))
		got, err := v.VerifyProxy(proxyRequest(q.Encode()), proxyTime, 0)
		want := Proxied{Shop: testShop, PathPrefix: "/apps/notify", CustomerID: 987, Client: "203.0.113.7"}
		if err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	got, err := v.VerifyProxy(proxyRequest(signed(testSecret, proxied(nil)).Encode()), proxyTime, 0)
	if err != nil || got.CustomerID != 0 {
		t.Errorf("a guest: %+v, %v", got, err)
	}
}

func TestTheExampleOfShopifysDocumentationIsVerified(t *testing.T) {
	t.Parallel()
	v, err := NewVerifier(testClient, "hush", "")
	if err != nil {
		t.Fatal(err)
	}
	q, err := url.ParseQuery("extra=1&extra=2&shop=shop-name.myshopify.com&logged_in_customer_id=1&path_prefix=%2Fapps%2Fawesome_reviews&timestamp=1317327555&signature=4c68c8624d737112c91818c11017d24d334b524cb5c2b8ba08daa056f7395ddb")
	if err != nil {
		t.Fatal(err)
	}
	got, err := v.VerifyProxy(proxyRequest(q.Encode()), time.Unix(1317327555, 0), 0)
	if err != nil || got.Shop != "shop-name.myshopify.com" || got.PathPrefix != "/apps/awesome_reviews" || got.CustomerID != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestTheShoppersOwnParametersMayBeAnything(t *testing.T) {
	t.Parallel()
	v := newVerifier(t)
	for name, more := range map[string]url.Values{
		"a list":                 {"extra[]": {"1", "2"}},
		"twice":                  {"extra": {"1", "2"}},
		"spaces and signs":       {"name": {"a b+c%20d&e=f"}},
		"empty":                  {"x": {""}},
		"beyond ASCII":           {"név": {"Ódon szék"}},
		"one begins the other":   {"a": {"1"}, "a1": {"2"}, "a-b": {"3"}},
		"a comma":                {"x": {"1,2"}},
		"looks like a signature": {"sig": {"signature"}},
	} {
		for _, byPair := range []bool{false, true} {
			q := proxied(more)
			q.Set("signature", sign(testSecret, q, byPair))
			if _, err := v.VerifyProxy(proxyRequest(q.Encode()), proxyTime, 0); err != nil {
				t.Errorf("%s (sorted by pair: %t): %v", name, byPair, err)
			}
		}
	}
}

func TestAProxyRequestThatIsNotShopifysIsRefused(t *testing.T) {
	t.Parallel()
	v := newVerifier(t)
	good := func() url.Values {
		return signed(testSecret, proxied(url.Values{"variant_id": {"41"}, "logged_in_customer_id": {"7"}}))
	}
	resigned := func(change func(q url.Values)) string {
		q := proxied(nil)
		change(q)
		return signed(testSecret, q).Encode()
	}
	spoilt := func(change func(q url.Values)) string {
		q := good()
		change(q)
		return q.Encode()
	}
	at := func(d time.Duration) string {
		return resigned(func(q url.Values) { q.Set("timestamp", strconv.FormatInt(proxyTime.Add(d).Unix(), 10)) })
	}
	if _, err := v.VerifyProxy(proxyRequest(good().Encode()), proxyTime, 0); err != nil {
		t.Fatal(err)
	}
	for name, query := range map[string]string{
		"nothing":                  "",
		"no signature":             spoilt(func(q url.Values) { q.Del("signature") }),
		"empty signature":          spoilt(func(q url.Values) { q.Set("signature", "") }),
		"short signature":          spoilt(func(q url.Values) { q.Set("signature", q.Get("signature")[:62]) }),
		"upper case":               spoilt(func(q url.Values) { q.Set("signature", strings.ToUpper(q.Get("signature"))) }),
		"another secret":           signed("guess", proxied(nil)).Encode(),
		"another shop":             spoilt(func(q url.Values) { q.Set("shop", "lamps.myshopify.com") }),
		"another variant":          spoilt(func(q url.Values) { q.Set("variant_id", "42") }),
		"another customer":         spoilt(func(q url.Values) { q.Set("logged_in_customer_id", "8") }),
		"one more":                 spoilt(func(q url.Values) { q.Set("x", "") }),
		"a shop before":            "shop=lamps.myshopify.com&" + good().Encode(),
		"a shop after":             good().Encode() + "&shop=" + testShop,
		"two timestamps":           good().Encode() + "&timestamp=1",
		"two signatures":           good().Encode() + "&signature=" + strings.Repeat("0", 64),
		"two prefixes":             good().Encode() + "&path_prefix=/apps/x",
		"two hmacs":                resigned(func(q url.Values) { q["hmac"] = []string{"1", "2"} }),
		"two customers":            "logged_in_customer_id=8&" + good().Encode(),
		"two customers, signed":    resigned(func(q url.Values) { q["logged_in_customer_id"] = []string{"", "7"} }),
		"a comma for two":          resigned(func(q url.Values) { q.Set("logged_in_customer_id", ",7") }),
		"no timestamp":             resigned(func(q url.Values) { q.Del("timestamp") }),
		"a timestamp in words":     resigned(func(q url.Values) { q.Set("timestamp", "now") }),
		"a signed timestamp":       resigned(func(q url.Values) { q.Set("timestamp", "+"+q.Get("timestamp")) }),
		"91 seconds old":           at(-91 * time.Second),
		"91 seconds ahead":         at(91 * time.Second),
		"a shop elsewhere":         resigned(func(q url.Values) { q.Set("shop", "evil.com/x.myshopify.com") }),
		"no shop":                  resigned(func(q url.Values) { q.Del("shop") }),
		"no prefix":                resigned(func(q url.Values) { q.Del("path_prefix") }),
		"a prefix of another kind": resigned(func(q url.Values) { q.Set("path_prefix", "/apps/../admin") }),
		"a customer in words":      resigned(func(q url.Values) { q.Set("logged_in_customer_id", "ana") }),
		"a negative customer":      resigned(func(q url.Values) { q.Set("logged_in_customer_id", "-7") }),
		"a broken escape":          good().Encode() + "&x=%zz",
		"a semicolon":              good().Encode() + "&x=1;y=2",
	} {
		if got, err := v.VerifyProxy(proxyRequest(query), proxyTime, 0); !errors.Is(err, ErrUnverified) || got != (Proxied{}) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
	for _, d := range []time.Duration{-90 * time.Second, 90 * time.Second} {
		if _, err := v.VerifyProxy(proxyRequest(at(d)), proxyTime, 0); err != nil {
			t.Errorf("%v off: %v", d, err)
		}
	}
}

// What Shopify signs has nothing between one parameter and the next. A guest has Shopify sign a query of
// their choice, then sends the same characters past the proxy, cut elsewhere.
func TestASignedStringCannotBeCutElsewhere(t *testing.T) {
	t.Parallel()
	v := newVerifier(t)
	stamp := strconv.FormatInt(proxyTime.Unix(), 10)
	for name, c := range map[string]struct{ asked, forged url.Values }{
		"another customer": {
			asked: proxied(url.Values{"a": {"1logged_in_customer_id=7logged_in_customer_iz="}}),
			forged: url.Values{"a": {"1"}, "logged_in_customer_id": {"7"}, "logged_in_customer_iz": {"logged_in_customer_id="},
				"path_prefix": {"/apps/notify"}, "shop": {testShop}, "timestamp": {stamp}},
		},
		"another shop": {
			asked: proxied(url.Values{"a": {"1logged_in_customer_id=path_prefix=/apps/notifyshop=lamps.myshopify.comsz="}}),
			forged: url.Values{"a": {"1"}, "logged_in_customer_id": {""}, "path_prefix": {"/apps/notify"}, "shop": {"lamps.myshopify.com"},
				"sz": {"logged_in_customer_id=path_prefix=/apps/notifyshop=" + testShop}, "timestamp": {stamp}},
		},
		"a later time": {
			asked: proxied(url.Values{"timestamp": {"1"}, "zz": {"1"}, "a": {"1"}, "sz": {"1timestamp=" + stamp + "timestamq="}}),
			forged: url.Values{"a": {"1"}, "logged_in_customer_id": {""}, "path_prefix": {"/apps/notify"}, "shop": {testShop}, "sz": {"1"},
				"timestamp": {stamp}, "timestamq": {"timestamp=1"}, "zz": {"1"}},
		},
	} {
		signature := sign(testSecret, c.asked, false)
		if sign(testSecret, c.forged, false) != signature {
			t.Errorf("%s: the forgery is not signed alike: this test shows nothing", name)
			continue
		}
		c.forged.Set("signature", signature)
		if got, err := v.VerifyProxy(proxyRequest(c.forged.Encode()), proxyTime, 0); !errors.Is(err, ErrUnverified) {
			t.Errorf("%s: was believed: %+v, %v", name, got, err)
		}
	}
}

func TestTheClientIsWhomShopifysProxySaw(t *testing.T) {
	t.Parallel()
	v := newVerifier(t)
	for name, c := range map[string]struct {
		headers []string
		hops    int
		want    string
	}{
		"alone":                         {[]string{"203.0.113.7"}, 0, "203.0.113.7"},
		"behind what the client wrote":  {[]string{"10.0.0.1, 198.51.100.1,203.0.113.7"}, 0, "203.0.113.7"},
		"in several headers":            {[]string{"10.0.0.1", "203.0.113.7"}, 0, "203.0.113.7"},
		"before our own proxy's":        {[]string{"10.0.0.1, 203.0.113.7, 192.0.2.1"}, 1, "203.0.113.7"},
		"before two of ours":            {[]string{"203.0.113.7, 192.0.2.1, 10.1.1.1"}, 2, "203.0.113.7"},
		"a proxy of ours was left out":  {[]string{"203.0.113.7"}, 1, ""},
		"a negative number of proxies":  {[]string{"203.0.113.7, 192.0.2.1"}, -1, "192.0.2.1"},
		"IPv6":                          {[]string{"2001:DB8::1"}, 0, "2001:db8::1"},
		"IPv6 with a port":              {[]string{"[2001:db8::1]:443"}, 0, "2001:db8::1"},
		"with a port":                   {[]string{"203.0.113.7:55001"}, 0, "203.0.113.7"},
		"IPv4 in IPv6":                  {[]string{"::ffff:203.0.113.7"}, 0, "203.0.113.7"},
		"a zone":                        {[]string{"fe80::1%eth0"}, 0, "fe80::1"},
		"none":                          {nil, 0, ""},
		"empty":                         {[]string{""}, 0, ""},
		"a word":                        {[]string{"203.0.113.7, unknown"}, 0, ""},
		"a comma at the end is no hop":  {[]string{"203.0.113.7,"}, 0, ""},
		"written by the client, no hop": {[]string{"203.0.113.7, "}, 1, "203.0.113.7"},
	} {
		r := proxyRequest(signed(testSecret, proxied(nil)).Encode())
		r.Header["X-Forwarded-For"] = c.headers
		got, err := v.VerifyProxy(r, proxyTime, c.hops)
		if err != nil || got.Client != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got.Client, err, c.want)
		}
	}
}

// FuzzVerifyProxy signs nothing: whatever the query is, without the secret it is not believed.
func FuzzVerifyProxy(f *testing.F) {
	v := newVerifier(f)
	f.Add(signed("guess", proxied(nil)).Encode(), "203.0.113.7")
	f.Add("shop=chairs.myshopify.com&shop=%00&signature="+strings.Repeat("0", 64), ",,,")
	f.Add("signature=%zz;&&==", "[::1")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, query, forwarded string) {
		r := proxyRequest(query)
		r.Header.Set("X-Forwarded-For", forwarded)
		for hops := range 3 {
			if got, err := v.VerifyProxy(r, proxyTime, hops); !errors.Is(err, ErrUnverified) || got != (Proxied{}) {
				t.Fatalf("%q was believed: %+v, %v", query, got, err)
			}
		}
	})
}

// FuzzVerifyProxyOfShopper has Shopify sign what a shopper asks for: what is believed of it is never the
// shopper's word.
func FuzzVerifyProxyOfShopper(f *testing.F) {
	v := newVerifier(f)
	f.Add("variant_id", "41", "extra[]", "1")
	f.Add("shop", "lamps.myshopify.com", "logged_in_customer_id", "7")
	f.Add("a", "1logged_in_customer_id=7", "logged_in_customer_iz", "")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		q := url.Values{}
		q.Add(k1, v1)
		q.Add(k2, v2)
		for name, values := range proxied(nil) {
			q[name] = append(q[name], values...) // the proxy adds its own to the shopper's
		}
		delete(q, "signature")
		q = signed(testSecret, q)
		got, err := v.VerifyProxy(proxyRequest(q.Encode()), proxyTime, 0)
		want := Proxied{Shop: testShop, PathPrefix: "/apps/notify", Client: "203.0.113.7"}
		if err == nil && got != want {
			t.Fatalf("%q was believed as %+v", q, got)
		}
		if err != nil && !errors.Is(err, ErrUnverified) {
			t.Fatal(err)
		}
	})
}

// FuzzVerifyWebhook never believes what is not signed, and never breaks.
func FuzzVerifyWebhook(f *testing.F) {
	v := newVerifier(f)
	f.Add([]byte(`{}`), "x", "inventory_levels/update", testShop, "1", false)
	f.Add([]byte{}, "", "", "evil.com/x.myshopify.com", "\n", true)
	f.Add(bytes.Repeat([]byte("x"), 100), "====", "\xff", "a.myshopify.com", strings.Repeat("9", 300), true)
	f.Fuzz(func(t *testing.T, body []byte, signature, topic, domain, id string, signed bool) {
		r := webhook(testSecret, string(body))
		if !signed {
			r.Header["X-Shopify-Hmac-Sha256"] = []string{signature}
		}
		r.Header["X-Shopify-Topic"] = []string{topic}
		r.Header["X-Shopify-Shop-Domain"] = []string{domain}
		r.Header["X-Shopify-Webhook-Id"] = []string{id}
		shop, w, err := v.VerifyWebhook(r)
		switch {
		case err != nil && !errors.Is(err, ErrUnverified):
			t.Fatal(err)
		case err == nil && !signed:
			t.Fatalf("believed without a signature: %q, %+v", shop, w)
		case err == nil && (shop != domain || w.Topic != topic || w.WebhookID != id || !bytes.Equal(w.Body, body)):
			t.Fatalf("said %q, %+v", shop, w)
		}
	})
}
