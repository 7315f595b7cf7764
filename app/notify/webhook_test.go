package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"holdfast/app/notify/twiliosim"
	"holdfast/app/shop"
)

func newRequest(t *testing.T, to string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// inbound is a text as Twilio posts it, and where.
func inbound() (string, url.Values) {
	return "https://holdfast.example.com/webhooks/twilio/" + shopKey + "/inbound?a=%20b+c&b=", url.Values{
		"AccountSid": {account.AccountSID}, "MessageSid": {"SM1"}, "From": {ann}, "To": {number}, "Body": {"STOP & go é"},
	}
}

func parse(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestAGenuineCallbackIsBelieved(t *testing.T) {
	t.Parallel()
	to, form := inbound()
	h := http.Header{"X-Twilio-Signature": {twiliosim.Sign(account.AuthToken, to, form)}}
	got, err := ReadText(account, parse(t, to), h, form)
	if err != nil || got != (InboundText{ID: "SM1", From: ann, Body: "STOP & go é"}) {
		t.Fatalf("got %+v, %v", got, err)
	}
	// A value that is repeated is not signed: it is not read either.
	form.Add("Body", "hello")
	if got, err = ReadText(account, parse(t, to), h, form); err != nil || got.Body != "STOP & go é" {
		t.Fatalf("with a second body: got %+v, %v", got, err)
	}
}

func TestAForgedCallbackIsRefused(t *testing.T) {
	t.Parallel()
	to, _ := inbound()
	type forgery struct {
		account shop.Twilio
		to      string
		form    url.Values
		h       http.Header
	}
	for name, forge := range map[string]func(*forgery){
		"no signature":    func(f *forgery) { f.h = http.Header{} },
		"empty signature": func(f *forgery) { f.h.Set("X-Twilio-Signature", "") },
		"two signatures":  func(f *forgery) { f.h.Add("X-Twilio-Signature", f.h.Get("X-Twilio-Signature")) },
		"another key":     func(f *forgery) { f.h.Set("X-Twilio-Signature", twiliosim.Sign("guess", to, f.form)) },
		"the API secret":  func(f *forgery) { f.h.Set("X-Twilio-Signature", twiliosim.Sign(account.APISecret, to, f.form)) },
		"an empty key": func(f *forgery) {
			f.account.AuthToken = ""
			f.h.Set("X-Twilio-Signature", twiliosim.Sign("", to, f.form))
		},
		"a shared key":       func(f *forgery) { f.h.Set("X-Twilio-Webhooks-Signature-Settings", "key=k,algorithm=HMAC_SHA256") },
		"another body":       func(f *forgery) { f.form.Set("Body", "START") },
		"another sender":     func(f *forgery) { f.form.Set("From", "+14155550199") },
		"one parameter more": func(f *forgery) { f.form.Set("OptOutType", "STOP") },
		"one parameter less": func(f *forgery) { f.form.Del("To") },
		"another account":    func(f *forgery) { f.account.AccountSID = "AC2" },
		"another scheme":     func(f *forgery) { f.to = "http" + to[len("https"):] },
		"another host":       func(f *forgery) { f.to = "https://evil.example.com" + to[len("https://holdfast.example.com"):] },
		"another shop's key": func(f *forgery) { f.to = "https://holdfast.example.com/webhooks/twilio/other/inbound?a=%20b+c&b=" },
		"another path": func(f *forgery) {
			f.to = "https://holdfast.example.com/webhooks/twilio/" + shopKey + "/status?a=%20b+c&b="
		},
		"the query in other words": func(f *forgery) {
			f.to = "https://holdfast.example.com/webhooks/twilio/" + shopKey + "/inbound?a=+b+c&b="
		},
		"no query": func(f *forgery) { f.to = "https://holdfast.example.com/webhooks/twilio/" + shopKey + "/inbound" },
	} {
		_, form := inbound()
		f := forgery{account, to, form, http.Header{"X-Twilio-Signature": {twiliosim.Sign(account.AuthToken, to, form)}}}
		forge(&f)
		if got, err := ReadText(f.account, parse(t, f.to), f.h, f.form); !errors.Is(err, ErrForged) || got != (InboundText{}) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
		if got, ok, err := ReadStatus(f.account, parse(t, f.to), f.h, f.form); !errors.Is(err, ErrForged) || ok {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

// sharedSign signs as Twilio does with a shared key.
func sharedSign(key, to string, form url.Values) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(to))
	for _, name := range slices.Sorted(maps.Keys(form)) {
		mac.Write([]byte(name + form.Get(name)))
	}
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func TestACallbackSignedWithASharedKeyIsBelievedByThatKeyAlone(t *testing.T) {
	t.Parallel()
	to, form := inbound()
	with := func(authToken, sharedKey string) shop.Twilio {
		a := account
		a.AuthToken, a.SharedKey = authToken, sharedKey
		return a
	}
	const how = "key=WK1,algorithm=HMAC_SHA256"
	for name, c := range map[string]struct {
		account   shop.Twilio
		how       []string
		signature string
		says      string // "" believes it
	}{
		"its key":                 {with("", "shared"), []string{how}, sharedSign("shared", to, form), ""},
		"its key, beside a token": {with("token", "shared"), []string{how}, sharedSign("shared", to, form), ""},
		"the token, beside a key": {with("token", "shared"), nil, twiliosim.Sign("token", to, form), ""},
		"another key":             {with("", "shared"), []string{how}, sharedSign("guess", to, form), "not signed by"},
		"the token's hash":        {with("token", "shared"), []string{how}, twiliosim.Sign("token", to, form), "not signed by"},
		"no key is configured":    {with("token", ""), []string{how}, sharedSign("", to, form), "the shop has none: enter it"},
		"an unknown algorithm":    {with("", "shared"), []string{"key=WK1,algorithm=HMAC_SHA512"}, sharedSign("shared", to, form), "in a way that is not known here"},
		"an empty header":         {with("", "shared"), []string{""}, sharedSign("shared", to, form), "in a way that is not known here"},
		"the empty token":         {with("", "shared"), nil, twiliosim.Sign("", to, form), "the shop has none"},
		"not base64":              {with("", "shared"), []string{how}, "?", "not signed by"},
	} {
		h := http.Header{"X-Twilio-Signature": {c.signature}}
		if c.how != nil {
			h["X-Twilio-Webhooks-Signature-Settings"] = c.how
		}
		_, err := ReadText(c.account, parse(t, to), h, form)
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, ErrForged) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAGenuineCallbackThatSaysNothingIsRefused(t *testing.T) {
	t.Parallel()
	to := "https://holdfast.example.com/webhooks/twilio/" + shopKey + "/status"
	form := url.Values{"AccountSid": {account.AccountSID}}
	h := http.Header{"X-Twilio-Signature": {twiliosim.Sign(account.AuthToken, to, form)}}
	if _, err := ReadText(account, parse(t, to), h, form); !errors.Is(err, ErrMalformed) {
		t.Errorf("as a text: %v", err)
	}
	if _, ok, err := ReadStatus(account, parse(t, to), h, form); ok || !errors.Is(err, ErrMalformed) {
		t.Errorf("as a report: %v", err)
	}
	form = url.Values{"AccountSid": {account.AccountSID}, "MessageSid": {"SM1"}, "MessageStatus": {"daydreaming"}}
	h = http.Header{"X-Twilio-Signature": {twiliosim.Sign(account.AuthToken, to, form)}}
	if _, ok, err := ReadStatus(account, parse(t, to), h, form); ok || err != nil {
		t.Errorf("an unknown status: %v, %v", ok, err)
	}
}

// Whatever somebody signs or does not sign: nothing panics, what is not signed says nothing, and what is said
// has a message and a known state.
func FuzzReadStatus(f *testing.F) {
	f.Add("message=7&attempt=1", "AccountSid="+account.AccountSID+"&MessageSid=SM1&MessageStatus=failed&ErrorCode=30003", "", true)
	f.Add("message=-1&attempt=x", "AccountSid="+account.AccountSID+"&SmsSid=SM1&SmsStatus=delivered", "key=k,algorithm=HMAC_SHA256", true)
	f.Add("", "%zz&=&&a", "", false)
	f.Fuzz(func(t *testing.T, query, body, how string, sign bool) {
		form, err := url.ParseQuery(body)
		if err != nil {
			return
		}
		signed := &url.URL{Scheme: "https", Host: "holdfast.example.com", Path: "/webhooks/twilio/k/status", RawQuery: query}
		h := http.Header{}
		if how != "" {
			h.Set("X-Twilio-Webhooks-Signature-Settings", how)
		}
		h.Set("X-Twilio-Signature", "x")
		if sign {
			h.Set("X-Twilio-Signature", twiliosim.Sign(account.AuthToken, signed.String(), form))
		}
		d, ok, err := ReadStatus(account, signed, h, form)
		if (!sign || how != "") && err == nil {
			t.Errorf("believed: %+v", d)
		}
		if ok && (err != nil || d.ProviderID == "" || !slices.Contains([]string{"accepted", "delivered", "failed"}, d.Status) || d.MessageID < 0 || d.Attempt < 0 || d.Status == "failed" && d.Failure.Why == "") {
			t.Errorf("%+v, %v", d, err)
		}
		if text, err := ReadText(account, signed, h, form); err == nil && (text.From == "" || text.ID == "") {
			t.Errorf("%+v", text)
		}
	})
}
