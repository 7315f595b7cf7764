package waitlist

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// ClassifyReply says what a shopper's text asks for: "stop" (never text me again), "start" (a stop is
// taken back) or "". optOutType is Twilio's own reading of the text, if it sent one.
//
// Any wording that a reasonable person understands as a revocation is one (47 CFR 64.1200(a)(10)), and
// Twilio knows only a handful of words, each as the whole text. So where a text is unclear ("I'll stop
// by") it is a stop: a shopper who is not told is a smaller harm than one who is told against their will.
func ClassifyReply(body, optOutType string) string {
	words := plainWords(body)
	text := strings.Join(words, " ")
	switch {
	case strings.EqualFold(optOutType, "STOP"), isStop(text), hasStop(words, text):
		return "stop"
	case strings.EqualFold(optOutType, "START"), isStart(text):
		return "start"
	}
	return ""
}

// isStop knows the texts that are nothing but a stop, in the languages of our shoppers' phones.
func isStop(text string) bool {
	switch text {
	case "stop", "stopall", "stop all", "quit", "end", "revoke", "optout", "opt out", "cancel", "unsubscribe",
		"stop sms", "sms stop", "remove", "no more",
		"arret", "arreter", "desabonner", "parar", "pare", "baja", "alto", "cancelar", "sair", "basta", "ferma",
		"stopp", "abmelden", "aus", "annuleren", "afmelden", "avsluta", "stopper", "peru", "lopeta":
		return true
	}
	return false
}

// isStart knows Twilio's words for coming back (START, YES, UNSTOP), which it obeys itself, and no others:
// taking a stop back must be meant.
func isStart(text string) bool { return text == "start" || text == "yes" || text == "unstop" }

// hasStop finds a stop inside a longer text, word by word: "nonstop" is none.
func hasStop(words []string, text string) bool {
	for _, word := range words {
		switch word {
		case "stop", "stopall", "stopp", "quit", "cancel", "revoke", "optout", "unsubscribe", "abmelden":
			return true
		}
		if len(word) >= 9 && withinOneEdit(word, "unsubscribe") {
			return true
		}
	}
	padded := " " + text + " "
	for _, phrase := range []string{
		"opt out", "opt me out", "un subscribe", "remove me", "remove my number", "take me off", "delete my number",
		"wrong number", "wrong person", "no more texts", "no more messages", "leave me alone",
		"dont text", "dont message", "dont contact", "do not text", "do not message", "do not contact",
		"never text", "never message", "never contact", "keine sms", "keine nachrichten", "plus de sms", "no mas",
	} {
		if strings.Contains(padded, " "+phrase+" ") {
			return true
		}
	}
	return false
}

// plainWords are the words of a text without case, accents, punctuation, emoji and invisible characters.
func plainWords(body string) []string {
	var b strings.Builder
	for _, r := range norm.NFKD.String(cases.Fold().String(norm.NFKC.String(body))) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r):
			b.WriteRune(r)
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf), r == '\'', r == '’', r == '‘', r == 'ʼ':
			// an accent, an invisible character, or the apostrophe of "don't"
		default:
			b.WriteByte(' ')
		}
	}
	return strings.Fields(b.String())
}

// withinOneEdit says whether one letter added, dropped, changed or swapped with its neighbour makes the
// two words equal.
func withinOneEdit(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	if len(a) < len(b) {
		return a[i:] == b[i+1:]
	}
	if i == len(a) || a[i+1:] == b[i+1:] {
		return true
	}
	return i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
}
