package shopifysim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// call makes a control call and decodes what it answers.
func call(t *testing.T, s *Test, method, path, body string) (status int, answer map[string]any, raw string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 0 && text[0] == '{' {
		if err := json.Unmarshal(text, &answer); err != nil {
			t.Fatalf("%s %s: %s: %v", method, path, text, err)
		}
	}
	return res.StatusCode, answer, string(text)
}

// ok makes a control call that must succeed.
func ok(t *testing.T, s *Test, method, path, body string) (map[string]any, string) {
	t.Helper()
	status, answer, raw := call(t, s, method, path, body)
	if status != http.StatusOK {
		t.Fatalf("%s %s %s: %d %s", method, path, body, status, raw)
	}
	return answer, raw
}

func TestTheControlCallsDoWhatTheirGoMethodsDo(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	var shops []Shop
	_, raw := ok(t, s, "GET", "/sim/shops", "")
	if err := json.Unmarshal([]byte(raw), &shops); err != nil || len(shops) != 2 || shops[0].Products[0].Variants[0].VariantID != oakNatural || !strings.Contains(raw, `"variant_id":"30011"`) {
		t.Fatalf("shops %s %v", raw, err)
	}
	inv, _ := ok(t, s, "POST", "/sim/inventory", `{"shop":"chairs.myshopify.com","variant_id":"30011","available":4}`)
	if inv["available"] != 4.0 || inv["sellable"] != 4.0 {
		t.Errorf("set: %v", inv)
	}
	ok(t, s, "POST", "/sim/inventory", `{"shop":"chairs.myshopify.com","changes":[{"variant_id":30012,"available":2},{"variant_id":"30022","available":1,"location_id":"2003"}]}`)
	inv, _ = ok(t, s, "GET", "/sim/inventory?shop=chairs.myshopify.com&variant_id=30022", "")
	if inv["available"] != 4.0 || inv["sellable"] != 3.0 || len(inv["locations"].([]any)) != 3 {
		t.Errorf("read: %v, want 1 more, but not for sale online", inv)
	}
	bought, _ := ok(t, s, "POST", "/sim/buy", `{"shop":"chairs.myshopify.com","variant_id":"30011","quantity":3,"email":"x@example.com"}`)
	ok(t, s, "POST", "/sim/orders/"+bought["order_id"].(string)+"/cancel", `{"restock":true}`)

	create(t, s, chairs, oakNatural, "")
	var drafts []Draft
	_, raw = ok(t, s, "GET", "/sim/drafts?shop=chairs.myshopify.com", "")
	if err := json.Unmarshal([]byte(raw), &drafts); err != nil || len(drafts) != 1 {
		t.Fatalf("drafts %s %v", raw, err)
	}
	ok(t, s, "POST", "/sim/drafts/"+drafts[0].ID.String(), `{"do":"edit"}`)
	paid, _ := ok(t, s, "POST", "/sim/pay", fmt.Sprintf(`{"invoice_url":%q}`, drafts[0].InvoiceURL))
	if paid["order_id"] == "" {
		t.Errorf("paid: %v", paid)
	}
	ok(t, s, "POST", "/sim/drafts/"+drafts[0].ID.String(), `{"do":"delete"}`)
	ok(t, s, "POST", "/sim/variants/30011", `{"shop":"chairs.myshopify.com","policy":"continue","price":"1.00","published":false}`)
	_, raw = ok(t, s, "POST", "/sim/shops", `{"shop":"stools.myshopify.com","plan":"advanced","locations":[{"name":"A"},{"name":"B"}],"products":[{"handle":"h","title":"H","variants":[{"sku":"S","title":"T","price":"1.00","available":3}]}]}`)
	if !strings.Contains(raw, `"available":3`) {
		t.Errorf("a new shop: %s", raw)
	}
	ok(t, s, "POST", "/sim/shops/stools.myshopify.com/uninstall", "")
	if _, raw = ok(t, s, "GET", "/sim/webhooks?shop=stools.myshopify.com", ""); !strings.Contains(raw, "app/uninstalled") {
		t.Errorf("webhooks %s", raw)
	}
	if _, raw = ok(t, s, "GET", "/sim/requests?shop=chairs.myshopify.com", ""); !strings.Contains(raw, `"op":"draftOrderCreate"`) {
		t.Errorf("requests %s", raw)
	}
}

