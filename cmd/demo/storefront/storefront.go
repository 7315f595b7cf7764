// Package storefront is a simulated Shopify storefront: product pages of a small theme of its own, with
// the real theme block in them.
//
// The block's markup comes from its .liquid file alone, rendered by liquidjs in a Node child process.
// What Shopify gives a block is given here as far as the block uses it; anything else is an error, not
// an empty string. All shops share one origin here, so paths that are a shop's own on Shopify begin
// with /shops/{shop} here: the product page, /cart/add and the app proxy, /apps/notify. The block learns of the
// latter by its setting "proxy", as it does in a shop whose merchant has moved the proxy.
package storefront

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
)

// ErrSoldOut is what Deps.Buy returns when there is no unit to buy.
var ErrSoldOut = errors.New("sold out")

// maxVariants is how many variants of a product Liquid gives to a theme (Shopify's limit; a product may
// have 2,048).
const maxVariants = 250

// Deps is what the storefront needs. All fields are required.
type Deps struct {
	Extension string // folder of the theme app extension
	Node      string // folder of render.js, with its npm packages installed (npm ci)
	Log       *slog.Logger
	// Product returns a published product of a shop as it is now; false when there is none.
	Product func(shop, handle string) (Product, bool)
	// Proxy answers a request to the app proxy of a shop as Shopify would: it signs it and passes it
	// to the app. path begins below the proxy's root: /waitlist.
	Proxy func(w http.ResponseWriter, r *http.Request, shop, path string)
	// Buy buys one unit for a stranger, or returns ErrSoldOut.
	Buy func(ctx context.Context, shop, variantID string) error
}

// Shop is what the page needs to know of its shop.
type Shop struct {
	Name     string
	Currency string // ISO 4217
	Country  string // ISO 3166, upper case
	Locale   string // the language that the page is in when it is not asked for another
}

// Product is a product as its page shows it.
type Product struct {
	ID, Handle, Title, Description string
	ImageURL                       string // empty: a drawing
	Shop                           Shop
	Variants                       []Variant // at least one
}

// Variant is one of a product's variants.
type Variant struct {
	ID, Title string
	Price     string // decimal, in the shop's currency
	Available bool   // it can be bought now
}

// Storefront serves the pages. Mount it at /shops/ and at /storefront/. It is safe for use by many
// goroutines.
type Storefront struct {
	deps     Deps
	renderer *renderer
	mux      *http.ServeMux
}

//go:embed theme
var themeFiles embed.FS

// New returns the storefront, or an error that says what has to be installed. Close it when done.
func New(deps Deps) (*Storefront, error) {
	renderer, err := newRenderer(deps.Node, deps.Extension)
	if err != nil {
		return nil, err
	}
	theme, err := fs.Sub(themeFiles, "theme")
	if err != nil {
		return nil, fmt.Errorf("storefront: %w", err)
	}
	page, err := template.ParseFS(theme, "product.html")
	if err != nil {
		return nil, fmt.Errorf("storefront: %w", err)
	}
	s := &Storefront{deps: deps, renderer: renderer, mux: http.NewServeMux()}
	s.mux.HandleFunc("GET /shops/{shop}/products/{handle}", s.product(page))
	s.mux.HandleFunc("POST /shops/{shop}/cart/add", s.buy)
	s.mux.HandleFunc("/shops/{shop}/apps/notify/{path...}", func(w http.ResponseWriter, r *http.Request) {
		s.deps.Proxy(w, r, r.PathValue("shop"), "/"+r.PathValue("path"))
	})
	s.mux.Handle("GET /storefront/theme/", http.StripPrefix("/storefront/theme/", http.FileServerFS(theme)))
	s.mux.Handle("GET /storefront/extension/", http.StripPrefix("/storefront/extension/",
		http.FileServer(http.Dir(filepath.Join(deps.Extension, "assets")))))
	return s, nil
}

// ServeHTTP answers below /shops/ and /storefront/.
func (s *Storefront) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Close ends the Node child.
func (s *Storefront) Close() { s.renderer.close() }

// productPage is what theme/product.html shows.
type productPage struct {
	Product
	Path     string // of the shop: /shops/{shop}
	Locale   string
	Announce string // how the theme says that another variant was chosen: see theme/theme.js
	Chosen   Variant
	Notice   string
	Block    template.HTML
	Script   string // addresses of the block's assets; empty when it has none
	Style    string
}

// Money is a price for people to read.
func (p productPage) Money(price string) string {
	switch p.Shop.Currency {
	case "GBP":
		return "£" + price
	case "EUR":
		return "€" + price
	case "USD":
		return "$" + price
	}
	return price + " " + p.Shop.Currency
}

// Data is what theme.js needs to know of the product.
func (p productPage) Data() (template.JS, error) {
	type choice struct {
		Price     string `json:"price"`
		Available bool   `json:"available"`
	}
	choices := map[string]choice{}
	for _, v := range p.Variants {
		choices[v.ID] = choice{p.Money(v.Price), v.Available}
	}
	data, err := json.Marshal(map[string]any{"product": p.ID, "variants": choices}) // escapes </script>
	return template.JS(data), err
}

