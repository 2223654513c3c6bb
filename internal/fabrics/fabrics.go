// Package fabrics judges Fabrics: what the API server can't see when one is applied, such as what the plugin would say
// of its network, or that two fabrics would give the same addresses. The controller, the agents and fabricctl work with
// what comes out of it. It is pure.
package fabrics

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fabric-cni/fabric-cni/internal/health"
	"github.com/fabric-cni/fabric-cni/internal/noderange"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Fabric is a Fabric that has been read: every default is filled in.
type Fabric struct {
	Name       string
	Generation int64 // of the spec that it was read from
	Precedence int
	Match      Match
	// Nodes selects the Nodes whose devices belong to the fabric; nil: all Nodes. Who may not read Nodes goes by the
	// spec of the FabricNode.
	Nodes      labels.Selector
	Attachment v1alpha1.Attachment
	Shares     int // attachment IPoIBChild: pods on one device
	Allocation v1alpha1.Allocation
	AllPorts   bool     // the interfaces of all ports of an RDMA device go into the pod
	Files      []string // kinds of device files beside those that verbs need: umad, issm
	Namespaces v1alpha1.Namespaces
	// Network is the network's configuration without what depends on the node, and without its name and type.
	Network map[string]any
	// NodeRanges replaces network.ipam: each node has a range of its own. Nil: the ipam section says where addresses
	// come from, if there is one.
	NodeRanges *noderange.Spec
	// Host replaces network.ipam as well: interfaces keep the addresses that they have on the host. Nil: they do not.
	Host   *v1alpha1.HostAddresses
	Health health.Limits
}

// Driver is the name of the DRA driver, and of the DeviceClass of all its devices.
const Driver = netconf.Domain

// ResourcePrefix is the domain of the resources.
const ResourcePrefix = netconf.Domain + "/"

const (
	defaultShares    = 8
	defaultNamespace = "default"
)

// DefaultReclaim is how long a Node must have been gone before its range may be another's.
const DefaultReclaim = 24 * time.Hour

// Resource is what pods ask for.
func (f *Fabric) Resource() string { return ResourcePrefix + f.Name }

// DeviceClass is the name of the DeviceClass of the fabric's devices, with allocation DRA.
func (f *Fabric) DeviceClass() string { return f.Name + "." + Driver }

// Parse reads a Fabric. It rejects what can't work, with an error that names the field and what is allowed: also what
// the API server rejects, because a Fabric may come from a file.
func Parse(o *v1alpha1.Fabric) (*Fabric, error) {
	s := &o.Spec
	f := &Fabric{
		Name: o.Name, Generation: o.Generation, Precedence: int(s.Precedence),
		Attachment: cmp.Or(s.Attachment, v1alpha1.WholeDevice),
		Namespaces: s.Namespaces, Allocation: cmp.Or(s.Allocation, v1alpha1.DevicePlugin),
	}
	if len(f.Namespaces.Names) == 0 && f.Namespaces.Selector == nil {
		f.Namespaces.Names = []string{defaultNamespace}
	}
	limits, herr := health.ParseLimits(&s.Health, s.Network.AllowDown)
	err := errors.Join(f.head(s), f.match(&s.Match), f.network(&s.Network), f.addresses(s.Addresses), herr)
	if err != nil {
		return nil, err
	}
	f.Health = *limits
	if _, err := f.spans(); err != nil {
		return nil, err
	}
	if _, err := f.Netconf(); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *Fabric) head(s *v1alpha1.FabricSpec) error {
	if !isLabel(f.Name) {
		return fmt.Errorf("metadata.name %q: want 1 to 50 of a-z, 0-9 and -, as in ib-200g", f.Name)
	}
	if f.Attachment != v1alpha1.WholeDevice && f.Attachment != v1alpha1.IPoIBChild {
		return fmt.Errorf("attachment %q: must be WholeDevice or IPoIBChild", f.Attachment)
	}
	if s.NodeSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(s.NodeSelector)
		if err != nil {
			return fmt.Errorf("nodeSelector: %w", err)
		}
		f.Nodes = selector
	}
	if f.Allocation != v1alpha1.DevicePlugin && f.Allocation != v1alpha1.DRA {
		return fmt.Errorf("allocation %q: want DevicePlugin or DRA", s.Allocation)
	}
	for _, kind := range s.DeviceFiles {
		if kind != v1alpha1.UMAD && kind != v1alpha1.ISSM {
			return fmt.Errorf("deviceFiles %q: must be UMAD or ISSM; uverbs and rdma_cm are always there", kind)
		}
		f.Files = append(f.Files, strings.ToLower(string(kind)))
	}
	switch {
	case f.Attachment == v1alpha1.WholeDevice && s.Shares != nil:
		return errors.New("shares: for attachment IPoIBChild only")
	case f.Attachment == v1alpha1.IPoIBChild && s.Shares == nil:
		f.Shares = defaultShares
	case s.Shares != nil && (*s.Shares < 1 || *s.Shares > 1000):
		return fmt.Errorf("shares %d: want 1 to 1000", *s.Shares)
	case s.Shares != nil:
		f.Shares = int(*s.Shares)
	}
	return nil
}

func (f *Fabric) match(m *v1alpha1.Match) error {
	f.Match = Match{Discovered: m.Discovered, LinkLayer: device.LinkLayer(m.LinkLayer), Driver: m.Driver,
		Devices: m.Devices}
	if m.SubnetPrefix != "" {
		p, err := device.ParseSubnetPrefix(m.SubnetPrefix)
		if err != nil {
			return fmt.Errorf("match.subnetPrefix: %w", err)
		}
		f.Match.SubnetPrefix = p
	}
	if m.RateGb != nil {
		f.Match.RateGb = float64(*m.RateGb)
		if f.Match.RateGb == 0 {
			return errors.New("match.rateGb 0: no link has this rate; the nearest one is 2.5")
		}
	}
	if m.Rail != nil {
		rail := int(*m.Rail)
		f.Match.Rail = &rail
	}
	return f.Match.check()
}

