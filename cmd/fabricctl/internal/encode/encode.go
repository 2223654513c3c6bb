// Package encode writes values as JSON and YAML. Parsers get the values as they are; a terminal gets nothing that it
// would not show: there JSON and YAML have escapes within their strings.
package encode

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
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
	return Nodes(&doc)
}

// block makes a document that was read as JSON look like any other, with keys in order.
func block(n *yamlv3.Node) {
	n.Style = 0
	for _, c := range n.Content {
		block(c)
	}
	if n.Kind == yamlv3.MappingNode {
		pairs := slices.Collect(slices.Chunk(n.Content, 2))
		slices.SortFunc(pairs, func(a, b []*yamlv3.Node) int { return cmp.Compare(a[0].Value, b[0].Value) })
		n.Content = slices.Concat(pairs...)
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
