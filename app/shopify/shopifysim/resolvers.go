package shopifysim

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// To simulate another field, add it to the table of its type in newResolvers: a resolver returns Go
// values of the schema's kinds (int, bool, string, time.Time for DateTime, structs of this package), and
// the executor checks them against the schema.

// The objects that exist in answers alone.
type (
	image    struct{ url, alt string }
	media    struct{ image image }
	money    struct{ amount, currency string }
	moneyBag struct{ shop, presentment money }
	option   struct{ name, value string }
	quantity struct {
		level *level
		name  string
		n     int
	}
	scope   struct{ handle string }
	payload struct {
		object any // draftOrder, deletedId, bulkOperation
		errs   any // a list of userError or bulkError
	}
	// connection is a page of a list.
	connection struct {
		nodes            []any
		hasNext, hasPrev bool
	}
	edge struct{ node any }
)

// typeOf is the schema's type of an object that stands for an interface.
func typeOf(v any) string {
	switch v.(type) {
	case *variant:
		return "ProductVariant"
	case *product:
		return "Product"
	case *item:
		return "InventoryItem"
	case *level:
		return "InventoryLevel"
	case *location:
		return "Location"
	case *draft:
		return "DraftOrder"
	case *order:
		return "Order"
	case *shop:
		return "Shop"
	case *bulkOperation:
		return "BulkOperation"
	case media:
		return "MediaImage"
	default:
		return fmt.Sprintf("%T", v)
	}
}

func gid(kind string, id int64) string {
	return "gid://shopify/" + kind + "/" + strconv.FormatInt(id, 10)
}

// numericID reads a global id of one kind.
func numericID(kind, gid string) (int64, bool) {
	digits, ok := strings.CutPrefix(gid, "gid://shopify/"+kind+"/")
	if !ok {
		return 0, false
	}
	digits, _, _ = strings.Cut(digits, "?")
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && n > 0
}

// find returns a thing by its global id: nil when it does not exist.
func find[T any](args map[string]any, kind string, in map[int64]*T) (any, error) {
	gid, _ := args["id"].(string)
	id, ok := numericID(kind, gid)
	if !ok {
		return nil, badID(gid)
	}
	return in[id], nil // nil when there is none: the field is null
}

// node returns anything by its global id.
func (sh *shop) node(gid string) (any, error) {
	kind, _, _ := strings.Cut(strings.TrimPrefix(gid, "gid://shopify/"), "/")
	id, ok := numericID(kind, gid)
	if !ok {
		return nil, badID(gid)
	}
	switch kind {
	case "ProductVariant":
		return sh.variants[id], nil
	case "InventoryItem":
		return sh.items[id], nil
	case "DraftOrder":
		return sh.drafts[id], nil
	case "Order":
		return sh.orders[id], nil
	case "Product":
		return sh.product(id), nil
	case "Location":
		return sh.locationByID(id), nil
	case "Shop":
		if id == sh.id {
			return sh, nil
		}
		return nil, nil
	}
	return nil, simulatorError("nodes of type " + kind)
}

func (sh *shop) product(id int64) *product { return sh.byID[id] }

// cursor is the place of a thing in a list.
func cursor(id int64) string {
	b, _ := json.Marshal(map[string]any{"last_id": id, "last_value": strconv.FormatInt(id, 10)})
	return base64.StdEncoding.EncodeToString(b)
}

func idOf(v any) int64 {
	switch v := v.(type) {
	case *variant:
		return v.id
	case *product:
		return v.id
	case *item:
		return v.id
	case *draft:
		return v.id
	case *order:
		return v.id
	case *location:
		return v.id
	case *level:
		return v.location.id
	case draftLine:
		return v.id
	case *orderLine:
		return v.id
	case media:
		return 1
	default:
		return 0
	}
}

