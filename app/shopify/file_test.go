package shopify

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"holdfast/app/waitlist"
)

func TestAFileIsReadOnlyWhereShopifyKeepsFiles(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, nil)
	a.config.Sim = ""
	var called []string
	a.config.Transport = carrier(func(r *http.Request) (*http.Response, error) {
		called = append(called, r.URL.Host)
		if r.Header.Get("X-Shopify-Access-Token") != "" {
			t.Errorf("%s was sent the token", r.URL)
		}
		return &http.Response{StatusCode: 302, Header: http.Header{"Location": {"https://evil.com/"}}, Body: io.NopCloser(strings.NewReader(""))}, nil
	})
	a.start()
	read := func(url string) error {
		e := waitlist.CatalogueExport{State: waitlist.ExportFinished, Objects: 1, URL: url}
		return a.client.ReadCatalogue(t.Context(), 1, e, func([]waitlist.VariantReading) error { return nil })
	}
	for _, url := range []string{
		"http://storage.googleapis.com/shopify/x", "https://storage.googleapis.com/evil/x", "https://evil.com/shopify", "https://other.myshopify.com/x",
		"https://shopify.com.evil.com/", "https://evilshopify.com/", "https://u:p@storage.googleapis.com/shopify/x", "file:///etc/passwd", "/etc/passwd", "https://127.0.0.1/",
		"https://storage.googleapis.com:8443/shopify/x", ":",
	} {
		if err := read(url); err == nil {
			t.Errorf("%s: read", url)
		}
	}
	if len(called) > 0 {
		t.Errorf("called %v", called)
	}
	for _, url := range []string{"https://storage.googleapis.com/shopify-tiers-assets-prod-us-east1/x?Expires=1", "https://" + testShop + "/x", "https://cdn.shopify.com/x"} {
		if err := read(url); err == nil || !strings.Contains(err.Error(), "302") {
			t.Errorf("%s: %v, want its redirect as an error", url, err)
		}
	}
	if len(called) != 3 {
		t.Errorf("called %v", called)
	}
}

func TestALineThatIsNoVariantIsToldByItsNumber(t *testing.T) {
	t.Parallel()
	good := strings.NewReplacer("\n", "", "\t", "").Replace(variantJSON(1, ""))
	for name, lines := range map[string]string{
		"another thing":  good + "\n" + `{"id":"gid://shopify/MediaImage/1","__parentId":"gid://shopify/ProductVariant/1"}` + "\n",
		"half a line":    good + "\n" + good[:100],
		"no JSON":        good + "\nerror\n",
		"an endless one": good + "\n" + strings.Repeat("x", maxLine+1),
	} {
		a := newAdmin(t, nil)
		a.config.Sim = ""
		a.config.Transport = carrier(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(lines))}, nil
		})
		a.start()
		e := waitlist.CatalogueExport{State: waitlist.ExportFinished, Objects: 2, URL: "https://storage.googleapis.com/shopify/x"}
		err := a.client.ReadCatalogue(t.Context(), 1, e, func([]waitlist.VariantReading) error { return nil })
		if err == nil || (name != "an endless one" && !strings.Contains(err.Error(), "line 2")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
