package stage

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
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

	"holdfast/app/shop"
)

// tampers are the ways in which an ID token can be spoilt.
var tampers = []string{"aud", "exp", "dest", "sig", "none"}

// idToken is what App Bridge gives an embedded app: a JWT of one minute, signed with the app's secret
// (Shopify's "ID token"; HS256). tamper spoils one thing of it: aud (another app's), exp (an hour old),
// dest (another shop's), sig (changed after it was signed), none (alg none, unsigned); "" spoils nothing.
func idToken(domain, clientID, secret string, now time.Time, tamper string) string {
	claims := map[string]any{
		"iss": "https://" + domain + "/admin", "dest": "https://" + domain, "aud": clientID, "sub": "7001",
		"exp": now.Add(time.Minute).Unix(), "nbf": now.Unix(), "iat": now.Unix(), "jti": rand.Text(), "sid": rand.Text(),
	}
	alg := "HS256"
	switch tamper {
	case "aud":
		claims["aud"] = strings.Repeat("0", 32)
	case "exp":
		claims["exp"], claims["nbf"], claims["iat"] = now.Add(-time.Hour).Unix(), now.Add(-time.Hour-time.Minute).Unix(), now.Add(-time.Hour-time.Minute).Unix()
	case "dest":
		claims["dest"] = "https://somebody-else.myshopify.com"
	case "none":
		alg = "none"
	}
	part := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			panic(err) // strings and numbers alone
		}
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	signed := part(map[string]string{"alg": alg, "typ": "JWT"}) + "." + part(claims)
	if tamper == "none" {
		return signed + "."
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(signed))
	sig := mac.Sum(nil)
	if tamper == "sig" {
		sig[0] ^= 1
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// adminHost is the host parameter that Shopify gives an embedded app: where in the admin it is embedded.
func adminHost(domain string) string {
	name, _, _ := strings.Cut(domain, ".")
	return base64.RawStdEncoding.EncodeToString([]byte("admin.shopify.com/store/" + name))
}

// Reply is the app's answer to a request that a control call made.
type Reply struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"` // several of one name are joined by ", "
	Body    any               `json:"body"`    // a JSON value when the app answered JSON, else a string
}

// values is a form in JSON: each member a string, number, boolean, or a list of them.
type values map[string]any

func (v values) form() (url.Values, error) {
	form := url.Values{}
	for name, value := range v {
		all, ok := value.([]any)
		if !ok {
			all = []any{value}
		}
		if len(all) == 0 {
			form.Add(name, "") // a field that was emptied, which is not a field that is missing
		}
		for _, one := range all {
			switch x := one.(type) {
			case string:
				form.Add(name, x)
			case json.Number:
				form.Add(name, x.String())
			case bool:
				form.Add(name, strconv.FormatBool(x))
			default:
				return nil, refuse(http.StatusBadRequest, "%s: a form has texts, numbers, booleans and lists of them", name)
			}
		}
	}
	return form, nil
}

