package shopifysim

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"holdfast/app/simkit"
)

// Delivery is one webhook on its way to the app.
type Delivery struct {
	ID          ID              `json:"id"`
	WebhookID   string          `json:"webhook_id"` // the same in every try, duplicate and replay
	EventID     string          `json:"event_id"`
	Topic       string          `json:"topic"`
	Shop        string          `json:"shop"`
	TriggeredAt time.Time       `json:"triggered_at"`
	State       string          `json:"state"` // queued, delivered, retrying, held, failed, lost, kept
	Attempts    []Attempt       `json:"attempts"`
	Faults      []string        `json:"faults,omitempty"`
	Body        json.RawMessage `json:"body"`

	after   time.Time // not before
	fault   string    // held until this fault is lifted
	reorder bool      // held until a later webhook of its shop was delivered
}

// Attempt is one try to deliver a webhook.
type Attempt struct {
	At     time.Time `json:"at"`
	Status int       `json:"status"` // 0 = no answer
	Error  string    `json:"error,omitempty"`
	Answer string    `json:"answer,omitempty"`
	MS     int64     `json:"ms"`
}

// tries is how often a webhook is tried; the times between grow from the first: 0.25 s, 0.5 s, ... 16 s.
// Shopify's eight go over four hours; here a test waits for them. They follow the simulated clock.
const tries = 8

func backoff(tried int) time.Duration {
	return time.Duration(float64(250*time.Millisecond) * math.Pow(2, float64(tried-1)))
}

// patience is how long a webhook that waits for its next try still counts as being on its way: a short
// absence of the app does. Longer ones do not, or a script could never settle while the app is down.
const patience = 4 * time.Second

// answerWithin is how long the app may take to answer a webhook (Shopify: 5 s in all).
const answerWithin = 5 * time.Second

// outbox is the queue of webhooks.
type outbox struct {
	s      *Server
	client *http.Client
	proxy  *http.Client  // of the app proxy, which waits longer
	kick   chan struct{} // something may be due
	alone  time.Duration // how long a reordered webhook waits to be overtaken when nothing follows it

	mu      sync.Mutex
	some    *sync.Cond // ready is not empty, or it is over
	ready   []*Delivery
	waiting []*Delivery
	busy    int
	epoch   int // grows with reset: what an older one delivers is forgotten
	all     []*Delivery
}

const keptDeliveries = 4000

func newOutbox(s *Server) *outbox {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // a redirect is an answer like any other
	o := &outbox{
		s: s, kick: make(chan struct{}, 1), alone: time.Second,
		client: &http.Client{Timeout: answerWithin, CheckRedirect: stay},
		proxy:  &http.Client{Timeout: 30 * time.Second, CheckRedirect: stay},
	}
	o.some = sync.NewCond(&o.mu)
	return o
}

func (o *outbox) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ready, o.waiting, o.all = nil, nil, nil
	o.epoch++
}

func (o *outbox) wake() {
	select {
	case o.kick <- struct{}{}:
	default:
	}
}

// emit sends the app a webhook. The payload is what it is now: tries hours later carry the same.
func (sh *shop) emit(topic string, payload map[string]any) {
	body, err := json.Marshal(payload)
	if err != nil {
		sh.sim.log.Error("simulated Shopify: a webhook cannot be written", "topic", topic, "err", err)
		return
	}
	sh.sim.hooks.add(topic, sh.domain, body)
}

func (o *outbox) add(topic, domain string, body []byte) {
	d := &Delivery{
		ID: ID(o.s.newID()), WebhookID: uuid(), EventID: uuid(), Topic: topic, Shop: domain, TriggeredAt: o.s.clock.Now(),
		State: "queued", Attempts: []Attempt{}, Body: body,
	}
	copies := 0
	var lost bool
	for _, f := range o.s.faults.Take("webhooks", topic, domain) {
		d.Faults = append(d.Faults, f.Mode)
		switch f.Mode {
		case "duplicate":
			copies++
		case "lose":
			lost = true
		case "reorder":
			d.reorder = true
			d.after = o.s.clock.Now().Add(o.alone)
		case "delay":
			d.State = "held"
			if f.Until == "lifted" {
				d.fault = f.ID
			} else {
				d.after = o.s.clock.Now().Add(f.Delay())
			}
		}
	}
	nowhere := o.s.appURL() == ""
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case lost:
		d.State = "lost"
		o.keep(d)
	case nowhere:
		d.State = "kept"
		o.keep(d)
	default:
		o.enqueue(d)
		for range copies {
			twin := *d
			twin.ID, twin.Attempts, twin.reorder = ID(o.s.newID()), []Attempt{}, false
			o.enqueue(&twin)
		}
	}
}

