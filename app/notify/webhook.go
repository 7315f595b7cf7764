package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
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
	if len(h.Values("X-Twilio-Signature")) != 1 {
		return fmt.Errorf("%w: not one signature but %d", ErrForged, len(h.Values("X-Twilio-Signature")))
	}
	first := make(map[string]string, len(form)) // of a name that comes twice only the first value is signed
	for name := range form {
		first[name] = form.Get(name)
	}
	switch how := h.Values("X-Twilio-Webhooks-Signature-Settings"); {
	case len(how) > 0:
		if err := verifyShared(account.SharedKey, strings.Join(how, ","), signed.String(), first, h.Get("X-Twilio-Signature")); err != nil {
			return err
		}
	case account.AuthToken == "": // anybody can sign with an empty key, and the library's validator would agree
		return fmt.Errorf("%w: it is signed with an auth token, and the shop has none", ErrForged)
	default:
		validator := client.NewRequestValidator(account.AuthToken)
		if !validator.Validate(signed.String(), first, h.Get("X-Twilio-Signature")) {
			return ErrForged
		}
	}
	if form.Get("AccountSid") != account.AccountSID {
		return fmt.Errorf("%w: it speaks of another account", ErrForged)
	}
	return nil
}

// verifyShared verifies a signature by a shared key, which Twilio announces in a header of its own, such as
// "key=WK0123,algorithm=HMAC_SHA256": the same string is signed as by the auth token, with another hash.
func verifyShared(key, how, address string, params map[string]string, signature string) error {
	if key == "" {
		return fmt.Errorf("%w: it is signed with a shared key (%s), and the shop has none: enter it, or let Twilio sign with the auth token", ErrForged, oneLine(how))
	}
	if !slices.ContainsFunc(strings.Split(how, ","), func(p string) bool { return strings.TrimSpace(p) == "algorithm=HMAC_SHA256" }) {
		return fmt.Errorf("%w: it is signed in a way that is not known here (%s)", ErrForged, oneLine(how))
	}
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(address))
	for _, name := range slices.Sorted(maps.Keys(params)) {
		mac.Write([]byte(name + params[name]))
	}
	got, err := base64.StdEncoding.DecodeString(signature)
	if err != nil || !hmac.Equal(got, mac.Sum(nil)) {
		return ErrForged
	}
	return nil
}

// InboundText is a text that somebody sent to one of the shop's numbers.
type InboundText struct {
	ID         string // Twilio's, the same however often the text is posted
	From       string // E.164
	Body       string
	OptOutType string // STOP, START, HELP, or empty; sent only with Twilio's Advanced Opt-Out
}

// ReadText verifies and reads a request to /webhooks/twilio/{key}/inbound: ErrForged or ErrMalformed.
func ReadText(account shop.Twilio, signed *url.URL, h http.Header, form url.Values) (InboundText, error) {
	if err := VerifyTwilio(account, signed, h, form); err != nil {
		return InboundText{}, err
	}
	t := InboundText{ID: orElse(form.Get("MessageSid"), form.Get("SmsSid")), From: form.Get("From"), Body: form.Get("Body"), OptOutType: form.Get("OptOutType")}
	if !strings.HasPrefix(t.From, "+") || t.ID == "" {
		return InboundText{}, fmt.Errorf("%w: an inbound text needs its id and the phone that sent it", ErrMalformed)
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
	case "accepted", "queued", "sending", "sent":
		d.Status = "accepted" // which settles a send whose answer was lost
	case "delivered", "read":
		d.Status = "delivered"
	case "failed", "undelivered": // "canceled" is our own doing
		d.Status, d.Failure = "failed", waitlist.SendError{Outcome: waitlist.GiveUp, Code: status, Why: "Twilio reports: " + status}
		if code, err := strconv.Atoi(form.Get("ErrorCode")); err == nil && code > 0 {
			d.Failure = *twilioError(code, form.Get("ErrorMessage"))
		}
	default:
		return waitlist.Delivery{}, false, nil
	}
	return d, true, nil
}
