package shopifysim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/vektah/gqlparser/v2/ast"
)

// exec runs a plan against one locked shop.
type exec struct {
	*plan
	sh     *shop
	now    time.Time
	scopes []string
	lag    *time.Duration // of the search index; nil = none; 0 = it finds nothing
	// bulkFails: the bulk query that this operation begins will fail half way
	bulkFails bool
	errs      []gqlError
	spent     int   // points that the answer really costs
	search    []any // what Shopify says about a search, in extensions.search
}

// resolvers is what is simulated: per type, per field.
type resolvers map[string]map[string]resolver

// resolver answers one field. It honours the arguments that args names; any other is not simulated.
type resolver struct {
	args []string
	get  func(x *exec, obj any, args map[string]any) (any, error)
}

func (r resolvers) of(typ, field string) (resolver, bool) {
	res, ok := r[typ][field]
	return res, ok
}

// is answers a field of an object of type T from the object alone.
func is[T any](get func(o T) any) resolver {
	return resolver{get: func(_ *exec, obj any, _ map[string]any) (any, error) { return get(obj.(T)), nil }}
}

// by answers a field of an object of type T with arguments.
func by[T any](get func(x *exec, o T, args map[string]any) (any, error), args ...string) resolver {
	return resolver{args, func(x *exec, obj any, a map[string]any) (any, error) { return get(x, obj.(T), a) }}
}

// object is a JSON object whose keys stay in the order of the selection.
type object struct {
	keys   []string
	values []any
}

