package web

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"holdfast/app/shop"
	"holdfast/app/shopify"
	"holdfast/app/waitlist"
	"holdfast/app/words"
	"holdfast/templates"
)

// storefront answers errors in JSON, or with a small page when a browser posted a form by itself.
func (s *server) storefront(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		if err == nil {
			return
		}
		f := s.refuse(w, r, err)
		if wantsPage(r) {
			l, heading, message := f.inLanguage(r.Header.Get("Accept-Language"))
			s.mustRender(w, r, f.status, templates.TapPage(s.absolute(), l, "", heading, message))
			return
		}
		writeJSON(w, f.status, f.body())
	}
}

// wantsPage is true for a form that a browser posts without a script: it asks for HTML by name.
func wantsPage(r *http.Request) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return r.Method == http.MethodPost && kind != "application/json" && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// proxied proves that a request came through Shopify's app proxy and returns the shop that it is for.
func (s *server) proxied(r *http.Request) (shop.Shop, shopify.Proxied, error) {
	p, err := s.Shopify.VerifyProxy(r, s.Now(), s.TrustedHops)
	if err != nil {
		s.Log.WarnContext(r.Context(), "app proxy request refused", "request_id", requestID(r.Context()), "err", err)
		return shop.Shop{}, shopify.Proxied{}, errBadSignature
	}
	sh, err := s.Shops.ByDomain(r.Context(), p.Shop)
	if err == nil && !sh.Installed {
		err = shop.ErrNotFound
	}
	if errors.Is(err, shop.ErrNotFound) {
		return shop.Shop{}, shopify.Proxied{}, &fault{status: http.StatusNotFound, code: "unknown_shop", heading: "Not available",
			message: "This shop does not use Holdfast, or not any more."}
	}
	return sh, p, err
}

// tap is "notify me". A repeat and a suppressed contact get the answer of a new one: nobody learns from
// it whether a contact is on a list.
func (s *server) tap(w http.ResponseWriter, r *http.Request) error {
	sh, p, err := s.proxied(r)
	if err != nil {
		return err
	}
	tap, err := readTap(r)
	if err != nil {
		return err
	}
	tap.CustomerID, tap.Client = p.CustomerID, p.Client
	joined, err := s.Domain.Tap(r.Context(), sh.ID, tap)
	if err != nil {
		return err
	}
	l := words.In(tap.Locale, sh.Locale)
	if joined.InStock {
		if wantsPage(r) {
			return s.render(w, r, http.StatusOK, templates.TapPage(s.absolute(), l, sh.Name, l.Say("tap.stock.h"), l.Say("tap.stock")))
		}
		writeJSON(w, http.StatusOK, struct {
			Status string `json:"status"`
		}{"in_stock"})
		return nil
	}
	if wantsPage(r) {
		return s.render(w, r, http.StatusAccepted, templates.TapPage(s.absolute(), l, sh.Name, l.Say("tap.joined.h"), l.Say("tap.joined", "contact", joined.Contact)))
	}
	writeJSON(w, http.StatusAccepted, struct {
		Status  string `json:"status"`
		Contact string `json:"contact"`
	}{"accepted", joined.Contact})
	return nil
}

