package stage

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"holdfast/app/shop"
	"holdfast/app/shopify/shopifysim"
)

//go:embed pages
var pageFiles embed.FS

// pages mounts what is for a person: the start page and the frame of the simulated admin.
func (s *Stage) pages(mux chi.Router) error {
	files, err := fs.Sub(pageFiles, "pages")
	if err != nil {
		return fmt.Errorf("the demo's pages: %w", err)
	}
	t, err := template.ParseFS(files, "*.html")
	if err != nil {
		return fmt.Errorf("the demo's pages: %w", err)
	}
	render := func(w http.ResponseWriter, name string, data any) {
		var page bytes.Buffer
		if err := t.ExecuteTemplate(&page, name, data); err != nil {
			s.log.Error("a page of the demo failed", "page", name, "err", err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.Write(page.Bytes())
	}
	for _, name := range []string{"demo.css", "app-bridge.js", "admin-frame.js"} {
		mux.Get("/"+name, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-cache")
			http.ServeFileFS(w, r, files, name)
		})
	}
	mux.Get("/", func(w http.ResponseWriter, r *http.Request) { render(w, "start.html", s.startPage()) })
	// The two things that a person wants to do most often, without a terminal.
	back := func(do func(r *http.Request) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if err := do(r); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			http.Redirect(w, r, "/", http.StatusSeeOther)
		}
	}
	mux.Post("/by-hand/stock", back(func(r *http.Request) error {
		variant, err := strconv.ParseInt(r.PostFormValue("variant_id"), 10, 64)
		if err != nil {
			return errors.New("choose a variant")
		}
		units, err := strconv.Atoi(r.PostFormValue("available"))
		if err != nil {
			return errors.New("give a number of units")
		}
		return s.sims.shopify.SetStock(r.PostFormValue("shop"), shopifysim.Change{VariantID: shopifysim.ID(variant), Available: units})
	}))
	mux.Post("/by-hand/clock", back(func(r *http.Request) error {
		minutes, err := strconv.Atoi(r.PostFormValue("minutes"))
		if err != nil || minutes < 1 || minutes > 100_000 {
			return errors.New("give a number of minutes, 1 to 100,000")
		}
		return s.advance(r.Context(), time.Duration(minutes)*time.Minute)
	}))
	mux.Get("/admin/{shop}", func(w http.ResponseWriter, r *http.Request) {
		page, ok := s.adminPage(chi.URLParam(r, "shop"))
		if !ok {
			http.Error(w, "There is no such shop.", http.StatusNotFound)
			return
		}
		render(w, "admin.html", page)
	})
	mux.Get("/admin/{shop}/id-token", answer(s.log, func(r *http.Request) (any, error) {
		domain := chi.URLParam(r, "shop")
		if _, ok := s.sims.shop(domain); !ok {
			return nil, refuse(http.StatusNotFound, "there is no shop %q", domain)
		}
		return map[string]string{"id_token": idToken(domain, ClientID, ClientSecret, s.clock.Now(), "")}, nil
	}))
	return nil
}

type startPage struct {
	Shops                     []startShop
	AppURL, SimURL, FirstShop string
	Now, Pushed               string
	Running, Apps             int
	StorefrontTrouble         string
}

type startShop struct {
	Domain, Name, Plan, Currency string
	Products                     []startProduct
	Variants                     []startVariant
}

type startVariant struct {
	ID, Title string
	Available int
}

type startProduct struct{ Title, Link, Stock string }

func (s *Stage) startPage() startPage {
	page := startPage{
		AppURL: s.AppURL, SimURL: s.SimURL, FirstShop: FirstShop, Now: s.clock.Now().Format("Mon 2 Jan 2006 15:04:05 MST"),
		Running: len(s.procs.ready()), Apps: len(s.procs.all), StorefrontTrouble: s.sims.storefrontTrouble,
	}
	if pushed := s.clock.Pushed(); pushed > 0 {
		page.Pushed = pushed.String()
	}
	for _, sh := range s.sims.shopify.Shops() {
		out := startShop{Domain: sh.Shop, Name: sh.Name, Plan: string(sh.Plan), Currency: sh.Currency}
		for _, p := range sh.Products {
			q := startProduct{Title: p.Title}
			if p.Published {
				q.Link = "/shops/" + sh.Shop + "/products/" + p.Handle
			}
			units, soldOut, always := 0, 0, false
			for _, v := range p.Variants {
				units += max(v.Available, 0)
				always = always || !v.Tracked || v.Policy == "CONTINUE"
				if v.Available <= 0 {
					soldOut++
				}
				if v.Tracked {
					out.Variants = append(out.Variants, startVariant{v.VariantID.String(), p.Title + ", " + v.Title, v.Available})
				}
			}
			switch {
			case !p.Published:
				q.Stock = "not in the online store"
			case always:
				q.Stock = "always for sale"
			case units == 0:
				q.Stock = "sold out"
			case soldOut > 0:
				q.Stock = fmt.Sprintf("%d in stock, %d of %d variants sold out", units, soldOut, len(p.Variants))
			default:
				q.Stock = strconv.Itoa(units) + " in stock"
			}
			out.Products = append(out.Products, q)
		}
		page.Shops = append(page.Shops, out)
	}
	return page
}

type adminPage struct {
	Domain, Name, Origin string
	Src                  template.URL
}

// adminPage is the frame around the app, opened as Shopify opens it: with an ID token in the first
// address, and none in any later one.
func (s *Stage) adminPage(domain string) (adminPage, bool) {
	sh, ok := s.sims.shop(domain)
	if !ok || !shop.ValidDomain(domain) {
		return adminPage{}, false
	}
	now := s.clock.Now()
	q := url.Values{
		"embedded": {"1"}, "shop": {domain}, "host": {adminHost(domain)}, "locale": {"en"}, "timestamp": {strconv.FormatInt(now.Unix(), 10)},
		"id_token": {idToken(domain, ClientID, ClientSecret, now, "")},
	}
	return adminPage{Domain: domain, Name: cmp.Or(sh.Name, domain), Origin: s.AppURL, Src: template.URL(s.AppURL + "/?" + q.Encode())}, true
}
