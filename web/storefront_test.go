package web

import (
	"bytes"
	"errors"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"holdfast/app/waitlist"
)

const goodTap = `{"variant_id":41,"channel":"email","contact":"ana@example.com","name":"Ana","country":"GB","locale":"en","time_zone":"Europe/London","currency":"EUR","consent":"email-1","theme_extra":[1]}`

func TestAnAcceptedTapIs202WithTheContactAsItWasUnderstood(t *testing.T) {
	t.Parallel()
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	for k, v := range map[string]string{"variant_id": "gid://shopify/ProductVariant/41", "channel": "email", "contact": "ana@example.com", "name": "Ana", "country": "GB", "locale": "en", "currency": "EUR", "time_zone": "Europe/London", "consent": "email-1"} {
		m.WriteField(k, v)
	}
	m.Close()
	urlencoded := "variant_id=41&channel=email&contact=ana%40example.com&name=Ana&country=GB&locale=en&currency=EUR&time_zone=Europe/London&consent=&consent=email-1"
	for name, c := range map[string]struct{ kind, body string }{
		"JSON number": {"application/json", goodTap},
		"JSON string": {"application/json; charset=utf-8", strings.Replace(goodTap, "41", `"41"`, 1)},
		"JSON gid":    {"application/json", strings.Replace(goodTap, "41", `"gid://shopify/ProductVariant/41"`, 1)},
		"urlencoded":  {formType, urlencoded},
		"multipart":   {m.FormDataContentType(), form.String()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{joined: waitlist.Joined{Contact: "ana@example.com"}}
			w := send(t, newWeb(t, f), "POST", proxied("/proxy/waitlist", nil), c.body, "Content-Type", c.kind, "X-Forwarded-For", "1.2.3.4, 203.0.113.9")
			if w.Code != http.StatusAccepted || w.Body.String() != `{"status":"accepted","contact":"ana@example.com"}`+"\n" {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			want := waitlist.Tap{VariantID: "41", Channel: "email", Contact: "ana@example.com", Name: "Ana", Country: "GB", Locale: "en", TimeZone: "Europe/London", Currency: "EUR", Consent: "email-1", CustomerID: 77, Client: "203.0.113.9"}
			if f.tap != want {
				t.Errorf("the domain was given\n%+v, want\n%+v", f.tap, want)
			}
		})
	}
}

func TestATapThatCannotBeUsedSaysWhy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err                  error
		kind, body           string
		status               int
		want, retry, reached string
	}{
		"phone":          {err: &waitlist.Invalid{Code: "invalid_phone", Field: "contact", Message: "no such number"}, body: goodTap, status: 400, want: `{"error":{"code":"invalid_phone","field":"contact","message":"no such number"}}`, reached: "tap"},
		"variant":        {err: waitlist.ErrUnknownVariant, body: goodTap, status: 404, want: `"code":"unknown_variant"`, reached: "tap"},
		"sku":            {err: waitlist.ErrAmbiguousSKU, body: goodTap, status: 400, want: `"code":"ambiguous_sku","field":"sku"`, reached: "tap"},
		"limit":          {err: &waitlist.RateLimited{RetryAfter: 1500 * time.Millisecond}, body: goodTap, status: 429, want: `"code":"rate_limited"`, retry: "2", reached: "tap"},
		"throttled":      {err: &waitlist.Throttled{After: 4 * time.Second}, body: goodTap, status: 503, want: `"code":"try_again"`, retry: "4", reached: "tap"},
		"refused":        {err: &waitlist.ShopRefused{Status: 402, Why: "secret reason"}, body: goodTap, status: 503, want: `"code":"try_again"`, retry: "60", reached: "tap"},
		"broken":         {err: errors.New("pq: secret table"), body: goodTap, status: 500, want: `"code":"internal"`, reached: "tap"},
		"no JSON":        {body: `{"contact":`, status: 400, want: `"code":"invalid_request"`},
		"empty":          {body: "", status: 400, want: "The body is empty"},
		"array":          {body: `[1]`, status: 400, want: "must be a JSON object"},
		"null":           {body: `null`, status: 400, want: "must be a JSON object"},
		"two":            {body: goodTap + goodTap, status: 400, want: "nothing after it"},
		"number":         {body: `{"name":5}`, status: 400, want: `"field":"name"`},
		"object":         {body: `{"contact":{"a":1}}`, status: 400, want: `"field":"contact"`},
		"NUL":            {body: `{"contact":"a\u0000b"}`, status: 400, want: `"field":"contact"`},
		"long":           {body: `{"name":"` + strings.Repeat("x", 2001) + `"}`, status: 400, want: `"field":"name"`},
		"large":          {body: `{"name":"` + strings.Repeat("x", 17000) + `"}`, status: 413, want: `"code":"too_large"`},
		"large form":     {kind: formType, body: "name=" + strings.Repeat("x", 17000), status: 413, want: `"code":"too_large"`},
		"bad form":       {kind: formType, body: "name=%zz", status: 400, want: `"code":"invalid_request"`},
		"bad multipart":  {kind: "multipart/form-data", body: "x", status: 400, want: `"code":"invalid_request"`},
		"text":           {kind: "text/plain", body: goodTap, status: 415, want: `"code":"unsupported_type"`},
		"no type at all": {kind: "-", body: goodTap, status: 415, want: `"code":"unsupported_type"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{err: c.err}
			headers := []string{"Content-Type", "application/json"}
			if c.kind == "-" {
				headers = nil
			} else if c.kind != "" {
				headers[1] = c.kind
			}
			w := send(t, newWeb(t, f), "POST", proxied("/proxy/waitlist", nil), c.body, headers...)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) || w.Header().Get("Retry-After") != c.retry {
				t.Errorf("%d %s Retry-After %q", w.Code, w.Body, w.Header().Get("Retry-After"))
			}
			if strings.Contains(w.Body.String(), "secret") {
				t.Errorf("the cause was shown: %s", w.Body)
			}
			if got := strings.Join(f.done(), " "); got != c.reached {
				t.Errorf("the domain was asked for %q, want %q", got, c.reached)
			}
		})
	}
}

func TestConsentThatWasAskedForAndNotGivenIsARefusal(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]bool{`{}`: false, `{"consent":null}`: false, `{"consent":"email-1"}`: false, `{"consent":true}`: false, `{"consent":false}`: true, `{"consent":""}`: true, `{"consent":" "}`: true} {
		f := &fake{}
		send(t, newWeb(t, f), "POST", proxied("/proxy/waitlist", nil), body, "Content-Type", "application/json")
		if f.tap.Refused != want {
			t.Errorf("%s: refused %v, want %v", body, f.tap.Refused, want)
		}
	}
}

func TestATapOfAnItemInStockSaysSo(t *testing.T) {
	t.Parallel()
	w := send(t, newWeb(t, &fake{joined: waitlist.Joined{InStock: true, Contact: "x"}}), "POST", proxied("/proxy/waitlist", nil), goodTap, "Content-Type", "application/json")
	if w.Code != http.StatusOK || w.Body.String() != `{"status":"in_stock"}`+"\n" {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
}

func TestAFormPostedByABrowserGetsAPageWithTheSameStatus(t *testing.T) {
	t.Parallel()
	form := "variant_id=41&channel=email&contact=a%40example.com"
	for name, c := range map[string]struct {
		f      *fake
		target string
		status int
		want   string
	}{
		"accepted": {&fake{joined: waitlist.Joined{Contact: "a@example.com"}}, proxied("/proxy/waitlist", nil), 202, "You are on the list"},
		"in stock": {&fake{joined: waitlist.Joined{InStock: true}}, proxied("/proxy/waitlist", nil), 200, "It is in stock"},
		"invalid":  {&fake{err: &waitlist.Invalid{Code: "invalid_email", Field: "contact", Message: "an @ is missing <b>"}}, proxied("/proxy/waitlist", nil), 400, "an @ is missing &lt;b&gt;"},
		"limit":    {&fake{err: &waitlist.RateLimited{RetryAfter: time.Second}}, proxied("/proxy/waitlist", nil), 429, "Too many requests"},
		"unsigned": {&fake{}, "/proxy/waitlist?shop=" + testShop, 401, "not signed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := send(t, newWeb(t, c.f), "POST", c.target, form, "Content-Type", formType, "Accept", "text/html,application/xhtml+xml")
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
				t.Errorf("%d %s %s", w.Code, w.Header().Get("Content-Type"), w.Body)
			}
			// It is shown on the shop's domain, where an address without a host is not ours.
			if !strings.Contains(w.Body.String(), `href="https://app.example.com/static/shopper.css?v=`) {
				t.Errorf("the stylesheet is not named by our own host: %s", w.Body)
			}
		})
	}
}

