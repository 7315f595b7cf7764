package web

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"

	"holdfast/app/notify"
	"holdfast/app/shop"
	"holdfast/app/shopify"
	"holdfast/app/waitlist"
)

// WebhookOutcome is what was done with a webhook from Shopify.
type WebhookOutcome string

const (
	WebhookNew      WebhookOutcome = "new"           // stored, and its work queued
	WebhookRepeated WebhookOutcome = "repeated"      // had come before
	WebhookUnknown  WebhookOutcome = "unknown_topic" // nothing follows from its topic; topic is "other"
	WebhookNoShop   WebhookOutcome = "unknown_shop"  // of a shop that is not here
	WebhookUnsigned WebhookOutcome = "bad_signature" // refused; topic is ""
	WebhookTooLarge WebhookOutcome = "too_large"     // refused; topic is ""
	WebhookFailed   WebhookOutcome = "failed"        // could not be read or stored: Shopify sends it again
)

// shopifyWebhook stores a delivery and answers at once; its work is a job. Any answer but 2xx makes
// Shopify send it again for four hours.
//
// A shop that is not here is answered 200: its webhooks trail in after it was erased, there is nothing
// to do for them, and a refusal would only have Shopify repeat them and then drop the subscription.
func (s *server) shopifyWebhook(w http.ResponseWriter, r *http.Request) error {
	topic, outcome := "", WebhookFailed
	defer func() { s.Webhook(topic, outcome) }()
	domain, hook, err := s.Shopify.VerifyWebhook(r)
	if errors.Is(err, shopify.ErrUnverified) {
		outcome = WebhookUnsigned
		s.Log.WarnContext(r.Context(), "webhook refused", "request_id", requestID(r.Context()), "err", err)
		return errBadSignature
	}
	if errors.Is(err, shopify.ErrTooLarge) {
		outcome = WebhookTooLarge
		return &fault{status: http.StatusRequestEntityTooLarge, code: "too_large", message: err.Error()}
	}
	if err != nil {
		return badRequest("", "The body could not be read to its end.")
	}
	known := waitlist.KnownTopic(hook.Topic)
	if topic = hook.Topic; !known {
		topic = "other"
	}
	sh, err := s.Shops.ByDomain(r.Context(), domain)
	switch {
	case errors.Is(err, shop.ErrNotFound):
		outcome = WebhookNoShop
		s.Log.InfoContext(r.Context(), "webhook of an unknown shop", "request_id", requestID(r.Context()), "shop", domain, "topic", hook.Topic)
	case err != nil:
		return err
	default:
		fresh, err := s.Domain.Receive(r.Context(), sh.ID, hook)
		if err != nil {
			return fmt.Errorf("webhook %s of %s: %w", hook.Topic, domain, err)
		}
		switch {
		case !fresh:
			outcome = WebhookRepeated
		case known:
			outcome = WebhookNew
		default:
			outcome = WebhookUnknown
		}
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// twilio reads a request of Twilio's: the shop that the key in its path belongs to, that shop's
// credentials, the URL that was signed, and the form.
func (s *server) twilio(r *http.Request) (sh shop.Shop, t shop.Twilio, signed *url.URL, form url.Values, err error) {
	if sh, err = s.Shops.ByTwilioKey(r.Context(), chi.URLParam(r, "key")); err != nil {
		return
	}
	if t, err = s.Shops.Twilio(r.Context(), sh.ID); err != nil {
		return
	}
	// Twilio signs the address that it was given, which is our public one; what arrives here has been
	// through a proxy. The rest of the address counts byte by byte.
	signed = s.URL.ResolveReference(&url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery})
	form, err = readForm(r)
	return
}

// inboundText takes a text that a shopper sent. The empty answer sends nothing back: Twilio itself, or
// the domain, confirms a STOP.
func (s *server) inboundText(w http.ResponseWriter, r *http.Request) error {
	sh, t, signed, form, err := s.twilio(r)
	if err != nil {
		return err
	}
	text, err := notify.ReadText(t, signed, r.Header, form)
	if err != nil {
		return s.refuseTwilio(r, err)
	}
	if _, err := s.Domain.InboundText(r.Context(), sh.ID, text.ID, text.From, text.Body, text.OptOutType); err != nil {
		return fmt.Errorf("inbound text: %w", err)
	}
	w.Header().Set("Content-Type", "text/xml; charset=utf-8")
	w.Write([]byte("<Response/>"))
	return nil
}

// textStatus takes a report of what became of a text.
func (s *server) textStatus(w http.ResponseWriter, r *http.Request) error {
	sh, t, signed, form, err := s.twilio(r)
	if err != nil {
		return err
	}
	report, ok, err := notify.ReadStatus(t, signed, r.Header, form)
	if err != nil {
		return s.refuseTwilio(r, err)
	}
	if ok {
		if err := s.Domain.Delivered(r.Context(), sh.ID, report); err != nil {
			return fmt.Errorf("delivery report: %w", err)
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// mailReport takes a report of Postmark's. Postmark signs nothing: whoever knows the key in the address is
// it. The one key is the operator's, as the mail server is.
func (s *server) mailReport(w http.ResponseWriter, r *http.Request) error {
	key := chi.URLParam(r, "key")
	if s.EmailWebhookKey == "" || subtle.ConstantTimeCompare([]byte(key), []byte(s.EmailWebhookKey)) != 1 {
		why := "the key in its address is not that of EMAIL_WEBHOOK_KEY"
		if s.EmailWebhookKey == "" {
			why = "EMAIL_WEBHOOK_KEY is not set"
		}
		s.Log.WarnContext(r.Context(), "mail report refused", "request_id", requestID(r.Context()), "why", why)
		return &fault{status: http.StatusForbidden, code: "bad_key", message: "This is not the address for reports on mails."}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return badRequest("", "The body is too large, or could not be read to its end.")
	}
	report, ok, err := notify.ReadPostmark(body)
	if err != nil {
		return badRequest("", "The body is not a report of Postmark's.")
	}
	if ok {
		if err := s.Domain.Delivered(r.Context(), report.ShopID, report.Delivery); err != nil {
			return fmt.Errorf("mail report: %w", err)
		}
	}
	w.WriteHeader(http.StatusOK) // Postmark takes nothing else for an answer
	return nil
}

func (s *server) refuseTwilio(r *http.Request, err error) error {
	s.Log.WarnContext(r.Context(), "request in Twilio's name refused", "request_id", requestID(r.Context()), "err", err)
	if errors.Is(err, notify.ErrMalformed) {
		return &fault{status: http.StatusBadRequest, code: "invalid_request", message: "The request is signed by Twilio and makes no sense here."}
	}
	return &fault{status: http.StatusForbidden, code: "bad_signature", message: "The request is not signed by Twilio for this account."}
}
