// Package smtpsim is a simulated mail server: it accepts mails over SMTP on a loopback address, checks that
// they are well-formed, and puts them into the outbox. It is used by tests and the demo, never by the
// program.
package smtpsim

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"slices"
	"strings"
	"sync"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"holdfast/app/notify/inbox"
	"holdfast/app/simkit"
)

// Options are what a mail server may differ in. The zero Options are an open server without TLS.
type Options struct {
	TLS            *tls.Config // offers STARTTLS
	ImplicitTLS    bool        // speaks TLS from the first byte instead (smtps)
	User, Password string      // if set, mails are accepted after a login alone
	ReportURL      string      // where reports are posted, as Postmark does; empty = nowhere
}

// Sim is the simulated mail server.
type Sim struct {
	faults *simkit.Faults
	outbox *inbox.Outbox
	log    *slog.Logger
	opts   Options
	addr   string
	server *smtp.Server
	socket net.Listener

	closing chan struct{}
	serving sync.WaitGroup

	mu     sync.Mutex
	closed bool
	busy   int // mails between MAIL and the answer to their last line
	count  int // mails accepted
}

// Start listens on addr, which must be a loopback address ("127.0.0.1:0" picks a port). Close stops it.
func Start(addr string, opts Options, faults *simkit.Faults, outbox *inbox.Outbox, log *slog.Logger) (*Sim, error) {
	host, _, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("simulated mail server: %q is not a loopback address", addr)
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("simulated mail server: %w", err)
	}
	s := &Sim{faults: faults, outbox: outbox, log: log, opts: opts, addr: listener.Addr().String(), socket: listener, closing: make(chan struct{})}
	s.server = smtp.NewServer(smtp.BackendFunc(s.session))
	s.server.Domain = "smtp.sim"
	s.server.AllowInsecureAuth = true // it is a loopback address
	s.server.MaxMessageBytes = 1 << 20
	s.server.MaxRecipients = 1 // a notice has one
	s.server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	if opts.ImplicitTLS {
		listener = tls.NewListener(listener, opts.TLS)
	} else {
		s.server.TLSConfig = opts.TLS
	}
	s.serving.Add(1)
	go func() {
		defer s.serving.Done()
		if err := s.server.Serve(listener); err != nil {
			log.Error("simulated mail server stopped", "err", err)
		}
	}()
	return s, nil
}

// URL is what SMTP_URL is to be set to.
func (s *Sim) URL() string {
	scheme, user := "smtp", ""
	if s.opts.ImplicitTLS {
		scheme = "smtps"
	}
	if s.opts.User != "" {
		user = s.opts.User + ":" + s.opts.Password + "@"
	}
	return scheme + "://" + user + s.addr
}

// Close stops the server and cuts its connections.
func (s *Sim) Close() {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return
	}
	close(s.closing)
	// The server closes the listeners that it knows of, which is none before its goroutine has begun.
	if err := errors.Join(s.server.Close(), s.socket.Close()); err != nil && !errors.Is(err, net.ErrClosed) {
		s.log.Debug("simulated mail server", "err", err)
	}
	s.serving.Wait()
}

// InFlight is the number of mails being handed over. One that is kept until its fault is lifted is not
// counted.
func (s *Sim) InFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy
}

func (s *Sim) add(n int) {
	s.mu.Lock()
	s.busy += n
	s.mu.Unlock()
}

// CheckFault says whether a fault of target "smtp" is one that this simulator knows. Op is "rcpt", "data"
// or empty, which is the same as "rcpt".
func CheckFault(f simkit.Fault) error {
	if !slices.Contains([]string{"", "rcpt", "data"}, f.Op) {
		return fmt.Errorf(`smtp has no operation %q: use "rcpt" or "data"`, f.Op)
	}
	switch f.Mode {
	case "drop_after_commit", "timeout_after_commit", "delay", "down":
		return nil
	case "status":
		if f.Code < 400 || f.Code > 599 {
			return fmt.Errorf("status %d: give an SMTP reply code from 400 to 599", f.Code)
		}
		return nil
	}
	return fmt.Errorf("mode %q is not simulated for smtp", f.Mode)
}

