package deployments_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// A condition is what a CEL rule says, as far as JSON Schema can say it: never more than the rule.
type condition struct {
	op   string       // "" is a leaf; &&, ||
	of   []*condition // of && and ||
	path []string     // of a leaf, from self
	want any          // what the schema of that field is; nil: that it is there
	// lax is a leaf that holds as well where the field, or one on the way to it, is not there.
	lax bool
}

// ruleSchema is a schema that refuses nothing that the rule allows; nil where JSON Schema has no words for it. defaults
// are those of the fields of self.
func ruleSchema(t *testing.T, rule string, defaults map[string]any) map[string]any {
	t.Helper()
	env, err := cel.NewEnv()
	if err != nil {
		t.Fatal(err)
	}
	parsed, issues := env.Parse(rule)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	r := rules{defaults: defaults}
	e := parsed.NativeRep().Expr()
	// "unless A, B" names the field of B in the error.
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.LogicalOr {
		c := r.read(e, false)
		if c == nil || c.op != "||" || len(c.of) != 2 {
			return c.schema()
		}
		if unless := r.read(e.AsCall().Args()[0], true); unless != nil && c.of[1] != nil {
			return map[string]any{"if": unless.schema(), "then": c.of[1].schema()}
		}
	}
	return r.read(e, false).schema()
}

type rules struct{ defaults map[string]any }

// read turns an expression, or its negation, into a condition; nil: it can't be said.
func (r *rules) read(e ast.Expr, not bool) *condition {
	if e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly() {
		s := e.AsSelect()
		at, ok := path(s.Operand())
		if !ok {
			return nil
		}
		c := &condition{path: append(at, s.FieldName())}
		if not {
			c.want, c.lax = false, true
		}
		return c
	}
	if e.Kind() != ast.CallKind {
		return nil
	}
	call := e.AsCall()
	args := call.Args()
	switch name := call.FunctionName(); name {
	case operators.LogicalNot:
		return r.read(args[0], !not)
	case operators.LogicalAnd, operators.LogicalOr:
		return join((name == operators.LogicalAnd) != not, r.read(args[0], not), r.read(args[1], not))
	case operators.Equals, operators.NotEquals:
		return r.equals(args[0], args[1], (name == operators.NotEquals) != not)
	case operators.In:
		return r.leaf(args[0], map[string]any{"enum": constants(args[1])}, not, constants(args[1]) != nil)
	case "matches", "startsWith", "endsWith", "contains":
		text, ok := constant(args[0])
		return r.leaf(call.Target(), map[string]any{"pattern": pattern(name, text)}, not, ok)
	case "isCIDR":
		if not { // the pattern says only some of it
			return nil
		}
		return r.leaf(args[0], map[string]any{"pattern": `^[0-9A-Fa-f:.]+/[0-9]{1,3}$`}, false, true)
	}
	return nil
}

func pattern(function, text string) string {
	switch function {
	case "startsWith":
		return "^" + regexp.QuoteMeta(text)
	case "endsWith":
		return regexp.QuoteMeta(text) + "$"
	case "contains":
		return regexp.QuoteMeta(text)
	}
	return text
}

// leaf is a condition on the value of a field, if it is there.
func (r *rules) leaf(field ast.Expr, want map[string]any, not, ok bool) *condition {
	at, is := path(field)
	if !ok || !is {
		return nil
	}
	if not {
		want = map[string]any{"not": want}
	}
	return &condition{path: at, want: want, lax: true}
}

// equals is A == B, or A != B, of a field and a constant, or of two conditions.
func (r *rules) equals(a, b ast.Expr, not bool) *condition {
	if text, ok := constant(b); ok {
		c := r.leaf(a, map[string]any{"const": text}, not, true)
		if c != nil && len(c.path) == 1 { // a field that is not there has its default
			c.lax = (r.defaults[c.path[0]] == text) != not
		}
		return c
	}
	x, y, notX, notY := r.read(a, false), r.read(b, false), r.read(a, true), r.read(b, true)
	if not {
		return join(false, join(true, x, notY), join(true, notX, y))
	}
	return join(false, join(true, x, y), join(true, notX, notY))
}

