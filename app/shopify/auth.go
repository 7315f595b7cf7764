package shopify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	goshopify "github.com/bold-commerce/go-shopify/v4"

	"holdfast/app/shop"
)

// Scopes is what the app needs, joined by commas: drafts to hold units, orders to see what was paid,
// products, stock and locations, and the app proxy, which answers 404 without its scope.
const Scopes = "read_inventory,read_locations,read_orders,read_products,write_app_proxy,write_draft_orders"

// MissingScopes returns those of Scopes that a list of granted ones, joined by commas, does not cover. To
// write is to read: Shopify leaves read_x out of what it lists when write_x is granted.
func MissingScopes(granted string) []string {
	has := strings.FieldsFunc(granted, func(r rune) bool { return r == ',' || r == ' ' })
	return slices.DeleteFunc(strings.Split(Scopes, ","), func(scope string) bool {
		reading, ok := strings.CutPrefix(scope, "read_")
		return slices.Contains(has, scope) || (ok && slices.Contains(has, "write_"+reading))
	})
}

// AuthError is Shopify's refusal to give an access token (RFC 6749, section 5.2): Code is one of its
// words, such as InvalidGrant.
type AuthError struct {
	Status int // HTTP
	Code   string
	Why    string
}

func (e *AuthError) Error() string {
	if e.Why == "" {
		return "Shopify gives no access token: " + e.Code
	}
	return "Shopify gives no access token: " + e.Code + ": " + e.Why
}

const (
	InvalidGrant        = "invalid_grant"         // the refresh token or the code is spent or too old
	InvalidSubjectToken = "invalid_subject_token" // the ID token is too old: fetch another one
	InvalidClient       = "invalid_client"        // the app is not installed in the shop, or its secret is wrong
)

// isAuth says whether an error is Shopify's refusal with one of these codes.
func isAuth(err error, codes ...string) bool {
	e, ok := errors.AsType[*AuthError](err)
	return ok && slices.Contains(codes, e.Code)
}

// NotEnough means that a shop has granted the app less than it needs; nothing was installed.
type NotEnough struct{ Missing []string }

func (e *NotEnough) Error() string { return "the shop did not grant " + strings.Join(e.Missing, ", ") }

// Installation is how a shop comes to have the app: by an ID token, for a merchant who opens the app in
// the admin after Shopify has installed it there ("managed installation" and token exchange), or by the
// code that Shopify sends with a merchant who has approved the app outside of the admin. Either is worth
// an access token; with that the shop's name, currency, country and locale are read, and all is stored at
// once. A shop that fails on the way is as it was.

// InstallByToken installs the app in a shop by an ID token that was verified to be that shop's, or renews
// its grant if it is installed. Its error is an *AuthError, *NotEnough, or what waitlist.Shopify says of
// errors.
func (c *Client) InstallByToken(ctx context.Context, domain, idToken string) error {
	return c.install(ctx, domain, map[string]string{
		"grant_type":           "urn:ietf:params:oauth:grant-type:token-exchange",
		"subject_token":        idToken,
		"subject_token_type":   "urn:ietf:params:oauth:token-type:id_token",
		"requested_token_type": "urn:shopify:params:oauth:token-type:offline-access-token",
		"expiring":             "1", // without it the token would not expire, which Shopify refuses to public apps since April 2026
	})
}

// InstallByCode installs the app in a shop by the code of a callback that was verified. Its errors are
// those of InstallByToken. A code is good once.
func (c *Client) InstallByCode(ctx context.Context, domain, code string) error {
	return c.install(ctx, domain, map[string]string{"code": code, "expiring": "1"})
}

func (c *Client) install(ctx context.Context, domain string, ask map[string]string) error {
	fail := func(err error) error { return fmt.Errorf("shopify: install in %s: %w", domain, err) }
	g, err := c.tokens.ask(ctx, domain, ask)
	if err != nil {
		return fail(err)
	}
	if missing := MissingScopes(g.Scopes); len(missing) > 0 {
		return fail(&NotEnough{missing})
	}
	p, err := c.profile(ctx, domain, g.Token)
	if err != nil {
		return fail(err)
	}
	id, err := c.shops.InstallGrant(ctx, p, g, c.now())
	if err != nil {
		return fail(err)
	}
	c.log.InfoContext(ctx, "installed", "shop", id, "domain", domain)
	return nil
}

