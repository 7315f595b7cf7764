package shopify

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"holdfast/app/shop"
)

// idTokenLeeway is by how much Shopify's clock and ours may differ, as in Shopify's own libraries.
const idTokenLeeway = 10 * time.Second

// Session is who sits in front of an embedded page: a user of a shop's admin, as Shopify says.
type Session struct {
	Shop    string    // its permanent domain
	UserID  string    // Shopify's id of the member of staff
	Expires time.Time // of the token, about a minute after it was made
}

// idTokenClaims are the claims of an ID token, which Shopify called a session token until 2025.
type idTokenClaims struct {
	jwt.RegisteredClaims
	Destination string `json:"dest"` // https://{shop}
}

// VerifyIDToken verifies an ID token of App Bridge at the time now, or returns ErrUnverified with what
// is wrong. The token must be signed by HS256 with one of the app's secrets, be for this app and no
// other, be within its time, and name one shop as destination and issuer.
func (v *Verifier) VerifyIDToken(token string, now time.Time) (Session, error) {
	fail := func(why error) (Session, error) {
		return Session{}, fmt.Errorf("id token: %w: %w", ErrUnverified, why)
	}
	if len(token) > 8<<10 {
		return fail(errors.New("it is too long"))
	}
	var claims idTokenClaims
	_, err := jwt.ParseWithClaims(token, &claims, v.idTokenKeys,
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
		jwt.WithAudience(v.clientID),
		jwt.WithLeeway(idTokenLeeway),
		jwt.WithExpirationRequired(),
		jwt.WithNotBeforeRequired(),
		jwt.WithTimeFunc(func() time.Time { return now }))
	if err != nil {
		return fail(err)
	}
	if len(claims.Audience) != 1 {
		return fail(errors.New("it is for several apps"))
	}
	domain, ok := strings.CutPrefix(claims.Destination, "https://")
	if !ok || !shop.ValidDomain(domain) {
		return fail(errors.New("its destination is no shop"))
	}
	if issuer, err := url.Parse(claims.Issuer); err != nil || issuer.Scheme != "https" || issuer.Host != domain {
		return fail(errors.New("its issuer is not the shop that it is for"))
	}
	if claims.Subject == "" || !plain(claims.Subject) {
		return fail(errors.New("it names no user"))
	}
	return Session{Shop: domain, UserID: claims.Subject, Expires: claims.ExpiresAt.UTC()}, nil
}

// idTokenKeys offers every secret; the parser tries one after the other.
func (v *Verifier) idTokenKeys(*jwt.Token) (any, error) {
	var keys jwt.VerificationKeySet
	for _, app := range v.apps {
		keys.Keys = append(keys.Keys, []byte(app.ApiSecret))
	}
	return keys, nil
}