func (s *Stage) postAdmin(r *http.Request) (any, error) {
	var in struct {
		Shop   string          `json:"shop"`
		Method string          `json:"method"`
		Path   string          `json:"path"`
		Form   json.RawMessage `json:"form"`
		JSON   json.RawMessage `json:"json"`
		Tamper string          `json:"tamper"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	in.Method = strings.ToUpper(in.Method)
	if in.Method == "" {
		in.Method = http.MethodGet
	}
	switch {
	case !shop.ValidDomain(in.Shop):
		return nil, refuse(http.StatusBadRequest, "shop: %q is no shop domain", in.Shop)
	case !strings.HasPrefix(in.Path, "/"):
		return nil, refuse(http.StatusBadRequest, "path: it begins with a slash, as in /settings")
	case in.Tamper != "" && !slices.Contains(tampers, in.Tamper):
		return nil, refuse(http.StatusBadRequest, "tamper: %q is none of %s", in.Tamper, strings.Join(tampers, ", "))
	case in.Form != nil && in.JSON != nil:
		return nil, refuse(http.StatusBadRequest, "form and json: send one of them")
	}
	var body []byte
	var contentType string
	switch {
	case in.Form != nil:
		var v values
		dec := json.NewDecoder(bytes.NewReader(in.Form))
		dec.UseNumber()
		if err := dec.Decode(&v); err != nil {
			return nil, refuse(http.StatusBadRequest, "form: send an object")
		}
		form, err := v.form()
		if err != nil {
			return nil, err
		}
		body, contentType = []byte(form.Encode()), "application/x-www-form-urlencoded"
	case in.JSON != nil:
		body, contentType = in.JSON, "application/json"
	}
	return s.admin(r.Context(), in.Shop, in.Method, in.Path, contentType, body, in.Tamper)
}

// admin sends a request to the app as its own page in the admin does: with an ID token, from its own
// origin. A redirect is answered as it is.
func (s *Stage) admin(ctx context.Context, domain, method, path, contentType string, body []byte, tamper string) (Reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.AppURL+path, bytes.NewReader(body))
	if err != nil {
		return Reply{}, refuse(http.StatusBadRequest, "%s", err)
	}
	req.Header.Set("Authorization", "Bearer "+idToken(domain, ClientID, ClientSecret, s.clock.Now(), tamper))
	req.Header.Set("Accept", "text/html, application/json;q=0.9")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if method != http.MethodGet && method != http.MethodHead {
		req.Header.Set("Origin", s.AppURL)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		return Reply{}, fmt.Errorf("request to the app: %w", err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	if err != nil {
		return Reply{}, fmt.Errorf("answer of the app: %w", err)
	}
	out := Reply{Status: res.StatusCode, Headers: map[string]string{}, Body: string(raw)}
	if strings.Contains(res.Header.Get("Content-Type"), "json") && json.Valid(raw) {
		out.Body = json.RawMessage(raw)
	}
	for name, all := range res.Header {
		out.Headers[name] = strings.Join(all, ", ")
	}
	return out, nil
}

// notYet are settings of features that are not built.
var notYet = []string{"confirm"}

func (s *Stage) getSettings(r *http.Request) (any, error) {
	sh, err := s.shopOf(r.Context(), r.URL.Query().Get("shop"))
	if err != nil {
		return nil, err
	}
	return s.store.Settings(r.Context(), sh.ID)
}

// postSettings saves settings through the admin's own form, as a merchant who changes some fields and
// leaves the others.
func (s *Stage) postSettings(r *http.Request) (any, error) {
	given := map[string]any{}
	dec := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 1<<20))
	dec.UseNumber()
	if err := dec.Decode(&given); err != nil {
		return nil, refuse(http.StatusBadRequest, "send one JSON object: %s", err)
	}
	domain, _ := given["shop"].(string)
	delete(given, "shop")
	sh, err := s.shopOf(r.Context(), domain)
	if err != nil {
		return nil, err
	}
	set, err := s.store.Settings(r.Context(), sh.ID)
	if err != nil {
		return nil, err
	}
	known, err := members(set)
	if err != nil {
		return nil, err
	}
	for name := range given {
		if slices.Contains(notYet, name) {
			return nil, notBuilt("the setting " + name)
		}
		if _, ok := known[name]; !ok {
			return nil, refuse(http.StatusBadRequest, "unknown field %q: there is no such setting", name)
		}
	}
	form, err := values(given).form()
	if err != nil {
		return nil, err
	}
	reply, err := s.admin(r.Context(), domain, http.MethodPost, "/settings", "application/x-www-form-urlencoded", []byte(form.Encode()), "")
	if err != nil {
		return nil, err
	}
	switch reply.Status {
	case http.StatusSeeOther, http.StatusOK:
		if err := s.noteSettings(r.Context()); err != nil {
			return nil, err
		}
		return s.store.Settings(r.Context(), sh.ID)
	case http.StatusUnprocessableEntity:
		return nil, &refusal{http.StatusUnprocessableEntity, "the settings were not saved", map[string]any{"faults": faultsIn(set, given)}}
	}
	return nil, &refusal{http.StatusBadGateway, fmt.Sprintf("the app answers %d to its settings form", reply.Status), map[string]any{"body": reply.Body}}
}

// members are settings as the members of their JSON.
func members(set shop.Settings) (map[string]any, error) {
	raw, err := json.Marshal(set)
	if err != nil {
		return nil, err
	}
	all := map[string]any{}
	return all, json.Unmarshal(raw, &all)
}

// faultsIn names what is wrong with settings that the app has refused, by the domain's own check: the same
// reasons as stand in the app's page.
func faultsIn(set shop.Settings, given map[string]any) []shopFault {
	faults := []shopFault{}
	for name, value := range given {
		// What is typed into a form is text; a number in it is a number all the same.
		raw, err := json.Marshal(value)
		if text, ok := value.(string); ok && name != "reply_to" {
			raw = []byte(text)
		}
		if err == nil {
			err = json.Unmarshal(fmt.Appendf(nil, "{%q:%s}", name, raw), &set)
		}
		if err != nil {
			faults = append(faults, shopFault{name, "not the kind of value that this setting has"})
		}
	}
	for _, f := range set.Check() {
		faults = append(faults, shopFault{f.Field, f.Reason})
	}
	slices.SortFunc(faults, func(a, b shopFault) int { return strings.Compare(a.Field, b.Field) })
	return faults
}

type shopFault struct {
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

// shopOf finds a shop that the app knows by its domain.
func (s *Stage) shopOf(ctx context.Context, domain string) (shop.Shop, error) {
	if domain == "" {
		return shop.Shop{}, refuse(http.StatusBadRequest, "shop is missing: give its domain, such as %s", FirstShop)
	}
	sh, err := s.store.ByDomain(ctx, domain)
	if errors.Is(err, shop.ErrNotFound) {
		return sh, refuse(http.StatusNotFound, "shop: %q is not installed", domain)
	}
	return sh, err
}
