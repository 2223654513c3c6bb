package generate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/encode"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// slots are the values of one output. A template makes no text of values: where one belongs it writes a slot, a word
// that means nothing to YAML. What comes out is read as YAML, the values take the places of their slots in its nodes,
// and the encoder writes those. So no value makes a line, a key or a document.
type slots struct{ values []string }

// slot is what stands for value N in a template's output.
var slot = regexp.MustCompile(`slot(\d+)tols`)

// put keeps a value and returns its slot. Numbers and what a template includes stay what they are.
func (s *slots) put(v any) any {
	switch v := v.(type) {
	case int, bool, included:
		return v
	}
	s.values = append(s.values, fmt.Sprint(v))
	return fmt.Sprintf("slot%dtols", len(s.values)-1)
}

// included is the output of another template, with its slots.
type included string

// guard appends put to each action of a template that prints something.
func guard(t *template.Template) {
	for _, t := range t.Templates() {
		if t.Tree != nil {
			guardNode(t.Root)
		}
	}
}

func guardNode(n parse.Node) {
	var branch *parse.BranchNode
	switch n := n.(type) {
	case *parse.ListNode:
		for i := 0; n != nil && i < len(n.Nodes); i++ {
			guardNode(n.Nodes[i])
		}
		return
	case *parse.ActionNode:
		if len(n.Pipe.Decl) == 0 {
			n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{
				NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{parse.NewIdentifier("put").SetPos(n.Pos)},
			})
		}
		return
	case *parse.IfNode:
		branch = &n.BranchNode
	case *parse.RangeNode:
		branch = &n.BranchNode
	case *parse.WithNode:
		branch = &n.BranchNode
	default:
		return
	}
	guardNode(branch.List)
	if branch.ElseList != nil {
		guardNode(branch.ElseList)
	}
}

// fill replaces the slots in a text, by values as they have to stand there.
func (s *slots) fill(text string, as func(string) string) string {
	return slot.ReplaceAllStringFunc(text, func(m string) string {
		i, err := strconv.Atoi(slot.FindStringSubmatch(m)[1])
		if err != nil || i >= len(s.values) {
			return m
		}
		return as(s.values[i])
	})
}

// node fills the slots of a node and of what is in it. JSON within a scalar has slots within strings only.
func (s *slots) node(n *yamlv3.Node) {
	for _, c := range []*string{&n.HeadComment, &n.LineComment, &n.FootComment} {
		*c = s.fill(*c, quote.Comment)
	}
	if n.Kind == yamlv3.ScalarNode && slot.MatchString(n.Value) {
		as := func(v string) string { return v }
		if strings.HasPrefix(n.Value, "{") {
			as = inJSON
		}
		n.Value = s.fill(n.Value, as)
		n.Tag = "!!str"
	}
	for _, c := range n.Content {
		s.node(c)
	}
}

// inJSON is a value as it stands within a JSON string.
func inJSON(v string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // strings can be encoded
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`)
}

// encoded is the output of a template as YAML, with the values in it.
func (s *slots) encoded(text string) (string, error) {
	var docs []string
	for d := yamlv3.NewDecoder(strings.NewReader(text)); ; {
		var doc yamlv3.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return strings.Join(docs, "---\n"), nil
		}
		if err != nil {
			return "", fmt.Errorf("read a template's output: %w", err)
		}
		s.node(&doc)
		b, err := encode.Nodes(&doc)
		if err != nil {
			return "", err
		}
		docs = append(docs, string(b))
	}
}
