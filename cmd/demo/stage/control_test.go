package stage

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"holdfast/app/db/dbtest"
	"holdfast/app/simkit"
)

func TestADumpStandsStillUntilSomethingIsWritten(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	l := newLedger(t, db)
	dump := func() map[string]TableDump {
		t.Helper()
		d, err := Dump(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	l.exec(`UPDATE variants SET observed_at = at(0)`)
	before := dump()
	if before["entries"].Rows != 6 || before["restocks"].Rows != 1 {
		t.Errorf("%+v", before)
	}
	for _, counted := range []string{"tap_limits", "demand", "goose_db_version", "river_leader", "river_queue", "river_migration"} {
		if _, ok := before[counted]; ok {
			t.Errorf("the dump has %s", counted)
		}
	}
	// What is only counted, what moves by the clock alone, and where a row lies on its page.
	l.exec(`
		INSERT INTO tap_limits VALUES (1, 'client', '\x01', at(0), 1);
		INSERT INTO demand VALUES (1, '2026-11-30', 'NO-SUCH', '\x01');
		INSERT INTO variants (shop_id, id, product_id, inventory_item_id) VALUES (1, 4711, 1, 4711);
		UPDATE variants SET hint_seq = 5, seen_seq = 5, observed_at = at(77) WHERE observed_at IS NOT NULL;
		UPDATE shops SET reconcile_at = at(600);
		UPDATE entries SET name = name WHERE id = 1;
		INSERT INTO river_job (args, kind, max_attempts, state, finalized_at) VALUES ('{}', 'sweep', 1, 'completed', now())`)
	if after := dump(); !reflect.DeepEqual(before, after) {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	l.exec(`INSERT INTO river_job (args, kind, max_attempts) VALUES ('{"shop_id": 1, "hold_id": 1}', 'secure', 5)`)
	queued := dump()
	if queued["river_job"] == before["river_job"] {
		t.Error("a queued job does not show")
	}
	l.exec(`UPDATE river_job SET state = 'completed', finalized_at = now() WHERE kind = 'secure'`)
	if after := dump(); !reflect.DeepEqual(queued, after) {
		t.Error("that a job is done shows as if something had been written")
	}
	l.exec(`UPDATE entries SET name = 'Ana' WHERE id = 1`)
	if after := dump(); after["entries"].Rows != 6 || after["entries"].Digest == before["entries"].Digest {
		t.Errorf("a changed name does not show: %+v", after["entries"])
	}
	if err := empty(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	for table, d := range dump() {
		if d.Rows != 0 {
			t.Errorf("%s has %d rows after it was emptied", table, d.Rows)
		}
	}
}

func TestAMisspeltFaultIsRefusedWithTheNamesThatThereAre(t *testing.T) {
	t.Parallel()
	good := []simkit.Fault{
		{Target: "shopify", Op: "draftOrderCreate", Mode: "timeout_after_commit", Count: 1},
		{Target: "shopify", Op: "nodes", Mode: "delay", When: "after", Until: "lifted"},
		{Target: "app", Op: "claim_commit", Mode: "crash_before"},
		{Target: "webhooks", Mode: "lose", Probability: 0.5},
		{Target: "db", Mode: "down", MS: 500},
	}
	for _, f := range good {
		if err := checkFault(f); err != nil {
			t.Errorf("%+v: %v", f, err)
		}
	}
	for want, f := range map[string]simkit.Fault{
		`target: "shopfy" is none of app, db, shopify`:                   {Target: "shopfy", Mode: "delay"},
		`mode of target smtp: "crash_before" is none of status`:          {Target: "smtp", Mode: "crash_before"},
		`op of target app: "claim" is none of claim_commit, draft_creat`: {Target: "app", Op: "claim", Mode: "crash_before"},
		`when: "during" is none of before, after`:                        {Target: "shopify", Mode: "delay", When: "during", MS: 1},
		`when: it belongs to mode delay`:                                 {Target: "app", Mode: "crash_before", When: "before"},
		`until: "gone" is none of lifted`:                                {Target: "shopify", Mode: "delay", Until: "gone"},
		`ms: say for how long`:                                           {Target: "shopify", Mode: "delay"},
		`code: say which`:                                                {Target: "shopify", Mode: "status"},
		`id: it is given`:                                                {ID: "7", Target: "shopify", Mode: "throttle"},
		`ms, count and code are 0 or more`:                               {Target: "shopify", Mode: "throttle", Probability: 1.5},
	} {
		if err := checkFault(f); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", f, err, want)
		}
	}
}

func TestAControlCallRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	h := answer(slog.New(slog.DiscardHandler), func(r *http.Request) (any, error) {
		var in struct {
			Advance duration `json:"advance"`
		}
		if err := decode(r, &in); err != nil {
			return nil, err
		}
		if in.Advance == duration(time.Hour) {
			return nil, notBuilt("an hour")
		}
		return map[string]any{"advanced": time.Duration(in.Advance).String()}, nil
	})
	for body, want := range map[string]string{
		`{"advance":"15m"}`:        `200 {"advanced":"15m0s"}`,
		``:                         `200 {"advanced":"0s"}`,
		`{"advance":"1h"}`:         `501 {"error":"not built yet: an hour"}`,
		`{"advanced":"15m"}`:       `400 {"error":"unknown field \"advanced\": send one JSON object with the documented members"}`,
		`{"advance":15}`:           `400 {"error":"a duration is a string such as \"15m\" or \"1h30m\": send one JSON object with the documented members"}`,
		`{"advance":"-1m"}`:        `400 {"error":"\"-1m\" is no duration: write it as \"15m\" or \"1h30m\", and longer than nothing: send one JSON object with the documented members"}`,
		`{"advance":"1m"} {"x":1}`: `400 {"error":"there is more after the object: send one JSON object with the documented members"}`,
		`[1]`:                      `400 {"error":"this is an array: send one JSON object with the documented members"}`,
		`{`:                        `400 {"error":"unexpected EOF: send one JSON object with the documented members"}`,
	} {
		w := httptest.NewRecorder()
		h(w, httptest.NewRequestWithContext(t.Context(), "POST", "/sim/clock", strings.NewReader(body)))
		if got := fmt.Sprintf("%d %s", w.Code, strings.TrimSpace(w.Body.String())); got != want {
			t.Errorf("%s: %s\nwant %s", body, got, want)
		}
	}
}

func TestEachTamperedTokenIsSpoiltInOneThing(t *testing.T) {
	t.Parallel()
	now := at(0)
	claims := func(token string) (head, body map[string]any, sig string) {
		parts := strings.Split(token, ".")
		if len(parts) != 3 {
			t.Fatalf("token %q", token)
		}
		for i, into := range []*map[string]any{&head, &body} {
			raw, err := base64.RawURLEncoding.DecodeString(parts[i])
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(raw, into); err != nil {
				t.Fatal(err)
			}
		}
		return head, body, parts[2]
	}
	head, good, _ := claims(idToken(FirstShop, ClientID, ClientSecret, now, ""))
	if head["alg"] != "HS256" || good["aud"] != ClientID || good["dest"] != "https://"+FirstShop || good["iss"] != "https://"+FirstShop+"/admin" || good["exp"].(float64) != float64(now.Unix()+60) {
		t.Errorf("%v %v", head, good)
	}
	if _, c, _ := claims(idToken(FirstShop, ClientID, ClientSecret, now, "aud")); c["aud"] == ClientID {
		t.Error("aud is not spoilt")
	}
	if _, c, _ := claims(idToken(FirstShop, ClientID, ClientSecret, now, "exp")); c["exp"].(float64) >= float64(now.Unix()) {
		t.Error("exp is not spoilt")
	}
	if _, c, _ := claims(idToken(FirstShop, ClientID, ClientSecret, now, "dest")); c["dest"] == good["dest"] {
		t.Error("dest is not spoilt")
	}
	if h, _, sig := claims(idToken(FirstShop, ClientID, ClientSecret, now, "none")); h["alg"] != "none" || sig != "" {
		t.Error("alg none is not there")
	}
}

func TestATimeOfThePushedClockIsTurnedBack(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := pushes{all: []push{{now.Add(-time.Minute), time.Hour}, {now.Add(-30 * time.Second), 3 * time.Hour}}}
	for _, c := range []struct{ clock, want time.Time }{
		{now.Add(-2 * time.Minute), now.Add(-2 * time.Minute)},
		{now.Add(-45 * time.Second).Add(time.Hour), now.Add(-45 * time.Second)},
		{now.Add(3 * time.Hour), now},
	} {
		if got := p.real(c.clock); !got.Equal(c.want) {
			t.Errorf("%s turned back to %s, want %s", c.clock, got, c.want)
		}
	}
}
