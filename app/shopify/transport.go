package shopify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"holdfast/app/waitlist"
)

// UserAgent is by what Shopify's logs know calls of the Admin API that this package has made.
const UserAgent = "Holdfast"

// maxAnswer is the longest answer that is read, in bytes. The longest of ours has 90 kB.
const maxAnswer = 4 << 20

// transport carries the one request of one call, and keeps what Shopify really answered. What it hands
// to go-shopify is always a success with the data alone: go-shopify would lose the rest (the codes of
// errors, fractions of cost, errors that are a string) or fail over it.
type transport struct {
	shop   string   // the only host that may be asked
	sim    *url.URL // where it is instead, or nil
	base   http.RoundTripper
	answer *answer // nil until there is one
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" || req.URL.Host != t.shop {
		return nil, fmt.Errorf("refused to send %s's token to %s", t.shop, req.URL.Host)
	}
	out := req.Clone(req.Context())
	out.Header.Set("User-Agent", UserAgent)
	if t.sim != nil {
		out.URL = t.sim.JoinPath("shopify", t.shop, req.URL.Path)
		out.URL.RawQuery = req.URL.RawQuery
		out.Host = out.URL.Host
	}
	resp, err := t.base.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	t.answer = read(resp)

	data := t.answer.Data
	if len(data) == 0 {
		data = json.RawMessage("null")
	}
	body := fmt.Appendf(nil, `{"data":%s}`, data)
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {"application/json"}},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       req,
	}, nil
}

// answer is what Shopify answered to one call.
type answer struct {
	status     int
	requestID  string        // Shopify's, for their support
	retryAfter time.Duration // of a 429
	broken     error         // why a body could not be read or understood

	Data       json.RawMessage `json:"data"`
	Errors     json.RawMessage `json:"errors"` // a list, or (mostly without data) a string
	Extensions struct {
		Cost *struct {
			Requested float64         `json:"requestedQueryCost"`
			Actual    *float64        `json:"actualQueryCost"`
			Throttle  *throttleStatus `json:"throttleStatus"`
		} `json:"cost"`
		Search []struct {
			Warnings []struct {
				Message string `json:"message"`
			} `json:"warnings"`
		} `json:"search"`
	} `json:"extensions"`
}

func read(resp *http.Response) *answer {
	a := &answer{status: resp.StatusCode, requestID: resp.Header.Get("X-Request-Id")}
	if a.status == http.StatusTooManyRequests {
		a.retryAfter = retryAfter(resp.Header.Get("Retry-After"))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		a.broken = fmt.Errorf("read the answer: %w", err)
	case len(body) > maxAnswer:
		a.broken = fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	default:
		if err := json.Unmarshal(body, a); err != nil {
			a.Data, a.broken = nil, fmt.Errorf("the answer is no GraphQL: %w", err)
		}
	}
	return a
}

// retryAfter reads Shopify's Retry-After, which is in seconds with a fraction ("2.0"). Without one we
// can use it is a second, and never more than a minute: a budget is asked for again anyway.
func retryAfter(header string) time.Duration {
	seconds, err := strconv.ParseFloat(header, 64)
	if err != nil || math.IsNaN(seconds) || seconds <= 0 {
		return time.Second
	}
	return time.Duration(math.Min(seconds, 60) * float64(time.Second))
}

// throttle is the state of the shop's points after this call, nil when the answer did not say.
func (a *answer) throttle() *throttleStatus {
	if a == nil || a.Extensions.Cost == nil {
		return nil
	}
	if s := a.Extensions.Cost.Throttle; s != nil && s.MaximumAvailable > 0 && s.RestoreRate > 0 {
		return s
	}
	return nil
}

// cost is the points that the call cost, 0 when the answer did not say.
func (a *answer) cost() float64 {
	if a == nil || a.Extensions.Cost == nil {
		return 0
	}
	if a.Extensions.Cost.Actual != nil {
		return *a.Extensions.Cost.Actual
	}
	return a.Extensions.Cost.Requested
}

