package notify

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/app/notify/inbox"
	"holdfast/app/shop"
	"holdfast/app/simkit"
	"holdfast/app/waitlist"
)

func TestATextHasOneLinkAndSaysHowToOptOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, m := w.wantAccepted(textNotice())
	want := "Acme: Oak Chair (Natural) is back. Reserve yours within 30 min: " + w.app.URL + "/r/" + notice.ReserveToken + " Reply STOP to opt out"
	if m.Body != want {
		t.Errorf("got  %q\nwant %q", m.Body, want)
	}
	if m.To != ann || m.From != number || m.ID != id || len(m.Links) != 1 || m.Links[0] != w.app.URL+"/r/"+notice.ReserveToken {
		t.Errorf("got %+v", m)
	}
}

func TestTwilioReportsBackAboutOurMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, _ := w.wantAccepted(textNotice())
	sent := w.report()
	if sent.path != "/webhooks/twilio/"+shopKey+"/status" || !sent.ok || sent.delivery != (waitlist.Delivery{MessageID: 42, Attempt: 1, ProviderID: id, Status: "accepted"}) {
		t.Errorf("sent: got %+v", sent)
	}
	for _, c := range []struct {
		status string
		code   int
		want   waitlist.Delivery
	}{
		{"delivered", 0, waitlist.Delivery{Status: "delivered"}},
		{"undelivered", 30005, waitlist.Delivery{Status: "failed", Failure: *twilioError(30005, "")}},
		{"failed", 99999, waitlist.Delivery{Status: "failed", Failure: *twilioError(99999, "")}},
		{"failed", 0, waitlist.Delivery{Status: "failed", Failure: waitlist.SendError{Outcome: waitlist.GiveUp, Code: "failed", Why: "Twilio reports: failed"}}},
	} {
		if err := w.twilio.Report(t.Context(), id, c.status, c.code); err != nil {
			t.Fatal(err)
		}
		got := w.report()
		c.want.MessageID, c.want.Attempt, c.want.ProviderID = 42, 1, id
		if !got.ok || got.delivery != c.want {
			t.Errorf("%s %d: got %+v, want %+v", c.status, c.code, got.delivery, c.want)
		}
	}
}

func TestATextIsNotDeliveredAfterItsOfferIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for window, want := range map[time.Duration]string{
		30 * time.Minute: "1740",
		time.Minute:      "60",
		48 * time.Hour:   "36000",
	} {
		m := textNotice()
		m.Window = window
		w.outbox.Reset()
		w.wantAccepted(m)
		asked := w.twilio.Requests()
		if got := asked[len(asked)-1].Get("ValidityPeriod"); got != want {
			t.Errorf("an offer of %v: validity %s, want %s", window, got, want)
		}
	}
}

func TestARefusedTextIsJudgedByTwiliosCode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	codes := append(slices.Collect(maps.Keys(twilioErrors)), 21617, 99999) // two that are not in the file
	for _, code := range codes {
		w.fault(simkit.Fault{Target: "twilio", Op: "create", Mode: "status", Code: code, Count: 1})
		want := twilioError(code, "")
		failed := w.wantFailed(textNotice(), want.Outcome, 0)
		if failed.Sender != want.Sender || failed.Strikes != want.Strikes || failed.Outcome != waitlist.Unknown && failed.After != want.After {
			t.Errorf("%d: got %+v, want %+v", code, failed, want)
		}
	}
}

func TestATextThatTwilioNeverProcessedIsSafeToSendAgain(t *testing.T) {
	t.Parallel()

	throttled := newWorld(t)
	throttled.fault(simkit.Fault{Target: "twilio", Mode: "throttle", MS: 7000})
	if failed := throttled.wantFailed(textNotice(), waitlist.Retry, 0); failed.After != 7*time.Second || failed.Code != "20429" {
		t.Errorf("got %+v", failed)
	}

	closed := newWorld(t)
	closed.sim.Close()
	closed.wantFailed(textNotice(), waitlist.Retry, 0)

	unread := newWorld(t)
	unread.sender.shops = shops{err: errors.New("the database is away")}
	unread.wantFailed(textNotice(), waitlist.Retry, 0)

	over := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := over.sender.Send(ctx, textNotice()); err == nil || err.(*waitlist.SendError).Outcome != waitlist.Retry {
		t.Errorf("after the end of its context: %v", err)
	}
}

