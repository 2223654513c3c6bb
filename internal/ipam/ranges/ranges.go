// Package ranges reads the ipam section of a network before a pod needs an address: which addresses its plugin would
// give, whether they are enough, and how many a pool has. It is for the agent and fabricctl. The CNI binary has its own
// rows in package ipam, because it must not link what whereabouts needs.
package ranges

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"go4.org/netipx"

	"github.com/fabric-cni/fabric-cni/internal/ipam/nvipam"
	"github.com/fabric-cni/fabric-cni/internal/ipam/whereabouts"
)

// Range is one range of addresses. Of alternatives that a plugin chooses from, each is a Range.
type Range struct {
	Field  string        // where it is written, for messages: "ipam.range"
	Prefix netip.Prefix  // of the subnet
	Free   *netipx.IPSet // the addresses of it that the plugin may give
}

// Ref names a pool of nv-ipam that the section takes addresses from.
type Ref struct {
	Kind string // IPPool or CIDRPool
	Name string
}

// Section is an ipam section as its plugin reads it.
type Section struct {
	Ranges []Range
	Refs   []Ref

	enough   func(inCluster, onNode int) error
	capacity func(pool string, of netip.Prefix) (int, bool)
}

// types has a row for each IPAM plugin whose section is read in a way of its own. The others are read by subnets.
var types = map[string]func(section []byte) (*Section, error){
	whereabouts.Type: byWhereabouts,
	nvipam.Type:      byNVIPAM,
}

// Read reads an ipam section. It rejects what the plugin would reject when the first pod starts; errors begin with
// "ipam".
func Read(section []byte) (*Section, error) {
	var c struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(section, &c) != nil {
		return &Section{}, nil //nolint:nilerr // the parser of the network reports it
	}
	if read := types[c.Type]; read != nil {
		return read(section)
	}
	return bySubnets(section)
}

// CheckCapacity returns an error if the section has too few addresses for so many interfaces: those of all nodes
// together, and those of one node. It returns nil where that is not known.
func (s *Section) CheckCapacity(inCluster, onNode int) error {
	if s.enough == nil {
		return nil
	}
	return s.enough(inCluster, onNode)
}

// HasPools reports whether the plugin keeps its addresses in IPPools of whereabouts.
func (s *Section) HasPools() bool { return s.capacity != nil }

// PoolCapacity returns how many addresses the plugin gives of an IPPool of that name and range; false: the pool belongs
// to another network.
func (s *Section) PoolCapacity(pool string, of netip.Prefix) (int, bool) {
	if s.capacity == nil {
		return 0, false
	}
	return s.capacity(pool, of)
}

func byWhereabouts(section []byte) (*Section, error) {
	c, err := whereabouts.Parse(section)
	if err != nil {
		return nil, err
	}
	s := &Section{enough: c.Enough}
	for _, r := range c.Ranges {
		s.Ranges = append(s.Ranges, Range{r.Field, r.Prefix, r.Free})
	}
	s.capacity = func(pool string, of netip.Prefix) (int, bool) {
		for _, r := range c.Ranges {
			if c.Owns(r, pool, of) {
				return c.Capacity(r, of), true
			}
		}
		return 0, false
	}
	return s, nil
}

func byNVIPAM(section []byte) (*Section, error) {
	c, err := nvipam.Parse(section)
	if err != nil {
		return nil, err
	}
	s := &Section{}
	for _, name := range c.Pools {
		s.Refs = append(s.Refs, Ref{c.Kind, name})
	}
	return s, nil
}

// bySubnets reads the fields range and subnet and the list ranges, as host-local and many others have them. A section
// of another shape has no ranges that are known here.
func bySubnets(section []byte) (*Section, error) {
	type one struct{ Subnet string }
	var c struct {
		Range  string
		Subnet string
		Ranges [][]one
	}
	if json.Unmarshal(section, &c) != nil {
		return &Section{}, nil //nolint:nilerr // the plugin reports it
	}
	sets := append([][]one{{{c.Range}, {c.Subnet}}}, c.Ranges...)
	s := &Section{}
	for _, set := range sets {
		for _, r := range set {
			if r.Subnet == "" {
				continue
			}
			p, err := netip.ParsePrefix(r.Subnet)
			if err != nil {
				return nil, fmt.Errorf("ipam: subnet %q: want an address with a prefix length, as in 192.168.10.0/24",
					r.Subnet)
			}
			var b netipx.IPSetBuilder
			b.AddPrefix(p.Masked())
			free, err := b.IPSet()
			if err != nil {
				return nil, fmt.Errorf("ipam: subnet %q: %w", r.Subnet, err)
			}
			s.Ranges = append(s.Ranges, Range{"ipam: subnet", p.Masked(), free})
		}
	}
	return s, nil
}
