// Package encode writes values as JSON and YAML. Parsers get the values as they are; a terminal gets nothing that it
// would not show: there JSON and YAML have escapes within their strings.
package encode

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// JSON is a value as JSON, with lines indented. What a terminal would not show stands as \u202e in its string: the
// value is the same for a parser.
func JSON(v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ") // tabs and line breaks in strings are escapes by now
	if err != nil {
		return nil, err
	}
	return append(escaped(b, func(r rune) string {
		if high, low := utf16.EncodeRune(r); high != 0xfffd {
			return fmt.Sprintf(`\u%04x\u%04x`, high, low)
		}
		return fmt.Sprintf(`\u%04x`, r)
	}), '\n'), nil
}

// YAML is a value as YAML by its JSON tags. What a terminal would not show stands as an escape in a double quoted
// string.
func YAML(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if !bytes.ContainsFunc(b, hidden) {
		if b, err = yaml.JSONToYAML(b); err != nil || !bytes.ContainsFunc(b, hidden) {
			return b, err
		}
		if b, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	var doc yamlv3.Node // JSON is YAML, but for pairs of surrogates
	if err := yamlv3.Unmarshal(escaped(b, yamlEscape), &doc); err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}
	block(&doc)
	sortKeys(&doc)
	return Nodes(&doc)
}

func sortKeys(n *yamlv3.Node) {
	for _, c := range n.Content {
		sortKeys(c)
	}
	if n.Kind == yamlv3.MappingNode {
		pairs := slices.Collect(slices.Chunk(n.Content, 2))
		slices.SortFunc(pairs, func(a, b []*yamlv3.Node) int { return cmp.Compare(a[0].Value, b[0].Value) })
		n.Content = slices.Concat(pairs...)
	}
}

// block makes a document that was read as JSON look like any other.
func block(n *yamlv3.Node) {
	n.Style = 0
	switch {
	case n.Kind != yamlv3.ScalarNode:
	case strings.Contains(n.Value, "\n"):
		n.Style = yamlv3.LiteralStyle
	case base60.MatchString(n.Value):
		n.Style = yamlv3.DoubleQuotedStyle
	}
	for _, c := range n.Content {
		block(c)
	}
}

// base60 is what YAML 1.1 takes for a number, such as a PCI address.
var base60 = regexp.MustCompile(`^[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?$`)

// Manifest is an object of Kubernetes as YAML, with comments: lines above it, and notes above the first field or list
// element that is called like the note, or has that name. Fields are in the order of their type.
func Manifest(v any, head []string, notes map[string]string) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	var doc yamlv3.Node
	if err := yamlv3.Unmarshal(escaped(b, yamlEscape), &doc); err != nil {
		return "", fmt.Errorf("encode YAML: %w", err)
	}
	block(&doc)
	top := doc.Content[0]
	if len(top.Content) > 3 && top.Content[2].Value == "apiVersion" { // in Kubernetes' types it is behind kind
		top.Content = slices.Concat(top.Content[2:4], top.Content[:2], top.Content[4:])
	}
	tidy(top)
	annotate(top, maps.Clone(notes))
	top.HeadComment = comment(head...)
	b, err = Nodes(&doc)
	return string(bytes.TrimPrefix(b, []byte("---\n"))), err
}

// Comments is a document of comments only.
func Comments(lines []string) (string, error) {
	b, err := Nodes(&yamlv3.Node{
		Kind: yamlv3.DocumentNode, HeadComment: comment(lines...),
		Content: []*yamlv3.Node{{Kind: yamlv3.ScalarNode, Tag: "!!null", Value: ""}},
	})
	return string(b), err
}

// comment makes comments of texts, which may have several lines.
func comment(texts ...string) string {
	if len(texts) == 0 {
		return ""
	}
	return "# " + strings.ReplaceAll(strings.Join(texts, "\n"), "\n", "\n# ")
}

// tidy leaves out the empty parts of Kubernetes' types that they can't leave out themselves, and writes quantities that
// are whole numbers as such.
func tidy(n *yamlv3.Node) {
	var pairs []*yamlv3.Node
	for pair := range slices.Chunk(n.Content, 2) {
		if n.Kind != yamlv3.MappingNode {
			break
		}
		key, value := pair[0], pair[1]
		if value.Kind == yamlv3.MappingNode && len(value.Content) == 0 &&
			slices.Contains([]string{"metadata", "resources", "strategy", "status"}, key.Value) {
			continue
		}
		if key.Value == "limits" || key.Value == "requests" {
			for _, q := range value.Content {
				if _, err := strconv.Atoi(q.Value); err == nil {
					q.Tag = "!!int"
				}
			}
		}
		pairs = append(pairs, key, value)
	}
	if n.Kind == yamlv3.MappingNode {
		n.Content = pairs
	}
	for _, c := range n.Content {
		tidy(c)
	}
}

// annotate puts notes where they belong, each once.
func annotate(n *yamlv3.Node, notes map[string]string) {
	for i, c := range n.Content {
		name := c.Value
		if n.Kind == yamlv3.MappingNode && i%2 == 1 {
			name = ""
		}
		for j := 0; j+1 < len(c.Content) && n.Kind == yamlv3.SequenceNode && c.Kind == yamlv3.MappingNode; j += 2 {
			if c.Content[j].Value == "name" {
				name = c.Content[j+1].Value
			}
		}
		if text, ok := notes[name]; ok && name != "" {
			c.HeadComment = comment(text)
			delete(notes, name)
		}
		annotate(c, notes)
	}
}

func yamlEscape(r rune) string {
	if r > 0xffff {
		return fmt.Sprintf(`\U%08x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// Nodes encodes a YAML document. A comment is what the node has, made visible line by line.
func Nodes(doc *yamlv3.Node) ([]byte, error) {
	harden(doc)
	var b bytes.Buffer
	e := yamlv3.NewEncoder(&b)
	e.SetIndent(2)
	e.CompactSeqIndent()
	if err := e.Encode(doc); err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}
	return escaped(b.Bytes(), yamlEscape), nil
}

// harden makes comments visible, and puts scalars with something invisible into double quotes, where YAML has escapes.
func harden(n *yamlv3.Node) {
	for _, c := range []*string{&n.HeadComment, &n.LineComment, &n.FootComment} {
		lines := strings.Split(*c, "\n")
		for i := range lines {
			lines[i] = quote.Comment(lines[i])
		}
		*c = strings.Join(lines, "\n")
	}
	if n.Kind == yamlv3.ScalarNode && strings.ContainsFunc(n.Value, hidden) {
		n.Style = yamlv3.DoubleQuotedStyle
	}
	for _, c := range n.Content {
		harden(c)
	}
}

func hidden(r rune) bool { return r != '\n' && !quote.Shown(r) }

// escaped replaces what is not shown. In the output of an encoder that is only within strings.
func escaped(b []byte, with func(rune) string) []byte {
	if !bytes.ContainsFunc(b, hidden) {
		return b
	}
	var out strings.Builder
	for _, r := range string(b) {
		if hidden(r) {
			out.WriteString(with(r))
		} else {
			out.WriteRune(r)
		}
	}
	return []byte(out.String())
}
