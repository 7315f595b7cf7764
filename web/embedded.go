package web

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"holdfast/app/shop"
	"holdfast/app/shopify"
	"holdfast/templates"
)

// The merchant's pages live in an iframe of the Shopify admin. Who the merchant is, is proved by an ID
// token, a JWT of a minute's life that App Bridge adds to every fetch of ours and that Shopify adds to
// the first address it opens. There is no cookie and no session: browsers keep no cookie of ours in
// that iframe, and two shops in two tabs would share it.
//
// Links and forms carry no token by themselves. Turbo Drive turns both into fetches, which do; and a
// document that is loaded without a token, by a reload of the frame, is answered with a shell that holds
// nothing and asks for the same address again, by a fetch.

// visit is one request of a merchant whose token was verified.
type visit struct {
	templates.Admin
}

// merchantHandler is a handler that knows its shop.
type merchantHandler func(w http.ResponseWriter, r *http.Request, v visit) error

// merchant lets only requests with a valid ID token through to h; the shop is the token's and never
// comes from anywhere else.
func (s *server) merchant(h merchantHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.adminHeaders(w, "")
		token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		document := r.Method == http.MethodGet || r.Method == http.MethodHead
		if !bearer && document {
			token = r.URL.Query().Get("id_token")
		}
		var domain string
		if token != "" {
			session, err := s.Shopify.VerifyIDToken(token, s.Now())
			if err != nil {
				s.Log.InfoContext(r.Context(), "ID token refused", "request_id", requestID(r.Context()), "err", err)
			}
			domain = session.Shop // empty when it was refused
		}
		switch {
		case domain != "" && !bearer && r.URL.Query().Get("shop") != domain:
			domain = "" // the address names another shop than its token: it was put together by somebody
		case domain != "":
			s.visit(w, r, domain, token, h)
			return
		}
		switch {
		case bearer:
			s.askAgain(w)
		case !document:
			s.refuseAdmin(w, r, http.StatusForbidden, "Your session could not be checked", "Open Holdfast once more from your Shopify admin.")
		default:
			s.withoutToken(w, r)
		}
	}
}

// visit serves a verified request. A shop that has not let us in yet, or not any more, does so by the token
// that its merchant brings.
func (s *server) visit(w http.ResponseWriter, r *http.Request, domain, token string, h merchantHandler) {
	v := visit{templates.Admin{Asset: s.assets.url, ClientID: s.ClientID, AppBridgeURL: s.AppBridgeURL, Now: s.Now()}}
	s.adminHeaders(w, domain)
	sh, err := s.Shops.ByDomain(r.Context(), domain)
	if needsGrant(sh, err) {
		failed := s.Install.InstallByToken(r.Context(), domain, token)
		refused, ok := errors.AsType[*shopify.AuthError](failed)
		switch {
		case failed == nil:
			sh, err = s.Shops.ByDomain(r.Context(), domain)
		case ok && refused.Code == shopify.InvalidSubjectToken:
			s.freshToken(w, r)
			return
		default:
			failed = s.notInstalled(r.Context(), domain, failed)
			if err != nil || !sh.Installed {
				err = failed
			} // else the page says what is wrong
		}
	}
	if err == nil {
		v.Shop = sh
		v.Done = done(r.URL.Query().Get("done"))
		if sh.Scopes != "" {
			v.Missing = shopify.MissingScopes(sh.Scopes)
		}
		err = h(w, r, v)
	}
	if err != nil {
		f := s.refuse(w, r, err)
		message := f.message
		if f.status >= 500 {
			message += " If it stays, tell us this number: " + requestID(r.Context()) + "."
		}
		s.mustRender(w, r, f.status, templates.AdminPlain(v.Admin, f.heading, message))
	}
}

// freshToken has the browser ask again with a token that was made just now.
func (s *server) freshToken(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		s.askAgain(w)
		return
	}
	s.shell(w, r)
}

