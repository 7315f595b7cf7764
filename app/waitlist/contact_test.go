package waitlist

import (
	"errors"
	"strings"
	"testing"
	"unicode"
)

func TestAPhoneIsUnderstoodAsPeopleWriteIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ typed, country, want string }{
		{"07400 123456", "GB", "+447400123456"},
		{"07400 123456", "gb", "+447400123456"},
		{"+44 (0)7400 123456", "US", "+447400123456"},
		{"(+44) 7400 123456", "US", "+447400123456"},
		{"0044 7400 123456", "US", "+447400123456"},
		{"011 44 7400 123456", "US", "+447400123456"},
		{"011 44 7400 123456", "GB", "+447400123456"},
		{"44 7400 123456", "US", "+447400123456"},
		{"+44 7797 712345", "GB", "+447797712345"}, // Jersey
		{"312 345 6789", "IT", "+393123456789"},
		{"+52 1 55 1234 5678", "MX", "+525512345678"},
		{"+52 1 55 1234 5678", "US", "+525512345678"},
		{"044 55 1234 5678", "MX", "+525512345678"},
		{"01 55 1234 5678", "MX", "+525512345678"},
		{"55 1234 5678", "MX", "+525512345678"},
		{"011 15 2345-6789", "AR", "+5491123456789"},
		{"+54 11 15 2345 6789", "AR", "+5491123456789"},
		{"011 2345-6789", "AR", "+5491123456789"},
		{"(11) 96123-4567", "BR", "+5511961234567"},
		{"+225 07 08 09 10 11", "CI", "+2250708091011"},
		{"＋１ ４１５ ５５５ ２６７１", "US", "+14155552671"},
		{"٠٥٠١٢٣٤٥٦٧", "SA", "+966501234567"},
		{"۰۹۱۲ ۳۴۵ ۶۷۸۹", "IR", "+989123456789"},
		{"९८१२३ ४५६७८", "IN", "+919812345678"},
		{"\u202a+14155552671\u202c", "US", "+14155552671"},
		{"+1\u200e4155552671", "US", "+14155552671"},
		{"415\u2009555\u202f2671", "US", "+14155552671"},
		{"415–555—2671", "US", "+14155552671"},
		{"415-555-2671,", "US", "+14155552671"},
		{"415-555-2671;", "US", "+14155552671"},
		{"“415-555-2671”", "US", "+14155552671"},
		{"<415-555-2671>", "US", "+14155552671"},
		{"(415-555-2671)", "US", "+14155552671"},
		{"\n415-555-2671\r\n", "US", "+14155552671"},
		{"📱 415-555-2671 👍🏽", "US", "+14155552671"},
		{"876 210 1234", "US", "+18762101234"},
		{"(787) 234-5678", "US", "+17872345678"},
		{"8 (912) 345-67-89", "RU", "+79123456789"},
	} {
		a, err := ParseAddress(SMS, c.typed, c.country)
		if err != nil || a.Key != c.want || a.Send != c.want {
			t.Errorf("%q in %s: got %q, %v; want %q", c.typed, c.country, a.Send, err, c.want)
		}
	}
}

func TestAPhoneIsShownWithItsCountryCode(t *testing.T) {
	t.Parallel()
	a, err := ParseAddress(SMS, "07400123456", "GB")
	if err != nil || a.Shown != "+44 7400 123456" {
		t.Fatalf("got %q, %v", a.Shown, err)
	}
}

func TestAPhoneThatCannotReceiveTextsIsRefusedWithItsReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ typed, country, says string }{
		{"", "US", "Enter a mobile"},
		{" \t", "US", "Enter a mobile"},
		{"020 7946 0018", "GB", "landline"},
		{"06 6982 1234", "IT", "landline"},
		{"+39 06 6982 1234", "US", "landline"},
		{"0843 123 4567", "GB", "service number"},
		{"0180 5 123456", "DE", "service number"},
		{"1300 123 456", "AU", "service number"},
		{"07000 123456", "GB", "service number"},
		{"07640 123456", "GB", "service number"},
		{"+1 800 555 0199", "US", "service number"},
		{"+1 900 555 0123", "US", "service number"},
		{"+15005550006", "US", "service number"},
		{"1-800-FLOWERS", "US", "letters"},
		{"HEB17143428716", "US", "letters"},
		{"whatsapp:+14155552671", "US", "letters"},
		{"call me 415-555-2671", "US", "letters"},
		{"415-555-2671 or 415-555-2672", "US", "letters"},
		{"415-555-2671 x123", "US", "extension"},
		{"415-555-2671,,123", "US", "extension"},
		{"tel:415-555-2671;ext=123", "US", "extension"},
		{"415-555-2671#", "US", "sign"},
		{"415\n5552671", "US", "sign"},
		{"415\x005552671", "US", "sign"},
		{"4155552671;phone-context=+44", "US", "sign"},
		{"5;phone-context=+1;tel:x", "US", "sign"},
		{"++14155552671", "US", "+ may stand only once"},
		{"+1+4155552671", "US", "+ may stand only once"},
		{"415+5552671", "US", "+ may stand only once"},
		{"12345", "US", "too short"},
		{"911", "US", "too short"},
		{"415-555-2671 / 415-555-2672", "US", "only one number"},
		{"07 08 09 10", "CI", "do not recognise"},
		{"+8 912 345 67 89", "RU", "do not recognise"},
		{"+44 7700 900123", "GB", "do not recognise"},
		{"0000000000", "GB", "do not recognise"},
		{"555-123-4567", "US", "do not recognise"},
		{"07400 123456", "", "country code"},
		{"07400 123456", "UK", "country code"},
		{"ann@example.com", "US", "looks like an email"},
		{"\xff4155552671", "US", "not readable"},
		{strings.Repeat("1", 321), "US", "too long"},
	} {
		wantInvalid(t, SMS, c.typed, c.country, "invalid_phone", "contact", c.says)
	}
}

