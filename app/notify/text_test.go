package notify

import (
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"holdfast/app/waitlist"
)

func TestATextIsOneSegmentHoweverLongTheNames(t *testing.T) {
	t.Parallel()
	s := &Sender{public: "https://holdfast.example.com"}
	link := s.public + "/r/" + notice.ReserveToken
	for _, c := range []struct{ shop, product, variant, begins string }{
		{"Acme", "Oak Chair", "Default Title", "Acme: Oak Chair is back"},
		{"Acme", "Oak Chair", "", "Acme: Oak Chair is back"},
		{"", "", "", "The shop: What you waited for is back"},
		{"Café “Zoë” – Paris", "Crème brûlée façon", "ñandú", `Café "Zoe" - Paris: Crème`},
		{"Acme", strings.Repeat("Very Long Chair Name ", 20), "Natural", "Acme: Very Long"},
		{strings.Repeat("Very Long Shop Name ", 20), "Oak Chair", "", "Very Long"},
		{strings.Repeat("Very Long Shop Name ", 20), strings.Repeat("Very Long Chair Name ", 20), "", "Very Long"},
		{"Acme 🪑", "Oak Chair 🎉", "100 % [new] {x} ~ €", "Acme: Oak Chair"},
	} {
		m := textNotice()
		m.ShopName, m.ProductTitle, m.VariantTitle = c.shop, c.product, c.variant
		got := s.textMessage(m)
		if !strings.HasPrefix(got, c.begins) {
			t.Errorf("got %q, want it to begin with %q", got, c.begins)
		}
		if n := len([]rune(got)); n > 160 {
			t.Errorf("%d characters: %q", n, got)
		}
		for _, r := range got {
			if !strings.ContainsRune(gsmAlphabet, r) {
				t.Errorf("%q is not of the GSM alphabet: %q", r, got)
			}
		}
		if strings.Count(got, "http") != 1 || !strings.Contains(got, ": "+link+" Reply") || !strings.HasSuffix(got, " Reply STOP to opt out") {
			t.Errorf("the link is not in the middle, once: %q", got)
		}
	}
}

func TestANameInAnotherScriptIsKept(t *testing.T) {
	t.Parallel()
	s := &Sender{public: "https://holdfast.example.com"}
	m := textNotice()
	m.ShopName, m.ProductTitle, m.VariantTitle = "木の店", strings.Repeat("オークの椅子", 20), ""
	got := s.textMessage(m)
	if !strings.HasPrefix(got, "木の店: オークの椅子") || !strings.HasSuffix(got, optOut) {
		t.Errorf("got %q", got)
	}
	if n := len(utf16.Encode([]rune(got))); n > 201 {
		t.Errorf("%d characters, more than three segments: %q", n, got)
	}
}

func TestANameCannotBringASecondLink(t *testing.T) {
	t.Parallel()
	s := &Sender{public: "https://holdfast.example.com"}
	m := textNotice()
	m.ShopName, m.ProductTitle = "www.acme.example", "https://evil.example/x"
	got := s.textMessage(m)
	if strings.Count(got, "://") != 1 || strings.Contains(got, "www.") {
		t.Errorf("got %q", got)
	}
}

func TestATextOffersNoReplyButStop(t *testing.T) {
	t.Parallel()
	s := &Sender{public: "https://holdfast.example.com"}
	got := strings.TrimSuffix(s.textMessage(textNotice()), optOut)
	for _, word := range []string{"reply", "yes", "start", "cancel", "end ", "quit", "help", "info"} {
		if strings.Contains(strings.ToLower(got), word) {
			t.Errorf("%q in %q", word, got)
		}
	}
}

func TestATimeIsSaidInWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d           time.Duration
		long, short string
	}{
		{time.Minute, "1 minute", "1 min"},
		{15 * time.Minute, "15 minutes", "15 min"},
		{time.Hour, "1 hour", "1 hour"},
		{90 * time.Minute, "90 minutes", "90 min"},
		{2 * time.Hour, "2 hours", "2 hours"},
		{48 * time.Hour, "2 days", "2 days"},
		{0, "1 minute", "1 min"},
	} {
		if long, short := lasting(c.d, false), lasting(c.d, true); long != c.long || short != c.short {
			t.Errorf("%v: got %q and %q", c.d, long, short)
		}
	}
}

func FuzzTextMessage(f *testing.F) {
	for _, s := range []string{"Oak Chair", "“Café” – ñ", "木の店", "a\r\nb", "\xff", "e\u0301\u0327", strings.Repeat("€", 300), "\u202egnp.exe", "🪑"} {
		f.Add(s, s)
	}
	s := &Sender{public: "https://holdfast.example.com"}
	f.Fuzz(func(t *testing.T, shopName, product string) {
		m := textNotice()
		m.ShopName, m.ProductTitle = shopName, product
		got := s.textMessage(m)
		if strings.ContainsAny(got, "\r\n\x00") || strings.Count(got, "://") != 1 {
			t.Fatalf("%q, %q: %q", shopName, product, got)
		}
		if _, plain := gsm(got); plain && len([]rune(got)) > 160 || len(utf16.Encode([]rune(got))) > 201 {
			t.Fatalf("%q, %q: too long: %q", shopName, product, got)
		}
		if m.Channel = waitlist.Email; strings.ContainsAny(s.mailText(m).subject(), "\r\n\x00") {
			t.Fatalf("%q: subject %q", product, s.mailText(m).subject())
		}
	})
}