// page cuts a page out of a list, which is in ascending order of ids when byID is true: then a cursor
// stays good when its thing is gone.
func page[T any](list []T, args map[string]any, byID bool) (*connection, error) {
	nodes := make([]any, len(list))
	for i, v := range list {
		nodes[i] = v
	}
	reverse, _ := args["reverse"].(bool)
	if reverse {
		slices.Reverse(nodes)
	}
	find := func(arg string) (before, after int, ok bool, err error) { // how many lie before and up to the cursor
		c, _ := args[arg].(string)
		if c == "" {
			return 0, 0, false, nil
		}
		var place struct {
			LastID int64 `json:"last_id"`
		}
		b, err := base64.StdEncoding.DecodeString(c)
		if err != nil || json.Unmarshal(b, &place) != nil {
			return 0, 0, false, refusal("Invalid cursor for current pagination sort.")
		}
		for i, n := range nodes {
			id := idOf(n)
			if id == place.LastID {
				return i, i + 1, true, nil
			}
			if byID && (id > place.LastID) != reverse {
				return i, i, true, nil
			}
		}
		return len(nodes), len(nodes), true, nil
	}
	from, to := 0, len(nodes)
	if _, up, ok, err := find("after"); err != nil {
		return nil, err
	} else if ok {
		from = up
	}
	if before, _, ok, err := find("before"); err != nil {
		return nil, err
	} else if ok {
		to = max(from, before)
	}
	c := &connection{}
	if n, ok := args["first"].(int); ok && to-from > n {
		to, c.hasNext = from+n, true
	}
	if n, ok := args["last"].(int); ok && to-from > n {
		from = to - n
	}
	c.hasNext = c.hasNext || (args["before"] != nil && to < len(nodes))
	c.hasPrev = from > 0
	c.nodes = nodes[from:to]
	return c, nil
}

// term is one part of a search: field:value.
type term struct{ field, value string }

var termPattern = regexp.MustCompile(`^(\w+):(>=)?(?:'([^']*)'|"([^"]*)"|([^\s'"()*<>]+))(?:\s+AND\s+|\s+|$)`)

// parseSearch reads the part of Shopify's search syntax that is simulated: field:value terms, quoted or
// not, joined by spaces or AND. A time, and nothing else, is
// searched for by updated_at:>=time.
func parseSearch(what, query string) ([]term, error) {
	var terms []term
	rest := strings.TrimSpace(query)
	for rest != "" {
		m := termPattern.FindStringSubmatch(rest)
		if m == nil || m[1] == "NOT" || m[1] == "OR" || (m[2] != "") != (m[1] == "updated_at") {
			return nil, simulatorError(fmt.Sprintf("%s(query: %q)", what, query))
		}
		terms = append(terms, term{m[1], m[3] + m[4] + m[5]})
		rest = rest[len(m[0]):]
	}
	return terms, nil
}

// warn says, as Shopify does, that a field cannot be searched for. The term is then left out: the list
// is NOT filtered by it.
func (x *exec) warn(field string, query string, t term) {
	x.search = append(x.search, map[string]any{
		"path": []string{field}, "query": query,
		"parsed":   map[string]any{"field": t.field, "match_all": t.value},
		"warnings": []map[string]any{{"field": t.field, "message": "Invalid search field for this query."}},
	})
}

// findDrafts is the search index of draft orders. It may lag (x.lag): what was created since is missing.
func (x *exec) findDrafts(_ *shop, args map[string]any) (any, error) {
	if k := args["sortKey"]; k != "ID" && k != "NUMBER" {
		return nil, simulatorError(fmt.Sprintf("QueryRoot.draftOrders(sortKey: %v)", k))
	}
	query, _ := args["query"].(string)
	terms, err := parseSearch("QueryRoot.draftOrders", query)
	if err != nil {
		return nil, err
	}
	list := x.sh.draftList
	for _, t := range terms {
		if t.field == "tag" { // by far the most used one has an index
			list = x.sh.tagged[strings.ToLower(t.value)]
			break
		}
	}
	var since time.Time
	for _, t := range terms {
		if t.field == "updated_at" {
			if since, err = time.Parse(time.RFC3339, t.value); err != nil {
				return nil, simulatorError(fmt.Sprintf("QueryRoot.draftOrders(query: %q)", query))
			}
		}
		if !slices.Contains([]string{"tag", "status", "id", "updated_at"}, t.field) {
			x.warn("draftOrders", query, t)
		}
	}
	var hits []*draft
	for _, d := range list {
		hit := x.lag == nil || (*x.lag > 0 && !d.createdAt.After(x.now.Add(-*x.lag)))
		for _, t := range terms {
			switch t.field {
			case "tag":
				hit = hit && hasTag(d.tags, t.value)
			case "status":
				hit = hit && strings.EqualFold(d.status, t.value)
			case "id":
				hit = hit && strconv.FormatInt(d.id, 10) == t.value
			case "updated_at":
				hit = hit && !d.updatedAt.Truncate(time.Second).Before(since)
			}
		}
		if hit {
			hits = append(hits, d)
		}
	}
	return page(hits, args, true)
}

