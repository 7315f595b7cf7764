package shopifysim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/app/simkit"
)

const chairs, lamps = "chairs.myshopify.com", "lamps.myshopify.com"

// Fixed ids of the demo's world.
const (
	oakNatural  = 30011 // sold out
	oakWhite    = 30013 // 5 in stock
	diningTable = 30091 // 1 in stock
	readRust    = 30022 // 3 at the second location
)

type answer struct {
	Data   map[string]any
	Errors []struct {
		Message    string
		Path       []any
		Extensions map[string]any
	}
	Extensions struct {
		Cost struct {
			RequestedQueryCost float64
			ActualQueryCost    *float64
			ThrottleStatus     struct{ MaximumAvailable, CurrentlyAvailable, RestoreRate float64 }
		}
		Search []any
	}
	status int
	raw    string
}

// at reads a value of the answer by its path, such as "draftOrder.id".
func (a answer) at(t *testing.T, path string) any {
	t.Helper()
	var v any = a.Data
	for _, step := range strings.Split(path, ".") {
		var i int
		if list, ok := v.([]any); ok {
			if _, err := fmt.Sscan(step, &i); err != nil || i >= len(list) {
				t.Fatalf("no %s in %s", path, a.raw)
			}
			v = list[i]
			continue
		}
		m, ok := v.(map[string]any)
		if !ok {
			t.Fatalf("no %s in %s", path, a.raw)
		}
		v = m[step]
	}
	return v
}

func (a answer) code() string {
	if len(a.Errors) == 0 {
		return ""
	}
	code, _ := a.Errors[0].Extensions["code"].(string)
	return code
}