func TestAControlCallThatCannotBeDoneSaysWhy(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	before := fmt.Sprint(s.Shops())
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/sim/inventory", `{"shop":"chairs.myshopify.com","variant_id":"30011","availabel":4}`, 400, "availabel"},
		{"POST", "/sim/inventory", `{"shop":"chairs.myshopify.com","variant_id":"30011"}`, 400, "available"},
		{"POST", "/sim/inventory", `{"shop":"chairs.myshopify.com"}`, 400, "changes"},
		{"POST", "/sim/inventory", `{"shop":"chairs.myshopify.com","changes":[{"variant_id":"30011","available":4},{"variant_id":"1","available":4}]}`, 404, "variant 1"},
		{"POST", "/sim/inventory", `{"shop":"chairs.myshopify.com","variant_id":"30081","available":4}`, 409, "bundle"},
		{"POST", "/sim/inventory", `{"shop":"chairs.myshopify.com","variant_id":"x","available":4}`, 400, "not an id"},
		{"POST", "/sim/inventory", `{"shop":"nobody.myshopify.com","variant_id":"30011","available":4}`, 404, "nobody"},
		{"POST", "/sim/inventory", `{"shop":`, 400, "not the JSON"},
		{"GET", "/sim/inventory?shop=chairs.myshopify.com&variant_id=9", "", 404, "variant 9"},
		{"POST", "/sim/buy", `{"shop":"chairs.myshopify.com","variant_id":"30011","quantity":1}`, 409, "not enough"},
		{"POST", "/sim/buy", `{"shop":"chairs.myshopify.com","variant_id":"30013","quantity":-1}`, 400, "at least 1"},
		{"POST", "/sim/pay", `{"invoice_url":"http://x/1001/invoices/00"}`, 404, "not available"},
		{"POST", "/sim/orders/1/cancel", `{"restock":true}`, 404, "order 1"},
		{"POST", "/sim/drafts/1", `{"do":"delete"}`, 404, "draft order 1"},
		{"POST", "/sim/drafts/1", `{"do":"burn"}`, 400, "burn"},
		{"GET", "/sim/drafts?shop=nobody.myshopify.com", "", 404, "nobody"},
		{"GET", "/sim/requests?shop=nobody.myshopify.com", "", 404, "nobody"},
		{"POST", "/sim/variants/30011", `{"shop":"chairs.myshopify.com","policy":"MAYBE"}`, 400, "MAYBE"},
		{"POST", "/sim/variants/30011", `{"shop":"chairs.myshopify.com","price":"free"}`, 400, "free"},
		{"POST", "/sim/variants/x", `{"shop":"chairs.myshopify.com"}`, 400, "not an id"},
		{"POST", "/sim/shops", `{"shop":"evil.com/a.myshopify.com"}`, 400, "domain"},
		{"POST", "/sim/shops", `{"shop":"a.myshopify.com","plan":"gold"}`, 400, "gold"},
		{"POST", "/sim/shops", `{"shop":"chairs.myshopify.com"}`, 409, "already"},
		{"POST", "/sim/shops/chairs.myshopify.com/install", "", 501, "installing"},
		{"POST", "/sim/webhooks/replay", `{"id":"1"}`, 404, "webhook 1"},
		{"POST", "/sim/webhook", `{"shop":"chairs.myshopify.com","topic":"shop/update","body":{}}`, 409, "no address"},
		{"POST", "/sim/proxy", `{"shop":"chairs.myshopify.com","path":"/waitlist","tamper":"odd"}`, 409, "no address"},
	} {
		status, answer, raw := call(t, s, c.method, c.path, c.body)
		why, _ := answer["error"].(string)
		if status != c.status || !strings.Contains(why, c.says) {
			t.Errorf("%s %s %s: %d %s, want %d with %q", c.method, c.path, c.body, status, raw, c.status, c.says)
		}
	}
	if after := fmt.Sprint(s.Shops()); after != before {
		t.Errorf("something was changed: %s", after)
	}
}

