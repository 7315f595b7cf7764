package notify

import (
	"errors"
	"testing"

	"holdfast/app/waitlist"
)

func TestAReportOfPostmarksIsRead(t *testing.T) {
	t.Parallel()
	const ours = `"Metadata":{"holdfast":"7.42.2"}`
	for body, want := range map[string]struct {
		status  string
		outcome waitlist.Outcome
		sender  waitlist.SenderEffect
	}{
		`{"RecordType":"Bounce","Type":"HardBounce","Email":"ann@example.com",` + ours + `}`:                                                             {"failed", waitlist.DeadAddr, ""},
		`{"RecordType":"Bounce","Type":"SoftBounce","Email":"ann@example.com",` + ours + `}`:                                                             {"failed", waitlist.Once, ""},
		`{"RecordType":"Bounce","Type":"Blocked","Email":"ann@example.com",` + ours + `}`:                                                                {"failed", waitlist.GiveUp, waitlist.SenderTold},
		`{"RecordType":"Bounce","Type":"AutoResponder","Email":"ann@example.com",` + ours + `}`:                                                          {},
		`{"RecordType":"SpamComplaint","Type":"SpamComplaint","Email":"ann@example.com",` + ours + `}`:                                                   {"complained", "", ""},
		`{"RecordType":"Bounce","Type":"SpamComplaint","Email":"ann@example.com",` + ours + `}`:                                                          {"complained", "", ""},
		`{"RecordType":"Delivery","Recipient":"ann@example.com",` + ours + `}`:                                                                           {"delivered", "", ""},
		`{"RecordType":"SubscriptionChange","Recipient":"ann@example.com","SuppressSending":true,"SuppressionReason":"ManualSuppression",` + ours + `}`:  {"failed", waitlist.OptedOut, ""},
		`{"RecordType":"SubscriptionChange","Recipient":"ann@example.com","SuppressSending":true,"SuppressionReason":"SpamComplaint",` + ours + `}`:      {"complained", "", ""},
		`{"RecordType":"SubscriptionChange","Recipient":"ann@example.com","SuppressSending":false,"SuppressionReason":"ManualSuppression",` + ours + `}`: {},
		`{"RecordType":"Open","Recipient":"ann@example.com",` + ours + `}`:                                                                               {},
		`{"RecordType":"Bounce","Type":"HardBounce","Email":"ann@example.com"}`:                                                                          {}, // none of ours
		`{"RecordType":"Bounce","Type":"HardBounce","Email":"ann@example.com","Metadata":{"holdfast":"7.x.2"}}`:                                          {},
		`{"RecordType":"Bounce","Type":"HardBounce","Email":"ann@example.com","Metadata":{"holdfast":42}}`:                                               {},
	} {
		r, ok, err := ReadPostmark([]byte(body))
		if err != nil || ok != (want.status != "") {
			t.Errorf("%s: %v, %v", body, ok, err)
			continue
		}
		if ok && (r.ShopID != 7 || r.MessageID != 42 || r.Attempt != 2 || r.To != "ann@example.com" || r.Status != want.status || r.Failure.Outcome != want.outcome || r.Failure.Sender != want.sender) {
			t.Errorf("%s: got %+v", body, r)
		}
		if ok && r.Status == "failed" && (r.Failure.Code == "" || r.Failure.Why == "") {
			t.Errorf("%s: no reason for the merchant", body)
		}
	}
	for _, body := range []string{"", "nonsense", "[]", `{}`, `{"RecordType":7}`} {
		if _, ok, err := ReadPostmark([]byte(body)); ok || !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v, %v", body, ok, err)
		}
	}
}

func FuzzReadPostmark(f *testing.F) {
	f.Add([]byte(`{"RecordType":"Bounce","Type":"HardBounce","Email":"ann@example.com","Metadata":{"holdfast":"7.42.2"}}`))
	f.Add([]byte(`{"RecordType":"SubscriptionChange","SuppressSending":true,"Metadata":{"holdfast":"1.1.1"}}`))
	f.Add([]byte(`nonsense`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, ok, err := ReadPostmark(body)
		if ok && (err != nil || r.ShopID < 1 || r.MessageID < 1 || r.Attempt < 1 || r.Status == "") {
			t.Errorf("%q: %+v, %v", body, r, err)
		}
	})
}
