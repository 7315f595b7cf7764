package shopifysim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
)

func (s *Server) handler() http.Handler {
	r := chi.NewRouter()
	s.Routes(r)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		host, _, _ := strings.Cut(req.Host, ":")
		if domainPattern.MatchString(host) {
			s.serveShop(w, req, host, req.URL.Path)
			return
		}
		r.ServeHTTP(w, req)
	})
}

// Routes adds what Handler serves to a router that serves other things, too; requests for a shop by their
// Host are not among it.
func (s *Server) Routes(r chi.Router) {
	r.HandleFunc("/shopify/{shop}/*", func(w http.ResponseWriter, req *http.Request) {
		s.serveShop(w, req, chi.URLParam(req, "shop"), "/"+chi.URLParam(req, "*"))
	})
	r.Get("/sim/pictures/{name}", s.servePicture)

	r.Get("/sim/shops", s.getShops)
	r.Post("/sim/shops", s.postShop)
	r.Post("/sim/shops/{shop}/install", s.postInstall)
	r.Post("/sim/shops/{shop}/uninstall", s.postUninstall)
	r.Post("/sim/shops/{shop}/fill", s.postFill)
	r.Get("/sim/inventory", s.getInventory)
	r.Post("/sim/inventory", s.postInventory)
	r.Post("/sim/variants/{id}", s.postVariant)
	r.Post("/sim/buy", s.postBuy)
	r.Post("/sim/pay", s.postPay)
	r.Post("/sim/orders/{id}/cancel", s.postCancel)
	r.Post("/sim/drafts/{id}", s.postDraft)
	r.Get("/sim/drafts", s.getDrafts)
	r.Post("/sim/proxy", s.postProxy)
	r.Get("/sim/requests", s.getRequests)
	r.Get("/sim/webhooks", s.getWebhooks)
	r.Post("/sim/webhooks/replay", s.postReplay)
	r.Post("/sim/webhook", s.postWebhook)
}

// serveShop is everything that a shop's own domain serves.
func (s *Server) serveShop(w http.ResponseWriter, r *http.Request, domain, path string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case path == "/admin/api/graphql.json":
		s.serveGraphQL(w, r, domain, "")
	case len(parts) == 4 && parts[0] == "admin" && parts[1] == "api" && parts[3] == "graphql.json":
		s.serveGraphQL(w, r, domain, parts[2])
	case len(parts) == 2 && parts[0] == "bulk":
		s.serveBulkFile(w, r, domain, parts[1])
	case len(parts) == 3 && parts[1] == "invoices":
		s.serveCheckout(w, r, parts[2])
	case path == "/admin/oauth/authorize":
		s.serveAuthorize(w, r, domain)
	case path == "/admin/oauth/access_token":
		s.serveToken(w, r, domain)
	case path == "/admin/apps/"+s.clientID: // where the demo's admin frame is
		http.Redirect(w, r, s.public+"/admin/"+domain, http.StatusFound)
	case strings.HasPrefix(path, ProxyPrefix+"/"):
		s.ServeProxy(w, r, domain, strings.TrimPrefix(path, ProxyPrefix))
	case strings.HasPrefix(path, "/admin/"):
		s.log.Error("SIMULATOR: not simulated", "method", r.Method, "path", path)
		reply(w, http.StatusNotImplemented, map[string]string{"errors": "SIMULATOR: not simulated: " + r.Method + " " + path})
	default:
		http.NotFound(w, r)
	}
}

func reply(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written"}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	w.Write(append(b, '\n'))
}

func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var e *Error
	if errors.As(err, &e) {
		status = e.Status
	}
	reply(w, status, map[string]string{"error": err.Error()})
}

// read decodes the body of a control call. A field that the call does not have is named.
func read(r *http.Request, into any) error {
	d := json.NewDecoder(io.LimitReader(r.Body, 8<<20))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil && d.More() {
		err = errors.New("there is more than one JSON value")
	}
	if err == nil {
		return nil
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return invalid("unknown field %s: this call does not have it", field)
	}
	return invalid("the body is not the JSON that this call takes: %v", err)
}

func pathID(r *http.Request) (int64, error) {
	id, err := strconv.ParseInt(chi.URLParam(r, "id"), 10, 64)
	if err != nil || id < 1 {
		return 0, invalid("%q is not an id: give a number", chi.URLParam(r, "id"))
	}
	return id, nil
}

func (s *Server) getShops(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, s.Shops())
}

func (s *Server) postShop(w http.ResponseWriter, r *http.Request) {
	var spec ShopSpec
	err := read(r, &spec)
	if err == nil {
		err = s.AddShop(spec)
	}
	if err != nil {
		fail(w, err)
		return
	}
	for _, sh := range s.Shops() {
		if sh.Shop == spec.Shop {
			reply(w, http.StatusOK, sh)
		}
	}
}

func (s *Server) postInstall(w http.ResponseWriter, r *http.Request) {
	shop := chi.URLParam(r, "shop")
	if s.install == nil {
		reply(w, http.StatusNotImplemented, map[string]string{"error": "not built yet: installing a shop by opening the app in its admin"})
		return
	}
	err := s.Approve(shop)
	if err == nil {
		err = s.install(r.Context(), shop)
	}
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]string{"shop": shop})
}

func (s *Server) postUninstall(w http.ResponseWriter, r *http.Request) {
	shop := chi.URLParam(r, "shop")
	if err := s.Uninstall(shop); err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]string{"shop": shop})
}

func (s *Server) getInventory(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseInt(r.URL.Query().Get("variant_id"), 10, 64)
	if err != nil {
		fail(w, invalid("variant_id: %q is not an id: give a number", r.URL.Query().Get("variant_id")))
		return
	}
	inv, err := s.Inventory(r.URL.Query().Get("shop"), id)
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, inv)
}

