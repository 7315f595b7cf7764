package waitlist

import (
	"net/mail"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nyaruka/phonenumbers"
	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"
)

// Address is a contact as it was understood.
type Address struct {
	Channel Channel
	Key     string // what makes it unique: lower-case mail address, or E.164
	Send    string // what is sent to
	Shown   string // for the person who typed it
}

// maxContact is the longest contact that is looked at, in bytes: the longest mail address that RFC 5321
// can be read to allow (64 before the @, 255 after it).
const maxContact = 320

// ParseAddress understands a contact that somebody typed, or says what is wrong with it (*Invalid with
// code invalid_email, invalid_phone or invalid_channel). country is the region of a phone number
// without a country code (ISO 3166, upper case).
//
// What it returns depends on its arguments alone, and Send gives the same address again. That an
// address is well-formed does not mean that it exists, or that it belongs to whoever typed it.
func ParseAddress(channel Channel, typed, country string) (Address, error) {
	switch channel {
	case Email:
		return parseEmail(typed)
	case SMS:
		return parsePhone(typed, country)
	}
	return Address{}, &Invalid{Code: "invalid_channel", Field: "channel", Message: `Choose how to be told: "email" or "sms".`}
}

// Mask shows as much of an address as its owner needs to recognise it: "a…@example.com", "+44 …3456".
func Mask(channel Channel, address string) string {
	if channel == Email {
		local, domain, ok := strings.Cut(address, "@")
		if !ok || local == "" {
			return "…"
		}
		first, _ := utf8.DecodeRuneInString(local)
		return string(first) + "…@" + shownDomain(domain)
	}
	if n := parsedPhone(address, ""); n != nil {
		national := phonenumbers.GetNationalSignificantNumber(n)
		return "+" + strings.TrimSuffix(strings.TrimPrefix(address, "+"), national) + " …" + national[max(0, len(national)-4):]
	}
	return "…"
}

// ---- mail

func badEmail(message string) (Address, error) {
	return Address{}, &Invalid{Code: "invalid_email", Field: "contact", Message: message}
}

// domains is the strictest reading of a host name: mapped as browsers do, letters, digits and hyphens
// only, right-to-left labels unmixed, lengths of the DNS.
func domains() *idna.Profile {
	return idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(true), idna.VerifyDNSLength(true))
}

// parseEmail takes what people type and paste ("Ann <ann@example.com>", "mailto:", a trailing comma) and
// is strict about the rest. net/mail alone accepts comments, groups, quoted local parts, which have been
// used to smuggle SMTP parameters, and hosts that no mail can reach.
func parseEmail(typed string) (Address, error) {
	if len(typed) > maxContact {
		return badEmail("This is too long for an email address.")
	}
	if !utf8.ValidString(typed) {
		return badEmail("This is not readable text. Type the email address again.")
	}
	s := strings.TrimFunc(typed, func(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) })
	for _, r := range s {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return badEmail("There is a line break or an invisible character in this email address. Type it again.")
		}
	}
	if rest, ok := cutPrefixFold(s, "mailto:"); ok {
		s, _, _ = strings.Cut(rest, "?")
	}
	s = strings.TrimSpace(strings.TrimRight(s, ",; "))
	if name, inside, ok := strings.Cut(s, "<"); ok {
		inside, closed := strings.CutSuffix(inside, ">")
		if !closed || strings.ContainsAny(inside, "<>") || strings.Contains(name, "@") {
			return badEmail("Give one email address, such as ann@example.com.")
		}
		s = strings.TrimSpace(inside)
	}
	switch {
	case s == "":
		return badEmail("Enter an email address.")
	case !strings.Contains(s, "@") && looksLikePhone(s):
		return badEmail("That looks like a phone number. Choose text message, or enter an email address.")
	case !strings.Contains(s, "@"):
		return badEmail("An email address has an @ in it, such as ann@example.com.")
	case strings.Count(s, "@") > 1 && !strings.Contains(s, `"`), strings.ContainsAny(s, ",;"):
		return badEmail("Give only one email address.")
	case strings.ContainsFunc(s, unicode.IsSpace) && !strings.Contains(s, `"`):
		return badEmail("There is a space in this email address.")
	}

	at := strings.LastIndex(s, "@")
	local, domain := s[:at], strings.TrimSuffix(s[at+1:], ".") // one dot at the end is the root of the DNS
	switch {
	case local == "":
		return badEmail("The part before the @ is missing.")
	case domain == "":
		return badEmail("The part after the @ is missing, such as example.com.")
	case len(local) > 64:
		return badEmail("The part before the @ is too long.")
	case strings.HasPrefix(local, ".") || strings.HasSuffix(local, ".") || strings.Contains(local, ".."):
		return badEmail("A dot is in the wrong place before the @.")
	}
	for _, r := range local {
		if r > unicode.MaxASCII {
			return badEmail("Before the @ only letters from a to z, digits and simple signs can be used.")
		}
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune(".!#$%&'*+-/=?^_`{|}~", r)) {
			return badEmail("The sign " + string(r) + " cannot be used before the @.")
		}
	}
	ascii, err := domains().ToASCII(domain)
	if err != nil || strings.HasSuffix(ascii, ".") {
		return badEmail("The part after the @ is not a valid domain. Check it for typing errors.")
	}
	ascii = strings.ToLower(ascii)
	dot := strings.LastIndex(ascii, ".")
	if top := ascii[dot+1:]; dot < 0 || len(top) < 2 || top[0] >= '0' && top[0] <= '9' {
		return badEmail("The part after the @ is not a complete domain, such as example.com.")
	}
	send := local + "@" + ascii
	if len(send) > 254 { // RFC 5321 4.5.3.1.3: a path has 256 octets, with its brackets
		return badEmail("This is too long for an email address.")
	}
	if a, err := mail.ParseAddress(send); err != nil || a.Address != send {
		return badEmail("This is not a valid email address. Check it for typing errors.")
	}
	return Address{Channel: Email, Key: strings.ToLower(send), Send: send, Shown: local + "@" + shownDomain(ascii)}, nil
}