func (o *object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, k := range o.keys {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(k)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(o.values[i])
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// run answers the operation. data is null when an error went up to the top.
func (x *exec) run() (data any) {
	root := x.api.schema.Query.Name
	if x.op.Operation == ast.Mutation {
		root = x.api.schema.Mutation.Name
	}
	if o, ok := x.selection(root, x.sh, []ast.SelectionSet{x.op.SelectionSet}, nil); ok {
		return o
	}
	return nil
}

type collected struct {
	key    string
	fields []*ast.Field
}

// collect merges the fields that are asked of an object of type typ, in order (GraphQL specification, 6.3.2).
func (x *exec) collect(typ string, sets []ast.SelectionSet) []*collected {
	var out []*collected
	var add func(set ast.SelectionSet)
	add = func(set ast.SelectionSet) {
		for _, sel := range set {
			switch sel := sel.(type) {
			case *ast.Field:
				if !x.included(sel.Directives) {
					continue
				}
				if i := slices.IndexFunc(out, func(c *collected) bool { return c.key == sel.Alias }); i >= 0 {
					out[i].fields = append(out[i].fields, sel)
				} else {
					out = append(out, &collected{sel.Alias, []*ast.Field{sel}})
				}
			case *ast.InlineFragment:
				if x.included(sel.Directives) && (sel.TypeCondition == "" || x.api.is(typ, sel.TypeCondition)) {
					add(sel.SelectionSet)
				}
			case *ast.FragmentSpread:
				if x.included(sel.Directives) && x.api.is(typ, sel.Definition.TypeCondition) {
					add(sel.Definition.SelectionSet)
				}
			}
		}
	}
	for _, set := range sets {
		add(set)
	}
	return out
}

// selection answers what is asked of one object. ok is false when a field that cannot be null is: then
// the object is null.
func (x *exec) selection(typ string, obj any, sets []ast.SelectionSet, path []any) (o *object, ok bool) {
	o, ok = &object{}, true
	for _, c := range x.collect(typ, sets) {
		value, fine := x.field(typ, obj, c, append(slices.Clip(path), c.key))
		if !fine {
			ok = false // the others are answered all the same: they may change something
		}
		o.keys = append(o.keys, c.key)
		o.values = append(o.values, value)
	}
	return o, ok
}

func (x *exec) field(typ string, obj any, c *collected, path []any) (value any, ok bool) {
	f := c.fields[0]
	if f.Name == "__typename" {
		return typ, true
	}
	def := x.api.schema.Types[typ].Fields.ForName(f.Name)
	fail := func(e gqlError) (any, bool) {
		e.Locations, e.Path = at(f.Position), path
		x.errs = append(x.errs, e)
		return nil, !def.Type.NonNull
	}
	if need := x.api.required(x.scopes, typ, def); need != nil {
		return fail(accessDenied(f.Name, need))
	}
	res, known := x.resolvers.of(typ, f.Name)
	if !known {
		return fail(notSimulated(typ+"."+f.Name, nil, nil))
	}
	args := x.args[f]
	if typ == x.api.schema.Mutation.Name {
		x.spent += 10
	}
	v, err := res.get(x, obj, args)
	if err != nil {
		if loud, yes := err.(simulatorError); yes {
			return fail(notSimulated(string(loud), nil, nil))
		}
		e := gqlError{Message: err.Error()}
		if _, yes := err.(badID); yes {
			e.Extensions = map[string]any{"code": "RESOURCE_NOT_FOUND"}
		}
		return fail(e)
	}
	var sets []ast.SelectionSet
	for _, f := range c.fields {
		sets = append(sets, f.SelectionSet)
	}
	price := x.api.price(typ, def)
	if typ == x.api.schema.Mutation.Name {
		price = 0 // paid above, whatever comes of it
	}
	return x.complete(typ+"."+f.Name, def.Type, v, sets, price, f, path)
}

// complete makes the answer of a resolved value, checked against the type that the schema promises.
func (x *exec) complete(name string, t *ast.Type, v any, sets []ast.SelectionSet, price int, f *ast.Field, path []any) (any, bool) {
	lie := func(why string) (any, bool) {
		x.errs = append(x.errs, gqlError{
			Message:   fmt.Sprintf("SIMULATOR: %s is to be %s but %s", name, t, why),
			Locations: at(f.Position), Path: path, Extensions: map[string]any{"code": "SIMULATOR_BROKEN"},
		})
		return nil, !t.NonNull
	}
	if isNil(v) {
		if t.NonNull {
			return lie("is null")
		}
		return nil, true
	}
	if t.Elem != nil {
		list := reflect.ValueOf(v)
		if list.Kind() != reflect.Slice {
			return lie(fmt.Sprintf("is %T", v))
		}
		if _, sized := x.sizes[f]; !sized && f.Name != "nodes" && f.Name != "edges" && list.Len() > 0 {
			x.spent += price // a plain list costs what one object costs
			price = 0
		}
		out := make([]any, list.Len())
		for i := range out {
			e, ok := x.complete(name, t.Elem, list.Index(i).Interface(), sets, price, f, append(slices.Clip(path), i))
			if !ok {
				return nil, !t.NonNull
			}
			out[i] = e
		}
		return out, true
	}
	def := x.api.schema.Types[t.NamedType]
	switch def.Kind {
	case ast.Scalar:
		out, ok := scalarOut(def.Name, v)
		if !ok {
			return lie(fmt.Sprintf("is %v", v))
		}
		return out, true
	case ast.Enum:
		s, ok := v.(string)
		if !ok || def.EnumValues.ForName(s) == nil {
			return lie(fmt.Sprintf("is %v", v))
		}
		return s, true
	}
	typ := def.Name
	if def.IsAbstractType() {
		if typ = typeOf(v); !x.api.is(typ, def.Name) {
			return lie(fmt.Sprintf("is a %T", v))
		}
		if need := x.api.requiredOf(x.scopes, typ); need != nil {
			e := accessDenied(f.Name, need)
			e.Locations, e.Path = at(f.Position), path
			x.errs = append(x.errs, e)
			return nil, !t.NonNull
		}
	}
	x.spent += price
	o, ok := x.selection(typ, v, sets, path)
	if !ok {
		return nil, !t.NonNull
	}
	return o, true
}

func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map:
		return r.IsNil()
	default:
		return false
	}
}

func accessDenied(field string, need []string) gqlError {
	var all []string
	for _, n := range need {
		all = append(all, "`"+n+"` access scope")
	}
	required := strings.Join(all, " or ") + "."
	return gqlError{
		Message: fmt.Sprintf("Access denied for %s field. Required access: %s", field, required),
		Extensions: map[string]any{
			"code": "ACCESS_DENIED", "documentation": "https://shopify.dev/api/usage/access-scopes", "requiredAccess": required,
		},
	}
}

// simulatorError is what a resolver returns for an argument whose value it does not simulate.
type simulatorError string

func (e simulatorError) Error() string { return "SIMULATOR: not simulated: " + string(e) }

// refusal is why Shopify does not answer a field, in its own words.
type refusal string

func (e refusal) Error() string { return string(e) }

// badID is an id that is no global id, or one of another kind of thing.
type badID string

func (e badID) Error() string { return "Invalid id: " + string(e) }
