package web

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
	"holdfast/templates"
)

// credential is one thing that a merchant enters of a Twilio account.
type credential struct {
	field templates.Field
	form  *regexp.Regexp
	wants string // what form asks for, in words
	into  func(*shop.Twilio) *string
	may   bool // it may be left empty
}

var plainSecret = regexp.MustCompile(`^[A-Za-z0-9]{8,64}$`)

var credentials = []credential{
	{field: templates.Field{Name: "account_sid", Label: "Account SID", Kind: "text", Help: "On the first page of the Twilio console."},
		form: regexp.MustCompile(`^AC[0-9a-f]{32}$`), wants: "it is AC and 32 digits or letters from a to f", into: func(t *shop.Twilio) *string { return &t.AccountSID }},
	{field: templates.Field{Name: "api_key", Label: "API key SID", Kind: "text", Help: "Under Account, API keys & tokens: create a standard key for Holdfast. You can revoke it at any time."},
		form: regexp.MustCompile(`^SK[0-9a-f]{32}$`), wants: "it is SK and 32 digits or letters from a to f", into: func(t *shop.Twilio) *string { return &t.APIKey }},
	{field: templates.Field{Name: "api_secret", Label: "API key secret", Kind: "password", Help: "Twilio shows it once, when the key is created."},
		form: plainSecret, wants: "it is letters and digits alone", into: func(t *shop.Twilio) *string { return &t.APISecret }},
	{field: templates.Field{Name: "messaging_service_sid", Label: "Messaging service SID", Kind: "text", Help: "Under Messaging, Services. Its sender pool holds the numbers that texts come from."},
		form: regexp.MustCompile(`^MG[0-9a-f]{32}$`), wants: "it is MG and 32 digits or letters from a to f", into: func(t *shop.Twilio) *string { return &t.MessagingServiceSID }},
	{field: templates.Field{Name: "auth_token", Label: "Auth token", Kind: "password", Help: "The primary one of this account. Twilio signs with it what it reports, such as a STOP."},
		form: plainSecret, wants: "it is letters and digits alone", may: true, into: func(t *shop.Twilio) *string { return &t.AuthToken }},
	{field: templates.Field{Name: "shared_key", Label: "Or a shared key for webhooks", Kind: "password", Help: "If Twilio signs your webhooks with a shared key, you need not give the auth token away."},
		form: regexp.MustCompile(`^[!-~]{8,256}$`), wants: "it is 8 to 256 letters, digits and signs", may: true, into: func(t *shop.Twilio) *string { return &t.SharedKey }},
}

func (s *server) senders(w http.ResponseWriter, r *http.Request, v visit) error {
	return s.sendersPage(w, r, v, http.StatusOK, nil, nil, "")
}

// sendersPage shows the page; typed is what was entered, faults stand beside their fields. Secrets are not
// written back.
func (s *server) sendersPage(w http.ResponseWriter, r *http.Request, v visit, status int, typed url.Values, faults map[string]string, wrong string) error {
	var page templates.Senders
	var err error
	if page.Pauses, err = s.Domain.Pauses(r.Context(), v.Shop.ID); err != nil {
		return err
	}
	rate, err := s.Domain.TextsPerSecond(r.Context(), v.Shop.ID)
	if err != nil {
		return err
	}
	account, err := s.Shops.Twilio(r.Context(), v.Shop.ID)
	switch {
	case errors.Is(err, shop.ErrNotFound):
	case err != nil:
		return err
	default:
		page.Account = "AC…" + account.AccountSID[max(0, len(account.AccountSID)-4):]
		page.Inbound = s.URL.JoinPath("webhooks", "twilio", v.Shop.TwilioKey, "inbound").String()
	}
	filled := func(f templates.Field, value string) templates.Field {
		if typed.Has(f.Name) && f.Kind != "password" {
			value = last(typed, f.Name)
		}
		f.Value, f.Fault = value, sentence(faults[f.Name])
		return f
	}
	for _, c := range credentials {
		page.Connect = append(page.Connect, filled(c.field, ""))
	}
	phone := templates.Field{Name: connectPhone, Label: "Your phone, for a test", Kind: "text", Help: "With its country code, such as +44 7400 123456. It gets one text."}
	page.Connect = append(page.Connect, filled(phone, ""))
	phone.Name = testPhone
	page.Test = filled(phone, "")
	page.Rate = filled(templates.Field{Name: "per_second", Label: "Texts", Unit: "per second", Kind: "number",
		Help: "What your senders may send: 1 for an ordinary number, 3 for a toll-free one, more for a registered US campaign or a short code. Too many and they queue at Twilio while people's offers run out. 1 to 100."}, strconv.Itoa(rate))
	page.Wrong = wrong
	return s.render(w, r, status, templates.SendersPage(v.Admin, page))
}

// The two forms with a phone for a test stand on one page.
const connectPhone, testPhone = "phone", "test_phone"

