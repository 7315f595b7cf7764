package web

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"holdfast/app/waitlist"
)

func TestTheReservePageSaysWhatIsTrueOfEachState(t *testing.T) {
	t.Parallel()
	for state, c := range map[string]struct {
		status int
		wants  []string
	}{
		"open":     {200, []string{"It is your turn", `datetime="2026-12-01T14:45:00Z"`, ">14:45 UTC<", "15 minutes", "Hold it for me", "No thanks", "€129.00", "Oak chair", "Natural", "Chairs &amp; Co", `src="https://cdn.shopify.com/chair.jpg"`}},
		"reserved": {200, []string{"One is reserved for you until", ">14:45 UTC<", "15 minutes", "Get it", "No thanks", "Nobody else can buy this one", "€129.00"}},
		"securing": {200, []string{"You have the next unit", "Reserving it now", `<noscript><meta http-equiv="refresh" content="2"></noscript>`, `data-retry="1500"`}},
		"held":     {200, []string{"Held for you until", ">14:32 UTC<", ">15:00<", `href="https://chairs.myshopify.com/invoices/1"`, "Go to checkout"}},
		"gone":     {410, []string{"Just gone", "You keep your place", "<strong>3</strong>", "/q/" + goodToken}},
		"lapsed":   {410, []string{"This offer has ended", "You keep your place"}},
		"passed":   {410, []string{"You passed this one on", "You keep your place"}},
		"expired":  {410, []string{"The time to check out is over", "You keep your place"}},
		"sold":     {200, []string{"It is yours"}},
		"left":     {200, []string{"You have left the queue"}},
		"invalid":  {404, []string{"This link is not valid"}},
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			f := &fake{state: state}
			w := send(t, newWeb(t, f), "GET", "/r/"+goodToken, "")
			if w.Code != c.status {
				t.Errorf("status %d, want %d", w.Code, c.status)
			}
			for _, want := range c.wants {
				if !strings.Contains(w.Body.String(), want) {
					t.Errorf("%q is missing in\n%s", want, w.Body)
				}
			}
			// The words are kept for the state in which they are true, and the link for the one that has it.
			if strings.Contains(w.Body.String(), "Held for you") != (state == "held") || strings.Contains(w.Body.String(), "/invoices/") != (state == "held") {
				t.Errorf("a hold is claimed in %s:\n%s", state, w.Body)
			}
			if n := w.Body.Len(); n > 8000 {
				t.Errorf("the page has %d bytes", n)
			}
		})
	}
}

func TestAPressThatWorkedIsA303AndOneThatCameToNothingIsA410(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, state string
		status      int
	}{
		{"/r/", "securing", 303}, {"/r/", "held", 303}, {"/r/", "sold", 303}, {"/r/", "gone", 410}, {"/r/", "lapsed", 410}, {"/r/", "passed", 410}, {"/r/", "expired", 410},
		{"/pass", "passed", 303}, {"/pass", "sold", 303}, {"/pass", "gone", 410}, {"/pass", "lapsed", 410}, {"/pass", "expired", 410},
	} {
		f := &fake{state: c.state}
		path, act := "/r/"+goodToken, "claim"
		if c.path == "/pass" {
			path, act = path+"/pass", "pass"
		}
		// From a mail client, with an Origin of its own and no field.
		w := send(t, newWeb(t, f), "POST", path, "", "Origin", "https://mail.example.net", "Sec-Fetch-Site", "cross-site")
		if w.Code != c.status {
			t.Errorf("POST %s, %s: %d, want %d", path, c.state, w.Code, c.status)
		}
		if c.status == 303 && w.Header().Get("Location") != "/r/"+goodToken {
			t.Errorf("POST %s leads to %q", path, w.Header().Get("Location"))
		}
		if got := f.done(); len(got) != 1 || got[0] != act {
			t.Errorf("POST %s did %v", path, got)
		}
	}
}

