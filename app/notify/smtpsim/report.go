package smtpsim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"holdfast/app/notify/inbox"
)

// Event posts a report on a mail that was accepted, as Postmark does, and returns when the app has taken it.
// Kind is "bounce", "soft_bounce", "complaint" or "delivery".
func (s *Sim) Event(ctx context.Context, messageID, kind string) error {
	var report map[string]any
	status := ""
	switch kind {
	case "bounce":
		report, status = map[string]any{"RecordType": "Bounce", "Type": "HardBounce", "TypeCode": 1, "Name": "Hard bounce", "Inactive": true, "CanActivate": true,
			"Description": "The server was unable to deliver your message (ex: unknown user, mailbox not found)."}, "bounced"
	case "soft_bounce":
		report, status = map[string]any{"RecordType": "Bounce", "Type": "SoftBounce", "TypeCode": 4096, "Name": "Soft bounce", "Inactive": false, "CanActivate": false,
			"Description": "Unable to temporarily deliver message (i.e. mailbox full, account disabled, exceeds quota, out of disk space)."}, "soft bounced"
	case "complaint":
		report, status = map[string]any{"RecordType": "SpamComplaint", "Type": "SpamComplaint", "TypeCode": 100001, "Name": "Spam complaint", "Inactive": true, "CanActivate": false,
			"Description": "The subscriber explicitly marked this message as spam."}, "complained"
	case "delivery":
		report, status = map[string]any{"RecordType": "Delivery", "Details": "Delivered"}, "delivered"
	default:
		return &inbox.Refused{Status: http.StatusBadRequest, Why: fmt.Sprintf(`kind %q: use "bounce", "soft_bounce", "complaint" or "delivery"`, kind)}
	}
	var mail *inbox.Message
	for _, m := range s.outbox.Messages("", "email") {
		if m.ID == messageID {
			mail = &m
		}
	}
	if mail == nil {
		return &inbox.Refused{Status: http.StatusNotFound, Why: fmt.Sprintf("no mail with id %q", messageID)}
	}
	if s.opts.ReportURL == "" {
		return &inbox.Refused{Status: http.StatusConflict, Why: "this mail server reports to nobody"}
	}
	own := map[string]string{}
	for name, value := range mail.Headers {
		if key, ok := strings.CutPrefix(strings.ToLower(name), "x-pm-metadata-"); ok {
			own[key] = value
		}
	}
	report["Metadata"], report["ServerID"], report["MessageStream"], report["MessageID"] = own, 23, "outbound", "00000000-0000-4000-8000-"+fmt.Sprintf("%012s", strings.TrimPrefix(messageID, "mail-"))
	who := "Email"
	if kind == "delivery" {
		who = "Recipient"
	}
	report[who] = mail.To
	report["From"], report["Subject"], report["Content"] = mail.From, mail.Subject, "<Full dump of bounce>"
	body, err := json.Marshal(report)
	if err != nil {
		return err
	}
	s.outbox.SetStatus(messageID, status)
	s.add(1)
	defer s.add(-1)
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // Postmark's own
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, s.opts.ReportURL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("User-Agent", "Postmark")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the app answered %s", answer.Status)
	}
	return nil
}
