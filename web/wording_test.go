package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"holdfast/app/waitlist"
)

func TestWhatCannotBeSentIsNotSaved(t *testing.T) {
	t.Parallel()
	h, _, twilio, f := sendersWorld(t)
	for _, do := range []string{"save", "preview", "test"} {
		form := url.Values{"language": {"fr"}, "do": {do}, "to": {"ada@example.com"}, "text": {"{item} est là: {link}"}, "mail.subject": {"{prix}"}}
		w := send(t, h, "POST", "/settings/messages", form.Encode(), append(bearer(t), "Content-Type", formType)...)
		body := w.Body.String()
		for _, want := range []string{"Nothing was saved", "Put {link} between words", "{prix} is not known here: use {item}, {shop}, {name}, {time}", `value="{prix}"`, "Ours: {item} est de retour"} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: %q is missing", do, want)
			}
		}
		if w.Code != http.StatusUnprocessableEntity || len(f.done()) > 0 || len(twilio.sent) > 0 {
			t.Errorf("%s: %d, did %v, sent %d", do, w.Code, f.done(), len(twilio.sent))
		}
	}
}

func TestAPreviewSavesNothingAndATestGoesToWhomTheMerchantSays(t *testing.T) {
	t.Parallel()
	h, _, twilio, f := sendersWorld(t)
	post := func(do, to string) (int, string) {
		form := url.Values{"language": {"fr"}, "do": {do}, "to": {to}, "text": {"{item} : {link} STOP"}}
		w := send(t, h, "POST", "/settings/messages", form.Encode(), append(bearer(t), "Content-Type", formType)...)
		return w.Code, w.Body.String()
	}
	if code, body := post("preview", ""); code != 200 || !strings.Contains(body, "subject of fr") || !strings.Contains(body, "paid as 2 texts") || !strings.Contains(body, "70 characters instead of 160") {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := post("test", "+44 7400 123456"); code != http.StatusSeeOther {
		t.Errorf("%d", code)
	}
	if code, body := post("test", "out@example.com"); code != http.StatusUnprocessableEntity || !strings.Contains(body, "has opted out") {
		t.Errorf("%d", code)
	}
	if code, body := post("test", "nobody@"); code != http.StatusUnprocessableEntity || !strings.Contains(body, "No test was sent") {
		t.Errorf("%d", code)
	}
	if len(f.done()) > 0 || len(twilio.sent) != 1 {
		t.Fatalf("did %v, sent %d", f.done(), len(twilio.sent))
	}
	if m := twilio.sent[0]; m.Channel != waitlist.SMS || m.To != "+447400123456" || m.Locale != "fr" || m.Wording["text"] != "{item} : {link} STOP" {
		t.Errorf("sent %+v", m)
	}
}

func TestAWaitlistSaysWhatItsTextsWillCost(t *testing.T) {
	t.Parallel()
	h, _, _, _ := sendersWorld(t)
	body := strings.Join(strings.Fields(send(t, h, "GET", "/waitlists/41", "", bearer(t)...).Body.String()), " ")
	if !strings.Contains(body, "12 of them wait for a text. Telling all of these costs about €0.24, as 24 texts are paid. That is more than your budget for one restock") {
		t.Errorf("%s", body)
	}
}
