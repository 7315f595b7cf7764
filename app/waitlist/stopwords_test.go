package waitlist

import (
	"strings"
	"testing"
)

func TestAStopIsUnderstoodInAnyOfItsForms(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		"STOP", "stop", " Stop. ", "STOP!!!", "“stop”", "ＳＴＯＰ", "s\u200btop", "stop 🙏", "Stop\nSent from my phone",
		"stopall", "STOP ALL", "quit", "END", "revoke", "optout", "OPT OUT", "opt-out", "Cancel", "UNSUBSCRIBE",
		"arrêt", "ARRET", "parar", "alto", "baja", "stopp", "abmelden", "aus", "annuleren", "stop sms",
		"please stop", "stop please", "pls stop texting me", "don't text me", "dont text me again", "DON’T TEXT ME",
		"do not contact me", "remove me", "remove me from your list", "wrong number", "no more texts please",
		"unsuscribe", "unsubcribe", "unsubscirbe", "unsubscribed", "please opt me out", "take me off this list",
		"I'll stop by", "can't wait, don't cancel my order?", // unclear: the safe side
	} {
		if got := ClassifyReply(body, ""); got != "stop" {
			t.Errorf("%q is %q, want stop", body, got)
		}
	}
}

func TestAStartIsOneOfTwiliosWordsAlone(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"START", "start", "Yes", "YES!", "unstop", " Un\u200bstop "} {
		if got := ClassifyReply(body, ""); got != "start" {
			t.Errorf("%q is %q, want start", body, got)
		}
	}
}

func TestAnOrdinaryTextIsNeither(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		"", " ", "👍", "thanks!", "yes please", "when does it start", "start again", "is it in blue?", "HELP", "INFO",
		"what time do you end today", "nonstop flights", "stopwatch", "my friend's bus stops there", "subscribe",
		"the baja edition", "no", "hasta luego", "12345",
	} {
		if got := ClassifyReply(body, ""); got != "" {
			t.Errorf("%q is %q, want neither", body, got)
		}
	}
}

func TestTwiliosOwnReadingCountsButAStopWins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, optOutType, want string }{
		{"hola", "STOP", "stop"},
		{"hola", "START", "start"},
		{"hola", "HELP", ""},
		{"stop", "HELP", "stop"},
		{"stop", "START", "stop"},
		{"start", "STOP", "stop"},
		{"start", "", "start"},
	} {
		if got := ClassifyReply(c.body, c.optOutType); got != c.want {
			t.Errorf("%q with %q is %q, want %q", c.body, c.optOutType, got, c.want)
		}
	}
}

func FuzzClassifyReply(f *testing.F) {
	for _, s := range []string{"stop", "don't text me", "unsuscribe", "START", "\xff", "s\u0301top", "ﬅop"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		got := ClassifyReply(body, "")
		if got != "" && got != "stop" && got != "start" {
			t.Fatalf("%q is %q", body, got)
		}
		if strings.ToValidUTF8(body, "") != body {
			return
		}
		if shouted := ClassifyReply(" \u200b"+body+" ! ", ""); shouted != got {
			t.Fatalf("%q is %q, but %q with spaces and a ! around it", body, got, shouted)
		}
		if ClassifyReply(body, "STOP") != "stop" {
			t.Fatalf("%q with Twilio's STOP is not a stop", body)
		}
		if ClassifyReply(body+" stop", "") != "stop" {
			t.Fatalf("%q and then stop is not a stop", body)
		}
	})
}
