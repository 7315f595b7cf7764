package stage

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"holdfast/app/db"
	"holdfast/app/db/dbtest"
	"holdfast/app/shop"
)

// The test binary plays the app: started as a child with STAGE_TEST_APP set it serves what the process
// manager needs of it, and nothing else.
func TestMain(m *testing.M) {
	switch os.Getenv("STAGE_TEST_APP") {
	case "":
		dbtest.Main(m)
	case "parent":
		playParent()
	default:
		playApp(os.Getenv("STAGE_TEST_APP"))
	}
}

func playApp(how string) {
	if len(os.Args) > 1 && os.Args[1] == "migrate" {
		if how == "broken" {
			fmt.Println("cannot migrate: no such database")
			os.Exit(1)
		}
		playMigrate()
		return
	}
	if how == "broken" {
		fmt.Println("LISTEN is missing")
		os.Exit(2)
	}
	var clock atomic.Value
	clock.Store("")
	ops := http.NewServeMux()
	ops.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	ops.HandleFunc("PUT /clock", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		clock.Store(string(body))
		w.WriteHeader(http.StatusNoContent)
	})
	public := http.NewServeMux()
	public.HandleFunc("GET /die", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
	public.HandleFunc("GET /clock", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, clock.Load().(string)) })
	public.HandleFunc("POST /crash", func(w http.ResponseWriter, r *http.Request) {
		for _, when := range []string{"before", "after"} {
			res, err := http.Post(fmt.Sprintf("%s/crash/%s?when=%s&pid=%d", os.Getenv("HOLDFAST_SIM"), r.URL.Query().Get("point"), when, os.Getpid()), "", nil)
			if err != nil {
				io.WriteString(w, err.Error())
				return
			}
			res.Body.Close()
			fmt.Fprintf(w, "%s %d ", when, res.StatusCode)
		}
	})
	public.HandleFunc("POST /webhooks/shopify", func(http.ResponseWriter, *http.Request) {})
	public.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		if err := playInstall(r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		json.NewEncoder(w).Encode(map[string]any{"pid": os.Getpid(), "host": r.Host, "for": r.Header["X-Forwarded-For"]})
	})
	l, err := net.Listen("tcp", os.Getenv("LISTEN"))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go http.Serve(l, public)
	go http.ListenAndServe(os.Getenv("OPS_LISTEN"), ops) // ready is only who can be reached
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
}

// playInstall installs the app in the shop whose admin it is opened in, as the app does, but without asking
// Shopify.
func playInstall(r *http.Request) error {
	_, token, opened := strings.Cut(r.Header.Get("Authorization"), "Bearer ")
	if !opened {
		return nil
	}
	var claims struct {
		Destination string `json:"dest"`
	}
	raw, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err == nil {
		err = json.Unmarshal(raw, &claims)
	}
	if err != nil {
		return err
	}
	key, err := base64.StdEncoding.DecodeString(os.Getenv("HOLDFAST_KEYS"))
	if err != nil {
		return err
	}
	keys, err := shop.NewKeys(key)
	if err != nil {
		return err
	}
	pool, err := db.Open(r.Context(), os.Getenv("DATABASE_URL"), db.Options{MaxConns: 1})
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = shop.NewStore(pool, keys).Install(r.Context(), strings.TrimPrefix(claims.Destination, "https://"), "Played", "EUR", "IE", "en", "played")
	return err
}

