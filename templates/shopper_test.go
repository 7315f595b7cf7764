package templates_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"

	"holdfast/app/waitlist"
	"holdfast/app/words"
	"holdfast/templates"
)

var tag = regexp.MustCompile(`<[^>]*>`)

// shopperPages is every page of a shopper's in a language, by name.
func shopperPages(locale, shopLocale string) map[string]templ.Component {
	asset := func(name string) string { return "/static/" + name }
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	pages := map[string]templ.Component{"plain": templates.Plain(asset, words.In(locale), words.In(locale).Say("again.h"), words.In(locale).Say("again")),
		"tap": templates.TapPage(asset, words.In(locale), "§", words.In(locale).Say("tap.joined.h"), words.In(locale).Say("tap.joined", "contact", "a…"))}
	for _, state := range []string{"open", "securing", "held", "gone", "lapsed", "passed", "sold", "expired", "left", "invalid"} {
		for _, reserved := range []bool{false, true} {
			pages["/r "+state] = templates.ReservePage(asset, waitlist.Offer{ShopName: "§", Locale: locale, ShopLocale: shopLocale, State: state, Reserved: reserved,
				Now: now, Until: now.Add(time.Hour), HoldMinutes: 15, Place: 3, PlaceToken: "t", CheckoutURL: "https://example.com"}, "t")
			if state != "open" {
				break
			}
			pages["/r reserved"] = pages["/r open"]
		}
	}
	for _, state := range []string{waitlist.Waiting, waitlist.Offered, waitlist.Holding, waitlist.Sold, waitlist.Expired, waitlist.Left} {
		pages["/q "+state] = templates.PlacePage(asset, waitlist.MyPlace{ShopName: "§", Locale: locale, ShopLocale: shopLocale, State: state, Place: 3, Reserve: "t"}, "t")
	}
	for name, done := range map[string]bool{"/u ask": false, "/u done": true} {
		pages[name] = templates.UnsubscribePage(asset, waitlist.Optout{ShopName: "§", Locale: locale, ShopLocale: shopLocale, Contact: "a…", Unsubscribed: done}, "t")
	}
	return pages
}

func read(t *testing.T, page templ.Component) (html, text string) {
	t.Helper()
	var b strings.Builder
	if err := page.Render(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.String(), strings.Join(strings.Fields(tag.ReplaceAllString(b.String(), " ")), " ")
}

// No page has an English word in another language, and none leaves a variable unfilled.
func TestEveryShoppersPageIsInItsLanguage(t *testing.T) {
	t.Parallel()
	english := regexp.MustCompile(`\b(the|your|you|until|queue|next|shop)\b`)
	for _, l := range words.All() {
		for name, page := range shopperPages(l.Code, "en") {
			html, text := read(t, page)
			if !strings.Contains(html, `<html lang="`+l.Code+`">`) {
				t.Errorf("%s, %s: another language is declared", l.Name, name)
			}
			if strings.ContainsAny(text, "{}") {
				t.Errorf("%s, %s: a variable is left: %s", l.Name, name, text)
			}
			if l.Code != "en" && english.MatchString(text) {
				t.Errorf("%s, %s: %s", l.Name, name, text)
			}
		}
	}
}

func TestAShoppersPageFallsBackToTheShopsLanguage(t *testing.T) {
	t.Parallel()
	for name, page := range shopperPages("ar", "fi") {
		if html, _ := read(t, page); name != "plain" && name != "tap" && !strings.Contains(html, `<html lang="fi">`) {
			t.Errorf("%s is not in the shop's language", name)
		}
	}
}