// keep and enqueue are called with o.mu held.
func (o *outbox) keep(d *Delivery) {
	if len(o.all) >= 2*keptDeliveries {
		o.all = slices.Clone(o.all[len(o.all)-keptDeliveries:])
	}
	o.all = append(o.all, d)
}

func (o *outbox) enqueue(d *Delivery) {
	o.keep(d)
	if d.after.IsZero() && d.fault == "" {
		o.ready = append(o.ready, d)
		o.some.Signal()
		return
	}
	o.waiting = append(o.waiting, d)
	o.wake()
}

// run delivers until ctx is done: eight at a time, so that order is likely but never sure.
func (o *outbox) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		o.mu.Lock() // or a worker that is about to wait would miss it
		defer o.mu.Unlock()
		o.some.Broadcast()
	})
	defer stop()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { o.work(ctx) })
	}
	all.Go(func() { o.promote(ctx) })
	all.Wait()
}

func (o *outbox) work(ctx context.Context) {
	for {
		o.mu.Lock()
		for len(o.ready) == 0 && ctx.Err() == nil {
			o.some.Wait()
		}
		if ctx.Err() != nil {
			o.mu.Unlock()
			return
		}
		d, epoch := o.ready[0], o.epoch
		o.ready = o.ready[1:]
		o.busy++
		o.mu.Unlock()

		a := o.try(ctx, d, nil)

		o.mu.Lock()
		o.busy--
		if epoch == o.epoch {
			o.tried(d, a)
		}
		o.mu.Unlock()
	}
}

// tried writes an attempt down and decides what follows; o.mu is held.
func (o *outbox) tried(d *Delivery, a Attempt) {
	d.Attempts = append(d.Attempts, a)
	switch {
	case a.Status >= 200 && a.Status < 300:
		d.State = "delivered"
	case len(d.Attempts) >= tries:
		d.State = "failed"
		o.s.log.Warn("simulated Shopify gives a webhook up", "topic", d.Topic, "shop", d.Shop, "tries", tries, "status", a.Status, "err", a.Error)
	default:
		d.State = "retrying"
		d.after = o.s.clock.Now().Add(backoff(len(d.Attempts)))
		o.waiting = append(o.waiting, d)
		o.wake()
	}
	o.waiting = slices.DeleteFunc(o.waiting, func(w *Delivery) bool { // one that was to come late has been overtaken
		overtaken := w.reorder && w.Shop == d.Shop && w.State == "queued"
		if overtaken {
			o.ready = append(o.ready, w)
			o.some.Signal()
		}
		return overtaken
	})
}

// promote moves what waits to what is ready when its time has come.
func (o *outbox) promote(ctx context.Context) {
	for {
		next := time.Hour
		now := o.s.clock.Now()
		o.mu.Lock()
		o.waiting = slices.DeleteFunc(o.waiting, func(d *Delivery) bool {
			if d.fault != "" {
				lifted := !slices.ContainsFunc(o.s.faults.List(), func(f simkit.Fault) bool { return f.ID == d.fault })
				if !lifted {
					// Looked at again soon, not waited for with Faults.Wait: that would count this webhook among
					// the requests of the app that are held.
					next = min(next, 50*time.Millisecond)
					return false
				}
				d.fault = ""
			}
			if wait := d.after.Sub(now); wait > 0 {
				next = min(next, wait)
				return false
			}
			d.State = "queued"
			o.ready = append(o.ready, d)
			o.some.Signal()
			return true
		})
		o.mu.Unlock()
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-o.kick:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// try sends a webhook once. change may spoil the request.
func (o *outbox) try(ctx context.Context, d *Delivery, change func(*http.Request)) Attempt {
	start := time.Now()
	a := Attempt{At: o.s.clock.Now()}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(o.s.appURL(), "/")+"/webhooks/shopify", bytes.NewReader(d.Body))
	if err != nil {
		a.Error = err.Error()
		return a
	}
	o.s.sign(req, d)
	if change != nil {
		change(req)
	}
	res, err := o.client.Do(req)
	if err != nil {
		a.Error = err.Error()
	} else {
		a.Status = res.StatusCode
		text, err := io.ReadAll(io.LimitReader(res.Body, 2000))
		if err != nil {
			a.Status, a.Error = 0, err.Error()
		}
		a.Answer = string(text)
		res.Body.Close()
	}
	a.MS = time.Since(start).Milliseconds()
	return a
}

// sign sets a webhook's headers. The signature is the base64 of the HMAC-SHA256 of the raw body with the
// app's client secret.
func (s *Server) sign(req *http.Request, d *Delivery) {
	for k, v := range map[string]string{
		"Content-Type":           "application/json",
		"User-Agent":             "Shopify-Captain-Hook",
		"X-Shopify-Topic":        d.Topic,
		"X-Shopify-Shop-Domain":  d.Shop,
		"X-Shopify-API-Version":  APIVersion,
		"X-Shopify-Webhook-Id":   d.WebhookID,
		"X-Shopify-Event-Id":     d.EventID,
		"X-Shopify-Triggered-At": d.TriggeredAt.Format(time.RFC3339Nano),
		"X-Shopify-Hmac-Sha256":  SignWebhook(s.secret, d.Body),
	} {
		req.Header.Set(k, v)
	}
}

// SignWebhook is the value of X-Shopify-Hmac-Sha256 for a body.
func SignWebhook(secret string, body []byte) string {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write(body)
	return base64.StdEncoding.EncodeToString(m.Sum(nil))
}

// InFlight is the number of webhooks that are on their way: queued, being delivered, held to be overtaken,
// or waiting for a retry that comes within a few seconds. One that a delay fault holds is not, and one that waits
// longer because the app is gone is not.
func (s *Server) InFlight() int {
	o := s.hooks
	now := s.clock.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.ready) + o.busy
	for _, d := range o.waiting {
		if d.State == "queued" || (d.State == "retrying" && (backoff(len(d.Attempts)) <= patience || !d.after.After(now))) {
			n++
		}
	}
	return n
}

