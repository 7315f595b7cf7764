package web

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"holdfast/app/shopify"
)

func TestASignedWebhookIsStoredAndAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	f := &fake{}
	body := `{"inventory_item_id":1,  "available":4}`
	w := send(t, newWeb(t, f), "POST", "/webhooks/shopify", body, signedWebhook(body, "inventory_levels/update", testShop)...)
	if w.Code != http.StatusOK || strings.Join(f.done(), ",") != "receive" {
		t.Fatalf("%d %s %v", w.Code, w.Body, f.done())
	}
	if f.hook.Topic != "inventory_levels/update" || f.hook.WebhookID != "w-1" || f.hook.EventID != "e-1" || string(f.hook.Body) != body {
		t.Errorf("the domain was given %+v", f.hook)
	}
}

func TestAWebhookThatShopifyDidNotSignIsRefused(t *testing.T) {
	t.Parallel()
	good := signedWebhook(`{"a":1}`, "orders/paid", testShop)
	for name, c := range map[string]struct {
		body    string
		headers []string
	}{
		"another body": {`{"a":2}`, good},
		"no signature": {`{"a":1}`, good[2:]},
		"no topic":     {`{"a":1}`, append(append([]string{}, good[:2]...), good[4:]...)},
	} {
		f := &fake{}
		if w := send(t, newWeb(t, f), "POST", "/webhooks/shopify", c.body, c.headers...); w.Code != http.StatusUnauthorized || len(f.done()) != 0 {
			t.Errorf("%s: %d %v", name, w.Code, f.done())
		}
	}
}

func TestAWebhookOfAShopThatIsGoneIsAnsweredAndForgotten(t *testing.T) {
	t.Parallel()
	f := &fake{}
	w := send(t, newWeb(t, f), "POST", "/webhooks/shopify", `{}`, signedWebhook(`{}`, "shop/redact", "gone.myshopify.com")...)
	if w.Code != http.StatusOK || len(f.done()) != 0 {
		t.Errorf("%d %v", w.Code, f.done())
	}
}

func TestAWebhookThatCouldNotBeStoredIsAskedForAgain(t *testing.T) {
	t.Parallel()
	w := send(t, newWeb(t, &fake{err: errors.New("no database")}), "POST", "/webhooks/shopify", `{}`, signedWebhook(`{}`, "orders/paid", testShop)...)
	if w.Code != http.StatusInternalServerError {
		t.Errorf("%d", w.Code)
	}
}

func TestAWebhookThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("x", shopify.MaxWebhook+1)
	f := &fake{}
	w := send(t, newWeb(t, f), "POST", "/webhooks/shopify", body, signedWebhook(body, "orders/paid", testShop)...)
	if w.Code != http.StatusRequestEntityTooLarge || len(f.done()) != 0 {
		t.Errorf("%d %v", w.Code, f.done())
	}
}

func TestTwilioIsBelievedByItsSignatureOfThePublicAddress(t *testing.T) {
	t.Parallel()
	const base = "https://app.example.com"
	const text, report = "AccountSid=AC1&MessageSid=SM2&From=%2B447400123456&Body=STOP", "AccountSid=AC1&MessageSid=SM1&MessageStatus="
	for _, c := range []struct {
		path, form, signed string
		status             int
		body, act          string
	}{
		{"/webhooks/twilio/k3y/inbound", text, base + "/webhooks/twilio/k3y/inbound", 200, "<Response/>", "text SM2 +447400123456 STOP"},
		{"/webhooks/twilio/k3y/status?message=7&x=%20", report + "delivered", base + "/webhooks/twilio/k3y/status?message=7&x=%20", 204, "", "delivered SM1 delivered"},
		{"/webhooks/twilio/k3y/status", report + "strange", base + "/webhooks/twilio/k3y/status", 204, "", ""},
		{"/webhooks/twilio/k3y/status", "AccountSid=AC1", base + "/webhooks/twilio/k3y/status", 400, "invalid_request", ""},
		{"/webhooks/twilio/k3y/inbound", text, "http://app.example.com/webhooks/twilio/k3y/inbound", 403, "bad_signature", ""},
		{"/webhooks/twilio/k3y/inbound", strings.Replace(text, "AC1", "AC2", 1), base + "/webhooks/twilio/k3y/inbound", 403, "bad_signature", ""},
		{"/webhooks/twilio/k3y/status", report + "delivered", "", 403, "bad_signature", ""},
		{"/webhooks/twilio/other/inbound", text, base + "/webhooks/twilio/other/inbound", 404, "not_found", ""},
	} {
		form, err := url.ParseQuery(c.form)
		if err != nil {
			t.Fatal(err)
		}
		f := &fake{}
		w := send(t, newWeb(t, f), "POST", c.path, c.form, "Content-Type", formType, "X-Twilio-Signature", twilioSignature(c.signed, form))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) || strings.Join(f.done(), ",") != c.act {
			t.Errorf("%s: %d %s, did %v", c.path, w.Code, w.Body, f.done())
		}
	}
}

