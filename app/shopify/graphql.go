package shopify

import (
	"embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed graphql/*.graphql
var documents embed.FS

// operation is a document that is sent to Shopify, with an upper bound of what Shopify takes for it
// before it runs it. A query of more than maxCost points is refused.
type operation struct {
	name  string   // the field that it asks for first, which is also its name in the document
	files []string // of graphql/, without the extension: the operation and the fragments that it uses

	// keep is the share of a shop's bucket that the call leaves untouched: whoever waits for a unit to be
	// reserved is served before stock is read, and that before anything is compared or listed.
	keep float64

	cost    int // points, apart from:
	perID   int // points for each id of $ids
	perItem int // points for each item that $first allows
	perLvl  int // points for each level that $levels allows: of each id, if there are ids
}

// The shares that are kept.
const (
	forReserving = 0.2 // kept by reads of stock
	forOthers    = 0.5 // kept by listing, comparing and cataloguing
)

// maxCost is the most points that one query may cost (Shopify's limit).
const maxCost = 1000

// The operations. Their costs follow Shopify's rules (a mutation 10, an object 1, a connection 2 and
// its items, a scalar nothing), counted by a test.
var (
	nodes            = operation{name: "nodes", files: []string{"nodes", "variant"}, keep: forReserving, perID: 15}
	nodesAt          = operation{name: "nodes", files: []string{"nodes_at", "variant", "levels"}, keep: forReserving, perID: 19, perLvl: 3}
	productVariants  = operation{name: "productVariants", files: []string{"product_variants", "variant"}, keep: forReserving, cost: 152}
	draftOrderCreate = operation{name: "draftOrderCreate", files: []string{"draft_order_create", "draft"}, cost: 14}
	draftOrderDelete = operation{name: "draftOrderDelete", files: []string{"draft_order_delete"}, cost: 11}
	draftOrder       = operation{name: "draftOrder", files: []string{"draft_order", "draft"}, cost: 3}
	draftOrders      = operation{name: "draftOrders", files: []string{"draft_orders", "draft"}, cost: 3, perItem: 3}
	allDraftOrders   = operation{name: "draftOrders", files: []string{"draft_orders", "draft"}, keep: forOthers, cost: 3, perItem: 3}
	readBack         = operation{name: "draftOrder", files: []string{"read_back", "draft"}, cost: 4}
	shopProfile      = operation{name: "shop", files: []string{"shop_profile"}, keep: forOthers, cost: 4}
	defaultLocation  = operation{name: "location", files: []string{"location"}, keep: forReserving, cost: 1}
	readBackAt       = operation{name: "draftOrder", files: []string{"read_back_at", "draft", "levels"}, cost: 8, perLvl: 3}
	product          = operation{name: "product", files: []string{"product", "variant"}, keep: forOthers, cost: 4, perItem: 15}
	startBulkQuery   = operation{name: "bulkOperationRunQuery", files: []string{"bulk_operation_run_query"}, keep: forOthers, cost: 12}
	readBulkQuery    = operation{name: "bulkOperation", files: []string{"bulk_operation"}, keep: forOthers, cost: 1}

	// catalogue is what a bulk query runs: it is sent as a variable of startBulkQuery.
	catalogue = operation{name: "productVariants", files: []string{"catalogue"}}
)

// operations are all that are sent by themselves.
func operations() []operation {
	return []operation{nodes, nodesAt, productVariants, draftOrderCreate, draftOrderDelete,
		draftOrder, draftOrders, readBack, readBackAt, shopProfile, defaultLocation, product, startBulkQuery, readBulkQuery}
}

// Documents returns every document that this package may send to Shopify, fragments included, by the names
// of the embedded files that it is made of.
func Documents() (map[string]string, error) {
	all := map[string]string{}
	for _, op := range append(operations(), catalogue) {
		text, err := op.text()
		if err != nil {
			return nil, err
		}
		all[strings.Join(op.files, " + ")] = text
	}
	return all, nil
}

// text is the whole document.
func (o operation) text() (string, error) {
	var b strings.Builder
	for _, f := range o.files {
		text, err := documents.ReadFile("graphql/" + f + ".graphql")
		if err != nil {
			return "", fmt.Errorf("document %s: %w", f, err)
		}
		b.Write(text)
	}
	return b.String(), nil
}

// points is the most that the operation can cost with these variables.
func (o operation) points(vars map[string]any) int {
	n := o.cost
	levels := 0
	if l, ok := vars["levels"].(int); ok {
		levels = l
	}
	if ids, ok := vars["ids"].([]string); ok {
		n += len(ids) * (o.perID + o.perLvl*levels)
	} else {
		n += o.perLvl * levels
	}
	if first, ok := vars["first"].(int); ok {
		n += o.perItem * first
	}
	return n
}

// gid writes the global id of a thing of Shopify's.
func gid(kind string, id int64) string {
	return "gid://shopify/" + kind + "/" + strconv.FormatInt(id, 10)
}

// idOf reads the number in a global id of the given kind.
func idOf(kind, id string) (int64, error) {
	number, ok := strings.CutPrefix(id, "gid://shopify/"+kind+"/")
	if n, err := strconv.ParseInt(number, 10, 64); ok && err == nil && n > 0 {
		return n, nil
	}
	return 0, fmt.Errorf("%q is not the id of a %s", id, kind)
}

// quoted writes a value of Shopify's search syntax, in which a quote or a backslash is escaped by a
// backslash.
func quoted(value string) string {
	return `'` + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + `'`
}