func (s *Storefront) product(page *template.Template) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		shop := r.PathValue("shop")
		product, ok := s.deps.Product(shop, r.PathValue("handle"))
		if !ok || len(product.Variants) == 0 {
			http.Error(w, "This shop has no such product.", http.StatusNotFound)
			return
		}
		query := r.URL.Query()
		view := productPage{
			Product:  product,
			Path:     "/shops/" + url.PathEscape(shop),
			Locale:   query.Get("locale"),
			Announce: query.Get("announce"),
			Chosen:   chosen(product, query.Get("variant")),
			Notice:   notices[query.Get("bought")],
		}
		if view.Locale == "" {
			view.Locale = product.Shop.Locale
		}
		notify, err := s.renderer.render(notifyMe(view))
		if err != nil {
			s.deps.Log.ErrorContext(r.Context(), "theme block failed", "err", err)
			http.Error(w, err.Error(), http.StatusInternalServerError) // whoever sees this is working on the block
			return
		}
		view.Block = template.HTML(notify.HTML)
		view.Script, view.Style = assetURL(notify.JavaScript), assetURL(notify.Stylesheet)
		var html strings.Builder
		if err := page.Execute(&html, view); err != nil {
			s.deps.Log.ErrorContext(r.Context(), "product page failed", "err", err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.Write([]byte(html.String()))
	}
}

func assetURL(file string) string {
	if file == "" {
		return ""
	}
	return "/storefront/extension/" + url.PathEscape(file)
}

// chosen is the variant of the page's address, else the first that can be bought, else the first: what
// Liquid calls selected_or_first_available_variant.
func chosen(p Product, id string) Variant {
	for _, v := range p.Variants {
		if v.ID == id {
			return v
		}
	}
	for _, v := range p.Variants {
		if v.Available {
			return v
		}
	}
	return p.Variants[0]
}

// notifyMe is the block on a product page, with what Shopify would give it there.
func notifyMe(v productPage) block {
	variant := func(v Variant) map[string]any {
		return map[string]any{"id": v.ID, "title": v.Title, "available": v.Available}
	}
	variants := []map[string]any{}
	for _, each := range v.Variants[:min(len(v.Variants), maxVariants)] {
		variants = append(variants, variant(each))
	}
	country := map[string]any{"iso_code": v.Shop.Country}
	return block{
		Block: "notify-me",
		Settings: map[string]any{
			"product": map[string]any{
				"id": v.ID, "title": v.Title, "handle": v.Handle,
				"variants": variants, "variants_count": len(v.Variants),
				"selected_or_first_available_variant": variant(v.Chosen),
			},
			"ask_name": true,
			"proxy":    v.Path + "/apps/notify",
		},
		Globals: map[string]any{
			"shop":         map[string]any{"name": v.Shop.Name},
			"request":      map[string]any{"locale": map[string]any{"iso_code": v.Locale}, "design_mode": false},
			"cart":         map[string]any{"currency": map[string]any{"iso_code": v.Shop.Currency}},
			"localization": map[string]any{"country": country, "available_countries": countries()},
		},
	}
}

// countries are those that the demo's shops sell to.
func countries() []map[string]any {
	var all []map[string]any
	for _, c := range [][2]string{
		{"AU", "Australia"}, {"CA", "Canada"}, {"FR", "France"}, {"DE", "Germany"}, {"IE", "Ireland"},
		{"NL", "Netherlands"}, {"ES", "Spain"}, {"GB", "United Kingdom"}, {"US", "United States"},
	} {
		all = append(all, map[string]any{"iso_code": c[0], "name": c[1]})
	}
	return all
}

var notices = map[string]string{
	"yes": "Bought. That unit is yours.",
	"no":  "Someone was faster: that unit is gone.",
}

// buy is the theme's buy button: a purchase by somebody who is not in any queue.
func (s *Storefront) buy(w http.ResponseWriter, r *http.Request) {
	shop, handle, variant := r.PathValue("shop"), r.PostFormValue("handle"), r.PostFormValue("id")
	if handle == "" || variant == "" {
		http.Error(w, "Send the fields id (of the variant) and handle (of its product).", http.StatusBadRequest)
		return
	}
	bought := "yes"
	if err := s.deps.Buy(r.Context(), shop, variant); errors.Is(err, ErrSoldOut) {
		bought = "no"
	} else if err != nil {
		s.deps.Log.ErrorContext(r.Context(), "purchase failed", "shop", shop, "variant", variant, "err", err)
		http.Error(w, "The purchase failed: "+err.Error(), http.StatusBadGateway)
		return
	}
	to := url.URL{Path: "/shops/" + shop + "/products/" + handle, RawQuery: url.Values{"variant": {variant}, "bought": {bought}}.Encode()}
	http.Redirect(w, r, to.String(), http.StatusSeeOther)
}
