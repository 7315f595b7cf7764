package stage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"holdfast/app/shopify/shopifysim"
)

// refusal is an answer other than 200: what is wrong, for whoever called.
type refusal struct {
	status int
	msg    string
	more   map[string]any // further members of the JSON answer
}

func (r *refusal) Error() string { return r.msg }

func refuse(status int, format string, args ...any) error {
	return &refusal{status: status, msg: fmt.Sprintf(format, args...)}
}

// notBuilt is the answer to a call whose feature is not built.
func notBuilt(feature string) error {
	return refuse(http.StatusNotImplemented, "not built yet: %s", feature)
}

// call is a control call: it decodes, does, and returns what is answered as JSON. An error that is no
// refusal is answered with status 500 and its whole text: nobody but the demo's user reads it.
type call func(r *http.Request) (any, error)

func answer(log *slog.Logger, c call) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusOK
		body, err := c(r)
		if err != nil {
			if r.Context().Err() != nil {
				return // the client went away
			}
			said := map[string]any{"error": err.Error()}
			status = http.StatusInternalServerError
			if no, ok := errors.AsType[*refusal](err); ok {
				status = no.status
				for k, v := range no.more {
					said[k] = v
				}
			} else if no, ok := errors.AsType[*shopifysim.Error](err); ok {
				status = no.Status
			} else {
				log.Error("control call failed", "method", r.Method, "path", r.URL.Path, "err", err)
			}
			body = said
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.Encode(body) // a client that went away is no fault of ours
	}
}

// decode reads a JSON object. A member that into does not have is refused by name; an empty body is an
// empty object.
func decode(r *http.Request, into any) error {
	dec := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 8<<20))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil && dec.More() {
		err = errors.New("there is more after the object")
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("%s cannot be %s", wrong.Field, wrong.Value)
		if wrong.Field == "" {
			err = fmt.Errorf("this is an %s", wrong.Value)
		}
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "%s: send one JSON object with the documented members", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}
