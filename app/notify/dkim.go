package notify

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/emersion/go-msgauth/dkim"
)

// selectorName is a name that can stand before ._domainkey in the DNS.
var selectorName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// signedHeaders are what a signature covers. RFC 8058 asks for the two of unsubscribing; the names that must
// not be added once more stand there twice (RFC 6376, section 5.4.2).
var signedHeaders = []string{
	"From", "From", "To", "To", "Subject", "Subject", "Date", "Date", "Message-ID", "Message-ID", "Reply-To", "Reply-To",
	"MIME-Version", "Content-Type", "Content-Type", "List-Unsubscribe", "List-Unsubscribe", "List-Unsubscribe-Post", "List-Unsubscribe-Post",
}

// dkimOptions says how mails from an address are signed; nil when there is no key.
func dkimOptions(cfg Config, from string) (*dkim.SignOptions, error) {
	switch key := cfg.DKIMKey.(type) {
	case nil:
		if cfg.DKIMSelector != "" {
			return nil, errors.New("there is a selector and no key")
		}
		return nil, nil
	case *rsa.PrivateKey:
		if key.N.BitLen() < 1024 || key.N.BitLen() > 4096 {
			return nil, fmt.Errorf("an RSA key of %d bits is not accepted everywhere: use 2048", key.N.BitLen())
		}
	case ed25519.PrivateKey:
	default:
		return nil, fmt.Errorf("a key of type %T cannot sign mails: use RSA or Ed25519", key)
	}
	if !selectorName.MatchString(cfg.DKIMSelector) {
		return nil, errors.New("the selector is a name such as holdfast1")
	}
	return &dkim.SignOptions{
		Domain: from[strings.LastIndex(from, "@")+1:], Selector: cfg.DKIMSelector, Signer: cfg.DKIMKey,
		HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationRelaxed,
		HeaderKeys: signedHeaders,
	}, nil
}

// sign puts a signature before a mail. (go-mail's own signatures break when a tag does not fit a line, and
// leave the two headers of unsubscribing out.)
func (s *Sender) sign(raw []byte) ([]byte, error) {
	if s.dkim == nil {
		return raw, nil
	}
	var signed bytes.Buffer
	if err := dkim.Sign(&signed, bytes.NewReader(raw), s.dkim); err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return signed.Bytes(), nil
}
