package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twilio/twilio-go/client"
	twilio "github.com/twilio/twilio-go/rest/api/v2010"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

// twilioHost is the only host that credentials are sent to.
const twilioHost = "api.twilio.com"

// maxValidity is Twilio's longest validity of a message.
const maxValidity = 10 * time.Hour

// sendText hands one text to Twilio.
func (s *Sender) sendText(ctx context.Context, m waitlist.Outgoing) (string, *waitlist.SendError) {
	account, key, failed := s.account(ctx, m.ShopID)
	if failed != nil {
		return "", failed
	}
	params := (&twilio.CreateMessageParams{}).
		SetTo(m.To).
		SetMessagingServiceSid(account.MessagingServiceSID).
		SetBody(s.textMessage(m)).
		SetSmartEncoded(true).
		// A text that hangs in a queue until its offer is over is not to be delivered any more.
		SetValidityPeriod(int(min(max(m.Window-time.Minute, time.Minute), maxValidity) / time.Second)).
		SetStatusCallback(s.public + "/webhooks/twilio/" + url.PathEscape(key) + "/status?message=" + strconv.FormatInt(m.MessageID, 10) + "&attempt=" + strconv.Itoa(m.Attempt))
	api, call := s.api(ctx, account)
	message, err := api.CreateMessage(params)
	if err != nil {
		return "", call.verdict(err)
	}
	if message.Sid == nil || *message.Sid == "" {
		return "", &waitlist.SendError{Outcome: waitlist.Unknown, Code: "no sid", Why: "Twilio's answer could not be read"}
	}
	if message.Status != nil && message.ErrorCode != nil && (*message.Status == "failed" || *message.Status == "undelivered") {
		return "", twilioError(*message.ErrorCode, "")
	}
	if message.Status != nil && *message.Status == "scheduled" {
		// Nobody asked for that: Twilio's Compliance Toolkit holds it back until the morning, when its offer
		// is over (twilio.com/docs/messaging/features/compliance-toolkit).
		if _, err := api.UpdateMessage(*message.Sid, (&twilio.UpdateMessageParams{}).SetStatus("canceled")); err != nil {
			return "", &waitlist.SendError{Outcome: waitlist.Unknown, Code: "scheduled", Why: "Twilio holds the text back, and could not be told to drop it: " + oneLine(err.Error())}
		}
		return "", twilioError(30610, "")
	}
	return *message.Sid, nil
}

// TestText sends one text with an account that may not be the shop's yet. Its error is a *waitlist.SendError,
// and says what is wrong with the account. Nobody is told what becomes of the text after Twilio has it.
func (s *Sender) TestText(ctx context.Context, account shop.Twilio, shopName, to string) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if !account.Complete() {
		return &waitlist.SendError{Outcome: waitlist.ShopFault, Code: "incomplete", Why: "a credential is missing"}
	}
	api, call := s.api(ctx, account)
	message, err := api.CreateMessage((&twilio.CreateMessageParams{}).SetTo(to).SetMessagingServiceSid(account.MessagingServiceSID).
		SetBody(seller(waitlist.Outgoing{ShopName: shopName}) + ": this is a test. Texts about items that are back in stock are sent from here. Reply STOP to opt out").
		SetSmartEncoded(true).SetValidityPeriod(3600))
	if err != nil {
		return call.verdict(err)
	}
	if message.Status != nil && message.ErrorCode != nil && (*message.Status == "failed" || *message.Status == "undelivered") {
		return twilioError(*message.ErrorCode, "")
	}
	return nil
}

// findText looks for the text that carries a notice's token, newest first. The token names one offer, so
// whichever attempt it was from, it is the same notice. Twilio's filter by date is no use: it leaves out
// what has not been sent yet.
func (s *Sender) findText(ctx context.Context, m waitlist.Outgoing) (sid string, found bool, err error) {
	account, _, failed := s.account(ctx, m.ShopID)
	if failed != nil {
		return "", false, failed
	}
	if m.ReserveToken == "" {
		return "", false, errors.New("find text: no token to look for")
	}
	api, _ := s.api(ctx, account)
	list, err := api.PageMessage((&twilio.ListMessageParams{}).SetTo(m.To).SetPageSize(50), "", "")
	if err != nil {
		return "", false, fmt.Errorf("find text: %s", oneLine(err.Error()))
	}
	for _, message := range list.Messages {
		dropped := message.Status != nil && *message.Status == "canceled" // by us: it was not sent
		if message.Sid != nil && message.Body != nil && !dropped && strings.Contains(*message.Body, m.ReserveToken) {
			return *message.Sid, true, nil
		}
	}
	return "", false, nil
}

