package storefront_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"holdfast/cmd/demo/storefront"
)

const (
	extensionDir = "../../../storefront-extension/extensions/notify-me"
	nodeDir      = "node"
)

// chair has one variant in stock (11), one sold out (12) and one that is sold out and cannot be waited
// for (13).
func chair() storefront.Product {
	return storefront.Product{
		ID: "1", Handle: "chair", Title: "Ash chair", Description: "Steam-bent ash.",
		Shop: storefront.Shop{Name: "Northwind & Sons", Currency: "GBP", Country: "GB", Locale: "en"},
		Variants: []storefront.Variant{
			{ID: "11", Title: "Natural", Price: "149.00", Available: true},
			{ID: "12", Title: "Walnut", Price: "169.00"},
			{ID: "13", Title: "Black", Price: "159.00"},
		},
	}
}

// street is a storefront with any number of shops in it.
type street struct {
	*httptest.Server

	mu    sync.Mutex
	shops map[string]*shopfront
}

// shopfront is one shop of the storefront, with an app behind its proxy that remembers what it is told.
type shopfront struct {
	root    string // address of the shop
	product func() storefront.Product

	mu     sync.Mutex
	answer func(w http.ResponseWriter, r *http.Request) // of the app to a tap
	taps   []tap
	bought []string
	stock  bool
}

type tap struct{ contentType, accept, body string }

