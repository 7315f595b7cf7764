package shopifysim

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"holdfast/app/simkit"
)

// How long tokens live, on the simulated clock (shopify.dev: an hour, and 90 days).
const (
	accessLife  = time.Hour
	refreshLife = 90 * 24 * time.Hour
	codeLife    = time.Minute
)

// grant is a pair of tokens that a shop gave to the app. There may be several: each token exchange makes
// one, and each refresh makes the successor of one.
type grant struct {
	access, refresh string
	accessEnds      time.Time // zero: it does not expire, and there is no refresh token
	refreshEnds     time.Time
	next            *grant // what a refresh has replaced it with last
	dead            bool
}

// use notes that one of the pair's tokens was used: that is the end of the pair before it. Assumed for its
// access token; Shopify says it of the refresh token.
func (sh *shop) use(g *grant) {
	for _, before := range sh.grants {
		if before.next == g {
			before.dead = true
		}
	}
}

// oauthCode is what an approved authorization is exchanged for.
type oauthCode struct {
	code string
	ends time.Time
}

// ops of the token endpoint, as the log of requests and faults call them.
const (
	opExchange = "oauth/token_exchange"
	opRefresh  = "oauth/refresh_token"
	opCode     = "oauth/authorization_code"
)

const (
	grantExchange = "urn:ietf:params:oauth:grant-type:token-exchange"
	typeIDToken   = "urn:ietf:params:oauth:token-type:id_token"
	typeOffline   = "urn:shopify:params:oauth:token-type:offline-access-token"
)

// IDToken is what App Bridge gives the app for its requests, and the admin for its first one: a JWT of one
// minute, signed with the app's client secret.
func (s *Server) IDToken(domain string) string {
	now := s.clock.Now()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "https://" + domain + "/admin", "dest": "https://" + domain, "aud": s.clientID, "sub": "7001",
		"exp": now.Add(time.Minute).Unix(), "nbf": now.Unix(), "iat": now.Unix(), "jti": rand.Text(), "sid": rand.Text(),
	}).SignedString([]byte(s.secret))
	if err != nil {
		panic(err) // strings and numbers, and a key of the kind that HS256 takes
	}
	return token
}

// SignBrowser adds the signature with which Shopify sends a merchant's browser to the app: HMAC-SHA256
// with the app's client secret over the other parameters, sorted, as name=value joined by "&", in hex.
func SignBrowser(secret string, query url.Values) url.Values {
	parts := []string{}
	for name, values := range query {
		parts = append(parts, name+"="+strings.Join(values, ","))
	}
	slices.Sort(parts)
	m := hmac.New(sha256.New, []byte(secret))
	io.WriteString(m, strings.Join(parts, "&"))
	signed := url.Values{"hmac": {hex.EncodeToString(m.Sum(nil))}}
	for name, values := range query {
		signed[name] = values
	}
	return signed
}

// hostParam is where in the admin an app is embedded, as Shopify's host parameter says it.
func hostParam(domain string) string {
	name, _, _ := strings.Cut(domain, ".")
	return base64.RawStdEncoding.EncodeToString([]byte("admin.shopify.com/store/" + name))
}

