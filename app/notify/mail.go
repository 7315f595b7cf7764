package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"

	"holdfast/app/waitlist"
)

// smtpServer is where mails are handed over.
type smtpServer struct {
	host, port     string
	implicitTLS    bool // smtps
	user, password string
	helo           string
	dial           func(ctx context.Context, network, addr string) (net.Conn, error)
	roots          *x509.CertPool // nil: the system's

	mu      sync.Mutex
	waiting []*mailConn // connections that wait for the next mail
}

// parse reads smtp://user:password@host:port. What it complains about is never shown: it may be a secret.
func (s *smtpServer) parse(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("give a URL such as smtp://user:password@smtp.example.com:587 (encode special characters of the password)")
	}
	s.host, s.port = u.Hostname(), u.Port()
	switch u.Scheme {
	case "smtp":
		s.port = orElse(s.port, "587")
	case "smtps":
		s.implicitTLS = true
		s.port = orElse(s.port, "465")
	default:
		return errors.New("the URL must begin with smtp:// or smtps://")
	}
	s.user = u.User.Username()
	s.password, _ = u.User.Password()
	if (s.user == "") != (s.password == "") {
		return errors.New("give both user and password, or neither")
	}
	return nil
}

func orElse(s, other string) string {
	if s != "" {
		return s
	}
	return other
}

// heloName is how we introduce ourselves: by the public host, never by this machine's name.
func heloName(host string) string {
	ip := net.ParseIP(host)
	switch {
	case ip == nil:
		return host
	case ip.To4() != nil:
		return "[" + host + "]"
	}
	return "[IPv6:" + host + "]"
}

// messageID is the same for every attempt of a message, so that a receiver that gets it twice can tell.
func (s *Sender) messageID(m waitlist.Outgoing) string {
	return fmt.Sprintf("notice.%d.%d%s", m.ShopID, m.MessageID, s.from[strings.LastIndex(s.from, "@"):])
}

// sendMail writes one mail and hands it to the mail server.
func (s *Sender) sendMail(ctx context.Context, m waitlist.Outgoing) (string, *waitlist.SendError) {
	raw, err := s.composeMail(m)
	if err != nil {
		return "", &waitlist.SendError{Outcome: waitlist.GiveUp, Code: "compose", Why: "the mail could not be written: " + err.Error()}
	}
	if failed := s.deliver(ctx, m.To, raw); failed != nil {
		return "", failed
	}
	return s.messageID(m), nil
}

// composeMail writes a mail as it goes over the wire: a text and an HTML part, both with the three links,
// and the headers of RFC 8058 that let a mail program unsubscribe with one click.
func (s *Sender) composeMail(m waitlist.Outgoing) ([]byte, error) {
	if to, err := mail.ParseAddress(m.To); err != nil || to.Address != m.To {
		return nil, fmt.Errorf("%q is not a mail address", m.To)
	}
	text := s.mailText(m)
	html, err := text.html()
	if err != nil {
		return nil, err
	}
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	if err := msg.FromFormat(text.Shop, s.from); err != nil {
		return nil, err
	}
	if err := msg.To(m.To); err != nil {
		return nil, err
	}
	if m.ReplyTo != "" {
		if a, err := mail.ParseAddress(m.ReplyTo); err == nil && a.Address == m.ReplyTo {
			if err := msg.ReplyTo(m.ReplyTo); err != nil {
				return nil, err
			}
		} else {
			s.log.Warn("reply-to left out: it is not a mail address", "shop", m.ShopID)
		}
	}
	msg.Subject(text.Subject)
	msg.SetMessageIDWithValue(s.messageID(m))
	msg.SetDateWithValue(m.AttemptedAt)
	msg.SetGenHeader("List-Unsubscribe", "<"+text.Unsubscribe+">")
	msg.SetGenHeader("List-Unsubscribe-Post", "List-Unsubscribe=One-Click")
	msg.SetGenHeader(metadata, metadataOf(m))
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no holiday notes, please
	msg.SetBodyString(gomail.TypeTextPlain, text.plain())
	msg.AddAlternativeString(gomail.TypeTextHTML, html)
	var raw bytes.Buffer
	if _, err := msg.WriteTo(&raw); err != nil {
		return nil, err
	}
	return s.sign(raw.Bytes())
}

// mailConn is a connection to the mail server on which mails can be handed over, one after the other.
type mailConn struct {
	net.Conn // below TLS: its deadline is everybody's, and nothing else extends it
	client   *smtp.Client
	mails    int // handed over so far
	idle     *time.Timer
}

