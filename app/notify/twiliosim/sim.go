// Package twiliosim is a simulated Twilio: the part of its REST API that sends and lists texts, the
// callbacks that it signs, and the phones at the other end.
//
// It is strict where Twilio is silent: a request is validated against Twilio's own OpenAPI description, and
// a parameter that Twilio does not know, or that is not simulated, is a loud failure. It is used by tests
// and the demo, never by the program.
package twiliosim

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"holdfast/app/notify/inbox"
	"holdfast/app/simkit"
)

// Account is an account with one messaging service and one number in its pool.
type Account struct {
	Shop                string // whose account it is, for faults that are one shop's
	SID                 string // AC and 32 hex digits
	APIKey, APISecret   string
	AuthToken           string // signs the callbacks
	MessagingServiceSID string // MG and 32 hex digits
	Number              string // E.164
	InboundURL          string // where texts to the number are posted; empty = nowhere
	HoldsBack           bool   // texts are scheduled for the morning, as Twilio's Compliance Toolkit does at night
	AdvancedOptOut      bool   // Twilio then says how it read a text, as OptOutType
}

// Sim is the simulated Twilio. It answers at /2010-04-01/…, with or without /twilio before it.
type Sim struct {
	clock  *simkit.Clock
	faults *simkit.Faults
	outbox *inbox.Outbox
	log    *slog.Logger
	checks *checker
	client *http.Client

	closing chan struct{}
	worker  sync.WaitGroup

	mu       sync.Mutex
	wake     *sync.Cond // of the worker
	closed   bool
	accounts []Account
	texts    []*text
	asked    []url.Values
	stopped  map[string]bool // account SID and phone
	queue    []callback
	busy     int // requests being answered and callbacks being delivered
}

type text struct {
	account   Account
	sid       string
	to, body  string
	service   bool // sent by the messaging service, not by the number
	status    string
	errorCode int
	callback  string
	created   time.Time
	updated   time.Time
	sent      time.Time // zero until then
}

type callback struct {
	text   *text
	status string
}

// New starts a simulated Twilio without accounts. Close stops it.
func New(clock *simkit.Clock, faults *simkit.Faults, outbox *inbox.Outbox, log *slog.Logger) (*Sim, error) {
	checks, err := newChecker()
	if err != nil {
		return nil, err
	}
	s := &Sim{
		clock: clock, faults: faults, outbox: outbox, log: log, checks: checks,
		client: &http.Client{
			Timeout:       15 * time.Second, // Twilio's own
			Transport:     &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: 10 * time.Second},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		closing: make(chan struct{}),
		stopped: map[string]bool{},
	}
	s.wake = sync.NewCond(&s.mu)
	s.worker.Add(1)
	go s.deliverQueue()
	return s, nil
}

// Close stops the delivery of callbacks and lets go of requests that are kept waiting.
func (s *Sim) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
		s.wake.Broadcast()
	}
	s.mu.Unlock()
	s.worker.Wait()
	s.client.CloseIdleConnections()
}

var (
	accountSID = regexp.MustCompile(`^AC[0-9a-f]{32}$`)
	serviceSID = regexp.MustCompile(`^MG[0-9a-f]{32}$`)
	e164       = regexp.MustCompile(`^\+[1-9]\d{6,14}$`)
)

// AddAccount opens an account, or replaces the one with its SID.
func (s *Sim) AddAccount(a Account) error {
	switch {
	case !accountSID.MatchString(a.SID):
		return fmt.Errorf("account SID %q: AC and 32 hex digits are needed", a.SID)
	case !serviceSID.MatchString(a.MessagingServiceSID):
		return fmt.Errorf("messaging service SID %q: MG and 32 hex digits are needed", a.MessagingServiceSID)
	case !e164.MatchString(a.Number):
		return fmt.Errorf("number %q is not E.164", a.Number)
	case a.APIKey == "" || a.APISecret == "" || a.AuthToken == "":
		return errors.New("an API key, its secret and an auth token are needed")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accounts = slices.DeleteFunc(s.accounts, func(old Account) bool { return old.SID == a.SID })
	s.accounts = append(s.accounts, a)
	return nil
}

// Reset forgets all texts and opt-outs. Accounts stay.
func (s *Sim) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts, s.queue, s.asked = nil, nil, nil
	clear(s.stopped)
}