func newStreet(t *testing.T) *street {
	t.Helper()
	st := &street{shops: map[string]*shopfront{}}
	s, err := storefront.New(storefront.Deps{
		Extension: extensionDir,
		Node:      nodeDir,
		Log:       slog.New(slog.NewTextHandler(t.Output(), nil)),
		Product: func(shop, handle string) (storefront.Product, bool) {
			f := st.shop(shop)
			if f == nil {
				return storefront.Product{}, false
			}
			p := f.product()
			return p, p.Handle == handle
		},
		Proxy: func(w http.ResponseWriter, r *http.Request, shop, path string) {
			if f := st.shop(shop); f != nil && path == "/waitlist" {
				f.app(w, r)
			} else {
				http.NotFound(w, r)
			}
		},
		Buy: func(_ context.Context, shop, variant string) error { return st.shop(shop).buy(variant) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	st.Server = httptest.NewServer(s)
	t.Cleanup(st.Server.Close)
	return st
}

func (st *street) shop(domain string) *shopfront {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.shops[domain]
}

// open opens another shop, which sells the chair.
func (st *street) open() *shopfront {
	st.mu.Lock()
	defer st.mu.Unlock()
	domain := fmt.Sprintf("shop-%d.myshopify.com", len(st.shops)+1)
	f := &shopfront{root: st.URL + "/shops/" + domain, product: chair, stock: true}
	st.shops[domain] = f
	return f
}

func newShopfront(t *testing.T) *shopfront {
	t.Helper()
	return newStreet(t).open()
}

func (f *shopfront) buy(variant string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stock {
		return storefront.ErrSoldOut
	}
	f.bought = append(f.bought, variant)
	return nil
}

// app answers as the program does behind Shopify's app proxy.
func (f *shopfront) app(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		state := map[string]string{"11": "in_stock", "13": "not_waitable"}[r.URL.Query().Get("variant_id")]
		if state == "" {
			state = "waitable"
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"state":%q,"channels":["email","sms"],"consent":{
			"email":{"version":"email-1","text":"Email me."},
			"sms":{"version":"sms-7","text":"Text me. Reply STOP to opt out."}},"waiting":3}`, state)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	f.taps = append(f.taps, tap{r.Header.Get("Content-Type"), r.Header.Get("Accept"), string(body)})
	answer := f.answer
	f.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, "<title>In line</title><h1>You are in line</h1>")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	fmt.Fprint(w, `{"status":"accepted","contact":"ana@example.com"}`)
}

// refuse makes the app answer taps with an error.
func (f *shopfront) refuse(status int, body string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func (f *shopfront) tapped() []tap {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]tap(nil), f.taps...)
}

func (f *shopfront) page(query string) string {
	return f.root + "/products/chair" + query
}

func get(t *testing.T, address string) (int, string) {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// theBlock cuts the block's element out of a page.
func theBlock(t *testing.T, page string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, "<notify-me")
	block, _, closed := strings.Cut(rest, "</notify-me>")
	if !found || !closed {
		t.Fatalf("no theme block in the page:\n%s", page)
	}
	return block
}

func openingTag(block string) string {
	tag, _, _ := strings.Cut(block, ">")
	return tag
}

func TestASoldOutVariantShowsAFormThatNeedsNoScript(t *testing.T) {
	t.Parallel()
	st := newStreet(t)
	f := st.open()

	status, page := get(t, f.page("?variant=12"))

	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, page)
	}
	block := theBlock(t, page)
	if tag := openingTag(block); strings.Contains(tag, "hidden") {
		t.Errorf("the block is hidden: %s", tag)
	}
	for _, want := range []string{
		`action="/shops/shop-1.myshopify.com/apps/notify/waitlist" method="post"`,
		`name="variant_id" value="12"`,
		`name="currency" value="GBP"`,
		`name="locale" value="en"`,
		`name="consent" value="">`, // a form without a tick has asked, and says so
		`name="consent" value="email-1"`,
		`Email me when this is back. Northwind &amp; Sons may send me messages`,
		`Get one when it’s back`,
	} {
		if !strings.Contains(block, want) {
			t.Errorf("the block lacks %s", want)
		}
	}
	if strings.Count(block, " checked") != 1 { // the channel's
		t.Error("consent is ticked before anybody ticked it")
	}
	for _, asset := range []string{"/storefront/extension/notify-me.js", "/storefront/extension/notify-me.css"} {
		if !strings.Contains(page, asset) {
			t.Errorf("the page does not load %s", asset)
		}
		if status, _ := get(t, st.URL+asset); status != http.StatusOK {
			t.Errorf("%s answers %d", asset, status)
		}
	}
}

func TestAVariantInStockHidesTheBlock(t *testing.T) {
	t.Parallel()
	f := newShopfront(t)

	_, page := get(t, f.page("")) // the first variant that can be bought

	block := theBlock(t, page)
	if tag := openingTag(block); !strings.Contains(tag, " hidden") {
		t.Errorf("the block shows: %s", tag)
	}
	if !strings.Contains(block, `"available": {"11":true,"12":false,"13":false}`) {
		t.Error("the block does not know which variants are sold out")
	}
}

func TestAProductWithMoreVariantsThanLiquidGivesSaysSo(t *testing.T) {
	t.Parallel()
	f := newShopfront(t)
	many := chair()
	for i := len(many.Variants); i < 300; i++ {
		many.Variants = append(many.Variants, storefront.Variant{ID: fmt.Sprint(1000 + i), Title: fmt.Sprint("No. ", i), Price: "1.00"})
	}
	f.product = func() storefront.Product { return many }

	_, page := get(t, f.page("?variant=1299"))

	block := theBlock(t, page)
	if !strings.Contains(block, `"complete": false`) || strings.Contains(block, `"1299":`) || !strings.Contains(block, `"1249":`) {
		t.Error("the block takes the first 250 variants for all there are")
	}
	if !strings.Contains(block, `name="variant_id" value="1299"`) || strings.Contains(openingTag(block), " hidden") {
		t.Error("a sold-out variant beyond the first 250 has no form")
	}
}

func TestALanguageThatTheBlockLacksFallsBackToEnglish(t *testing.T) {
	t.Parallel()
	f := newShopfront(t)

	_, page := get(t, f.page("?variant=12&locale=xx"))

	block := theBlock(t, page)
	if !strings.Contains(block, `name="locale" value="xx"`) || !strings.Contains(block, "Notify me") {
		t.Errorf("no English texts, or the page's language is not passed on:\n%s", block)
	}
}

func TestAnUnknownProductIsNotFound(t *testing.T) {
	t.Parallel()
	st := newStreet(t)
	st.open()

	for _, path := range []string{"/shops/shop-1.myshopify.com/products/table", "/shops/shop-2.myshopify.com/products/chair"} {
		if status, _ := get(t, st.URL+path); status != http.StatusNotFound {
			t.Errorf("%s answers %d", path, status)
		}
	}
}

func TestTheBuyButtonBuysForAStranger(t *testing.T) {
	t.Parallel()
	f := newShopfront(t)
	buy := func() string {
		t.Helper()
		resp, err := http.PostForm(f.root+"/cart/add", url.Values{"id": {"11"}, "handle": {"chair"}})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}

	if page := buy(); !strings.Contains(page, "That unit is yours") {
		t.Error("the page does not say that it was bought")
	}
	f.mu.Lock()
	f.stock = false
	f.mu.Unlock()
	if page := buy(); !strings.Contains(page, "that unit is gone") {
		t.Error("the page does not say that it is gone")
	}
	if len(f.bought) != 1 || f.bought[0] != "11" {
		t.Errorf("bought %v, want one unit of 11", f.bought)
	}
}

func TestAStorefrontThatLacksSomethingSaysWhatToDo(t *testing.T) {
	t.Parallel()
	_, err := storefront.New(storefront.Deps{Extension: extensionDir, Node: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "npm ci") {
		t.Errorf("missing packages: %v", err)
	}
	_, err = storefront.New(storefront.Deps{Extension: t.TempDir(), Node: nodeDir})
	if err == nil || !strings.Contains(err.Error(), "theme app extension") {
		t.Errorf("missing extension: %v", err)
	}
}
