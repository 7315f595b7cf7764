package shopifysim

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"holdfast/app/shopify"
	"holdfast/app/simkit"
)

// Request is one request that the app made to the Admin API, with its answer.
type Request struct {
	ID        ID              `json:"id"`
	At        time.Time       `json:"at"`
	Shop      string          `json:"shop"`
	Op        string          `json:"op"`  // the first root field: draftOrderCreate, nodes, ...
	Ops       []string        `json:"ops"` // every root field
	Query     string          `json:"query"`
	Variables json.RawMessage `json:"variables,omitempty"`
	Requested int             `json:"requested_cost"`
	Cost      int             `json:"cost"`             // points that were really spent
	Errors    []string        `json:"errors,omitempty"` // of validation and execution
	Faults    []string        `json:"faults,omitempty"` // modes of the faults that fired
	Status    int             `json:"status"`           // 0 = the connection was dropped
	Answer    json.RawMessage `json:"answer,omitempty"` // as computed, also when it was never sent
}

// Requests returns the last 4,000 requests of the app, oldest first; of one shop, or of all for "".
func (s *Server) Requests(domain string) []Request {
	all := s.requests.list()
	if domain == "" {
		return all
	}
	return slices.DeleteFunc(all, func(r Request) bool { return r.Shop != domain })
}

// versionPattern is what may stand for a version in the path. Every one is answered with the schema of
// APIVersion, as Shopify answers a version that it no longer has with one that it has.
var versionPattern = regexp.MustCompile(`^(|unstable|\d{4}-\d{2})$`)

// timeoutAfter is how long timeout_after_commit keeps a client that does not give up by itself.
const timeoutAfter = time.Minute

// serveGraphQL is the Admin API's one endpoint, in the order in which Shopify looks at a request.
func (s *Server) serveGraphQL(w http.ResponseWriter, r *http.Request, domain, version string) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 8<<20))
	if err != nil {
		return // the client went away, or sent too much
	}
	rec := Request{ID: ID(s.newID()), At: s.clock.Now(), Shop: domain, Ops: []string{}}
	defer func() { s.requests.add(rec) }()
	send := func(status int, contentType string, answer []byte) {
		rec.Status = status
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("X-Request-Id", rec.ID.String())
		w.Header().Set("X-Shopify-API-Version", APIVersion)
		w.WriteHeader(status)
		w.Write(answer)
	}
	plain := func(status int, why any) {
		answer, err := json.Marshal(map[string]any{"errors": why})
		if err != nil {
			s.log.Error("simulated Shopify: an answer cannot be written", "err", err)
		}
		rec.Answer = answer
		send(status, "application/json; charset=utf-8", answer)
	}

	s.mu.RLock()
	sh := s.shops[domain]
	s.mu.RUnlock()
	switch {
	case sh == nil || !versionPattern.MatchString(version) || r.Method != http.MethodPost:
		plain(http.StatusNotFound, "Not Found")
		return
	case !s.accepts(sh, r.Header.Get("X-Shopify-Access-Token")):
		plain(http.StatusUnauthorized, "[API] Invalid API key or access token (unrecognized login or wrong password)")
		return
	}
	var in struct {
		Query         string          `json:"query"`
		Variables     json.RawMessage `json:"variables"`
		OperationName string          `json:"operationName"`
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && kind == "application/graphql" {
		in.Query = string(body)
	} else if err != nil || kind != "application/json" {
		plain(http.StatusUnsupportedMediaType, "Unsupported Media Type")
		return
	} else if err := json.Unmarshal(body, &in); err != nil || in.Query == "" {
		plain(http.StatusBadRequest, map[string]string{"query": "Required parameter missing or invalid"})
		return
	}
	vars := map[string]any{}
	if len(in.Variables) > 0 && !bytes.Equal(in.Variables, []byte("null")) {
		d := json.NewDecoder(bytes.NewReader(in.Variables))
		d.UseNumber() // or a large id would become a float
		if err := d.Decode(&vars); err != nil {
			plain(http.StatusBadRequest, map[string]string{"variables": "Variables must be an object"})
			return
		}
	}
	rec.Query, rec.Variables = in.Query, in.Variables
	if r.UserAgent() == shopify.UserAgent {
		if err := s.keep(in.Query, vars); err != nil {
			s.log.Error("simulated Shopify: a document cannot be kept", "err", err)
			plain(http.StatusInternalServerError, "SIMULATOR: a document cannot be kept: "+err.Error())
			return
		}
	}

	p, errs := newPlan(s.api, s.resolvers, in.Query, in.OperationName, vars)
	rec.Requested = p.requested
	if len(p.roots) > 0 {
		rec.Op, rec.Ops = p.roots[0], p.roots
	}
	fire := s.take(domain, p.roots)
	for _, f := range fire {
		rec.Faults = append(rec.Faults, f.Mode)
	}
	for _, f := range fire {
		if f.Mode == "delay" && f.When != "after" && !s.faults.Wait(f, r.Context().Done()) {
			return // the client went away before anything was done
		}
	}
	throttle := false
	for _, f := range fire {
		switch f.Mode {
		case "token_expired":
			s.expire(sh, r.Header.Get("X-Shopify-Access-Token"))
			plain(http.StatusUnauthorized, "[API] Invalid API key or access token (unrecognized login or wrong password)")
			return
		case "status":
			if f.Code == http.StatusTooManyRequests {
				w.Header().Set("Retry-After", "2.0")
			}
			plain(f.Code, http.StatusText(f.Code))
			return
		case "html_502":
			send(http.StatusBadGateway, "text/html", []byte("<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"))
			return
		case "throttle":
			throttle = true
		}
	}

	answer := s.answer(p, errs, domain, fire, throttle, &rec)
	rec.Answer = answer
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
	send(http.StatusOK, "application/json; charset=utf-8", answer)
}

