package notify

import "holdfast/app/waitlist"

// Preview is a message as its reader would see it.
type Preview struct {
	Subject, Mail string // of a mail: its plain part
	Text          string // of a text
	Segments      int    // as how many texts it is paid
	GSM           bool   // all of it is of the GSM alphabet
}

// Preview words a message both ways and sends nothing.
func (s *Sender) Preview(m waitlist.Outgoing) Preview {
	mail := s.mailText(m)
	p := Preview{Subject: mail.Subject, Mail: mail.plain(), Text: s.textMessage(m)}
	p.Segments, p.GSM = Segments(p.Text)
	return p
}

// Segments is as how many texts a message is paid when it is sent as a text.
func (s *Sender) Segments(m waitlist.Outgoing) int {
	n, _ := Segments(s.textMessage(m))
	return n
}