// profileData is the answer of shopProfile.
type profileData struct {
	Shop struct {
		Name         string `json:"name"`
		CurrencyCode string `json:"currencyCode"`
		ShopAddress  struct {
			CountryCodeV2 string `json:"countryCodeV2"`
		} `json:"shopAddress"`
		PrimaryDomain struct {
			Localization *struct {
				DefaultLocale string `json:"defaultLocale"`
			} `json:"localization"`
		} `json:"primaryDomain"`
	} `json:"shop"`
}

func (d profileData) profile(domain string) shop.Profile {
	p := shop.Profile{Domain: domain, Name: d.Shop.Name, Currency: d.Shop.CurrencyCode, Country: d.Shop.ShopAddress.CountryCodeV2, Locale: "en"}
	if p.Country == "" { // an address that was not filled in; the country only guesses at phone numbers without a code
		p.Country = "US"
	}
	if l := d.Shop.PrimaryDomain.Localization; l != nil && l.DefaultLocale != "" {
		p.Locale = l.DefaultLocale
	}
	return p
}

// profile reads what a shop says of itself, with a token that is not stored yet.
func (c *Client) profile(ctx context.Context, domain, token string) (shop.Profile, error) {
	var data profileData
	if _, err := c.send(ctx, newBucket(c.now()), domain, token, shopProfile, nil, &data); err != nil {
		return shop.Profile{}, err
	}
	return data.profile(domain), nil
}

// Profile reads what an installed shop says of itself: its name, currency, country and first language.
func (c *Client) Profile(ctx context.Context, shopID int64) (shop.Profile, error) {
	sh, err := c.shops.ByID(ctx, shopID)
	if errors.Is(err, shop.ErrNotFound) {
		err = notInstalled()
	}
	if err != nil {
		return shop.Profile{}, fmt.Errorf("shopify: profile of shop %d: %w", shopID, err)
	}
	var data profileData
	if err := c.call(ctx, shopID, shopProfile, nil, &data); err != nil {
		return shop.Profile{}, err
	}
	return data.profile(sh.Domain), nil
}

// AuthorizeURL is where a merchant is sent to approve the app in a shop. Shopify sends them on to redirect,
// an address of ours that the app's configuration lists, with state as it was given; state must be a
// nonce that their browser is known by. An address for a string that is no shop's domain is an error.
func (c *Client) AuthorizeURL(domain, state, redirect string) (string, error) {
	if !shop.ValidDomain(domain) {
		return "", fmt.Errorf("shopify: %q is not a shop's domain", domain)
	}
	app := goshopify.App{ApiKey: c.app.ApiKey, RedirectUrl: redirect, Scope: Scopes}
	address, err := app.AuthorizeUrl(domain, state)
	if err != nil {
		return "", fmt.Errorf("shopify: authorize in %s: %w", domain, err)
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("shopify: authorize in %s: %w", domain, err)
	}
	return at(c.sim, domain, u.Path, u.RawQuery), nil
}

// AdminURL is where the app lives in a shop's admin.
func (c *Client) AdminURL(domain string) string {
	return at(c.sim, domain, "/admin/apps/"+c.app.ApiKey, "")
}

// at is the address of something of a shop, or where it is instead while sim is set.
func at(sim *url.URL, domain, path, query string) string {
	u := &url.URL{Scheme: "https", Host: domain, Path: path}
	if sim != nil {
		u = sim.JoinPath("shopify", domain, path)
	}
	u.RawQuery = query
	return u.String()
}

// callbackWindow is how old an address may be that Shopify has signed for a browser, or how far ahead of
// our clock, as in Shopify's own libraries.
const callbackWindow = 90 * time.Second

