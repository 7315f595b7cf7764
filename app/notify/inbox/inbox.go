// Package inbox is where the simulated Twilio and the simulated mail server put what they accept: one list
// of texts and mails in order of acceptance, with a page for people and calls for scripts.
package inbox

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"holdfast/app/simkit"
)

// Message is a text or a mail that a simulator accepted. It is in the sender's own words and headers.
type Message struct {
	ID      string            `json:"id"`      // a text's SID; "mail-1", "mail-2", ... for mails
	Channel string            `json:"channel"` // sms or email
	To      string            `json:"to"`
	From    string            `json:"from"`
	Subject string            `json:"subject"` // of a mail
	Body    string            `json:"body"`    // the text, or the mail's plain part
	HTML    string            `json:"html"`    // the mail's HTML part
	Headers map[string]string `json:"headers"` // of a mail, by canonical name, decoded; none for a text
	Links   []string          `json:"links"`   // in Body and HTML, in order, each once
	Status  string            `json:"status"`  // the last that the provider reported
	At      time.Time         `json:"at"`      // when it was accepted, by the simulated clock
}

// Outbox is the list. It is safe for use by many goroutines.
type Outbox struct {
	clock    *simkit.Clock
	mu       sync.Mutex
	messages []Message
	changed  chan struct{} // closed and replaced whenever a message is added
}

// New returns an empty outbox on a clock.
func New(clock *simkit.Clock) *Outbox {
	return &Outbox{clock: clock, changed: make(chan struct{})}
}

// Add puts a message at the end and returns it with its time and its links.
func (o *Outbox) Add(m Message) Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	m.At = o.clock.Now()
	m.Links = Links(m.Body + "\n" + m.HTML)
	if m.Headers == nil {
		m.Headers = map[string]string{}
	}
	o.messages = append(o.messages, m)
	close(o.changed)
	o.changed = make(chan struct{})
	return m
}

// SetStatus notes what the provider reports of a message now. An unknown id is ignored.
func (o *Outbox) SetStatus(id, status string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.messages {
		if o.messages[i].ID == id {
			o.messages[i].Status = status
		}
	}
}

// Messages returns the messages to an address ("" = any) by a channel ("" = any), oldest first. The case of
// a mail address does not matter.
func (o *Outbox) Messages(to, channel string) []Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := []Message{}
	for _, m := range o.messages {
		if (to == "" || strings.EqualFold(to, m.To)) && (channel == "" || channel == m.Channel) {
			found = append(found, m)
		}
	}
	return found
}

// Wait returns all messages as soon as there are n of them, or what there is when ctx ends, with its error.
func (o *Outbox) Wait(ctx context.Context, n int) ([]Message, error) {
	for {
		o.mu.Lock()
		all, changed := slices.Clone(o.messages), o.changed
		o.mu.Unlock()
		if len(all) >= n {
			return all, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return all, ctx.Err()
		}
	}
}

// Reset empties the outbox.
func (o *Outbox) Reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.messages = nil
}

var link = regexp.MustCompile(`https?://[^\s"'<>]+`)

// Links are the web addresses in a text or in HTML, in order, each once.
func Links(s string) []string {
	links := []string{}
	for _, l := range link.FindAllString(s, -1) {
		l = strings.ReplaceAll(strings.TrimRight(l, ".,;:!?)"), "&amp;", "&")
		if !slices.Contains(links, l) {
			links = append(links, l)
		}
	}
	return links
}