func TestLookingAtAnyLinkAnyNumberOfTimesChangesNothing(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"open", "held", "gone", waitlist.Waiting} {
		f := &fake{state: state, joined: waitlist.Joined{}}
		h := newWeb(t, f)
		for _, path := range []string{"/r/" + goodToken, "/r/" + goodToken + "/status", "/u/" + goodToken, "/q/" + goodToken, "/q/" + goodToken + "?do=leave", "/u/" + goodToken + "?List-Unsubscribe=One-Click",
			"/r/" + goodToken + "/pass", "/c/" + goodToken, proxied("/proxy/waitlist", nil)} {
			for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
				send(t, h, method, path, "")
				send(t, h, method, path, "do=leave&List-Unsubscribe=One-Click", "Content-Type", formType)
			}
		}
		if acts := f.done(); len(acts) != 0 {
			t.Errorf("looking did %v", acts)
		}
	}
}

func TestHeadIsAnsweredAsGetIs(t *testing.T) {
	t.Parallel()
	h := newWeb(t, &fake{state: "gone"})
	for _, path := range []string{"/r/" + goodToken, "/q/" + goodToken, "/u/" + goodToken, "/privacy"} {
		if get, head := send(t, h, "GET", path, "").Code, send(t, h, "HEAD", path, "").Code; get != head {
			t.Errorf("%s: GET %d, HEAD %d", path, get, head)
		}
	}
}

func TestNothingOnAPageSubmitsItself(t *testing.T) {
	t.Parallel()
	inline := regexp.MustCompile(`(?i)<script(?:[^>]*)>\s*\S|\son\w+=|javascript:`)
	for _, state := range []string{"open", "securing", "held", "gone", waitlist.Waiting, waitlist.Offered, waitlist.Holding} {
		h := newWeb(t, &fake{state: state})
		for _, path := range []string{"/r/", "/u/", "/q/"} {
			if found := inline.FindString(strings.ReplaceAll(send(t, h, "GET", path+goodToken, "").Body.String(), "></script>", ">")); found != "" && !strings.HasPrefix(found, "<script defer blocking=") {
				t.Errorf("%s in %s has a script of its own: %q", path, state, found)
			}
		}
	}
	script, err := staticFiles.ReadFile("static/shopper.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{".submit(", "requestSubmit", ".click(", "'POST'", `"POST"`, "method:"} {
		if strings.Contains(string(script), word) {
			t.Errorf("the script contains %s", word)
		}
	}
}

func TestTheStatusIsForPrograms(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		"open":     `{"state":"open","until":"2026-12-01T14:45:00Z","checkout_url":null,"place":null,"retry_ms":15000}`,
		"securing": `{"state":"securing","until":null,"checkout_url":null,"place":null,"retry_ms":1500}`,
		"held":     `{"state":"held","until":"2026-12-01T14:32:00Z","checkout_url":"https://chairs.myshopify.com/invoices/1","place":null,"retry_ms":15000}`,
		"gone":     `{"state":"gone","until":null,"checkout_url":null,"place":3,"retry_ms":0}`,
	} {
		w := send(t, newWeb(t, &fake{state: state}), "GET", "/r/"+goodToken+"/status", "")
		if w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%s: %d %s", state, w.Code, w.Body)
		}
	}
	w := send(t, newWeb(t, &fake{}), "GET", "/r/guessed/status", "")
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), `"state":"invalid"`) {
		t.Errorf("a guessed link: %d %s", w.Code, w.Body)
	}
}

func TestAGuessedLinkIsNotValidAndNothingMore(t *testing.T) {
	t.Parallel()
	h := newWeb(t, &fake{state: "open"})
	var first string
	for _, c := range [][3]string{{"GET", "/r/guessed"}, {"POST", "/r/guessed"}, {"POST", "/r/guessed/pass"}, {"GET", "/u/guessed"}, {"POST", "/u/guessed"}, {"GET", "/q/guessed"}, {"POST", "/q/guessed", "do=leave"}} {
		w := send(t, h, c[0], c[1], c[2], "Content-Type", formType)
		if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "This link is not valid") {
			t.Errorf("%s %s: %d", c[0], c[1], w.Code)
		}
		if first == "" {
			first = w.Body.String()
		} else if w.Body.String() != first {
			t.Errorf("%s %s says something else than the others", c[0], c[1])
		}
	}
}

