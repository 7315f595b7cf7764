// Package templates holds every page that Holdfast serves, as templ components. A component decides
// nothing: it is given what the domain answered and says it in words.
//
// All of them work without JavaScript. Times are written in UTC inside a <time> element with a
// machine-readable value; the scripts in web/static show them in the reader's own zone. A page never
// contains a script or a style of its own, so that the content security policy can forbid them.
package templates

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"holdfast/app/waitlist"
	language "holdfast/app/words"
)

// Assets turns the name of a file in web/static into the URL that it is served at.
type Assets func(name string) string

// stamp is a time for machines: RFC 3339, in UTC, to the second.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// clock and calendar are a time for people who read without our script.
func clock(t time.Time) string    { return t.UTC().Format("15:04 UTC") }
func calendar(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04 UTC") }

// left is the time from now until then as a countdown shows it, 14:59 or 1:02:03; never negative.
func left(now, then time.Time) string {
	s := max(0, int(then.Sub(now).Round(time.Second)/time.Second))
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// count is a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// before and after are what a sentence has around one of its variables, which is shown as an element.
func before(text, variable string) string { b, _, _ := strings.Cut(text, "{"+variable+"}"); return b }
func after(text, variable string) string  { _, a, _ := strings.Cut(text, "{"+variable+"}"); return a }

// held is how long a press holds the unit.
func held(l *language.Language, o waitlist.Offer) string {
	return l.Time(time.Duration(o.HoldMinutes) * time.Minute)
}

// price is an amount as Shopify writes it ("129.0") with its currency (ISO 4217), for people.
func price(amount, currency string) string {
	if amount == "" {
		return ""
	}
	if whole, fraction, ok := strings.Cut(amount, "."); ok && len(fraction) == 1 {
		amount = whole + "." + fraction + "0"
	}
	switch currency {
	case "USD":
		return "$" + amount
	case "EUR":
		return "€" + amount
	case "GBP":
		return "£" + amount
	case "":
		return amount
	}
	return amount + " " + currency
}

// mills is an amount in thousandths, rounded up to hundredths, as price takes it.
func mills(n int) string {
	hundredths := (n + 9) / 10
	return fmt.Sprintf("%d.%02d", hundredths/100, hundredths%100)
}

// variantTitle is empty for a product without options, whose only variant Shopify calls "Default Title".
func variantTitle(title string) string {
	if title == "Default Title" {
		return ""
	}
	return title
}

// webAddress lets only http and https through: the address of a picture or a checkout comes from outside.
func webAddress(s string) string {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") {
		return ""
	}
	return s
}

func id(n int64) string { return strconv.FormatInt(n, 10) }

func channelName(c waitlist.Channel) string {
	if c == waitlist.SMS {
		return "text"
	}
	return "email"
}