// RetryNow tries every webhook again that waits for its next try, as when the app came back.
func (s *Server) RetryNow() {
	s.hooks.mu.Lock()
	for _, d := range s.hooks.waiting {
		if d.State == "retrying" {
			d.after = time.Time{}
		}
	}
	s.hooks.mu.Unlock()
	s.hooks.wake()
}

// Webhooks returns the last webhooks (4,000 at least), oldest first; of one shop, or of all for "".
func (s *Server) Webhooks(domain string) []Delivery {
	s.hooks.mu.Lock()
	defer s.hooks.mu.Unlock()
	all := []Delivery{}
	for _, d := range s.hooks.all {
		if domain == "" || d.Shop == domain {
			v := *d
			v.Attempts = append([]Attempt{}, d.Attempts...)
			all = append(all, v)
		}
	}
	return all
}

// Replay delivers a webhook again, with its old payload and webhook id.
func (s *Server) Replay(id int64) error {
	s.hooks.mu.Lock()
	defer s.hooks.mu.Unlock()
	for _, d := range s.hooks.all {
		if int64(d.ID) == id {
			again := *d
			again.ID, again.State, again.Attempts, again.Faults = ID(s.newID()), "queued", []Attempt{}, []string{"replay"}
			again.after, again.fault, again.reorder = time.Time{}, "", false
			s.hooks.enqueue(&again)
			return nil
		}
	}
	return notFound("there is no webhook %d among the last ones", id)
}

// Hook is a webhook that is delivered by hand.
type Hook struct {
	Shop    string            `json:"shop"`
	Topic   string            `json:"topic"`
	Body    json.RawMessage   `json:"body"`
	Headers map[string]string `json:"headers,omitempty"` // set after signing
	Tamper  Tamper            `json:"tamper,omitempty"`  // sig, none, body, secret
}

// SendWebhook delivers one webhook by hand, once, and returns what the app answered.
func (s *Server) SendWebhook(ctx context.Context, h Hook) (Delivery, error) {
	if h.Topic == "" || h.Shop == "" || len(h.Body) == 0 {
		return Delivery{}, invalid("shop, topic and body are needed")
	}
	if s.appURL() == "" {
		return Delivery{}, conflict("the app has no address")
	}
	change, err := h.Tamper.webhook(s)
	if err != nil {
		return Delivery{}, err
	}
	d := &Delivery{
		ID: ID(s.newID()), WebhookID: uuid(), EventID: uuid(), Topic: h.Topic, Shop: h.Shop, TriggeredAt: s.clock.Now(),
		State: "queued", Attempts: []Attempt{}, Faults: []string{"by hand"}, Body: h.Body,
	}
	a := s.hooks.try(ctx, d, func(r *http.Request) {
		if change != nil {
			change(r)
		}
		for k, v := range h.Headers {
			r.Header.Set(k, v)
		}
	})
	d.Attempts = []Attempt{a}
	d.State = "failed"
	if a.Status >= 200 && a.Status < 300 {
		d.State = "delivered"
	}
	s.hooks.mu.Lock()
	defer s.hooks.mu.Unlock()
	s.hooks.keep(d)
	return *d, nil
}

func uuid() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// The payloads have the shapes of the REST resources.

func stamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.Format(time.RFC3339)
}

func levelPayload(l *level) map[string]any {
	return map[string]any{
		"inventory_item_id": l.item.id, "location_id": l.location.id, "available": l.available, "updated_at": stamp(l.updatedAt),
		"admin_graphql_api_id": levelID(l),
	}
}

