package shopify

import (
	"compress/gzip"
	"io"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator/rules"
)

// adminSchema is Shopify's whole Admin schema.
func adminSchema(t *testing.T) *ast.Schema {
	t.Helper()
	file, err := os.Open("shopifysim/admin_2026-10.nodesc.graphql.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := gqlparser.LoadSchema(&ast.Source{Name: "admin", Input: string(text)})
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func TestEveryDocumentIsValidInShopifysSchemaAndUsed(t *testing.T) {
	t.Parallel()
	schema := adminSchema(t)
	used := map[string]bool{}
	for _, op := range append(operations(), catalogue) {
		text, err := op.text()
		if err != nil {
			t.Fatal(err)
		}
		doc, errs := gqlparser.LoadQueryWithRules(schema, text, rules.NewDefaultRules())
		if len(errs) > 0 {
			t.Errorf("%v: %v", op.files, errs)
			continue
		}
		for _, f := range op.files {
			used[f] = true
		}
		if len(doc.Operations) != 1 || (doc.Operations[0].Name != op.name && op.name != catalogue.name) {
			t.Errorf("%v: the document holds something else than the operation %q", op.files, op.name)
		}
		if first, ok := doc.Operations[0].SelectionSet[0].(*ast.Field); !ok || first.Name != op.name {
			t.Errorf("%v: does not ask for %q first", op.files, op.name)
		}
		walk(doc.Operations[0].SelectionSet, func(f *ast.Field) {
			if d := f.Definition.Directives.ForName("deprecated"); d != nil {
				t.Errorf("%v: asks for %s, which Shopify is about to remove", op.files, f.Name)
			}
		})
	}
	files, err := documents.ReadDir("graphql")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(f.Name(), path.Ext(f.Name())); !used[name] {
			t.Errorf("graphql/%s is never sent", f.Name())
		}
	}
}

func TestTheCostOfEveryOperationIsKnownBeforeItIsSent(t *testing.T) {
	t.Parallel()
	schema := adminSchema(t)
	variables := []map[string]any{
		{"ids": []string{"1"}, "first": 10, "levels": fewLevels},
		{"ids": make([]string, 20), "first": 50, "levels": allLevels},
	}
	for _, op := range operations() {
		text, err := op.text()
		if err != nil {
			t.Fatal(err)
		}
		doc, errs := gqlparser.LoadQueryWithRules(schema, text, rules.NewDefaultRules())
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		for _, all := range variables {
			vars := map[string]any{}
			for _, v := range doc.Operations[0].VariableDefinitions {
				if value, ok := all[v.Variable]; ok {
					vars[v.Variable] = value
				}
			}
			if got, want := op.points(vars), price(doc.Operations[0].SelectionSet, vars); got != want {
				t.Errorf("%v with %v: %d points, by Shopify's rules %d", op.files, vars, got, want)
			}
		}
	}
}

// price counts the points of a selection by the rules of shopify.dev (GraphQL Admin API rate limits):
// an object 1, a connection 2 and what it holds, a mutation 10, scalars nothing. It counts a page's
// info and what a mutation returns as objects, which Shopify does not always do.
func price(set ast.SelectionSet, vars map[string]any) int {
	total := 0
	for _, s := range set {
		switch s := s.(type) {
		case *ast.Field:
			total += fieldPrice(s, vars)
		case *ast.FragmentSpread:
			total += price(s.Definition.SelectionSet, vars)
		case *ast.InlineFragment:
			total += price(s.SelectionSet, vars)
		}
	}
	return total
}

func fieldPrice(f *ast.Field, vars map[string]any) int {
	inner := price(f.SelectionSet, vars)
	value := func(name string) any {
		if a := f.Arguments.ForName(name); a != nil {
			v, err := a.Value.Value(vars)
			if err != nil {
				panic(err)
			}
			return v
		}
		return nil
	}
	if len(f.SelectionSet) == 0 {
		return 0
	}
	if f.ObjectDefinition.Name == "Mutation" {
		return 10 + inner
	}
	if ids, ok := value("ids").([]string); ok {
		return len(ids) * (1 + inner)
	}
	if strings.HasSuffix(f.Definition.Type.Name(), "Connection") {
		items := 0
		switch first := value("first").(type) {
		case int:
			items = first
		case int64:
			items = int(first)
		}
		page := 0
		for _, s := range f.SelectionSet {
			if s, ok := s.(*ast.Field); ok && s.Name == "nodes" {
				page += items * (1 + price(s.SelectionSet, vars))
			} else if ok {
				page += fieldPrice(s, vars)
			}
		}
		return 2 + page
	}
	return 1 + inner
}

// What Shopify says of bulk queries (shopify.dev, bulk operations), and what reading one line at a time
// needs: one list, at the top, of edges.
func TestTheCataloguesQueryKeepsToTheRulesOfBulkQueries(t *testing.T) {
	t.Parallel()
	text, err := catalogue.text()
	if err != nil {
		t.Fatal(err)
	}
	doc, errs := gqlparser.LoadQueryWithRules(adminSchema(t), text, rules.NewDefaultRules())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if len(doc.Fragments) > 0 || len(doc.Operations[0].VariableDefinitions) > 0 {
		t.Error("it has fragments or variables, of which nothing is known")
	}
	var lists []string
	walk(doc.Operations[0].SelectionSet, func(f *ast.Field) {
		if strings.HasSuffix(f.Definition.Type.Name(), "Connection") {
			lists = append(lists, f.Name)
		}
		if len(f.Arguments) > 0 {
			t.Errorf("%s has arguments", f.Name)
		}
	})
	if len(lists) != 1 || lists[0] != "productVariants" {
		t.Errorf("it lists %v", lists)
	}
}

func walk(set ast.SelectionSet, visit func(*ast.Field)) {
	for _, s := range set {
		switch s := s.(type) {
		case *ast.Field:
			visit(s)
			walk(s.SelectionSet, visit)
		case *ast.FragmentSpread:
			walk(s.Definition.SelectionSet, visit)
		case *ast.InlineFragment:
			walk(s.SelectionSet, visit)
		}
	}
}

func TestASearchValueCannotLeaveItsQuotes(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"OAK-NAT":         `'OAK-NAT'`,
		`x' OR sku:'y`:    `'x\' OR sku:\'y'`,
		`back\slash`:      `'back\\slash'`,
		`end\`:            `'end\\'`,
		`"double" quotes`: `'"double" quotes'`,
	} {
		if got := quoted(value); got != want {
			t.Errorf("quoted(%q) = %s, want %s", value, got, want)
		}
	}
}

func TestAnIdOfAnotherKindIsNoId(t *testing.T) {
	t.Parallel()
	if id, err := idOf("DraftOrder", "gid://shopify/DraftOrder/42"); err != nil || id != 42 {
		t.Errorf("got %d, %v", id, err)
	}
	for _, bad := range []string{"", "42", "gid://shopify/Order/42", "gid://shopify/DraftOrder/", "gid://shopify/DraftOrder/-1", "gid://shopify/DraftOrder/0", "gid://shopify/DraftOrder/1?x=2"} {
		if id, err := idOf("DraftOrder", bad); err == nil {
			t.Errorf("%q was read as %d", bad, id)
		}
	}
}