// Requests are the parameters of every text that was accepted, in order.
func (s *Sim) Requests() []url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// InFlight is the number of requests being answered and of callbacks not yet delivered. A request that is
// kept until its fault is lifted is not counted.
func (s *Sim) InFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy + len(s.queue)
}

// CheckFault says whether a fault of target "twilio" is one that this simulator knows. Op is "create",
// "list", "fetch", "update" or empty for all of them.
func CheckFault(f simkit.Fault) error {
	if !slices.Contains([]string{"", "create", "list", "fetch", "update"}, f.Op) {
		return fmt.Errorf(`twilio has no operation %q: use "create", "list", "fetch" or "update"`, f.Op)
	}
	switch f.Mode {
	case "throttle", "timeout_after_commit", "drop_after_commit", "html_502", "delay", "down":
		return nil
	case "status":
		if f.Code < 400 || f.Code >= 600 && f.Code < 10000 {
			return fmt.Errorf("status %d: give an HTTP status from 400 to 599 or a Twilio error code", f.Code)
		}
		return nil
	}
	return fmt.Errorf("mode %q is not simulated for twilio", f.Mode)
}

// ---- the API

// failure is an error as Twilio answers it.
type failure struct {
	Code     int    `json:"code"`
	Message  string `json:"message"`
	MoreInfo string `json:"more_info"`
	Status   int    `json:"status"`
}

func fail(status, code int, message string) *failure {
	return &failure{code, message, "https://www.twilio.com/docs/errors/" + strconv.Itoa(code), status}
}

// notSimulated is loud: no client can take it for an answer of Twilio's.
func notSimulated(what string) *failure {
	return fail(http.StatusNotImplemented, 0, "SIMULATOR: not simulated: "+what)
}