// readSenders reads a form of the page and the phone in a field of it.
func (s *server) readSenders(r *http.Request, v visit, field string) (form url.Values, phone string, faults map[string]string, err error) {
	if form, err = readForm(r); err != nil {
		return nil, "", nil, err
	}
	for name := range form {
		if err := checkText(map[string]string{"what was entered": name + last(form, name)}); err != nil {
			return nil, "", nil, err
		}
	}
	faults = map[string]string{}
	address, err := waitlist.ParseAddress(waitlist.SMS, last(form, field), v.Shop.Country)
	if invalid := (*waitlist.Invalid)(nil); errors.As(err, &invalid) {
		faults[field] = invalid.Message
	} else if err != nil {
		return nil, "", nil, err
	}
	return form, address.Send, faults, nil
}

// connectTwilio checks an account by a text to the merchant's phone, and stores it when Twilio has taken that
// text. Otherwise nothing is stored.
func (s *server) connectTwilio(w http.ResponseWriter, r *http.Request, v visit) error {
	form, phone, faults, err := s.readSenders(r, v, connectPhone)
	if err != nil {
		return err
	}
	var account shop.Twilio
	for _, c := range credentials {
		value := strings.TrimSpace(last(form, c.field.Name))
		switch {
		case value == "" && c.may:
		case value == "":
			faults[c.field.Name] = "enter it"
		case !c.form.MatchString(value):
			faults[c.field.Name] = c.wants
		default:
			*c.into(&account) = value
		}
	}
	if account.AuthToken == "" && account.SharedKey == "" && faults["auth_token"] == "" && faults["shared_key"] == "" {
		faults["auth_token"] = "enter this or a shared key: without one anybody could report a STOP"
	}
	if len(faults) > 0 {
		return s.sendersPage(w, r, v, http.StatusUnprocessableEntity, form, faults, "Some of it cannot be right")
	}
	if wrong := s.testText(r, v, account, phone); wrong != "" {
		return s.sendersPage(w, r, v, http.StatusUnprocessableEntity, form, nil, wrong)
	}
	if err := s.Shops.ConnectTwilio(r.Context(), v.Shop.ID, account, rand.Text()); err != nil {
		return err
	}
	if err := s.Domain.Resume(r.Context(), v.Shop.ID, waitlist.SMS); err != nil {
		return err
	}
	return then(w, r, "/settings/senders", "texts-on")
}

// testText says what was wrong with a test, or "".
func (s *server) testText(r *http.Request, v visit, account shop.Twilio, phone string) string {
	err := s.Texter.TestText(r.Context(), account, v.Shop.Name, phone)
	if err == nil {
		return ""
	}
	var failed *waitlist.SendError
	if !errors.As(err, &failed) {
		failed = &waitlist.SendError{Outcome: waitlist.Unknown}
	}
	s.Log.InfoContext(r.Context(), "test text not accepted", "request_id", requestID(r.Context()), "shop", v.Shop.ID, "code", failed.Code, "why", failed.Why)
	switch failed.Outcome {
	case waitlist.Unknown, waitlist.Retry:
		return "Twilio did not answer as it should. Try again in a minute"
	}
	return "Twilio did not take the test: " + failed.Why
}

// testTwilio tests the connected account, and lets texts go again that were paused for its sake.
func (s *server) testTwilio(w http.ResponseWriter, r *http.Request, v visit) error {
	form, phone, faults, err := s.readSenders(r, v, testPhone)
	if err != nil {
		return err
	}
	account, err := s.Shops.Twilio(r.Context(), v.Shop.ID)
	if err != nil {
		return err
	}
	if len(faults) > 0 {
		return s.sendersPage(w, r, v, http.StatusUnprocessableEntity, form, faults, "No test was sent")
	}
	if wrong := s.testText(r, v, account, phone); wrong != "" {
		return s.sendersPage(w, r, v, http.StatusUnprocessableEntity, form, nil, wrong)
	}
	if err := s.Domain.Resume(r.Context(), v.Shop.ID, waitlist.SMS); err != nil {
		return err
	}
	return then(w, r, "/settings/senders", "tested")
}

func (s *server) setTextRate(w http.ResponseWriter, r *http.Request, v visit) error {
	form, err := readForm(r)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(strings.TrimSpace(last(form, "per_second")))
	if err != nil {
		n = 0 // which is refused with what to do
	}
	err = s.Domain.SetTextsPerSecond(r.Context(), v.Shop.ID, n)
	if invalid := (*waitlist.Invalid)(nil); errors.As(err, &invalid) {
		return s.sendersPage(w, r, v, http.StatusUnprocessableEntity, form, map[string]string{invalid.Field: invalid.Message}, "The number cannot be right")
	}
	if err != nil {
		return err
	}
	return then(w, r, "/settings/senders", "rate-saved")
}

func (s *server) resumeTexts(w http.ResponseWriter, r *http.Request, v visit) error {
	if err := s.Domain.Resume(r.Context(), v.Shop.ID, waitlist.SMS); err != nil {
		return err
	}
	return then(w, r, "/settings/senders", "resumed")
}

func (s *server) disconnectTwilio(w http.ResponseWriter, r *http.Request, v visit) error {
	if err := s.Shops.DisconnectTwilio(r.Context(), v.Shop.ID); err != nil {
		return err
	}
	return then(w, r, "/settings/senders", "disconnected")
}
