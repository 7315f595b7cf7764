package shopifysim

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/vektah/gqlparser/v2/ast"
)

const (
	// maxBulkQueries is how many bulk queries of an app run in a shop at once (shopify.dev, bulk operations,
	// since 2026-01; it was one before).
	maxBulkQueries = 5
	// bulkTime is how long a bulk query takes, and
	bulkTime = 500 * time.Millisecond
	// bulkLines how many lines it writes at most between two looks at it: one of a hundred thousand takes fifty.
	bulkLines = 2000
)

// bulkOperation is a bulk query. It reads its variants one by one while it runs, so what it says of two of
// them may be true of different times; how far it is, is looked at only when somebody asks.
type bulkOperation struct {
	id        int64
	query     string
	plan      *plan
	sets      []ast.SelectionSet // of each variant
	variants  []*variant         // that there were when it began
	written   int                // of them
	file      bytes.Buffer       // packed
	packer    *gzip.Writer
	size      int // unpacked
	startedAt time.Time
	failing   bool   // it will have failed when it ends
	errorCode string // why it has failed
	done      bool
}

// status is the schema's word.
func (b *bulkOperation) status() string {
	switch {
	case !b.done:
		return "RUNNING"
	case b.errorCode != "":
		return "FAILED"
	default:
		return "COMPLETED"
	}
}

// fileURL is where what it has written can be read, "" when there is nothing to be read.
func (s *Server) bulkFileURL(sh *shop, b *bulkOperation) any {
	if !b.done || b.written == 0 {
		return nil
	}
	path := fmt.Sprintf("/bulk/%d.jsonl", b.id)
	if s.public == "" {
		return "https://" + sh.domain + path
	}
	return s.public + "/shopify/" + sh.domain + path
}

// advance does what a bulk query has done by now.
func (b *bulkOperation) advance(sh *shop, now time.Time) {
	if b.done {
		return
	}
	passed := max(0, now.Sub(b.startedAt))
	due := len(b.variants)
	if passed < bulkTime {
		due = int(int64(due) * int64(passed) / int64(bulkTime))
	} else if b.failing {
		due /= 2
	}
	x := &exec{plan: b.plan, sh: sh, now: now, scopes: sh.scopes}
	for last := min(due, b.written+bulkLines); b.written < last; b.written++ {
		o, _ := x.selection("ProductVariant", b.variants[b.written], b.sets, nil)
		line, err := json.Marshal(o)
		if err == nil {
			b.size += len(line) + 1
			_, err = b.packer.Write(append(line, '\n')) // to memory
		}
		if err != nil {
			sh.sim.log.Error("simulated Shopify: a bulk query's line cannot be written", "err", err)
		}
		if x.errs != nil || err != nil {
			b.end("INTERNAL_SERVER_ERROR")
			for _, e := range x.errs {
				if e.Extensions["code"] == "ACCESS_DENIED" {
					b.errorCode = "ACCESS_DENIED"
					return
				}
				sh.sim.log.Error(e.Message, "shop", sh.domain, "path", e.Path)
			}
			return
		}
	}
	switch {
	case passed < bulkTime || b.written < due:
	case b.failing:
		b.end("INTERNAL_SERVER_ERROR")
	default:
		b.end("")
	}
}

func (b *bulkOperation) end(errorCode string) {
	b.done, b.errorCode = true, errorCode
	b.packer.Close() // to memory
	b.plan, b.sets, b.variants = nil, nil, nil
}

// bulkError is a BulkOperationUserError.
type bulkError struct {
	code    string
	field   []any
	message string
}