// askAgain has App Bridge repeat its fetch once, with a fresh token.
func (s *server) askAgain(w http.ResponseWriter) {
	w.Header().Set("X-Shopify-Retry-Invalid-Session-Request", "1")
	http.Error(w, "The ID token is not valid, or not any more.", http.StatusUnauthorized)
}

// withoutToken answers a document request that proves nothing.
func (s *server) withoutToken(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch dest := r.Header.Get("Sec-Fetch-Dest"); {
	case dest == "empty": // a fetch that App Bridge did not touch
		s.askAgain(w)
	case dest == "iframe" || dest == "frame" || (dest != "document" && q.Get("embedded") == "1"):
		s.shell(w, r)
	default: // opened outside the admin: go there, if the address says where that is
		if admin, ok := adminOf(q.Get("host")); ok {
			http.Redirect(w, r, "https://"+admin+"/apps/"+url.PathEscape(s.ClientID)+r.URL.EscapedPath(), http.StatusFound)
			return
		}
		s.refuseAdmin(w, r, http.StatusUnauthorized, "Open Holdfast from your Shopify admin", "Sign in to Shopify, choose Apps, then Holdfast. This page shows nothing outside of it.")
	}
}

// shell is a page without anything of any shop, whose script asks for its own address again.
func (s *server) shell(w http.ResponseWriter, r *http.Request) {
	s.mustRender(w, r, http.StatusOK, templates.AdminShell(s.assets.url, s.ClientID, s.AppBridgeURL))
}

// sessionToken is the shell at an address of its own, for a page that has to fetch a fresh token first.
func (s *server) sessionToken(w http.ResponseWriter, r *http.Request) {
	s.adminHeaders(w, "")
	s.shell(w, r)
}

func (s *server) refuseAdmin(w http.ResponseWriter, r *http.Request, status int, heading, sentence string) {
	s.mustRender(w, r, status, templates.Plain(s.assets.url, nil, heading, sentence))
}

// adminHeaders lets exactly the admin of this shop frame the page, as Shopify's review demands; before
// the shop is known only the admin itself. There is no default-src: App Bridge talks to Shopify in ways
// that are not documented.
func (s *server) adminHeaders(w http.ResponseWriter, domain string) {
	ancestors := "frame-ancestors https://admin.shopify.com"
	if domain != "" {
		ancestors = "frame-ancestors https://" + domain + " https://admin.shopify.com"
	}
	w.Header().Set("Content-Security-Policy", ancestors+s.frameAncestors+"; "+s.scripts+"; object-src 'none'; base-uri 'self'")
}

// sameOrigin is the second line: a form of ours is posted from our own origin, also inside the iframe.
// The first line is that nobody else's page can send our Authorization header.
func (s *server) sameOrigin(next http.Handler) http.Handler {
	guard := http.NewCrossOriginProtection()
	// Our own origin is trusted by its public name, in case a proxy in front changes the Host.
	if err := guard.AddTrustedOrigin(s.URL.Scheme + "://" + s.URL.Host); err != nil {
		panic(err) // New has checked the address
	}
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.adminHeaders(w, "")
		s.refuseAdmin(w, r, http.StatusForbidden, "This came from another website", "Open Holdfast once more from your Shopify admin.")
	}))
	return guard.Handler(next)
}

var storeHandle = regexp.MustCompile(`^admin\.shopify\.com/store/[a-z0-9][a-z0-9-]*$`)

// adminOf decodes the host parameter, base64 of where a shop's admin lives, and lets only the two
// shapes through that Shopify uses: anything else would be an open redirect.
func adminOf(host string) (string, bool) {
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(host, "="))
	if err != nil {
		return "", false
	}
	admin := string(raw)
	if storeHandle.MatchString(admin) {
		return admin, true
	}
	domain, ok := strings.CutSuffix(admin, "/admin")
	return admin, ok && shop.ValidDomain(domain)
}
