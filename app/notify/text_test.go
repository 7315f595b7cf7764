package notify

import (
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"holdfast/app/waitlist"
	"holdfast/app/words"
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
	if !strings.HasPrefix(got, "木の店: オークの椅子") || !strings.HasSuffix(got, " Reply STOP to opt out") {
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
	got := strings.TrimSuffix(s.textMessage(textNotice()), " Reply STOP to opt out")
	for _, word := range []string{"reply", "yes", "start", "cancel", "end ", "quit", "help", "info"} {
		if strings.Contains(strings.ToLower(got), word) {
			t.Errorf("%q in %q", word, got)
		}
	}
}

// In every language, with long names: one segment (Japanese: three of UCS-2), one link between words, STOP.
func TestATextInEveryLanguage(t *testing.T) {
	t.Parallel()
	s := &Sender{public: "https://holdfast.example.com"}
	for _, l := range words.All() {
		for _, reserved := range []bool{false, true} {
			m := textNotice()
			m.Locale, m.Reserved, m.Window = l.Code, reserved, 30*time.Minute
			m.ShopName, m.ProductTitle = "Żółw & Æble – Söhne", strings.Repeat("Very Long Chair Name ", 20)
			got := s.textMessage(m)
			n, gsm7 := Segments(got)
			if most := map[bool]int{false: 1, true: 3}[l.Code == "ja"]; n > most || gsm7 == (l.Code == "ja") {
				t.Errorf("%s: %d segments, GSM %v: %q", l.Name, n, gsm7, got)
			}
			link := s.public + "/r/" + m.ReserveToken
			if strings.Count(got, "://") != 1 || !strings.Contains(got, " "+link+" ") || !strings.Contains(got, "STOP") {
				t.Errorf("%s: %q", l.Name, got)
			}
			if strings.ContainsAny(got, "{}") {
				t.Errorf("%s: a variable is left: %q", l.Name, got)
			}
		}
	}
}

func TestAMailInEveryLanguage(t *testing.T) {
	t.Parallel()
	s := &Sender{public: "https://holdfast.example.com"}
	seen := map[string]string{}
	for _, l := range words.All() {
		for _, reserved := range []bool{false, true} {
			m := textNotice()
			m.Channel, m.Locale, m.ShopLocale, m.Reserved, m.Window, m.HoldMinutes = waitlist.Email, l.Code, "de", reserved, 2*time.Hour, 15
			text := s.mailText(m)
			html, err := text.html()
			if err != nil {
				t.Fatal(err)
			}
			for _, body := range []string{text.plain(), html, text.Subject} {
				if strings.Contains(body, "{") && body != html || strings.Contains(body, "{item}") {
					t.Errorf("%s: a variable is left: %q", l.Name, body)
				}
			}
			if !strings.Contains(html, `<html lang="`+l.Code+`">`) || strings.Count(text.plain(), "://") != 3 {
				t.Errorf("%s: %s", l.Name, html)
			}
			if other, is := seen[text.plain()]; is {
				t.Errorf("%s reads as %s", l.Name, other)
			}
			seen[text.plain()] = l.Name
		}
	}
}

func TestALanguageThatThereIsNotIsTheShops(t *testing.T) {
	t.Parallel()
	s := &Sender{public: "https://holdfast.example.com"}
	m := textNotice()
	m.Locale, m.ShopLocale = "ar", "nl-BE"
	if got := s.textMessage(m); !strings.Contains(got, "is er weer") {
		t.Errorf("got %q", got)
	}
}

func TestAnArabicNameKeepsTheSentenceInItsPlace(t *testing.T) {
	t.Parallel()
	s := &Sender{public: "https://holdfast.example.com"}
	m := textNotice()
	m.Channel, m.ProductTitle, m.VariantTitle = waitlist.Email, "كرسي", "١٢"
	if got := s.mailText(m).Opening; !strings.Contains(got, "\u2068كرسي (١٢)\u2069 is back") {
		t.Errorf("got %q", got)
	}
}

func TestSegments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 1, strings.Repeat("a", 160): 1, strings.Repeat("a", 161): 2, strings.Repeat("a", 306): 2, strings.Repeat("a", 307): 3,
		strings.Repeat("木", 70): 1, strings.Repeat("木", 71): 2, strings.Repeat("木", 134): 2, strings.Repeat("木", 135): 3, strings.Repeat("🪑", 36): 2,
	} {
		if got, _ := Segments(text); got != want {
			t.Errorf("%d characters of %.4q: %d segments, want %d", len([]rune(text)), text, got, want)
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
		if m.Channel = waitlist.Email; strings.ContainsAny(s.mailText(m).Subject, "\r\n\x00") {
			t.Fatalf("%q: subject %q", product, s.mailText(m).Subject)
		}
	})
}
