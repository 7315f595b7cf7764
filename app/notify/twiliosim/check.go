package twiliosim

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// twilio_messages.json is Twilio's OpenAPI description (twilio-oai 2.6.7, MIT), cut to Messages.
//
//go:embed twilio_messages.json
var description []byte

const (
	listPath  = "/2010-04-01/Accounts/{AccountSid}/Messages.json"
	fetchPath = "/2010-04-01/Accounts/{AccountSid}/Messages/{Sid}.json"
)

// checker validates requests against the description.
type checker struct{ spec *openapi3.T }

func newChecker() (*checker, error) {
	spec, err := openapi3.NewLoader().LoadFromData(description)
	if err != nil {
		return nil, fmt.Errorf("read Twilio's description: %w", err)
	}
	return &checker{spec}, nil
}

// request is a request that was found valid.
type request struct {
	account Account
	sid     string     // of the text, for fetch
	form    url.Values // body or query
}

// understand authenticates and validates a request.
func (s *Sim) understand(w http.ResponseWriter, r *http.Request) (q request, op string, failed *failure) {
	path := strings.TrimPrefix(r.URL.Path, "/twilio")
	rest, ok := strings.CutPrefix(path, "/2010-04-01/Accounts/")
	sid, resource, _ := strings.Cut(rest, "/")
	pattern := listPath
	switch {
	case ok && resource == "Messages.json" && r.Method == http.MethodPost:
		op = "create"
	case ok && resource == "Messages.json" && r.Method == http.MethodGet:
		op = "list"
	case ok && strings.HasPrefix(resource, "Messages/") && strings.HasSuffix(resource, ".json") && r.Method == http.MethodGet:
		op, pattern = "fetch", fetchPath
		q.sid = strings.TrimSuffix(strings.TrimPrefix(resource, "Messages/"), ".json")
	case ok && strings.HasPrefix(resource, "Messages/") && strings.HasSuffix(resource, ".json") && r.Method == http.MethodPost:
		op, pattern = "update", fetchPath
		q.sid = strings.TrimSuffix(strings.TrimPrefix(resource, "Messages/"), ".json")
	default:
		return q, "", notSimulated(r.Method + " " + path)
	}
	user, password, _ := r.BasicAuth()
	s.mu.Lock()
	at := slices.IndexFunc(s.accounts, func(a Account) bool {
		return a.SID == sid && (user == a.APIKey && password == a.APISecret || user == a.SID && password == a.AuthToken)
	})
	if at >= 0 {
		q.account = s.accounts[at]
	}
	s.mu.Unlock()
	if at < 0 {
		return q, op, fail(http.StatusUnauthorized, 20003, "Authenticate")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
	if err != nil {
		return q, op, fail(http.StatusBadRequest, 20001, "SIMULATOR: body: "+err.Error())
	}
	params := map[string]string{"AccountSid": sid}
	if q.sid != "" {
		params["Sid"] = q.sid
	}
	if q.form, err = s.checks.valid(r, pattern, params, body); err != nil {
		return q, op, fail(http.StatusBadRequest, 20001, "SIMULATOR: "+err.Error())
	}
	if op == "create" {
		failed = s.checkCreate(q)
	} else if op == "update" {
		if q.form.Get("Status") != "canceled" || len(q.form) != 1 {
			failed = notSimulated("an update that does something else than to cancel")
		}
	} else if op == "list" {
		for _, name := range []string{"DateSent", "DateSent<", "DateSent>", "PageToken"} {
			if q.form.Has(name) {
				failed = notSimulated("listing by " + name)
			}
		}
	}
	return q, op, failed
}

// valid validates a request against the description and returns its parameters. What the description's
// own validators let through is refused here: a name that Twilio does not know, and a name given twice.
func (c *checker) valid(r *http.Request, pattern string, pathParams map[string]string, body []byte) (url.Values, error) {
	item := c.spec.Paths.Value(pattern)
	operation := item.GetOperation(r.Method)
	copied := r.Clone(r.Context())
	copied.Body = io.NopCloser(bytes.NewReader(body))
	err := openapi3filter.ValidateRequest(context.Background(), &openapi3filter.RequestValidationInput{
		Request: copied, PathParams: pathParams,
		Route:   &routers.Route{Spec: c.spec, Path: pattern, PathItem: item, Method: r.Method, Operation: operation},
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, SkipSettingDefaults: true},
	})
	if err != nil {
		why, _, _ := strings.Cut(err.Error(), "\nSchema:") // which would print the whole description
		return nil, errors.New(strings.Join(strings.Fields(why), " "))
	}
	known := map[string]bool{} // true: a list
	form := r.URL.Query()
	if operation.RequestBody != nil {
		if len(form) > 0 {
			return nil, errors.New("a POST has its parameters in the body")
		}
		if form, err = url.ParseQuery(string(body)); err != nil {
			return nil, err
		}
		for name, property := range operation.RequestBody.Value.Content["application/x-www-form-urlencoded"].Schema.Value.Properties {
			known[name] = property.Value.Type.Is("array")
		}
	} else {
		for _, p := range operation.Parameters {
			if p.Value.In == "query" {
				known[p.Value.Name] = false
			}
		}
	}
	for name, values := range form {
		list, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("parameter %q is none that Twilio knows here", name)
		}
		if len(values) > 1 && !list {
			return nil, fmt.Errorf("parameter %q is given %d times", name, len(values))
		}
	}
	return form, nil
}

// checkCreate has the rules that the description does not state.
func (s *Sim) checkCreate(q request) *failure {
	form := q.form
	bad := func(code int, message string) *failure { return fail(http.StatusBadRequest, code, message) }
	for _, name := range []string{"MediaUrl", "ContentSid", "ContentVariables", "ApplicationSid", "SendAt", "ScheduleType", "ShortenUrls", "SendAsMms", "FallbackFrom", "PersistentAction"} {
		if form.Has(name) {
			return notSimulated("a text with " + name)
		}
	}
	to := form.Get("To")
	callback, err := url.Parse(form.Get("StatusCallback"))
	seconds, secondsErr := strconv.Atoi(form.Get("ValidityPeriod"))
	switch {
	case !e164.MatchString(to):
		return bad(21211, "Invalid 'To' Phone Number: "+to)
	case form.Get("Body") == "":
		return bad(21602, "Message body is required.")
	case len([]rune(form.Get("Body"))) > 1600:
		return bad(21617, "The concatenated message body exceeds the 1600 character limit")
	case form.Get("From") == "" && form.Get("MessagingServiceSid") == "":
		return bad(21603, "A 'From' phone number is required.")
	case form.Get("From") != "" && form.Get("MessagingServiceSid") != "":
		return bad(20001, "SIMULATOR: give From or MessagingServiceSid, not both")
	case form.Has("From") && form.Get("From") != q.account.Number:
		return bad(21606, "The 'From' phone number provided is not a valid, message-capable phone number of this account.")
	case form.Has("MessagingServiceSid") && form.Get("MessagingServiceSid") != q.account.MessagingServiceSID:
		return fail(http.StatusNotFound, 20404, "The requested resource /Services/"+form.Get("MessagingServiceSid")+" was not found")
	case form.Has("ValidityPeriod") && (secondsErr != nil || seconds < 1 || seconds > 36000):
		return bad(30045, "Validity period is out of range: 1 to 36000 seconds")
	case form.Has("StatusCallback") && (err != nil || callback.Scheme != "https" && callback.Scheme != "http" || callback.Hostname() == "" || strings.Contains(callback.Hostname(), "_")):
		return bad(21609, "The 'StatusCallback' URL is not a valid URL.")
	}
	return nil
}
