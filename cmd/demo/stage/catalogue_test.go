package stage

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/app/shopify/shopifysim"
)

// theCatalogueIsReadAndMended is the catalogue of a shop, large in the proof: read when the app is installed,
// across a kill in the middle, followed by webhooks, mended once a day when those are lost, read anew when the
// app comes back, and never more than 150 MB of the program's memory.
func theCatalogueIsReadAndMended(t *testing.T, binary string) {
	const each = 20
	s := newScene(t, binary, 1)
	const large = "large.myshopify.com"
	s.must(s.s.sims.shopify.AddShop(shopifysim.ShopSpec{Shop: large, Plan: shopifysim.Plus}))
	s.must(s.s.sims.shopify.Fill(large, filled/each, each))
	_, err := s.c.Fault(t.Context(), map[string]any{"target": "shopify", "mode": "drop_after_commit", "op": "bulkOperationRunQuery", "count": 1, "shop": large})
	s.must(err)
	s.must(s.s.install(t.Context(), large))
	known := func(where string) int {
		t.Helper()
		return s.count(`SELECT count(*) FROM variants v JOIN shops s ON s.id = v.shop_id WHERE domain = $1 AND `+where, large)
	}
	read := `SELECT count(*) FROM catalogues WHERE operation IS NOT NULL OR read_at IS NULL`
	s.must(s.s.step(t.Context(), time.Second))
	// The merchant sees how far it is.
	s.idle()
	if page := s.page(large, "/"); !strings.Contains(page, "Your catalogue is being read") {
		t.Errorf("home does not say that the catalogue is being read:\n%s", page)
	}
	// The program is killed when it has read some of it.
	var killing sync.WaitGroup
	killing.Go(func() {
		for s.count(`SELECT count(*) FROM catalogues c JOIN shops s ON s.id = c.shop_id WHERE domain = $1 AND kept > 0`, large) == 0 {
			s.after(time.Millisecond)
		}
		if _, err := s.c.App(t.Context(), "kill", 0); err != nil {
			t.Error(err)
		}
		t.Logf("killed when %d of %d variants were read", known(`true`), filled)
		s.started(t.Context())
	})
	readsOn := func() {
		t.Helper()
		for step := 0; s.count(read) > 0; step++ {
			if step > 5000 {
				t.Fatalf("the catalogue is not read: %d variants are known", known(`true`))
			}
			if s.count(`SELECT count(*) FROM catalogues WHERE operation IS NOT NULL AND kept > 0`) == 0 { // Shopify writes it
				if err := s.s.step(t.Context(), 10*time.Second); err != nil {
					s.started(t.Context()) // it was just killed
				}
			}
			s.after(20 * time.Millisecond)
		}
	}
	readsOn()
	killing.Wait()
	if n := known(`v.active`); n != filled {
		t.Fatalf("%d variants are known, of %d", n, filled)
	}
	if page := s.page(large, "/"); strings.Contains(page, "Your catalogue is being read") {
		t.Error("home says that the catalogue is being read when it was")
	}
	s.settle()

	// What webhooks tell is there within seconds; what they lose within a day.
	price, draft := "7.77", "DRAFT"
	first, second := s.variantOf(large, "F-1-1"), s.variantOf(large, "F-2-1")
	s.must(s.s.sims.shopify.EditVariant(large, first, shopifysim.VariantEdit{Price: &price}))
	s.advance(10 * time.Second)
	if n := known(`sku = 'F-1-1' AND price = '7.77'`); n != 1 {
		t.Error("the new price is not known")
	}
	lost, err := s.c.Fault(t.Context(), map[string]any{"target": "webhooks", "mode": "lose", "shop": large})
	s.must(err)
	s.must(s.s.sims.shopify.EditVariant(large, second, shopifysim.VariantEdit{Status: &draft}))
	s.must(s.s.sims.shopify.EditVariant(large, first, shopifysim.VariantEdit{Delete: true}))
	s.must(s.c.Lift(t.Context(), lost))
	s.advance(time.Hour)
	if n := known(`NOT v.active`); n != 0 {
		t.Errorf("%d are known to be gone, and nobody can have said so", n)
	}
	s.advance(20 * time.Hour)
	for s.asked(large, "bulkOperationRunQuery") < 3 {
		s.must(s.s.step(t.Context(), 10*time.Minute))
		s.idle()
	}
	readsOn()
	s.settle()
	if n := known(`NOT v.active`); n != 1+each {
		t.Errorf("%d are known to be gone, want the one that was deleted and the %d of the product that is a draft", n, each)
	}
	exports := s.asked(large, "bulkOperationRunQuery")
	if exports != 3 { // one whose answer was lost, and one a day
		t.Errorf("%d exports were asked for", exports)
	}
	t.Logf("the program has at most %d MB", s.memory())
	if mb := s.memory(); mb >= 150 {
		t.Errorf("the program has had %d MB", mb)
	}

	// The app is removed and comes back: what changed meanwhile is read, though no webhook said so.
	s.must(s.s.sims.shopify.Uninstall(large))
	s.settle()
	s.must(s.s.sims.shopify.EditVariant(large, s.variantOf(large, "F-3-1"), shopifysim.VariantEdit{Price: &price}))
	s.must(s.s.sims.shopify.Approve(large))
	s.must(s.s.sims.install(t.Context(), large))
	for s.asked(large, "bulkOperationRunQuery") < 4 {
		s.must(s.s.step(t.Context(), 10*time.Second))
		s.idle()
	}
	readsOn()
	if n := known(`sku = 'F-3-1' AND price = '7.77'`); n != 1 {
		t.Error("what changed while the app was away is not known")
	}
}

// page is a page of a shop's admin, as the merchant sees it.
func (s *scene) page(domain, path string) string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.s.AppURL+path, nil)
	s.must(err)
	req.Header.Set("Authorization", "Bearer "+s.s.sims.shopify.IDToken(domain))
	res, err := http.DefaultClient.Do(req)
	s.must(err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	s.must(err)
	if res.StatusCode != http.StatusOK {
		s.t.Fatalf("GET %s: %d %s", path, res.StatusCode, body)
	}
	return string(body)
}

// variantOf is the id of the variant with a SKU.
func (s *scene) variantOf(domain, sku string) (id int64) {
	s.t.Helper()
	s.must(s.s.db.QueryRow(s.t.Context(), `SELECT v.id FROM variants v JOIN shops s ON s.id = v.shop_id WHERE domain = $1 AND sku = $2`, domain, sku).Scan(&id))
	return id
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// memory is the most that the one process of the app has had in memory, in MB.
func (s *scene) memory() int {
	s.t.Helper()
	apps, err := s.s.Processes(s.t.Context())
	s.must(err)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", apps[0].PID))
	s.must(err)
	found := highWater.FindSubmatch(status)
	if found == nil {
		s.t.Fatalf("no VmHWM in %s", status)
	}
	kB, err := strconv.Atoi(string(found[1]))
	s.must(err)
	return kB / 1024
}
