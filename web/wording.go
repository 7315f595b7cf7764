package web

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"holdfast/app/waitlist"
	"holdfast/app/words"
	"holdfast/templates"
)

// The merchant's own sentences in messages: one language at a time.

func (s *server) wording(w http.ResponseWriter, r *http.Request, v visit) error {
	l := words.In(r.URL.Query().Get("language"), v.Shop.Locale)
	own, err := s.Domain.Wording(r.Context(), v.Shop.ID, l)
	if err != nil {
		return err
	}
	return s.wordingPage(w, r, v, http.StatusOK, l, own, nil, "")
}

// sample is a message to nobody, with a shop's own sentences in it.
func sample(v visit, l *words.Language, own map[string]string, reserved bool) waitlist.Outgoing {
	return waitlist.Outgoing{ShopID: v.Shop.ID, ShopName: v.Shop.Name, Locale: l.Code, Wording: own, Reserved: reserved, Name: "Ada",
		ProductTitle: "Oak Chair", VariantTitle: "Natural", Window: 30 * time.Minute, HoldMinutes: 15,
		ReserveToken: "sample", UnsubscribeToken: "sample", PlaceToken: "sample"}
}

func (s *server) wordingPage(w http.ResponseWriter, r *http.Request, v visit, status int, l *words.Language, own map[string]string, faults map[string]string, wrong string) error {
	page := templates.Wording{Language: l.Code, Name: l.Name, Wrong: wrong}
	for _, other := range words.All() {
		page.Languages = append(page.Languages, templates.Choice{Code: other.Code, Name: other.Name})
	}
	for _, o := range words.Owned() {
		f := templates.Field{Name: o.Key, Label: o.Label, Kind: "text", Value: own[o.Key], Fault: sentence(faults[o.Key]), Help: "Ours: " + l.Say(o.Key)}
		if f.Value == "" {
			f.Value = l.Say(o.Key)
		}
		page.Fields = append(page.Fields, f)
	}
	if len(faults) == 0 {
		for _, reserved := range []bool{true, false} {
			p := s.Texter.Preview(sample(v, l, own, reserved))
			page.Previews = append(page.Previews, templates.Preview{Reserved: reserved, Subject: p.Subject, Mail: p.Mail, Text: p.Text, Segments: p.Segments, GSM: p.GSM})
		}
	}
	return s.render(w, r, status, templates.WordingPage(v.Admin, page))
}

// readWording reads the form: the language and what was written.
func readWording(r *http.Request) (form url.Values, l *words.Language, own map[string]string, err error) {
	if form, err = readForm(r); err != nil {
		return nil, nil, nil, err
	}
	own = map[string]string{}
	for _, o := range words.Owned() {
		own[o.Key] = strings.TrimSpace(last(form, o.Key))
	}
	for name := range form {
		if err := checkText(map[string]string{"what was written": name + last(form, name)}); err != nil {
			return nil, nil, nil, err
		}
	}
	return form, words.In(last(form, "language")), own, nil
}

// saveWording saves what was written, shows it (do=preview), or sends it to the merchant (do=test), who need
// not have saved it.
func (s *server) saveWording(w http.ResponseWriter, r *http.Request, v visit) error {
	form, l, own, err := readWording(r)
	if err != nil {
		return err
	}
	faults := map[string]string{}
	for _, o := range words.Owned() {
		if why := o.Fault(own[o.Key]); why != "" {
			faults[o.Key] = why
		}
	}
	if len(faults) > 0 {
		return s.wordingPage(w, r, v, http.StatusUnprocessableEntity, l, own, faults, "Nothing was saved: some of it cannot be sent")
	}
	switch last(form, "do") {
	case "preview":
		return s.wordingPage(w, r, v, http.StatusOK, l, own, nil, "")
	case "test":
		wrong, err := s.testMessage(r, v, l, own, last(form, "to"))
		if err != nil {
			return err
		}
		if wrong != "" {
			return s.wordingPage(w, r, v, http.StatusUnprocessableEntity, l, own, nil, wrong)
		}
		return wordingDone(w, r, l, "test-sent")
	}
	if err := s.Domain.SetWording(r.Context(), v.Shop.ID, l, own); err != nil {
		return err
	}
	return wordingDone(w, r, l, "words-saved")
}

// wordingDone is then, on the page of the same language.
func wordingDone(w http.ResponseWriter, r *http.Request, l *words.Language, word string) error {
	http.Redirect(w, r, "/settings/messages?language="+url.QueryEscape(l.Code)+"&done="+url.QueryEscape(word), http.StatusSeeOther)
	return nil
}

// testMessage sends one message to an address that the merchant typed; its links lead nowhere. It returns
// what is wrong with the address or with the sender.
func (s *server) testMessage(r *http.Request, v visit, l *words.Language, own map[string]string, to string) (wrong string, err error) {
	set, err := s.Shops.Settings(r.Context(), v.Shop.ID)
	if err != nil {
		return "", err
	}
	channel := waitlist.SMS
	if strings.Contains(to, "@") {
		channel = waitlist.Email
	}
	address, err := waitlist.ParseAddress(channel, to, v.Shop.Country)
	if invalid := (*waitlist.Invalid)(nil); errors.As(err, &invalid) {
		return "No test was sent. " + invalid.Message, nil
	} else if err != nil {
		return "", err
	}
	out, err := s.Domain.Suppressed(r.Context(), v.Shop.ID, address)
	if err != nil {
		return "", err
	}
	if out {
		return "No test was sent: this address has opted out of your messages", nil
	}
	m := sample(v, l, own, set.Reserves())
	m.Channel, m.To, m.Attempt, m.AttemptedAt, m.ReplyTo = channel, address.Send, 1, s.Now(), set.ReplyTo
	_, err = s.Texter.Send(r.Context(), m)
	var failed *waitlist.SendError
	if errors.As(err, &failed) {
		return "The test was not accepted: " + failed.Why, nil
	}
	return "", err
}
