package web

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/sessions"

	"holdfast/app/shop"
	"holdfast/app/shopify"
)

// How the app comes into a shop. Shopify installs it by itself, with the scopes of its configuration; the
// first that we hear of it is a merchant who opens it in the admin, and their ID token is worth an access
// token ("managed installation" and token exchange). The other way is the authorization code grant, for a
// merchant who comes from outside of the admin:
//
//	/auth/install ─▶ Shopify: approve? ─▶ /auth/callback ─▶ the app in the admin
//
// Its one cookie carries a nonce that Shopify brings back, so that nobody can be made to finish what
// somebody else has begun. It is ours alone, lives ten minutes, and no page of the admin reads it.

const (
	nonceCookie = "holdfast-install"
	nonceLife   = 10 * 60 // seconds
)

// newNonces returns what keeps the cookie, signed by keys of which the first signs and all verify.
func (s *server) newNonces() *sessions.CookieStore {
	var pairs [][]byte
	for _, key := range s.CookieKeys {
		pairs = append(pairs, key, nil) // signed, not encrypted: the one who has it may know it
	}
	store := sessions.NewCookieStore(pairs...)
	store.MaxAge(nonceLife)
	// Lax, since the callback is a navigation from Shopify's site.
	store.Options = &sessions.Options{Path: "/", MaxAge: nonceLife, HttpOnly: true, Secure: s.URL.Scheme == "https", SameSite: http.SameSiteLaxMode}
	return store
}

// nonceName has the prefix by which a browser keeps other hosts of our domain from setting the cookie; it
// takes it over https alone (RFC 6265bis, section 4.1.3.2).
func (s *server) nonceName() string {
	if s.URL.Scheme == "https" {
		return "__Host-" + nonceCookie
	}
	return nonceCookie
}

var errNoShop = &fault{status: http.StatusBadRequest, code: "invalid_shop", field: "shop", heading: "Which shop?",
	message: "Install Holdfast from the Shopify App Store, or open it from your Shopify admin."}

var errNotBegun = &fault{status: http.StatusForbidden, code: "not_begun_here", heading: "This installation was not begun in this browser",
	message: "It may have taken longer than ten minutes, or cookies are off. Begin once more from the Shopify App Store."}

// beginInstall sends a merchant to Shopify, to approve the app in their shop.
func (s *server) beginInstall(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	domain := query.Get("shop")
	if query.Has("hmac") {
		signed, err := s.Shopify.VerifyBrowser(query, s.Now())
		if err != nil {
			return s.unsigned(r, err)
		}
		domain = signed
	}
	if len(query["shop"]) != 1 || !shop.ValidDomain(domain) {
		return errNoShop
	}
	nonce := rand.Text()
	session := sessions.NewSession(s.nonces, s.nonceName())
	session.Options = s.nonceOptions(nonceLife)
	session.Values["nonce"], session.Values["shop"] = nonce, domain
	address, err := s.Install.AuthorizeURL(domain, nonce, s.callbackURL())
	if err != nil {
		return err
	}
	if err := s.nonces.Save(r, w, session); err != nil {
		return fmt.Errorf("keep the nonce: %w", err)
	}
	http.Redirect(w, r, address, http.StatusFound)
	return nil
}

func (s *server) callbackURL() string {
	return strings.TrimSuffix(s.URL.String(), "/") + "/auth/callback"
}

// finishInstall installs the app in the shop whose merchant has approved it.
func (s *server) finishInstall(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	domain, err := s.Shopify.VerifyBrowser(query, s.Now())
	if err != nil {
		return s.unsigned(r, err)
	}
	session, err := s.nonces.New(r, s.nonceName())
	if err != nil {
		session.Values = nil // a cookie that was spoilt, or is too old, is none
	}
	nonce, _ := session.Values["nonce"].(string)
	begun, _ := session.Values["shop"].(string)
	if nonce == "" || subtle.ConstantTimeCompare([]byte(nonce), []byte(query.Get("state"))) != 1 || begun != domain {
		return errNotBegun
	}
	session.Options = s.nonceOptions(-1) // good once
	if err := s.nonces.Save(r, w, session); err != nil {
		return fmt.Errorf("take the nonce back: %w", err)
	}
	if err := s.Install.InstallByCode(r.Context(), domain, query.Get("code")); err != nil {
		return s.notInstalled(r.Context(), domain, err)
	}
	http.Redirect(w, r, s.Install.AdminURL(domain), http.StatusFound)
	return nil
}

func (s *server) nonceOptions(maxAge int) *sessions.Options {
	o := *s.nonces.Options
	o.MaxAge = maxAge
	return &o
}

// unsigned says that a query does not come from Shopify, and logs why.
func (s *server) unsigned(r *http.Request, why error) error {
	s.Log.InfoContext(r.Context(), "a query was refused", "request_id", requestID(r.Context()), "route", route(r), "err", why)
	return &fault{status: http.StatusUnauthorized, code: "bad_signature", heading: "This link is not valid any more",
		message: "It did not come from Shopify just now. Begin once more from the Shopify App Store."}
}

// needsGrant says whether a shop's grant is to be asked for anew when its merchant is here: when there is
// none, when Shopify refuses it, and after any other refusal, which may be over by now.
func needsGrant(sh shop.Shop, err error) bool {
	return errors.Is(err, shop.ErrNotFound) || (err == nil && (!sh.Installed || !sh.HasToken || sh.Refused || sh.Trouble != ""))
}

var errNotInstalled = &fault{status: http.StatusForbidden, code: "not_installed", heading: "Holdfast is not installed in this shop",
	message: "Install it from the Shopify App Store, then open it again from your Shopify admin."}

// notInstalled is what is said of an installation that failed. Whatever of Shopify's answers is nobody's
// fault here can be tried again.
func (s *server) notInstalled(ctx context.Context, domain string, err error) error {
	s.Log.WarnContext(ctx, "not installed", "request_id", requestID(ctx), "domain", domain, "err", err)
	if missing, ok := errors.AsType[*shopify.NotEnough](err); ok {
		return &fault{status: http.StatusForbidden, code: "not_enough", heading: "Holdfast lacks permissions in this shop",
			message: "It needs " + strings.Join(missing.Missing, ", ") + ". Open it again from your Shopify admin and approve what is asked for."}
	}
	if refused, ok := errors.AsType[*shopify.AuthError](err); ok {
		if refused.Code == shopify.InvalidClient {
			return errNotInstalled
		}
		return &fault{status: http.StatusForbidden, code: "not_granted", heading: "Shopify did not let Holdfast in",
			message: "Nothing was installed. Open it again from your Shopify admin."}
	}
	if f := faultOf(err); f.status < 500 || f.after > 0 {
		return f
	}
	return tryAgain(5 * time.Second)
}
