package shopifysim

import (
	"errors"
	"hash/fnv"
	"html/template"
	"image/color"
	"image/draw"
	"image/png"
	"net/http"
	"strings"

	pixels "image"

	"github.com/go-chi/chi/v5"
)

// checkoutPage is what stands behind an invoice: Shopify's checkout, as far as a demo needs it.
type checkoutPage struct {
	Shop, Title, Variant, Image, Price, Currency, Order, Gone, Why string
	Quantity                                                       int
}

var checkoutTemplate = template.Must(template.New("checkout").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">
<title>{{if .Gone}}Not available{{else}}Checkout · {{.Shop}}{{end}}</title>
<style>
*{box-sizing:border-box}
body{margin:0;background:#f4f4f2;color:#1c1c1a;font:16px/1.5 system-ui,sans-serif}
main{max-width:30rem;margin:8vh auto;padding:2rem;background:#fff;border-radius:12px;box-shadow:0 1px 3px #0002}
h1{font-size:1.25rem;margin:0 0 1.5rem}
.item{display:flex;gap:1rem;align-items:center;margin-bottom:1.5rem}
img{width:88px;height:88px;border-radius:8px;object-fit:cover;background:#eee}
.item p{margin:0}.muted{color:#6b6b66}
.total{display:flex;justify-content:space-between;border-top:1px solid #e3e3df;padding-top:1rem;font-weight:600}
button{width:100%;min-height:48px;margin-top:1.5rem;border:0;border-radius:8px;background:#1c1c1a;color:#fff;font:600 1rem system-ui,sans-serif;cursor:pointer}
.note{margin-top:1.5rem;padding:.75rem 1rem;border-radius:8px;background:#e9f5ec}.note.bad{background:#fbeceb}
small{display:block;margin-top:1.5rem;color:#6b6b66}
</style>
</head>
<body><main>
{{if .Gone}}<h1>{{.Gone}}</h1><p class="muted">The shop has withdrawn it, or it was never there.</p>
{{else}}<h1>{{.Shop}}</h1>
<div class="item"><img src="{{.Image}}" alt=""><div><p><strong>{{.Title}}</strong></p><p class="muted">{{with .Variant}}{{.}} · {{end}}{{.Quantity}} ×</p></div></div>
<p class="total"><span>Total</span><span>{{.Currency}} {{.Price}}</span></p>
{{if .Order}}<p class="note" role="status">Thank you. Order {{.Order}} is paid.</p>
{{else if .Why}}<p class="note bad" role="alert">{{.Why}}. It cannot be paid for now.</p>
{{else}}<form method="post"><button>Pay {{.Currency}} {{.Price}}</button></form>{{end}}
{{end}}<small>A simulated checkout: no money moves.</small>
</main></body></html>`))

// serveCheckout is the page of an invoice. Looking at it starts a checkout; a POST pays.
func (s *Server) serveCheckout(w http.ResponseWriter, r *http.Request, token string) {
	if r.Method == http.MethodPost {
		_, err := s.Pay(token)
		var e *Error
		if err == nil || (errors.As(err, &e) && e.Status == http.StatusConflict) {
			http.Redirect(w, r, r.URL.RequestURI(), http.StatusSeeOther) // the page says what became of it
			return
		}
	}
	page, status := s.checkout(token, r.Method == http.MethodGet)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if err := checkoutTemplate.Execute(w, page); err != nil {
		s.log.Warn("simulated checkout: the page broke off", "err", err)
	}
}

func (s *Server) checkout(token string, open bool) (checkoutPage, int) {
	sh, d, err := s.lockInvoice(token)
	if err != nil {
		return checkoutPage{Gone: err.Error()}, http.StatusNotFound
	}
	defer sh.mu.Unlock()
	l := d.lines[0]
	p := checkoutPage{
		Shop: sh.name, Title: l.title, Variant: l.variantOf, Image: l.variant.product.image().url, Price: total(d.lines), Currency: d.currency, Quantity: l.quantity,
	}
	if p.Variant == "Default Title" { // what Shopify calls the variant of a product that has no choices
		p.Variant = ""
	}
	switch err := d.payable(); {
	case d.order != nil:
		p.Order = d.order.name
	case err != nil:
		p.Why = err.Error()
	}
	d.opened = d.opened || open
	return p, http.StatusOK
}

const pictureSize = 640

// servePicture draws a product: a chair, or a lamp, in a colour of its own.
func (s *Server) servePicture(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutSuffix(chi.URLParam(r, "name"), ".png")
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	n := h.Sum32()
	ground := color.RGBA{uint8(215 + n%30), uint8(215 + n>>5%30), uint8(205 + n>>10%30), 255}
	wood := color.RGBA{uint8(90 + n>>3%110), uint8(60 + n>>8%90), uint8(40 + n>>13%80), 255}
	picture := pixels.NewRGBA(pixels.Rect(0, 0, pictureSize, pictureSize))
	fill := func(c color.Color, x0, y0, x1, y1 int) {
		draw.Draw(picture, pixels.Rect(x0, y0, x1, y1), pixels.NewUniform(c), pixels.Point{}, draw.Src)
	}
	fill(ground, 0, 0, pictureSize, pictureSize)
	shadow := color.RGBA{ground.R - 22, ground.G - 22, ground.B - 22, 255}
	fill(shadow, 120, 545, 520, 565)
	if strings.Contains(name, "lamp") || strings.Contains(name, "lantern") {
		for y := 110; y < 270; y++ { // the shade widens downwards
			fill(wood, 260-(y-110)/2, y, 380+(y-110)/2, y+1)
		}
		fill(color.RGBA{255, 236, 179, 255}, 290, 270, 350, 300)
		fill(color.RGBA{60, 58, 54, 255}, 313, 300, 327, 530)
		fill(color.RGBA{60, 58, 54, 255}, 240, 530, 400, 550)
	} else {
		for x := 200; x <= 420; x += 55 {
			fill(wood, x, 110, x+20, 330) // the back
		}
		fill(wood, 200, 110, 440, 140)
		fill(wood, 180, 330, 460, 370) // the seat
		for _, x := range []int{195, 425} {
			fill(wood, x, 370, x+22, 550) // the legs
		}
		fill(wood, 205, 455, 440, 468)
	}
	w.Header().Set("Content-Type", "image/png")
	w.Header().Set("Cache-Control", "max-age=3600")
	if err := png.Encode(w, picture); err != nil {
		s.log.Warn("simulated Shopify: a picture broke off", "err", err)
	}
}