func itemPayload(i *item) map[string]any {
	return map[string]any{
		"id": i.id, "sku": i.sku(), "tracked": i.tracked, "requires_shipping": true, "cost": nil, "country_code_of_origin": nil,
		"created_at": stamp(i.createdAt), "updated_at": stamp(i.updatedAt), "admin_graphql_api_id": gid("InventoryItem", i.id),
	}
}

func productPayload(p *product) map[string]any {
	variants := []map[string]any{}
	for i, v := range p.variants {
		variants = append(variants, map[string]any{
			"id": v.id, "product_id": p.id, "title": v.title, "sku": v.sku, "price": v.price, "position": i + 1,
			"inventory_policy": strings.ToLower(v.policy), "inventory_item_id": v.item.id, "inventory_quantity": v.sellable(),
			"option1": v.title, "created_at": stamp(v.createdAt), "updated_at": stamp(v.updatedAt), "admin_graphql_api_id": gid("ProductVariant", v.id),
		})
	}
	return map[string]any{
		"id": p.id, "title": p.title, "handle": p.handle, "status": strings.ToLower(p.status), "vendor": p.shop.name, "product_type": "", "tags": "",
		"published_at": stamp(p.publishedAt), "created_at": stamp(p.createdAt), "updated_at": stamp(p.updatedAt), "variants": variants,
		"image": map[string]any{"src": p.image().url, "alt": p.image().alt}, "admin_graphql_api_id": gid("Product", p.id),
	}
}

func notes(list []attribute) []map[string]any {
	all := []map[string]any{}
	for _, a := range list {
		all = append(all, map[string]any{"name": a.key, "value": a.value})
	}
	return all
}

func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// draftPayload is the REST DraftOrder. It does not carry reserve_inventory_until: Shopify's does not.
func draftPayload(d *draft) map[string]any {
	var orderID any
	if d.order != nil {
		orderID = d.order.id
	}
	lines := []map[string]any{}
	for _, l := range d.lines {
		lines = append(lines, map[string]any{
			"id": l.id, "variant_id": l.variant.id, "product_id": l.variant.product.id, "title": l.title, "variant_title": l.variantOf,
			"sku": l.sku, "quantity": l.quantity, "price": l.price, "custom": false, "properties": notes(l.attributes),
		})
	}
	return map[string]any{
		"id": d.id, "admin_graphql_api_id": gid("DraftOrder", d.id), "name": d.name, "status": strings.ToLower(d.status), "order_id": orderID,
		"completed_at": stamp(d.completedAt), "created_at": stamp(d.createdAt), "updated_at": stamp(d.updatedAt), "invoice_sent_at": nil,
		"invoice_url": d.shop.sim.invoiceURL(d), "email": nullable(d.email), "customer": nil, "note": nullable(d.note), "note_attributes": notes(d.attributes),
		"tags": strings.Join(d.tags, ", "), "line_items": lines, "currency": d.currency, "total_price": total(d.lines), "shipping_address": nil,
	}
}

func orderPayload(o *order) map[string]any {
	lines := []map[string]any{}
	cents := 0
	for _, l := range o.lines {
		cents += l.quantity * centsOf(l.price)
		lines = append(lines, map[string]any{
			"id": l.id, "variant_id": l.variant.id, "product_id": l.variant.product.id, "title": l.title, "sku": l.sku, "quantity": l.quantity, "price": l.price,
		})
	}
	var reason any
	if !o.cancelledAt.IsZero() {
		reason = "other"
	}
	return map[string]any{
		"id": o.id, "admin_graphql_api_id": gid("Order", o.id), "name": o.name, "email": nullable(o.email), "financial_status": "paid", "fulfillment_status": nil,
		"created_at": stamp(o.createdAt), "updated_at": stamp(o.createdAt), "cancelled_at": stamp(o.cancelledAt), "cancel_reason": reason,
		"note": nullable(o.note), "note_attributes": notes(o.attributes), "tags": strings.Join(o.tags, ", "), "source_name": o.source,
		"line_items": lines, "currency": o.currency, "total_price": strconv.Itoa(cents/100) + fmt.Sprintf(".%02d", cents%100), "customer": nil,
		"contact_email": nullable(o.email), "phone": nil,
	}
}

func shopPayload(sh *shop) map[string]any {
	return map[string]any{
		"id": sh.id, "name": sh.name, "email": "owner@" + sh.domain, "customer_email": "hello@" + sh.domain, "domain": sh.domain, "myshopify_domain": sh.domain,
		"currency": sh.currency, "plan_name": string(sh.plan), "plan_display_name": sh.plan.displayName(), "iana_timezone": "Europe/Berlin",
		"primary_location_id": sh.locations[0].id, "created_at": stamp(sh.createdAt), "updated_at": stamp(sh.createdAt),
	}
}
