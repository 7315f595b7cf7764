package web

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"holdfast/app/waitlist"
)

// adminPages are all pages of the merchant's.
var adminPages = []string{"/", "/waitlists", "/waitlists/41", "/restocks", "/restocks/55", "/holds", "/opt-outs", "/messages", "/settings", "/settings/senders", "/settings/messages", "/privacy-requests", "/privacy-requests/7"}

// adminActs are all acts of the merchant's: path, form, what the domain is asked, and where it ends.
var adminActs = [][4]string{
	{"/notes/5/put-away", "", "clear 5", "/?done=put-away"},
	{"/waitlists/41/entries/7/remove", "", "remove 7", "/waitlists/41?done=removed"},
	{"/restocks/9/approve", "", "approve 9", "/restocks/9?done=approved"},
	{"/restocks/9/decline", "", "decline 9", "/restocks/9?done=declined"},
	{"/holds/3/release", "", "release 3", "/holds?done=released"},
	{"/opt-outs", "channel=sms&address=%2B447400123456", "suppress sms +447400123456 merchant", "/opt-outs?done=added"},
	{"/opt-outs/8/lift", "", "lift 8", "/opt-outs?done=lifted"},
	{"/settings", "hold_minutes=20", "settings", "/settings?done=saved"},
	{"/settings/messages", "language=de&do=save&text={shop}+{link}+STOP", "wording de {shop} {link} STOP", "/settings/messages?language=de&done=words-saved"},
	{"/settings/messages", "language=de&do=test&to=ada@example.com", "", "/settings/messages?language=de&done=test-sent"},
	{"/settings/senders", twilioForm, "resume sms", "/settings/senders?done=texts-on"},
	{"/settings/senders/test", "test_phone=%2B447400123456", "resume sms", "/settings/senders?done=tested"},
	{"/settings/senders/rate", "per_second=12", "rate 12", "/settings/senders?done=rate-saved"},
	{"/settings/senders/resume", "", "resume sms", "/settings/senders?done=resumed"},
	{"/settings/senders/disconnect", "", "", "/settings/senders?done=disconnected"},
}

func TestEachActOfTheMerchantIsOnePostThatEndsOnItsPage(t *testing.T) {
	t.Parallel()
	for _, c := range adminActs {
		f := &fake{}
		h := newWeb(t, f)
		w := send(t, h, "POST", c[0], c[1], append(bearer(t), "Content-Type", formType)...)
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != c[3] || strings.Join(f.done(), ",") != c[2] {
			t.Errorf("POST %s: %d to %q, did %v", c[0], w.Code, w.Header().Get("Location"), f.done())
		}
		page := send(t, h, "GET", c[3], "", bearer(t)...)
		if c[3] != "/restocks/9?done=approved" && page.Code != 200 {
			t.Errorf("GET %s: %d", c[3], page.Code)
		}
		if said := done(strings.SplitN(c[3], "done=", 2)[1]); said == "" || !strings.Contains(page.Body.String(), said) {
			t.Errorf("GET %s does not say what was done", c[3])
		}
	}
}

func TestWithoutAValidTokenNothingOfAShopIsShownOrChanged(t *testing.T) {
	t.Parallel()
	now := testNow.Unix()
	tokens := map[string]string{
		"other app":  idToken(t, testShop, testSecret, func(c jwt.MapClaims) { c["aud"] = "another" }),
		"expired":    idToken(t, testShop, testSecret, func(c jwt.MapClaims) { c["exp"] = now - 60 }),
		"dest":       idToken(t, testShop, testSecret, func(c jwt.MapClaims) { c["dest"] = "https://evil.com/" + testShop }),
		"signature":  idToken(t, testShop, "another secret", nil),
		"not a JWT":  "x.y.z",
		"empty":      "",
		"another":    idToken(t, "lamps.myshopify.com", testSecret, nil), // a shop that has not installed us
		"basic auth": "-",
	}
	for name, token := range tokens {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{rows: 3}
			h := newWeb(t, f)
			auth := []string{"Authorization", "Bearer " + token}
			if token == "-" {
				auth[1] = "Basic eDp5"
			}
			check := func(method, path string, headers ...string) {
				w := send(t, h, method, path, "hold_minutes=20", append(headers, "Content-Type", formType)...)
				if w.Code == 200 && !strings.Contains(w.Body.String(), "data-shell") || w.Code == 303 {
					t.Errorf("%s %s: %d", method, path, w.Code)
				}
				if strings.Contains(w.Body.String(), "Oak chair") || strings.Contains(w.Body.String(), "example.com<") {
					t.Errorf("%s %s shows rows of a shop", method, path)
				}
				if token != "-" && name != "another" && len(headers) > 0 && headers[0] == "Authorization" && (w.Code != 401 || w.Header().Get("X-Shopify-Retry-Invalid-Session-Request") != "1") {
					t.Errorf("%s %s: %d, App Bridge is not asked to try again", method, path, w.Code)
				}
			}
			for _, path := range adminPages {
				check("GET", path, auth...)
				check("GET", path+"?shop="+testShop+"&id_token="+url.QueryEscape(token))
			}
			for _, c := range adminActs {
				check("POST", c[0], auth...)
				check("POST", c[0]+"?shop="+testShop+"&id_token="+url.QueryEscape(token))
				check("POST", c[0])
			}
			if len(f.done()) != 0 {
				t.Errorf("done: %v", f.done())
			}
		})
	}
}

