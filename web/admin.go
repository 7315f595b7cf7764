package web

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/a-h/templ"
	"github.com/go-chi/chi/v5"

	"holdfast/app/waitlist"
	"holdfast/templates"
)

// The merchant's pages. Each reads one thing and shows it; each action is a POST below the page that it
// belongs to, and ends on that page by a 303, which says what was done. The sentence is named by a word
// in the address, never carried in it.

// done is what a finished action is called on the page that follows it.
func done(word string) string {
	return map[string]string{
		"saved":    "Settings saved.",
		"put-away": "Put away.",
		"removed":  "Removed from the queue.",
		"approved": "Approved: the first in line are being told.",
		"declined": "Declined: nobody is told about these units.",
		"released": "The unit is being released and goes to the next in line.",
		"added":    "Opt-out added.",
		"lifted":   "Opt-out taken back.",

		"texts-on":     "Texts are on: shoppers can choose them now. A test is on its way to your phone.",
		"tested":       "The test is on its way to your phone, and texts go out.",
		"rate-saved":   "Saved.",
		"words-saved":  "Saved: the next messages say it.",
		"test-sent":    "The test is on its way.",
		"resumed":      "Texts go out again.",
		"disconnected": "Texts are off, and the Twilio credentials are deleted.",
	}[word]
}

// then ends an action on a page of ours.
func then(w http.ResponseWriter, r *http.Request, path, word string) error {
	http.Redirect(w, r, path+"?done="+url.QueryEscape(word), http.StatusSeeOther)
	return nil
}

// rowID is the row that the path names.
func rowID(r *http.Request, name string) (int64, error) {
	id, err := strconv.ParseInt(chi.URLParam(r, name), 10, 64)
	if err != nil || id < 1 {
		return 0, waitlist.ErrNotFound
	}
	return id, nil
}

// readAfter is where a page of a list begins: after the row with this id.
func readAfter(r *http.Request, v *visit) error {
	text := r.URL.Query().Get("after")
	if text == "" {
		return nil
	}
	after, err := strconv.ParseInt(text, 10, 64)
	if err != nil || after < 0 {
		return badRequest("after", "There is no such page of this list. Begin with its first page.")
	}
	v.After = after
	return nil
}

// list is a page of rows of one kind.
func list[Row any](s *server, w http.ResponseWriter, r *http.Request, v visit,
	read func(v visit) ([]Row, error), page func(templates.Admin, []Row) templ.Component) error {
	if err := readAfter(r, &v); err != nil {
		return err
	}
	rows, err := read(v)
	if err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, page(v.Admin, rows))
}

func (s *server) home(w http.ResponseWriter, r *http.Request, v visit) error {
	totals, err := s.Domain.Totals(r.Context(), v.Shop.ID)
	if err != nil {
		return err
	}
	notes, err := s.Domain.Notes(r.Context(), v.Shop.ID)
	if err != nil {
		return err
	}
	catalogue, err := s.Domain.Catalogue(r.Context(), v.Shop.ID)
	if err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, templates.HomePage(v.Admin, totals, catalogue, notes))
}

func (s *server) putAway(w http.ResponseWriter, r *http.Request, v visit) error {
	id, err := rowID(r, "id")
	if err != nil {
		return err
	}
	if err := s.Domain.ClearNote(r.Context(), v.Shop.ID, id); err != nil {
		return err
	}
	return then(w, r, "/", "put-away")
}

func (s *server) waitlists(w http.ResponseWriter, r *http.Request, v visit) error {
	return list(s, w, r, v, func(v visit) ([]waitlist.QueueRow, error) {
		return s.Domain.Queues(r.Context(), v.Shop.ID, v.After)
	}, templates.WaitlistsPage)
}

func (s *server) waitlist(w http.ResponseWriter, r *http.Request, v visit) error {
	variant, err := rowID(r, "variant")
	if err != nil {
		return err
	}
	if err := readAfter(r, &v); err != nil {
		return err
	}
	queue, entries, err := s.Domain.Queue(r.Context(), v.Shop.ID, variant, v.After)
	if err != nil {
		return err
	}
	texts, err := s.Domain.Forecast(r.Context(), v.Shop.ID, variant)
	if err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, templates.WaitlistPage(v.Admin, queue, texts, entries))
}

func (s *server) removeEntry(w http.ResponseWriter, r *http.Request, v visit) error {
	variant, err := rowID(r, "variant")
	if err != nil {
		return err
	}
	id, err := rowID(r, "id")
	if err != nil {
		return err
	}
	if err := s.Domain.RemoveEntry(r.Context(), v.Shop.ID, id); err != nil {
		return err
	}
	return then(w, r, "/waitlists/"+strconv.FormatInt(variant, 10), "removed")
}