func post(ctx context.Context, s *Test, shop, token, document, variables string) (answer, error) {
	if variables == "" {
		variables = "null"
	}
	q, err := json.Marshal(document)
	if err != nil {
		return answer{}, err
	}
	body := `{"query":` + string(q) + `,"variables":` + variables + `}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/shopify/"+shop+"/admin/api/2026-10/graphql.json", strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Shopify-Access-Token", token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	a := answer{status: res.StatusCode, raw: string(text)}
	if err != nil || res.StatusCode != http.StatusOK {
		return a, err
	}
	return a, json.NewDecoder(bytes.NewReader(text)).Decode(&a)
}

// ask sends a document that must be answered at all; what it says is the test's to judge.
func ask(t *testing.T, s *Test, shop, document, variables string) answer {
	t.Helper()
	a, err := post(t.Context(), s, shop, s.Token(shop), document, variables)
	if err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	return a
}

// get sends a document that must be answered without an error.
func get(t *testing.T, s *Test, shop, document, variables string) answer {
	t.Helper()
	a := ask(t, s, shop, document, variables)
	if a.status != http.StatusOK || len(a.Errors) > 0 {
		t.Fatalf("%s: %d %s", document, a.status, a.raw)
	}
	return a
}

const (
	createDoc = `mutation HoldCreate($input: DraftOrderInput!){draftOrderCreate(input:$input){draftOrder{id name status ready invoiceUrl reserveInventoryUntil createdAt warnings{errorCode field message}} userErrors{field message}}}`
	readDoc   = `query HoldRead($id: ID!){draftOrder(id:$id){id status completedAt reserveInventoryUntil updatedAt order{id name cancelledAt displayFinancialStatus}}}`
	deleteDoc = `mutation HoldDelete($input: DraftOrderDeleteInput!){draftOrderDelete(input:$input){deletedId userErrors{field message}}}`
	findDoc   = `query HoldFind($q:String!){draftOrders(first:10,query:$q,sortKey:ID,reverse:true){nodes{id status tags customAttributes{key value} order{id}} pageInfo{hasNextPage endCursor}}}`
	stockDoc  = `query Stock($id:ID!){productVariant(id:$id){id availableForSale inventoryPolicy inventoryQuantity sellableOnlineQuantity requiresComponents product{id status onlineStoreUrl} inventoryItem{id tracked inventoryLevels(first:20){nodes{location{id isActive fulfillsOnlineOrders} quantities(names:["available","reserved","committed","on_hand"]){name quantity updatedAt}}}}}}`
)

func variantVar(id int64) string { return fmt.Sprintf(`{"id":"gid://shopify/ProductVariant/%d"}`, id) }

func draftInput(s *Test, variant int64, reserve time.Duration, extra string) string {
	return fmt.Sprintf(`{"input":{"lineItems":[{"variantId":"gid://shopify/ProductVariant/%d","quantity":1}],"reserveInventoryUntil":%q%s}}`,
		variant, s.Clock.Now().Add(reserve).Format(time.RFC3339), extra)
}

// create makes a draft that reserves for ten minutes and returns its global id.
func create(t *testing.T, s *Test, shop string, variant int64, extra string) string {
	t.Helper()
	a := get(t, s, shop, createDoc, draftInput(s, variant, 10*time.Minute, extra))
	if e := a.at(t, "draftOrderCreate.userErrors").([]any); len(e) > 0 {
		t.Fatalf("create: %v", e)
	}
	return a.at(t, "draftOrderCreate.draftOrder.id").(string)
}

func TestARequestWithoutTheShopsTokenIsRefused(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	for token, want := range map[string]int{"": 401, s.Token(lamps): 401, s.Token(chairs): 200} {
		a, err := post(t.Context(), s, chairs, token, `{shop{name}}`, "")
		if err != nil || a.status != want {
			t.Errorf("token %q: %d %v, want %d", token, a.status, err, want)
		}
	}
	if a := ask(t, s, "nobody.myshopify.com", `{shop{name}}`, ""); a.status != 404 {
		t.Errorf("unknown shop: %d, want 404", a.status)
	}
	if err := s.Uninstall(chairs); err != nil {
		t.Fatal(err)
	}
	if a := ask(t, s, chairs, `{shop{name}}`, ""); a.status != 401 {
		t.Errorf("after uninstalling: %d, want 401", a.status)
	}
}

func TestAShopIsFoundByItsHostToo(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	req, err := http.NewRequest(http.MethodPost, "https://"+lamps+"/admin/api/2026-10/graphql.json", strings.NewReader(`{"query":"{shop{name currencyCode}}"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Shopify-Access-Token", s.Token(lamps))
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(text), `"currencyCode":"USD"`) {
		t.Errorf("answer %s %v, want the lamps' shop", text, err)
	}
}

func TestWhatTheSchemaDoesNotHaveIsRefusedAsShopifyRefusesIt(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	for _, c := range []struct{ document, code, message string }{
		{`{shop{nam}}`, "undefinedField", "Field 'nam' doesn't exist on type 'Shop'"},
		{`{draftOrder(id:"gid://shopify/DraftOrder/1"){note}}`, "undefinedField", "Field 'note' doesn't exist on type 'DraftOrder'"},
		{`{shop(id:1){name}}`, "argumentNotAccepted", "Field 'shop' doesn't accept argument 'id'"},
		{`{draftOrder{id}}`, "missingRequiredArguments", "Field 'draftOrder' is missing required arguments: id"},
		{`{shop{name}`, "", "syntax error"},
		{`{draftOrders{nodes{id}}}`, "BAD_REQUEST", "you must provide one of first or last"},
		{`{draftOrders(first:251){nodes{id}}}`, "BAD_REQUEST", "cannot exceed 250"},
		{`mutation{draftOrderCreate(input:{lineItems:[{variantId:"gid://shopify/ProductVariant/30011",quantity:99999999999}]}){userErrors{message}}}`, "argumentLiteralsIncompatible", "Could not coerce value"},
	} {
		a := ask(t, s, chairs, c.document, "")
		if len(a.Errors) == 0 || a.code() != c.code || !strings.Contains(a.Errors[0].Message, c.message) || a.Data != nil {
			t.Errorf("%s: %s, want %s %q and no data", c.document, a.raw, c.code, c.message)
		}
	}
}

