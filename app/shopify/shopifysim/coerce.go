package shopifysim

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vektah/gqlparser/v2/ast"
)

// problem is one thing that is wrong with a value, in the words of graphql-ruby, which Shopify runs.
type problem struct {
	Path        []any  `json:"path"`
	Explanation string `json:"explanation"`
}

// coerced is a value that went through coerce already: a variable inside a literal.
type coerced struct{ value any }

// variables coerces the variables of an operation as strictly as Shopify does. raw was decoded with
// UseNumber. What is not declared is ignored, as the GraphQL specification says.
func (a *adminAPI) variables(op *ast.OperationDefinition, raw map[string]any) (map[string]any, []gqlError) {
	vars := map[string]any{}
	var errs []gqlError
	for _, def := range op.VariableDefinitions {
		value, given := raw[def.Variable]
		if !given && def.DefaultValue != nil {
			v, problems := a.coerce(def.Type, literal(def.DefaultValue, nil), nil)
			if problems != nil {
				errs = append(errs, invalidVariable(def, value, problems))
			}
			vars[def.Variable] = v
			continue
		}
		if !given && !def.Type.NonNull {
			continue
		}
		v, problems := a.coerce(def.Type, value, nil)
		if problems != nil {
			errs = append(errs, invalidVariable(def, value, problems))
			continue
		}
		vars[def.Variable] = v
	}
	return vars, errs
}

func invalidVariable(def *ast.VariableDefinition, value any, problems []problem) gqlError {
	var whys []string
	for _, p := range problems {
		var at []string
		for _, step := range p.Path {
			at = append(at, fmt.Sprint(step))
		}
		if len(at) == 0 {
			whys = append(whys, p.Explanation)
		} else {
			whys = append(whys, strings.Join(at, ".")+" ("+p.Explanation+")")
		}
	}
	msg := fmt.Sprintf("Variable $%s of type %s was provided invalid value", def.Variable, def.Type)
	if len(problems[0].Path) > 0 {
		msg += " for " + strings.Join(whys, ", ")
	}
	return gqlError{
		Message: msg, Locations: at(def.Position),
		Extensions: map[string]any{"code": "INVALID_VARIABLE", "value": value, "problems": problems},
	}
}

// arguments coerces the arguments of one field. An argument that was not given and has no default is
// missing from the result. why is what is wrong with them, or empty.
func (a *adminAPI) arguments(f *ast.Field, vars map[string]any) (args map[string]any, why string) {
	args = map[string]any{}
	for _, def := range f.Definition.Arguments {
		arg := f.Arguments.ForName(def.Name)
		var raw any
		given := arg != nil
		if given {
			raw = literal(arg.Value, vars)
			if arg.Value.Kind == ast.Variable {
				_, given = vars[arg.Value.Raw]
			}
		}
		if !given && def.DefaultValue != nil {
			raw, given = literal(def.DefaultValue, nil), true
		}
		if !given && !def.Type.NonNull {
			continue
		}
		v, problems := a.coerce(def.Type, raw, nil)
		if problems != nil {
			return nil, fmt.Sprintf("Argument '%s' on Field '%s' has an invalid value. Expected type '%s'. %s", def.Name, f.Name, def.Type, problems[0].Explanation)
		}
		args[def.Name] = v
	}
	return args, ""
}

// literal turns a value in a document into what the JSON of a variable would have been.
func literal(v *ast.Value, vars map[string]any) any {
	switch v.Kind {
	case ast.Variable:
		return coerced{vars[v.Raw]}
	case ast.IntValue, ast.FloatValue:
		return json.Number(v.Raw)
	case ast.BooleanValue:
		return v.Raw == "true"
	case ast.NullValue:
		return nil
	case ast.ListValue:
		list := []any{}
		for _, c := range v.Children {
			list = append(list, literal(c.Value, vars))
		}
		return list
	case ast.ObjectValue:
		obj := map[string]any{}
		for _, c := range v.Children {
			if c.Value.Kind == ast.Variable {
				if _, ok := vars[c.Value.Raw]; !ok {
					continue // a variable that was not given leaves its field out
				}
			}
			obj[c.Name] = literal(c.Value, vars)
		}
		return obj
	default:
		return v.Raw
	}
}

// coerce turns a raw value into one of type t: int, float64, bool, string, time.Time for DateTime, []any,
// map[string]any. It accepts nothing that Shopify would not: no "2" for an Int, no enum in another case,
// no number for a String.
func (a *adminAPI) coerce(t *ast.Type, raw any, path []any) (any, []problem) {
	if done, ok := raw.(coerced); ok {
		if done.value == nil && t.NonNull {
			return nil, wrong(path, "Expected value to not be null")
		}
		return done.value, nil
	}
	if raw == nil {
		if t.NonNull {
			return nil, wrong(path, "Expected value to not be null")
		}
		return nil, nil
	}
	if t.Elem != nil {
		list, ok := raw.([]any)
		if !ok {
			list = []any{raw} // a single value is a list of one: GraphQL specification, 3.11
		}
		out := make([]any, 0, len(list))
		var problems []problem
		for i, e := range list {
			v, p := a.coerce(t.Elem, e, append(slices.Clip(path), i))
			problems = append(problems, p...)
			out = append(out, v)
		}
		return out, problems
	}
	def := a.schema.Types[t.NamedType]
	switch def.Kind {
	case ast.Enum:
		s, ok := raw.(string)
		if !ok || def.EnumValues.ForName(s) == nil {
			var names []string
			for _, v := range def.EnumValues {
				names = append(names, v.Name)
			}
			return nil, wrong(path, fmt.Sprintf("Expected %q to be one of: %s", fmt.Sprint(raw), strings.Join(names, ", ")))
		}
		return s, nil
	case ast.InputObject:
		obj, ok := raw.(map[string]any)
		if !ok {
			return nil, wrong(path, fmt.Sprintf("Expected %s to be a key-value object.", show(raw)))
		}
		return a.coerceObject(def, obj, path)
	default:
		v, why := scalarIn(def.Name, raw)
		if why != "" {
			return nil, wrong(path, why)
		}
		return v, nil
	}
}