func TestTheFirstAddressCarriesATokenThatMustNameItsShop(t *testing.T) {
	t.Parallel()
	h := newWeb(t, &fake{})
	token := idToken(t, testShop, testSecret, nil)
	if w := send(t, h, "GET", "/?embedded=1&shop="+testShop+"&id_token="+token, "", "Sec-Fetch-Dest", "iframe"); w.Code != 200 || strings.Contains(w.Body.String(), "data-shell") {
		t.Errorf("the right shop: %d", w.Code)
	}
	for _, shop := range []string{"", "lamps.myshopify.com"} {
		w := send(t, h, "GET", "/?embedded=1&shop="+shop+"&id_token="+token, "", "Sec-Fetch-Dest", "iframe")
		if !strings.Contains(w.Body.String(), "data-shell") {
			t.Errorf("shop %q: %d without the shell", shop, w.Code)
		}
	}
	// The token of an address never acts.
	f := &fake{}
	if w := send(t, newWeb(t, f), "POST", "/holds/3/release?shop="+testShop+"&id_token="+token, ""); w.Code != http.StatusForbidden || len(f.done()) != 0 {
		t.Errorf("POST by an address's token: %d, did %v", w.Code, f.done())
	}
}

func TestADocumentWithoutATokenIsAShellOrTheWayToTheAdmin(t *testing.T) {
	t.Parallel()
	h := newWeb(t, &fake{rows: 3})
	host := func(s string) string { return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(s))) }
	for name, c := range map[string]struct {
		path, dest string
		status     int
		location   string
		shell      bool
	}{
		"in the frame":         {"/holds?embedded=1", "iframe", 200, "", true},
		"an old browser":       {"/holds?embedded=1", "", 200, "", true},
		"a fetch":              {"/holds", "empty", 401, "", false},
		"on top":               {"/holds", "document", 401, "", false},
		"on top, embedded=1":   {"/holds?embedded=1", "document", 401, "", false},
		"on top, new admin":    {"/holds?host=" + host("admin.shopify.com/store/chairs"), "document", 302, "https://admin.shopify.com/store/chairs/apps/" + testClient + "/holds", false},
		"on top, old admin":    {"/holds?host=" + host(testShop+"/admin"), "document", 302, "https://" + testShop + "/admin/apps/" + testClient + "/holds", false},
		"evil host":            {"/holds?host=" + host("evil.com/store/x"), "document", 401, "", false},
		"evil user":            {"/holds?host=" + host("admin.shopify.com@evil.com/store/x"), "document", 401, "", false},
		"evil path":            {"/holds?host=" + host("admin.shopify.com/store/x/../../@evil.com"), "document", 401, "", false},
		"evil newline":         {"/holds?host=" + host("admin.shopify.com/store/x\n"), "document", 401, "", false},
		"not base64":           {"/holds?host=%25%25", "document", 401, "", false},
		"/auth/session-token":  {"/auth/session-token", "iframe", 200, "", true},
		"unpadded host, store": {"/?host=" + strings.TrimRight(base64.StdEncoding.EncodeToString([]byte("admin.shopify.com/store/chairs1")), "="), "document", 302, "https://admin.shopify.com/store/chairs1/apps/" + testClient + "/", false},
	} {
		w := send(t, h, "GET", c.path, "", "Sec-Fetch-Dest", c.dest)
		if w.Code != c.status || w.Header().Get("Location") != c.location || strings.Contains(w.Body.String(), "data-shell") != c.shell {
			t.Errorf("%s: %d %q %s", name, w.Code, w.Header().Get("Location"), w.Body)
		}
		if strings.Contains(w.Body.String(), "Chairs") || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: shows a shop, or may be kept: %s", name, w.Body)
		}
	}
}