const (
	// idleConns and idleFor bound the connections that wait for the next mail: servers close them after some
	// minutes, and do not like many.
	idleConns = 4
	idleFor   = 20 * time.Second
	// mailsPerConn is what any server takes on one connection.
	mailsPerConn = 50
)

// take returns a connection that has handed over a mail before, or nil.
func (s *smtpServer) take() *mailConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return nil
	}
	c := s.waiting[len(s.waiting)-1]
	s.waiting = s.waiting[:len(s.waiting)-1]
	c.idle.Stop()
	return c
}

// keep lets a connection wait for the next mail, or says goodbye.
func (s *smtpServer) keep(c *mailConn) {
	s.mu.Lock()
	if c.mails < mailsPerConn && len(s.waiting) < idleConns {
		c.idle = time.AfterFunc(idleFor, func() {
			s.mu.Lock()
			at := slices.Index(s.waiting, c)
			if at >= 0 {
				s.waiting = slices.Delete(s.waiting, at, at+1)
			}
			s.mu.Unlock()
			if at >= 0 {
				c.goodbye()
			}
		})
		s.waiting = append(s.waiting, c)
		c = nil
	}
	s.mu.Unlock()
	if c != nil {
		c.goodbye()
	}
}

// goodbye ends a connection. What comes of it changes nothing, and is not waited for long.
func (c *mailConn) goodbye() {
	if err := c.SetDeadline(time.Now().Add(time.Second)); err == nil {
		_ = c.client.Quit()
	}
	c.Close()
}

func unreached(doing string, err error) *waitlist.SendError {
	return &waitlist.SendError{Outcome: waitlist.Retry, Code: smtpCode(err), Why: "mail server: " + doing + ": " + oneLine(err.Error())}
}

// connect opens a connection to the mail server, with TLS and a login.
func (s *Sender) connect(ctx context.Context) (_ *mailConn, failed *waitlist.SendError) {
	defer func() {
		if failed != nil {
			failed.All = true
		}
	}()
	conn, err := s.smtp.dial(ctx, "tcp", net.JoinHostPort(s.smtp.host, s.smtp.port))
	if err != nil {
		return nil, unreached("connecting", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer func() {
		if !stop() || failed != nil {
			conn.Close()
		}
	}()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, unreached("connecting", err)
		}
	}
	secure := &tls.Config{ServerName: s.smtp.host, MinVersion: tls.VersionTLS12, RootCAs: s.smtp.roots}
	var wire net.Conn = conn
	if s.smtp.implicitTLS {
		t := tls.Client(conn, secure)
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, unreached("TLS", err)
		}
		wire = t
	}
	client, err := smtp.NewClient(wire, s.smtp.host)
	if err != nil {
		return nil, unreached("greeting", err)
	}
	client.SkipSMTPUTF8(true)
	if err := client.Hello(s.smtp.helo); err != nil {
		return nil, unreached("EHLO", err)
	}
	if !s.smtp.implicitTLS {
		if offered, _ := client.Extension("STARTTLS"); offered {
			if err := client.StartTLS(secure); err != nil {
				return nil, unreached("STARTTLS", err)
			}
		} else if !isLoopback(s.smtp.host) {
			return nil, unreached("STARTTLS", errors.New("not offered, and mails are not sent in the clear"))
		}
	}
	if s.smtp.user != "" {
		if err := s.authenticate(client); err != nil {
			s.log.ErrorContext(ctx, "the mail server refuses our login: check the mail server's user and password", "err", oneLine(err.Error()))
			failed := unreached("login", err)
			failed.After = time.Minute // a login that is tried too often is locked
			return nil, failed
		}
	}
	return &mailConn{Conn: conn, client: client}, nil
}

// deliver hands a mail to the mail server, on a connection that waits for one if there is one.
func (s *Sender) deliver(ctx context.Context, to string, raw []byte) *waitlist.SendError {
	for c := s.smtp.take(); c != nil; c = s.smtp.take() {
		failed, gone := s.handOver(ctx, c, to, raw)
		if !gone {
			return failed
		}
		// The server had closed it while it waited: nothing was said on it.
	}
	c, failed := s.connect(ctx)
	if failed != nil {
		return failed
	}
	failed, _ = s.handOver(ctx, c, to, raw)
	return failed
}

