package notify

import (
	"html/template"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"golang.org/x/text/unicode/bidi"
	"golang.org/x/text/unicode/norm"

	"holdfast/app/waitlist"
	"holdfast/app/words"
)

// The texts of messages: the sentences of app/words, or the merchant's own in their place.

// languageOf is the shopper's language, else the shop's, else English.
func languageOf(m waitlist.Outgoing) *words.Language { return words.In(m.Locale, m.ShopLocale) }

// wording is the merchant's own sentence for a message's language, else ours. A reserved unit's message has
// its own.
func wording(m waitlist.Outgoing, key string) string {
	if m.Reserved {
		key += ".reserved"
	}
	if own := m.Wording[key]; own != "" {
		return own
	}
	return languageOf(m).Say(key)
}

// item is the product and, when it has several variants, which one.
func item(m waitlist.Outgoing) string {
	product, variant := oneLine(m.ProductTitle), oneLine(m.VariantTitle)
	if product == "" {
		product = languageOf(m).Say("unnamed.item")
	}
	if variant == "" || variant == "Default Title" { // Shopify's name of the only variant of a product
		return product
	}
	return product + " (" + variant + ")"
}

// seller is the shop's name.
func seller(m waitlist.Outgoing) string {
	if name := oneLine(m.ShopName); name != "" {
		return name
	}
	return languageOf(m).Say("unnamed.shop")
}

// isolated is a name that may stand in a sentence of another direction: an Arabic or Hebrew one keeps what
// comes after it in its place.
func isolated(s string) string {
	for _, r := range s {
		if p, _ := bidi.LookupRune(r); p.Class() == bidi.R || p.Class() == bidi.AL {
			return "\u2068" + s + "\u2069" // first strong isolate, pop directional isolate (UAX #9)
		}
	}
	return s
}

// oneLine is a name from outside as one line of printable text: no line break to begin a header with, no
// mark to turn the direction of what follows.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r), unicode.IsControl(r):
			return ' '
		case r == unicode.ReplacementChar, !unicode.IsPrint(r) && r != '\u200d':
			return -1
		}
		return r
	}, s)
	return cut(strings.Join(strings.Fields(s), " "), 120)
}

// cut shortens a text to at most so many characters, the last of which is then "…".
func cut(s string, most int) string {
	runes := []rune(s)
	if len(runes) <= most {
		return s
	}
	return strings.TrimRight(string(runes[:most-1]), " ") + "…"
}

// ---- mail

type mailText struct {
	Language                             string
	Shop, Item, Subject, Image           string
	Greeting, Opening, Button, Condition string
	SeePlace, Why, NoMore                string
	Reserve, Place, Unsubscribe          string
}

func (s *Sender) mailText(m waitlist.Outgoing) mailText {
	l := languageOf(m)
	t := mailText{
		Language: l.Code, Shop: seller(m), Item: item(m),
		SeePlace: l.Say("mail.place"), NoMore: l.Say("mail.unsubscribe"), Greeting: l.Say("mail.greeting"),
		Reserve:     s.public + "/r/" + m.ReserveToken,
		Place:       s.public + "/q/" + m.PlaceToken,
		Unsubscribe: s.public + "/u/" + m.UnsubscribeToken,
	}
	if strings.HasPrefix(m.ImageURL, "https://") {
		t.Image = m.ImageURL
	}
	name := oneLine(m.Name)
	if name != "" {
		t.Greeting = l.Say("mail.greeting.name", "name", isolated(name))
	}
	say := func(key string) string {
		return words.Fill(wording(m, key), "item", isolated(t.Item), "shop", isolated(t.Shop), "name", isolated(name),
			"time", l.Time(m.Window), "hold", l.Time(time.Duration(m.HoldMinutes)*time.Minute))
	}
	t.Subject = oneLine(words.Fill(wording(m, "mail.subject"), "item", t.Item, "shop", t.Shop, "name", name))
	t.Opening, t.Condition, t.Button = say("mail.opening"), say("mail.condition"), say("mail.button")
	t.Why = l.Say("mail.why", "shop", isolated(t.Shop))
	return t
}