func TestAMailAddressIsUnderstoodAsPeopleWriteIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ typed, send, key, shown string }{
		{"ann@example.com", "ann@example.com", "ann@example.com", "ann@example.com"},
		{" Ann@Example.COM ", "Ann@example.com", "ann@example.com", "Ann@example.com"},
		{"ann@example.com\n", "ann@example.com", "ann@example.com", "ann@example.com"},
		{"\u200bann@example.com\u202c", "ann@example.com", "ann@example.com", "ann@example.com"},
		{"ann.b+tag@gmail.com", "ann.b+tag@gmail.com", "ann.b+tag@gmail.com", "ann.b+tag@gmail.com"},
		{"Ann <ann@example.com>", "ann@example.com", "ann@example.com", "ann@example.com"},
		{"<ann@example.com>", "ann@example.com", "ann@example.com", "ann@example.com"},
		{"mailto:ann@example.com", "ann@example.com", "ann@example.com", "ann@example.com"},
		{"MAILTO:ann@example.com?subject=hi", "ann@example.com", "ann@example.com", "ann@example.com"},
		{"ann@example.com,", "ann@example.com", "ann@example.com", "ann@example.com"},
		{"ann@example.com.", "ann@example.com", "ann@example.com", "ann@example.com"},
		{"ann@münchen.de", "ann@xn--mnchen-3ya.de", "ann@xn--mnchen-3ya.de", "ann@münchen.de"},
		{"ann@xn--mnchen-3ya.de", "ann@xn--mnchen-3ya.de", "ann@xn--mnchen-3ya.de", "ann@münchen.de"},
		{"ann@пример.рф", "ann@xn--e1afmkfd.xn--p1ai", "ann@xn--e1afmkfd.xn--p1ai", "ann@пример.рф"},
		{"noreply@example.com", "noreply@example.com", "noreply@example.com", "noreply@example.com"},
		{"o'neil@example.co.uk", "o'neil@example.co.uk", "o'neil@example.co.uk", "o'neil@example.co.uk"},
	} {
		a, err := ParseAddress(Email, c.typed, "US")
		if err != nil || a != (Address{Email, c.key, c.send, c.shown}) {
			t.Errorf("%q: got %+v, %v", c.typed, a, err)
		}
	}
}

func TestAMailAddressThatCannotBeUsedIsRefusedWithItsReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ typed, says string }{
		{"", "Enter an email"},
		{"ann", "has an @"},
		{"+14155552671", "looks like a phone"},
		{"(415) 555-2671", "looks like a phone"},
		{"@example.com", "before the @ is missing"},
		{"ann@", "after the @ is missing"},
		{"ann@.", "after the @ is missing"},
		{"a..b@example.com", "dot"},
		{".ann@example.com", "dot"},
		{"ann.@example.com", "dot"},
		{"ann@example..com", "not a valid domain"},
		{"ann@example.com..", "not a valid domain"},
		{"ann@-example.com", "not a valid domain"},
		{"ann@exam_ple.com", "not a valid domain"},
		{"ann@[127.0.0.1]", "not a valid domain"},
		{"ann@example.com%0aBcc:eve", "not a valid domain"},
		{"ann@127.0.0.1", "not a complete domain"},
		{"ann@localhost", "not a complete domain"},
		{"ann@example", "not a complete domain"},
		{"ann@example.c", "not a complete domain"},
		{`"a b"@example.com`, "cannot be used"},
		{`"a@b"@example.com`, "cannot be used"},
		{`"toor@evil.com> ORCPT=x"@example.com`, "cannot be used"},
		{"group:ann@example.com;", "cannot be used"},
		{"ann(comment)@example.com", "cannot be used"},
		{"ärger@example.com", "letters from a to z"},
		{"аnn@example.com", "letters from a to z"}, // a Cyrillic а
		{"ann @example.com", "space"},
		{"ann@exam ple.com", "space"},
		{"ann\u00a0b@example.com", "space"},
		{"ann\u200b@example.com", "invisible"},
		{"ann@example.com\r\nBcc: eve@example.com", "line break"},
		{"ann\x00@example.com", "line break"},
		{"ann@example.com, bob@example.com", "only one"},
		{"ann@example.com;bob@example.com", "only one"},
		{"ann@example.com bob@example.com", "only one"},
		{"eve@example.com <ann@example.com>", "one email"},
		{"Ann <ann@example.com", "one email"},
		{strings.Repeat("a", 65) + "@example.com", "before the @ is too long"},
		{strings.Repeat("a", 60) + "@" + strings.Repeat("b.", 98) + "com", "too long"},
		{strings.Repeat("a", 309) + "@example.com", "too long"},
		{"ann@\xff.com", "not readable"},
	} {
		wantInvalid(t, Email, c.typed, "US", "invalid_email", "contact", c.says)
	}
}