func TestVariablesAreCoercedStrictly(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	line := `"lineItems":[{"variantId":"gid://shopify/ProductVariant/30013","quantity":1}]`
	for name, c := range map[string]struct {
		vars, explanation string
	}{
		"a string for an Int":           {`{"input":{"lineItems":[{"variantId":"gid://shopify/ProductVariant/30013","quantity":"1"}]}}`, "Could not coerce value"},
		"a float for an Int":            {`{"input":{"lineItems":[{"variantId":"gid://shopify/ProductVariant/30013","quantity":1.5}]}}`, "Could not coerce value"},
		"an Int over 32 bits":           {`{"input":{"lineItems":[{"variantId":"gid://shopify/ProductVariant/30013","quantity":3000000000}]}}`, "Could not coerce value"},
		"a field that does not exist":   {`{"input":{` + line + `,"location":"x"}}`, "Field is not defined on DraftOrderInput"},
		"a number for a String":         {`{"input":{` + line + `,"note":7}}`, "Could not coerce value"},
		"an enum in another case":       {`{"input":{` + line + `,"presentmentCurrencyCode":"eur"}}`, "to be one of"},
		"a string for a Boolean":        {`{"input":{` + line + `,"taxExempt":"true"}}`, "Could not coerce value"},
		"a date that is none":           {`{"input":{` + line + `,"reserveInventoryUntil":"tomorrow"}}`, "invalid datetime"},
		"null where there must be one":  {`{"input":null}`, "Expected value to not be null"},
		"nothing where there must be":   {`{}`, "Expected value to not be null"},
		"null in a list of things":      {`{"input":{"lineItems":[null]}}`, "Expected value to not be null"},
		"a missing field of an input":   {`{"input":{"lineItems":[{"variantId":"gid://shopify/ProductVariant/30013"}]}}`, "Expected value to not be null"},
		"a typename in an input":        {`{"input":{` + line + `,"__typename":"DraftOrderInput"}}`, "Field is not defined"},
		"an attribute without a value":  {`{"input":{` + line + `,"customAttributes":[{"key":"a"}]}}`, "Expected value to not be null"},
		"a list for an object":          {`{"input":[1,2]}`, "to be a key-value object"},
		"text that is no number in Int": {`{"input":{"lineItems":[{"variantId":"gid://shopify/ProductVariant/30013","quantity":true}]}}`, "Could not coerce value"},
	} {
		a := ask(t, s, chairs, createDoc, c.vars)
		if a.code() != "INVALID_VARIABLE" || !strings.Contains(a.raw, c.explanation) {
			t.Errorf("%s: %s, want INVALID_VARIABLE %q", name, a.raw, c.explanation)
		}
	}
	if inv, err := s.Inventory(chairs, oakWhite); err != nil || inv.Reserved != 0 {
		t.Errorf("after refused requests %d are reserved (%v), want none", inv.Reserved, err)
	}
}

