package waitlist_test

import (
	"errors"
	"testing"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
	"holdfast/app/words"
)

// A shop's own sentences go with the messages of their language, and with no other's.
func TestAShopsOwnWordsGoWithItsMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := map[string]string{"text": "{shop}: {item} {link} STOP", "mail.subject": "Endlich: {item}"}
	w.must(w.list.SetWording(t.Context(), w.shop, words.In("de"), own))
	for _, locale := range []string{"de-AT", "fr"} {
		p := tap(locale)
		p.Locale = locale
		_, err := w.list.Join(t.Context(), w.shop, p)
		w.must(err)
	}
	w.stock(2)
	if len(w.outbox.sent) != 2 {
		t.Fatalf("%d told", len(w.outbox.sent))
	}
	for i, want := range []string{"Endlich: {item}", ""} {
		if got := w.outbox.sent[i].Wording["mail.subject"]; got != want {
			t.Errorf("%s: subject %q, want %q", w.outbox.sent[i].Locale, got, want)
		}
	}

	// What cannot be sent changes nothing; what is empty, or as ours, is ours again.
	err := w.list.SetWording(t.Context(), w.shop, words.In("de"), map[string]string{"text": "no link", "mail.subject": "{nothing}"})
	if fault := (shop.Fault{}); !errors.As(err, &fault) || fault.Field == "" {
		t.Errorf("got %v", err)
	}
	if got, err := w.list.Wording(t.Context(), w.shop, words.In("de")); err != nil || len(got) != 2 {
		t.Errorf("got %v, %v", got, err)
	}
	w.must(w.list.SetWording(t.Context(), w.shop, words.In("de"), map[string]string{"mail.subject": words.In("de").Say("mail.subject")}))
	if got, err := w.list.Wording(t.Context(), w.shop, words.In("de")); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestASuppressedAddressIsKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(w.list.Suppress(t.Context(), w.shop, waitlist.Email, "ann@example.com", waitlist.ByMerchant))
	for address, want := range map[string]bool{"Ann@example.com": true, "ben@example.com": false} {
		a, err := waitlist.ParseAddress(waitlist.Email, address, "")
		w.must(err)
		if got, err := w.list.Suppressed(t.Context(), w.shop, a); err != nil || got != want {
			t.Errorf("%s: %v, %v", address, got, err)
		}
	}
}
