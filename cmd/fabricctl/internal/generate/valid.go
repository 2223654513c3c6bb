package generate

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// nodeName is what the name of a node may be, so that it can be part of an object's name.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

// maxText is the longest text of a node that is taken, in bytes: a path down the PCI tree has 200.
const maxText = 1024

// Valid refuses a node with text that would end a line, a comment or a string in what Generate writes: an author of
// inventories or recordings must not write objects of the cluster.
func Valid(n *node.Node) error {
	if !nodeName.MatchString(n.Name) {
		return fmt.Errorf("node %.300q: not the name of a node", n.Name)
	}
	c := *n
	c.Problems = nil // sentences, which nothing is made of
	b, err := json.Marshal(&c)
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	var all any
	if err := json.Unmarshal(b, &all); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	if bad, found := hostile(all); found {
		return fmt.Errorf("node %s: %.300q has characters that no device has", n.Name, bad)
	}
	return nil
}

// hostile finds a text that is not one visible line without quotes.
func hostile(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, len(v) > maxText || strings.ContainsAny(v, "\"\\`") || quote.Terminal(v) != v
	case []any:
		for _, e := range v {
			if bad, found := hostile(e); found {
				return bad, true
			}
		}
	case map[string]any:
		for k, e := range v {
			if bad, found := hostile(k); found {
				return bad, true
			}
			if bad, found := hostile(e); found {
				return bad, true
			}
		}
	}
	return "", false
}
