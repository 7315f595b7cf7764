package shopify

import (
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

var tokenTime = time.Unix(1_796_040_000, 0)

// idClaims are the claims of a good ID token.
func idClaims() jwt.MapClaims {
	return jwt.MapClaims{
		"iss": "https://" + testShop + "/admin", "dest": "https://" + testShop, "aud": testClient, "sub": "42",
		"exp": tokenTime.Add(50 * time.Second).Unix(), "nbf": tokenTime.Add(-10 * time.Second).Unix(), "iat": tokenTime.Add(-10 * time.Second).Unix(),
		"jti": "f8912129-1af6-4cad-9ca3-76b0f7621087", "sid": "aaea182f2732d44c23057c0fea584021a4485b2bd25d3eb7fd349313ad24c685",
	}
}

func signedToken(t *testing.T, method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	t.Helper()
	token, err := jwt.NewWithClaims(method, claims).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestAnIDTokenSaysWhichShopAndUser(t *testing.T) {
	t.Parallel()
	v := newVerifier(t)
	for _, secret := range []string{testSecret, oldSecret} {
		got, err := v.VerifyIDToken(signedToken(t, jwt.SigningMethodHS256, []byte(secret), idClaims()), tokenTime)
		want := Session{Shop: testShop, UserID: "42", Expires: tokenTime.Add(50 * time.Second).UTC()}
		if err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
}

func TestClocksMayDifferByTenSeconds(t *testing.T) {
	t.Parallel()
	v := newVerifier(t)
	token := signedToken(t, jwt.SigningMethodHS256, []byte(testSecret), idClaims())
	for offset, ok := range map[time.Duration]bool{
		-20 * time.Second: true, -21 * time.Second: false, // nbf, less the leeway
		59 * time.Second: true, 61 * time.Second: false, // exp, and the leeway
	} {
		if _, err := v.VerifyIDToken(token, tokenTime.Add(offset)); (err == nil) != ok {
			t.Errorf("%v: %v", offset, err)
		}
	}
}

func TestAnIDTokenThatIsNotForUsIsRefused(t *testing.T) {
	t.Parallel()
	v := newVerifier(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	hs256 := func(change func(c jwt.MapClaims)) string {
		c := idClaims()
		change(c)
		return signedToken(t, jwt.SigningMethodHS256, []byte(testSecret), c)
	}
	without := func(claim string) string { return hs256(func(c jwt.MapClaims) { delete(c, claim) }) }
	with := func(claim string, value any) string { return hs256(func(c jwt.MapClaims) { c[claim] = value }) }
	good := hs256(func(jwt.MapClaims) {})
	parts := strings.Split(good, ".")

	for name, token := range map[string]string{
		"nothing":            "",
		"no token":           "token",
		"longer than any":    good + strings.Repeat("x", 8<<10),
		"another secret":     signedToken(t, jwt.SigningMethodHS256, []byte("guess"), idClaims()),
		"an empty secret":    signedToken(t, jwt.SigningMethodHS256, []byte{}, idClaims()),
		"alg none":           signedToken(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, idClaims()),
		"no signature":       parts[0] + "." + parts[1] + ".",
		"HS512":              signedToken(t, jwt.SigningMethodHS512, []byte(testSecret), idClaims()),
		"RS256":              signedToken(t, jwt.SigningMethodRS256, rsaKey, idClaims()),
		"another's claims":   parts[0] + "." + strings.Split(with("sub", "1"), ".")[1] + "." + parts[2],
		"for another app":    with("aud", "another"),
		"for two apps":       with("aud", []string{testClient, "another"}),
		"for no app":         without("aud"),
		"expired":            with("exp", tokenTime.Add(-11*time.Second).Unix()),
		"without end":        without("exp"),
		"not yet":            with("nbf", tokenTime.Add(11*time.Second).Unix()),
		"without beginning":  without("nbf"),
		"no destination":     without("dest"),
		"dest elsewhere":     with("dest", "https://evil.com/x.myshopify.com"),
		"dest with a path":   with("dest", "https://"+testShop+"/admin"),
		"dest by http":       with("dest", "http://"+testShop),
		"dest another shop":  with("dest", "https://lamps.myshopify.com"),
		"no issuer":          without("iss"),
		"issued elsewhere":   with("iss", "https://evil.com/admin"),
		"issuer by userinfo": with("iss", "https://"+testShop+"@evil.com/admin"),
		"issued by http":     with("iss", "http://"+testShop+"/admin"),
		"no user":            without("sub"),
		"an odd user":        with("sub", "4\n2"),
	} {
		got, err := v.VerifyIDToken(token, tokenTime)
		if !errors.Is(err, ErrUnverified) || got != (Session{}) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
		if err != nil && len(token) > 20 && strings.Contains(err.Error(), token) {
			t.Errorf("%s: the token is in the error", name)
		}
	}
	if _, err := v.VerifyIDToken(good, tokenTime); err != nil {
		t.Errorf("the good one: %v", err)
	}
}