func TestAnUnknownChannelIsRefused(t *testing.T) {
	t.Parallel()
	for _, channel := range []Channel{"", "SMS", "whatsapp"} {
		wantInvalid(t, channel, "ann@example.com", "US", "invalid_channel", "channel", "email")
	}
}

func wantInvalid(t *testing.T, channel Channel, typed, country, code, field, says string) {
	t.Helper()
	a, err := ParseAddress(channel, typed, country)
	var invalid *Invalid
	if !errors.As(err, &invalid) || a != (Address{}) {
		t.Errorf("%q: got %+v, %v; want it refused", typed, a, err)
		return
	}
	if invalid.Code != code || invalid.Field != field || !strings.Contains(invalid.Message, says) {
		t.Errorf("%q: got %+v; want code %s, field %s and %q in the message", typed, *invalid, code, field, says)
	}
}

func TestAMaskKeepsWhatItsOwnerRecognises(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		channel       Channel
		address, want string
	}{
		{Email, "ann@example.com", "a…@example.com"},
		{Email, "a@example.com", "a…@example.com"},
		{Email, "ann@xn--mnchen-3ya.de", "a…@münchen.de"},
		{Email, "nonsense", "…"},
		{Email, "", "…"},
		{SMS, "+447400123456", "+44 …3456"},
		{SMS, "+14155552671", "+1 …2671"},
		{SMS, "+2250708091011", "+225 …1011"},
		{SMS, "12", "…"},
		{SMS, "", "…"},
	} {
		if got := Mask(c.channel, c.address); got != c.want {
			t.Errorf("%s %q: got %q, want %q", c.channel, c.address, got, c.want)
		}
	}
}

func FuzzParsePhone(f *testing.F) {
	for _, s := range []string{"07400 123456", "+44 (0)7400 123456", "5;phone-context=+1;tel:x", "٠٥٠١٢٣٤٥٦٧", "1️⃣", "\u202a+14155552671\u202c", "+", "(", "044 55 1234 5678", "HEB17143428716", "\xff"} {
		for _, country := range []string{"US", "GB", "MX", "AR", "", "??"} {
			f.Add(s, country)
		}
	}
	f.Fuzz(func(t *testing.T, typed, country string) { understoodOnceAndForAll(t, SMS, typed, country) })
}

func FuzzParseEmail(f *testing.F) {
	for _, s := range []string{"ann@example.com", "Ann <ann@example.com>", "ann@münchen.de", "a\r\nb@c.de", `"a b"@example.com`, "mailto:", "ann@xn--.com", "ann@\u0627a.com", "\xff", "x@y.z..", "a@faß.de", "a@ｅxample。com"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, typed string) { understoodOnceAndForAll(t, Email, typed, "US") })
}

// understoodOnceAndForAll: whatever is accepted is clean, is its own reading, and can be masked; whatever
// is not is refused with a reason.
func understoodOnceAndForAll(t *testing.T, channel Channel, typed, country string) {
	a, err := ParseAddress(channel, typed, country)
	if err != nil {
		var invalid *Invalid
		if !errors.As(err, &invalid) || invalid.Message == "" || a != (Address{}) {
			t.Fatalf("%q: refused with %v and %+v", typed, err, a)
		}
		return
	}
	for _, s := range []string{a.Key, a.Send, a.Shown} {
		if s == "" || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("%q: understood as %q", typed, s)
		}
	}
	again, err := ParseAddress(channel, a.Send, "")
	if err != nil || again.Send != a.Send || again.Key != a.Key {
		t.Fatalf("%q is %q, which is %q, %v", typed, a.Send, again.Send, err)
	}
	if m := Mask(channel, a.Send); m == "" || m == "…" || strings.Contains(m, a.Send) {
		t.Fatalf("%q is masked as %q", a.Send, m)
	}
}
