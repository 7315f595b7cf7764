package notify

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/app/notify/smtpsim"
	"holdfast/app/simkit"
	"holdfast/app/waitlist"
)

func TestAMailSaysWhatIsBackAndCarriesItsThreeLinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, m := w.wantAccepted(mailNotice())

	if m.To != "ann@example.com" || m.From != "Acme <restock@mail.holdfast.example>" || m.Headers["Reply-To"] != "<help@acme.example>" {
		t.Errorf("to %q, from %q, reply to %q", m.To, m.From, m.Headers["Reply-To"])
	}
	if m.Subject != "Oak Chair (Natural) is back: reserve yours" {
		t.Errorf("subject %q", m.Subject)
	}
	for _, part := range []string{m.Body, m.HTML} {
		for _, want := range []string{
			"Hello Ann,", "Oak Chair (Natural) is back at Acme", "30 minutes",
			w.app.URL + "/r/" + notice.ReserveToken, w.app.URL + "/q/" + notice.PlaceToken, w.app.URL + "/u/" + notice.UnsubscribeToken,
		} {
			if !strings.Contains(part, want) {
				t.Errorf("%q is missing in\n%s", want, part)
			}
		}
	}
	if len(m.Links) != 4 || !slices.Contains(m.Links, "https://cdn.example.com/chair.jpg") { // the three and the picture
		t.Errorf("links %q", m.Links)
	}
	if want := "notice.7.42@mail.holdfast.example"; id != want || m.Headers["Message-Id"] != "<"+want+">" {
		t.Errorf("id %q, message id %q", id, m.Headers["Message-Id"])
	}
}

func TestAMailProgramCanUnsubscribeWithOneClick(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, m := w.wantAccepted(mailNotice())
	if got, want := m.Headers["List-Unsubscribe"], "<"+w.app.URL+"/u/"+notice.UnsubscribeToken+">"; got != want {
		t.Errorf("List-Unsubscribe %q, want %q", got, want)
	}
	if got := m.Headers["List-Unsubscribe-Post"]; got != "List-Unsubscribe=One-Click" {
		t.Errorf("List-Unsubscribe-Post %q", got)
	}
}

func TestAMailSaysNothingAboutTheProgramThatWroteIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, m := w.wantAccepted(mailNotice())
	want := []string{"Auto-Submitted", "Content-Type", "Date", "From", "List-Unsubscribe", "List-Unsubscribe-Post", "Message-Id", "Mime-Version", "Reply-To", "Subject", "To", "X-Pm-Metadata-Holdfast"}
	var got []string
	for name := range m.Headers {
		got = append(got, name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("headers %q", got)
	}
	if m.Headers["Date"] != "Mon, 30 Nov 2026 12:00:00 +0000" {
		t.Errorf("date %q", m.Headers["Date"])
	}
}

func TestEveryAttemptOfAMailHasTheSameMessageID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := mailNotice(), mailNotice()
	second.Attempt, second.AttemptedAt = 2, second.AttemptedAt.Add(time.Hour)
	a, err1 := w.sender.Send(t.Context(), first)
	b, err2 := w.sender.Send(t.Context(), second)
	if err1 != nil || err2 != nil || a == "" || a != b {
		t.Fatalf("got %q, %v and %q, %v", a, err1, b, err2)
	}
}

func TestNoNameCanAddAHeaderOrARecipientToAMail(t *testing.T) {
	t.Parallel()
	evil := "x\r\nBcc: eve@example.com\r\n\r\n<script>alert(1)</script>"
	w := newWorld(t)
	m := mailNotice()
	m.ShopName, m.ProductTitle, m.VariantTitle, m.Name = evil, evil, evil, evil
	m.ReplyTo = "help@acme.example\r\nBcc: eve@example.com"
	m.ImageURL = `javascript:alert("x")`
	_, got := w.wantAccepted(m)
	for _, name := range []string{"Bcc", "Reply-To"} {
		if value, is := got.Headers[name]; is {
			t.Errorf("%s: %q", name, value)
		}
	}
	if strings.Contains(got.HTML, "<script") || strings.Contains(got.HTML, "javascript:") {
		t.Errorf("not escaped:\n%s", got.HTML)
	}
	if strings.ContainsAny(got.Subject, "\r\n") {
		t.Errorf("subject %q", got.Subject)
	}
}

