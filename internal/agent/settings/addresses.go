package settings

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
	"github.com/fabric-cni/fabric-cni/internal/ipam/ranges"
)

// NodeRanges divides a range into one for each node.
type NodeRanges struct {
	Range   string   `json:"range"`   // of the whole fabric, and the subnet of every interface: 10.0.0.0/16
	PerNode string   `json:"perNode"` // prefix length of a node's range: /26
	Exclude []string `json:"exclude"` // not to be given: no node's range has any address of these
	// Reclaim is how long a Node must have been gone from the cluster before another one may get its range, if there
	// is no other left; default 24h. Pods may outlive their Node.
	Reclaim metav1.Duration `json:"reclaim"`

	Prefix  netip.Prefix   `json:"-"`
	Bits    int            `json:"-"`
	Without []netip.Prefix `json:"-"`
}

// complete parses the texts and fills in the defaults.
func (r *NodeRanges) complete() (err error) {
	if r.Prefix, err = netip.ParsePrefix(r.Range); err != nil {
		return fmt.Errorf("nodeRanges.range %q: want an address with a prefix length, as in 10.0.0.0/16", r.Range)
	}
	r.Prefix = r.Prefix.Masked()
	longest := r.Prefix.Addr().BitLen() - 2
	r.Bits, err = strconv.Atoi(strings.TrimPrefix(r.PerNode, "/"))
	if err != nil || r.Bits < r.Prefix.Bits() || r.Bits > longest {
		return fmt.Errorf("nodeRanges.perNode %q: want a prefix length from /%d, which is that of the range, to /%d",
			r.PerNode, r.Prefix.Bits(), longest)
	}
	r.Without = nil
	for _, text := range r.Exclude {
		p, err := netip.ParsePrefix(text)
		if a, aerr := netip.ParseAddr(text); aerr == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return fmt.Errorf("nodeRanges.exclude %q: want a range or an address", text)
		}
		r.Without = append(r.Without, p.Masked())
	}
	if r.Reclaim.Duration < 0 {
		return fmt.Errorf("nodeRanges.reclaim %s: want a time, as in 24h", r.Reclaim.Duration)
	}
	if r.Reclaim.Duration == 0 {
		r.Reclaim.Duration = 24 * 3600 * 1e9
	}
	return nil
}

// IPAM returns the fabric's ipam section. Errors begin with "ipam".
func (f *Fabric) IPAM() (*ranges.Section, error) {
	b, err := json.Marshal(f.Network["ipam"])
	if err != nil {
		return nil, fmt.Errorf("ipam: %w", err)
	}
	return ranges.Read(b)
}

// CheckCapacity returns an error if the fabric has too few addresses for so many interfaces: those of all nodes
// together, and those of one node. Whether every node gets a range of nodeRanges is not known before the last one
// asks.
func (f *Fabric) CheckCapacity(inCluster, onNode int) error {
	if r := f.NodeRanges; r != nil {
		if have := pool.Usable(netip.PrefixFrom(r.Prefix.Addr(), r.Bits)); have < onNode {
			return fmt.Errorf("fabric %q: nodeRanges.perNode %s has %d addresses to give, and this node needs %d: "+
				"choose a shorter prefix", f.Name, r.PerNode, have, onNode)
		}
		return nil
	}
	section, err := f.IPAM()
	if err == nil {
		err = section.CheckCapacity(inCluster, onNode)
	}
	if err != nil {
		return fmt.Errorf("fabric %q: network.%w", f.Name, err)
	}
	return nil
}

// span is a range of a fabric.
type span struct {
	fabric, field string
	prefix        netip.Prefix
	free          *netipx.IPSet // the addresses of it that may be given
}

// addresses checks the addresses of each fabric, and refuses two fabrics with addresses in common: each has a pool of
// its own, and both would give the same address.
func (s *Settings) addresses() error {
	var all []span
	for i := range s.Fabrics {
		f := &s.Fabrics[i]
		mine, err := f.spans()
		if err != nil {
			return fmt.Errorf("fabric %q: %w", f.Name, err)
		}
		for _, m := range mine {
			for _, o := range all {
				if o.fabric != m.fabric && o.free.Overlaps(m.free) {
					return fmt.Errorf("fabric %q: %s %s overlaps %s of fabric %q: both would give the same addresses",
						f.Name, m.field, m.prefix, o.prefix, o.fabric)
				}
			}
		}
		all = append(all, mine...)
	}
	return nil
}

// spans are the ranges of nodeRanges or of the ipam section.
func (f *Fabric) spans() (out []span, err error) {
	if r := f.NodeRanges; r != nil {
		if err := r.complete(); err != nil {
			return nil, err
		}
		if f.Network["ipam"] != nil {
			return nil, fmt.Errorf("network.ipam: nodeRanges sets it; remove one of them")
		}
		s, err := set(r.Prefix, r.Without...)
		return []span{{f.Name, "nodeRanges.range", r.Prefix, s}}, err
	}
	section, err := f.IPAM()
	if err != nil {
		return nil, fmt.Errorf("network.%w", err)
	}
	for _, r := range section.Ranges {
		out = append(out, span{f.Name, "network." + r.Field, r.Prefix, r.Free})
	}
	return out, nil
}

func set(p netip.Prefix, without ...netip.Prefix) (*netipx.IPSet, error) {
	var b netipx.IPSetBuilder
	b.AddPrefix(p)
	for _, w := range without {
		b.RemovePrefix(w)
	}
	return b.IPSet()
}
