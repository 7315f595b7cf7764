package shopifysim

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"holdfast/app/shopify"
)

const bulkDoc = `mutation ($query: String!) { bulkOperationRunQuery(query: $query) { bulkOperation { id status } userErrors { code field message } } }`

func bulk(t *testing.T, s *Test, query string) answer {
	t.Helper()
	text, err := json.Marshal(query)
	if err != nil {
		t.Fatal(err)
	}
	return ask(t, s, chairs, bulkDoc, `{"query":`+string(text)+`}`)
}

func TestABulkQueryThatShopifyWouldRefuseIsRefused(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	for query, why := range map[string]string{
		`{ shop { id } }`:                               "at least one connection",
		`{ nodes(ids: []) { id } }`:                     "at the top",
		`{ productVariants { edges { node { no } } } }`: "doesn't exist",
		`{ productVariants { edges { `:                  "syntax",
		`mutation { draftOrderDelete(input: {id: "gid://shopify/DraftOrder/1"}) { deletedId } }`:                                 "must be a query",
		`{ productVariants { edges { node { product { variants { edges { node { media { edges { node { id } } } } } } } } } } }`: "deeper than 2",
	} {
		a := bulk(t, s, query)
		if len(a.Errors) > 0 {
			t.Errorf("%s: %s", query, a.raw)
			continue
		}
		if a.at(t, "bulkOperationRunQuery.bulkOperation") != nil || a.at(t, "bulkOperationRunQuery.userErrors.0.code") != "INVALID" ||
			!strings.Contains(a.at(t, "bulkOperationRunQuery.userErrors.0.message").(string), why) {
			t.Errorf("%s: %s, want %q", query, a.raw, why)
		}
	}
}

func TestABulkQueryThatIsNotSimulatedIsALoudFailure(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	for _, query := range []string{
		`{ draftOrders { edges { node { id } } } }`,
		`{ productVariants { nodes { id } } }`,
		`{ productVariants(query: "sku:x") { edges { node { id } } } }`,
		`{ productVariants { edges { node { id media { edges { node { id } } } } } } }`,
		`{ productVariants { edges { node { id taxable } } } }`,
	} {
		if a := bulk(t, s, query); a.code() != "SIMULATOR_NOT_SIMULATED" {
			t.Errorf("%s: %s", query, a.raw)
		}
	}
}

func TestABulkQueryOverWhatTheAppMayNotReadFails(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	sh, err := s.lock(chairs)
	if err != nil {
		t.Fatal(err)
	}
	sh.scopes = []string{"read_orders"}
	sh.mu.Unlock()
	id := bulk(t, s, `{ productVariants { edges { node { id product { id } } } } }`).at(t, "bulkOperationRunQuery.bulkOperation.id").(string)
	s.Clock.Push(bulkTime)
	a := get(t, s, chairs, `query ($id: ID!) { bulkOperation(id: $id) { status errorCode url } }`, `{"id":"`+id+`"}`)
	if a.at(t, "bulkOperation.status") != "FAILED" || a.at(t, "bulkOperation.errorCode") != "ACCESS_DENIED" || a.at(t, "bulkOperation.url") != nil {
		t.Errorf("%s", a.raw)
	}
}

func TestOnlyWhatTheAppsClientSendsIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sim, err := New(Options{ClientID: "app", ClientSecret: TestSecret, Documents: dir})
	if err != nil {
		t.Fatal(err)
	}
	send := func(agent, document, variables string) {
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("POST", "/shopify/"+chairs+"/admin/api/2026-10/graphql.json", strings.NewReader(`{"query":`+string(text)+`,"variables":`+variables+`}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Shopify-Access-Token", sim.Token(chairs))
		r.Header.Set("User-Agent", agent)
		sim.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}
	send("curl", `{ shop { id } }`, `null`)
	for range 2 {
		send(shopify.UserAgent, `{ shop { name } }`, `null`)
	}
	send(shopify.UserAgent, bulkDoc, `{"query":"{ productVariants { edges { node { id } } } }"}`)
	send(shopify.UserAgent, `query ($query: String!) { productVariants(first: 1, query: $query) { nodes { id } } }`, `{"query":"sku:x"}`)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, string(text))
	}
	slices.Sort(kept)
	want := []string{bulkDoc, `query ($query: String!) { productVariants(first: 1, query: $query) { nodes { id } } }`, `{ productVariants { edges { node { id } } } }`, `{ shop { name } }`}
	if !slices.Equal(kept, want) {
		t.Errorf("kept %q, want %q", kept, want)
	}
}

func TestAHundredThousandVariantsAreNoBurden(t *testing.T) { // alone: others' memory would be counted, too
	s := NewTest(t)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	empty := heap()
	if err := s.Fill(chairs, 50_000, 2); err != nil {
		t.Fatal(err)
	}
	if each := (heap() - empty) / 100_000; each > 1024 {
		t.Errorf("a variant takes %d bytes", each)
	}
	sh, err := s.lock(chairs)
	if err != nil {
		t.Fatal(err)
	}
	defer sh.mu.Unlock()
	if len(sh.variants) != 100_017 || sh.productByHandle("filled-12") == nil || sh.productByHandle("filled-50011") == nil {
		t.Errorf("there are %d variants", len(sh.variants))
	}
}