// statusOf is the HTTP status that comes with an error code.
func statusOf(code int) int {
	switch code {
	case 20003:
		return http.StatusUnauthorized
	case 20404:
		return http.StatusNotFound
	case 20429:
		return http.StatusTooManyRequests
	case 20500:
		return http.StatusInternalServerError
	case 20503:
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.count(1)
	defer s.count(-1)
	req, op, failed := s.understand(w, r)
	if failed != nil {
		write(w, failed.Status, failed)
		return
	}
	act := func() (int, any) {
		status, answer, failed := s.act(op, req)
		if failed != nil {
			return failed.Status, failed
		}
		return status, answer
	}
	s.answer(w, r, s.faults.Take("twilio", op, req.account.Shop), act)
}

func (s *Sim) count(n int) {
	s.mu.Lock()
	s.busy += n
	s.mu.Unlock()
}

// answer acts and answers, with the faults that were asked for.
func (s *Sim) answer(w http.ResponseWriter, r *http.Request, faults []simkit.Fault, act func() (int, any)) {
	var last *simkit.Fault // what replaces the answer
	for _, f := range faults {
		if err := CheckFault(f); err != nil {
			failed := notSimulated(err.Error())
			write(w, failed.Status, failed)
			return
		}
		if f.Mode == "delay" {
			if f.When != "after" && !s.hold(f, r) {
				panic(http.ErrAbortHandler)
			}
			continue
		}
		last = &f
	}
	if last != nil {
		switch {
		case last.Mode == "down":
			panic(http.ErrAbortHandler) // the connection is cut without an answer
		case last.Mode == "throttle":
			w.Header().Set("Retry-After", strconv.Itoa(max(1, (last.MS+999)/1000)))
			write(w, http.StatusTooManyRequests, fail(http.StatusTooManyRequests, 20429, "Too Many Requests"))
			return
		case last.Mode == "status" && last.When != "after":
			write(w, faultStatus(last.Code), faultFailure(last.Code))
			return
		case last.Mode == "html_502" && last.When != "after":
			html502(w)
			return
		}
	}
	status, answer := act()
	for _, f := range faults {
		if f.Mode == "delay" && f.When == "after" && !s.hold(f, r) {
			panic(http.ErrAbortHandler)
		}
	}
	if last != nil {
		switch last.Mode {
		case "drop_after_commit":
			panic(http.ErrAbortHandler)
		case "timeout_after_commit":
			select {
			case <-r.Context().Done():
			case <-s.closing:
			}
			panic(http.ErrAbortHandler)
		case "status":
			write(w, faultStatus(last.Code), faultFailure(last.Code))
			return
		case "html_502":
			html502(w)
			return
		}
	}
	write(w, status, answer)
}

// hold keeps a request for a delay; false when its client went away or the simulator closes.
func (s *Sim) hold(f simkit.Fault, r *http.Request) bool {
	if f.Until == "lifted" {
		s.count(-1)
		defer s.count(1)
	}
	gone, stop := context.WithCancel(r.Context())
	defer stop()
	go func() {
		select {
		case <-s.closing:
			stop()
		case <-gone.Done():
		}
	}()
	return s.faults.Wait(f, gone.Done())
}

func faultStatus(code int) int {
	if code < 600 {
		return code
	}
	return statusOf(code)
}

func faultFailure(code int) *failure {
	if code < 600 {
		return fail(code, 20000+code, http.StatusText(code))
	}
	return fail(statusOf(code), code, "A fault that was asked for")
}

func html502(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(http.StatusBadGateway)
	fmt.Fprint(w, "<html><body><h1>502 Bad Gateway</h1></body></html>")
}

func write(w http.ResponseWriter, status int, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(raw) // the client went away: nothing to do about it
}

// act does what a valid request asks for.
func (s *Sim) act(op string, q request) (int, any, *failure) {
	switch op {
	case "create":
		t, failed := s.create(q)
		if failed != nil {
			return 0, nil, failed
		}
		return http.StatusCreated, t, nil
	case "list":
		return http.StatusOK, s.list(q), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.texts {
		if t.sid != q.sid || t.account.SID != q.account.SID {
			continue
		}
		if op == "update" {
			if t.status != "scheduled" {
				return 0, nil, fail(http.StatusBadRequest, 30409, "Message is not in a cancelable state")
			}
			t.status, t.updated = "canceled", s.clock.Now()
			s.outbox.SetStatus(t.sid, t.status)
			s.queue = append(s.queue, callback{t, "canceled"})
			s.wake.Signal()
		}
		return http.StatusOK, t.resource(), nil
	}
	return 0, nil, fail(http.StatusNotFound, 20404, "The requested resource was not found")
}

// create accepts a text; it is sent, and reported as sent, right after.
func (s *Sim) create(q request) (map[string]any, *failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped[q.account.SID+q.form.Get("To")] {
		return nil, fail(http.StatusBadRequest, 21610, "Attempt to send to unsubscribed recipient")
	}
	now := s.clock.Now()
	t := &text{
		account: q.account, sid: newSID("SM"), to: q.form.Get("To"), body: q.form.Get("Body"),
		service: q.form.Get("MessagingServiceSid") != "", status: "queued", callback: q.form.Get("StatusCallback"),
		created: now, updated: now,
	}
	if t.service {
		t.status = "accepted"
	}
	if q.account.HoldsBack {
		t.status = "scheduled"
	}
	s.texts = append(s.texts, t)
	s.asked = append(s.asked, q.form)
	s.outbox.Add(inbox.Message{ID: t.sid, Channel: "sms", To: t.to, From: t.account.Number, Body: t.body, Status: t.status})
	if t.status != "scheduled" {
		s.queue = append(s.queue, callback{t, "sent"})
		s.wake.Signal()
	}
	return t.resource(), nil
}

func newSID(prefix string) string {
	var raw [16]byte
	rand.Read(raw[:])
	return prefix + hex.EncodeToString(raw[:])
}

func (s *Sim) list(q request) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []map[string]any
	for _, t := range slices.Backward(s.texts) {
		if t.account.SID == q.account.SID && (q.form.Get("To") == "" || t.to == q.form.Get("To")) && (q.form.Get("From") == "" || t.account.Number == q.form.Get("From")) {
			all = append(all, t.resource())
		}
	}
	size, page := 50, 0
	if n, err := strconv.Atoi(q.form.Get("PageSize")); err == nil {
		size = min(max(n, 1), 1000)
	}
	if n, err := strconv.Atoi(q.form.Get("Page")); err == nil {
		page = max(n, 0)
	}
	start := min(page*size, len(all))
	end := min(start+size, len(all))
	at := func(page int) string {
		v := url.Values{"PageSize": {strconv.Itoa(size)}, "Page": {strconv.Itoa(page)}}
		for _, name := range []string{"To", "From"} {
			if q.form.Get(name) != "" {
				v.Set(name, q.form.Get(name))
			}
		}
		return "/2010-04-01/Accounts/" + q.account.SID + "/Messages.json?" + v.Encode()
	}
	answer := map[string]any{
		"messages": append([]map[string]any{}, all[start:end]...), "page": page, "page_size": size, "start": start, "end": max(start, end-1),
		"uri": at(page), "first_page_uri": at(0), "next_page_uri": nil, "previous_page_uri": nil,
	}
	if end < len(all) {
		answer["next_page_uri"] = at(page + 1)
	}
	if page > 0 {
		answer["previous_page_uri"] = at(page - 1)
	}
	return answer
}

// resource is a text as Twilio describes it. The caller holds the lock.
func (t *text) resource() map[string]any {
	date := func(at time.Time) any {
		if at.IsZero() {
			return nil
		}
		return at.Format("Mon, 02 Jan 2006 15:04:05 +0000")
	}
	path := "/2010-04-01/Accounts/" + t.account.SID + "/Messages/" + t.sid
	m := map[string]any{
		"account_sid": t.account.SID, "api_version": "2010-04-01", "body": t.body, "direction": "outbound-api",
		"date_created": date(t.created), "date_updated": date(t.updated), "date_sent": date(t.sent),
		"error_code": nil, "error_message": nil, "from": t.account.Number, "messaging_service_sid": nil,
		"num_media": "0", "num_segments": strconv.Itoa(segments(t.body)), "price": nil, "price_unit": "USD",
		"sid": t.sid, "status": t.status, "to": t.to, "uri": path + ".json",
		"subresource_uris": map[string]any{"media": path + "/Media.json"},
	}
	if t.service {
		m["messaging_service_sid"] = t.account.MessagingServiceSID
		if t.sent.IsZero() { // no sender of the pool was chosen yet
			m["from"], m["num_segments"] = nil, "0"
		}
	}
	if t.errorCode != 0 {
		m["error_code"] = t.errorCode
		m["error_message"] = "Error " + strconv.Itoa(t.errorCode)
	}
	return m
}

// segments is how many texts a body takes: 160 characters, or 153 each of several; 70 and 67 when one of
// them is outside of the GSM alphabet, for which ASCII is a good enough stand-in here.
func segments(body string) int {
	one, each := 160, 153
	n := len([]rune(body))
	if len(body) != n {
		one, each = 70, 67
	}
	if n <= one {
		return 1
	}
	return (n + each - 1) / each
}

// ---- callbacks

// deliverQueue reports texts as sent, one after another in order of acceptance.
func (s *Sim) deliverQueue() {
	defer s.worker.Done()
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && !s.closed {
			s.wake.Wait()
		}
		if s.closed {
			s.mu.Unlock()
			return
		}
		next := s.queue[0]
		s.queue = s.queue[1:]
		s.busy++
		form := s.move(next.text, next.status, 0)
		s.mu.Unlock()
		if next.text.callback != "" {
			if err := s.post(context.Background(), next.text.callback, form, next.text.account.AuthToken); err != nil {
				s.log.Warn("status callback not taken", "sid", next.text.sid, "err", err)
			}
		}
		s.count(-1)
	}
}

