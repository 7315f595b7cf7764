package notify

import (
	"fmt"
	"html/template"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"golang.org/x/text/unicode/norm"

	"holdfast/app/waitlist"
)

// The texts of messages, in English.

// item is the product and, when it has several variants, which one.
func item(m waitlist.Outgoing) string {
	product, variant := oneLine(m.ProductTitle), oneLine(m.VariantTitle)
	if product == "" {
		product = "What you waited for"
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
	return "The shop"
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

// lasting is a duration in words: "30 minutes", "2 hours". short is for a text message.
func lasting(d time.Duration, short bool) string {
	minutes := max(1, int(d/time.Minute))
	n, unit := minutes, "minute"
	switch {
	case minutes%(24*60) == 0:
		n, unit = minutes/(24*60), "day"
	case minutes%60 == 0:
		n, unit = minutes/60, "hour"
	case short:
		return fmt.Sprintf("%d min", minutes)
	}
	if n != 1 {
		unit += "s"
	}
	return fmt.Sprintf("%d %s", n, unit)
}

// ---- mail

type mailText struct {
	Shop, Item, Name, Lasting    string
	Image                        string
	Reserved                     bool
	Reserve, Place, Unsubscribe  string
	Greeting, Opening, Condition string
}

func (s *Sender) mailText(m waitlist.Outgoing) mailText {
	t := mailText{
		Shop: seller(m), Item: item(m), Name: oneLine(m.Name), Lasting: lasting(m.Window, false), Reserved: m.Reserved,
		Reserve:     s.public + "/r/" + m.ReserveToken,
		Place:       s.public + "/q/" + m.PlaceToken,
		Unsubscribe: s.public + "/u/" + m.UnsubscribeToken,
	}
	if strings.HasPrefix(m.ImageURL, "https://") {
		t.Image = m.ImageURL
	}
	t.Greeting = "Hello,"
	if t.Name != "" {
		t.Greeting = "Hello " + t.Name + ","
	}
	t.Opening = t.Item + " is back at " + t.Shop + ", and it is your turn."
	if m.Reserved {
		t.Opening = t.Item + " is back at " + t.Shop + ", and one is reserved for you."
		t.Condition = "It is yours for " + t.Lasting + " from when this mail was sent. Press the button on the page that opens, and go to checkout: from then on it is held for another " +
			lasting(time.Duration(m.HoldMinutes)*time.Minute, false) + ". If you do nothing, it goes to the next in line."
		return t
	}
	t.Condition = "Your turn lasts " + t.Lasting + " from when this mail was sent. Press the button on the page that opens, and one unit is set aside for you while you check out. If you do nothing, it goes to the next in line."
	return t
}

func (t mailText) subject() string {
	if t.Reserved {
		return t.Item + " is back: one is reserved for you"
	}
	return t.Item + " is back: reserve yours"
}

// Button is what the link is called.
func (t mailText) Button() string {
	if t.Reserved {
		return "Get yours"
	}
	return "Reserve yours"
}

func (t mailText) plain() string {
	return strings.Join([]string{
		t.Greeting,
		t.Opening,
		t.Button() + ": " + t.Reserve,
		t.Condition,
		"See your place in the queue, or leave it: " + t.Place,
		"You get this mail because you asked " + t.Shop + " to tell you. No more mails like this: " + t.Unsubscribe,
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
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{{.Item}}</title></head>
<body style="margin:0;padding:24px;background:#f6f5f2;color:#1c1b19;font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif">
<div style="max-width:520px;margin:0 auto;padding:32px;background:#ffffff;border-radius:12px">
<p style="margin:0 0 16px;font-weight:600">{{.Shop}}</p>
{{if .Image}}<p style="margin:0 0 16px"><img src="{{.Image}}" alt="" width="456" style="display:block;width:100%;height:auto;border-radius:8px"></p>{{end}}
<p>{{.Greeting}}</p>
<p>{{.Opening}}</p>
<p style="margin:28px 0"><a href="{{.Reserve}}" style="display:inline-block;padding:14px 24px;background:#1c1b19;color:#ffffff;border-radius:8px;text-decoration:none;font-weight:600">{{.Button}}</a></p>
<p>{{.Condition}}</p>
<p><a href="{{.Place}}" style="color:#1c1b19">See your place in the queue, or leave it</a></p>
<p style="margin:32px 0 0;color:#6b6862;font-size:13px">You get this mail because you asked {{.Shop}} to tell you. <a href="{{.Unsubscribe}}" style="color:#6b6862">No more mails like this</a></p>
</div></body></html>
`

// ---- text messages

// The parts of a text. The link stands between words: iOS replaces the text by a preview when a link is
// at its beginning or its end. No reply words are offered but STOP: Twilio takes several others (YES,
// CANCEL, END) as opting in or out.
func textParts(m waitlist.Outgoing) (afterShop, afterItem string) {
	if m.Reserved {
		return ": ", " is back. One is reserved for you for " + lasting(m.Window, true) + ": "
	}
	return ": ", " is back. Reserve yours within " + lasting(m.Window, true) + ": "
}

const optOut = " Reply STOP to opt out"

// oneSegment is how many septets of the GSM 7-bit alphabet one text carries (3GPP TS 23.038); a longer
// one is sent, and paid, as several of 153.
const oneSegment = 160

// textMessage words a text: the shop, what is back, for how long, one link, how to opt out. It uses the
// GSM alphabet and cuts the names so that it fits one segment, as far as the link leaves room. A name in
// a script that the alphabet does not have is kept as it is, which makes the text UCS-2 and longer.
func (s *Sender) textMessage(m waitlist.Outgoing) string {
	name, what := unlinked(seller(m)), unlinked(item(m))
	after, rest := textParts(m)
	link := s.public + "/r/" + m.ReserveToken
	gsmName, ok1 := gsm(name)
	gsmWhat, ok2 := gsm(what)
	if !ok1 || !ok2 {
		// 201 is three segments of UCS-2; beyond that the names are cut.
		room := 201 - len(utf16.Encode([]rune(after+rest+link+optOut)))
		name = cut(name, 20)
		return name + after + cut(what, max(12, room-len(utf16.Encode([]rune(name))))) + rest + link + optOut
	}
	room := oneSegment - septets(after+rest+link+optOut)
	if septets(gsmName)+septets(gsmWhat) > room {
		gsmName = cutGSM(gsmName, max(12, room-septets(gsmWhat), min(20, room/2)))
		gsmWhat = cutGSM(gsmWhat, max(12, room-septets(gsmName)))
	}
	return gsmName + after + gsmWhat + rest + link + optOut
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
