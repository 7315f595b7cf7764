package notify

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/twilio/twilio-go/client"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

var (
	// ErrForged is a request that Twilio did not sign for this account: answer 403.
	ErrForged = errors.New("not signed by this shop's Twilio account")
	// ErrMalformed is a request that Twilio signed and that makes no sense here: answer 400.
	ErrMalformed = errors.New("not a callback that can be read")
)

// maxCallback is more than any callback of Twilio has.
const maxCallback = 64 << 10

// TwilioCallback is a request of Twilio whose signature was verified.
type TwilioCallback struct{ form, query url.Values }

// VerifyTwilio reads a request to /webhooks/twilio/… and checks that the shop's Twilio account signed it:
// ErrForged or ErrMalformed if not. publicURL is the base that Twilio was told; the Host and the forwarding
// headers of the request are not looked at. Nothing in the scheme says when a request was made: whatever
// handles it must bear repetition.
func VerifyTwilio(r *http.Request, publicURL string, account shop.Twilio) (TwilioCallback, error) {
	if r.Method != http.MethodPost || !strings.HasPrefix(r.RequestURI, "/") {
		return TwilioCallback{}, fmt.Errorf("%w: %s", ErrMalformed, r.Method)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxCallback+1))
	if err != nil {
		return TwilioCallback{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if len(body) > maxCallback {
		return TwilioCallback{}, fmt.Errorf("%w: too long", ErrMalformed)
	}
	switch {
	case account.AuthToken == "": // anybody can sign with an empty key, and the library's validator would agree
		return TwilioCallback{}, fmt.Errorf("%w: the shop has no auth token", ErrForged)
	case r.Header.Get("X-Twilio-Webhooks-Signature-Settings") != "":
		return TwilioCallback{}, fmt.Errorf("%w: signed with a shared key, none is configured: let Twilio sign with the auth token", ErrForged)
	case len(r.Header.Values("X-Twilio-Signature")) != 1:
		return TwilioCallback{}, fmt.Errorf("%w: no signature", ErrForged)
	}
	// The URL is signed as Twilio was given it, byte by byte: it must not be taken apart and put together.
	signed := strings.TrimRight(publicURL, "/") + r.RequestURI
	validator := client.NewRequestValidator(account.AuthToken)
	if !validator.ValidateBody(signed, body, r.Header.Get("X-Twilio-Signature")) {
		return TwilioCallback{}, ErrForged
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return TwilioCallback{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	// Of a key that comes twice only the first value is signed; Get takes the first.
	if form.Get("AccountSid") != account.AccountSID {
		return TwilioCallback{}, fmt.Errorf("%w: it speaks of another account", ErrForged)
	}
	return TwilioCallback{form, r.URL.Query()}, nil
}

// InboundText is a text that somebody sent to one of the shop's numbers.
type InboundText struct {
	SID        string // Twilio's id of it
	From       string // E.164
	Body       string
	OptOutType string // STOP, START, HELP, or empty; sent only with Twilio's Advanced Opt-Out
}

// Inbound reads the callback as an inbound text.
func (c TwilioCallback) Inbound() (InboundText, error) {
	t := InboundText{SID: orElse(c.form.Get("MessageSid"), c.form.Get("SmsSid")), From: c.form.Get("From"), Body: c.form.Get("Body"), OptOutType: c.form.Get("OptOutType")}
	if t.SID == "" || !strings.HasPrefix(t.From, "+") {
		return InboundText{}, fmt.Errorf("%w: an inbound text needs MessageSid and From", ErrMalformed)
	}
	return t, nil
}

// Delivery reads the callback as a report on one of our texts. final is false for what is only on its way
// (queued, sent): such a report is to be ignored. Reports may be late, doubled, out of order, and come
// before the answer to the send itself; "delivered" may never come.
func (c TwilioCallback) Delivery() (d waitlist.Delivery, final bool, err error) {
	d.ProviderID = orElse(c.form.Get("MessageSid"), c.form.Get("SmsSid"))
	status := orElse(c.form.Get("MessageStatus"), c.form.Get("SmsStatus"))
	if d.ProviderID == "" || status == "" {
		return waitlist.Delivery{}, false, fmt.Errorf("%w: a report needs MessageSid and MessageStatus", ErrMalformed)
	}
	if id, err := strconv.ParseInt(c.query.Get("message"), 10, 64); err == nil && id > 0 {
		d.MessageID = id
	}
	switch status {
	case "delivered", "read":
		d.Status = "delivered"
	case "failed", "undelivered", "canceled":
		d.Status, d.Outcome, d.Why = "failed", waitlist.GiveUp, "Twilio reports: "+status
		if code, err := strconv.Atoi(c.form.Get("ErrorCode")); err == nil && code > 0 {
			e := twilioError(code, c.form.Get("ErrorMessage"))
			d.Outcome, d.Code, d.Why = e.Outcome, e.Code, e.Why
		}
	default:
		return d, false, nil
	}
	return d, true, nil
}