// shownDomain is a domain as its owner writes it, or its ASCII form when the other could not be shown.
func shownDomain(ascii string) string {
	shown, err := domains().ToUnicode(ascii)
	if err != nil || strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ascii
	}
	return shown
}

func cutPrefixFold(s, prefix string) (string, bool) {
	if len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix) {
		return s[len(prefix):], true
	}
	return s, false
}

func looksLikePhone(s string) bool {
	digits := 0
	for _, r := range s {
		switch {
		case unicode.IsDigit(r):
			digits++
		case unicode.IsLetter(r):
			return false
		}
	}
	return digits >= 5
}

// ---- phones

func badPhone(message string) (Address, error) {
	return Address{}, &Invalid{Code: "invalid_phone", Field: "contact", Message: message}
}

var extension = regexp.MustCompile(`(?i)\d\W*(?:x|ext\.?|extension|(?:[#;]|,,)+\s*(?:ext=?)?)\W*\d{1,7}\W*$`)

// parsePhone understands a mobile number as people write it: with the digits and spaces of their script,
// with what a phone's address book pastes along, and with the international prefixes of their country.
// Repairs can guess wrong, which is why the result is always shown to the person.
func parsePhone(typed, country string) (Address, error) {
	if len(typed) > maxContact {
		return badPhone("This is too long for a phone number.")
	}
	if !utf8.ValidString(typed) {
		return badPhone("This is not readable text. Type the phone number again.")
	}
	s, bad := plainPhone(typed)
	switch {
	case strings.Contains(s, "@"):
		return badPhone("That looks like an email address. Choose email, or enter a mobile number.")
	case bad < 0 && !strings.ContainsAny(s, "0123456789"):
		return badPhone("Enter a mobile number.")
	case extension.MatchString(s):
		return badPhone("A number with an extension cannot receive texts. Enter a mobile number.")
	case unicode.IsLetter(bad):
		return badPhone("A phone number has digits only, no letters.")
	case bad >= 0:
		return badPhone("There is a sign in this phone number that does not belong there. Type it again.")
	case strings.LastIndex(s, "+") > strings.IndexAny(s, "+0123456789"):
		return badPhone("A + may stand only once, at the beginning of the number.")
	}
	country = strings.ToUpper(country)
	n, err := understandPhone(s, country)
	if err != nil {
		return Address{}, err
	}
	switch phonenumbers.GetNumberType(n) {
	case phonenumbers.MOBILE, phonenumbers.FIXED_LINE_OR_MOBILE: // in the US, Canada and Mexico nobody can tell them apart
	case phonenumbers.FIXED_LINE:
		return badPhone("This is a landline, which cannot receive texts. Enter a mobile number.")
	default:
		return badPhone("This is a service number, which cannot receive texts. Enter a mobile number.")
	}
	e164 := phonenumbers.Format(n, phonenumbers.E164)
	again := parsedPhone(e164, "")
	if n.GetExtension() != "" || phonenumbers.GetRegionCodeForNumber(n) == "001" || again == nil || phonenumbers.Format(again, phonenumbers.E164) != e164 {
		return badPhone("We do not recognise this phone number. Check it for typing errors.")
	}
	return Address{Channel: SMS, Key: e164, Send: e164, Shown: phonenumbers.Format(n, phonenumbers.INTERNATIONAL)}, nil
}

