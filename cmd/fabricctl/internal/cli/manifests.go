package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Bounds of a file with manifests: a tenant has written it.
const (
	maxFile      = 256 << 20 // bytes; kubectl get ... -A -o json of a large cluster
	maxDocument  = 4 << 20   // bytes of one YAML document: reading it takes many times as much
	maxExpanded  = 32 << 20  // bytes of one YAML document, with what its aliases stand for
	maxDocuments = 10_000
)

// manifests reads the objects in a file, or in standard input for "-": JSON, or YAML with as many documents as it
// likes. Lists are taken apart.
func (c *console) manifests(name string) (out []json.RawMessage, err error) {
	in := c.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxFile:
		return nil, fmt.Errorf("it has more than %d MiB", maxFile>>20)
	case len(bytes.TrimSpace(b)) == 0:
		return nil, errors.New("it is empty")
	case bytes.TrimSpace(b)[0] == '{':
		// A mapping of YAML may begin so, too; what is no JSON and too large for YAML has the error of JSON.
		if out, err = jsonObjects(b); err == nil || !broken(err) || len(b) > maxDocument {
			return out, err
		}
	}
	return yamlObjects(append(b, '\n')) // the reader of documents loses a last line of whole buffers without it
}

func jsonObjects(b []byte) (out []json.RawMessage, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	for {
		var raw json.RawMessage
		err := d.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err == nil {
			out, err = flatten(out, raw)
		}
		if err != nil {
			return nil, err
		}
	}
}

func yamlObjects(b []byte) (out []json.RawMessage, err error) {
	documents := k8syaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(b)))
	for n := 1; ; n++ {
		b, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		at := func(err error) error { return fmt.Errorf("document %d: %w", n, err) }
		switch {
		case err != nil:
			return nil, at(err)
		case n > maxDocuments:
			return nil, fmt.Errorf("it has more than %d documents", maxDocuments)
		case len(b) > maxDocument:
			return nil, at(fmt.Errorf("it has more than %d MiB: as JSON it may", maxDocument>>20))
		}
		if err := expands(b); err != nil {
			return nil, at(err)
		}
		raw, err := yaml.YAMLToJSON(b) // as kubectl does: with << a key may be there twice
		switch {
		case err != nil && bytes.Contains(b, []byte("{{")):
			return nil, at(fmt.Errorf("%w; it looks like a template: helm template writes what it stands for", err))
		case err != nil:
			return nil, at(err)
		case string(bytes.TrimSpace(raw)) == "null": // nothing between two ---
			continue
		}
		if out, err = flatten(out, raw); err != nil {
			return nil, at(err)
		}
	}
}

// flatten adds an object, or those of a list.
func flatten(out []json.RawMessage, raw json.RawMessage) ([]json.RawMessage, error) {
	var o struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("no object of Kubernetes: %w", err)
	}
	if o.Items == nil || o.Kind != "" && !strings.HasSuffix(o.Kind, "List") {
		o.Items = []json.RawMessage{raw}
	}
	if out = append(out, o.Items...); len(out) > maxObjects {
		return nil, fmt.Errorf("there are more than %d objects", maxObjects)
	}
	return out, nil
}

// expands refuses a document that becomes too large when its aliases are replaced: a few lines may stand for any size.
func expands(b []byte) error {
	if !bytes.ContainsRune(b, '*') {
		return nil
	}
	var doc yamlv3.Node
	if err := yamlv3.Unmarshal(b, &doc); err != nil {
		return nil //nolint:nilerr // what reads it says it, with the same words for all documents
	}
	if size(&doc, map[*yamlv3.Node]int{}) > maxExpanded {
		return fmt.Errorf("its aliases make it larger than %d MiB", maxExpanded>>20)
	}
	return nil
}

// size is how large a node is without aliases, at most a little more than maxExpanded. known has the nodes that have
// been measured, and those that are being measured: one that contains itself has no end.
func size(n *yamlv3.Node, known map[*yamlv3.Node]int) int {
	if s, ok := known[n]; ok {
		return s
	}
	known[n] = maxExpanded + 1
	const overhead = 16
	s := overhead + len(n.Value)
	if n.Alias != nil {
		s += size(n.Alias, known)
	}
	for _, c := range n.Content {
		if s += size(c, known); s > maxExpanded {
			s = maxExpanded + 1
		}
	}
	known[n] = s
	return s
}

// asList is the objects as a list, as kubectl prints one.
func asList(objects []json.RawMessage) ([]byte, error) {
	return json.Marshal(map[string]any{"items": objects})
}
