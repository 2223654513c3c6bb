package manifest

import (
	"bytes"
	"fmt"

	yamlv3 "go.yaml.in/yaml/v3"
)

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
