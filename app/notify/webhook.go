package notify

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/twilio/twilio-go/client"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

var (
	// ErrForged is a request that Twilio did not sign for this account.
	ErrForged = errors.New("not signed by this shop's Twilio account")
	// ErrMalformed is a request that Twilio signed and that makes no sense here.
	ErrMalformed = errors.New("not a callback that can be read")
)

// VerifyTwilio checks that the account signed a request to one of its webhook URLs, or returns ErrForged.
// signed is the whole public address that Twilio was given, which is never put together from the Host or
// the forwarding headers of a request; form is what stood in the body alone. Nothing in the scheme says
// when a request was made: whatever handles it must bear repetition.
func VerifyTwilio(account shop.Twilio, signed *url.URL, h http.Header, form url.Values) error {
	switch {
	case account.AuthToken == "": // anybody can sign with an empty key, and the library's validator would agree
		return fmt.Errorf("%w: the shop has no auth token", ErrForged)
	case h.Get("X-Twilio-Webhooks-Signature-Settings") != "":
		return fmt.Errorf("%w: signed with a shared key, and none is configured: let Twilio sign with the auth token", ErrForged)
	case len(h.Values("X-Twilio-Signature")) != 1:
		return fmt.Errorf("%w: not one signature but %d", ErrForged, len(h.Values("X-Twilio-Signature")))
	}
	first := make(map[string]string, len(form)) // of a name that comes twice only the first value is signed
	for name := range form {
		first[name] = form.Get(name)
	}
	validator := client.NewRequestValidator(account.AuthToken)
	if !validator.Validate(signed.String(), first, h.Get("X-Twilio-Signature")) {
		return ErrForged
	}
	if form.Get("AccountSid") != account.AccountSID {
		return fmt.Errorf("%w: it speaks of another account", ErrForged)
	}
	return nil
}

// InboundText is a text that somebody sent to one of the shop's numbers.
type InboundText struct {
	From       string // E.164
	Body       string
	OptOutType string // STOP, START, HELP, or empty; sent only with Twilio's Advanced Opt-Out
}

// ReadText verifies and reads a request to /webhooks/twilio/{key}/inbound: ErrForged or ErrMalformed.
func ReadText(account shop.Twilio, signed *url.URL, h http.Header, form url.Values) (InboundText, error) {
	if err := VerifyTwilio(account, signed, h, form); err != nil {
		return InboundText{}, err
	}
	t := InboundText{From: form.Get("From"), Body: form.Get("Body"), OptOutType: form.Get("OptOutType")}
	if !strings.HasPrefix(t.From, "+") {
		return InboundText{}, fmt.Errorf("%w: an inbound text needs the phone that sent it", ErrMalformed)
	}
	return t, nil
}

// ReadStatus verifies and reads a request to /webhooks/twilio/{key}/status, the report on one of our
// texts: ErrForged or ErrMalformed. Reports may be late, doubled, out of order, and come before the answer
// to the send itself; "delivered" may never come. ok is false for a report that says nothing of use.
func ReadStatus(account shop.Twilio, signed *url.URL, h http.Header, form url.Values) (d waitlist.Delivery, ok bool, err error) {
	if err := VerifyTwilio(account, signed, h, form); err != nil {
		return waitlist.Delivery{}, false, err
	}
	d.ProviderID = orElse(form.Get("MessageSid"), form.Get("SmsSid"))
	status := orElse(form.Get("MessageStatus"), form.Get("SmsStatus"))
	if d.ProviderID == "" || status == "" {
		return waitlist.Delivery{}, false, fmt.Errorf("%w: a report needs MessageSid and MessageStatus", ErrMalformed)
	}
	ours := signed.Query()
	if id, err := strconv.ParseInt(ours.Get("message"), 10, 64); err == nil && id > 0 {
		d.MessageID = id
	}
	if n, err := strconv.Atoi(ours.Get("attempt")); err == nil && n > 0 {
		d.Attempt = n
	}
	switch status {
	case "accepted", "scheduled", "queued", "sending", "sent":
		d.Status = "accepted" // which settles a send whose answer was lost
	case "delivered", "read":
		d.Status = "delivered"
	case "failed", "undelivered", "canceled":
		d.Status, d.Failure = "failed", waitlist.SendError{Outcome: waitlist.GiveUp, Code: status, Why: "Twilio reports: " + status}
		if code, err := strconv.Atoi(form.Get("ErrorCode")); err == nil && code > 0 {
			d.Failure = *twilioError(code, form.Get("ErrorMessage"))
		}
	default:
		return waitlist.Delivery{}, false, nil
	}
	return d, true, nil
}