func (t mailText) plain() string {
	return strings.Join([]string{
		t.Greeting,
		t.Opening,
		t.Button + ": " + t.Reserve,
		t.Condition,
		t.SeePlace + ": " + t.Place,
		t.Why + " " + t.NoMore + ": " + t.Unsubscribe,
	}, "\n\n") + "\n"
}

func (t mailText) html() (string, error) {
	page, err := template.New("mail").Parse(mailHTML)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = page.Execute(&b, t)
	return b.String(), err
}

const mailHTML = `<!doctype html>
<html lang="{{.Language}}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{{.Item}}</title></head>
<body style="margin:0;padding:24px;background:#f6f5f2;color:#1c1b19;font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif">
<div style="max-width:520px;margin:0 auto;padding:32px;background:#ffffff;border-radius:12px">
<p style="margin:0 0 16px;font-weight:600" dir="auto">{{.Shop}}</p>
{{if .Image}}<p style="margin:0 0 16px"><img src="{{.Image}}" alt="" width="456" style="display:block;width:100%;height:auto;border-radius:8px"></p>{{end}}
<p>{{.Greeting}}</p>
<p>{{.Opening}}</p>
<p style="margin:28px 0"><a href="{{.Reserve}}" style="display:inline-block;padding:14px 24px;background:#1c1b19;color:#ffffff;border-radius:8px;text-decoration:none;font-weight:600">{{.Button}}</a></p>
<p>{{.Condition}}</p>
<p><a href="{{.Place}}" style="color:#1c1b19">{{.SeePlace}}</a></p>
<p style="margin:32px 0 0;color:#6b6862;font-size:13px">{{.Why}} <a href="{{.Unsubscribe}}" style="color:#6b6862">{{.NoMore}}</a></p>
</div></body></html>
`

// ---- text messages

// A text has its link between words: iOS replaces the text by a preview when a link is at its beginning or
// its end. No reply words are offered but STOP: Twilio takes several others (YES, CANCEL, END) as opting in
// or out.

// Segments is how many texts a text is sent, and paid, as. One of the GSM 7-bit alphabet (3GPP TS 23.038)
// takes 160 characters, several 153 each; with any other character it is UCS-2: 70, and 67.
func Segments(text string) (n int, gsm7 bool) {
	units, one, many := septets(text), oneSegment, oneSegment-7
	for _, r := range text {
		if !strings.ContainsRune(gsmAlphabet, r) {
			units, one, many = len(utf16.Encode([]rune(text))), 70, 67
			break
		}
	}
	if units <= one {
		return 1, one == oneSegment
	}
	return (units + many - 1) / many, one == oneSegment
}

const oneSegment = 160

// leastRoom is what the names in a text are left, together: the text becomes longer before they get less.
const leastRoom = 24

// textMessage words a text: the shop, what is back, for how long, one link, how to opt out. It is folded into
// the GSM alphabet, and the names are cut so that it fits one segment, as far as link and sentence leave
// room. A name or a sentence in a script that the alphabet does not have makes it UCS-2, and longer.
func (s *Sender) textMessage(m waitlist.Outgoing) string {
	sentence, link := wording(m, "text"), s.public+"/r/"+m.ReserveToken
	fill := func(name, what string) string {
		return words.Fill(sentence, "shop", name, "item", what, "time", languageOf(m).Short(m.Window), "link", link)
	}
	names := strings.Count(sentence, "{shop}") + strings.Count(sentence, "{item}")
	name, what := unlinked(seller(m)), unlinked(item(m))
	gsmName, ok1 := gsm(name)
	gsmWhat, ok2 := gsm(what)
	bare, ok3 := gsm(fill("x", "x"))
	if !ok1 || !ok2 || !ok3 {
		fixed := len(utf16.Encode([]rune(fill("x", "x")))) - names
		most := 3 * 67
		for most-fixed < leastRoom {
			most += 67
		}
		name = cutUCS2(name, 20)
		return fill(name, cutUCS2(what, max(12, most-fixed-len(utf16.Encode([]rune(name))))))
	}
	fixed := septets(bare) - names
	room := oneSegment - fixed
	for n := 2; room < leastRoom; n++ {
		room = n*(oneSegment-7) - fixed
	}
	if septets(gsmName)+septets(gsmWhat) > room {
		gsmName = cutGSM(gsmName, max(12, room-septets(gsmWhat), min(20, room/2)))
		gsmWhat = cutGSM(gsmWhat, max(12, room-septets(gsmName)))
	}
	text, _ := gsm(fill(gsmName, gsmWhat))
	return text
}