// waitable tells a product page whether a variant can be waited for, and what to ask.
func (s *server) waitable(w http.ResponseWriter, r *http.Request) error {
	sh, _, err := s.proxied(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	variant, sku := plainID(q.Get("variant_id")), q.Get("sku")
	if err := checkText(map[string]string{"variant_id": variant, "sku": sku}); err != nil {
		return err
	}
	can, err := s.Domain.Waitable(r.Context(), sh.ID, variant, sku)
	if err != nil {
		return err
	}
	type consent struct {
		Version string `json:"version"`
		Text    string `json:"text"`
	}
	answer := struct {
		State    string                       `json:"state"`
		Channels []waitlist.Channel           `json:"channels"`
		Consent  map[waitlist.Channel]consent `json:"consent"`
		Waiting  int                          `json:"waiting"`
	}{can.State, can.Channels, map[waitlist.Channel]consent{}, can.Waiting}
	if answer.Channels == nil {
		answer.Channels = []waitlist.Channel{}
	}
	for channel, text := range can.Consent {
		answer.Consent[channel] = consent{text.Version, text.Text}
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// readTap reads a tap from JSON or a form. What it does not know in it is left alone: themes send more.
func readTap(r *http.Request) (waitlist.Tap, error) {
	fields, err := readFields(r)
	if err != nil {
		return waitlist.Tap{}, err
	}
	if err := checkText(fields); err != nil {
		return waitlist.Tap{}, err
	}
	tap := waitlist.Tap{
		VariantID: plainID(fields["variant_id"]), SKU: fields["sku"], Channel: fields["channel"], Contact: fields["contact"],
		Name: fields["name"], Country: fields["country"], Locale: fields["locale"], TimeZone: fields["time_zone"], Currency: fields["currency"],
	}
	// The field holds the version of the text that was agreed to. A form that has the field and leaves
	// it empty, or a script that sends false, has asked and was refused.
	consent, asked := fields["consent"]
	if consent = strings.TrimSpace(consent); consent == "false" {
		consent = ""
	}
	tap.Consent, tap.Refused = consent, asked && consent == ""
	return tap, nil
}

var tapFields = []string{"variant_id", "sku", "channel", "contact", "name", "country", "locale", "time_zone", "currency", "consent"}

// readFields reads the fields of a tap that are there, as text.
func readFields(r *http.Request) (map[string]string, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	fields := map[string]string{}
	switch {
	case err == nil && kind == "application/json":
		d := json.NewDecoder(r.Body)
		d.UseNumber() // a variant id has more digits than a float can hold
		var body map[string]any
		if err := d.Decode(&body); err != nil {
			return nil, jsonFault(err)
		}
		if _, err := d.Token(); err != io.EOF {
			return nil, badRequest("", "The body must be one JSON object and nothing after it.")
		}
		if body == nil {
			return nil, badRequest("", "The body must be a JSON object.")
		}
		for _, name := range tapFields {
			switch v := body[name].(type) {
			case nil:
			case string:
				fields[name] = v
			case json.Number:
				if name != "variant_id" && name != "sku" && name != "contact" {
					return nil, badRequest(name, name+" must be text.")
				}
				fields[name] = v.String()
			case bool:
				if name != "consent" {
					return nil, badRequest(name, name+" must be text.")
				}
				fields[name] = map[bool]string{true: "true", false: "false"}[v]
			default:
				return nil, badRequest(name, name+" must be text.")
			}
		}
	case err == nil && (kind == "application/x-www-form-urlencoded" || kind == "multipart/form-data"):
		form, err := readForm(r)
		if err != nil {
			return nil, err
		}
		for _, name := range tapFields {
			if form.Has(name) {
				fields[name] = last(form, name)
			}
		}
	default:
		return nil, &fault{status: http.StatusUnsupportedMediaType, code: "unsupported_type", heading: "That did not work",
			message: "Send application/json, application/x-www-form-urlencoded or multipart/form-data."}
	}
	return fields, nil
}

func jsonFault(err error) error {
	var tooBig *http.MaxBytesError
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &tooBig):
		return err
	case errors.As(err, &wrongType):
		return badRequest("", "The body must be a JSON object, not "+wrongType.Value+".")
	case errors.Is(err, io.EOF):
		return badRequest("", "The body is empty: send a JSON object.")
	}
	return badRequest("", "The body is not valid JSON.")
}

// readForm reads the form in the body, urlencoded or multipart; the query is no part of it.
func readForm(r *http.Request) (url.Values, error) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	var err error
	if kind == "multipart/form-data" {
		err = r.ParseMultipartForm(64 * kB)
	} else {
		err = r.ParseForm()
	}
	var tooBig *http.MaxBytesError
	if errors.As(err, &tooBig) {
		return nil, err
	}
	if err != nil {
		return nil, badRequest("", "The form could not be read.")
	}
	return r.PostForm, nil
}

// last is the value of a field that counts: a checkbox overrules the hidden field before it.
func last(form url.Values, name string) string {
	if v := form[name]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

var variantGID = regexp.MustCompile(`^gid://shopify/ProductVariant/(\d+)$`)

// plainID takes a variant's id as themes have it: the number, or the global id of Shopify's APIs.
func plainID(s string) string {
	s = strings.TrimSpace(s)
	if m := variantGID.FindStringSubmatch(s); m != nil {
		return m[1]
	}
	return s
}

// checkText refuses what a database cannot keep as text, and what no person types.
func checkText(fields map[string]string) error {
	for name, v := range fields {
		if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
			return badRequest(name, name+" must be plain text in UTF-8.")
		}
		if len(v) > 2000 {
			return badRequest(name, name+" is too long.")
		}
	}
	return nil
}