func TestOnlyTheShopsOwnAdminMayFrameItsPages(t *testing.T) {
	t.Parallel()
	h := newWeb(t, &fake{rows: 1})
	const scripts = "; script-src 'self' https://cdn.shopify.com; object-src 'none'; base-uri 'self'"
	for _, path := range append(adminPages, "/waitlists/999", "/restocks/999999", "/holds?after=x") {
		want := "frame-ancestors https://" + testShop + " https://admin.shopify.com" + scripts
		if got := send(t, h, "GET", path, "", bearer(t)...).Header().Get("Content-Security-Policy"); got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
	want := "frame-ancestors https://admin.shopify.com" + scripts
	if got := send(t, h, "GET", "/holds?shop=evil.myshopify.com", "", "Sec-Fetch-Dest", "iframe").Header().Get("Content-Security-Policy"); got != want {
		t.Errorf("shell: %s", got)
	}
	c := newConfig(t, &fake{})
	c.AppBridgeURL = "http://127.0.0.1:8081/app-bridge.js"
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	w := send(t, h, "GET", "/", "", bearer(t)...)
	csp := w.Header().Get("Content-Security-Policy")
	if !strings.Contains(csp, "https://admin.shopify.com http://127.0.0.1:8081;") || !strings.Contains(csp, "https://cdn.shopify.com http://127.0.0.1:8081;") {
		t.Errorf("a simulated admin: %s", csp)
	}
	if !strings.Contains(w.Body.String(), `<script src="http://127.0.0.1:8081/app-bridge.js">`) {
		t.Error("its stub is not loaded")
	}
}

func TestAppBridgeIsTheFirstScriptOfEveryPage(t *testing.T) {
	t.Parallel()
	h := newWeb(t, &fake{rows: 3})
	script := regexp.MustCompile(`<script[^>]*>`)
	for _, path := range adminPages {
		body := send(t, h, "GET", path, "", bearer(t)...).Body.String()
		if first := script.FindString(body); first != `<script src="`+AppBridge+`">` || strings.Index(body, first) > strings.Index(body, "</head>") {
			t.Errorf("%s: the first script is %s", path, first)
		}
		if !strings.Contains(body, `<meta name="shopify-api-key" content="`+testClient+`">`) || !strings.Contains(body, `<meta name="turbo-cache-control" content="no-cache">`) {
			t.Errorf("%s: a meta element is missing", path)
		}
	}
}

func TestAPostFromAnotherWebsiteIsRefusedEvenWithAToken(t *testing.T) {
	t.Parallel()
	f := &fake{}
	h := newWeb(t, f)
	w := send(t, h, "POST", "/holds/3/release", "", append(bearer(t), "Sec-Fetch-Site", "cross-site", "Origin", "https://evil.com")...)
	if w.Code != http.StatusForbidden || len(f.done()) != 0 {
		t.Errorf("%d, did %v", w.Code, f.done())
	}
	w = send(t, h, "POST", "/holds/3/release", "", append(bearer(t), "Sec-Fetch-Site", "same-origin", "Origin", "https://app.example.com")...)
	if w.Code != http.StatusSeeOther || len(f.done()) != 1 {
		t.Errorf("from our own page: %d, did %v", w.Code, f.done())
	}
}

func TestThePagesOfTheMerchantShowTheirRows(t *testing.T) {
	t.Parallel()
	f := &fake{rows: 4, asked: ptr(5000), notes: []waitlist.Note{{ID: 5, Kind: "implausible", Detail: "5,000 chairs & more?", CreatedAt: testNow}}}
	h := newWeb(t, f)
	for path, wants := range map[string][]string{
		"/":                   {"Is this restock real?", "5,000 chairs &amp; more?", `action="/notes/5/put-away"`, "<strong>23</strong>", "Texts are off", "https://" + testShop + "/admin/themes/current/editor"},
		"/waitlists":          {"Oak chair", "OAK-NAT", `href="/waitlists/41"`, "cannot be held"},
		"/waitlists/41":       {"a••@example.com", `action="/waitlists/41/entries/101/remove"`, "Benjamin Featherstone", "offered", "<details"},
		"/restocks":           {`href="/restocks/59"`, "waits for your yes"},
		"/restocks/55":        {">short<", "Shopify has fewer units than are held", "Opened with 3 units; Shopify had 3 for sale.", "1 more came", "1 went outside a hold", `action="/restocks/55/approve"`, `action="/restocks/55/decline"`, "5000 units", "pressed"},
		"/holds":              {"being reserved", `data-countdown="2026-12-01T14:27:00Z"`, ">10:00<", "https://" + testShop + "/admin/draft_orders/1234567890123", "/admin/orders/5550001112223", "paid after its end", "order cancelled", `action="/holds/89/release"`},
		"/privacy-requests":   {"Give out a customer’s data", "Erase a customer", "under way", "kept, the app was installed again", `href="/privacy-requests/299"`, "2 places"},
		"/privacy-requests/7": {"ann@example.com", "Oak chair", "Ann &lt;b&gt;", "5550001112223", `download="customer-data-7.json"`, "data:application/json;base64,eyJwbGFjZXMiOltdfQ=="},
		"/opt-outs":           {"answered STOP", "erased", `action="/opt-outs/1/lift"`, `action="/opt-outs"`},
		"/messages":           {"30005", "The number does not exist", "outcome unknown", "delivered"},
		"/settings":           {`name="hold_minutes" value="15"`, `name="reserve_before_telling"`, `name="locations"`, `name="automatic_discounts"`, `name="discount_codes"`, `name="skip_buyers"`, `href="/privacy-requests"`},
	} {
		w := send(t, h, "GET", path, "", bearer(t)...)
		if w.Code != 200 {
			t.Errorf("%s: %d", path, w.Code)
		}
		for _, want := range wants {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: %q is missing in\n%s", path, want, w.Body)
			}
		}
	}
}