func (s *Server) postInventory(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Shop       string   `json:"shop"`
		VariantID  ID       `json:"variant_id"`
		Available  *int     `json:"available"`
		LocationID ID       `json:"location_id"`
		Changes    []Change `json:"changes"`
	}
	if err := read(r, &in); err != nil {
		fail(w, err)
		return
	}
	changes := in.Changes
	switch one := in.VariantID != 0; {
	case one == (changes != nil):
		fail(w, invalid("give either variant_id and available, or changes"))
		return
	case one && in.Available == nil:
		fail(w, invalid("available: how many are there now?"))
		return
	case one:
		changes = []Change{{in.VariantID, *in.Available, in.LocationID}}
	}
	if err := s.SetStock(in.Shop, changes...); err != nil {
		fail(w, err)
		return
	}
	var now []Inventory
	for _, c := range changes {
		inv, err := s.Inventory(in.Shop, int64(c.VariantID))
		if err != nil {
			fail(w, err)
			return
		}
		now = append(now, inv)
	}
	if in.Changes == nil {
		reply(w, http.StatusOK, now[0])
		return
	}
	reply(w, http.StatusOK, map[string]any{"shop": in.Shop, "inventory": now})
}

func (s *Server) postVariant(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Shop string `json:"shop"`
		VariantEdit
	}
	id, err := pathID(r)
	if err == nil {
		err = read(r, &in)
	}
	if err == nil {
		err = s.EditVariant(in.Shop, id, in.VariantEdit)
	}
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]any{"shop": in.Shop, "variant_id": ID(id), "deleted": in.Delete})
}

func (s *Server) postBuy(w http.ResponseWriter, r *http.Request) {
	in := struct {
		Shop      string `json:"shop"`
		VariantID ID     `json:"variant_id"`
		Quantity  int    `json:"quantity"`
		Email     string `json:"email"`
	}{Quantity: 1}
	err := read(r, &in)
	var order int64
	if err == nil {
		order, err = s.Buy(in.Shop, int64(in.VariantID), in.Quantity, in.Email)
	}
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]ID{"order_id": ID(order)})
}

func (s *Server) postPay(w http.ResponseWriter, r *http.Request) {
	var in struct {
		InvoiceURL string `json:"invoice_url"`
	}
	err := read(r, &in)
	var order int64
	if err == nil {
		order, err = s.Pay(in.InvoiceURL)
	}
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]ID{"order_id": ID(order)})
}

func (s *Server) postCancel(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Restock bool `json:"restock"`
	}
	id, err := pathID(r)
	if err == nil {
		err = read(r, &in)
	}
	if err == nil {
		err = s.CancelOrder(id, in.Restock)
	}
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]any{"order_id": ID(id), "restock": in.Restock})
}

func (s *Server) postDraft(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Do       string `json:"do"`
		Quantity int    `json:"quantity"` // of the first line, to edit; 0 changes nothing that matters
	}
	id, err := pathID(r)
	if err == nil {
		err = read(r, &in)
	}
	answer := map[string]any{"draft_id": ID(id), "do": in.Do}
	if err == nil {
		switch in.Do {
		case "delete":
			err = s.DeleteDraft(id)
		case "edit":
			err = s.EditDraft(id, in.Quantity)
		case "complete":
			var order int64
			order, err = s.CompleteDraft(id)
			answer["order_id"] = ID(order)
		default:
			err = invalid("do: %q is none of delete, edit, complete", in.Do)
		}
	}
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, answer)
}

func (s *Server) getDrafts(w http.ResponseWriter, r *http.Request) {
	drafts, err := s.Drafts(r.URL.Query().Get("shop"))
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, drafts)
}

func (s *Server) postProxy(w http.ResponseWriter, r *http.Request) {
	var in ProxyRequest
	err := read(r, &in)
	var out ProxyResponse
	if err == nil {
		out, err = s.Proxy(r.Context(), in)
	}
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, out)
}

// known answers 404 for a shop that is asked about and does not exist: an empty list would look like
// "nothing happened".
func (s *Server) known(w http.ResponseWriter, r *http.Request) (domain string, ok bool) {
	domain = r.URL.Query().Get("shop")
	if domain == "" {
		return "", true
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.shops[domain] == nil {
		fail(w, notFound("there is no shop %q", domain))
		return "", false
	}
	return domain, true
}

func (s *Server) getRequests(w http.ResponseWriter, r *http.Request) {
	if domain, ok := s.known(w, r); ok {
		reply(w, http.StatusOK, s.Requests(domain))
	}
}

func (s *Server) getWebhooks(w http.ResponseWriter, r *http.Request) {
	if domain, ok := s.known(w, r); ok {
		reply(w, http.StatusOK, s.Webhooks(domain))
	}
}

func (s *Server) postReplay(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ID ID `json:"id"`
	}
	err := read(r, &in)
	if err == nil {
		err = s.Replay(int64(in.ID))
	}
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]string{"replayed": fmt.Sprint(in.ID)})
}

func (s *Server) postWebhook(w http.ResponseWriter, r *http.Request) {
	var in Hook
	err := read(r, &in)
	var d Delivery
	if err == nil {
		d, err = s.SendWebhook(r.Context(), in)
	}
	if err != nil {
		fail(w, err)
		return
	}
	a := d.Attempts[0]
	reply(w, http.StatusOK, map[string]any{"id": d.ID, "webhook_id": d.WebhookID, "status": a.Status, "body": a.Answer, "error": a.Error})
}
