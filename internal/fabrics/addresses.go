package fabrics

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"go4.org/netipx"

	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
	"github.com/fabric-cni/fabric-cni/internal/ipam/ranges"
)

// IPAM returns the fabric's ipam section. Errors begin with "ipam".
func (f *Fabric) IPAM() (*ranges.Section, error) {
	b, err := json.Marshal(f.Network["ipam"])
	if err != nil {
		return nil, fmt.Errorf("ipam: %w", err)
	}
	return ranges.Read(b)
}

// CheckCapacity returns an error if the fabric has too few addresses for so many interfaces: those of all nodes
// together, and those of the node with most of them.
func (f *Fabric) CheckCapacity(inCluster, onNode int) error {
	if f.NodeRanges != nil {
		for _, r := range f.NodeRanges.Ranges {
			if have := pool.Usable(netip.PrefixFrom(r.Prefix.Addr(), r.Bits)); have < onNode {
				return fmt.Errorf("addresses.nodeRanges: perNodePrefixLength %d has %d addresses to give, and a "+
					"node needs %d: "+
					"choose a shorter prefix", r.Bits, have, onNode)
			}
		}
		return nil
	}
	section, err := f.IPAM()
	if err == nil {
		err = section.CheckCapacity(inCluster, onNode)
	}
	if err != nil {
		return fmt.Errorf("addresses.%w", err)
	}
	return nil
}

// span is a range of a fabric.
type span struct {
	field  string
	prefix netip.Prefix
	free   *netipx.IPSet // the addresses of it that may be given
}

// spans are the ranges of nodeRanges or of the ipam section.
func (f *Fabric) spans() (out []span, err error) {
	if f.NodeRanges != nil {
		for _, r := range f.NodeRanges.Ranges {
			s, err := r.Free()
			if err != nil {
				return nil, fmt.Errorf("addresses.nodeRanges: %w", err)
			}
			out = append(out, span{"addresses.nodeRanges", r.Prefix, s})
		}
		return out, nil
	}
	section, err := f.IPAM()
	if err != nil {
		return nil, fmt.Errorf("addresses.%w", err)
	}
	for _, r := range section.Ranges {
		out = append(out, span{"addresses." + r.Field, r.Prefix, r.Free})
	}
	return out, nil
}

// Overlap returns an error if two fabrics have addresses in common: each has a pool of its own, and both would give the
// same address.
func Overlap(f, other *Fabric) error {
	mine, err := f.spans()
	if err != nil {
		return err
	}
	theirs, err := other.spans()
	if err != nil {
		return nil //nolint:nilerr // it is the other's own fault, which is reported there
	}
	for _, m := range mine {
		for _, o := range theirs {
			if o.free.Overlaps(m.free) {
				return fmt.Errorf("%s %s overlaps %s of fabric %q: both would give the same addresses",
					m.field, m.prefix, o.prefix, other.Name)
			}
		}
	}
	return nil
}