// bulkOperationRunQuery begins a bulk query. All that is simulated is one that lists every variant of the
// shop, with no list within. A query that Shopify would refuse is refused (Assumed: the wordings).
func (x *exec) bulkOperationRunQuery(sh *shop, args map[string]any) (any, error) {
	text, _ := args["query"].(string)
	if grouped, _ := args["groupObjects"].(bool); grouped {
		return nil, simulatorError("Mutation.bulkOperationRunQuery(groupObjects: true)")
	}
	refuse := func(code, message string) (any, error) {
		return payload{errs: []bulkError{{code, []any{"query"}, message}}}, nil
	}
	running := 0
	for _, b := range sh.bulk {
		if b.advance(sh, x.now); !b.done {
			running++
		}
	}
	if running >= maxBulkQueries {
		return payload{errs: []bulkError{{code: "LIMIT_REACHED", message: "Bulk operations limit reached. Please try again later."}}}, nil
	}
	p, errs := newBulkPlan(x.api, x.resolvers, text)
	if len(errs) > 0 {
		if e := errs[0]; e.Extensions["code"] == "SIMULATOR_NOT_SIMULATED" {
			return nil, simulatorError("in a bulk query: " + strings.TrimPrefix(e.Message, "SIMULATOR: not simulated: "))
		}
		return refuse("INVALID", "Invalid bulk query: "+errs[0].Message)
	}
	if why := bulkRules(x.api, p.op.SelectionSet); why != "" {
		return refuse("INVALID", "Invalid bulk query: "+why)
	}
	sets, err := ofEachVariant(x.api, p.op.SelectionSet)
	if err != nil {
		return nil, err
	}
	b := &bulkOperation{id: sh.sim.newID(), query: text, plan: p, sets: sets, startedAt: x.now, failing: x.bulkFails}
	b.packer, err = gzip.NewWriterLevel(&b.file, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	for _, v := range sh.variants {
		b.variants = append(b.variants, v)
	}
	slices.SortFunc(b.variants, func(v, w *variant) int { return cmp.Compare(v.id, w.id) })
	if sh.bulk == nil {
		sh.bulk = map[int64]*bulkOperation{}
	}
	sh.bulk[b.id] = b
	return payload{object: b, errs: []bulkError{}}, nil
}

// bulkRules says what of Shopify's rules for bulk queries (shopify.dev, bulk operations) a valid query
// breaks, "" when none.
func bulkRules(api *adminAPI, set ast.SelectionSet) string {
	connections, deepest, why := 0, 0, ""
	var look func(set ast.SelectionSet, root bool, depth int)
	look = func(set ast.SelectionSet, root bool, depth int) {
		for _, sel := range set {
			switch sel := sel.(type) {
			case *ast.Field:
				within := depth
				if root && (sel.Name == "node" || sel.Name == "nodes") {
					why = "it cannot ask for node or nodes at the top"
				}
				if sel.Definition != nil && api.isConnection(sel.Definition.Type.Name()) {
					connections, within = connections+1, depth+1
				}
				deepest = max(deepest, within)
				look(sel.SelectionSet, false, within)
			case *ast.InlineFragment:
				look(sel.SelectionSet, root, depth)
			case *ast.FragmentSpread:
				look(sel.Definition.SelectionSet, root, depth)
			}
		}
	}
	look(set, true, 0)
	switch {
	case why != "":
		return why
	case connections == 0:
		return "it must contain at least one connection"
	case connections > 5:
		return "it cannot contain more than 5 connections"
	case deepest > 2:
		return "connections cannot be nested deeper than 2 levels"
	default:
		return ""
	}
}

// ofEachVariant is what a bulk query over productVariants asks of each.
func ofEachVariant(api *adminAPI, set ast.SelectionSet) ([]ast.SelectionSet, error) {
	only := func(set ast.SelectionSet, name string) ast.SelectionSet {
		if f, ok := set[0].(*ast.Field); ok && len(set) == 1 && f.Name == name && len(f.Arguments) == 0 && len(f.Directives) == 0 {
			return f.SelectionSet
		}
		return nil
	}
	for _, name := range []string{"productVariants", "edges", "node"} {
		if set = only(set, name); set == nil {
			return nil, simulatorError("a bulk query that is not { productVariants { edges { node { ... } } } }")
		}
	}
	if bulkRules(api, set) != "it must contain at least one connection" {
		return nil, simulatorError("a bulk query with a list within productVariants")
	}
	return []ast.SelectionSet{set}, nil
}

// readBulkOperation finds one by its id.
func (x *exec) readBulkOperation(sh *shop, args map[string]any) (any, error) {
	b, err := find(args, "BulkOperation", sh.bulk)
	if op, ok := b.(*bulkOperation); ok && op != nil {
		op.advance(sh, x.now)
	}
	return b, err
}

// serveBulkFile serves what a bulk query has written, to whoever has its address. The operation
// "bulkFile" can be given faults: a status, and drop_after_commit, which breaks off half way.
func (s *Server) serveBulkFile(w http.ResponseWriter, r *http.Request, domain, name string) {
	id, err := strconv.ParseInt(strings.TrimSuffix(name, ".jsonl"), 10, 64)
	sh, shopErr := s.lock(domain)
	if err != nil || shopErr != nil {
		http.NotFound(w, r)
		return
	}
	b := sh.bulk[id]
	var file []byte
	size := 0
	if b != nil && b.done {
		file, size = b.file.Bytes(), b.size // not changed any more
	}
	sh.mu.Unlock()
	if file == nil {
		http.NotFound(w, r)
		return
	}
	broken := false
	for _, f := range s.take(domain, []string{"bulkFile"}) {
		switch f.Mode {
		case "status":
			http.Error(w, http.StatusText(f.Code), f.Code)
			return
		case "drop_after_commit":
			size, broken = size/2, true
		}
	}
	lines, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	if _, err := io.CopyN(w, lines, int64(size)); err != nil && !errors.Is(err, io.EOF) && r.Context().Err() == nil {
		s.log.Error("simulated Shopify: a bulk query's file cannot be sent", "err", err)
	}
	if broken {
		if err := http.NewResponseController(w).Flush(); err != nil {
			s.log.Error("simulated Shopify: a bulk query's file cannot be sent", "err", err)
		}
		panic(http.ErrAbortHandler)
	}
}

// Fill adds many products to a shop, as an import does that sends no webhooks: product n has the handle
// "filled-n", its variants the SKUs "F-n-1" and so on; the last one of each has one unit in stock, the
// others none. A variant takes about 1 kB, so a hundred thousand are no burden for a test.
func (s *Server) Fill(domain string, products, variantsEach int) error {
	sh, err := s.lock(domain)
	if err != nil {
		return err
	}
	defer sh.mu.Unlock()
	now := s.clock.Now()
	from := len(sh.products)
	for n := from + 1; n <= from+products; n++ {
		number := strconv.Itoa(n)
		spec := ProductSpec{Handle: "filled-" + number, Title: "Filled " + number, Variants: make([]VariantSpec, variantsEach)}
		for i := range spec.Variants {
			of := strconv.Itoa(i + 1)
			spec.Variants[i] = VariantSpec{SKU: "F-" + number + "-" + of, Title: of}
		}
		if variantsEach > 0 {
			spec.Variants[variantsEach-1].Available = 1
		}
		if err := s.addProduct(sh, spec, now); err != nil {
			return invalid("%v", err)
		}
	}
	return nil
}

func (s *Server) postFill(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Products     int `json:"products"`
		VariantsEach int `json:"variants_each"`
	}
	err := read(r, &in)
	if err == nil && (in.Products < 1 || in.VariantsEach < 1 || in.Products*in.VariantsEach > 1_000_000) {
		err = invalid("products and variants_each: give two numbers from 1, a million variants at most")
	}
	if err == nil {
		err = s.Fill(chi.URLParam(r, "shop"), in.Products, in.VariantsEach)
	}
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]any{"shop": chi.URLParam(r, "shop"), "variants": in.Products * in.VariantsEach})
}