// reply is an error reply with the enhanced code that usually comes with it: 550 is a mailbox that does not
// exist, 554 a policy, 552 a full mailbox.
func reply(code int) *smtp.SMTPError {
	status := map[int][2]int{
		421: {3, 2}, 450: {2, 1}, 451: {3, 0}, 452: {2, 2},
		541: {7, 1}, 550: {1, 1}, 551: {1, 6}, 552: {2, 2}, 553: {1, 3}, 554: {7, 1},
	}[code]
	return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, status[0], status[1]}, Message: "a fault that was asked for"}
}

// session is one connection.
type session struct {
	sim      *Sim
	conn     *smtp.Conn
	loggedIn bool
	in       bool // a mail is being handed over
	from, to string
	mails    int            // begun on this connection
	pending  []simkit.Fault // fired at RCPT, due at DATA
}

func (s *Sim) session(c *smtp.Conn) (smtp.Session, error) {
	if s.down() {
		c.Conn().Close()
		return nil, errors.New("down")
	}
	return &session{sim: s, conn: c}, nil
}

// down says whether the server is to be down just now. Asking for faults counts them, so it asks only when
// there is one of that kind.
func (s *Sim) down() bool {
	if slices.ContainsFunc(s.faults.List(), func(f simkit.Fault) bool { return f.Target == "smtp" && f.Mode == "down" }) {
		for _, f := range s.faults.Take("smtp", "rcpt", "") {
			if f.Mode == "down" {
				return true
			}
		}
	}
	return false
}

func (s *session) AuthMechanisms() []string {
	if s.sim.opts.User == "" {
		return nil
	}
	return []string{sasl.Plain}
}

func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(identity, user, password string) error {
		if s.sim.opts.User == "" || user != s.sim.opts.User || password != s.sim.opts.Password {
			return smtp.ErrAuthFailed
		}
		s.loggedIn = true
		return nil
	}), nil
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	if s.sim.opts.User != "" && !s.loggedIn {
		return smtp.ErrAuthRequired
	}
	if s.from != "" || s.mails > 0 { // a later mail on this connection: the server may have gone down meanwhile
		if s.sim.down() {
			s.conn.Conn().Close()
			return errors.New("down")
		}
	}
	s.mails++
	s.begin()
	s.from = from
	return nil
}

func (s *session) begin() {
	if !s.in {
		s.in = true
		s.sim.add(1)
	}
}

func (s *session) Reset() {
	if s.in {
		s.in = false
		s.sim.add(-1)
	}
	s.from, s.to, s.pending = "", "", nil
}

func (s *session) Logout() error {
	s.Reset()
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	for _, f := range s.sim.faults.Take("smtp", "rcpt", "") {
		if err := CheckFault(f); err != nil {
			return loud(err)
		}
		switch f.Mode {
		case "status":
			return reply(f.Code)
		case "delay":
			if f.When == "after" {
				s.pending = append(s.pending, f)
			} else if !s.hold(f) {
				return smtp.ErrServerClosed
			}
		default:
			s.pending = append(s.pending, f)
		}
	}
	s.to = to
	return nil
}

// Data accepts the mail. A mail that is not well-formed is refused loudly.
func (s *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	faults := s.pending
	if slices.ContainsFunc(s.sim.faults.List(), func(f simkit.Fault) bool { return f.Target == "smtp" && f.Op == "data" }) {
		for _, f := range s.sim.faults.Take("smtp", "data", "") {
			if f.Op == "data" {
				faults = append(faults, f)
			}
		}
	}
	for _, f := range faults {
		if err := CheckFault(f); err != nil {
			return loud(err)
		}
		if f.Mode == "status" && f.When != "after" {
			return reply(f.Code)
		}
		if f.Mode == "delay" && f.When != "after" && !s.hold(f) {
			return smtp.ErrServerClosed
		}
	}
	m, err := read(raw)
	if err != nil {
		return loud(err)
	}
	if !strings.EqualFold(m.To, s.to) {
		return loud(fmt.Errorf("the To header says %q, RCPT said %q", m.To, s.to))
	}
	s.sim.mu.Lock()
	s.sim.count++
	m.ID = fmt.Sprintf("mail-%d", s.sim.count)
	s.sim.mu.Unlock()
	m.Status = "accepted"
	s.sim.outbox.Add(m)
	for _, f := range faults {
		switch f.Mode {
		case "delay":
			if f.When == "after" && !s.hold(f) {
				return smtp.ErrServerClosed
			}
		case "drop_after_commit":
			s.conn.Conn().Close()
		case "timeout_after_commit": // no answer: until the client goes away, which this read notices, or Close cuts it
			_, _ = io.Copy(io.Discard, s.conn.Conn())
		case "status":
			return reply(f.Code)
		}
	}
	return nil
}