// VerifyBrowser verifies the query that Shopify has signed for a merchant's browser, at the time now, and
// returns the shop that it is about, or ErrUnverified. It is that of an installation's first request or
// of its callback; what else the query holds is Shopify's word.
func (v *Verifier) VerifyBrowser(query url.Values, now time.Time) (domain string, err error) {
	fail := func(why string) (string, error) {
		return "", fmt.Errorf("install: %w: %s", ErrUnverified, why)
	}
	// What is signed is the query in the order of its names, unescaped: "&" or "=" within a value could be
	// taken for the border between two. Shopify sends neither, but for the padding of base64 at the end.
	for name, values := range query {
		if len(values) != 1 {
			return fail("a parameter is given twice")
		}
		if strings.ContainsAny(name, "&=") || strings.Contains(values[0], "&") || strings.Contains(strings.TrimRight(values[0], "="), "=") {
			return fail("a parameter is ambiguous")
		}
	}
	if !signaturePattern.MatchString(query.Get("hmac")) {
		return fail("the signature is missing or no signature")
	}
	// go-shopify leaves a parameter of this name out of what it verifies.
	if query.Has("signature") {
		return fail("there are two signatures")
	}
	signed := &url.URL{RawQuery: query.Encode()}
	if !slices.ContainsFunc(v.apps, func(app goshopify.App) bool {
		ok, err := app.VerifyAuthorizationURL(signed)
		return ok && err == nil
	}) {
		return fail("the signature is wrong")
	}
	seconds, err := strconv.ParseInt(query.Get("timestamp"), 10, 64)
	if err != nil {
		return fail("the timestamp is missing or no time")
	}
	if off := now.Sub(time.Unix(seconds, 0)); off > callbackWindow || off < -callbackWindow {
		return fail("the timestamp is too old or in the future: check that this machine's clock is right")
	}
	domain = query.Get("shop")
	if !shop.ValidDomain(domain) {
		return fail("the shop is not a shop's domain")
	}
	return domain, nil
}

// maxGrant is the longest answer of the token endpoint that is read, in bytes.
const maxGrant = 64 << 10

// ask asks a shop's token endpoint for a grant. Its error is an *AuthError when Shopify has refused, and
// any other when it is unknown whether it has granted. go-shopify's GetAccessToken keeps the token alone
// and drops its end, its renewal and its scopes.
func (t *TokenSource) ask(ctx context.Context, domain string, ask map[string]string) (shop.Grant, error) {
	if !shop.ValidDomain(domain) {
		return shop.Grant{}, fmt.Errorf("%q is not a shop's domain", domain)
	}
	body := map[string]string{"client_id": t.app.ApiKey, "client_secret": t.app.ApiSecret}
	for k, v := range ask {
		body[k] = v
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return shop.Grant{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at(t.sim, domain, "/admin/oauth/access_token", ""), strings.NewReader(string(raw)))
	if err != nil {
		return shop.Grant{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	asked := t.now()
	// A redirect is not followed: the secret would go with it.
	client := &http.Client{Transport: t.transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return shop.Grant{}, fmt.Errorf("ask for an access token: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxGrant))
	if err != nil {
		return shop.Grant{}, fmt.Errorf("ask for an access token: read the answer: %w", err)
	}
	var got struct {
		AccessToken  string `json:"access_token"`
		Scope        string `json:"scope"`
		ExpiresIn    int64  `json:"expires_in"` // seconds
		RefreshToken string `json:"refresh_token"`
		Error        string `json:"error"`
		Description  string `json:"error_description"`
	}
	err = json.Unmarshal(answer, &got)
	switch {
	case resp.StatusCode >= 400 && resp.StatusCode < 500 && err == nil && got.Error != "":
		return shop.Grant{}, &AuthError{resp.StatusCode, got.Error, got.Description}
	case resp.StatusCode != http.StatusOK:
		return shop.Grant{}, fmt.Errorf("ask for an access token: HTTP status %d", resp.StatusCode)
	case err != nil:
		return shop.Grant{}, errors.New("ask for an access token: the answer is no JSON") // not err, which may quote a token
	case got.AccessToken == "":
		return shop.Grant{}, errors.New("ask for an access token: the answer holds none")
	case (got.RefreshToken == "") != (got.ExpiresIn <= 0):
		return shop.Grant{}, errors.New("ask for an access token: it expires and cannot be renewed, or the other way round")
	}
	g := shop.Grant{Token: got.AccessToken, Refresh: got.RefreshToken, Scopes: got.Scope}
	if g.Refresh != "" {
		g.Expires = asked.Add(time.Duration(got.ExpiresIn) * time.Second)
	}
	return g, nil
}
