package notify

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write docs/twilio-errors.md anew")

func TestThePageOfErrorsIsTheFile(t *testing.T) {
	const path = "../../docs/twilio-errors.md"
	if *update {
		if err := os.WriteFile(path, []byte(twilioErrorPage()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(path)
	if err != nil || string(page) != twilioErrorPage() {
		t.Errorf("%s is not what twilio_errors.csv says (%v): go test ./app/notify -run TestThePageOfErrors -update", path, err)
	}
}

func TestAFileOfErrorsThatContradictsItselfIsRefused(t *testing.T) {
	t.Parallel()
	const head = "code,message,after,suppress,shop,why,next\n"
	for _, c := range []string{
		"", "code,message\n", head + "x,failed,,,,why,next\n", head + "1,lost,,,,why,next\n", head + "1,failed,soon,,,why,next\n", head + "1,failed,,spam,,why,next\n",
		head + "1,failed,,,nothing,why,next\n", head + "1,failed,,,off,why,next\n", head + "1,unsent,,,told,why,next\n", head + "1,retry,,stop,,why,next\n",
		head + "1,failed,,bounce x,,why,next\n", head + "1,failed,,,,,next\n", head + "1,failed,,,,why,next\n1,failed,,,,why,next\n",
	} {
		if _, err := readErrors(c); err == nil {
			t.Errorf("%q is taken", c)
		}
	}
}
