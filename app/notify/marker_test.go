package notify

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"holdfast/app/waitlist"
	"holdfast/app/words"
)

// Two shops, the same shoppers in two languages, each shop's words with a marker of its own: under load, by mail
// and by text, no marker of one is in a message of the other, and each is in the language it was asked in.
func TestNoWordOfOneShopIsInAnothersMessages(t *testing.T) {
	t.Parallel()
	const people = 40
	w := newOutboxWorld(t)
	shops := map[string]*outboxShop{"zitrone": w.open("zitrone"), "erable": w.open("erable")}
	locales := map[string]string{"zitrone": "de", "erable": "fr"}
	said := map[string]string{"zitrone": "Warteliste", "erable": "dans la file"} // ours, of mails in that language
	for name, s := range shops {
		w.must(w.list.SetTextsPerSecond(t.Context(), s.id, 100))
		marker := strings.ToUpper(name) + "WORT"
		w.must(w.list.SetWording(t.Context(), s.id, words.In(locales[name]), map[string]string{
			"mail.subject": marker + " {item}", "mail.opening": marker + ": {item}", "mail.button": marker, "text": marker + " {shop}: {item} {link} STOP"}))
		_, err := w.db.Exec(t.Context(), `UPDATE shops SET name = $2 WHERE id = $1`, s.id, name)
		w.must(err)
		for i := range people {
			for channel, contact := range map[waitlist.Channel]string{waitlist.Email: fmt.Sprintf("p%d@example.com", i), waitlist.SMS: fmt.Sprintf("+447400%06d", 100000+i)} {
				_, err := w.list.Tap(t.Context(), s.id, waitlist.Tap{VariantID: fmt.Sprint(chair), Channel: string(channel), Contact: contact, Locale: locales[name], Client: contact})
				w.must(err)
			}
		}
		w.shelf.set(s.id, 2*people)
	}

	var working sync.WaitGroup
	for _, s := range shops {
		w.must(w.list.Observe(t.Context(), s.id, chair))
		var restock int64
		w.must(w.db.QueryRow(t.Context(), `SELECT id FROM restocks WHERE shop_id = $1`, s.id).Scan(&restock))
		for range 3 {
			working.Go(func() {
				for {
					err := w.list.Notify(t.Context(), s.id, restock)
					if err == nil {
						return
					}
					if !errors.Is(err, waitlist.ErrLater) {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	working.Wait()

	for name, other := range map[string]string{"zitrone": "erable", "erable": "zitrone"} {
		found := 0
		for _, m := range w.outbox.Messages("", "") {
			all := strings.ToLower(m.Body + m.HTML + fmt.Sprint(m.Headers))
			if !strings.Contains(all, name) {
				continue
			}
			found++
			if strings.Contains(all, other) {
				t.Errorf("a message of %s's says %s: %s", name, other, m.Body)
			}
			if !strings.Contains(all, name+"wort") || m.HTML != "" && !strings.Contains(m.Body, said[name]) {
				t.Errorf("a message of %s's is not in its words: %s", name, m.Body)
			}
		}
		if found != 2*people {
			t.Errorf("%d messages of %s's, want %d", found, name, 2*people)
		}
	}
}