func playMigrate() {
	ctx := context.Background()
	pool, err := db.Open(ctx, os.Getenv("DATABASE_URL"), db.Options{})
	if err == nil {
		err = db.Migrate(ctx, pool)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// playParent starts one app, says its process id and waits to be killed.
func playParent() {
	p, err := newProcesses(context.Background(), os.Args[0], 1, []string{"STAGE_TEST_APP=app"}, io.Discard, noClock)
	if err == nil {
		err = p.start(context.Background(), 0)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	list, _ := p.list(context.Background())
	fmt.Println(list[0].PID)
	select {}
}

func noClock(context.Context, *process) error { return nil }

func startApps(t *testing.T, n int) *processes {
	t.Helper()
	p, err := newProcesses(t.Context(), os.Args[0], n, []string{"STAGE_TEST_APP=app"}, io.Discard, noClock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	if err := p.start(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	return p
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Forwarded-For", "203.0.113.9")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestTheBalancerSharesRequestsAndSkipsTheDead(t *testing.T) {
	t.Parallel()
	p := startApps(t, 2)
	front := httptest.NewServer(balancer(p, slog.New(slog.DiscardHandler)))
	defer front.Close()

	answered := func() map[int]int {
		by := map[int]int{}
		for range 10 {
			status, body := get(t, front.URL)
			var said struct {
				PID  int
				Host string
				For  []string
			}
			if err := json.Unmarshal([]byte(body), &said); err != nil || status != 200 {
				t.Fatalf("status %d, body %q", status, body)
			}
			if "http://"+said.Host != front.URL {
				t.Errorf("the app saw the host %q, the client asked for %q", said.Host, front.URL)
			}
			if fmt.Sprint(said.For) != "[203.0.113.9]" {
				t.Errorf("X-Forwarded-For reached the app as %v", said.For)
			}
			by[said.PID]++
		}
		return by
	}
	if by := answered(); len(by) != 2 {
		t.Errorf("10 requests were answered by %d processes, not by both", len(by))
	}
	if err := p.end(1, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if by := answered(); len(by) != 1 {
		t.Errorf("with one process killed, 10 requests were answered by %d", len(by))
	}
	if err := p.end(2, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status, body := get(t, front.URL); status != 502 {
		t.Errorf("with no process left: status %d, %q", status, body)
	}
	if err := p.start(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if by := answered(); len(by) != 2 {
		t.Errorf("after both were started again, %d answered", len(by))
	}
}

func TestARequestOverWhichTheAppDiesIsA502(t *testing.T) {
	t.Parallel()
	p := startApps(t, 1)
	front := httptest.NewServer(balancer(p, slog.New(slog.DiscardHandler)))
	defer front.Close()
	if status, body := get(t, front.URL+"/die"); status != 502 {
		t.Errorf("status %d, %q", status, body)
	}
}

func TestAProcessThatIsStartedAgainHasItsAddressBackAndAnotherPID(t *testing.T) {
	t.Parallel()
	p := startApps(t, 1)
	before, err := p.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if before[0].RSS <= 0 || !before[0].Running {
		t.Errorf("a running process is listed as %+v", before[0])
	}
	n, err := p.killPID(before[0].PID)
	if err != nil || n != 1 {
		t.Fatalf("killed process %d, %v", n, err)
	}
	dead, err := p.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if dead[0].Running || dead[0].PID != 0 {
		t.Errorf("a killed process is listed as %+v", dead[0])
	}
	if _, err := p.killPID(before[0].PID); err == nil {
		t.Error("a process that is gone was killed again")
	}
	if _, err := p.killPID(os.Getpid()); err == nil {
		t.Error("a process that is no child was killed")
	}
	if err := p.start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	after, err := p.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after[0].Address != before[0].Address || after[0].PID == before[0].PID {
		t.Errorf("before the kill %+v, after the start %+v", before[0], after[0])
	}
	if err := p.start(t.Context(), 2); err == nil {
		t.Error("process 2 of 1 was started")
	}
}

func TestWhatAChildSaysBeforeItFailsIsInTheError(t *testing.T) {
	t.Parallel()
	p, err := newProcesses(t.Context(), os.Args[0], 1, []string{"STAGE_TEST_APP=broken"}, io.Discard, noClock)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if err := p.start(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "LISTEN is missing") {
		t.Errorf("start: %v", err)
	}
	if err := p.run(t.Context(), "migrate"); err == nil || !strings.Contains(err.Error(), "no such database") {
		t.Errorf("migrate: %v", err)
	}
}