func (x *exec) findVariants(_ *shop, args map[string]any) (any, error) {
	if k := args["sortKey"]; k != "ID" {
		return nil, simulatorError(fmt.Sprintf("QueryRoot.productVariants(sortKey: %v)", k))
	}
	query, _ := args["query"].(string)
	terms, err := parseSearch("QueryRoot.productVariants", query)
	if err != nil {
		return nil, err
	}
	for _, t := range terms {
		if !slices.Contains([]string{"sku", "product_id", "id"}, t.field) {
			return nil, simulatorError(fmt.Sprintf("QueryRoot.productVariants(query: %q)", query))
		}
	}
	var hits []*variant
	for _, v := range x.sh.variants {
		hit := true
		for _, t := range terms {
			switch t.field {
			case "sku":
				hit = hit && strings.EqualFold(v.sku, t.value)
			case "product_id":
				hit = hit && strconv.FormatInt(v.product.id, 10) == t.value
			case "id":
				hit = hit && strconv.FormatInt(v.id, 10) == t.value
			}
		}
		if hit {
			hits = append(hits, v)
		}
	}
	sort.Slice(hits, func(i, j int) bool { return hits[i].id < hits[j].id })
	return page(hits, args, true)
}

func (x *exec) findLocations(_ *shop, args map[string]any) (any, error) {
	inactive, _ := args["includeInactive"].(bool)
	var list []*location
	for _, l := range x.sh.locations {
		if l.active || inactive {
			list = append(list, l)
		}
	}
	switch args["sortKey"] {
	case "ID":
		sort.Slice(list, func(i, j int) bool { return list[i].id < list[j].id })
	case "NAME":
		sort.Slice(list, func(i, j int) bool { return list[i].name < list[j].name })
	default:
		return nil, simulatorError(fmt.Sprintf("QueryRoot.locations(sortKey: %v)", args["sortKey"]))
	}
	return page(list, args, args["sortKey"] == "ID")
}

// draftOrderCreate refuses loudly an input that would change what the draft means and is not simulated.
func (x *exec) draftOrderCreate(sh *shop, args map[string]any) (any, error) {
	in := args["input"].(map[string]any)
	simulated := []string{
		"acceptAutomaticDiscounts", "allowDiscountCodesInCheckout", "customAttributes", "email", "lineItems", "note", "phone",
		"presentmentCurrencyCode", "reserveInventoryUntil", "sourceName", "tags", "taxExempt", "visibleToCustomer",
	}
	if err := only("DraftOrderInput", in, simulated); err != nil {
		return nil, err
	}
	lines, _ := in["lineItems"].([]any)
	for _, l := range lines {
		if err := only("DraftOrderLineItemInput", l.(map[string]any), []string{"variantId", "quantity", "customAttributes"}); err != nil {
			return nil, err
		}
	}
	d, errs := sh.newDraft(x.now, in)
	if errs != nil {
		return payload{errs: errs}, nil
	}
	sh.createDraft(x.now, d)
	return payload{object: d, errs: []userError{}}, nil
}

func only(input string, given map[string]any, simulated []string) error {
	var names []string
	for name, v := range given {
		if v != nil && !slices.Contains(simulated, name) {
			names = append(names, input+"."+name)
		}
	}
	if names == nil {
		return nil
	}
	slices.Sort(names)
	return simulatorError(strings.Join(names, ", "))
}

func (x *exec) draftOrderDelete(sh *shop, args map[string]any) (any, error) {
	id := args["input"].(map[string]any)["id"].(string)
	n, ok := numericID("DraftOrder", id)
	if !ok {
		return nil, badID(id)
	}
	d := sh.drafts[n]
	if d == nil {
		return payload{errs: []userError{{nil, "Draft order not found"}}}, nil
	}
	sh.deleteDraft(x.now, d)
	return payload{object: id, errs: []userError{}}, nil
}