func (s *session) hold(f simkit.Fault) bool {
	if f.Until == "lifted" && s.in {
		s.sim.add(-1)
		defer s.sim.add(1)
	}
	return s.sim.faults.Wait(f, s.sim.closing)
}

func loud(err error) error {
	return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "SIMULATOR: " + strings.Join(strings.Fields(err.Error()), " ")}
}

// ---- reading a mail

var words = mime.WordDecoder{}

// read takes a mail apart, and is strict: a header twice, a bare line feed or a part that cannot be decoded
// is an error.
func read(raw []byte) (inbox.Message, error) {
	if bytes.Contains(bytes.ReplaceAll(raw, []byte("\r\n"), nil), []byte("\n")) || bytes.Contains(bytes.ReplaceAll(raw, []byte("\r\n"), nil), []byte("\r")) {
		return inbox.Message{}, errors.New("a line ends without CR and LF")
	}
	msg, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return inbox.Message{}, err
	}
	m := inbox.Message{Channel: "email", Headers: map[string]string{}}
	for name, values := range msg.Header {
		if len(values) > 1 {
			return m, fmt.Errorf("header %s is there %d times", name, len(values))
		}
		if m.Headers[name], err = words.DecodeHeader(values[0]); err != nil {
			return m, fmt.Errorf("header %s: %w", name, err)
		}
	}
	for _, name := range []string{"From", "To", "Subject", "Date", "Message-Id", "Mime-Version"} {
		if m.Headers[name] == "" {
			return m, fmt.Errorf("header %s is missing", name)
		}
	}
	if _, err := msg.Header.Date(); err != nil {
		return m, fmt.Errorf("header Date: %w", err)
	}
	to, err := mail.ParseAddress(msg.Header.Get("To"))
	if err != nil {
		return m, fmt.Errorf("header To: %w", err)
	}
	from, err := mail.ParseAddress(msg.Header.Get("From"))
	if err != nil {
		return m, fmt.Errorf("header From: %w", err)
	}
	m.To, m.From, m.Subject = to.Address, from.Address, m.Headers["Subject"]
	if from.Name != "" {
		m.From = from.Name + " <" + from.Address + ">"
	}
	if err := readPart(&m, map[string][]string(msg.Header), msg.Body); err != nil {
		return m, err
	}
	if m.Body == "" {
		return m, errors.New("there is no text/plain part")
	}
	return m, nil
}

func readPart(m *inbox.Message, header map[string][]string, body io.Reader) error {
	get := func(name string) string {
		if v := header[name]; len(v) > 0 {
			return v[0]
		}
		return ""
	}
	kind, params, err := mime.ParseMediaType(get("Content-Type"))
	if err != nil {
		return fmt.Errorf("content type %q: %w", get("Content-Type"), err)
	}
	if strings.HasPrefix(kind, "multipart/") {
		parts := multipart.NewReader(body, params["boundary"])
		for {
			part, err := parts.NextRawPart()
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
			if err := readPart(m, part.Header, part); err != nil {
				return err
			}
		}
	}
	switch encoding := strings.ToLower(get("Content-Transfer-Encoding")); encoding {
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	case "", "7bit", "8bit":
	default:
		return fmt.Errorf("transfer encoding %q is not simulated", encoding)
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	content := strings.ReplaceAll(string(raw), "\r\n", "\n")
	switch kind {
	case "text/plain":
		m.Body = content
	case "text/html":
		m.HTML = content
	default:
		return fmt.Errorf("a part of type %s is not simulated", kind)
	}
	return nil
}