func TestAMailToSomethingThatIsNoAddressIsGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, to := range []string{"", "ann", "ann@example.com\r\nRCPT TO:<eve@example.com>", "ann@example.com, eve@example.com", "Ann <ann@example.com>"} {
		m := mailNotice()
		m.To = to
		w.wantFailed(m, waitlist.GiveUp, 0)
	}
}

func TestARefusedMailIsJudgedByItsReply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		op   string
		code int
		want waitlist.Outcome
		says string
	}{
		{"rcpt", 450, waitlist.Retry, "450 4.2.1"},
		{"rcpt", 421, waitlist.Retry, "421 4.3.2"},
		{"rcpt", 452, waitlist.Retry, "452 4.2.2"},
		{"rcpt", 550, waitlist.DeadAddr, "550 5.1.1"},
		{"rcpt", 553, waitlist.DeadAddr, "553 5.1.3"},
		{"rcpt", 552, waitlist.GiveUp, "552 5.2.2"},
		{"rcpt", 554, waitlist.GiveUp, "554 5.7.1"},
		{"rcpt", 501, waitlist.GiveUp, "501 5.0.0"},
		{"data", 451, waitlist.Retry, "451 4.3.0"},
		{"data", 550, waitlist.DeadAddr, "550 5.1.1"},
		{"data", 554, waitlist.GiveUp, "554 5.7.1"},
		{"data", 552, waitlist.GiveUp, "552 5.2.2"},
	} {
		w.fault(simkit.Fault{Target: "smtp", Op: c.op, Mode: "status", Code: c.code, Count: 1})
		failed := w.wantFailed(mailNotice(), c.want, 0)
		if failed.Code != c.says {
			t.Errorf("%s %d: code %q, want %q", c.op, c.code, failed.Code, c.says)
		}
		if (failed.Outcome == waitlist.Retry) != (failed.After > 0) {
			t.Errorf("%s %d: again after %v", c.op, c.code, failed.After)
		}
		w.wantAccepted(mailNotice())
		w.outbox.Reset()
	}
}

func TestARefusedSenderIsNotTheRecipientsFault(t *testing.T) {
	t.Parallel()
	w := newWorldWith(t, smtpsim.Options{User: "user", Password: "secret"})
	w.sender.smtp.user = "" // no login: MAIL is answered 502 5.7.0
	w.wantFailed(mailNotice(), waitlist.ShopFault, 0)
}

func TestAMailThatCannotLeaveIsSafeToSendAgain(t *testing.T) {
	t.Parallel()

	closed := newWorld(t)
	closed.smtp.Close()
	closed.wantFailed(mailNotice(), waitlist.Retry, 0)

	down := newWorld(t)
	down.fault(simkit.Fault{Target: "smtp", Mode: "down"})
	down.wantFailed(mailNotice(), waitlist.Retry, 0)

	slow := newWorld(t)
	slow.sender.timeout = 200 * time.Millisecond
	slow.fault(simkit.Fault{Target: "smtp", Op: "rcpt", Mode: "delay", Until: "lifted"})
	slow.wantFailed(mailNotice(), waitlist.Retry, 0)

	over := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := over.sender.Send(ctx, mailNotice()); err == nil || err.(*waitlist.SendError).Outcome != waitlist.Retry {
		t.Errorf("after the end of its context: %v", err)
	}
}

func TestAMailWhoseLastAnswerIsLostMayHaveBeenAccepted(t *testing.T) {
	t.Parallel()

	dropped := newWorld(t)
	dropped.fault(simkit.Fault{Target: "smtp", Mode: "drop_after_commit"})
	dropped.wantFailed(mailNotice(), waitlist.Unknown, 1)

	silent := newWorld(t)
	silent.fault(simkit.Fault{Target: "smtp", Mode: "timeout_after_commit"})
	silent.wantFailedIn(silent.untilAccepted(), mailNotice(), waitlist.Unknown, 1)
}

func TestNobodyCanSayWhetherAMailWasAccepted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, found, known, err := w.sender.Find(t.Context(), mailNotice())
	if id != "" || found || known || err != nil {
		t.Fatalf("got %q, %v, %v, %v", id, found, known, err)
	}
}

