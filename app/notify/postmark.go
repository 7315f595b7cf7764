package notify

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"holdfast/app/waitlist"
)

// metadata is the header by which Postmark's reports find our message again: Postmark gives it back as the
// entry "holdfast" of a report's Metadata (postmarkapp.com/support/article/1125). To other mail servers it
// says nothing.
const metadata = "X-PM-Metadata-holdfast"

// metadataOf names a message and its attempt.
func metadataOf(m waitlist.Outgoing) string {
	return fmt.Sprintf("%d.%d.%d", m.ShopID, m.MessageID, m.Attempt)
}

// MailReport is what the mail provider reports of one of our mails.
type MailReport struct {
	ShopID int64
	waitlist.Delivery
}

// bounces are Postmark's types of bounce that mean something here (postmarkapp.com/developer/api/bounce-api,
// "Bounce types"). The others are answers of people and machines: they say nothing of the address.
var bounces = map[string]waitlist.SendError{
	"HardBounce":          {Outcome: waitlist.DeadAddr, Why: "the mailbox does not exist"},
	"BadEmailAddress":     {Outcome: waitlist.DeadAddr, Why: "the address is not a mail address"},
	"ManuallyDeactivated": {Outcome: waitlist.DeadAddr, Why: "the address was switched off at the mail provider"},
	"Unsubscribe":         {Outcome: waitlist.OptedOut, Why: "its reader asked the mail provider to stop"},
	"SoftBounce":          {Outcome: waitlist.Once, After: softBouncePause, Why: "the mailbox could not take it for the time being"},
	"Transient":           {Outcome: waitlist.Once, After: softBouncePause, Why: "it could not be delivered for the time being"},
	"DnsError":            {Outcome: waitlist.Once, After: softBouncePause, Why: "the domain could not be looked up"},
	"Blocked":             {Outcome: waitlist.GiveUp, Sender: waitlist.SenderTold, Why: "the mailbox provider blocks our sender"},
	"SpamNotification":    {Outcome: waitlist.GiveUp, Sender: waitlist.SenderTold, Why: "the mailbox provider takes it for spam"},
	"VirusNotification":   {Outcome: waitlist.GiveUp, Sender: waitlist.SenderTold, Why: "the mailbox provider takes it for a virus"},
	"DMARCPolicy":         {Outcome: waitlist.GiveUp, Sender: waitlist.SenderTold, Why: "our sender does not meet its own DMARC policy"},
	"SMTPApiError":        {Outcome: waitlist.GiveUp, Sender: waitlist.SenderTold, Why: "the mail provider could not send it"},
	"InboundError":        {Outcome: waitlist.GiveUp, Sender: waitlist.SenderTold, Why: "the mail provider could not send it"},
}

// ReadPostmark reads a report that Postmark has posted, or returns ErrMalformed. ok is false for one that says
// nothing of use, and for one of a mail that is none of ours. Its words are not taken over: a mail server
// somewhere has written them. Who posted it is proved by the address that it was posted to alone.
func ReadPostmark(body []byte) (r MailReport, ok bool, err error) {
	var in struct {
		RecordType        string
		Type              string
		Email             string // of a bounce and of a complaint
		Recipient         string // of a delivery and of a change of subscription
		SuppressSending   bool
		SuppressionReason string
		Metadata          map[string]any
	}
	if err := json.Unmarshal(body, &in); err != nil || in.RecordType == "" {
		return r, false, fmt.Errorf("%w: it is not a report of Postmark's", ErrMalformed)
	}
	ours, _ := in.Metadata["holdfast"].(string)
	parts := strings.Split(ours, ".")
	if len(parts) != 3 {
		return r, false, nil
	}
	shopID, err1 := strconv.ParseInt(parts[0], 10, 64)
	message, err2 := strconv.ParseInt(parts[1], 10, 64)
	attempt, err3 := strconv.Atoi(parts[2])
	if err1 != nil || err2 != nil || err3 != nil || shopID < 1 || message < 1 || attempt < 1 {
		return r, false, nil
	}
	r = MailReport{shopID, waitlist.Delivery{MessageID: message, Attempt: attempt, To: orElse(in.Email, in.Recipient)}}
	failed := func(kind string) bool {
		e, known := bounces[kind]
		r.Status, r.Failure = "failed", e
		r.Failure.Code = kind
		return known
	}
	switch in.RecordType {
	case "Delivery":
		r.Status, ok = "delivered", true
	case "SpamComplaint":
		r.Status, ok = "complained", true
	case "Bounce":
		if in.Type == "SpamComplaint" {
			r.Status, ok = "complained", true
		} else {
			ok = failed(in.Type)
		}
	case "SubscriptionChange":
		switch {
		case !in.SuppressSending:
		case in.SuppressionReason == "SpamComplaint":
			r.Status, ok = "complained", true
		case in.SuppressionReason == "HardBounce":
			ok = failed("HardBounce")
		default: // ManualSuppression: by a click at the provider's own link
			ok = failed("Unsubscribe")
		}
	}
	return r, ok, nil
}
