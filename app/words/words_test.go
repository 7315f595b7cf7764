package words

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/text/feature/plural"
)

var variable = regexp.MustCompile(`\{[a-z]+\}`)

func variables(text string) []string {
	found := variable.FindAllString(text, -1)
	slices.Sort(found)
	return found
}

// faults says what is wrong with a language's sentences, compared with English.
func faults(l *Language) (found []string) {
	english := languages["en"]
	same := map[string]bool{}
	if l.Code == "fr" {
		same["minutes"] = true // the word is French
	}
	for key, want := range english.texts {
		got, ok := l.texts[key]
		if !ok {
			found = append(found, "lacks "+key)
			continue
		}
		if want.forms == nil {
			if got.text == "" || got.text == want.text {
				found = append(found, key+" is not translated")
			}
			if !slices.Equal(variables(got.text), variables(want.text)) {
				found = append(found, key+" has other variables")
			}
			continue
		}
		for n := range 1001 {
			form := plural.Cardinal.MatchPlural(l.tag, n, 0, 0, 0, 0)
			text, ok := got.forms[form]
			switch {
			case !ok:
				found = append(found, key+" lacks the plural form of "+time.Duration(n).String())
			case !slices.Equal(variables(text), []string{"{n}"}):
				found = append(found, key+" has other variables")
			case text == want.forms[form] && !same[key]:
				found = append(found, key+" is not translated")
			}
		}
		if got.forms[plural.Other] == "" {
			found = append(found, key+" lacks the form other")
		}
	}
	for key := range l.texts {
		if _, ok := english.texts[key]; !ok {
			found = append(found, "has "+key+", which English has not")
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func TestEveryLanguageHasEverySentence(t *testing.T) {
	t.Parallel()
	if len(All()) != 14 {
		t.Errorf("%d languages", len(All()))
	}
	for _, l := range All()[1:] {
		for _, fault := range faults(l) {
			t.Errorf("%s: %s", l.Name, fault)
		}
	}
	for key, s := range languages["en"].texts {
		if s.text == "" && s.forms[plural.One] == "" {
			t.Errorf("English %s is empty", key)
		}
	}
}

func TestALanguageWithAFaultIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key  string
		make func(sentence) *sentence
		want string
	}{
		"in English":     {"mail.subject", func(sentence) *sentence { return &sentence{text: languages["en"].texts["mail.subject"].text} }, "mail.subject is not translated"},
		"lost variable":  {"mail.subject", func(sentence) *sentence { return &sentence{text: "jest"} }, "mail.subject has other variables"},
		"lacks":          {"mail.subject", func(sentence) *sentence { return nil }, "lacks mail.subject"},
		"lost plural":    {"hours", func(s sentence) *sentence { return without(s, plural.Few) }, "hours lacks the plural form of 2ns"},
		"lost the other": {"hours", func(s sentence) *sentence { return without(s, plural.Other) }, "hours lacks the form other"},
	} {
		l := &Language{Code: "pl", tag: languages["pl"].tag, texts: map[string]sentence{}}
		for key, s := range languages["pl"].texts {
			if key != c.key {
				l.texts[key] = s
			} else if made := c.make(s); made != nil {
				l.texts[key] = *made
			}
		}
		if found := faults(l); !slices.Contains(found, c.want) {
			t.Errorf("%s: found %q", name, found)
		}
	}
}

func without(s sentence, form plural.Form) *sentence {
	forms := map[plural.Form]string{}
	for f, text := range s.forms {
		if f != form {
			forms[f] = text
		}
	}
	return &sentence{forms: forms}
}

// Every key that the program says is there, and none is left over.
func TestEverySentenceIsSaid(t *testing.T) {
	t.Parallel()
	said := regexp.MustCompile(`\.(?:Say|Count)\("([a-z.]+)"`)
	quoted := regexp.MustCompile(`"([a-z.]+)"`)
	english := languages["en"].texts
	used := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != "../.." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		raw, err := os.ReadFile(path)
		for _, m := range said.FindAllStringSubmatch(string(raw), -1) {
			if _, ok := english[m[1]]; !ok {
				t.Errorf("%s says %s, and there is no such sentence", path, m[1])
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(string(raw), -1) {
			used[m[1]], used[m[1]+".reserved"] = true, true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for key := range english {
		if !used[key] {
			t.Errorf("%s is never said", key)
		}
	}
}

func TestTheShoppersLocaleIsFollowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		locales []string
		want    string
	}{
		{[]string{"de"}, "de"}, {[]string{"de-AT", "fr"}, "de"}, {[]string{"DE_ch"}, "de"}, {[]string{"pt-PT"}, "pt-BR"}, {[]string{"pt-BR"}, "pt-BR"},
		{[]string{"no"}, "nb"}, {[]string{"nn-NO"}, "nb"}, {[]string{"nb"}, "nb"}, {[]string{"ja-JP"}, "ja"},
		{[]string{"ar", "fr"}, "fr"}, {[]string{"", "sv"}, "sv"}, {[]string{"x", "zz", "fi"}, "fi"}, {[]string{"ca"}, "en"}, {nil, "en"}, {[]string{"ar"}, "en"},
	} {
		if got := In(c.locales...).Code; got != c.want {
			t.Errorf("%q: got %s, want %s", c.locales, got, c.want)
		}
	}
	for header, want := range map[string]string{"": "en", "de-DE,de;q=0.9,en;q=0.8": "de", "ar, cs;q=0.5": "cs", "%%": "en"} {
		if got := Accepted(header).Code; got != want {
			t.Errorf("Accept-Language %q: got %s, want %s", header, got, want)
		}
	}
}

func TestATimeIsSaidInWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		locale      string
		d           time.Duration
		long, short string
	}{
		{"en", time.Minute, "1 minute", "1 min"},
		{"en", 15 * time.Minute, "15 minutes", "15 min"},
		{"en", time.Hour, "1 hour", "1 hour"},
		{"en", 90 * time.Minute, "90 minutes", "90 min"},
		{"en", 2 * time.Hour, "2 hours", "2 hours"},
		{"en", 48 * time.Hour, "2 days", "2 days"},
		{"en", 0, "1 minute", "1 min"},
		{"pl", 3 * time.Hour, "3 godziny", "3 godziny"},
		{"pl", 5 * time.Hour, "5 godzin", "5 godzin"},
		{"cs", 4 * time.Minute, "4 minuty", "4 min"},
		{"ja", 30 * time.Minute, "30分", "30分"},
	} {
		l := In(c.locale)
		if long, short := l.Time(c.d), l.Short(c.d); long != c.long || short != c.short {
			t.Errorf("%s %v: got %q and %q", c.locale, c.d, long, short)
		}
	}
}

func TestWhatIsFilledInIsNotFilledAgain(t *testing.T) {
	t.Parallel()
	if got := Fill("{a} and {b}", "a", "{b}", "b", "x"); got != "{b} and x" {
		t.Errorf("got %q", got)
	}
}