// move gives a text a status and returns the report of it. The caller holds the lock.
func (s *Sim) move(t *text, status string, errorCode int) url.Values {
	t.status, t.errorCode, t.updated = status, errorCode, s.clock.Now()
	if t.sent.IsZero() {
		t.sent = t.updated
	}
	s.outbox.SetStatus(t.sid, status)
	form := url.Values{
		"AccountSid": {t.account.SID}, "ApiVersion": {"2010-04-01"}, "From": {t.account.Number}, "To": {t.to},
		"MessageSid": {t.sid}, "SmsSid": {t.sid}, "MessageStatus": {status}, "SmsStatus": {status},
	}
	if t.service {
		form.Set("MessagingServiceSid", t.account.MessagingServiceSID)
	}
	if errorCode != 0 {
		form.Set("ErrorCode", strconv.Itoa(errorCode))
	}
	return form
}

// Report reports a text's status to the app, signed, and returns when the app has taken it.
func (s *Sim) Report(ctx context.Context, messageID, status string, errorCode int) error {
	if !slices.Contains([]string{"queued", "sending", "sent", "delivered", "undelivered", "failed", "canceled"}, status) {
		return &inbox.Refused{Status: http.StatusBadRequest, Why: fmt.Sprintf("%q is no status that Twilio reports", status)}
	}
	if errorCode != 0 && status != "undelivered" && status != "failed" {
		return &inbox.Refused{Status: http.StatusBadRequest, Why: `an error code goes with "undelivered" or "failed" alone`}
	}
	s.mu.Lock()
	at := slices.IndexFunc(s.texts, func(t *text) bool { return t.sid == messageID })
	if at < 0 {
		s.mu.Unlock()
		return &inbox.Refused{Status: http.StatusNotFound, Why: fmt.Sprintf("no text with id %q", messageID)}
	}
	t := s.texts[at]
	if t.callback == "" {
		s.mu.Unlock()
		return &inbox.Refused{Status: http.StatusConflict, Why: "this text was sent without a StatusCallback"}
	}
	form := s.move(t, status, errorCode)
	s.busy++
	s.mu.Unlock()
	defer s.count(-1)
	return s.post(ctx, t.callback, form, t.account.AuthToken)
}

