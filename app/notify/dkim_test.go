package notify

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/emersion/go-msgauth/dkim"
)

// published is the record that the public half of a key is published in.
func published(t *testing.T, key crypto.Signer) string {
	t.Helper()
	if k, ok := key.Public().(ed25519.PublicKey); ok {
		return "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(k)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(der)
}

// The signature is valid, covers what RFC 8058 asks for, and breaks when anything that it covers is changed or
// added, however long the domain.
func TestAMailIsSignedForTheSendersDomain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	short, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, small, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("a-rather-long-label.", 4) + "holdfast.example"
	for domain, key := range map[string]crypto.Signer{"mail.holdfast.example": short, long: small} {
		sender := w.newSender(Config{PublicURL: w.app.URL, SMTPURL: w.smtp.URL(), EmailFrom: "restock@" + domain, DKIMKey: key, DKIMSelector: "holdfast1"}, shops{})
		raw, err := sender.composeMail(mailNotice())
		if err != nil {
			t.Fatal(err)
		}
		verify := func(mail []byte) (*dkim.Verification, error) {
			all, err := dkim.VerifyWithOptions(bytes.NewReader(mail), &dkim.VerifyOptions{LookupTXT: func(name string) ([]string, error) {
				if name != "holdfast1._domainkey."+domain {
					t.Errorf("looked up %s", name)
				}
				return []string{published(t, key)}, nil
			}})
			if err != nil || len(all) != 1 {
				t.Fatalf("%d signatures, %v", len(all), err)
			}
			return all[0], all[0].Err
		}
		v, err := verify(raw)
		if err != nil || v.Domain != domain {
			t.Errorf("%s: for %s, %v", domain, v.Domain, err)
		}
		for _, name := range []string{"From", "To", "Subject", "Date", "Message-ID", "List-Unsubscribe", "List-Unsubscribe-Post"} {
			if !slices.ContainsFunc(v.HeaderKeys, func(k string) bool { return strings.EqualFold(k, name) }) {
				t.Errorf("%s: %s is not signed", domain, name)
			}
		}
		for what, changed := range map[string][]byte{
			"another body":                bytes.Replace(raw, []byte("Oak"), []byte("Elm"), 1),
			"another unsubscribe link":    bytes.Replace(raw, []byte("List-Unsubscribe: <http"), []byte("List-Unsubscribe: <https"), 1),
			"a second From":               append([]byte("From: eve@example.com\r\n"), raw...),
			"a second way to unsubscribe": append([]byte("List-Unsubscribe: <https://evil.example>\r\n"), raw...),
		} {
			if bytes.Equal(changed, raw) {
				t.Fatalf("%s: nothing was changed", what)
			}
			if _, err := verify(changed); err == nil {
				t.Errorf("%s: with %s it is still valid", domain, what)
			}
		}
	}
}

func TestAKeyThatCannotSignIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, good, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Config{
		"another kind":         {DKIMKey: curve, DKIMSelector: "s1"},
		"no selector":          {DKIMKey: good},
		"no key":               {DKIMSelector: "s1"},
		"a selector's address": {DKIMKey: good, DKIMSelector: "s1; d=evil.example"},
	} {
		c.PublicURL, c.SMTPURL, c.EmailFrom = w.app.URL, w.smtp.URL(), "restock@mail.holdfast.example"
		if _, err := New(c, shops{}, nil); err == nil || !strings.Contains(err.Error(), "DKIM") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
