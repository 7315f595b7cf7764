package web

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"holdfast/templates"
)

type requestIDKey struct{}

// requestID is the id of the request, in every log line about it and in its answer's X-Request-Id.
func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// identify gives each request an id of ours; one that a client sends is not believed.
func (s *server) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := rand.Text()[:16]
		w.Header().Set("X-Request-Id", id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id)))
	})
}

// route is the pattern that a request matched, and what logs show of its address: paths and queries
// carry tokens, keys and contacts.
func route(r *http.Request) string {
	if c := chi.RouteContext(r.Context()); c != nil {
		if p := c.RoutePattern(); p != "" && p != "/*" {
			return p
		}
	}
	return "unmatched"
}

func (s *server) logRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now() // how long it really took; the clock of the business may be pushed
		answer := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() {
			level := slog.LevelInfo
			if c := route(r); c == "/static/*" {
				level = slog.LevelDebug
			}
			s.Log.Log(r.Context(), level, "request", "request_id", requestID(r.Context()), "method", r.Method, "route", route(r),
				"status", answer.Status(), "bytes", answer.BytesWritten(), "took", time.Since(began).Round(time.Microsecond))
		}()
		next.ServeHTTP(answer, r)
	})
}

// recoverPanics turns a panic into a plain page and a log line with its stack.
func (s *server) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			what := recover()
			if what == nil {
				return
			}
			if what == http.ErrAbortHandler {
				panic(what) // net/http's own way to drop a connection
			}
			s.Log.ErrorContext(r.Context(), "panic", "request_id", requestID(r.Context()), "method", r.Method, "route", route(r),
				"panic", what, "stack", string(debug.Stack()))
			if answer, ok := w.(middleware.WrapResponseWriter); ok && answer.Status() != 0 {
				panic(http.ErrAbortHandler) // half an answer is out: the client must not take it for a whole one
			}
			f := faultOf(nil)
			s.mustRender(w, r, f.status, templates.Plain(s.assets.url, nil, f.heading, f.message))
		}()
		next.ServeHTTP(w, r)
	})
}

// secure sets the headers that every answer has. The policy is that of the shopper's pages, the
// strictest; the merchant's pages set one of their own.
func (s *server) secure(next http.Handler) http.Handler {
	// The picture of an item comes from Shopify's CDN; a simulated shop serves its own over http.
	own := s.URL.Scheme + "://" + s.URL.Host
	policy := "default-src 'none'; script-src 'self' " + own + "; style-src 'self' " + own + "; img-src 'self' https: data:"
	if s.URL.Scheme == "http" {
		policy += " http:"
	}
	policy += "; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "strict-origin-when-cross-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		if s.URL.Scheme == "https" {
			h.Set("Strict-Transport-Security", "max-age=31536000; includeSubDomains")
		}
		next.ServeHTTP(w, r)
	})
}

// noStore is for answers about a person: no cache may keep them and no search engine show them.
func noStore(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Robots-Tag", "noindex, nofollow")
		next.ServeHTTP(w, r)
	})
}

// noReferrer keeps the token in a page's address from whatever the page links to.
func noReferrer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Referrer-Policy", "no-referrer")
		next.ServeHTTP(w, r)
	})
}

func limitBody(bytes int64) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, bytes)
			next.ServeHTTP(w, r)
		})
	}
}
