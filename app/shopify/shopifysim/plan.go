package shopifysim

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/parser"
	"github.com/vektah/gqlparser/v2/validator"
	"github.com/vektah/gqlparser/v2/validator/rules"
)

// gqlError is an error of an answer.
type gqlError struct {
	Message    string         `json:"message"`
	Locations  []place        `json:"locations,omitempty"`
	Path       []any          `json:"path,omitempty"`
	Extensions map[string]any `json:"extensions,omitempty"`
}

type place struct {
	Line   int `json:"line"`
	Column int `json:"column"`
}

func at(p *ast.Position) []place {
	if p == nil {
		return nil
	}
	return []place{{p.Line, p.Column}}
}

// notSimulated is the loud failure: it names what the app asked for and this package does not answer.
func notSimulated(what string, pos *ast.Position, path []any) gqlError {
	return gqlError{
		Message: "SIMULATOR: not simulated: " + what, Locations: at(pos), Path: path,
		Extensions: map[string]any{"code": "SIMULATOR_NOT_SIMULATED"},
	}
}

// plan is one operation that may be run: parsed, valid, its variables and arguments coerced, its cost
// known, and every field of it simulated.
type plan struct {
	api       *adminAPI
	resolvers resolvers
	op        *ast.OperationDefinition
	roots     []string // the names of its root fields, as far as the document could be read
	vars      map[string]any
	args      map[*ast.Field]map[string]any
	sizes     map[*ast.Field]int // of pages and of lists of ids
	requested int
	bulk      bool // a bulk query: its lists are whole and have no size, and it has no price
}

// newBulkPlan reads the document of a bulk query. With errors, nothing of it may be run.
func newBulkPlan(api *adminAPI, res resolvers, document string) (*plan, []gqlError) {
	p, errs := (&plan{api: api, resolvers: res, bulk: true}).read(document, "", map[string]any{})
	if errs == nil && p.op.Operation != ast.Query {
		errs = []gqlError{{Message: "it must be a query"}}
	}
	return p, errs
}

// newPlan reads a document. With errors, nothing of it may be run.
func newPlan(api *adminAPI, res resolvers, document, operation string, raw map[string]any) (*plan, []gqlError) {
	return (&plan{api: api, resolvers: res}).read(document, operation, raw)
}

func (p *plan) read(document, operation string, raw map[string]any) (*plan, []gqlError) {
	p.args, p.sizes = map[*ast.Field]map[string]any{}, map[*ast.Field]int{}
	api := p.api
	doc, err := parser.ParseQuery(&ast.Source{Input: document})
	if err != nil {
		return p, fromParser(err)
	}
	for _, op := range doc.Operations {
		if operation == "" || op.Name == operation {
			p.op = op
			break
		}
	}
	if p.op == nil || (operation == "" && len(doc.Operations) > 1) {
		return p, []gqlError{{Message: "An operation name is required", Extensions: map[string]any{"code": "missingOperationName"}}}
	}
	p.roots = rootNames(p.op.SelectionSet, doc.Fragments)
	if list := validator.ValidateWithRules(api.schema, doc, rules.NewDefaultRules()); len(list) > 0 {
		return p, fromParser(list)
	}
	root := api.schema.Query
	switch p.op.Operation {
	case ast.Mutation:
		root = api.schema.Mutation
	case ast.Subscription:
		return p, []gqlError{{Message: "Schema is not configured for subscriptions", Locations: at(p.op.Position)}}
	}
	var errs []gqlError
	if p.vars, errs = api.variables(p.op, raw); errs != nil {
		return p, errs
	}
	kind := strings.ToLower(string(p.op.Operation))
	if p.op.Name != "" {
		kind += " " + p.op.Name
	}
	if errs = p.prepare(root.Name, p.op.SelectionSet, []any{kind}); errs != nil {
		return p, errs
	}
	if p.bulk {
		return p, nil
	}
	if p.requested = p.cost(root.Name, p.op.SelectionSet); p.requested > maxQueryCost {
		return p, []gqlError{{
			Message: fmt.Sprintf("Query cost is %d, which exceeds the single query max cost limit (%d).\n\nSee https://shopify.dev/concepts/about-apis/rate-limits for more information on how the\ncost of a query is calculated.", p.requested, maxQueryCost),
			Extensions: map[string]any{
				"code": "MAX_COST_EXCEEDED", "cost": p.requested, "maxCost": maxQueryCost,
				"documentation": "https://shopify.dev/api/usage/limits#rate-limits",
			},
		}}
	}
	return p, nil
}

func rootNames(set ast.SelectionSet, fragments ast.FragmentDefinitionList) []string {
	var names []string
	for _, sel := range set {
		switch sel := sel.(type) {
		case *ast.Field:
			names = append(names, sel.Name)
		case *ast.InlineFragment:
			names = append(names, rootNames(sel.SelectionSet, nil)...)
		case *ast.FragmentSpread:
			if f := fragments.ForName(sel.Name); f != nil {
				names = append(names, rootNames(f.SelectionSet, nil)...)
			}
		}
	}
	return names
}

