// Package settings parses the agent's settings: which ports belong to which fabric, how devices are handed out, and
// how the fabrics' networks look. They are one file, mounted from a ConfigMap, and the same on every node.
package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// Settings is the whole file.
type Settings struct {
	Fabrics []Fabric `json:"fabrics"`
}

// Fabric is one resource and one network.
type Fabric struct {
	Name  string `json:"name"`
	Match Match  `json:"match"`
	// Mode is how devices are handed out: "exclusive", one device to one pod; "shared", one device to Shares pods.
	Mode      Mode   `json:"mode"`
	Shares    int    `json:"shares"`    // mode shared: pods on one device; default 8
	Namespace string `json:"namespace"` // of the NetworkAttachmentDefinition; default "default"
	// Network is what the network's configuration has in addition to what the agent sets: ipam, mtu, routing and so
	// on.
	Network map[string]any `json:"network"`
	// NodeRanges replaces network.ipam: each node has a range of its own, so that no address needs a lock of the whole
	// cluster.
	NodeRanges *NodeRanges `json:"nodeRanges"`
}

// Mode is how devices are handed out.
type Mode string

// The modes.
const (
	Exclusive Mode = "exclusive"
	Shared    Mode = "shared"
)

// ResourcePrefix is the domain of the resources.
const ResourcePrefix = "fabric.dev/"

// Resource is what pods ask for.
func (f *Fabric) Resource() string { return ResourcePrefix + f.Name }

// Definition is the namespace/name of the fabric's NetworkAttachmentDefinition.
func (f *Fabric) Definition() string { return f.Namespace + "/" + f.Name }

// barePrefix finds a subnet prefix that ends like a key of YAML, as fabricctl discover prints it.
var barePrefix = regexp.MustCompile(`(?m)subnetPrefix:[ \t]+([0-9A-Fa-f:]*::)[ \t\r]*(?:#.*)?$`)

// Load reads the file. Without a file there are no fabrics: the agent still installs and repairs.
func Load(file string) (*Settings, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &Settings{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	s, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("settings %s: %w", file, err)
	}
	return s, nil
}

// Parse reads YAML or JSON, and fills in the defaults. It refuses what cannot work, with an error that names the
// fabric, the field and what is allowed.
func Parse(b []byte) (*Settings, error) {
	s := &Settings{}
	if err := yaml.UnmarshalStrict(b, s); err != nil {
		text := strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: ")
		text = strings.TrimPrefix(text, "json: ")
		if bare := barePrefix.FindSubmatch(b); bare != nil {
			text += fmt.Sprintf("; YAML wants quotes around a value that ends with a colon: subnetPrefix: %q", bare[1])
		}
		return nil, errors.New(text)
	}
	seen := map[string]bool{}
	for i := range s.Fabrics {
		f := &s.Fabrics[i]
		if err := f.complete(); err != nil {
			return nil, fmt.Errorf("fabric %d (%q): %w", i, f.Name, err)
		}
		if seen[f.Name] {
			return nil, fmt.Errorf("fabric %d: name %q is taken by an earlier fabric", i, f.Name)
		}
		seen[f.Name] = true
	}
	return s, s.addresses()
}

func (f *Fabric) complete() error {
	if !isLabel(f.Name) {
		return fmt.Errorf("name: want 1 to 50 of a-z, 0-9 and -, as in ib-200g")
	}
	if f.Mode == "" {
		f.Mode = Exclusive
	}
	if f.Mode != Exclusive && f.Mode != Shared {
		return fmt.Errorf("mode %q: want exclusive or shared", f.Mode)
	}
	switch {
	case f.Mode == Exclusive && f.Shares != 0:
		return fmt.Errorf("shares: allowed in mode shared only")
	case f.Mode == Shared && f.Shares == 0:
		f.Shares = 8
	case f.Shares < 0 || f.Shares > 1000:
		return fmt.Errorf("shares %d: want 1 to 1000", f.Shares)
	}
	if f.Namespace == "" {
		f.Namespace = "default"
	}
	return f.Match.check()
}

// isLabel reports whether a name fits a Kubernetes object, a resource, a file and a CNI network.
func isLabel(s string) bool {
	ok := len(s) > 0 && len(s) <= 50 && s[0] != '-' && s[len(s)-1] != '-'
	for _, c := range s {
		ok = ok && (c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z')
	}
	return ok
}
