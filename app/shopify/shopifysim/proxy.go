package shopifysim

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ProxyPrefix is where the app proxy lies in a storefront: https://{shop}/apps/notify/waitlist is the
// app's /proxy/waitlist.
const ProxyPrefix = "/apps/notify"

// Tamper spoils a request after it was signed. In JSON it is a word, or true for "sig".
type Tamper string

// UnmarshalJSON reads a word, or true.
func (t *Tamper) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "true":
		*t = "sig"
		return nil
	case "false", "null":
		*t = ""
		return nil
	}
	return json.Unmarshal(b, (*string)(t))
}

// webhook returns how a webhook is spoilt.
func (t Tamper) webhook(s *Server) (func(*http.Request), error) {
	const header = "X-Shopify-Hmac-Sha256"
	switch t {
	case "":
		return nil, nil
	case "sig":
		return func(r *http.Request) { r.Header.Set(header, SignWebhook(s.secret+"?", nil)) }, nil
	case "none":
		return func(r *http.Request) { r.Header.Del(header) }, nil
	case "body":
		return func(r *http.Request) {
			body, _ := io.ReadAll(r.Body) // a bytes.Reader
			body = append(body, ' ')
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.GetBody = nil
		}, nil
	}
	return nil, invalid("tamper: %q is none of sig, none, body", string(t))
}

// query returns how a proxied query is spoilt.
func (t Tamper) query() (func(url.Values) string, error) {
	set := func(key string, value func(string) string) func(url.Values) string {
		return func(q url.Values) string { q.Set(key, value(q.Get(key))); return q.Encode() }
	}
	switch t {
	case "", "stale":
		return url.Values.Encode, nil
	case "sig":
		return set("signature", func(s string) string { return strings.Map(rotate, s) }), nil
	case "none":
		return func(q url.Values) string { q.Del("signature"); return q.Encode() }, nil
	case "shop":
		return set("shop", func(string) string { return "other.myshopify.com" }), nil
	case "customer":
		return set("logged_in_customer_id", func(string) string { return "1" }), nil
	case "query":
		return set("variant_id", func(s string) string { return s + "1" }), nil
	case "duplicate":
		return func(q url.Values) string { return "shop=other.myshopify.com&" + q.Encode() }, nil
	}
	return nil, invalid("tamper: %q is none of sig, none, stale, shop, customer, query, duplicate", string(t))
}

func rotate(r rune) rune {
	if i := strings.IndexRune("0123456789abcdef", r); i >= 0 {
		return rune("123456789abcdef0"[i])
	}
	return r
}

// SignProxy returns a query with the parameters that Shopify's app proxy adds, signed as it signs: every
// parameter as key=value, several values of one key joined by commas, sorted, joined by nothing,
// HMAC-SHA256 with the app's client secret, in hex.
func SignProxy(secret string, query url.Values, shop, prefix, customerID string, at time.Time) url.Values {
	q := url.Values{}
	for k, v := range query {
		q[k] = slices.Clone(v)
	}
	q.Set("shop", shop)
	q.Set("path_prefix", prefix)
	q.Set("timestamp", strconv.FormatInt(at.Unix(), 10))
	q.Set("logged_in_customer_id", customerID)
	q.Del("signature")
	var parts []string
	for k, v := range q {
		parts = append(parts, k+"="+strings.Join(v, ","))
	}
	slices.Sort(parts)
	m := hmac.New(sha256.New, []byte(secret))
	io.WriteString(m, strings.Join(parts, ""))
	q.Set("signature", hex.EncodeToString(m.Sum(nil)))
	return q
}

// ProxyRequest is a request of a shopper's browser to the app proxy. Path is below the proxy's root and
// may carry a query.
type ProxyRequest struct {
	Shop       string            `json:"shop"`
	Method     string            `json:"method,omitempty"` // GET without a body, POST with one
	Path       string            `json:"path"`
	Headers    map[string]string `json:"headers,omitempty"` // as the browser wrote them
	Body       json.RawMessage   `json:"body,omitempty"`    // an object is sent as JSON, a string as it is
	IP         string            `json:"ip,omitempty"`      // of the browser: 203.0.113.1
	Timestamp  Stamp             `json:"timestamp,omitzero"`
	CustomerID string            `json:"customer_id,omitempty"` // of the signed-in customer
	Tamper     Tamper            `json:"tamper,omitempty"`
}

// Stamp is a time that a script gives as Unix seconds or in RFC 3339.
type Stamp struct{ time.Time }

// UnmarshalJSON reads 1770000000, "1770000000" or "2026-11-03T10:00:00Z".
func (t *Stamp) UnmarshalJSON(b []byte) error {
	s := strings.Trim(string(b), `"`)
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		t.Time = time.Unix(n, 0).UTC()
		return nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return fmt.Errorf("timestamp: %s: give Unix seconds or a time such as 2026-11-03T10:00:00Z", b)
	}
	t.Time = at
	return nil
}