func newResolvers() resolvers {
	ascending := func(list []*level, args map[string]any) (any, error) { return page(list, args, false) }
	pages := []string{"first", "last", "after", "before", "reverse"}
	withQuery := append(slices.Clone(pages), "query", "sortKey")
	optional := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	moment := func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return t
	}
	r := resolvers{
		"QueryRoot": {
			"shop":    is(func(sh *shop) any { return sh }),
			"product": by(func(x *exec, sh *shop, a map[string]any) (any, error) { return sh.nodeOf("Product", a["id"]) }, "id"),
			"productVariant": by(func(x *exec, sh *shop, a map[string]any) (any, error) {
				return find(a, "ProductVariant", sh.variants)
			}, "id"),
			"inventoryItem": by(func(x *exec, sh *shop, a map[string]any) (any, error) { return find(a, "InventoryItem", sh.items) }, "id"),
			"draftOrder":    by(func(x *exec, sh *shop, a map[string]any) (any, error) { return find(a, "DraftOrder", sh.drafts) }, "id"),
			"order":         by(func(x *exec, sh *shop, a map[string]any) (any, error) { return find(a, "Order", sh.orders) }, "id"),
			"node":          by(func(x *exec, sh *shop, a map[string]any) (any, error) { return sh.node(a["id"].(string)) }, "id"),
			"nodes": by(func(x *exec, sh *shop, a map[string]any) (any, error) {
				found := []any{}
				for _, id := range a["ids"].([]any) {
					n, err := sh.node(id.(string))
					if err != nil {
						return nil, err
					}
					found = append(found, n)
				}
				return found, nil
			}, "ids"),
			"location":               by(func(x *exec, sh *shop, a map[string]any) (any, error) { return sh.nodeOf("Location", a["id"]) }, "id"),
			"locations":              by((*exec).findLocations, append(slices.Clone(pages), "sortKey", "includeInactive")...),
			"draftOrders":            by((*exec).findDrafts, withQuery...),
			"productVariants":        by((*exec).findVariants, withQuery...),
			"bulkOperation":          by((*exec).readBulkOperation, "id"),
			"currentAppInstallation": is(func(sh *shop) any { return installation{sh} }),
		},
		"Mutation": {
			"draftOrderCreate":      by((*exec).draftOrderCreate, "input"),
			"draftOrderDelete":      by((*exec).draftOrderDelete, "input"),
			"bulkOperationRunQuery": by((*exec).bulkOperationRunQuery, "query", "groupObjects"),
		},
		"DraftOrderCreatePayload": {
			"draftOrder": is(func(p payload) any { return p.object }),
			"userErrors": is(func(p payload) any { return p.errs }),
		},
		"DraftOrderDeletePayload": {
			"deletedId":  is(func(p payload) any { return p.object }),
			"userErrors": is(func(p payload) any { return p.errs }),
		},
		"BulkOperationRunQueryPayload": {
			"bulkOperation": is(func(p payload) any { return p.object }),
			"userErrors":    is(func(p payload) any { return p.errs }),
		},
		"BulkOperationUserError": {
			"code": is(func(e bulkError) any { return e.code }),
			"field": is(func(e bulkError) any {
				if e.field == nil {
					return nil
				}
				return e.field
			}),
			"message": is(func(e bulkError) any { return e.message }),
		},
		"BulkOperation": {
			"id":              is(func(b *bulkOperation) any { return gid("BulkOperation", b.id) }),
			"status":          is(func(b *bulkOperation) any { return b.status() }),
			"type":            is(func(b *bulkOperation) any { return "QUERY" }),
			"errorCode":       is(func(b *bulkOperation) any { return optional(b.errorCode) }),
			"createdAt":       is(func(b *bulkOperation) any { return b.startedAt }),
			"objectCount":     is(func(b *bulkOperation) any { return strconv.Itoa(b.written) }),
			"rootObjectCount": is(func(b *bulkOperation) any { return strconv.Itoa(b.written) }),
			"query":           is(func(b *bulkOperation) any { return b.query }),
			"url": by(func(x *exec, b *bulkOperation, _ map[string]any) (any, error) {
				if b.status() != "COMPLETED" {
					return nil, nil
				}
				return x.sh.sim.bulkFileURL(x.sh, b), nil
			}),
			"partialDataUrl": by(func(x *exec, b *bulkOperation, _ map[string]any) (any, error) {
				if b.status() != "FAILED" {
					return nil, nil
				}
				return x.sh.sim.bulkFileURL(x.sh, b), nil
			}),
		},
		"UserError": {
			"field": is(func(e userError) any {
				if e.field == nil {
					return nil
				}
				return e.field
			}),
			"message": is(func(e userError) any { return e.message }),
		},
		"DraftOrder": {
			"id":                           is(func(d *draft) any { return gid("DraftOrder", d.id) }),
			"legacyResourceId":             is(func(d *draft) any { return strconv.FormatInt(d.id, 10) }),
			"name":                         is(func(d *draft) any { return d.name }),
			"status":                       is(func(d *draft) any { return d.status }),
			"ready":                        is(func(d *draft) any { return true }),
			"email":                        is(func(d *draft) any { return optional(d.email) }),
			"phone":                        is(func(d *draft) any { return optional(d.phone) }),
			"note2":                        is(func(d *draft) any { return optional(d.note) }),
			"tags":                         is(func(d *draft) any { return d.tags }),
			"customAttributes":             is(func(d *draft) any { return d.attributes }),
			"invoiceUrl":                   by(func(x *exec, d *draft, _ map[string]any) (any, error) { return x.sh.sim.invoiceURL(d), nil }),
			"invoiceSentAt":                is(func(d *draft) any { return nil }),
			"reserveInventoryUntil":        is(func(d *draft) any { return moment(d.reserveUntil) }),
			"createdAt":                    is(func(d *draft) any { return d.createdAt }),
			"updatedAt":                    is(func(d *draft) any { return d.updatedAt }),
			"completedAt":                  is(func(d *draft) any { return moment(d.completedAt) }),
			"order":                        is(func(d *draft) any { return d.order }),
			"warnings":                     is(func(d *draft) any { return []any{} }),
			"acceptAutomaticDiscounts":     is(func(d *draft) any { return boolOrNull(d.discounts) }),
			"allowDiscountCodesInCheckout": is(func(d *draft) any { return d.codes }),
			"visibleToCustomer":            is(func(d *draft) any { return d.visible }),
			"taxExempt":                    is(func(d *draft) any { return d.taxExempt }),
			"currencyCode":                 is(func(d *draft) any { return d.shop.currency }),
			"presentmentCurrencyCode":      is(func(d *draft) any { return d.currency }),
			"totalQuantityOfLineItems": is(func(d *draft) any {
				n := 0
				for _, l := range d.lines {
					n += l.quantity
				}
				return n
			}),
			"totalPriceSet": is(func(d *draft) any {
				sum := total(d.lines)
				return moneyBag{money{sum, d.shop.currency}, money{sum, d.currency}}
			}),
			"lineItems": by(func(_ *exec, d *draft, a map[string]any) (any, error) { return page(d.lines, a, true) }, pages...),
		},
		"DraftOrderLineItem": {
			"id":               is(func(l draftLine) any { return gid("DraftOrderLineItem", l.id) }),
			"title":            is(func(l draftLine) any { return l.title }),
			"variantTitle":     is(func(l draftLine) any { return l.variantOf }),
			"name":             is(func(l draftLine) any { return l.title + " - " + l.variantOf }),
			"sku":              is(func(l draftLine) any { return optional(l.sku) }),
			"quantity":         is(func(l draftLine) any { return l.quantity }),
			"custom":           is(func(l draftLine) any { return false }),
			"customAttributes": is(func(l draftLine) any { return l.attributes }),
			"variant": by(func(x *exec, l draftLine, _ map[string]any) (any, error) {
				return x.sh.variants[l.variant.id], nil // null when it was deleted
			}),
			"product": by(func(x *exec, l draftLine, _ map[string]any) (any, error) {
				return x.sh.product(l.variant.product.id), nil
			}),
			"originalUnitPriceSet": by(func(x *exec, l draftLine, _ map[string]any) (any, error) {
				m := money{l.price, x.sh.currency}
				return moneyBag{m, m}, nil
			}),
		},
		"Order": {
			"id":                     is(func(o *order) any { return gid("Order", o.id) }),
			"legacyResourceId":       is(func(o *order) any { return strconv.FormatInt(o.id, 10) }),
			"name":                   is(func(o *order) any { return o.name }),
			"email":                  is(func(o *order) any { return optional(o.email) }),
			"note":                   is(func(o *order) any { return optional(o.note) }),
			"tags":                   is(func(o *order) any { return o.tags }),
			"customAttributes":       is(func(o *order) any { return o.attributes }),
			"createdAt":              is(func(o *order) any { return o.createdAt }),
			"cancelledAt":            is(func(o *order) any { return moment(o.cancelledAt) }),
			"displayFinancialStatus": is(func(o *order) any { return "PAID" }),
			"sourceName":             is(func(o *order) any { return o.source }),
			"lineItems":              by(func(_ *exec, o *order, a map[string]any) (any, error) { return page(o.lines, a, true) }, pages...),
		},
		"LineItem": {
			"id":       is(func(l *orderLine) any { return gid("LineItem", l.id) }),
			"title":    is(func(l *orderLine) any { return l.title }),
			"sku":      is(func(l *orderLine) any { return optional(l.sku) }),
			"quantity": is(func(l *orderLine) any { return l.quantity }),
			"variant":  by(func(x *exec, l *orderLine, _ map[string]any) (any, error) { return x.sh.variants[l.variant.id], nil }),
			"product": by(func(x *exec, l *orderLine, _ map[string]any) (any, error) {
				return x.sh.product(l.variant.product.id), nil
			}),
		},
		"Attribute": {
			"key":   is(func(a attribute) any { return a.key }),
			"value": is(func(a attribute) any { return a.value }),
		},
		"Product": {
			"id":               is(func(p *product) any { return gid("Product", p.id) }),
			"legacyResourceId": is(func(p *product) any { return strconv.FormatInt(p.id, 10) }),
			"handle":           is(func(p *product) any { return p.handle }),
			"title":            is(func(p *product) any { return p.title }),
			"status":           is(func(p *product) any { return p.status }),
			"vendor":           is(func(p *product) any { return p.shop.name }),
			"productType":      is(func(p *product) any { return "" }),
			"tags":             is(func(p *product) any { return []string{} }),
			"createdAt":        is(func(p *product) any { return p.createdAt }),
			"updatedAt":        is(func(p *product) any { return p.updatedAt }),
			"publishedAt":      is(func(p *product) any { return moment(p.publishedAt) }),
			"onlineStoreUrl":   is(func(p *product) any { return optional(p.onlineStoreURL()) }),
			"publishedOnCurrentPublication": is(func(p *product) any {
				return !p.publishedAt.IsZero()
			}),
			"hasOnlyDefaultVariant": is(func(p *product) any { return len(p.variants) == 1 && p.variants[0].title == "Default Title" }),
			"featuredImage":         is(func(p *product) any { return p.image() }),
			"featuredMedia":         is(func(p *product) any { return media{p.image()} }),
			"images":                by(func(_ *exec, p *product, a map[string]any) (any, error) { return page([]image{p.image()}, a, false) }, append(slices.Clone(pages), "sortKey")...),
			"media":                 by(func(_ *exec, p *product, a map[string]any) (any, error) { return page([]media{{p.image()}}, a, false) }, append(slices.Clone(pages), "sortKey")...),
			"variants": by(func(_ *exec, p *product, a map[string]any) (any, error) {
				if k := a["sortKey"]; k != "POSITION" && k != "ID" {
					return nil, simulatorError(fmt.Sprintf("Product.variants(sortKey: %v)", k))
				}
				return page(p.variants, a, false)
			}, append(slices.Clone(pages), "sortKey")...),
		},
		"ProductVariant": {
			"id":                     is(func(v *variant) any { return gid("ProductVariant", v.id) }),
			"legacyResourceId":       is(func(v *variant) any { return strconv.FormatInt(v.id, 10) }),
			"sku":                    is(func(v *variant) any { return optional(v.sku) }),
			"title":                  is(func(v *variant) any { return v.title }),
			"displayName":            is(func(v *variant) any { return v.product.title + " - " + v.title }),
			"price":                  is(func(v *variant) any { return v.price }),
			"compareAtPrice":         is(func(v *variant) any { return nil }),
			"position":               is(func(v *variant) any { return slices.Index(v.product.variants, v) + 1 }),
			"product":                is(func(v *variant) any { return v.product }),
			"inventoryItem":          is(func(v *variant) any { return v.item }),
			"inventoryPolicy":        is(func(v *variant) any { return v.policy }),
			"inventoryQuantity":      is(func(v *variant) any { return v.sellable() }),
			"sellableOnlineQuantity": is(func(v *variant) any { return v.sellable() }),
			"availableForSale":       is(func(v *variant) any { return v.forSale(1) }),
			"requiresComponents":     is(func(v *variant) any { return len(v.components) > 0 }),
			"createdAt":              is(func(v *variant) any { return v.createdAt }),
			"updatedAt":              is(func(v *variant) any { return v.updatedAt }),
			"image":                  is(func(v *variant) any { return v.product.image() }),
			"media": by(func(_ *exec, v *variant, a map[string]any) (any, error) {
				return page([]media{{v.product.image()}}, a, false)
			}, pages...),
			"selectedOptions": is(func(v *variant) any {
				if v.title == "Default Title" {
					return []option{{"Title", v.title}}
				}
				return []option{{v.product.option, v.title}}
			}),
		},
		"SelectedOption": {
			"name":  is(func(o option) any { return o.name }),
			"value": is(func(o option) any { return o.value }),
		},
		"InventoryItem": {
			"id":               is(func(i *item) any { return gid("InventoryItem", i.id) }),
			"legacyResourceId": is(func(i *item) any { return strconv.FormatInt(i.id, 10) }),
			"tracked":          is(func(i *item) any { return i.tracked }),
			"requiresShipping": is(func(i *item) any { return true }),
			"sku":              is(func(i *item) any { return optional(i.sku()) }),
			"createdAt":        is(func(i *item) any { return i.createdAt }),
			"updatedAt":        is(func(i *item) any { return i.updatedAt }),
			"variant":          is(func(i *item) any { return i.variants[0] }),
			"variants":         by(func(_ *exec, i *item, a map[string]any) (any, error) { return page(i.variants, a, false) }, "first", "last", "after", "before"),
			"inventoryLevels":  by(func(_ *exec, i *item, a map[string]any) (any, error) { return ascending(i.levels, a) }, pages...),
			"inventoryLevel": by(func(x *exec, i *item, a map[string]any) (any, error) {
				id, ok := numericID("Location", a["locationId"].(string))
				if !ok {
					return nil, badID(a["locationId"].(string))
				}
				return i.level(x.sh.locationByID(id)), nil
			}, "locationId"),
		},
		"InventoryLevel": {
			"id":        is(func(l *level) any { return levelID(l) }),
			"isActive":  is(func(l *level) any { return true }),
			"item":      is(func(l *level) any { return l.item }),
			"location":  is(func(l *level) any { return l.location }),
			"updatedAt": is(func(l *level) any { return l.updatedAt }),
			"quantities": by(func(_ *exec, l *level, a map[string]any) (any, error) {
				list := []quantity{}
				for _, name := range a["names"].([]any) {
					n := map[string]int{"available": l.available, "reserved": l.reserved, "committed": l.committed, "on_hand": l.onHand()}
					known := []string{"damaged", "safety_stock", "quality_control", "incoming"}
					name := name.(string)
					if _, ok := n[name]; !ok && !slices.Contains(known, name) {
						return nil, refusal(fmt.Sprintf("%q is not a valid quantity name", name))
					}
					list = append(list, quantity{l, name, n[name]})
				}
				return list, nil
			}, "names"),
		},
		"InventoryQuantity": {
			"id":        is(func(q quantity) any { return levelID(q.level) + "&name=" + q.name }),
			"name":      is(func(q quantity) any { return q.name }),
			"quantity":  is(func(q quantity) any { return q.n }),
			"updatedAt": is(func(q quantity) any { return moment(q.level.updatedAt) }),
		},
		"Location": {
			"id":                   is(func(l *location) any { return gid("Location", l.id) }),
			"legacyResourceId":     is(func(l *location) any { return strconv.FormatInt(l.id, 10) }),
			"name":                 is(func(l *location) any { return l.name }),
			"isActive":             is(func(l *location) any { return l.active }),
			"fulfillsOnlineOrders": is(func(l *location) any { return l.online }),
			"shipsInventory":       is(func(l *location) any { return l.online }),
			"isPrimary":            is(func(l *location) any { return l.shop.locations[0] == l }),
		},
		"Shop": {
			"id":                           is(func(s *shop) any { return gid("Shop", s.id) }),
			"name":                         is(func(s *shop) any { return s.name }),
			"email":                        is(func(s *shop) any { return "owner@" + s.domain }),
			"contactEmail":                 is(func(s *shop) any { return "hello@" + s.domain }),
			"myshopifyDomain":              is(func(s *shop) any { return s.domain }),
			"url":                          is(func(s *shop) any { return "https://" + s.domain }),
			"primaryDomain":                is(func(s *shop) any { return domain{s} }),
			"currencyCode":                 is(func(s *shop) any { return s.currency }),
			"enabledPresentmentCurrencies": is(func(s *shop) any { return s.currency2 }),
			"ianaTimezone":                 is(func(s *shop) any { return "Europe/Berlin" }),
			"createdAt":                    is(func(s *shop) any { return s.createdAt }),
			"plan":                         is(func(s *shop) any { return s.plan }),
			"shopAddress":                  is(func(s *shop) any { return address{s} }),
		},
		"ShopAddress": {
			"id":            is(func(a address) any { return gid("ShopAddress", a.shop.id) }),
			"countryCodeV2": is(func(a address) any { return a.shop.country }),
		},
		"ShopPlan": {
			"publicDisplayName":  is(func(p Plan) any { return p.displayName() }),
			"displayName":        is(func(p Plan) any { return p.displayName() }),
			"shopifyPlus":        is(func(p Plan) any { return p == Plus }),
			"partnerDevelopment": is(func(p Plan) any { return false }),
		},
		"Domain": {
			"id":           is(func(d domain) any { return gid("Domain", d.shop.id) }),
			"host":         is(func(d domain) any { return d.shop.domain }),
			"url":          is(func(d domain) any { return "https://" + d.shop.domain }),
			"sslEnabled":   is(func(d domain) any { return true }),
			"localization": is(func(d domain) any { return localization{} }),
		},
		"DomainLocalization": {
			"defaultLocale":    is(func(l localization) any { return "en" }),
			"alternateLocales": is(func(l localization) any { return []string{} }),
		},
		"AppInstallation": {
			"id": is(func(i installation) any { return gid("AppInstallation", i.shop.id) }),
			"accessScopes": by(func(x *exec, _ installation, _ map[string]any) (any, error) {
				list := []scope{}
				for _, s := range x.scopes {
					list = append(list, scope{s})
				}
				return list, nil
			}),
		},
		"AccessScope": {
			"handle":      is(func(s scope) any { return s.handle }),
			"description": is(func(s scope) any { return strings.ReplaceAll(s.handle, "_", " ") }),
		},
		"Image": {
			"url":     is(func(i image) any { return i.url }),
			"src":     is(func(i image) any { return i.url }),
			"altText": is(func(i image) any { return i.alt }),
			"width":   is(func(i image) any { return pictureSize }),
			"height":  is(func(i image) any { return pictureSize }),
			"id":      is(func(i image) any { return nil }),
		},
		"MediaImage": {
			"id":               is(func(m media) any { return gid("MediaImage", 1) }),
			"alt":              is(func(m media) any { return m.image.alt }),
			"image":            is(func(m media) any { return m.image }),
			"preview":          is(func(m media) any { return m.image }),
			"mediaContentType": is(func(m media) any { return "IMAGE" }),
			"status":           is(func(m media) any { return "READY" }),
		},
		"MediaPreviewImage": {
			"image":  is(func(i image) any { return i }),
			"status": is(func(i image) any { return "READY" }),
		},
		"MoneyBag": {
			"shopMoney":        is(func(b moneyBag) any { return b.shop }),
			"presentmentMoney": is(func(b moneyBag) any { return b.presentment }),
		},
		"MoneyV2": {
			"amount":       is(func(m money) any { return m.amount }),
			"currencyCode": is(func(m money) any { return m.currency }),
		},
		"PageInfo": {
			"hasNextPage":     is(func(c *connection) any { return c.hasNext }),
			"hasPreviousPage": is(func(c *connection) any { return c.hasPrev }),
			"startCursor": is(func(c *connection) any {
				if len(c.nodes) == 0 {
					return nil
				}
				return cursor(idOf(c.nodes[0]))
			}),
			"endCursor": is(func(c *connection) any {
				if len(c.nodes) == 0 {
					return nil
				}
				return cursor(idOf(c.nodes[len(c.nodes)-1]))
			}),
		},
	}
	for _, of := range []string{"DraftOrder", "DraftOrderLineItem", "LineItem", "ProductVariant", "InventoryLevel", "Location", "Image", "Media"} {
		r[of+"Connection"] = map[string]resolver{
			"nodes":    is(func(c *connection) any { return c.nodes }),
			"pageInfo": is(func(c *connection) any { return c }),
			"edges": is(func(c *connection) any {
				edges := []edge{}
				for _, n := range c.nodes {
					edges = append(edges, edge{n})
				}
				return edges
			}),
		}
		r[of+"Edge"] = map[string]resolver{
			"node":   is(func(e edge) any { return e.node }),
			"cursor": is(func(e edge) any { return cursor(idOf(e.node)) }),
		}
	}
	return r
}

