package smtpsim

import (
	"log/slog"
	"net/smtp"
	"strings"
	"testing"

	"holdfast/app/notify/inbox"
	"holdfast/app/simkit"
)

const good = "From: Caf\xc3\xa9 <shop@example.com>\r\nTo: ann@example.com\r\nSubject: =?UTF-8?q?Caf=C3=A9?=\r\nDate: Mon, 30 Nov 2026 12:00:00 +0000\r\n" +
	"Message-ID: <1@example.com>\r\nMIME-Version: 1.0\r\nContent-Type: multipart/alternative; boundary=b\r\n\r\n" +
	"--b\r\nContent-Type: text/plain; charset=UTF-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nGo to https://example.com/r/1=\r\n23 now\r\n" +
	"--b\r\nContent-Type: text/html; charset=UTF-8\r\n\r\n<a href=\"https://example.com/u/1?a=1&amp;b=2\">x</a>\r\n--b--\r\n"

type world struct {
	faults *simkit.Faults
	outbox *inbox.Outbox
	sim    *Sim
}

func newWorld(t *testing.T, opts Options) *world {
	t.Helper()
	w := &world{faults: &simkit.Faults{}, outbox: inbox.New(&simkit.Clock{})}
	var err error
	if w.sim, err = Start("127.0.0.1:0", opts, w.faults, w.outbox, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.sim.Close)
	return w
}

// send speaks with the simulator by the standard library's client, which is not the program's.
func (w *world) send(mail string, to ...string) error {
	if len(to) == 0 {
		to = []string{"ann@example.com"}
	}
	return smtp.SendMail(w.sim.addr, nil, "shop@example.com", to, []byte(mail))
}

func TestAMailIsTakenApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	if err := w.send(good); err != nil {
		t.Fatal(err)
	}
	all := w.outbox.Messages("ANN@example.com", "email")
	if len(all) != 1 {
		t.Fatalf("%d mails", len(all))
	}
	m := all[0]
	if m.Subject != "Café" || m.Headers["Message-Id"] != "<1@example.com>" || m.Body != "Go to https://example.com/r/123 now" {
		t.Errorf("got %+v", m)
	}
	if len(m.Links) != 2 || m.Links[0] != "https://example.com/r/123" || m.Links[1] != "https://example.com/u/1?a=1&b=2" {
		t.Errorf("links %q", m.Links)
	}
	if n := w.sim.InFlight(); n != 0 {
		t.Errorf("%d in flight", n)
	}
}

func TestAMailThatIsNotWellFormedIsRefusedLoudly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	for why, change := range map[string][2]string{
		"a header twice":    {"MIME-Version", "Subject: again\r\nMIME-Version"},
		"no date":           {"Date: Mon, 30 Nov 2026 12:00:00 +0000\r\n", ""},
		"a wrong date":      {"30 Nov 2026", "tomorrow"},
		"no message id":     {"Message-ID: <1@example.com>\r\n", ""},
		"another recipient": {"To: ann@", "To: eve@"},
		"no plain part":     {"text/plain", "text/html"},
		"an attachment":     {"text/html", "application/pdf"},
		"an unknown coding": {"quoted-printable", "base64"},
		"a part cut in two": {"--b--", ""},
		"no sender":         {"From: Caf\xc3\xa9 <shop@example.com>\r\n", ""},
	} {
		if !strings.Contains(good, change[0]) {
			t.Fatalf("%s: nothing to change", why)
		}
		err := w.send(strings.Replace(good, change[0], change[1], 1))
		if err == nil || !strings.Contains(err.Error(), "SIMULATOR") {
			t.Errorf("%s: %v", why, err)
		}
	}
	if err := w.send(good, "ann@example.com", "eve@example.com"); err == nil {
		t.Error("a mail to two people was accepted")
	}
	if n := len(w.outbox.Messages("", "")); n != 0 {
		t.Errorf("%d mails were accepted", n)
	}
}

func TestOnlyLoopbackIsServed(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"0.0.0.0:0", ":0", "example.com:0", "127.0.0.1"} {
		if s, err := Start(addr, Options{}, &simkit.Faults{}, inbox.New(&simkit.Clock{}), slog.New(slog.DiscardHandler)); err == nil {
			s.Close()
			t.Errorf("%q is served", addr)
		}
	}
}

func TestAFaultIsCountedOncePerMail(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	for _, f := range []simkit.Fault{
		{Mode: "status", Code: 450}, {Mode: "status", Code: 550, Op: "rcpt"}, {Mode: "status", Code: 451, Op: "data"},
		{Mode: "drop_after_commit"}, {Mode: "down"},
	} {
		f.Target, f.Count = "smtp", 1
		w.faults.Add(f)
		before := len(w.outbox.Messages("", ""))
		if err := w.send(good); err == nil {
			t.Errorf("%+v: no error", f)
		}
		if got := len(w.outbox.Messages("", "")) - before; (got == 1) != (f.Mode == "drop_after_commit") {
			t.Errorf("%+v: %d mails", f, got)
		}
		w.faults.Delete("")
		if err := w.send(good); err != nil {
			t.Errorf("after %+v: %v", f, err)
		}
	}
	w.faults.Add(simkit.Fault{Target: "smtp", Mode: "status", Code: 450, Count: 2})
	for i, want := range []bool{false, false, true} {
		if err := w.send(good); (err == nil) != want {
			t.Errorf("mail %d: %v", i+1, err)
		}
	}
}

func TestAFaultThatIsNotSimulatedIsRefused(t *testing.T) {
	t.Parallel()
	for _, f := range []simkit.Fault{{Mode: "throttle"}, {Mode: "status", Code: 250}, {Mode: "delay", Op: "quit"}} {
		if CheckFault(f) == nil {
			t.Errorf("%+v is taken", f)
		}
	}
}