// ProxyResponse is what the app answered. Body is a JSON value when the app answered JSON, else a string.
type ProxyResponse struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    any               `json:"body"`
}

// Proxy sends a request through the app proxy.
func (s *Server) Proxy(ctx context.Context, p ProxyRequest) (ProxyResponse, error) {
	body, kind := []byte(p.Body), "application/json"
	if len(body) > 0 && body[0] == '"' {
		var text string
		if err := json.Unmarshal(body, &text); err != nil {
			return ProxyResponse{}, invalid("body: %v", err)
		}
		body, kind = []byte(text), "application/x-www-form-urlencoded"
	}
	if string(body) == "null" {
		body = nil
	}
	method := strings.ToUpper(p.Method)
	if method == "" {
		method = http.MethodGet
		if len(body) > 0 {
			method = http.MethodPost
		}
	}
	header := http.Header{}
	if len(body) > 0 {
		header.Set("Content-Type", kind)
	}
	for k, v := range p.Headers {
		header.Set(k, v)
	}
	ip := p.IP
	if ip == "" {
		ip = "203.0.113.1"
	}
	res, err := s.forward(ctx, p.Shop, method, p.Path, header, body, ip, p)
	if err != nil {
		return ProxyResponse{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	if err != nil {
		return ProxyResponse{}, &Error{http.StatusBadGateway, "the app broke off its answer: " + err.Error()}
	}
	out := ProxyResponse{Status: res.StatusCode, Headers: map[string]string{}, Body: string(text)}
	for k := range res.Header {
		out.Headers[k] = res.Header.Get(k)
	}
	if strings.Contains(res.Header.Get("Content-Type"), "json") && json.Valid(text) {
		out.Body = json.RawMessage(text)
	}
	return out, nil
}

// ServeProxy answers a storefront's request to the app proxy of a shop; path is below the proxy's root.
func (s *Server) ServeProxy(w http.ResponseWriter, r *http.Request, shop, path string) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, "The request is too large.", http.StatusRequestEntityTooLarge)
		return
	}
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	ip, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		ip = r.RemoteAddr
	}
	res, err := s.forward(r.Context(), shop, r.Method, path, r.Header, body, ip, ProxyRequest{})
	if err != nil {
		fail(w, err)
		return
	}
	defer res.Body.Close()
	for k, v := range res.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(res.StatusCode)
	if _, err := io.Copy(w, res.Body); err != nil {
		s.log.Warn("simulated app proxy: the answer broke off", "err", err)
	}
}

// forward is the proxy: it signs the query, appends the browser's address to X-Forwarded-For, keeps
// cookies from passing in either direction, and follows no redirect.
func (s *Server) forward(ctx context.Context, shop, method, path string, header http.Header, body []byte, ip string, p ProxyRequest) (*http.Response, error) {
	s.mu.RLock()
	known := s.shops[shop] != nil
	s.mu.RUnlock()
	app := strings.TrimRight(s.appURL(), "/")
	switch {
	case !known:
		return nil, notFound("there is no shop %q", shop)
	case !strings.HasPrefix(path, "/"):
		return nil, invalid("path: %q: give the path below the proxy's root, such as /waitlist", path)
	case app == "":
		return nil, conflict("the app has no address")
	}
	path, raw, _ := strings.Cut(path, "?")
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, invalid("path: the query cannot be read: %v", err)
	}
	spoil, err := p.Tamper.query()
	if err != nil {
		return nil, err
	}
	at := s.clock.Now()
	if !p.Timestamp.IsZero() {
		at = p.Timestamp.Time
	}
	if p.Tamper == "stale" {
		at = at.Add(-10 * time.Minute)
	}
	signed := spoil(SignProxy(s.secret, query, shop, ProxyPrefix, p.CustomerID, at))
	req, err := http.NewRequestWithContext(ctx, method, app+"/proxy"+path+"?"+signed, bytes.NewReader(body))
	if err != nil {
		return nil, invalid("the request cannot be made: %v", err)
	}
	for k, v := range header {
		switch http.CanonicalHeaderKey(k) {
		case "Cookie", "Host", "Connection", "Content-Length", "X-Forwarded-For", "Accept-Encoding":
		default:
			req.Header[http.CanonicalHeaderKey(k)] = v
		}
	}
	req.Header.Set("X-Forwarded-For", ip)
	if written := header.Get("X-Forwarded-For"); written != "" {
		req.Header.Set("X-Forwarded-For", written+", "+ip)
	}
	req.Header.Set("X-Forwarded-Host", shop)
	res, err := s.hooks.proxy.Do(req)
	if err != nil {
		return nil, &Error{http.StatusBadGateway, "the app does not answer: " + err.Error()}
	}
	res.Header.Del("Set-Cookie")
	return res, nil
}