func TestSettingsSayThatBuyersCannotBeLeftOutWhileShopifyHidesThem(t *testing.T) {
	t.Parallel()
	for _, hidden := range []bool{false, true} {
		c := newConfig(t, &fake{})
		c.Shops.(*tenants).shop.CustomersHidden = hidden
		h, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		w := send(t, h, "GET", "/settings", "", bearer(t)...)
		if got := strings.Contains(w.Body.String(), "not approved for protected customer data"); w.Code != 200 || got != hidden {
			t.Errorf("hidden %v: status %d, said so: %v", hidden, w.Code, got)
		}
	}
}

func TestSettingsSayWhichNewsMeansNothing(t *testing.T) {
	t.Parallel()
	for _, f := range []*fake{{}, {unknown: []waitlist.TopicCount{{Topic: "themes/publish", Count: 3, Last: testNow}}}} {
		w := send(t, newWeb(t, f), "GET", "/settings", "", bearer(t)...)
		if got := strings.Contains(w.Body.String(), "themes/publish: 3 times"); w.Code != 200 || got != (len(f.unknown) > 0) {
			t.Errorf("%d unknown topics: status %d, said so: %v", len(f.unknown), w.Code, got)
		}
	}
}

func TestAnEmptyListSaysWhatWillBeThere(t *testing.T) {
	t.Parallel()
	h := newWeb(t, &fake{})
	for path, want := range map[string]string{"/waitlists": "Nobody is waiting yet", "/waitlists/41": "Nobody is in this queue", "/restocks": "No restock yet", "/restocks/54": "Nobody was told", "/holds": "Nothing is held", "/opt-outs": "Nobody has opted out", "/messages": "No message yet", "/privacy-requests": "No privacy request yet",
		"/holds?after=9": "No more holds"} {
		if w := send(t, h, "GET", path, "", bearer(t)...); w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d, %q is missing", path, w.Code, want)
		}
	}
}