// account returns the shop's own Twilio account and the key of its webhook URLs. There is no other account
// to fall back to: a blank credential is refused, since the library would take the environment's.
func (s *Sender) account(ctx context.Context, shopID int64) (shop.Twilio, string, *waitlist.SendError) {
	account, err := s.shops.Twilio(ctx, shopID)
	if errors.Is(err, shop.ErrNotFound) || err == nil && !account.Complete() {
		return account, "", &waitlist.SendError{Outcome: waitlist.ShopFault, Sender: waitlist.SenderOff, Code: "not connected", Why: "texts cannot be sent: the shop's Twilio account is not connected"}
	}
	var tenant shop.Shop
	if err == nil {
		tenant, err = s.shops.ByID(ctx, shopID)
	}
	if err == nil && tenant.TwilioKey == "" {
		err = errors.New("the shop has no key for Twilio's callbacks")
	}
	if err != nil {
		return account, "", &waitlist.SendError{Outcome: waitlist.Retry, All: true, Code: "credentials", Why: "the shop's Twilio account could not be read: " + oneLine(err.Error())}
	}
	return account, tenant.TwilioKey, nil
}

// api is Twilio's API for one call. The request handler is made by hand, because the library's constructor
// would let the environment choose another host.
func (s *Sender) api(ctx context.Context, account shop.Twilio) (*twilio.ApiService, *call) {
	c := &call{ctx: ctx, next: s.twilio, sim: s.sim}
	base := &client.Client{
		Credentials: client.NewCredentials(account.APIKey, account.APISecret),
		HTTPClient: &http.Client{
			Transport:     c,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	base.SetAccountSid(account.AccountSID)
	return twilio.NewApiService(&client.RequestHandler{Client: base}), c
}

// call is the transport of one call to Twilio. It brings what the library lacks: the caller's context, and
// what really happened on the wire.
type call struct {
	ctx    context.Context
	next   http.RoundTripper
	sim    *url.URL
	sent   atomic.Bool // there was a connection to write on: the request may have arrived
	status int         // of the answer; 0 when there was none
	after  string      // its Retry-After
}

// maxAnswer is more than any page of 50 messages has.
const maxAnswer = 2 << 20

func (c *call) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.URL.Scheme != "https" || q.URL.Host != twilioHost {
		return nil, fmt.Errorf("refused to send credentials to %s", q.URL.Host)
	}
	q = q.Clone(httptrace.WithClientTrace(c.ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { c.sent.Store(true) },
	}))
	if c.sim != nil {
		q.URL.Scheme, q.URL.Host, q.Host = c.sim.Scheme, c.sim.Host, c.sim.Host
		q.URL.Path = "/twilio" + q.URL.Path
	}
	answer, err := c.next.RoundTrip(q)
	if err != nil {
		return nil, err
	}
	c.status, c.after = answer.StatusCode, answer.Header.Get("Retry-After")
	// The library does not close the body of an error: read it here, and give the library a copy.
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	closeErr := answer.Body.Close()
	if err := errors.Join(err, closeErr); err != nil {
		return nil, err
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer, nil
}

// verdict says what became of a text whose call failed with err.
func (c *call) verdict(err error) *waitlist.SendError {
	var refusal *client.TwilioRestError
	said := errors.As(err, &refusal)
	unknown := func(what string) *waitlist.SendError {
		return &waitlist.SendError{Outcome: waitlist.Unknown, Code: what, Why: "Twilio may have accepted the text: " + oneLine(err.Error())}
	}
	switch {
	case said && c.status == 0: // the library refused the credentials' form
		return &waitlist.SendError{Outcome: waitlist.ShopFault, Sender: waitlist.SenderOff, Code: strconv.Itoa(refusal.Code), Why: twilioErrors[21222].Why}
	case !c.sent.Load():
		return &waitlist.SendError{Outcome: waitlist.Retry, All: true, Code: "unreachable", Why: "Twilio could not be reached: " + oneLine(err.Error())}
	case c.status == 0:
		return unknown("no answer")
	case c.status == http.StatusTooManyRequests: // never processed, always safe to send again (twilio.com/docs/api/errors/20429)
		failed := twilioError(20429, "")
		failed.All = true
		if seconds, err := strconv.Atoi(c.after); err == nil && seconds >= 0 {
			failed.After = time.Duration(min(seconds, 3600)) * time.Second
		}
		return failed
	case c.status >= 500, c.status < 400, c.status == http.StatusRequestTimeout: // may have been processed (twilio.com/docs/api/errors/20500)
		return unknown("HTTP " + strconv.Itoa(c.status))
	case c.status == http.StatusUnauthorized, c.status == http.StatusForbidden:
		failed := twilioError(20003, "")
		if said {
			failed.Code = strconv.Itoa(refusal.Code)
		}
		return failed
	case !said:
		return &waitlist.SendError{Outcome: waitlist.GiveUp, Code: "HTTP " + strconv.Itoa(c.status), Why: "something between us and Twilio refused the text: HTTP " + strconv.Itoa(c.status)}
	}
	return twilioError(refusal.Code, refusal.Message)
}