// serveAuthorize is the page on which a merchant approves the app. Here they always do, at once.
func (s *Server) serveAuthorize(w http.ResponseWriter, r *http.Request, domain string) {
	q := r.URL.Query()
	sh, err := s.lock(domain)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer sh.mu.Unlock()
	back, err := url.Parse(q.Get("redirect_uri"))
	asked := strings.FieldsFunc(q.Get("scope"), func(r rune) bool { return r == ',' || r == ' ' })
	switch {
	case q.Get("client_id") != s.clientID:
		http.Error(w, "Oauth error invalid_request: Could not find Shopify API application with api_key", http.StatusBadRequest)
		return
	case err != nil || q.Get("redirect_uri") != strings.TrimRight(s.appURL(), "/")+"/auth/callback":
		http.Error(w, "Oauth error invalid_request: The redirect_uri is not whitelisted", http.StatusBadRequest)
		return
	case len(asked) == 0 || slices.ContainsFunc(asked, func(scope string) bool { return !covers(sh.scopes, []string{scope}) }):
		http.Error(w, "Oauth error invalid_scope: The access scope is invalid", http.StatusBadRequest)
		return
	}
	code := oauthCode{rand.Text(), s.clock.Now().Add(codeLife)}
	sh.codes = append(sh.codes, code)
	back.RawQuery = SignBrowser(s.secret, url.Values{
		"code": {code.code}, "host": {hostParam(domain)}, "shop": {domain}, "state": {q.Get("state")},
		"timestamp": {strconv.FormatInt(s.clock.Now().Unix(), 10)},
	}).Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

// tokenFaults are the modes of faults that the token endpoint can have.
var tokenFaults = []string{"delay", "status", "html_502", "timeout_after_commit", "drop_after_commit"}

// tokenRequest is the body of a request to the token endpoint.
type tokenRequest struct {
	ClientID           string `json:"client_id"`
	ClientSecret       string `json:"client_secret"`
	GrantType          string `json:"grant_type"`
	SubjectToken       string `json:"subject_token"`
	SubjectTokenType   string `json:"subject_token_type"`
	RequestedTokenType string `json:"requested_token_type"`
	RefreshToken       string `json:"refresh_token"`
	Code               string `json:"code"`
	Expiring           string `json:"expiring"`
}

func (t tokenRequest) op() string {
	switch t.GrantType {
	case grantExchange:
		return opExchange
	case "refresh_token":
		return opRefresh
	case "", "authorization_code":
		return opCode
	}
	return "oauth/" + t.GrantType
}

// serveToken is the token endpoint. What it is asked is recorded without its secrets.
func (s *Server) serveToken(w http.ResponseWriter, r *http.Request, domain string) {
	var in tokenRequest
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err == nil {
		err = json.Unmarshal(body, &in)
	}
	rec := Request{ID: ID(s.newID()), At: s.clock.Now(), Shop: domain, Op: in.op(), Ops: []string{in.op()}}
	defer func() { s.requests.add(rec) }()
	if r.Method != http.MethodPost || err != nil {
		rec.Status = http.StatusBadRequest
		reply(w, rec.Status, map[string]string{"error": "invalid_request"})
		return
	}
	var fire []simkit.Fault
	if slices.ContainsFunc(s.faults.List(), func(f simkit.Fault) bool { return slices.Contains(tokenFaults, f.Mode) }) {
		fire = s.faults.Take("shopify", rec.Op, domain) // else a fault of the Admin API would be spent here
	}
	for _, f := range fire {
		rec.Faults = append(rec.Faults, f.Mode)
		switch {
		case f.Mode == "delay" && f.When != "after":
			if !s.faults.Wait(f, r.Context().Done()) {
				return
			}
		case f.Mode == "status":
			rec.Status = f.Code
			reply(w, f.Code, map[string]string{"errors": http.StatusText(f.Code)})
			return
		case f.Mode == "html_502":
			rec.Status = http.StatusBadGateway
			http.Error(w, "<html><h1>502 Bad Gateway</h1></html>", rec.Status)
			return
		}
	}
	answer, refused := s.token(domain, in)
	for _, f := range fire {
		switch {
		case f.Mode == "delay" && f.When == "after":
			if !s.faults.Wait(f, r.Context().Done()) {
				return
			}
		case f.Mode == "timeout_after_commit":
			select {
			case <-r.Context().Done():
			case <-time.After(timeoutAfter):
			}
			panic(http.ErrAbortHandler)
		case f.Mode == "drop_after_commit":
			panic(http.ErrAbortHandler)
		}
	}
	if refused != nil {
		rec.Status, rec.Errors = http.StatusBadRequest, []string{refused.Error}
		reply(w, rec.Status, refused)
		return
	}
	rec.Status = http.StatusOK
	reply(w, rec.Status, answer)
}

type tokenAnswer struct {
	AccessToken      string `json:"access_token"`
	Scope            string `json:"scope"`
	ExpiresIn        int    `json:"expires_in,omitempty"` // seconds
	RefreshToken     string `json:"refresh_token,omitempty"`
	RefreshExpiresIn int    `json:"refresh_token_expires_in,omitempty"`
}

type tokenRefusal struct {
	Error       string `json:"error"`
	Description string `json:"error_description"`
}

func (s *Server) token(domain string, in tokenRequest) (tokenAnswer, *tokenRefusal) {
	refuse := func(code, why string) (tokenAnswer, *tokenRefusal) { return tokenAnswer{}, &tokenRefusal{code, why} }
	sh, err := s.lock(domain)
	if err != nil {
		return refuse("invalid_client", "there is no such shop")
	}
	defer sh.mu.Unlock()
	now := s.clock.Now()
	if in.ClientID != s.clientID || subtle.ConstantTimeCompare([]byte(in.ClientSecret), []byte(s.secret)) != 1 {
		return refuse("invalid_client", "the client id or secret is wrong")
	}
	if !sh.installed && in.op() != opCode {
		return refuse("invalid_client", "the app is not installed in the shop")
	}
	switch in.op() {
	case opExchange:
		if in.SubjectTokenType != typeIDToken || in.RequestedTokenType != typeOffline {
			return refuse("invalid_request", "SIMULATOR: only an ID token for an offline access token is simulated")
		}
		if !s.validIDToken(domain, in.SubjectToken, now) {
			return refuse("invalid_subject_token", "the ID token is not valid, or not any more")
		}
		return s.give(sh, in.Expiring, now).answer(sh.scopes, now), nil
	case opCode:
		i := slices.IndexFunc(sh.codes, func(c oauthCode) bool { return c.code == in.Code && now.Before(c.ends) })
		if i < 0 {
			return refuse("invalid_request", "the authorization code was not found or was already used")
		}
		sh.codes = slices.Delete(sh.codes, i, i+1)
		sh.installed = true
		return s.give(sh, in.Expiring, now).answer(sh.scopes, now), nil
	case opRefresh:
		i := slices.IndexFunc(sh.grants, func(g *grant) bool { return g.refresh != "" && g.refresh == in.RefreshToken })
		if i < 0 || sh.grants[i].dead || !now.Before(sh.grants[i].refreshEnds) {
			return refuse("invalid_grant", "the refresh token is not known, was replaced, or is too old")
		}
		g := sh.grants[i]
		sh.use(g)
		if g.next != nil {
			// Asked again, before what it was answered was used. Assumed: that is replaced, too.
			g.next.dead = true
		}
		g.next = s.give(sh, "1", now)
		return g.next.answer(sh.scopes, now), nil
	}
	return refuse("unsupported_grant_type", "SIMULATOR: not simulated: "+in.GrantType)
}

// give makes a pair, or a token that does not expire when the app did not ask for one that does.
func (s *Server) give(sh *shop, expiring string, now time.Time) *grant {
	g := &grant{access: "shpat_" + rand.Text()}
	if expiring == "1" || expiring == "true" {
		g.refresh, g.accessEnds, g.refreshEnds = "shprt_"+rand.Text(), now.Add(accessLife), now.Add(refreshLife)
	}
	sh.grants = append(sh.grants, g)
	return g
}

func (g *grant) answer(scopes []string, now time.Time) tokenAnswer {
	a := tokenAnswer{AccessToken: g.access, Scope: strings.Join(scopes, ",")}
	if g.refresh != "" {
		a.RefreshToken = g.refresh
		a.ExpiresIn, a.RefreshExpiresIn = int(g.accessEnds.Sub(now).Seconds()), int(g.refreshEnds.Sub(now).Seconds())
	}
	return a
}

// validIDToken is Shopify's own look at a subject token.
func (s *Server) validIDToken(domain, token string, now time.Time) bool {
	claims := jwt.MapClaims{}
	_, err := jwt.ParseWithClaims(token, claims, func(*jwt.Token) (any, error) { return []byte(s.secret), nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithAudience(s.clientID), jwt.WithExpirationRequired(), jwt.WithTimeFunc(func() time.Time { return now }))
	return err == nil && claims["dest"] == "https://"+domain
}

// accepts says whether a token is good for the Admin API now. A token that is used ends the pair before
// its own.
func (s *Server) accepts(sh *shop, token string) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !sh.installed || token == "" {
		return false
	}
	if token == sh.token {
		return true
	}
	i := slices.IndexFunc(sh.grants, func(g *grant) bool { return g.access == token })
	if i < 0 || sh.grants[i].dead {
		return false
	}
	if g := sh.grants[i]; !g.accessEnds.IsZero() && !s.clock.Now().Before(g.accessEnds) {
		return false
	}
	sh.use(sh.grants[i])
	return true
}

// expire ends an access token before its time, if it is one that expires.
func (s *Server) expire(sh *shop, token string) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, g := range sh.grants {
		if g.access == token && g.refresh != "" {
			g.accessEnds = s.clock.Now()
		}
	}
}

// revoke ends everything that a shop has granted, as uninstalling does.
func (sh *shop) revoke() {
	sh.token, sh.grants, sh.codes = "", nil, nil
}

// Approve is a merchant who presses Install in the App Store: the app is installed in the shop and knows
// nothing of it until it is opened.
func (s *Server) Approve(domain string) error {
	sh, err := s.lock(domain)
	if err != nil {
		return err
	}
	defer sh.mu.Unlock()
	sh.installed = true
	return nil
}

// GrantScopes changes what a shop grants, as when its merchant approves more or takes some back; the
// webhook app/scopes_update follows.
func (s *Server) GrantScopes(domain string, scopes ...string) error {
	sh, err := s.lock(domain)
	if err != nil {
		return err
	}
	defer sh.mu.Unlock()
	sh.emit("app/scopes_update", map[string]any{
		"id": sh.id, "previous": sh.scopes, "current": scopes, "updated_at": stamp(s.clock.Now()),
	})
	sh.scopes = scopes
	return nil
}
