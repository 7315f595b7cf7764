package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client makes the control calls, typed, as a script would make them.
type Client struct {
	Sim  string       // base URL of the simulators' address
	HTTP *http.Client // must not follow redirects; NewClient's does not
}

// NewClient returns a client for a stage that answers at a base URL.
func NewClient(sim string) *Client {
	return &Client{Sim: strings.TrimRight(sim, "/"), HTTP: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{MaxIdleConnsPerHost: 200},
	}}
}

// Client returns a client for this stage.
func (s *Stage) Client() *Client { return NewClient(s.SimURL) }

// Failed is an answer other than 2xx to a control call.
type Failed struct {
	Call   string
	Status int
	Body   string
}

func (f *Failed) Error() string {
	return fmt.Sprintf("%s: %d: %s", f.Call, f.Status, strings.TrimSpace(f.Body))
}

// Do makes one control call: in is sent as JSON unless nil, the answer is decoded into out unless nil. An
// answer other than 2xx is a *Failed.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Sim+path, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if res.StatusCode/100 != 2 {
		return &Failed{method + " " + path, res.StatusCode, string(raw)}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("%s %s: %w in %.500s", method, path, err, raw)
	}
	return nil
}

// Tap is what the storefront's form sends.
type Tap struct {
	VariantID string `json:"variant_id,omitempty"`
	SKU       string `json:"sku,omitempty"`
	Channel   string `json:"channel"`
	Contact   string `json:"contact"`
	Name      string `json:"name,omitempty"`
	Country   string `json:"country,omitempty"`
	Locale    string `json:"locale,omitempty"`
	Consent   string `json:"consent,omitempty"`
}

// ProxyAnswer is the app's answer to a request that came through Shopify's app proxy.
type ProxyAnswer struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"` // a JSON string when the app did not answer JSON
}

// Join taps "notify me" in a shop, from a client address.
func (c *Client) Join(ctx context.Context, shop, ip string, tap Tap) (ProxyAnswer, error) {
	var out ProxyAnswer
	err := c.Do(ctx, "POST", "/sim/proxy", map[string]any{"shop": shop, "method": "POST", "path": "/waitlist", "body": tap, "ip": ip}, &out)
	return out, err
}

// Ask asks, as the theme block does, whether a variant can be waited for.
func (c *Client) Ask(ctx context.Context, shop, variantID string) (ProxyAnswer, error) {
	var out ProxyAnswer
	err := c.Do(ctx, "POST", "/sim/proxy", map[string]any{"shop": shop, "method": "GET", "path": "/waitlist?variant_id=" + url.QueryEscape(variantID)}, &out)
	return out, err
}

// SetStock sets what is available of a variant at the shop's first location.
func (c *Client) SetStock(ctx context.Context, shop, variantID string, available int) error {
	return c.Do(ctx, "POST", "/sim/inventory", map[string]any{"shop": shop, "variant_id": variantID, "available": available}, nil)
}

// Inventory is a variant's stock in the simulated Shopify.
type Inventory struct {
	Available int `json:"available"`
	Reserved  int `json:"reserved"`
	Committed int `json:"committed"`
	OnHand    int `json:"on_hand"`
	Sellable  int `json:"sellable"`
}

// Inventory reads a variant's stock.
func (c *Client) Inventory(ctx context.Context, shop, variantID string) (Inventory, error) {
	var out Inventory
	err := c.Do(ctx, "GET", "/sim/inventory?"+url.Values{"shop": {shop}, "variant_id": {variantID}}.Encode(), nil, &out)
	return out, err
}

// Buy has a stranger buy units in the storefront.
func (c *Client) Buy(ctx context.Context, shop, variantID string, quantity int) error {
	return c.Do(ctx, "POST", "/sim/buy", map[string]any{"shop": shop, "variant_id": variantID, "quantity": quantity}, nil)
}

// Pay pays a draft order by the link to its checkout.
func (c *Client) Pay(ctx context.Context, invoiceURL string) error {
	return c.Do(ctx, "POST", "/sim/pay", map[string]any{"invoice_url": invoiceURL}, nil)
}

// DraftOrder is a draft order of the simulated Shopify.
type DraftOrder struct {
	ID         string   `json:"id"`
	Status     string   `json:"status"`
	Tags       []string `json:"tags"`
	VariantID  string   `json:"variant_id"`
	InvoiceURL string   `json:"invoice_url"`
	OrderID    *string  `json:"order_id"`
}

// Drafts lists the draft orders that a shop has now.
func (c *Client) Drafts(ctx context.Context, shop string) ([]DraftOrder, error) {
	var out []DraftOrder
	err := c.Do(ctx, "GET", "/sim/drafts?"+url.Values{"shop": {shop}}.Encode(), nil, &out)
	return out, err
}