// SendText sends a text from a phone to a number (empty: to whoever texted that phone last). The words that
// Twilio knows stop and start its own deliveries too; its own confirmation of them is not simulated.
func (s *Sim) SendText(ctx context.Context, from, to, body string) error {
	if !e164.MatchString(from) {
		return &inbox.Refused{Status: http.StatusBadRequest, Why: fmt.Sprintf("from: %q is not a phone number such as +14155552671", from)}
	}
	s.mu.Lock()
	account, ok := s.owner(from, to)
	if !ok {
		s.mu.Unlock()
		return &inbox.Refused{Status: http.StatusNotFound, Why: fmt.Sprintf("to: no account has the number %q", to)}
	}
	if account.InboundURL == "" {
		s.mu.Unlock()
		return &inbox.Refused{Status: http.StatusConflict, Why: "this account has no inbound webhook"}
	}
	sid := newSID("SM")
	form := url.Values{
		"AccountSid": {account.SID}, "ApiVersion": {"2010-04-01"}, "MessagingServiceSid": {account.MessagingServiceSID},
		"From": {from}, "To": {account.Number}, "Body": {body}, "NumMedia": {"0"}, "NumSegments": {strconv.Itoa(segments(body))},
		"MessageSid": {sid}, "SmsSid": {sid}, "SmsMessageSid": {sid}, "SmsStatus": {"received"},
	}
	word := ""
	switch strings.ToUpper(strings.TrimSpace(body)) {
	case "STOP", "UNSUBSCRIBE", "END", "QUIT", "STOPALL", "REVOKE", "OPTOUT", "CANCEL":
		word, s.stopped[account.SID+from] = "STOP", true
	case "START", "YES", "UNSTOP":
		word = "START"
		delete(s.stopped, account.SID+from)
	case "HELP", "INFO":
		word = "HELP"
	}
	if account.AdvancedOptOut && word != "" {
		form.Set("OptOutType", word)
	}
	s.busy++
	s.mu.Unlock()
	defer s.count(-1)
	return s.post(ctx, account.InboundURL, form, account.AuthToken)
}

// owner finds the account that a phone texts to. The caller holds the lock.
func (s *Sim) owner(from, to string) (Account, bool) {
	if to == "" {
		for _, t := range slices.Backward(s.texts) {
			if t.to == from {
				to = t.account.Number
				break
			}
		}
	}
	for _, a := range s.accounts {
		if to != "" && (a.Number == to || a.MessagingServiceSID == to) {
			return a, true
		}
	}
	return Account{}, false
}

// post delivers one callback, signed. As Twilio does, it tries a second time when there was no answer.
func (s *Sim) post(ctx context.Context, to string, form url.Values, authToken string) error {
	to, _, _ = strings.Cut(to, "#")
	var err error
	for range 2 {
		var q *http.Request
		if q, err = http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader([]byte(form.Encode()))); err != nil {
			return err
		}
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
		q.Header.Set("User-Agent", "TwilioProxy/1.1")
		q.Header.Set("X-Twilio-Signature", Sign(authToken, to, form))
		var answer *http.Response
		if answer, err = s.client.Do(q); err != nil {
			continue
		}
		_, err = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10))
		answer.Body.Close()
		if answer.StatusCode < 200 || answer.StatusCode > 299 {
			return fmt.Errorf("%s answered %s", to, answer.Status)
		}
		return err
	}
	return err
}

// Sign signs a callback as Twilio does: HMAC-SHA1 over the URL and the parameters, sorted by name, each
// name followed by its value.
func Sign(authToken, to string, form url.Values) string {
	names := make([]string, 0, len(form))
	for name := range form {
		names = append(names, name)
	}
	slices.Sort(names)
	h := hmac.New(sha1.New, []byte(authToken))
	io.WriteString(h, to)
	for _, name := range names {
		io.WriteString(h, name+form.Get(name))
	}
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}
