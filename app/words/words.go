// Package words is every sentence that a shopper reads, in every language that Holdfast speaks.
//
// There is one file per language, named by its code; en.json is the model of all. A sentence is added by a
// new key in each of them, and the tests say which file lacks one, has dropped a {variable}, still has the
// English, or misses a plural form that its language has (Unicode CLDR, by golang.org/x/text).
package words

import (
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/feature/plural"
	"golang.org/x/text/language"
)

//go:embed *.json
var files embed.FS

// Language is one language's sentences.
type Language struct {
	Code  string // what <html lang> says: BCP 47
	Name  string // in the language itself
	tag   language.Tag
	texts map[string]sentence
}

// sentence is a text, or one per plural form.
type sentence struct {
	text  string
	forms map[plural.Form]string
}

var formNames = map[string]plural.Form{"zero": plural.Zero, "one": plural.One, "two": plural.Two, "few": plural.Few, "many": plural.Many, "other": plural.Other}

func (s *sentence) UnmarshalJSON(raw []byte) error {
	if raw[0] == '"' {
		return json.Unmarshal(raw, &s.text)
	}
	named := map[string]string{}
	if err := json.Unmarshal(raw, &named); err != nil {
		return err
	}
	s.forms = map[plural.Form]string{}
	for name, text := range named {
		form, ok := formNames[name]
		if !ok {
			return fmt.Errorf("%q is no plural form", name)
		}
		s.forms[form] = text
	}
	return nil
}

// languages is every language, by the code of its file; English is the one that all else falls back to.
var languages, order = load([][2]string{
	{"en", "English"}, {"de", "Deutsch"}, {"fr", "Français"}, {"es", "Español"}, {"it", "Italiano"}, {"nl", "Nederlands"}, {"pt", "Português (Brasil)"},
	{"pl", "Polski"}, {"da", "Dansk"}, {"sv", "Svenska"}, {"nb", "Norsk"}, {"fi", "Suomi"}, {"cs", "Čeština"}, {"ja", "日本語"},
})

func load(names [][2]string) (map[string]*Language, []*Language) {
	all := map[string]*Language{}
	var order []*Language
	for _, name := range names {
		l := &Language{Code: name[0], Name: name[1], tag: language.MustParse(name[0])}
		if l.Code == "pt" {
			l.Code = "pt-BR"
		}
		raw, err := files.ReadFile(name[0] + ".json")
		if err == nil {
			err = json.Unmarshal(raw, &l.texts)
		}
		if err != nil {
			panic(fmt.Errorf("words: %s: %w", path.Base(name[0]), err)) // a file of ours, which the tests have read
		}
		all[name[0]] = l
		order = append(order, l)
	}
	return all, order
}

// All returns the languages, English first.
func All() []*Language { return slices.Clone(order) }

// In returns the first of the wanted locales that there are words for, else English. A locale is BCP 47, with
// hyphen or underscore; its region is not looked at: pt-PT reads Brazilian Portuguese.
func In(locales ...string) *Language {
	for _, locale := range locales {
		tag, err := language.Parse(locale)
		if err != nil {
			continue
		}
		base, confidence := tag.Base()
		if confidence < language.High {
			continue
		}
		code := base.String()
		if code == "no" || code == "nn" {
			code = "nb"
		}
		if l := languages[code]; l != nil {
			return l
		}
	}
	return languages["en"]
}

// Accepted is In for the value of an Accept-Language header.
func Accepted(header string) *Language {
	tags, _, err := language.ParseAcceptLanguage(header)
	if err != nil {
		return languages["en"]
	}
	locales := make([]string, len(tags))
	for i, tag := range tags {
		locales[i] = tag.String()
	}
	return In(locales...)
}

// Say returns a sentence with its variables filled in, given as pairs of name and value. What is filled in is
// not looked at again. A key that there is not is a fault of the program.
func (l *Language) Say(key string, variables ...string) string {
	s, ok := l.texts[key]
	if !ok {
		panic("words: no sentence " + key)
	}
	return Fill(s.text, variables...)
}

// Fill replaces the {variables} of a text by their values, given as pairs.
func Fill(text string, variables ...string) string {
	pairs := make([]string, len(variables))
	for i, v := range variables {
		if pairs[i] = v; i%2 == 0 {
			pairs[i] = "{" + v + "}"
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// Count returns a sentence in the plural form that n has in this language, with n filled in as {n}.
func (l *Language) Count(key string, n int) string {
	s, ok := l.texts[key]
	if !ok {
		panic("words: no sentence " + key)
	}
	text, ok := s.forms[plural.Cardinal.MatchPlural(l.tag, n, 0, 0, 0, 0)]
	if !ok {
		text = s.forms[plural.Other]
	}
	return Fill(text, "n", strconv.Itoa(n))
}

// Time is a duration in words, to the minute: "30 minutes", "2 hours", "3 days".
func (l *Language) Time(d time.Duration) string {
	minutes := max(1, int(d/time.Minute))
	switch {
	case minutes%(24*60) == 0:
		return l.Count("days", minutes/(24*60))
	case minutes%60 == 0:
		return l.Count("hours", minutes/60)
	}
	return l.Count("minutes", minutes)
}

// Short is Time for a text message, where every letter is paid for: "30 min". That is the sign of the unit in
// every language that is written in Latin letters.
func (l *Language) Short(d time.Duration) string {
	minutes := max(1, int(d/time.Minute))
	if minutes%60 != 0 && l.Code != "ja" {
		return strconv.Itoa(minutes) + " min"
	}
	return l.Time(d)
}