// Message is a text or mail that its provider accepted.
type Message struct {
	ID      string    `json:"id"`
	Channel string    `json:"channel"`
	To      string    `json:"to"`
	From    string    `json:"from"`
	Body    string    `json:"body"`
	HTML    string    `json:"html"`
	Links   []string  `json:"links"`
	At      time.Time `json:"at"`

	Headers map[string]string `json:"headers"` // of a mail, by canonical name
}

// Link returns the message's first link below a path of the app ("/r/", "/u/", "/q/"), or "".
func (m Message) Link(path string) string {
	for _, l := range m.Links {
		if u, err := url.Parse(l); err == nil && strings.HasPrefix(u.Path, path) {
			return l
		}
	}
	return ""
}

// Messages lists the messages to an address, or all of them for "", in order of acceptance.
func (c *Client) Messages(ctx context.Context, to string) ([]Message, error) {
	path := "/sim/messages"
	if to != "" {
		path += "?" + url.Values{"to": {to}}.Encode()
	}
	var out []Message
	err := c.Do(ctx, "GET", path, nil, &out)
	return out, err
}

// Entries lists the queue of a variant.
func (c *Client) Entries(ctx context.Context, shop, variantID string) ([]Entry, error) {
	var out []Entry
	err := c.Do(ctx, "GET", "/sim/entries?"+url.Values{"shop": {shop}, "variant_id": {variantID}}.Encode(), nil, &out)
	return out, err
}

// Settle waits until nothing is in flight.
func (c *Client) Settle(ctx context.Context) error {
	return c.Do(ctx, "POST", "/sim/settle", struct{}{}, nil)
}

// Advance pushes the clock and does what falls due.
func (c *Client) Advance(ctx context.Context, by time.Duration) error {
	return c.Do(ctx, "POST", "/sim/clock", map[string]string{"advance": by.String()}, nil)
}

// Invariants recounts the promises.
func (c *Client) Invariants(ctx context.Context) (Report, error) {
	var out Report
	err := c.Do(ctx, "GET", "/sim/invariants", nil, &out)
	return out, err
}

// Dump digests the app's tables.
func (c *Client) Dump(ctx context.Context) (map[string]TableDump, error) {
	var out map[string]TableDump
	err := c.Do(ctx, "GET", "/sim/dump", nil, &out)
	return out, err
}

// Fault plants a fault, given as its JSON members, and returns its id.
func (c *Client) Fault(ctx context.Context, fault map[string]any) (string, error) {
	var out struct {
		ID string `json:"id"`
	}
	err := c.Do(ctx, "POST", "/sim/faults", fault, &out)
	return out.ID, err
}

// Lift takes a fault back, or every fault for "".
func (c *Client) Lift(ctx context.Context, id string) error {
	return c.Do(ctx, "DELETE", "/sim/faults?"+url.Values{"id": {id}}.Encode(), nil, nil)
}

// App kills (SIGKILL), terms (SIGTERM) or starts process n of the app, or all of them for 0.
func (c *Client) App(ctx context.Context, do string, n int) ([]Process, error) {
	var out []Process
	err := c.Do(ctx, "POST", "/sim/app", map[string]any{"do": do, "n": n}, &out)
	return out, err
}

// Settings saves settings of a shop through the admin's form.
func (c *Client) Settings(ctx context.Context, shop string, set map[string]any) error {
	in := map[string]any{"shop": shop}
	for name, value := range set {
		in[name] = value
	}
	return c.Do(ctx, "POST", "/sim/settings", in, nil)
}

// Page makes a request to the app as a browser would, without following redirects, and returns the
// status, the body and where it redirects to.
func (c *Client) Page(ctx context.Context, method, address string, form url.Values) (status int, body, location string, err error) {
	var send io.Reader
	if form != nil {
		send = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(ctx, method, address, send)
	if err != nil {
		return 0, "", "", err
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := c.HTTP.Do(req)
	if err != nil {
		return 0, "", "", err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return res.StatusCode, string(raw), res.Header.Get("Location"), err
}

// ReserveStatus is the answer of GET /r/{token}/status.
type ReserveStatus struct {
	State       string     `json:"state"`
	Until       *time.Time `json:"until"`
	CheckoutURL string     `json:"checkout_url"`
	Place       int        `json:"place"`
}

// ReserveStatus asks the app how a reserve link stands.
func (c *Client) ReserveStatus(ctx context.Context, link string) (ReserveStatus, error) {
	var out ReserveStatus
	status, body, _, err := c.Page(ctx, "GET", link+"/status", nil)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		return out, fmt.Errorf("status of %s: %d: %w in %.300s", link, status, err, body)
	}
	return out, nil
}
