package stage

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

// balancer stands in front of the app's processes as a load balancer does in production: each request
// goes to the running process whose turn it is, unchanged; when none runs, or the one that had the
// request dies over it, the answer is 502.
func balancer(p *processes, log *slog.Logger) http.Handler {
	var proxy *httputil.ReverseProxy
	proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: p.next()})
			r.Out.Host = r.In.Host
			// The app counts by the address that Shopify's proxy put there. This hop adds none.
			for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
				if v, ok := r.In.Header[name]; ok {
					r.Out.Header[name] = v
				}
			}
		},
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			MaxIdleConnsPerHost: 1000,
			DisableCompression:  true, // what the app encodes is handed on as it is
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				return // the client went away
			}
			// A process that has just begun to stop listens no more. Nothing was sent to it: another one is asked.
			var dial *net.OpError
			if tries, _ := r.Context().Value(tried{}).(int); errors.As(err, &dial) && dial.Op == "dial" && tries < len(p.all) && len(p.ready()) > 0 {
				proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tried{}, tries+1)))
				return
			}
			log.Info("no process of the app answered", "method", r.Method, "err", err)
			badGateway(w)
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(p.ready()) == 0 {
			badGateway(w)
			return
		}
		defer func() {
			// The app died in the middle of its answer; net/http cuts the client's connection.
			if v := recover(); v != nil {
				if err, ok := v.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
					log.Error("balancer", "panic", v)
				}
				panic(http.ErrAbortHandler)
			}
		}()
		proxy.ServeHTTP(w, r)
	})
}

// tried is the key under which a request knows how often it was tried in vain.
type tried struct{}

func badGateway(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusBadGateway)
	io.WriteString(w, "502 Bad Gateway: no process of the app answers\n")
}