func TestATextWhoseAnswerIsLostMayHaveBeenAcceptedAndIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		name  string
		fault simkit.Fault
		sent  int
	}{
		{"dropped after it was accepted", simkit.Fault{Mode: "drop_after_commit"}, 1},
		{"no answer after it was accepted", simkit.Fault{Mode: "timeout_after_commit"}, 1},
		{"a proxy's error page after it was accepted", simkit.Fault{Mode: "html_502", When: "after"}, 1},
		{"500 after it was accepted", simkit.Fault{Mode: "status", Code: 500, When: "after"}, 1},
		{"a proxy's error page", simkit.Fault{Mode: "html_502"}, 0},
		{"the connection cut", simkit.Fault{Mode: "down"}, 0},
	} {
		w.outbox.Reset()
		w.twilio.Reset()
		c.fault.Target, c.fault.Op, c.fault.Count = "twilio", "create", 1
		w.fault(c.fault)
		m := textNotice()
		ctx := t.Context()
		if c.fault.Mode == "timeout_after_commit" {
			ctx = w.untilAccepted()
		}
		w.wantFailedIn(ctx, m, waitlist.Unknown, c.sent)

		other := m
		other.ReserveToken = strings.Repeat("x", shop.TokenLength)
		if id, found, known, err := w.sender.Find(t.Context(), other); id != "" || found || !known || err != nil {
			t.Errorf("%s: another notice: got %q, %v, %v, %v", c.name, id, found, known, err)
		}
		id, found, known, err := w.sender.Find(t.Context(), m)
		if found != (c.sent == 1) || !known || err != nil || found && id != w.outbox.Messages("", "")[0].ID {
			t.Errorf("%s: got %q, %v, %v, %v", c.name, id, found, known, err)
		}
	}
}

func TestATextThatArrivedAndWasNotAnsweredInTimeMayBeAcceptedYet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fault(simkit.Fault{Target: "twilio", Op: "create", Mode: "delay", Until: "lifted"})
	w.wantFailedIn(w.untilArrived(), textNotice(), waitlist.Unknown, 0)
}

func TestASendIsGivenUpInTime(t *testing.T) {
	t.Parallel()
	if sendTimeout >= waitlist.SendTimeout {
		t.Errorf("a send may take %v, and is counted as lost after %v", sendTimeout, waitlist.SendTimeout)
	}
	w := newWorld(t)
	w.sender.timeout = 100 * time.Millisecond
	w.fault(simkit.Fault{Target: "twilio", Mode: "delay", Until: "lifted"})
	w.fault(simkit.Fault{Target: "smtp", Mode: "delay", Until: "lifted"})
	for _, m := range []waitlist.Outgoing{textNotice(), mailNotice()} {
		began := time.Now()
		if _, err := w.sender.Send(t.Context(), m); err == nil || time.Since(began) > 10*time.Second {
			t.Errorf("%s: %v after %v", m.Channel, err, time.Since(began))
		}
	}
}

func TestALookThatFailsIsNoAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.wantAccepted(textNotice())
	for _, f := range []simkit.Fault{{Mode: "status", Code: 20500}, {Mode: "throttle"}, {Mode: "html_502"}, {Mode: "down"}} {
		f.Target, f.Op = "twilio", "list"
		id := w.fault(f)
		if _, found, _, err := w.sender.Find(t.Context(), textNotice()); err == nil || found {
			t.Errorf("%+v: found %v, %v", f, found, err)
		}
		if err := w.faults.Delete(id); err != nil {
			t.Fatal(err)
		}
	}
}

func TestATestShowsWhatIsWrongWithAnAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sender.shops = shops{} // it is no shop's yet
	if err := w.sender.TestText(t.Context(), account, "Acme", ann); err != nil {
		t.Fatal(err)
	}
	if all := w.outbox.Messages(ann, "sms"); len(all) != 1 || !strings.HasPrefix(all[0].Body, "Acme: this is a test.") || len(all[0].Links) != 0 {
		t.Errorf("got %+v", all)
	}
	for name, change := range map[string]func(*shop.Twilio){
		"20003":      func(t *shop.Twilio) { t.APISecret = "wrong" },
		"20404":      func(t *shop.Twilio) { t.MessagingServiceSID = "MG" + strings.Repeat("6", 32) },
		"incomplete": func(t *shop.Twilio) { t.AuthToken = "" },
	} {
		wrong := account
		change(&wrong)
		err := w.sender.TestText(t.Context(), wrong, "Acme", ann)
		var failed *waitlist.SendError
		if !errors.As(err, &failed) || failed.Code != name || failed.Outcome != waitlist.ShopFault {
			t.Errorf("%s: %+v", name, err)
		}
	}
	w.fault(simkit.Fault{Target: "twilio", Op: "create", Mode: "html_502", Count: 1})
	var failed *waitlist.SendError
	if err := w.sender.TestText(t.Context(), account, "Acme", ann); !errors.As(err, &failed) || failed.Outcome != waitlist.Unknown {
		t.Errorf("502: %v", err)
	}
}

func TestAShopsTextsAreSentFromItsOwnAccountOrNotAtAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, blank := range []func(*shop.Twilio){
		func(t *shop.Twilio) { *t = shop.Twilio{} },
		func(t *shop.Twilio) { t.AccountSID = "" },
		func(t *shop.Twilio) { t.APIKey = "" },
		func(t *shop.Twilio) { t.APISecret = "" },
		func(t *shop.Twilio) { t.AuthToken = "" },
		func(t *shop.Twilio) { t.MessagingServiceSID = "" },
		func(t *shop.Twilio) { t.APISecret = "with-a-dash" }, // the library refuses it before any request
	} {
		half := account
		blank(&half)
		w.sender.shops = shops{twilio: half}
		w.wantFailed(textNotice(), waitlist.ShopFault, 0)
	}
	w.sender.shops = shops{twilio: account}
	other := textNotice()
	other.ShopID = 8
	w.wantFailed(other, waitlist.ShopFault, 0)
	if n := w.asked.Load(); n != 0 {
		t.Errorf("Twilio was asked %d times", n)
	}
	wrong := account
	wrong.APISecret = "wrong"
	w.sender.shops = shops{twilio: wrong}
	if failed := w.wantFailed(textNotice(), waitlist.ShopFault, 0); failed.Code != "20003" || strings.Contains(failed.Why, "wrong") {
		t.Errorf("got %+v", failed)
	}
}

func TestCredentialsGoToTwilioAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := &call{ctx: t.Context(), next: w.sender.twilio, sim: w.sender.sim}
	for _, to := range []string{"http://api.twilio.com/x", "https://api.twilio.com.evil.example/x", "https://evil.example/x", w.sim.URL + "/x"} {
		r := newRequest(t, to)
		if answer, err := c.RoundTrip(r); err == nil {
			answer.Body.Close()
			t.Errorf("%s was asked", to)
		}
	}
	if n := w.asked.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
}

func TestAPhoneThatTextedStopIsRefusedByTwilioToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.wantAccepted(textNotice())
	w.report()
	if err := w.twilio.SendText(t.Context(), ann, number, "Stop"); err != nil {
		t.Fatal(err)
	}
	if got := w.report(); got.inbound.From != ann || got.inbound.Body != "Stop" || got.inbound.ID == "" {
		t.Errorf("got %+v", got.inbound)
	}
	w.wantFailed(textNotice(), waitlist.OptedOut, 1)

	if err := w.twilio.SendText(t.Context(), ann, "", "START"); err != nil { // to whoever texted last
		t.Fatal(err)
	}
	w.report()
	if _, err := w.sender.Send(t.Context(), textNotice()); err != nil {
		t.Errorf("after START: %v", err)
	}
	var refused *inbox.Refused
	if err := w.twilio.SendText(t.Context(), ann, "+15550000000", "hello"); !errors.As(err, &refused) {
		t.Errorf("to a number that nobody has: %v", err)
	}
}
