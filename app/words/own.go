package words

import (
	"regexp"
	"slices"
	"strings"
)

// Own is a sentence that a merchant may replace by their own.
type Own struct {
	Key, Label string
	Variables  []string // what it may name
	Required   []string // what it must name, once
}

var (
	mailVariables = []string{"item", "shop", "name", "time"}
	textVariables = []string{"shop", "item", "time", "link"}
)

// Owned is every sentence that a merchant may replace. Those of a reserved unit, which is held before its
// person is told, have keys of their own.
func Owned() []Own {
	return []Own{
		{"mail.subject.reserved", "Email: subject, when a unit is reserved", mailVariables, nil},
		{"mail.opening.reserved", "Email: first sentence, when a unit is reserved", mailVariables, nil},
		{"mail.button.reserved", "Email: button, when a unit is reserved", nil, nil},
		{"text.reserved", "Text, when a unit is reserved", textVariables, []string{"link"}},
		{"mail.subject", "Email: subject", mailVariables, nil},
		{"mail.opening", "Email: first sentence", mailVariables, nil},
		{"mail.button", "Email: button", nil, nil},
		{"text", "Text", textVariables, []string{"link"}},
	}
}

const longestOwn = 400

var (
	braces     = regexp.MustCompile(`\{[^{}]*\}`)
	webAddress = regexp.MustCompile(`(?i)://|\bwww\.|\b[a-z0-9-]+\.(com|net|org|io|co|shop|store|ly|me|de|fr|uk)\b`)
	stop       = regexp.MustCompile(`\bSTOP\b`)
	// What a phone company takes as an answer, besides STOP: asked for, it would opt people in or out.
	replyWords = regexp.MustCompile(`\b(YES|START|CANCEL|END|QUIT|HELP|INFO|UNSUBSCRIBE)\b`)
)

// Fault says what is wrong with a merchant's own sentence and what to do, or "". An empty one is ours.
func (o Own) Fault(text string) string {
	switch {
	case text == "":
		return ""
	case len([]rune(text)) > longestOwn:
		return "use at most 400 characters"
	case strings.ContainsAny(text, "\r\n"):
		return "write it in one line"
	}
	for _, found := range braces.FindAllString(text, -1) {
		name := found[1 : len(found)-1]
		if !slices.Contains(o.Variables, name) {
			if len(o.Variables) == 0 {
				return found + " cannot be used here: write plain words"
			}
			return found + " is not known here: use {" + strings.Join(o.Variables, "}, {") + "}"
		}
	}
	if strings.ContainsAny(braces.ReplaceAllString(text, ""), "{}") {
		return "a brace { or } is left over: variables are written like {" + "item" + "}"
	}
	if webAddress.MatchString(text) {
		return "leave web addresses out: the message has its own link, and a second one makes it look like spam"
	}
	if !slices.Contains(o.Required, "link") {
		return ""
	}
	switch at := strings.Index(text, "{link}"); {
	case strings.Count(text, "{link}") != 1:
		return "name {link} exactly once: it leads to what is reserved"
	case strings.TrimSpace(text[:at]) == "" || strings.TrimSpace(text[at+len("{link}"):]) == "":
		return "put {link} between words: at the beginning or the end, phones show a picture in place of the text"
	case text[at-1] != ' ' || text[at+len("{link}")] != ' ':
		return "leave a space before and after {link}"
	case !stop.MatchString(text):
		return "say how to opt out, with the word STOP in capitals: carriers and the law ask for it"
	case replyWords.MatchString(text):
		return "of the words that phone companies act upon, offer STOP alone, not " + replyWords.FindString(text)
	case strings.Count(text, "{shop}") > 1 || strings.Count(text, "{item}") > 1:
		return "name {shop} and {item} once each: a text is paid by its length"
	}
	return ""
}