// prepare checks what the schema does not say: pages have a size, lists are short enough, arguments have
// values of their types, and everything is simulated.
func (p *plan) prepare(parent string, set ast.SelectionSet, path []any) []gqlError {
	var errs []gqlError
	for _, sel := range set {
		switch sel := sel.(type) {
		case *ast.Field:
			errs = append(errs, p.prepareField(parent, sel, append(slices.Clip(path), sel.Alias))...)
		case *ast.InlineFragment:
			on := sel.TypeCondition
			if on == "" {
				on = parent
			}
			errs = append(errs, p.prepare(on, sel.SelectionSet, path)...)
		case *ast.FragmentSpread:
			errs = append(errs, p.prepare(sel.Definition.TypeCondition, sel.Definition.SelectionSet, path)...)
		}
	}
	return errs
}

func (p *plan) prepareField(parent string, f *ast.Field, path []any) []gqlError {
	if f.Name == "__typename" {
		return nil
	}
	name := parent + "." + f.Name
	res, known := p.resolvers.of(parent, f.Name)
	if !known && p.api.schema.Types[parent].Kind == ast.Object {
		return []gqlError{notSimulated(name, f.Position, path)}
	}
	for _, d := range f.Directives {
		if d.Name != "include" && d.Name != "skip" {
			return []gqlError{notSimulated(name+" @"+d.Name, d.Position, path)}
		}
	}
	args, why := p.api.arguments(f, p.vars)
	if why != "" {
		return []gqlError{{Message: why, Locations: at(f.Position), Path: path, Extensions: map[string]any{"code": "argumentLiteralsIncompatible"}}}
	}
	p.args[f] = args
	for _, a := range f.Arguments {
		if v, given := args[a.Name]; given && v != nil && known && !slices.Contains(res.args, a.Name) {
			return []gqlError{notSimulated(name+"("+a.Name+":)", a.Position, path)}
		}
		if list, ok := args[a.Name].([]any); ok && len(list) > 250 {
			return []gqlError{{
				Message:   fmt.Sprintf("The input array size of %d is greater than the maximum allowed of 250.", len(list)),
				Locations: at(f.Position), Path: append(slices.Clip(path), a.Name), Extensions: map[string]any{"code": "MAX_INPUT_SIZE_EXCEEDED"},
			}}
		}
	}
	if ids, ok := args["ids"].([]any); ok {
		p.sizes[f] = len(ids)
	}
	if !p.bulk && p.api.isConnection(f.Definition.Type.Name()) && f.Definition.Arguments.ForName("first") != nil {
		first, hasFirst := args["first"].(int)
		last, hasLast := args["last"].(int)
		bad := ""
		switch {
		case hasFirst == hasLast:
			bad = "you must provide one of first or last"
		case first < 0 || last < 0:
			bad = "first and last cannot be less than zero"
		case first > 250 || last > 250:
			bad = "first and last cannot exceed 250"
		}
		if bad != "" {
			return []gqlError{{Message: bad, Locations: at(f.Position), Path: path, Extensions: map[string]any{"code": "BAD_REQUEST"}}}
		}
		p.sizes[f] = first + last
	}
	return p.prepare(f.Definition.Type.Name(), f.SelectionSet, path)
}

// included evaluates @include and @skip.
func (p *plan) included(directives ast.DirectiveList) bool {
	for _, d := range directives {
		if arg := d.Arguments.ForName("if"); arg != nil && (d.Name == "include" || d.Name == "skip") {
			on, _ := literal(arg.Value, p.vars).(bool)
			if v, ok := literal(arg.Value, p.vars).(coerced); ok {
				on, _ = v.value.(bool)
			}
			if on == (d.Name == "skip") {
				return false
			}
		}
	}
	return true
}

// What the library says, as far as it is said again in Shopify's words.
var (
	unknownField    = regexp.MustCompile(`^Cannot query field "(\w+)" on type "(\w+)"`)
	unknownArgument = regexp.MustCompile(`^Unknown argument "(\w+)" on field "\w+\.(\w+)"`)
	missing         = regexp.MustCompile(`^Field "(\w+)" argument "(\w+)" of type`)
)

// fromParser puts the errors of the library into Shopify's words where an app may read them.
func fromParser(err error) []gqlError {
	var list gqlerror.List
	var one *gqlerror.Error
	if !errors.As(err, &list) {
		if !errors.As(err, &one) {
			return []gqlError{{Message: err.Error()}}
		}
		list = gqlerror.List{one}
	}
	var out []gqlError
	for _, e := range list {
		g := gqlError{Message: e.Message, Extensions: map[string]any{"code": e.Rule}}
		if e.Rule == "" {
			g.Message, g.Extensions = "syntax error, "+e.Message, nil
		}
		for _, l := range e.Locations {
			g.Locations = append(g.Locations, place{l.Line, l.Column})
		}
		if m := unknownField.FindStringSubmatch(e.Message); m != nil {
			g.Message = fmt.Sprintf("Field '%s' doesn't exist on type '%s'", m[1], m[2])
			g.Extensions = map[string]any{"code": "undefinedField", "typeName": m[2], "fieldName": m[1]}
		} else if m := unknownArgument.FindStringSubmatch(e.Message); m != nil {
			g.Message = fmt.Sprintf("Field '%s' doesn't accept argument '%s'", m[2], m[1])
			g.Extensions = map[string]any{"code": "argumentNotAccepted", "name": m[2], "typeName": "Field", "argumentName": m[1]}
		} else if m := missing.FindStringSubmatch(e.Message); m != nil {
			g.Message = fmt.Sprintf("Field '%s' is missing required arguments: %s", m[1], m[2])
			g.Extensions = map[string]any{"code": "missingRequiredArguments", "className": "Field", "name": m[1], "arguments": m[2]}
		}
		out = append(out, g)
	}
	return out
}
