package shopifysim

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
)

// APIVersion is the version of the Admin API that is simulated.
const APIVersion = "2026-10"

// schemaGZ is Shopify's whole Admin schema, without descriptions.
//
//go:embed admin_2026-10.nodesc.graphql.gz
var schemaGZ []byte

// scopesGZ names, per type and per "Type.field", the access scopes of which an offline token needs one.
//
//go:embed offline_scopes.json.gz
var scopesGZ []byte

// adminAPI is what never changes while a process runs: the schema and the scopes.
type adminAPI struct {
	schema *ast.Schema
	scopes map[string][]string
	// payloads are the types that mutations return: what they hold is part of the mutation's price.
	payloads map[string]bool
}

// loadAdminAPI unpacks and parses the embedded files once per process, however many simulators a test
// starts: it takes about 0.1 s and the result is only read.
var loadAdminAPI = sync.OnceValues(func() (*adminAPI, error) {
	text, err := gunzip(schemaGZ)
	if err != nil {
		return nil, fmt.Errorf("unpack the Admin schema: %w", err)
	}
	schema, err := gqlparser.LoadSchema(&ast.Source{Name: "admin_" + APIVersion, Input: string(text)})
	if err != nil {
		return nil, fmt.Errorf("read the Admin schema: %w", err)
	}
	text, err = gunzip(scopesGZ)
	if err != nil {
		return nil, fmt.Errorf("unpack the access scopes: %w", err)
	}
	api := &adminAPI{schema: schema, payloads: map[string]bool{}}
	if err := json.Unmarshal(text, &api.scopes); err != nil {
		return nil, fmt.Errorf("read the access scopes: %w", err)
	}
	for _, f := range schema.Mutation.Fields {
		api.payloads[f.Type.Name()] = true
	}
	return api, nil
})

func gunzip(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// isConnection says whether a type is a page of a list.
func (a *adminAPI) isConnection(name string) bool {
	def := a.schema.Types[name]
	return def != nil && strings.HasSuffix(name, "Connection") && def.Fields.ForName("pageInfo") != nil
}

// is says whether an object of type name can stand where condition is asked for: a type, one of its
// interfaces, or a union that it belongs to.
func (a *adminAPI) is(name, condition string) bool {
	if name == condition {
		return true
	}
	def := a.schema.Types[condition]
	if def == nil || !def.IsAbstractType() {
		return false
	}
	return slices.ContainsFunc(a.schema.GetPossibleTypes(def), func(d *ast.Definition) bool { return d.Name == name })
}

// required returns the scopes of which one is needed to read field of parent, or nil when the granted
// ones will do. A field asks for its own scopes and for those of the type that it returns; a connection,
// for those of what it lists. To write is to read.
func (a *adminAPI) required(granted []string, parent string, field *ast.FieldDefinition) []string {
	returns := field.Type.Name()
	if a.isConnection(returns) {
		if nodes := a.schema.Types[returns].Fields.ForName("nodes"); nodes != nil {
			returns = nodes.Type.Name()
		}
	}
	for _, name := range []string{parent + "." + field.Name, returns} {
		if need := a.scopes[name]; len(need) > 0 && !covers(granted, need) {
			return need
		}
	}
	return nil
}

// requiredOf is required for an object whose type is known only when it is read (nodes).
func (a *adminAPI) requiredOf(granted []string, typ string) []string {
	if need := a.scopes[typ]; len(need) > 0 && !covers(granted, need) {
		return need
	}
	return nil
}

func covers(granted, need []string) bool {
	return slices.ContainsFunc(need, func(n string) bool {
		return slices.Contains(granted, n) || slices.Contains(granted, strings.Replace(n, "read_", "write_", 1))
	})
}