// handOver speaks SMTP step by step, because what a failure means depends on the step: before the mail's
// last line nothing was accepted, after it everything may have been. gone is true when the server did not
// even answer to the first step. (The library's own Client.Send reports a failure of the RSET that follows a
// mail as a failure of the mail.)
func (s *Sender) handOver(ctx context.Context, c *mailConn, to string, raw []byte) (failed *waitlist.SendError, gone bool) {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer func() {
		switch {
		case !stop() || failed != nil && failed.Code == "no answer":
			c.Close()
		case failed != nil:
			c.goodbye()
		default:
			c.mails++
			s.smtp.keep(c)
		}
	}()
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return mailRefused("MAIL", err), c.mails > 0
		}
	}
	if err := c.client.Mail("<" + s.from + ">"); err != nil {
		failed = mailRefused("MAIL", err)
		// Servers that close a connection for its idleness say 421, or nothing.
		return failed, c.mails > 0 && ctx.Err() == nil && (failed.Code == "no answer" || strings.HasPrefix(failed.Code, "421"))
	}
	if err := c.client.Rcpt("<" + to + ">"); err != nil {
		return mailRefused("RCPT", err), false
	}
	data, err := c.client.Data()
	if err != nil {
		return mailRefused("DATA", err), false
	}
	if _, err := data.Write(raw); err != nil {
		return &waitlist.SendError{Outcome: waitlist.Retry, Code: "no answer", Why: "mail server: sending: " + oneLine(err.Error())}, false // without its last line a mail is not accepted
	}
	if err := data.Close(); err != nil {
		return mailRefused("end of DATA", err), false
	}
	return nil, false
}

func (s *Sender) authenticate(client *smtp.Client) error {
	_, offered := client.Extension("AUTH")
	clear := isLoopback(s.smtp.host)
	for mechanism := range strings.FieldsSeq(offered) {
		switch strings.ToUpper(mechanism) {
		case "PLAIN":
			return client.Auth(smtp.PlainAuth("", s.smtp.user, s.smtp.password, s.smtp.host, clear))
		case "LOGIN":
			return client.Auth(smtp.LoginAuth(s.smtp.user, s.smtp.password, s.smtp.host, clear))
		}
	}
	return errors.New("neither PLAIN nor LOGIN is offered")
}

const (
	// senderPause is how long a shop's mails wait when the mail server refuses their sender.
	senderPause = 10 * time.Minute
	// softBouncePause is how long a mail waits that was taken and bounced for the time being.
	softBouncePause = 5 * time.Minute
)

// mailRefused says what a failure from MAIL on means.
func mailRefused(step string, err error) *waitlist.SendError {
	var reply *textproto.Error
	if !errors.As(err, &reply) || reply.Code < 400 {
		if step == "end of DATA" {
			return &waitlist.SendError{Outcome: waitlist.Unknown, Code: "no answer", Why: "mail server: no answer after the mail was sent: " + oneLine(err.Error())}
		}
		return &waitlist.SendError{Outcome: waitlist.Retry, Code: "no answer", Why: "mail server: " + step + ": " + oneLine(err.Error())}
	}
	failed := &waitlist.SendError{Outcome: waitlist.GiveUp, Code: smtpCode(err), Why: "mail server: " + oneLine(err.Error())}
	status := enhancedStatus.FindString(reply.Msg)
	switch {
	case reply.Code < 500:
		failed.Outcome, failed.After = waitlist.Retry, time.Minute // greylisting, a full mailbox: not in the next second
	case step == "MAIL": // nothing was said of the recipient yet: it is the sender that is refused
		failed.Outcome, failed.Sender, failed.After = waitlist.ShopFault, waitlist.SenderPaused, senderPause
	case strings.HasPrefix(status, "5.7."), status == "5.1.7", status == "5.1.8": // policy, and bad sender's address (RFC 3463)
		failed.Sender = waitlist.SenderTold
	case strings.HasPrefix(status, "5.1."):
		failed.Outcome = waitlist.DeadAddr
	}
	return failed
}

// enhancedStatus is the status code of RFC 3463 that a reply may begin with.
var enhancedStatus = regexp.MustCompile(`^[245]\.\d{1,3}\.\d{1,3}\b`)

// smtpCode is the reply's code, "550 5.1.1", for the log and the merchant.
func smtpCode(err error) string {
	var reply *textproto.Error
	if !errors.As(err, &reply) {
		return "unreachable"
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", reply.Code, enhancedStatus.FindString(reply.Msg)))
}