func TestMailsAreEncryptedWhenTheServerOffersIt(t *testing.T) {
	t.Parallel()
	cert, roots := selfSigned(t)
	secure := &tls.Config{Certificates: []tls.Certificate{cert}}
	for name, opts := range map[string]smtpsim.Options{
		"STARTTLS":            {TLS: secure},
		"STARTTLS with login": {TLS: secure, User: "user", Password: "secret"},
		"smtps":               {TLS: secure, ImplicitTLS: true},
		"smtps with login":    {TLS: secure, ImplicitTLS: true, User: "user", Password: "secret"},
	} {
		w := newWorldWith(t, opts)
		failed := w.wantFailed(mailNotice(), waitlist.Retry, 0)
		if !strings.Contains(failed.Why, "certificate") {
			t.Errorf("%s: a server that nobody vouches for: %s", name, failed.Why)
		}
		w.sender.smtp.roots = roots
		w.wantAccepted(mailNotice())
	}
}

// dials counts the connections of a sender.
func dials(w *world) *atomic.Int32 {
	n, dial := &atomic.Int32{}, w.sender.smtp.dial
	w.sender.smtp.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		n.Add(1)
		return dial(ctx, network, addr)
	}
	return n
}

func TestMailsGoOverOneConnectionOneAfterTheOther(t *testing.T) {
	t.Parallel()
	cert, roots := selfSigned(t)
	for name, opts := range map[string]smtpsim.Options{
		"open": {}, "STARTTLS with login": {TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, User: "user", Password: "secret"},
	} {
		w := newWorldWith(t, opts)
		w.sender.smtp.roots = roots
		opened := dials(w)
		for range mailsPerConn + 1 {
			if _, err := w.sender.Send(t.Context(), mailNotice()); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if n := opened.Load(); n != 2 { // no server takes any number on one
			t.Errorf("%s: %d connections", name, n)
		}
		// After a refusal the connection is not used again.
		w.fault(simkit.Fault{Target: "smtp", Mode: "status", Code: 550, Count: 1})
		w.outbox.Reset()
		w.wantFailed(mailNotice(), waitlist.DeadAddr, 0)
		w.wantAccepted(mailNotice())
		if n := opened.Load(); n != 3 {
			t.Errorf("%s: %d connections", name, n)
		}
	}
}

func TestAMailIsNotLostToAConnectionThatTheServerHasClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.wantAccepted(mailNotice())
	w.outbox.Reset()
	opened := dials(w)
	w.fault(simkit.Fault{Target: "smtp", Mode: "down", Count: 1}) // at the first word on the connection that waits
	w.wantAccepted(mailNotice())
	if n := opened.Load(); n != 1 {
		t.Errorf("%d more connections", n)
	}
}

func TestMailsThatGoAtOnceDoNotShareAConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var senders sync.WaitGroup
	for range 30 {
		senders.Go(func() {
			if _, err := w.sender.Send(t.Context(), mailNotice()); err != nil {
				t.Error(err)
			}
		})
	}
	senders.Wait()
	if n := len(w.outbox.Messages("", "")); n != 30 {
		t.Errorf("%d mails", n)
	}
	w.sender.smtp.mu.Lock()
	defer w.sender.smtp.mu.Unlock()
	if n := len(w.sender.smtp.waiting); n > idleConns {
		t.Errorf("%d connections wait", n)
	}
}

func TestMailsAreNotSentInTheClearToAnotherMachine(t *testing.T) {
	t.Parallel()
	w := newWorldWith(t, smtpsim.Options{User: "user", Password: "secret"})
	host, dialed := w.sender.smtp.host, w.sender.smtp.dial
	w.sender.smtp.dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialed(ctx, network, net.JoinHostPort(host, w.sender.smtp.port))
	}
	w.sender.smtp.host = "smtp.example.com"
	failed := w.wantFailed(mailNotice(), waitlist.Retry, 0)
	if !strings.Contains(failed.Why, "STARTTLS") {
		t.Errorf("why: %s", failed.Why)
	}
}

func TestAWrongLoginIsTriedAgainLaterAndNotShown(t *testing.T) {
	t.Parallel()
	w := newWorldWith(t, smtpsim.Options{User: "user", Password: "secret"})
	w.sender.smtp.password = "guess"
	failed := w.wantFailed(mailNotice(), waitlist.Retry, 0)
	if failed.Code != "535 5.7.8" || failed.After < time.Minute || strings.Contains(failed.Why, "guess") {
		t.Errorf("got %+v", failed)
	}
	w.sender.smtp.password = "secret"
	w.wantAccepted(mailNotice())
}

// selfSigned is a certificate for 127.0.0.1 and the pool that trusts it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}