func TestAFullPageLeadsToTheRowsAfterItsLast(t *testing.T) {
	t.Parallel()
	for path, next := range map[string]string{"/waitlists": "/waitlists?after=90", "/waitlists/41": "/waitlists/41?after=150", "/restocks": "/restocks?after=10", "/holds": "/holds?after=40", "/opt-outs": "/opt-outs?after=50", "/messages": "/messages?after=450", "/privacy-requests": "/privacy-requests?after=250"} {
		f := &fake{rows: waitlist.PageSize}
		h := newWeb(t, f)
		if body := send(t, h, "GET", path, "", bearer(t)...).Body.String(); !strings.Contains(body, `href="`+next+`"`) {
			t.Errorf("%s does not lead to %s", path, next)
		}
		if w := send(t, h, "GET", next, "", bearer(t)...); w.Code != 200 || next[strings.LastIndex(next, "=")+1:] != strings.TrimPrefix(at("", f.after), " ") {
			t.Errorf("%s: %d, the domain was asked for what comes after %d", next, w.Code, f.after)
		}
		f.rows--
		if body := send(t, h, "GET", path, "", bearer(t)...).Body.String(); strings.Contains(body, "after=") {
			t.Errorf("%s: a page that is not full has a next one", path)
		}
		if w := send(t, h, "GET", path+"?after=x", "", bearer(t)...); w.Code != http.StatusBadRequest {
			t.Errorf("%s?after=x: %d", path, w.Code)
		}
	}
}

func TestARowOfAnotherShopOrNoRowIs404(t *testing.T) {
	t.Parallel()
	h := newWeb(t, &fake{})
	for _, path := range []string{"/waitlists/42", "/waitlists/x", "/restocks/99", "/restocks/0", "/restocks/-1", "/restocks/99999999999999999999"} {
		if w := send(t, h, "GET", path, "", bearer(t)...); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	for _, c := range adminActs[:7] {
		if w := send(t, newWeb(t, &fake{err: waitlist.ErrNotFound}), "POST", c[0], c[1], append(bearer(t), "Content-Type", formType)...); w.Code != http.StatusNotFound {
			t.Errorf("POST %s: %d", c[0], w.Code)
		}
	}
}

func TestAnOptOutThatCannotBeUsedIsShownWithItsReason(t *testing.T) {
	t.Parallel()
	f := &fake{err: &waitlist.Invalid{Code: "invalid_phone", Field: "contact", Message: "this number is too short"}}
	c := newConfig(t, f)
	c.Domain = listing{f}
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	w := send(t, h, "POST", "/opt-outs", "channel=sms&address=12", append(bearer(t), "Content-Type", formType)...)
	body := w.Body.String()
	if w.Code != http.StatusUnprocessableEntity || !strings.Contains(body, "This number is too short.") || !strings.Contains(body, `value="12"`) || !strings.Contains(body, `<option value="sms" selected`) {
		t.Errorf("%d %s", w.Code, body)
	}
}

func TestSettingsAreSavedTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	post := func(f *fake, form string) (int, string) {
		w := send(t, newWeb(t, f), "POST", "/settings", form, append(bearer(t), "Content-Type", formType)...)
		return w.Code, w.Body.String()
	}
	f := &fake{}
	code, _ := post(f, "hold_minutes=20&threshold=3&locations=11,+12&locations=13&reply_to=help%40example.com&reserve_before_telling=false")
	want := testTenants().set
	want.HoldMinutes, want.Threshold, want.Locations, want.ReplyTo = 20, 3, []int64{11, 12, 13}, "help@example.com"
	if code != 303 || len(f.set.Locations) != 3 || f.set.HoldMinutes != 20 || f.set.Threshold != 3 || f.set.ReplyTo != want.ReplyTo || f.set.TTLDays != 180 {
		t.Errorf("%d, saved %+v", code, f.set)
	}
	f = &fake{}
	code, body := post(f, "hold_minutes=abc&threshold=0&notices_per_unit=&reserve_before_telling=false&reserve_before_telling=true&reply_to=nobody&locations=x&loud_hours=1")
	if code != http.StatusUnprocessableEntity || len(f.done()) != 0 {
		t.Fatalf("%d, did %v", code, f.done())
	}
	for _, said := range []string{"Nothing was saved: 6 values need a look", `value="abc"`, "Give a whole number, in digits alone.", "Choose a whole number from 1 to 1000000.",
		"Give one mail address, such as help@example.com.", `value="nobody"`, "Give the ids of locations, whole numbers separated by commas.", "loud_hours: there is no such setting"} {
		if !strings.Contains(body, said) {
			t.Errorf("%q is missing in\n%s", said, body)
		}
	}
}

// listing is a fake whose lists work while its acts fail.
type listing struct{ *fake }

func (l listing) OptOuts(context.Context, int64, int64) ([]waitlist.OptOutRow, error) {
	return nil, nil
}
