package notify

import (
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/app/waitlist"
)

// twilioErrorFile is what Twilio's error codes mean: the one place where that is written. The code, the page
// docs/twilio-errors.md and the tests are made from it.
//
//go:embed twilio_errors.csv
var twilioErrorFile string

// errorRow is a line of the file.
type errorRow struct {
	Code     int
	Message  string        // retry, once, unknown, failed or unsent
	After    time.Duration // how long to wait
	Suppress string        // "", stop or bounce
	Strikes  int           // of a bounce: at the so-many'th failure
	Shop     string        // "", told, off, pause or country
	Why      string        // a sentence without its capital and full stop, for the merchant
	Next     string        // what happens next, or who does what
}

var twilioErrors = mustReadErrors(twilioErrorFile)

func mustReadErrors(file string) map[int]errorRow {
	rows, err := readErrors(file)
	if err != nil {
		panic("twilio_errors.csv: " + err.Error()) // it is part of the program
	}
	return rows
}

func readErrors(file string) (map[int]errorRow, error) {
	r := csv.NewReader(strings.NewReader(file))
	r.Comment = '#'
	lines, err := r.ReadAll()
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 || strings.Join(lines[0], ",") != "code,message,after,suppress,shop,why,next" {
		return nil, errors.New("its columns are code,message,after,suppress,shop,why,next")
	}
	rows := map[int]errorRow{}
	for _, l := range lines[1:] {
		e := errorRow{Message: l[1], Shop: l[4], Why: l[5], Next: l[6]}
		if e.Code, err = strconv.Atoi(l[0]); err != nil {
			return nil, fmt.Errorf("%q is no code", l[0])
		}
		if l[2] != "" {
			if e.After, err = time.ParseDuration(l[2]); err != nil {
				return nil, fmt.Errorf("%d: %w", e.Code, err)
			}
		}
		var strikes string
		e.Suppress, strikes, _ = strings.Cut(l[3], " ")
		if strikes != "" {
			if e.Strikes, err = strconv.Atoi(strikes); err != nil || e.Strikes < 2 || e.Suppress != "bounce" {
				return nil, fmt.Errorf("%d: suppress %q", e.Code, l[3])
			}
		}
		_, twice := rows[e.Code]
		switch {
		case twice:
			return nil, fmt.Errorf("%d stands there twice", e.Code)
		case !slices.Contains([]string{"retry", "once", "unknown", "failed", "unsent"}, e.Message),
			!slices.Contains([]string{"", "stop", "bounce"}, e.Suppress),
			!slices.Contains([]string{"", "told", "off", "pause", "country"}, e.Shop):
			return nil, fmt.Errorf("%d: a word that means nothing", e.Code)
		case (e.Message == "unsent") != (e.Shop == "off" || e.Shop == "pause" || e.Shop == "country"):
			return nil, fmt.Errorf("%d: what the shop cannot send is unsent, and nothing else", e.Code)
		case e.Suppress != "" && e.Strikes == 0 && e.Message != "failed":
			return nil, fmt.Errorf("%d: whoever is suppressed is not written to again", e.Code)
		case e.Why == "" || e.Next == "":
			return nil, fmt.Errorf("%d: why and next are missing", e.Code)
		}
		rows[e.Code] = e
	}
	return rows, nil
}

// twilioError says what one of Twilio's error codes means, whether it came with the answer to a send or
// with a later report. Twilio splits codes now and then: one that is not in the file gives up this message,
// blames nobody, and is shown to the merchant.
func twilioError(code int, message string) *waitlist.SendError {
	row, known := twilioErrors[code]
	if !known {
		e := &waitlist.SendError{Outcome: waitlist.GiveUp, Code: strconv.Itoa(code), Sender: waitlist.SenderTold, Why: "Twilio error " + strconv.Itoa(code)}
		if message = oneLine(message); message != "" {
			e.Why += ": " + message
		}
		return e
	}
	e := &waitlist.SendError{Code: strconv.Itoa(code), Why: row.Why, After: row.After, Strikes: row.Strikes, Sender: waitlist.SenderEffect(row.Shop)}
	switch row.Message {
	case "retry":
		e.Outcome = waitlist.Retry
	case "once":
		e.Outcome = waitlist.Once
	case "unknown":
		e.Outcome = waitlist.Unknown
	case "unsent":
		e.Outcome = waitlist.ShopFault
	case "failed":
		e.Outcome = waitlist.GiveUp
		switch {
		case row.Suppress == "stop":
			e.Outcome = waitlist.OptedOut
		case row.Suppress == "bounce" && row.Strikes == 0:
			e.Outcome = waitlist.DeadAddr
		}
	}
	return e
}

// twilioErrorPage is the file as a page for people: docs/twilio-errors.md.
func twilioErrorPage() string {
	message := map[string]string{
		"retry": "not sent; sent again%s", "once": "not delivered; sent once more%s, if 10 minutes of the offer are left then",
		"unknown": "may have been accepted; looked for, and sent once more if it is not found", "failed": "given up", "unsent": "cannot be sent",
	}
	unit := map[string]string{"retry": "waits", "once": "waits", "unknown": "waits", "failed": "next in line", "unsent": "next in line; the shopper keeps the chance"}
	sender := map[string]string{"": "–", "told": "told", "off": "told; texts are off until the sender is checked again", "pause": "told; texts wait%s", "country": "told; texts to that country wait for the merchant"}
	within := func(s, with string, d time.Duration) string {
		if !strings.Contains(s, "%s") {
			return s
		}
		if d == 0 {
			return strings.Replace(s, "%s", "", 1)
		}
		return strings.Replace(s, "%s", with+strings.TrimSuffix(strings.TrimSuffix(d.String(), "0s"), "0m"), 1)
	}
	var b strings.Builder
	b.WriteString("# What Twilio's error codes mean here\n\nMade from `app/notify/twilio_errors.csv` by `go test ./app/notify -run TestThePageOfErrors -update`. A code means the same whether it comes\nwith the answer to a send or with a later report; one that is not listed gives up its message, suppresses nobody, and is shown to the merchant.\n\n" +
		"| code | meaning | message | unit | shopper | shop | next |\n|---|---|---|---|---|---|---|\n")
	for _, code := range slices.Sorted(maps.Keys(twilioErrors)) {
		e := twilioErrors[code]
		shopper := "–"
		switch {
		case e.Strikes > 0:
			shopper = fmt.Sprintf("suppressed at the %d. time in 30 days (bounce)", e.Strikes)
		case e.Suppress != "":
			shopper = "suppressed (" + e.Suppress + ")"
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s | %s | %s |\n", code, e.Why, within(message[e.Message], " after ", e.After), unit[e.Message], shopper, within(sender[e.Shop], " for ", e.After), e.Next)
	}
	return b.String()
}