func TestWhatIsNotSimulatedFailsLoudlyAndChangesNothing(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	for _, c := range []struct{ document, names string }{
		{`mutation{draftOrderUpdate(id:"gid://shopify/DraftOrder/1",input:{note:"x"}){userErrors{message}}}`, "Mutation.draftOrderUpdate"},
		{`mutation{draftOrderComplete(id:"gid://shopify/DraftOrder/1"){userErrors{message}}}`, "Mutation.draftOrderComplete"},
		{`{draftOrders(first:1,savedSearchId:"gid://shopify/SavedSearch/1"){nodes{id}}}`, "QueryRoot.draftOrders(savedSearchId:)"},
		{`{draftOrders(first:1,query:"tag:a OR tag:b"){nodes{id}}}`, "QueryRoot.draftOrders(query:"},
		{`{draftOrders(first:1,query:"created_at:>2026-01-01"){nodes{id}}}`, "QueryRoot.draftOrders(query:"},
		{`{shop{shopPolicies{id}}}`, "Shop.shopPolicies"},
		{`{__schema{types{name}}}`, "QueryRoot.__schema"},
		{`mutation{draftOrderCreate(input:{lineItems:[{variantId:"gid://shopify/ProductVariant/30013",quantity:1}],purchasingEntity:{customerId:"gid://shopify/Customer/1"}}){userErrors{message}}}`, "DraftOrderInput.purchasingEntity"},
		{`mutation{draftOrderCreate(input:{lineItems:[{variantId:"gid://shopify/ProductVariant/30013",quantity:1}]}) @idempotent(key:"k"){userErrors{message}}}`, "@idempotent"},
		{`mutation{draftOrderCreate(input:{lineItems:[{variantId:"gid://shopify/ProductVariant/30013",quantity:1}]}){draftOrder{id customer{id}} userErrors{message}}}`, "DraftOrder.customer"},
	} {
		a := ask(t, s, chairs, c.document, "")
		if a.code() != "SIMULATOR_NOT_SIMULATED" || !strings.Contains(a.Errors[0].Message, "SIMULATOR: not simulated: ") || !strings.Contains(a.Errors[0].Message, c.names) {
			t.Errorf("%s: %s, want a loud failure that names %s", c.document, a.raw, c.names)
		}
	}
	if d, err := s.Drafts(chairs); err != nil || len(d) != 0 {
		t.Errorf("%d drafts (%v), want none", len(d), err)
	}
}

func TestAScopeThatWasNotGrantedIsDenied(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	s.grant(t, "read_products")
	a := ask(t, s, chairs, `{productVariant(id:"gid://shopify/ProductVariant/30013"){sellableOnlineQuantity inventoryItem{id inventoryLevels(first:1){nodes{id}}}} locations(first:1){nodes{id}}}`, "")
	if !strings.Contains(a.raw, "Access denied for inventoryLevels field. Required access: `read_inventory` access scope.") ||
		!strings.Contains(a.raw, "Access denied for locations field.") || a.code() != "ACCESS_DENIED" {
		t.Errorf("%s: want inventoryLevels and locations denied", a.raw)
	}
	if a := ask(t, s, chairs, createDoc, draftInput(s, oakWhite, time.Minute, "")); a.code() != "ACCESS_DENIED" {
		t.Errorf("create: %s, want ACCESS_DENIED", a.raw)
	}
	if a := get(t, s, chairs, `{nodes(ids:["gid://shopify/ProductVariant/30013"]){id ... on ProductVariant{sellableOnlineQuantity}}}`, ""); a.at(t, "nodes.0.sellableOnlineQuantity") != 5.0 {
		t.Errorf("%s: a granted scope is enough for its fields", a.raw)
	}
	if d, err := s.Drafts(chairs); err != nil || len(d) != 0 {
		t.Errorf("a denied create made %d drafts (%v)", len(d), err)
	}
	s.grant(t, DefaultScopes()...)
	if a := ask(t, s, chairs, `{productVariant(id:"gid://shopify/ProductVariant/30013"){publishedOnCurrentPublication}}`, ""); len(a.Errors) == 0 {
		t.Errorf("%s: want publishedOnCurrentPublication refused", a.raw)
	}
	if a := ask(t, s, chairs, `{product(id:"gid://shopify/Product/3001"){publishedOnCurrentPublication}}`, ""); a.code() != "ACCESS_DENIED" {
		t.Errorf("%s: want read_product_listings asked for", a.raw)
	}
}

