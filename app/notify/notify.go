// Package notify words the messages to shoppers and hands them over: mails to an SMTP server, texts to
// the shop's own Twilio account. It also reads what Twilio reports back.
//
// It decides nothing about who is told and when; it says what became of each attempt, in the words of
// waitlist.SendError. The one question behind every error is whether the message may have been accepted:
// neither SMTP nor Twilio takes an idempotency key, so a message that may be on its way is never called
// safe to send again.
package notify

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/mail"
	"net/url"
	"strings"
	"time"

	"github.com/emersion/go-msgauth/dkim"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

// Config is what the operator has set. New checks it.
type Config struct {
	// PublicURL is the public base of every link in a message and of Twilio's callbacks: https, or http
	// on a loopback address.
	PublicURL string
	// SMTPURL is the mail server: smtp://user:password@host:587 (TLS by STARTTLS, which must be offered
	// unless the host is a loopback address) or smtps://user:password@host:465.
	SMTPURL string
	// EmailFrom is the address that mails come from. Its name is replaced by the shop's.
	EmailFrom string
	// DKIMKey, if set, signs mails for the domain of EmailFrom, under DKIMSelector: RSA of 2,048 bits or more,
	// or Ed25519. Without it the mail server has to.
	DKIMKey      crypto.Signer
	DKIMSelector string
	// Sim, if set, is the base of the simulators: requests to https://api.twilio.com/x go to Sim/twilio/x.
	// It and PublicURL must be loopback addresses then.
	Sim string
}

// Shops is what the sender asks about a shop; *shop.Store answers.
type Shops interface {
	ByID(ctx context.Context, id int64) (shop.Shop, error)
	Twilio(ctx context.Context, shopID int64) (shop.Twilio, error)
}

// sendTimeout is when a send is given up, however slowly the other side answers. What is left below
// waitlist.SendTimeout is for reading the shop's credentials and for a busy machine.
const sendTimeout = waitlist.SendTimeout - 5*time.Second

// Sender sends messages. It implements waitlist.Sender and is safe for use by many goroutines.
type Sender struct {
	dkim    *dkim.SignOptions // nil: the mail server signs
	public  string            // without a slash at the end
	from    string
	smtp    smtpServer
	sim     *url.URL
	twilio  http.RoundTripper
	timeout time.Duration
	shops   Shops
	log     *slog.Logger
}

var _ waitlist.Sender = (*Sender)(nil)

// New returns a sender, or every fault of the configuration, none of which shows a secret. It connects to
// nobody.
func New(cfg Config, shops Shops, log *slog.Logger) (*Sender, error) {
	s := &Sender{timeout: sendTimeout, shops: shops, log: log, twilio: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second,
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     30 * time.Second,
		ForceAttemptHTTP2:   true,
	}}
	s.smtp.dial = (&net.Dialer{}).DialContext
	public, err := baseURL(cfg.PublicURL)
	if err != nil {
		err = fmt.Errorf("public URL: %w", err)
	} else {
		s.public = public.String()
		s.smtp.helo = heloName(public.Hostname())
	}
	faults := []error{err}
	if cfg.Sim != "" {
		if s.sim, err = baseURL(cfg.Sim); err != nil {
			faults = append(faults, fmt.Errorf("simulators: %w", err))
		} else if !isLoopback(s.sim.Hostname()) || public != nil && !isLoopback(public.Hostname()) {
			faults = append(faults, errors.New("simulators: they and the public URL must be on this machine, such as http://127.0.0.1:8081"))
		}
	}
	if err := s.smtp.parse(cfg.SMTPURL); err != nil {
		faults = append(faults, fmt.Errorf("mail server: %w", err))
	}
	if from, err := mail.ParseAddress(cfg.EmailFrom); err != nil {
		faults = append(faults, errors.New("sender's mail address: give one address, such as restock@example.com"))
	} else if a, err := waitlist.ParseAddress(waitlist.Email, from.Address, ""); err != nil && !strings.HasSuffix(from.Address, "@localhost") {
		faults = append(faults, fmt.Errorf("sender's mail address: %w", err))
	} else if err == nil {
		s.from = a.Send
	} else {
		s.from = from.Address
	}
	if s.dkim, err = dkimOptions(cfg, s.from); err != nil {
		faults = append(faults, fmt.Errorf("DKIM: %w", err))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return s, nil
}

// baseURL is a URL with a scheme and a host alone: https, or http on this machine.
func baseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return nil, errors.New("give scheme and host alone, such as https://holdfast.example.com")
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		return nil, errors.New("use https (http is for this machine only)")
	}
	u.Path, u.RawPath = "", ""
	return u, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Send hands a message over and returns the provider's id of it: the Message-ID of a mail, the SID of a
// text. It returns within 15 seconds and obeys ctx. Its error is a *waitlist.SendError.
func (s *Sender) Send(ctx context.Context, m waitlist.Outgoing) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var id string
	var failed *waitlist.SendError
	switch m.Channel {
	case waitlist.Email:
		id, failed = s.sendMail(ctx, m)
	case waitlist.SMS:
		id, failed = s.sendText(ctx, m)
	default:
		failed = &waitlist.SendError{Outcome: waitlist.GiveUp, Code: "channel", Why: fmt.Sprintf("no way to send by %q", m.Channel)}
	}
	if failed != nil {
		s.log.WarnContext(ctx, "message not accepted", "shop", m.ShopID, "message", m.MessageID, "channel", m.Channel,
			"attempt", m.Attempt, "outcome", failed.Outcome, "code", failed.Code, "why", failed.Why)
		return "", failed
	}
	return id, nil
}

// Find looks for a text of unknown outcome among the texts to its number, by the token in its link. For a
// mail, known is false: an SMTP server cannot be asked.
func (s *Sender) Find(ctx context.Context, m waitlist.Outgoing) (providerID string, found, known bool, err error) {
	if m.Channel != waitlist.SMS {
		return "", false, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	providerID, found, err = s.findText(ctx, m)
	return providerID, found, true, err
}