// keep keeps a document in Options.Documents; a bulk query is sent as a variable, and one, too. Many
// processes may keep the same one at once.
func (s *Server) keep(document string, vars map[string]any) error {
	if s.documents == "" {
		return nil
	}
	kept := []string{document}
	if query, ok := vars["query"].(string); ok && strings.Contains(document, "bulkOperationRunQuery") {
		kept = append(kept, query)
	}
	for _, text := range kept {
		name := filepath.Join(s.documents, fmt.Sprintf("%x.graphql", sha256.Sum256([]byte(text))))
		if _, err := os.Stat(name); err == nil {
			continue
		}
		part, err := os.CreateTemp(s.documents, "part-*")
		if err != nil {
			return err
		}
		_, err = part.WriteString(text)
		if err := errors.Join(err, part.Close()); err != nil {
			return err
		}
		if err := os.Rename(part.Name(), name); err != nil {
			return err
		}
	}
	return nil
}

// take returns the faults that fire for a request with these root fields. A fault for every operation
// counts one request once, however many fields it asks for.
func (s *Server) take(domain string, roots []string) []simkit.Fault {
	if len(roots) == 0 {
		return s.faults.Take("shopify", "", domain)
	}
	fire := s.faults.Take("shopify", roots[0], domain)
	named := map[string]bool{roots[0]: true}
	for _, root := range roots[1:] {
		planted := slices.ContainsFunc(s.faults.List(), func(f simkit.Fault) bool { return f.Target == "shopify" && f.Op == root })
		if !planted || named[root] {
			continue
		}
		named[root] = true
		for _, f := range s.faults.Take("shopify", root, domain) {
			if f.Op == root {
				fire = append(fire, f)
			}
		}
	}
	return fire
}

// answer runs a plan, if it may be run, and returns the JSON.
func (s *Server) answer(p *plan, errs []gqlError, domain string, fire []simkit.Fault, throttle bool, rec *Request) []byte {
	out := &object{}
	add := func(key string, v any) { out.keys, out.values = append(out.keys, key), append(out.values, v) }
	finish := func() []byte {
		for _, e := range errs {
			rec.Errors = append(rec.Errors, e.Message)
			if code, _ := e.Extensions["code"].(string); code == "SIMULATOR_NOT_SIMULATED" || code == "SIMULATOR_BROKEN" {
				s.log.Error(e.Message, "shop", domain, "path", e.Path)
			}
		}
		b, err := json.Marshal(out)
		if err != nil {
			s.log.Error("simulated Shopify: an answer cannot be written", "err", err)
		}
		return b
	}
	if errs != nil {
		add("errors", errs)
		return finish()
	}
	sh, err := s.lock(domain)
	if err != nil { // the shop went with a Reset while a fault held the request
		errs = []gqlError{{Message: err.Error()}}
		add("errors", errs)
		return finish()
	}
	defer sh.mu.Unlock()
	now := s.clock.Now()
	sh.bucket.fill(now)
	if throttle || sh.bucket.level < float64(p.requested) {
		level := sh.bucket.level
		if throttle {
			level = 0
		}
		errs = []gqlError{{Message: "Throttled", Extensions: map[string]any{"code": "THROTTLED", "documentation": "https://shopify.dev/api/usage/rate-limits"}}}
		add("errors", errs)
		add("extensions", map[string]any{"cost": map[string]any{
			"requestedQueryCost": p.requested, "actualQueryCost": nil, "throttleStatus": sh.bucket.status(level),
		}})
		return finish()
	}
	x := &exec{plan: p, sh: sh, now: now, scopes: sh.scopes}
	for _, f := range fire {
		if f.Mode == "index_lag" {
			lag := f.Delay()
			x.lag = &lag
		}
		x.bulkFails = x.bulkFails || f.Mode == "bulk_failed"
	}
	data := x.run()
	rec.Cost = min(x.spent, p.requested)
	sh.bucket.level -= float64(rec.Cost)
	add("data", data)
	if errs = x.errs; errs != nil {
		add("errors", errs)
	}
	extensions := map[string]any{"cost": map[string]any{
		"requestedQueryCost": p.requested, "actualQueryCost": rec.Cost, "throttleStatus": sh.bucket.status(sh.bucket.level),
	}}
	if x.search != nil {
		extensions["search"] = x.search
	}
	add("extensions", extensions)
	return finish()
}