// plainPhone reduces what was typed to ASCII digits, +, brackets and separators, and returns the first
// character that it could not (kept in the result for the sake of a good message), or -1. The library
// stumbles over much of what it removes: a comma or a line end after the number, the invisible direction
// marks that iOS copies along, digits of India.
func plainPhone(typed string) (s string, bad rune) {
	var b strings.Builder
	for _, r := range norm.NFKC.String(strings.TrimSpace(typed)) {
		switch {
		case unicode.Is(unicode.Cf, r), unicode.In(r, unicode.So, unicode.Me, unicode.Variation_Selector), 0x1F3FB <= r && r <= 0x1F3FF:
			// invisible, or a part of an emoji
		case unicode.Is(unicode.Nd, r):
			b.WriteByte('0' + digit(r))
		case unicode.Is(unicode.Zs, r):
			b.WriteByte(' ')
		case unicode.Is(unicode.Pd, r), r == '−', r == 'ー', r == '~':
			b.WriteByte('-')
		default:
			b.WriteRune(r)
		}
	}
	s = strings.TrimFunc(b.String(), func(r rune) bool {
		return r == ' ' || r == '<' || r == '>' || r == '|' || r == '`' || r == '´' ||
			unicode.IsPunct(r) && !strings.ContainsRune("#*()@", r)
	})
	if strings.Count(s, "(") != strings.Count(s, ")") {
		s = strings.Trim(s, "()")
	} else if strings.HasPrefix(s, "(") && strings.HasSuffix(s, ")") && strings.Count(s, "(") == 1 {
		s = s[1 : len(s)-1]
	}
	for _, r := range s {
		if !strings.ContainsRune("0123456789+-./()[] ", r) {
			return s, r
		}
	}
	return s, -1
}

// digit is the value of a decimal digit of any script: Unicode encodes them in runs of ten, from zero up.
func digit(r rune) byte {
	for _, run := range unicode.Nd.R16 {
		if rune(run.Lo) <= r && r <= rune(run.Hi) {
			return byte((r - rune(run.Lo)) % 10)
		}
	}
	for _, run := range unicode.Nd.R32 {
		if rune(run.Lo) <= r && r <= rune(run.Hi) {
			return byte((r - rune(run.Lo)) % 10)
		}
	}
	return 0
}

// understandPhone finds the valid number that was meant: as it stands, or repaired in one way.
func understandPhone(s, country string) (*phonenumbers.PhoneNumber, error) {
	fail := func(message string) (*phonenumbers.PhoneNumber, error) {
		_, err := badPhone(message)
		return nil, err
	}
	digits := keepDigits(s)
	plus := strings.HasPrefix(s, "+") || strings.HasPrefix(s, "(+")
	if n := parsedPhone(s, country); n != nil {
		// An Argentine mobile that is typed as at home looks like a landline without the 9.
		if n.GetCountryCode() == 54 && phonenumbers.GetNumberType(n) == phonenumbers.FIXED_LINE {
			if m := parsedPhone("+549"+phonenumbers.GetNationalSignificantNumber(n), ""); m != nil && phonenumbers.GetNumberType(m) == phonenumbers.MOBILE {
				return m, nil
			}
		}
		return n, nil
	}
	var repairs []string
	// Mexico gave up the prefixes 1, 01, 044 and 045 in 2019; people still write them.
	national, mexican := digits, country == "MX" && !plus
	if plus {
		national, mexican = strings.CutPrefix(digits, "52")
	}
	if mexican {
		for _, prefix := range []string{"044", "045", "01", "1"} {
			if rest, ok := strings.CutPrefix(national, prefix); ok && len(rest) == 10 {
				repairs = append(repairs, "+52"+rest)
			}
		}
	}
	if !plus {
		if rest, ok := strings.CutPrefix(digits, "00"); ok {
			repairs = append(repairs, "+"+rest)
		}
		if rest, ok := strings.CutPrefix(digits, "011"); ok {
			repairs = append(repairs, "+"+rest)
		}
		if len(digits) >= 11 {
			repairs = append(repairs, "+"+digits)
		}
	}
	for _, repaired := range repairs {
		if n := parsedPhone(repaired, ""); n != nil {
			return n, nil
		}
	}
	switch {
	case len(digits) < 7:
		return fail("This phone number is too short.")
	case len(digits) > 17:
		return fail("This phone number is too long. Give only one number.")
	case !plus && !phonenumbers.GetSupportedRegions()[country]:
		return fail("Begin the phone number with + and the country code, such as +44.")
	}
	return fail("We do not recognise this phone number. Check it, or begin with + and the country code, such as +44.")
}

func keepDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, s)
}

// parsedPhone is the valid number that the library reads, or nil. Versions of the library up to 1.8.0
// panicked on some input (nyaruka/phonenumbers 148, 268): a panic is a number that is not understood.
func parsedPhone(s, country string) (n *phonenumbers.PhoneNumber) {
	defer func() {
		if recover() != nil {
			n = nil
		}
	}()
	n, err := phonenumbers.Parse(s, country)
	if err != nil || !phonenumbers.IsValidNumber(n) {
		return nil
	}
	return n
}