// cutUCS2 shortens a text to at most so many UTF-16 units, and ends it with "…" then.
func cutUCS2(s string, most int) string {
	runes := []rune(s)
	if len(utf16.Encode(runes)) <= most {
		return s
	}
	for len(utf16.Encode(runes)) > most-1 {
		runes = runes[:len(runes)-1]
	}
	return strings.TrimRight(string(runes), " ") + "…"
}

// unlinked breaks what a phone would turn into a second link.
func unlinked(s string) string {
	return strings.NewReplacer("://", " ", "www.", "www ", "WWW.", "WWW ").Replace(s)
}

// cutGSM shortens a text of the GSM alphabet, which has no "…", to at most so many septets.
func cutGSM(s string, most int) string {
	if septets(s) <= most {
		return s
	}
	for septets(s) > most-2 {
		runes := []rune(s)
		s = string(runes[:len(runes)-1])
	}
	return strings.TrimRight(s, " (-,.") + ".."
}

// gsmAlphabet is the default alphabet of 3GPP TS 23.038 without its control characters.
const gsmAlphabet = "@£$¥èéùìòÇØøÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"

// septets is the length of a text of the GSM alphabet. Everything that gsm returns counts one.
func septets(s string) int { return len([]rune(s)) }

// gsm folds a text into the GSM alphabet: look-alikes of punctuation, letters without the accents that
// the alphabet lacks. ok is false when letters or digits would be lost.
func gsm(s string) (folded string, ok bool) {
	var b strings.Builder
	ok = true
	for _, r := range norm.NFC.String(s) {
		if strings.ContainsRune(gsmAlphabet, r) {
			b.WriteRune(r)
			continue
		}
		if like, is := gsmLike(r); is {
			b.WriteString(like)
			continue
		}
		plain := ""
		for _, d := range norm.NFKD.String(string(r)) {
			if unicode.Is(unicode.Mn, d) {
				continue
			}
			if like, is := gsmLike(d); is {
				plain += like
			} else if strings.ContainsRune(gsmAlphabet, d) {
				plain += string(d)
			} else if unicode.In(d, unicode.L, unicode.M, unicode.N) {
				return "", false
			}
		}
		b.WriteString(plain) // nothing, for an emoji
	}
	return strings.Join(strings.Fields(b.String()), " "), ok
}

// gsmLike is what stands in for a sign that the alphabet lacks, or has only at the price of two septets.
func gsmLike(r rune) (string, bool) {
	switch r {
	case '‘', '’', '‚', 'ʼ', '′', '`', '´':
		return "'", true
	case '“', '”', '„', '«', '»', '″':
		return `"`, true
	case '[', '{':
		return "(", true
	case ']', '}':
		return ")", true
	case '…':
		return "...", true
	case '€':
		return "EUR", true
	case '~', '^', '|', '\\', '−', '•', '·':
		return "-", true
	case '×':
		return "x", true
	case '™':
		return "", true
	case 'ç':
		return "c", true // the alphabet has the capital alone
	case 'ı':
		return "i", true
	case 'ł':
		return "l", true
	case 'Ł':
		return "L", true
	case 'đ', 'ð':
		return "d", true
	case 'Đ', 'Ð':
		return "D", true
	case 'œ':
		return "oe", true
	case 'Œ':
		return "OE", true
	case 'þ':
		return "th", true
	case 'Þ':
		return "Th", true
	}
	if unicode.Is(unicode.Pd, r) {
		return "-", true
	}
	if unicode.IsSpace(r) {
		return " ", true
	}
	return "", false
}
