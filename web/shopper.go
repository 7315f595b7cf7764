package web

import (
	"errors"
	"mime"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"holdfast/app/waitlist"
	"holdfast/templates"
)

// The shopper's pages. A GET changes nothing: programs that scan mail open every link, and some run
// scripts and follow redirects. Only a POST acts, and it needs nothing but the token in its path: people
// press in mail clients and in-app browsers, whose Origin is anything, or missing.

func token(r *http.Request) string { return chi.URLParam(r, "token") }

func (s *server) reserve(w http.ResponseWriter, r *http.Request) error {
	o, err := s.look(r)
	if err != nil {
		return err
	}
	return s.renderOffer(w, r, o)
}

// look is Look with an invalid link as one outcome, however the domain says so.
func (s *server) look(r *http.Request) (waitlist.Offer, error) {
	o, err := s.Domain.Look(r.Context(), token(r))
	if errors.Is(err, waitlist.ErrInvalidLink) || (err == nil && o.State == "invalid") {
		return waitlist.Offer{State: "invalid"}, errInvalidLink
	}
	return o, err
}

func (s *server) renderOffer(w http.ResponseWriter, r *http.Request, o waitlist.Offer) error {
	return s.render(w, r, statusOf(o.State), templates.ReservePage(s.assets.url, o, token(r)))
}

// statusOf is the status of the page of an offer: 410 for one that is over and was not used.
func statusOf(state string) int {
	switch state {
	case "gone", "lapsed", "passed", "expired":
		return http.StatusGone
	case "invalid":
		return http.StatusNotFound
	}
	return http.StatusOK
}

// press is the only way in which a shopper gets a unit. What came of it is shown by the page itself, so
// that a reload does not press again; only a press that came to nothing is answered at once.
func (s *server) press(w http.ResponseWriter, r *http.Request) error {
	o, err := s.Domain.Claim(r.Context(), token(r))
	if err != nil {
		return err
	}
	if statusOf(o.State) != http.StatusOK {
		return s.renderOffer(w, r, o)
	}
	http.Redirect(w, r, "/r/"+token(r), http.StatusSeeOther)
	return nil
}

func (s *server) pass(w http.ResponseWriter, r *http.Request) error {
	o, err := s.Domain.Pass(r.Context(), token(r))
	if err != nil {
		return err
	}
	if o.State != "passed" && statusOf(o.State) != http.StatusOK {
		return s.renderOffer(w, r, o)
	}
	http.Redirect(w, r, "/r/"+token(r), http.StatusSeeOther)
	return nil
}

// reserveStatus is what the page's script asks. Times are RFC 3339 in UTC; what does not apply is null.
func (s *server) reserveStatus(w http.ResponseWriter, r *http.Request) error {
	o, err := s.look(r)
	if err != nil && o.State != "invalid" {
		return err
	}
	answer := struct {
		State       string     `json:"state"`
		Until       *time.Time `json:"until"`
		CheckoutURL *string    `json:"checkout_url"`
		Place       *int       `json:"place"`
		RetryMS     int64      `json:"retry_ms"` // how long to wait before asking again; 0 = there is no need
	}{State: o.State, RetryMS: o.Retry.Milliseconds()}
	if !o.Until.IsZero() {
		until := o.Until.UTC()
		answer.Until = &until
	}
	if o.CheckoutURL != "" {
		answer.CheckoutURL = &o.CheckoutURL
	}
	if o.Place > 0 {
		answer.Place = &o.Place
	}
	status := http.StatusOK
	if o.State == "invalid" {
		status = http.StatusNotFound
	}
	writeJSON(w, status, answer)
	return nil
}

func (s *server) unsubscribePage(w http.ResponseWriter, r *http.Request) error {
	o, err := s.Domain.Contact(r.Context(), token(r))
	if err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, templates.UnsubscribePage(s.assets.url, o, token(r)))
}

// unsubscribe serves the button of the page and, by the same address, the button that a mail program
// shows: RFC 8058 has it post List-Unsubscribe=One-Click, urlencoded or multipart, without cookies, and
// follow no redirect. Any other body is the page's button, which has no field.
func (s *server) unsubscribe(w http.ResponseWriter, r *http.Request) error {
	oneClick, err := isOneClick(r)
	if err != nil {
		return err
	}
	if err := s.Domain.Unsubscribe(r.Context(), token(r)); err != nil {
		return err
	}
	if oneClick {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Write([]byte("You are unsubscribed.\n"))
		return nil
	}
	http.Redirect(w, r, "/u/"+token(r), http.StatusSeeOther)
	return nil
}

// isOneClick does not insist on a well-formed body: whoever can post the token may unsubscribe.
func isOneClick(r *http.Request) (bool, error) {
	var err error
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		err = r.ParseMultipartForm(8 * kB)
	} else {
		err = r.ParseForm()
	}
	var tooBig *http.MaxBytesError
	if errors.As(err, &tooBig) {
		return false, err
	}
	return r.PostForm.Get("List-Unsubscribe") == "One-Click", nil
}

func (s *server) place(w http.ResponseWriter, r *http.Request) error {
	p, err := s.Domain.Place(r.Context(), token(r))
	if err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, templates.PlacePage(s.assets.url, p, token(r)))
}

func (s *server) leave(w http.ResponseWriter, r *http.Request) error {
	form, err := readForm(r)
	if err != nil {
		return err
	}
	if do := last(form, "do"); do != "leave" {
		return badRequest("do", `Nothing was changed. To leave the queue, send do=leave.`)
	}
	if err := s.Domain.Leave(r.Context(), token(r)); err != nil {
		return err
	}
	http.Redirect(w, r, "/q/"+token(r), http.StatusSeeOther)
	return nil
}

func (s *server) privacy(w http.ResponseWriter, r *http.Request) error {
	return s.render(w, r, http.StatusOK, templates.PrivacyPage(s.assets.url))
}