func TestTheAppProxySignsWhatTheBrowserSends(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	got := make(chan *http.Request, 10)
	bodies := make(chan string, 10)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read: %v", err)
		}
		got <- r
		bodies <- string(text)
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		io.WriteString(w, `{"status":"accepted"}`)
	}))
	t.Cleanup(app.Close)
	s.Deliver(app.URL)

	out, _ := ok(t, s, "POST", "/sim/proxy", `{"shop":"chairs.myshopify.com","method":"POST","path":"/waitlist?extra[]=a&extra[]=b","body":{"contact":"ana@example.com"},"ip":"198.51.100.7","headers":{"X-Forwarded-For":"6.6.6.6","Cookie":"c=d","Accept":"text/html"},"customer_id":"77"}`)
	r, body := <-got, <-bodies
	if out["status"] != 202.0 || out["body"].(map[string]any)["status"] != "accepted" || out["headers"].(map[string]any)["Set-Cookie"] != nil {
		t.Errorf("answer %v", out)
	}
	if r.URL.Path != "/proxy/waitlist" || body != `{"contact":"ana@example.com"}` || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Accept") != "text/html" || r.Header.Get("Cookie") != "" {
		t.Errorf("the app got %s %q %v", r.URL, body, r.Header)
	}
	if xff := r.Header.Get("X-Forwarded-For"); xff != "6.6.6.6, 198.51.100.7" {
		t.Errorf("X-Forwarded-For is %q, want the browser's address last", xff)
	}
	signed := func(q url.Values) bool {
		at := time.Unix(must(t, q.Get("timestamp")), 0)
		return q.Get("signature") == SignProxy(TestSecret, q, q.Get("shop"), q.Get("path_prefix"), q.Get("logged_in_customer_id"), at).Get("signature")
	}
	q := r.URL.Query()
	if q.Get("shop") != chairs || q.Get("path_prefix") != ProxyPrefix || q.Get("logged_in_customer_id") != "77" || len(q["extra[]"]) != 2 || !signed(q) {
		t.Errorf("the query is %v", q)
	}

	for _, tamper := range []string{`"sig"`, `true`, `"none"`, `"shop"`, `"customer"`, `"query"`, `"duplicate"`} {
		ok(t, s, "POST", "/sim/proxy", `{"shop":"chairs.myshopify.com","path":"/waitlist?variant_id=30011","tamper":`+tamper+`}`)
		r := <-got
		<-bodies
		q := r.URL.Query()
		if tamper == `"duplicate"` {
			if len(q["shop"]) != 2 {
				t.Errorf("duplicate: %v", q)
			}
			continue
		}
		if signed(q) {
			t.Errorf("tamper %s: the signature is good", tamper)
		}
	}
	ok(t, s, "POST", "/sim/proxy", `{"shop":"chairs.myshopify.com","path":"/waitlist","tamper":"stale"}`)
	r = <-got
	<-bodies
	if age := s.Clock.Now().Sub(time.Unix(must(t, r.URL.Query().Get("timestamp")), 0)); age < 9*time.Minute || !signed(r.URL.Query()) {
		t.Errorf("stale: %v old, want about 10 minutes and signed", age)
	}
	ok(t, s, "POST", "/sim/proxy", `{"shop":"chairs.myshopify.com","method":"POST","path":"/waitlist","body":"contact=ana","timestamp":1770000000}`)
	r, body = <-got, <-bodies
	if r.URL.Query().Get("timestamp") != "1770000000" || body != "contact=ana" || r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
		t.Errorf("a string body: %s %q %v", r.URL, body, r.Header)
	}

	res, err := http.Post(s.URL+"/shopify/"+lamps+"/apps/notify/waitlist?x=1", "application/x-www-form-urlencoded", strings.NewReader("a=b"))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	r, body = <-got, <-bodies
	if res.StatusCode != http.StatusAccepted || r.URL.Query().Get("shop") != lamps || r.URL.Query().Get("x") != "1" || !signed(r.URL.Query()) || body != "a=b" || r.Header.Get("X-Forwarded-For") != "127.0.0.1" {
		t.Errorf("from a storefront: %d %s %q %v", res.StatusCode, r.URL, body, r.Header)
	}
}

func must(t *testing.T, digits string) int64 {
	t.Helper()
	var n int64
	if _, err := fmt.Sscan(digits, &n); err != nil {
		t.Fatalf("%q is no number", digits)
	}
	return n
}

func TestTheInvoiceIsACheckoutPageWithAPayButton(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	page := func(method, url string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}
	paid, late, dead := create(t, s, chairs, diningTable, ""), create(t, s, chairs, diningTable, ""), create(t, s, chairs, oakWhite, "")
	url := theDraft(t, s, paid).InvoiceURL
	if status, html := page("GET", url); status != 200 || !strings.Contains(html, "Dining table") || !strings.Contains(html, "Pay EUR 690.00") || !strings.Contains(html, "/sim/pictures/dining-table.png") {
		t.Errorf("the invoice: %d %s", status, html)
	}
	if status, html := page("POST", url); status != 200 || !strings.Contains(html, "Order #1001 is paid") || strings.Contains(html, "<button") { // after the redirect
		t.Errorf("paid: %d %s", status, html)
	}
	if d := theDraft(t, s, paid); d.Status != "COMPLETED" {
		t.Errorf("the draft is %s", d.Status)
	}
	s.Clock.Push(time.Hour)
	if status, html := page("POST", theDraft(t, s, late).InvoiceURL); status != 200 || !strings.Contains(html, "Dining table is out of stock") || strings.Contains(html, "<button") {
		t.Errorf("out of stock: %d %s", status, html)
	}
	url = theDraft(t, s, dead).InvoiceURL
	if err := s.DeleteDraft(int64(theDraft(t, s, dead).ID)); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"GET", "POST"} {
		if status, html := page(method, url); status != 404 || !strings.Contains(html, "This invoice is not available") {
			t.Errorf("%s of a deleted draft's invoice: %d %s", method, status, html)
		}
	}
}

func TestEveryProductHasAPicture(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	for _, sh := range s.Shops() {
		for _, p := range sh.Products[:2] {
			res, err := http.Get(p.Image)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			if picture, err := png.Decode(bytes.NewReader(text)); err != nil || picture.Bounds().Dx() != pictureSize {
				t.Errorf("%s: %v", p.Image, err)
			}
		}
	}
}

func TestAnAdminCallThatIsNotSimulatedIsLoud(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	if status, _, raw := call(t, s, "POST", "/shopify/chairs.myshopify.com/admin/oauth/access_scopes.json", "{}"); status != 501 || !strings.Contains(raw, "SIMULATOR: not simulated: POST /admin/oauth/access_scopes.json") {
		t.Errorf("%d %s", status, raw)
	}
	if status, _, _ := call(t, s, "GET", "/shopify/chairs.myshopify.com/collections", ""); status != 404 {
		t.Errorf("%d, want 404", status)
	}
}