// join is a && b, or a || b. Of && what can be said of one is better than nothing.
func join(and bool, a, b *condition) *condition {
	switch {
	case and && a == nil:
		return b
	case and && b == nil:
		return a
	case a == nil || b == nil:
		return nil
	case !and && a.covered(b):
		return b
	case !and && b.covered(a):
		return a
	}
	op := "||"
	if and {
		op = "&&"
	}
	return &condition{op: op, of: []*condition{a, b}}
}

// covered reports whether c says only that a field is absent, and o holds then.
func (c *condition) covered(o *condition) bool { return c.want == false && o.holdsWithout(c.path) }

// holdsWithout reports whether the condition holds where a field is not there.
func (c *condition) holdsWithout(field []string) bool {
	has := func(o *condition) bool { return o.holdsWithout(field) }
	switch c.op {
	case "&&":
		return !slices.ContainsFunc(c.of, func(o *condition) bool { return !has(o) })
	case "||":
		return slices.ContainsFunc(c.of, has)
	}
	return c.lax && len(c.path) >= len(field) && slices.Equal(c.path[:len(field)], field)
}

func (c *condition) schema() map[string]any {
	if c == nil {
		return nil
	}
	if c.op == "" {
		out := c.want
		for i := len(c.path) - 1; i >= 0; i-- {
			next := map[string]any{}
			if out != nil {
				next["properties"] = map[string]any{c.path[i]: out}
			}
			if !c.lax {
				next["required"] = []any{c.path[i]}
			}
			out = next
		}
		m, _ := out.(map[string]any)
		return m
	}
	var list []any
	for _, o := range c.of {
		list = append(list, o.schema())
	}
	return map[string]any{map[string]string{"&&": "allOf", "||": "anyOf"}[c.op]: list}
}

// path is the field of self that an expression names.
func path(e ast.Expr) ([]string, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return nil, e.AsIdent() == "self"
	case ast.SelectKind:
		at, ok := path(e.AsSelect().Operand())
		return append(at, e.AsSelect().FieldName()), ok
	}
	return nil, false
}

func constant(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().Value().(string)
	return text, ok
}

func constants(e ast.Expr) (out []any) {
	if e.Kind() != ast.ListKind {
		return nil
	}
	for _, v := range e.AsList().Elements() {
		if v.Kind() != ast.LiteralKind {
			return nil
		}
		out = append(out, v.AsLiteral().Value())
	}
	return out
}

// What the rules of a CRD become.
func TestRuleSchema(t *testing.T) {
	defaults := map[string]any{"mode": "exclusive"}
	for rule, want := range map[string]string{
		`self.mode == 'shared' || !has(self.shares)`: `{"if":{"properties":{"mode":{"not":{"const":"shared"}}}},` +
			`"then":{"properties":{"shares":false}}}`,
		`self.mode == 'exclusive' || !has(self.a) || !has(self.a.b)`: `{"if":{"allOf":[{"properties":{"mode":{"not":{"const":` +
			`"exclusive"}}},"required":["mode"]},{"required":["a"]}]},"then":{"properties":{"a":{"properties":{"b":false}}}}}`,
		`has(self.a) != has(self.b)`: `{"anyOf":[{"allOf":[{"required":["a"]},{"properties":{"b":false}}]},` +
			`{"allOf":[{"properties":{"a":false}},{"required":["b"]}]}]}`,
		`!has(self.p) || !has(self.l) || self.l != 'E'`: `{"if":{"allOf":[{"required":["p"]},{"required":["l"]}]},` +
			`"then":{"properties":{"l":{"not":{"const":"E"}}}}}`,
		`self.matches('^a') && !self.matches('b$')`: `{"allOf":[{"pattern":"^a"},{"not":{"pattern":"b$"}}]}`,
		`self in [1, 2]`:               `{"enum":[1,2]}`,
		`isCIDR(self)`:                 `{"pattern":"^[0-9A-Fa-f:.]+/[0-9]{1,3}$"}`,
		`!isCIDR(self) || self == 'x'`: `null`,
		`self.all(x, x > 1)`:           `null`,
	} {
		if got := strings.TrimSpace(compact(t, ruleSchema(t, rule, defaults))); got != want {
			t.Errorf("%s: %s, want %s", rule, got, want)
		}
	}
}
