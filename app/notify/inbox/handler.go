package inbox

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"
)

// Phone is the simulated Twilio's other end: what a shopper's phone and the carrier do.
type Phone interface {
	// SendText sends a text from a phone to one of the numbers. It returns when the text was delivered to
	// the app, or an error that is a *Refused when the request makes no sense.
	SendText(ctx context.Context, from, to, body string) error
	// Report reports a text's status to the app.
	Report(ctx context.Context, messageID, status string, errorCode int) error
}

// Mail is the provider at the other end of a mail.
type Mail interface {
	// Event reports to the app what became of a mail: "bounce", "soft_bounce", "complaint" or "delivery".
	Event(ctx context.Context, messageID, kind string) error
}

// Refused is a control call that cannot be done as asked: Status is the HTTP status.
type Refused struct {
	Status int
	Why    string
}

func (e *Refused) Error() string { return e.Why }

//go:embed inbox.html
var page embed.FS

// Handler answers the page /inbox and the control calls GET /sim/messages, POST /sim/sms, POST
// /sim/sms_status and POST /sim/mail_event.
func Handler(o *Outbox, phone Phone, mail Mail) (http.Handler, error) {
	tmpl, err := template.New("inbox.html").Funcs(template.FuncMap{"linked": linked, "framed": framed}).ParseFS(page, "inbox.html")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sim/messages", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if c := q.Get("channel"); c != "" && c != "sms" && c != "email" {
			refuse(w, &Refused{http.StatusBadRequest, `channel is "sms" or "email"`})
			return
		}
		answer(w, http.StatusOK, o.Messages(strings.ReplaceAll(q.Get("to"), " ", "+"), q.Get("channel")))
	})
	mux.HandleFunc("POST /sim/sms", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ From, To, Body string }
		if err := decode(r, &in); err != nil {
			refuse(w, err)
			return
		}
		if err := phone.SendText(r.Context(), in.From, in.To, in.Body); err != nil {
			refuse(w, err)
			return
		}
		answer(w, http.StatusOK, map[string]string{"status": "delivered"})
	})
	mux.HandleFunc("POST /sim/sms_status", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			MessageID string `json:"message_id"`
			Status    string `json:"status"`
			ErrorCode int    `json:"error_code"`
		}
		if err := decode(r, &in); err != nil {
			refuse(w, err)
			return
		}
		if err := phone.Report(r.Context(), in.MessageID, in.Status, in.ErrorCode); err != nil {
			refuse(w, err)
			return
		}
		answer(w, http.StatusOK, map[string]string{"status": "reported"})
	})
	mux.HandleFunc("POST /sim/mail_event", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			MessageID string `json:"message_id"`
			Kind      string `json:"kind"`
		}
		if err := decode(r, &in); err != nil {
			refuse(w, err)
			return
		}
		if err := mail.Event(r.Context(), in.MessageID, in.Kind); err != nil {
			refuse(w, err)
			return
		}
		answer(w, http.StatusOK, map[string]string{"status": "reported"})
	})
	mux.HandleFunc("GET /inbox", func(w http.ResponseWriter, r *http.Request) {
		all := o.Messages(strings.ReplaceAll(r.URL.Query().Get("to"), " ", "+"), "")
		newest := make([]Message, len(all))
		for i, m := range all {
			newest[len(all)-1-i] = m
		}
		var b strings.Builder
		if err := tmpl.Execute(&b, newest); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src https: http: data:; frame-src 'self'")
		fmt.Fprint(w, b.String())
	})
	return mux, nil
}

func decode(r *http.Request, into any) error {
	d := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 64<<10))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return &Refused{http.StatusBadRequest, "the body is not the JSON that is expected: " + err.Error()}
	}
	return nil
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller is gone, and nobody else to tell
}

func refuse(w http.ResponseWriter, err error) {
	status := http.StatusBadGateway // the app did not take it
	var refused *Refused
	if errors.As(err, &refused) {
		status = refused.Status
	}
	answer(w, status, map[string]string{"error": err.Error()})
}

// linked is a text with its links clickable.
func linked(s string) template.HTML {
	var b strings.Builder
	last := 0
	for _, at := range link.FindAllStringIndex(s, -1) {
		url := strings.TrimRight(s[at[0]:at[1]], ".,;:!?)")
		b.WriteString(template.HTMLEscapeString(s[last:at[0]]))
		fmt.Fprintf(&b, `<a href="%[1]s" target="_blank" rel="noreferrer">%[1]s</a>`, template.HTMLEscapeString(url))
		last = at[0] + len(url)
	}
	b.WriteString(template.HTMLEscapeString(s[last:]))
	return template.HTML(b.String())
}

// framed is a mail's HTML for a sandboxed frame: no scripts, and its links open outside of it.
func framed(html string) string {
	const base = `<base target="_blank">`
	if strings.Contains(html, "<head>") {
		return strings.Replace(html, "<head>", "<head>"+base, 1)
	}
	return base + html
}
