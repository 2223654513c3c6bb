// Package manifest reads files with objects of Kubernetes: YAML with as many documents as it likes, or JSON. A tenant
// may have written them, so everything is bounded.
package manifest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Bounds of a file.
const (
	maxFile      = 256 << 20 // bytes; kubectl get ... -A -o json of a large cluster
	maxDocument  = 4 << 20   // bytes of one YAML document: reading it takes many times as much
	maxExpanded  = 32 << 20  // bytes of one YAML document, with what its aliases stand for
	MaxDocuments = 10_000    // of one file
	MaxObjects   = 100_000   // of one file, with those in lists; Kubernetes is made for 5,000 nodes
)

// Document is one of the documents of a file.
type Document struct {
	Number int             // from 1
	JSON   json.RawMessage // what it says
	YAML   []byte          // as it was read, if it was YAML
}

// Each hands over each document of a file that has something in it, in their order.
func Each(r io.Reader, take func(d *Document) error) error {
	b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	switch {
	case err != nil:
		return err
	case len(b) > maxFile:
		return fmt.Errorf("it has more than %d MiB", maxFile>>20)
	case len(bytes.TrimSpace(b)) == 0:
		return errors.New("it is empty")
	case bytes.TrimSpace(b)[0] == '{':
		// A mapping of YAML may begin so, too; what is no JSON and too large for YAML has the error of JSON.
		list, err := values(b)
		if err != nil && BrokenJSON(err) && len(b) <= maxDocument {
			break
		}
		for i := range list {
			if err := take(&list[i]); err != nil {
				return err
			}
		}
		return err
	}
	return documents(append(b, '\n'), take) // the reader of documents loses a last line of whole buffers without it
}

// values are those of a stream of JSON.
func values(b []byte) (out []Document, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	for {
		var raw json.RawMessage
		err := d.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err == nil && len(out) == MaxObjects {
			err = fmt.Errorf("there are more than %d objects", MaxObjects)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, Document{Number: len(out) + 1, JSON: raw})
	}
}

func documents(b []byte, take func(d *Document) error) error {
	reader := k8syaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(b)))
	for n := 1; ; n++ {
		b, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		at := func(err error) error { return fmt.Errorf("document %d: %w", n, err) }
		switch {
		case err != nil:
			return at(err)
		case n > MaxDocuments:
			return fmt.Errorf("it has more than %d documents", MaxDocuments)
		case len(b) > maxDocument:
			return at(fmt.Errorf("it has more than %d MiB: as JSON it may", maxDocument>>20))
		}
		if err := expands(b); err != nil {
			return at(err)
		}
		raw, err := yaml.YAMLToJSON(b) // as kubectl does: with << a key may be there twice
		switch {
		case err != nil && bytes.Contains(b, []byte("{{")):
			return at(fmt.Errorf("%w; it looks like a template: helm template writes what it stands for", err))
		case err != nil:
			return at(err)
		case string(bytes.TrimSpace(raw)) == "null": // nothing between two ---
			continue
		}
		if err := take(&Document{Number: n, JSON: raw, YAML: b}); err != nil {
			return at(err)
		}
	}
}

// Objects are those of a file. Lists are taken apart.
func Objects(r io.Reader) (out []json.RawMessage, err error) {
	err = Each(r, func(d *Document) error {
		list, err := d.Objects()
		if out = append(out, list...); err == nil && len(out) > MaxObjects {
			err = fmt.Errorf("there are more than %d objects", MaxObjects)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Objects are the object of a document, or those of its list.
func (d *Document) Objects() ([]json.RawMessage, error) {
	var o struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(d.JSON, &o); err != nil {
		return nil, fmt.Errorf("no object of Kubernetes: %w", err)
	}
	if o.Items == nil || o.Kind != "" && !strings.HasSuffix(o.Kind, "List") {
		return []json.RawMessage{d.JSON}, nil
	}
	return o.Items, nil
}

// List is the objects as a list, as kubectl prints one.
func List(objects []json.RawMessage) ([]byte, error) {
	return json.Marshal(map[string]any{"items": objects})
}

// BrokenJSON reports whether it is the JSON that can't be read, and not only what it means.
func BrokenJSON(err error) bool {
	var syntax *json.SyntaxError
	return errors.As(err, &syntax) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}