// network makes the configuration of the typed settings.
func (f *Fabric) network(n *v1alpha1.Network) error {
	settings, err := Settings(n)
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	f.Network, f.AllPorts = settings, n.AllPorts
	return nil
}

func (f *Fabric) addresses(a *v1alpha1.Addresses) error {
	switch {
	case a == nil:
		return nil
	case countTrue(a.NodeRanges != nil, a.IPAM != nil, a.Host != nil) != 1:
		return errors.New("addresses: want exactly one of nodeRanges, ipam and host")
	case a.Host != nil && f.Attachment != v1alpha1.WholeDevice:
		return errors.New("addresses.host: for attachment WholeDevice only: an IPoIB child is a new interface, of " +
			"which the host has no addresses")
	case a.Host != nil:
		f.Host = a.Host
		f.Network["hostAddresses"] = true
		host, err := Settings(a.Host)
		maps.Copy(f.Network, host)
		return err
	case a.IPAM != nil:
		var section map[string]any
		b, err := a.IPAM.MarshalJSON()
		if err == nil {
			err = json.Unmarshal(b, &section)
		}
		if err != nil {
			return fmt.Errorf("addresses.ipam: %w", err)
		}
		f.Network["ipam"] = section
		return nil
	}
	spec, err := nodeRanges(f.Name, a.NodeRanges)
	f.NodeRanges = spec
	return err
}

func countTrue(list ...bool) (n int) {
	for _, is := range list {
		if is {
			n++
		}
	}
	return n
}

func nodeRanges(fabric string, r *v1alpha1.NodeRanges) (*noderange.Spec, error) {
	const field = "addresses.nodeRanges"
	out := &noderange.Spec{Fabric: fabric, Static: map[string][]netip.Prefix{}, Reclaim: DefaultReclaim}
	if r.Reclaim != nil {
		out.Reclaim = r.Reclaim.Duration
	}
	if out.Reclaim < 0 {
		return nil, fmt.Errorf("%s.reclaim %s: want a time, as in 24h", field, out.Reclaim)
	}
	if len(r.Ranges) == 0 || len(r.Ranges) > 2 {
		return nil, fmt.Errorf("%s.ranges: want one range, or one of IPv4 and one of IPv6", field)
	}
	for i := range r.Ranges {
		one, err := nodeRange(&r.Ranges[i])
		if err != nil {
			return nil, fmt.Errorf("%s.ranges[%d].%w", field, i, err)
		}
		out.Ranges = append(out.Ranges, *one)
	}
	if len(out.Ranges) == 2 && out.Ranges[0].Prefix.Addr().Is4() == out.Ranges[1].Prefix.Addr().Is4() {
		return nil, fmt.Errorf("%s.ranges: two ranges are one of IPv4 and one of IPv6", field)
	}
	for i, s := range r.Static {
		p, err := netip.ParsePrefix(s.Range)
		fits := func(r noderange.Range) bool { return p.Bits() == r.Bits && r.Prefix.Contains(p.Addr()) }
		if err != nil || p != p.Masked() || !slices.ContainsFunc(out.Ranges, fits) {
			return nil, fmt.Errorf("%s.static[%d].range %q: must be a range within ranges, as long as its "+
				"perNodePrefixLength says", field, i, s.Range)
		}
		for other, ps := range out.Static {
			if other != s.Node && slices.ContainsFunc(ps, p.Overlaps) {
				return nil, fmt.Errorf("%s.static[%d].range %s: is that of node %s", field, i, p, other)
			}
		}
		out.Static[s.Node] = append(out.Static[s.Node], p)
	}
	return out, nil
}

func nodeRange(r *v1alpha1.NodeRange) (*noderange.Range, error) {
	p, err := netip.ParsePrefix(r.Range)
	if err != nil || p != p.Masked() {
		return nil, fmt.Errorf("range %q: want the first address of a range with its prefix length, as in 10.0.0.0/16",
			r.Range)
	}
	out := &noderange.Range{Prefix: p, Bits: int(r.PerNodePrefixLength)}
	if longest := p.Addr().BitLen() - 2; out.Bits < p.Bits() || out.Bits > longest {
		return nil, fmt.Errorf("perNodePrefixLength %d: must be from %d, which is that of the range, to %d",
			r.PerNodePrefixLength, p.Bits(), longest)
	}
	for _, text := range r.Exclude {
		w, err := netip.ParsePrefix(text)
		if a, aerr := netip.ParseAddr(text); aerr == nil {
			w, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil || !p.Contains(w.Addr()) || w.Bits() < p.Bits() {
			return nil, fmt.Errorf("exclude %q: want a range or an address within %s", text, p)
		}
		out.Without = append(out.Without, w.Masked())
	}
	return out, nil
}

// IsName reports whether a Fabric could have this name.
func IsName(s string) bool { return isLabel(s) }

// isLabel reports whether a name fits a Kubernetes object, a resource, a file and a CNI network.
func isLabel(s string) bool {
	ok := len(s) > 0 && len(s) <= 50 && s[0] != '-' && s[len(s)-1] != '-'
	for _, c := range s {
		ok = ok && (c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z')
	}
	return ok
}

// Sort orders fabrics as a device looks for its own: the highest precedence first, and then by name.
func Sort(list []Fabric) {
	slices.SortFunc(list, func(a, b Fabric) int {
		return cmp.Or(cmp.Compare(b.Precedence, a.Precedence), cmp.Compare(a.Name, b.Name))
	})
}
