package words

import (
	"strings"
	"testing"
)

func TestASentenceOfTheMerchantsIsChecked(t *testing.T) {
	t.Parallel()
	own := map[string]Own{}
	for _, o := range Owned() {
		own[o.Key] = o
	}
	good := "{shop}: {item} is here. Go to {link} within {time}. STOP to opt out"
	for _, c := range []struct{ key, text, fault string }{
		{"text", good, ""},
		{"text", "", ""},
		{"text", strings.ReplaceAll(good, "{link}", ""), "exactly once"},
		{"text", strings.ReplaceAll(good, "{link}", "{link} or {link}"), "exactly once"},
		{"text", "{link} {item} STOP", "between words"},
		{"text", "STOP {item} {link}", "between words"},
		{"text", "{item}:{link} STOP", "a space before"},
		{"text", strings.ReplaceAll(good, "STOP", "stop"), "STOP in capitals"},
		{"text", strings.ReplaceAll(good, "STOP to opt out", "nonSTOP"), "STOP in capitals"},
		{"text", good + " or reply YES", "not YES"},
		{"text", good + " {item}", "once each"},
		{"text", good + " acme.com", "web addresses"},
		{"text", good + " https://acme", "web addresses"},
		{"text", good + " {price}", "{price} is not known here: use {shop}, {item}, {time}, {link}"},
		{"text", good + " {", "left over"},
		{"text", good + "\n", "one line"},
		{"text", good + strings.Repeat("a", 400), "400"},
		{"mail.subject", "{item} is back, {name}", ""},
		{"mail.subject", "{link}", "{link} is not known"},
		{"mail.button", "Get {item}", "plain words"},
	} {
		if got := own[c.key].Fault(c.text); (c.fault == "") != (got == "") || !strings.Contains(got, c.fault) {
			t.Errorf("%s %q: got %q, want %q", c.key, c.text, got, c.fault)
		}
	}
}

func TestOurOwnSentencesPassTheCheck(t *testing.T) {
	t.Parallel()
	for _, l := range All() {
		for _, o := range Owned() {
			if fault := o.Fault(l.Say(o.Key)); fault != "" {
				t.Errorf("%s %s: %s", l.Name, o.Key, fault)
			}
		}
	}
}
