// Package settings parses the agent's settings: which ports belong to which fabric, how devices are handed out, and
// how the fabrics' networks look. They are one file, mounted from a ConfigMap, and the same on every node.
package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/pkg/device"
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

// Match picks a node's HCAs. What is empty does not count; all that is not must fit. One that is empty as a whole
// leaves it to discovery: the HCAs of the fabric that is found under that name.
type Match struct {
	LinkLayer    string   `json:"linkLayer"`    // "InfiniBand", "Ethernet"
	SubnetPrefix string   `json:"subnetPrefix"` // upper half of GID 0: fe80:0000:0000:0000
	RateGb       float64  `json:"rateGb"`       // Gb/s of port 1
	Devices      []string `json:"devices"`      // patterns: PCI address, RDMA device, netdev or altname
}

// IsZero tells that discovery decides.
func (m *Match) IsZero() bool {
	return m.LinkLayer == "" && m.SubnetPrefix == "" && m.RateGb == 0 && len(m.Devices) == 0
}

// ResourcePrefix is the domain of the resources.
const ResourcePrefix = "fabric.dev/"

// Resource is what pods ask for.
func (f *Fabric) Resource() string { return ResourcePrefix + f.Name }

// Definition is the namespace/name of the fabric's NetworkAttachmentDefinition.
func (f *Fabric) Definition() string { return f.Namespace + "/" + f.Name }

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
		return nil, errors.New(strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: json: "))
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

func (m *Match) check() error {
	if l := device.LinkLayer(m.LinkLayer); l != "" && l != device.InfiniBand && l != device.Ethernet {
		return fmt.Errorf("match.linkLayer %q: want InfiniBand or Ethernet", m.LinkLayer)
	}
	for _, p := range m.Devices {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("match.devices: pattern %q: %w", p, err)
		}
	}
	return nil
}

// isLabel returns whether a name can be that of a Kubernetes object, a resource, a file and a CNI network.
func isLabel(s string) bool {
	ok := len(s) > 0 && len(s) <= 50 && s[0] != '-' && s[len(s)-1] != '-'
	for _, c := range s {
		ok = ok && (c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z')
	}
	return ok
}
