package shopifysim

import (
	"math"
	"strings"
	"time"

	"github.com/vektah/gqlparser/v2/ast"
)

// maxQueryCost is the most that one query may cost, whatever the plan (shopify.dev, API limits).
const maxQueryCost = 1000

// bucket is the budget of this app in one shop. It fills with the simulated clock.
type bucket struct {
	size, rate, level float64
	at                time.Time
}

func newBucket(p Plan, now time.Time) bucket {
	rate := p.restoreRate()
	return bucket{size: 20 * rate, rate: rate, level: 20 * rate, at: now}
}

func (b *bucket) fill(now time.Time) {
	if d := now.Sub(b.at); d > 0 {
		b.level = math.Min(b.size, b.level+d.Seconds()*b.rate)
		b.at = now
	}
}

func (b *bucket) status(available float64) map[string]any {
	return map[string]any{"maximumAvailable": b.size, "currentlyAvailable": math.Floor(available), "restoreRate": b.rate}
}

// price is what one object costs by Shopify's rules: an object 1, a mutation 10, scalars nothing. Pages,
// edges, errors and warnings are free, and so is the object that a mutation returns: live captures show
// 10 for a create that selects a draft and its warnings, 11 with an order inside, and 2 for a draft read
// with its order.
func (a *adminAPI) price(parent string, field *ast.FieldDefinition) int {
	name := field.Type.Name()
	def := a.schema.Types[name]
	switch {
	case a.schema.Mutation.Name == parent:
		return 10
	case !def.IsCompositeType(), a.payloads[parent], name == "PageInfo", strings.HasSuffix(name, "Edge"),
		name == "DraftOrderWarning", a.is(name, "DisplayableError"):
		return 0
	default:
		return 1
	}
}

// cost is what a selection may cost at most: pages count as full, nodes(ids:) as all found. Of fragments
// on different types the dearest counts.
func (p *plan) cost(parent string, set ast.SelectionSet) int {
	total, onType := 0, map[string]int{}
	for _, sel := range set {
		switch sel := sel.(type) {
		case *ast.Field:
			if !p.included(sel.Directives) || sel.Name == "__typename" {
				continue
			}
			n := 1
			if size, ok := p.sizes[sel]; ok {
				n = size
			}
			each := p.cost(sel.Definition.Type.Name(), sel.SelectionSet)
			if p.api.isConnection(sel.Definition.Type.Name()) {
				total += p.api.price(parent, sel.Definition) + n*each
			} else {
				total += n * (p.api.price(parent, sel.Definition) + each)
			}
		case *ast.InlineFragment:
			if p.included(sel.Directives) {
				on := sel.TypeCondition
				if on == "" {
					on = parent
				}
				onType[on] += p.cost(on, sel.SelectionSet)
			}
		case *ast.FragmentSpread:
			if p.included(sel.Directives) {
				onType[sel.Definition.TypeCondition] += p.cost(sel.Definition.TypeCondition, sel.Definition.SelectionSet)
			}
		}
	}
	dearest := 0
	for on, cost := range onType {
		if p.api.is(parent, on) {
			total += cost
		} else {
			dearest = max(dearest, cost)
		}
	}
	return total + dearest
}