type (
	installation struct{ shop *shop }
	domain       struct{ shop *shop }
	localization struct{}
	address      struct{ shop *shop }
)

func (sh *shop) nodeOf(kind string, id any) (any, error) {
	if id == nil && kind == "Location" {
		return sh.locations[0], nil // location without an id is the primary one
	}
	s, _ := id.(string)
	if _, ok := numericID(kind, s); !ok {
		return nil, badID(s)
	}
	return sh.node(s)
}

func boolOrNull(b *bool) any {
	if b == nil {
		return nil
	}
	return *b
}

func levelID(l *level) string {
	return fmt.Sprintf("gid://shopify/InventoryLevel/%d?inventory_item_id=%d", l.location.id, l.item.id)
}

func (i *item) sku() string {
	if len(i.variants) == 0 {
		return ""
	}
	return i.variants[0].sku
}

// onlineStoreURL is where a product is sold: nowhere when it is not published, a draft or archived.
func (p *product) onlineStoreURL() string {
	if p.publishedAt.IsZero() || p.status == "DRAFT" || p.status == "ARCHIVED" {
		return ""
	}
	return "https://" + p.shop.domain + "/products/" + p.handle
}

func (p *product) image() image {
	base := cmp.Or(p.shop.sim.public, "https://"+p.shop.domain)
	return image{base + "/sim/pictures/" + p.handle + ".png", p.title}
}

func (p Plan) displayName() string {
	switch p {
	case Plus:
		return "Shopify Plus"
	case Advanced:
		return "Advanced"
	default:
		return "Basic"
	}
}

// total adds up prices such as 249.00.
func total(lines []draftLine) string {
	cents := 0
	for _, l := range lines {
		cents += l.quantity * centsOf(l.price)
	}
	return fmt.Sprintf("%d.%02d", cents/100, cents%100)
}

func centsOf(price string) int {
	whole, frac, _ := strings.Cut(price, ".")
	n, _ := strconv.Atoi(whole)
	c, _ := strconv.Atoi((frac + "00")[:2])
	return n*100 + c
}
