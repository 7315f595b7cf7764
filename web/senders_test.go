package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

// testAccount is what a merchant enters, and twilioForm how a browser sends it.
var (
	testAccount = shop.Twilio{
		AccountSID: "AC" + strings.Repeat("a1", 16), APIKey: "SK" + strings.Repeat("b2", 16), APISecret: "secretsecret1", AuthToken: "tokentoken12",
		MessagingServiceSID: "MG" + strings.Repeat("c3", 16),
	}
	twilioForm = url.Values{
		"account_sid": {testAccount.AccountSID}, "api_key": {testAccount.APIKey}, "api_secret": {testAccount.APISecret}, "auth_token": {testAccount.AuthToken},
		"messaging_service_sid": {" " + testAccount.MessagingServiceSID + " "}, "phone": {"+44 7400 123456"},
	}.Encode()
)

// sendersWorld is the page with its Twilio.
func sendersWorld(t *testing.T) (h http.Handler, stored *tenants, twilio *texter, f *fake) {
	t.Helper()
	f = &fake{}
	c := newConfig(t, f)
	stored, twilio = c.Shops.(*tenants), c.Texter.(*texter)
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h, stored, twilio, f
}

func TestATwilioAccountIsStoredWhenItsTestIsAccepted(t *testing.T) {
	t.Parallel()
	h, stored, twilio, _ := sendersWorld(t)
	w := send(t, h, "POST", "/settings/senders", twilioForm, append(bearer(t), "Content-Type", formType)...)
	if w.Code != http.StatusSeeOther || len(stored.connected) != 1 || stored.connected[0] != testAccount {
		t.Errorf("%d, stored %+v", w.Code, stored.connected)
	}
	if len(twilio.to) != 1 || twilio.to[0] != "+447400123456" {
		t.Errorf("tested with %v", twilio.to)
	}
}

func TestATwilioAccountThatCannotBeRightIsNotStored(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(url.Values)
		fails  error
		says   string
		tested bool
	}{
		"blank":             {change: func(v url.Values) { v.Del("api_secret") }, says: "Enter it."},
		"another kind":      {change: func(v url.Values) { v.Set("account_sid", v.Get("api_key")) }, says: "It is AC and 32"},
		"a dash":            {change: func(v url.Values) { v.Set("api_secret", "secret-secret") }, says: "letters and digits alone"},
		"nothing to verify": {change: func(v url.Values) { v.Del("auth_token") }, says: "anybody could report a STOP"},
		"no phone":          {change: func(v url.Values) { v.Del("phone") }, says: `aria-invalid="true"`},
		"refused":           {fails: &waitlist.SendError{Outcome: waitlist.ShopFault, Why: "Twilio refuses the account's credentials"}, says: "did not take the test: Twilio refuses the account", tested: true},
		"away":              {fails: &waitlist.SendError{Outcome: waitlist.Unknown, Why: "EOF"}, says: "Try again in a minute", tested: true},
	} {
		h, stored, twilio, f := sendersWorld(t)
		twilio.err = c.fails
		form, err := url.ParseQuery(twilioForm)
		if err != nil {
			t.Fatal(err)
		}
		if c.change != nil {
			c.change(form)
		}
		w := send(t, h, "POST", "/settings/senders", form.Encode(), append(bearer(t), "Content-Type", formType)...)
		body := w.Body.String()
		if w.Code != http.StatusUnprocessableEntity || !strings.Contains(body, c.says) || len(stored.connected) != 0 || len(f.done()) != 0 || (len(twilio.to) > 0) != c.tested {
			t.Errorf("%s: %d, stored %v, did %v, tested %v, says it: %v", name, w.Code, stored.connected, f.done(), twilio.to, strings.Contains(body, c.says))
		}
		for _, secret := range []string{testAccount.APISecret, "secret-secret", testAccount.AuthToken} {
			if strings.Contains(body, secret) {
				t.Errorf("%s: a secret is written back", name)
			}
		}
	}
}

func TestASharedKeyStandsForTheAuthToken(t *testing.T) {
	t.Parallel()
	h, stored, _, _ := sendersWorld(t)
	form, err := url.ParseQuery(twilioForm)
	if err != nil {
		t.Fatal(err)
	}
	form.Del("auth_token")
	form.Set("shared_key", "a-shared-key/of=theirs")
	w := send(t, h, "POST", "/settings/senders", form.Encode(), append(bearer(t), "Content-Type", formType)...)
	if w.Code != http.StatusSeeOther || len(stored.connected) != 1 || stored.connected[0].SharedKey != "a-shared-key/of=theirs" || stored.connected[0].AuthToken != "" {
		t.Errorf("%d, stored %+v", w.Code, stored.connected)
	}
}

func TestThePageOfSendersShowsWhatIsPausedAndNoSecret(t *testing.T) {
	t.Parallel()
	h, _, _, _ := sendersWorld(t)
	body := send(t, h, "GET", "/settings/senders", "", bearer(t)...).Body.String()
	for _, want := range []string{"Texts to numbers that begin with +49 are paused", "Emails are paused", `action="/settings/senders/resume"`, "https://app.example.com/webhooks/twilio/k3y/inbound", `value="3"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Contains(body, "auth\"") || strings.Contains(body, "SK1") {
		t.Errorf("the page shows a credential")
	}
	for _, name := range []string{"phone", "test_phone"} { // both forms can be sent as they are
		if strings.Count(body, `name="`+name+`"`) != 1 {
			t.Errorf("the page does not ask for %s once", name)
		}
	}
	if w := send(t, h, "POST", "/settings/senders/test", "test_phone=12", append(bearer(t), "Content-Type", formType)...); w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), `value="12"`) {
		t.Errorf("a phone that is none: %d", w.Code)
	}
	for _, n := range []string{"0", "101", "many", ""} {
		if w := send(t, h, "POST", "/settings/senders/rate", "per_second="+n, append(bearer(t), "Content-Type", formType)...); w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "Choose a whole number from 1 to 100.") {
			t.Errorf("%q per second: %d", n, w.Code)
		}
	}
}