func (s *server) restocks(w http.ResponseWriter, r *http.Request, v visit) error {
	return list(s, w, r, v, func(v visit) ([]waitlist.RestockRow, error) {
		return s.Domain.Restocks(r.Context(), v.Shop.ID, v.After)
	}, templates.RestocksPage)
}

func (s *server) restock(w http.ResponseWriter, r *http.Request, v visit) error {
	id, err := rowID(r, "id")
	if err != nil {
		return err
	}
	story, err := s.Domain.Restock(r.Context(), v.Shop.ID, id)
	if err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, templates.RestockPage(v.Admin, story))
}

func (s *server) approve(w http.ResponseWriter, r *http.Request, v visit) error {
	id, err := rowID(r, "id")
	if err != nil {
		return err
	}
	if err := s.Domain.Approve(r.Context(), v.Shop.ID, id); err != nil {
		return err
	}
	return then(w, r, "/restocks/"+strconv.FormatInt(id, 10), "approved")
}

func (s *server) decline(w http.ResponseWriter, r *http.Request, v visit) error {
	id, err := rowID(r, "id")
	if err != nil {
		return err
	}
	if err := s.Domain.Decline(r.Context(), v.Shop.ID, id); err != nil {
		return err
	}
	return then(w, r, "/restocks/"+strconv.FormatInt(id, 10), "declined")
}

func (s *server) holds(w http.ResponseWriter, r *http.Request, v visit) error {
	return list(s, w, r, v, func(v visit) ([]waitlist.HoldRow, error) {
		return s.Domain.Holds(r.Context(), v.Shop.ID, v.After)
	}, templates.HoldsPage)
}

func (s *server) releaseHold(w http.ResponseWriter, r *http.Request, v visit) error {
	id, err := rowID(r, "id")
	if err != nil {
		return err
	}
	if err := s.Domain.ReleaseHold(r.Context(), v.Shop.ID, id); err != nil {
		return err
	}
	return then(w, r, "/holds", "released")
}

func (s *server) optOuts(w http.ResponseWriter, r *http.Request, v visit) error {
	return s.optOutsPage(w, r, v, http.StatusOK, waitlist.Email, addressField())
}

func (s *server) optOutsPage(w http.ResponseWriter, r *http.Request, v visit, status int, channel waitlist.Channel, address templates.Field) error {
	if err := readAfter(r, &v); err != nil {
		return err
	}
	rows, err := s.Domain.OptOuts(r.Context(), v.Shop.ID, v.After)
	if err != nil {
		return err
	}
	return s.render(w, r, status, templates.OptOutsPage(v.Admin, rows, channel, address))
}

func addressField() templates.Field {
	return templates.Field{Name: "address", Label: "Address", Kind: "text", Help: "A phone number with its country code, such as +44 7400 123456."}
}

func (s *server) addOptOut(w http.ResponseWriter, r *http.Request, v visit) error {
	form, err := readForm(r)
	if err != nil {
		return err
	}
	channel, address := waitlist.Channel(last(form, "channel")), last(form, "address")
	if err := checkText(map[string]string{"address": address, "channel": string(channel)}); err != nil {
		return err
	}
	err = s.Domain.Suppress(r.Context(), v.Shop.ID, channel, address, waitlist.ByMerchant)
	if invalid := (*waitlist.Invalid)(nil); errors.As(err, &invalid) {
		field := addressField()
		field.Value, field.Fault = address, sentence(invalid.Message)
		return s.optOutsPage(w, r, v, http.StatusUnprocessableEntity, channel, field)
	}
	if err != nil {
		return err
	}
	return then(w, r, "/opt-outs", "added")
}

func (s *server) liftOptOut(w http.ResponseWriter, r *http.Request, v visit) error {
	id, err := rowID(r, "id")
	if err != nil {
		return err
	}
	if err := s.Domain.Lift(r.Context(), v.Shop.ID, id); err != nil {
		return err
	}
	return then(w, r, "/opt-outs", "lifted")
}

func (s *server) messages(w http.ResponseWriter, r *http.Request, v visit) error {
	return list(s, w, r, v, func(v visit) ([]waitlist.MessageRow, error) {
		return s.Domain.Messages(r.Context(), v.Shop.ID, v.After)
	}, templates.MessagesPage)
}

func (s *server) privacyRequests(w http.ResponseWriter, r *http.Request, v visit) error {
	return list(s, w, r, v, func(v visit) ([]waitlist.PrivacyRow, error) {
		return s.Domain.PrivacyRequests(r.Context(), v.Shop.ID, v.After)
	}, templates.PrivacyRequestsPage)
}

func (s *server) privacyRequest(w http.ResponseWriter, r *http.Request, v visit) error {
	id, err := rowID(r, "id")
	if err != nil {
		return err
	}
	row, export, file, err := s.Domain.PrivacyExport(r.Context(), v.Shop.ID, id)
	if err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, templates.PrivacyRequestPage(v.Admin, row, export, file))
}