func (a *adminAPI) coerceObject(def *ast.Definition, obj map[string]any, path []any) (any, []problem) {
	out := map[string]any{}
	var problems []problem
	var names []string
	for name := range obj {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if def.Fields.ForName(name) == nil {
			problems = append(problems, problem{append(slices.Clip(path), name), "Field is not defined on " + def.Name})
		}
	}
	for _, f := range def.Fields {
		raw, given := obj[f.Name]
		if !given && f.DefaultValue != nil {
			raw, given = literal(f.DefaultValue, nil), true
		}
		if !given && !f.Type.NonNull {
			continue
		}
		v, p := a.coerce(f.Type, raw, append(slices.Clip(path), f.Name))
		problems = append(problems, p...)
		out[f.Name] = v
	}
	if def.Directives.ForName("oneOf") != nil && (len(obj) != 1 || obj[names[0]] == nil) {
		problems = append(problems, problem{path, "'" + def.Name + "' requires exactly one argument, but " + strconv.Itoa(len(obj)) + " were provided."})
	}
	return out, problems
}

func wrong(path []any, why string) []problem {
	if path == nil {
		path = []any{}
	}
	return []problem{{path, why}}
}

func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

var decimal = regexp.MustCompile(`^-?\d+(\.\d+)?$`)

// scalarIn reads a scalar of the schema, or says what is wrong with it.
func scalarIn(name string, raw any) (v any, why string) {
	s, isString := raw.(string)
	n, isNumber := raw.(json.Number)
	couldNot := fmt.Sprintf("Could not coerce value %s to %s", show(raw), name)
	switch name {
	case "Int":
		if i, err := strconv.ParseInt(n.String(), 10, 32); isNumber && err == nil {
			return int(i), ""
		}
		return nil, couldNot
	case "Float":
		if f, err := n.Float64(); isNumber && err == nil && !math.IsInf(f, 0) {
			return f, ""
		}
		return nil, couldNot
	case "Boolean":
		if b, ok := raw.(bool); ok {
			return b, ""
		}
		return nil, couldNot
	case "ID":
		if isString {
			return s, ""
		}
		if _, err := strconv.ParseInt(n.String(), 10, 64); isNumber && err == nil {
			return n.String(), ""
		}
		return nil, couldNot
	case "DateTime":
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
			if at, err := time.Parse(layout, s); isString && err == nil {
				return at.UTC(), ""
			}
		}
		return nil, fmt.Sprintf("invalid datetime '%s', please provide a valid ISO 8601 formatted datetime", fmt.Sprint(raw))
	case "Date":
		if _, err := time.Parse(time.DateOnly, s); isString && err == nil {
			return s, ""
		}
		return nil, fmt.Sprintf("invalid date '%s', please provide a valid ISO 8601 formatted date", fmt.Sprint(raw))
	case "Money", "Decimal":
		if isNumber {
			s = n.String()
		}
		if (isString || isNumber) && decimal.MatchString(s) {
			return s, ""
		}
		return nil, fmt.Sprintf("invalid %s '%s', please provide a valid decimal number", strings.ToLower(name), fmt.Sprint(raw))
	case "URL":
		if u, err := url.Parse(s); isString && err == nil && u.IsAbs() && u.Host != "" {
			return s, ""
		}
		return nil, fmt.Sprintf("Invalid url '%s', please provide a valid URL", fmt.Sprint(raw))
	case "UnsignedInt64", "BigInt":
		if isNumber {
			s = n.String()
		}
		i, ok := new(big.Int).SetString(s, 10)
		if (isString || isNumber) && ok && (name == "BigInt" || i.IsUint64()) {
			return s, ""
		}
		return nil, couldNot
	case "JSON":
		return raw, ""
	default: // String, and the scalars that are strings with a name
		if isString {
			return s, ""
		}
		return nil, couldNot
	}
}

// scalarOut checks a value that a resolver returned for a scalar of the schema and turns it into what
// JSON carries.
func scalarOut(name string, v any) (any, bool) {
	switch name {
	case "Int":
		i, ok := v.(int)
		return v, ok && i >= math.MinInt32 && i <= math.MaxInt32
	case "Float":
		_, ok := v.(float64)
		return v, ok
	case "Boolean":
		_, ok := v.(bool)
		return v, ok
	case "DateTime":
		t, ok := v.(time.Time)
		return t.UTC().Format(time.RFC3339), ok && !t.IsZero()
	case "JSON":
		return v, true
	case "Money", "Decimal", "UnsignedInt64", "BigInt", "URL", "Date":
		s, ok := v.(string)
		if !ok {
			return nil, false
		}
		_, why := scalarIn(name, s)
		return s, why == ""
	default:
		_, ok := v.(string)
		return v, ok
	}
}