// Nothing signs what Postmark posts: the address is the secret.
func TestAReportOnAMailIsBelievedAtItsOwnAddressAlone(t *testing.T) {
	t.Parallel()
	const bounce = `{"RecordType":"Bounce","Type":"HardBounce","Email":"ann@example.com","Metadata":{"holdfast":"1.7.1"}}`
	for _, c := range []struct {
		key, path, body string
		status          int
		act             string
	}{
		{"s3cret", "/webhooks/email/s3cret", bounce, 200, "delivered  failed ann@example.com"},
		{"s3cret", "/webhooks/email/s3cret", `{"RecordType":"Open"}`, 200, ""},
		{"s3cret", "/webhooks/email/s3cret", `nonsense`, 400, ""},
		{"s3cret", "/webhooks/email/s3cret", strings.Repeat(" ", 600<<10), 400, ""},
		{"s3cret", "/webhooks/email/s3cre", bounce, 403, ""},
		{"s3cret", "/webhooks/email/S3cret", bounce, 403, ""},
		{"", "/webhooks/email/s3cret", bounce, 403, ""},
	} {
		f := &fake{}
		cfg := newConfig(t, f)
		cfg.EmailWebhookKey = c.key
		h, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if w := send(t, h, "POST", c.path, c.body); w.Code != c.status || strings.Join(f.done(), ",") != c.act {
			t.Errorf("%s with key %q: %d %s, did %v", c.path, c.key, w.Code, w.Body, f.done())
		}
	}
}

func TestEveryWebhookIsCountedByWhatWasDone(t *testing.T) {
	t.Parallel()
	const body = `{"id":1}`
	type counted struct {
		topic   string
		outcome WebhookOutcome
	}
	for name, c := range map[string]struct {
		f       *fake
		headers []string
		want    counted
	}{
		"the first":      {&fake{}, signedWebhook(body, "orders/create", testShop), counted{"orders/create", WebhookNew}},
		"again":          {&fake{state: "repeated"}, signedWebhook(body, "orders/create", testShop), counted{"orders/create", WebhookRepeated}},
		"another topic":  {&fake{}, signedWebhook(body, "themes/publish", testShop), counted{"other", WebhookUnknown}},
		"another's shop": {&fake{}, signedWebhook(body, "orders/create", "gone.myshopify.com"), counted{"orders/create", WebhookNoShop}},
		"not stored":     {&fake{err: errors.New("no database")}, signedWebhook(body, "orders/create", testShop), counted{"orders/create", WebhookFailed}},
		"a false one":    {&fake{}, signedWebhook(body+" ", "orders/create", testShop), counted{"", WebhookUnsigned}},
		"one unsigned":   {&fake{}, nil, counted{"", WebhookUnsigned}},
		"without a shop": {&fake{}, []string{"X-Shopify-Topic", "orders/create"}, counted{"", WebhookUnsigned}},
	} {
		config := newConfig(t, c.f)
		var got []counted
		config.Webhook = func(topic string, outcome WebhookOutcome) { got = append(got, counted{topic, outcome}) }
		h, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		send(t, h, "POST", "/webhooks/shopify", body, c.headers...)
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: counted %v, want %v", name, got, c.want)
		}
	}
}