func TestARequestThatTheAppProxyDidNotSignReachesNothing(t *testing.T) {
	t.Parallel()
	spoil := func(change func(q url.Values)) string {
		u, err := url.Parse(proxied("/proxy/waitlist", url.Values{"variant_id": {"41"}}))
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		change(q)
		return "/proxy/waitlist?" + q.Encode()
	}
	for name, target := range map[string]string{
		"none":       "/proxy/waitlist?shop=" + testShop,
		"other shop": spoil(func(q url.Values) { q.Set("shop", "lamps.myshopify.com") }),
		"old":        spoil(func(q url.Values) { q.Set("timestamp", "1") }),
		"two shops":  spoil(func(q url.Values) { q.Add("shop", "lamps.myshopify.com") }),
		"edited":     spoil(func(q url.Values) { q.Set("variant_id", "42") }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{}
			for _, method := range []string{"GET", "POST"} {
				w := send(t, newWeb(t, f), method, target, "", "Content-Type", "application/json")
				if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), `"code":"bad_signature"`) {
					t.Errorf("%s: %d %s", method, w.Code, w.Body)
				}
			}
			if len(f.done()) != 0 {
				t.Errorf("the domain was asked: %v", f.done())
			}
		})
	}
}

func TestTheProductPageLearnsWhatItMayAsk(t *testing.T) {
	t.Parallel()
	f := &fake{waitable: waitlist.Waitability{State: "waitable", Channels: []waitlist.Channel{waitlist.Email}, Consent: map[waitlist.Channel]waitlist.ConsentText{waitlist.Email: {Version: "email-1", Text: "Email me."}}, Waiting: 7}}
	w := send(t, newWeb(t, f), "GET", proxied("/proxy/waitlist", url.Values{"variant_id": {"41"}}), "")
	want := `{"state":"waitable","channels":["email"],"consent":{"email":{"version":"email-1","text":"Email me."}},"waiting":7}` + "\n"
	if w.Code != http.StatusOK || w.Body.String() != want {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
}

func TestAShopThatIsNotInstalledHasNoWaitlist(t *testing.T) {
	t.Parallel()
	f := &fake{}
	c := newConfig(t, f)
	c.Shops.(*tenants).shop.Installed = false
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	w := send(t, h, "POST", proxied("/proxy/waitlist", nil), goodTap, "Content-Type", "application/json")
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), `"code":"unknown_shop"`) || len(f.done()) != 0 {
		t.Fatalf("%d %s %v", w.Code, w.Body, f.done())
	}
}