func TestCostsAreCountedByShopifysRules(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	id := create(t, s, chairs, oakWhite, "")
	ids := func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(`"gid://shopify/ProductVariant/%d"`, 30011+i)
		}
		return `{"ids":[` + strings.Join(list, ",") + `]}`
	}
	for _, c := range []struct {
		document, vars    string
		requested, actual float64
	}{
		{`{shop{name}}`, "", 1, 1},
		{createDoc, draftInput(s, oakWhite, time.Hour, ""), 10, 10},
		{readDoc, `{"id":"` + id + `"}`, 2, 1}, // no order yet
		{readDoc, `{"id":"gid://shopify/DraftOrder/1"}`, 2, 0},
		{deleteDoc, `{"input":{"id":"gid://shopify/DraftOrder/1"}}`, 10, 10},
		{`query($ids:[ID!]!){nodes(ids:$ids){... on ProductVariant{id product{id} inventoryItem{id}}}}`, ids(3), 9, 9},
		{`query($ids:[ID!]!){nodes(ids:$ids){... on ProductVariant{id}}}`, ids(250), 250, 17}, // so many exist
		{`{draftOrders(first:20){nodes{id order{id}} pageInfo{hasNextPage}}}`, "", 41, 3},
		{`{draftOrders(first:20){edges{cursor node{id}}}}`, "", 21, 3},
		{stockDoc, variantVar(oakWhite), 64, 7},
	} {
		a := get(t, s, chairs, c.document, c.vars)
		cost := a.Extensions.Cost
		if cost.RequestedQueryCost != c.requested || cost.ActualQueryCost == nil || *cost.ActualQueryCost != c.actual {
			t.Errorf("%s: requested %v actual %v, want %v %v", c.document, cost.RequestedQueryCost, *cost.ActualQueryCost, c.requested, c.actual)
		}
	}
	if a := ask(t, s, chairs, `query($ids:[ID!]!){nodes(ids:$ids){... on ProductVariant{id product{id} inventoryItem{id} image{url} selectedOptions{name}}}}`, ids(201)); a.code() != "MAX_COST_EXCEEDED" {
		t.Errorf("1,005 points: %s, want MAX_COST_EXCEEDED", a.raw)
	}
	if a := ask(t, s, chairs, `query($ids:[ID!]!){nodes(ids:$ids){id}}`, ids(251)); a.code() != "MAX_INPUT_SIZE_EXCEEDED" {
		t.Errorf("251 ids: %s, want MAX_INPUT_SIZE_EXCEEDED", a.raw)
	}
}

func TestAnEmptyBucketThrottlesUntilTheClockFillsIt(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	sh, err := s.lock(chairs)
	if err != nil {
		t.Fatal(err)
	}
	sh.bucket.level = -1000 // ten seconds until it is at 0
	sh.mu.Unlock()
	a := ask(t, s, chairs, createDoc, draftInput(s, oakWhite, time.Hour, ""))
	status := a.Extensions.Cost.ThrottleStatus
	if a.status != 200 || a.code() != "THROTTLED" || a.Data != nil || status.MaximumAvailable != 2000 || status.RestoreRate != 100 || a.Extensions.Cost.ActualQueryCost != nil {
		t.Errorf("%d %s, want THROTTLED with the bucket's state", a.status, a.raw)
	}
	if d, err := s.Drafts(chairs); err != nil || len(d) != 0 {
		t.Errorf("a throttled create made %d drafts (%v)", len(d), err)
	}
	s.Clock.Push(11 * time.Second)
	create(t, s, chairs, oakWhite, "")
	if a := get(t, s, lamps, `{shop{name plan{publicDisplayName shopifyPlus}}}`, ""); a.Extensions.Cost.ThrottleStatus.MaximumAvailable != 20000 || a.Extensions.Cost.ThrottleStatus.RestoreRate != 1000 {
		t.Errorf("%s: a Plus shop has ten times as much", a.raw)
	}
}