func TestAShopperIsToldToTryAgainWhenThatHelps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		retry  string
	}{
		{waitlist.ErrLater, 503, "2"}, {fmt.Errorf("claim: %w", &waitlist.Throttled{After: 3 * time.Second}), 503, "3"},
		{&waitlist.RateLimited{RetryAfter: time.Minute}, 429, "60"}, {errors.New("secret"), 500, ""},
	} {
		for _, path := range []string{"/r/" + goodToken, "/r/" + goodToken + "/pass", "/u/" + goodToken} {
			w := send(t, newWeb(t, &fake{err: c.err}), "POST", path, "")
			if w.Code != c.status || w.Header().Get("Retry-After") != c.retry || strings.Contains(w.Body.String(), "secret") {
				t.Errorf("%v at %s: %d Retry-After %q", c.err, path, w.Code, w.Header().Get("Retry-After"))
			}
		}
	}
}

func TestTheOneClickOfAMailProgramUnsubscribesWithoutARedirect(t *testing.T) {
	t.Parallel()
	multi := "--b\r\nContent-Disposition: form-data; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n--b--\r\n"
	for name, c := range map[string]struct {
		kind, body string
		status     int
	}{
		"urlencoded":        {formType, "List-Unsubscribe=One-Click", 200},
		"multipart":         {"multipart/form-data; boundary=b", multi, 200},
		"the page's button": {formType, "", 303},
		"nothing at all":    {"", "", 303},
		"a broken body":     {"multipart/form-data; boundary=b", "--b", 303},
	} {
		f := &fake{}
		w := send(t, newWeb(t, f), "POST", "/u/"+goodToken, c.body, "Content-Type", c.kind)
		if w.Code != c.status || strings.Join(f.done(), " ") != "unsubscribe" {
			t.Errorf("%s: %d, did %v", name, w.Code, f.done())
		}
		if c.status == 200 && !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %s", name, w.Header().Get("Content-Type"))
		}
	}
}

func TestLeavingTakesAWordAndNotJustAPost(t *testing.T) {
	t.Parallel()
	f := &fake{state: waitlist.Waiting}
	h := newWeb(t, f)
	for _, body := range []string{"", "do=", "do=stay"} {
		if w := send(t, h, "POST", "/q/"+goodToken, body, "Content-Type", formType); w.Code != http.StatusBadRequest {
			t.Errorf("%q: %d", body, w.Code)
		}
	}
	if len(f.done()) != 0 {
		t.Fatalf("did %v", f.done())
	}
	w := send(t, h, "POST", "/q/"+goodToken, "do=leave", "Content-Type", formType)
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/q/"+goodToken || strings.Join(f.done(), " ") != "leave" {
		t.Errorf("%d %v", w.Code, f.done())
	}
}

func TestTheShoppersPagesWeighLessThan30KB(t *testing.T) {
	t.Parallel()
	h := newWeb(t, &fake{state: "held"})
	total := send(t, h, "GET", "/r/"+goodToken, "").Body.Len()
	for _, name := range []string{"shopper.css", "shopper.js"} {
		w := send(t, h, "GET", "/static/"+name, "")
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d", name, w.Code)
		}
		total += w.Body.Len()
	}
	if total > 30_000 {
		t.Errorf("%d bytes", total)
	}
}

func TestAPictureOrCheckoutOfAStrangeSchemeIsNotLinked(t *testing.T) {
	t.Parallel()
	f := &fake{state: "held"}
	h := newWeb(t, f)
	body := send(t, h, "GET", "/r/"+goodToken, "").Body.String()
	if !strings.Contains(body, "chair.jpg") {
		t.Fatal("the picture is missing")
	}
	strange := &strangeItems{fake: f}
	c := newConfig(t, f)
	c.Domain = strange
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	body = send(t, h, "GET", "/r/"+goodToken, "").Body.String()
	if strings.Contains(body, "javascript:") || strings.Contains(body, "data:text") {
		t.Errorf("linked:\n%s", body)
	}
}
