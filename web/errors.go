package web

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/a-h/templ"

	"holdfast/app/db"
	"holdfast/app/shop"
	"holdfast/app/waitlist"
	"holdfast/app/words"
	"holdfast/templates"
)

// fault is what a client is told about an error, and nothing else of it is. It is an error itself, so
// that a handler can say what is wrong with a request.
type fault struct {
	status  int
	code    string // for programs
	field   string // of the request that is at fault; may be empty
	heading string // for people
	message string // for people: what is wrong and what to do
	after   time.Duration
}

func (f *fault) Error() string { return f.code + ": " + f.message }

var (
	errNoPage = &fault{status: http.StatusNotFound, code: "not_found", heading: "This page does not exist",
		message: "Check the address, or open it once more from where you found it."}
	errBadSignature = &fault{status: http.StatusUnauthorized, code: "bad_signature", heading: "This request is not signed",
		message: "It did not come through Shopify. Reload the page in the shop and try again."}
	errInvalidLink = &fault{status: http.StatusNotFound, code: "invalid_link", heading: "This link is not valid",
		message: "It may have been cut short on its way. Open it once more from the message that you were sent."}
)

func badRequest(field, message string) *fault {
	return &fault{status: http.StatusBadRequest, code: "invalid_request", field: field, heading: "That did not work", message: message}
}

// notBuilt answers for a route whose feature does not exist.
func notBuilt(feature string) handler {
	return func(http.ResponseWriter, *http.Request) error {
		return &fault{status: http.StatusNotImplemented, code: "not_implemented", heading: "Not available",
			message: "This installation does not offer it: " + feature + "."}
	}
}

// faultOf is the only place where an error becomes a status. What it does not know is our fault: the
// cause goes to the log, and the client learns the request's id.
func faultOf(err error) *fault {
	var (
		known   *fault
		invalid *waitlist.Invalid
		limited *waitlist.RateLimited
		slow    *waitlist.Throttled
		refused *waitlist.ShopRefused
		tooBig  *http.MaxBytesError
	)
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &invalid):
		return &fault{status: http.StatusBadRequest, code: invalid.Code, field: invalid.Field, heading: "That did not work", message: invalid.Message}
	case errors.Is(err, waitlist.ErrInvalidLink):
		return errInvalidLink
	case errors.Is(err, waitlist.ErrUnknownVariant):
		return &fault{status: http.StatusNotFound, code: "unknown_variant", field: "variant_id", heading: "We do not know this item",
			message: "The shop does not sell this item, or not any more."}
	case errors.Is(err, waitlist.ErrAmbiguousSKU):
		return &fault{status: http.StatusBadRequest, code: "ambiguous_sku", field: "sku", heading: "That did not work",
			message: "Several variants have this SKU: send the variant_id instead."}
	case errors.Is(err, waitlist.ErrNotFound), errors.Is(err, shop.ErrNotFound):
		return &fault{status: http.StatusNotFound, code: "not_found", heading: "Not found", message: "It does not exist, or not any more."}
	case errors.As(err, &limited):
		return &fault{status: http.StatusTooManyRequests, code: "rate_limited", heading: "Too many requests",
			message: "Please wait a little and try again.", after: limited.RetryAfter}
	case errors.As(err, &tooBig):
		return &fault{status: http.StatusRequestEntityTooLarge, code: "too_large", heading: "That is too much",
			message: "The request is larger than " + strconv.FormatInt(tooBig.Limit, 10) + " bytes."}
	case errors.As(err, &slow):
		return tryAgain(slow.After)
	case errors.As(err, &refused):
		return tryAgain(time.Minute)
	case errors.Is(err, waitlist.ErrLater), errors.Is(err, waitlist.ErrBusy):
		return tryAgain(2 * time.Second)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), db.Lost(err):
		return tryAgain(5 * time.Second)
	}
	return &fault{status: http.StatusInternalServerError, code: "internal", heading: "Something went wrong on our side",
		message: "It has been recorded. Please try again in a minute."}
}

func tryAgain(after time.Duration) *fault {
	return &fault{status: http.StatusServiceUnavailable, code: "try_again", heading: "Please try again in a moment",
		message: "Nothing is lost. Wait a few seconds, then try again.", after: after}
}

// handler is how every route of this package is written: it answers, or says why it could not. Once it
// has written anything it must return nil.
type handler func(w http.ResponseWriter, r *http.Request) error

// refuse logs what is our fault, sets what every refusal has in common, and returns what to say.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, err error) *fault {
	f := faultOf(err)
	if f.status >= 500 && f.status != http.StatusNotImplemented {
		s.Log.ErrorContext(r.Context(), "request failed", "request_id", requestID(r.Context()), "method", r.Method, "route", route(r), "err", err)
	}
	if f.after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.after.Seconds()))))
	}
	return f
}

// shopper answers errors with a plain page.
func (s *server) shopper(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			f := s.refuse(w, r, err)
			l, heading, message := f.inLanguage(r.Header.Get("Accept-Language"))
			s.mustRender(w, r, f.status, templates.Plain(s.assets.url, l, heading, message))
		}
	}
}

// inLanguage is what a shopper may meet, in the language that their browser asks for; the rest is in English.
func (f *fault) inLanguage(accept string) (l *words.Language, heading, message string) {
	l = words.Accepted(accept)
	switch f.code {
	case "invalid_link":
		return l, l.Say("link.h"), l.Say("link")
	case "try_again":
		return l, l.Say("again.h"), l.Say("again")
	case "rate_limited":
		return l, l.Say("many.h"), l.Say("many")
	case "internal":
		return l, l.Say("ours.h"), l.Say("ours")
	}
	return words.In("en"), f.heading, f.message
}

// asJSON answers errors in JSON, for programs.
func (s *server) asJSON(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			f := s.refuse(w, r, err)
			writeJSON(w, f.status, f.body())
		}
	}
}

func (f *fault) body() any {
	type inner struct {
		Code    string `json:"code"`
		Field   string `json:"field"`
		Message string `json:"message"`
	}
	return struct {
		Error inner `json:"error"`
	}{inner{f.code, f.field, f.message}}
}

// mustRender is render for a page about an error: when even that fails, a line of text must do.
func (s *server) mustRender(w http.ResponseWriter, r *http.Request, status int, page templ.Component) {
	if err := s.render(w, r, status, page); err != nil {
		s.Log.ErrorContext(r.Context(), "error page failed", "request_id", requestID(r.Context()), "err", err)
		http.Error(w, "Something went wrong on our side.", http.StatusInternalServerError)
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // only our own small structs come here
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	w.Write(append(body, '\n')) // an error here is a client that has gone
}