func TestSearchFindsDraftsByTagAndWarnsOfWhatItCannotFilter(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	a := create(t, s, chairs, oakWhite, `,"tags":["holdfast","holdfast-7"],"customAttributes":[{"key":"_holdfast_hold","value":"7"}]`)
	b := create(t, s, chairs, oakWhite, `,"tags":["Holdfast","holdfast-77"]`)
	find := func(q string) []any {
		t.Helper()
		return get(t, s, chairs, findDoc, fmt.Sprintf(`{"q":%q}`, q)).at(t, "draftOrders.nodes").([]any)
	}
	if got := find("tag:'holdfast-7'"); len(got) != 1 || got[0].(map[string]any)["id"] != a {
		t.Errorf("tag:'holdfast-7' finds %v, want %s", got, a)
	}
	if got := find("tag:holdfast status:open"); len(got) != 2 || got[0].(map[string]any)["id"] != b {
		t.Errorf("tag:holdfast finds %v, want both, the newest first", got)
	}
	if got := find("tag:'holdfast' AND status:completed"); len(got) != 0 {
		t.Errorf("completed ones: %v, want none", got)
	}
	wrong := get(t, s, chairs, findDoc, `{"q":"email:'x@example.com'"}`)
	if n := len(wrong.at(t, "draftOrders.nodes").([]any)); n != 2 || len(wrong.Extensions.Search) != 1 {
		t.Errorf("%s: want the unfiltered list and a warning", wrong.raw)
	}
	page := func(after string) answer {
		return get(t, s, chairs, `query($a:String){draftOrders(first:1,after:$a,query:"tag:holdfast"){nodes{id} pageInfo{hasNextPage endCursor}}}`, after)
	}
	one := page(`{}`)
	if one.at(t, "draftOrders.nodes.0.id") != a || one.at(t, "draftOrders.pageInfo.hasNextPage") != true {
		t.Errorf("first page: %s", one.raw)
	}
	get(t, s, chairs, deleteDoc, `{"input":{"id":"`+a+`"}}`) // a cursor outlives its draft
	two := page(fmt.Sprintf(`{"a":%q}`, one.at(t, "draftOrders.pageInfo.endCursor")))
	if two.at(t, "draftOrders.nodes.0.id") != b || two.at(t, "draftOrders.pageInfo.hasNextPage") != false {
		t.Errorf("second page: %s", two.raw)
	}
}

func TestProductsAndVariantsReadAsTheMerchantHasThem(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	doc := `query($id:ID!){productVariant(id:$id){legacyResourceId title sku price availableForSale sellableOnlineQuantity requiresComponents inventoryPolicy product{handle title status publishedAt onlineStoreUrl featuredMedia{preview{image{url}} ... on MediaImage{image{altText}}}} inventoryItem{tracked variants(first:2){nodes{id}}}}}`
	for _, c := range []struct {
		variant int64
		path    string
		want    any
	}{
		{30011, "productVariant.sellableOnlineQuantity", 0.0},
		{30022, "productVariant.sellableOnlineQuantity", 3.0},
		{30023, "productVariant.sellableOnlineQuantity", 0.0}, // in the showroom only
		{30031, "productVariant.availableForSale", true},      // CONTINUE
		{30041, "productVariant.inventoryItem.tracked", false},
		{30051, "productVariant.product.onlineStoreUrl", nil},
		{30061, "productVariant.product.status", "ARCHIVED"},
		{30081, "productVariant.requiresComponents", true},
		{30081, "productVariant.sellableOnlineQuantity", 1.0}, // 5 chairs, 1 table
		{30101, "productVariant.inventoryItem.variants.nodes.1.id", "gid://shopify/ProductVariant/30102"},
		{30011, "productVariant.product.featuredMedia.preview.image.url", s.URL + "/sim/pictures/oak-chair.png"},
		{30011, "productVariant.product.onlineStoreUrl", "https://chairs.myshopify.com/products/oak-chair"},
	} {
		a := get(t, s, chairs, doc, variantVar(c.variant))
		if got := a.at(t, c.path); got != c.want {
			t.Errorf("variant %d: %s is %v, want %v", c.variant, c.path, got, c.want)
		}
	}
	if a := get(t, s, chairs, doc, variantVar(1)); a.at(t, "productVariant") != nil {
		t.Errorf("an unknown variant: %s, want null", a.raw)
	}
	if a := ask(t, s, chairs, doc, `{"id":"gid://shopify/Product/3001"}`); a.code() != "RESOURCE_NOT_FOUND" {
		t.Errorf("an id of another kind: %s", a.raw)
	}
	skus := get(t, s, chairs, `{a:productVariants(first:2,query:"sku:'KIDS'"){nodes{id}} b:productVariants(first:2,query:"sku:OAK-SMK"){nodes{id}}}`, "")
	if len(skus.at(t, "a.nodes").([]any)) != 2 || skus.at(t, "b.nodes.0.id") != "gid://shopify/ProductVariant/30012" {
		t.Errorf("by SKU: %s", skus.raw)
	}
	if got := get(t, s, chairs, `{locations(first:5,sortKey:ID){nodes{id name isActive fulfillsOnlineOrders}}}`, "").at(t, "locations.nodes.2.fulfillsOnlineOrders"); got != false {
		t.Errorf("the showroom fulfils online: %v", got)
	}
	items := get(t, s, chairs, `{nodes(ids:["gid://shopify/InventoryItem/40101","gid://shopify/Product/3001","gid://shopify/ProductVariant/9"]){__typename ... on InventoryItem{variants(first:3){nodes{id}}} ... on Product{all:variants(first:5){nodes{id}}}}}`, "")
	if len(items.at(t, "nodes.0.variants.nodes").([]any)) != 2 || len(items.at(t, "nodes.1.all.nodes").([]any)) != 3 || items.at(t, "nodes.2") != nil {
		t.Errorf("nodes: %s", items.raw)
	}
}