// graphQLError is one entry of an answer's list of errors.
type graphQLError struct {
	Message    string `json:"message"`
	Path       []any  `json:"path"`
	Extensions struct {
		Code string `json:"code"`
	} `json:"extensions"`
}

func (e graphQLError) String() string {
	s := e.Message
	if e.Extensions.Code != "" {
		s = e.Extensions.Code + ": " + s
	}
	if len(e.Path) > 0 {
		s += fmt.Sprintf(" (at %v)", e.Path)
	}
	return s
}

// err is what is wrong with the answer, nil when nothing is: *waitlist.Throttled, *waitlist.ShopRefused
// or *waitlist.Rejected when Shopify certainly did nothing, and any other error when it may have.
func (a *answer) err() error {
	switch a.status {
	case http.StatusOK:
	case http.StatusTooManyRequests:
		return &waitlist.Throttled{After: a.retryAfter}
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound, http.StatusLocked:
		return &waitlist.ShopRefused{Status: a.status, Why: refusal(a.status)}
	default:
		return fmt.Errorf("HTTP status %d%s", a.status, a.reference())
	}
	if a.broken != nil {
		return fmt.Errorf("%w%s", a.broken, a.reference())
	}
	if err := a.graphQLErr(); err != nil {
		return err
	}
	if len(a.Data) == 0 || string(a.Data) == "null" {
		return fmt.Errorf("an answer without data%s", a.reference())
	}
	// A search with a filter that Shopify does not know is answered with everything there is.
	for _, s := range a.Extensions.Search {
		for _, w := range s.Warnings {
			return fmt.Errorf("the search was not understood: %s", w.Message)
		}
	}
	return nil
}

func (a *answer) graphQLErr() error {
	if len(a.Errors) == 0 || string(a.Errors) == "null" {
		return nil
	}
	var list []graphQLError
	if err := json.Unmarshal(a.Errors, &list); err != nil {
		var text string
		if json.Unmarshal(a.Errors, &text) != nil {
			text = "errors of an unknown form"
		}
		return fmt.Errorf("%s%s", text, a.reference())
	}
	if len(list) == 0 {
		return nil
	}
	noData := len(a.Data) == 0 || string(a.Data) == "null"
	texts := make([]string, len(list))
	for i, e := range list {
		switch e.Extensions.Code {
		case "THROTTLED":
			if noData {
				return &waitlist.Throttled{After: a.refill()}
			}
		case "ACCESS_DENIED", "SHOP_INACTIVE":
			// The token lacks a scope or the shop is asleep: so it will be for the next call.
			return &waitlist.ShopRefused{Status: http.StatusForbidden, Why: e.String()}
		case "INVALID_VARIABLE":
			if noData { // nothing was run
				return &waitlist.Rejected{Why: e.String()}
			}
		}
		texts[i] = e.String()
	}
	return errors.New(strings.Join(texts, "; ") + a.reference())
}

// refill is how long a throttled call has to wait: until what it asked for is there.
func (a *answer) refill() time.Duration {
	s := a.throttle()
	if s == nil {
		return time.Second
	}
	missing := math.Min(a.Extensions.Cost.Requested, s.MaximumAvailable) - s.CurrentlyAvailable
	return max(refill(missing, s.RestoreRate), 100*time.Millisecond)
}

func (a *answer) reference() string {
	if a.requestID == "" {
		return ""
	}
	return " (Shopify's request id " + a.requestID + ")"
}

func refusal(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "the app's access to the shop has ended; the merchant can open or install the app again"
	case http.StatusPaymentRequired:
		return "the shop is frozen until its bill is paid"
	case http.StatusForbidden:
		return "the app may not do this in the shop"
	case http.StatusNotFound:
		return "there is no such shop any more"
	default:
		return "the shop is locked"
	}
}