func TestFragmentsAliasesAndDirectivesAreHonoured(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	a := get(t, s, chairs, `query($yes:Boolean!){x:shop{...F} shop{name @skip(if:$yes) id @include(if:$yes)}} fragment F on Shop{name ... on Shop{currencyCode}}`, `{"yes":true}`)
	if a.at(t, "x.currencyCode") != "EUR" || a.at(t, "x.name") != "Chairs" || a.at(t, "shop.id") != "gid://shopify/Shop/1001" || a.at(t, "shop.name") != nil {
		t.Errorf("answer %s", a.raw)
	}
	if strings.Index(a.raw, `"x"`) > strings.Index(a.raw, `"shop"`) {
		t.Errorf("answer %s, want the order of the document", a.raw)
	}
}

func TestEveryRequestIsRecorded(t *testing.T) {
	t.Parallel()
	s := NewTest(t)
	get(t, s, chairs, stockDoc, variantVar(oakWhite))
	ask(t, s, chairs, `{nope}`, "")
	s.Faults.Add(simkit.Fault{Target: "shopify", Op: "draftOrderCreate", Mode: "status", Code: 503})
	ask(t, s, chairs, createDoc, draftInput(s, oakWhite, time.Hour, ""))
	all := s.Requests(chairs)
	if len(all) != 3 {
		t.Fatalf("%d requests, want 3", len(all))
	}
	if r := all[0]; r.Op != "productVariant" || r.Requested != 64 || r.Cost != 7 || r.Status != 200 || !bytes.Contains(r.Variables, []byte("30013")) || !bytes.Contains(r.Answer, []byte(`"sellableOnlineQuantity":5`)) {
		t.Errorf("the stock read is recorded as %+v", r)
	}
	if r := all[1]; len(r.Errors) != 1 || r.Op != "nope" {
		t.Errorf("the bad one is recorded as %+v", r)
	}
	if r := all[2]; r.Status != 503 || len(r.Faults) != 1 {
		t.Errorf("the failed one is recorded as %+v", r)
	}
	if n := len(s.Requests(lamps)); n != 0 {
		t.Errorf("%d requests of the other shop", n)
	}
}
