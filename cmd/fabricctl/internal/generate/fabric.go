package generate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// defaultShares is how many pods share a device where RDMA devices are shared: the default of a Fabric.
const defaultShares = 8

// Object is what a Fabric is made of.
type Object struct {
	Network
	Match
	Attachment v1alpha1.Attachment
	Shares     int                 // attachment IPoIBChild
	RDMA       v1alpha1.RDMAMode   // network.rdmaMode; empty: as it comes
	AllPorts   bool                // network.allPorts: an HCA has several ports
	PerNode    int                 // prefix length of a node's range
	PerHost    int                 // addresses that a node has
	Room       int                 // nodes that have a range
	Why        string              // why the range was proposed; empty: the options have it
	Keep       *v1alpha1.Addresses // those that the Fabric has in the cluster; nil: Range is new
	Warn       []string
}

// objects makes the Fabrics of the networks.
func objects(list []Network, nodes []*node.Node, o *Options) (out []Object, err error) {
	parts := make([]netip.Prefix, len(list))
	if o.Range.IsValid() || o.Taken == nil {
		if parts, err = split(o.Range, len(list)); err != nil {
			return nil, err
		}
	}
	ports, chosen, halves := devices(nodes), newChooser(nodes, o), torn(list)
	for i := range list {
		x := Object{Network: list[i], Attachment: v1alpha1.WholeDevice}
		x.mode(nodes)
		x.Match = ports.match(&x.Network)
		x.Warn = append(x.Warn, x.Doubts...)
		x.Warn = append(x.Warn, x.Warnings()...)
		if w := halves[x.Name]; w != "" && x.Attachment == v1alpha1.WholeDevice {
			x.Warn = append(x.Warn, w)
		}
		x.AllPorts = x.Attachment == v1alpha1.WholeDevice && len(x.devices()) < len(x.Rails)
		x.need()
		if err := chosen.choose(&x, parts[i]); err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

// torn says, by network, which HCA has ports in another network too: a pod that gets it gets it whole.
func torn(list []Network) map[string]string {
	const text = "ports of %s on %s are in %s and in %s, and both Fabrics match the one RDMA device: " +
		"keep one of them, with allPorts: true"
	first, out := map[hcaKey]string{}, map[string]string{}
	note := func(name string, p *topology.Port) {
		key := hcaKey{p.Node, p.HCA}
		of := cmp.Or(first[key], name)
		first[key] = of
		if of != name {
			out[name] = cmp.Or(out[name], fmt.Sprintf(text, p.HCA, p.Node, of, name))
			out[of] = cmp.Or(out[of], out[name])
		}
	}
	for i := range list {
		if !list[i].joinsPorts() {
			continue
		}
		for _, r := range list[i].Rails {
			for j := range r.Ports {
				note(list[i].Name, &r.Ports[j])
			}
		}
	}
	return out
}

// fabricDocs are the Fabrics of the networks.
func (d *data) fabricDocs(nodes []*node.Node) (docs []doc, err error) {
	list, err := objects(d.Networks, nodes, &d.Options)
	if err != nil {
		return nil, err
	}
	for i := range list {
		docs = append(docs, list[i].doc(&d.Options))
	}
	return docs, nil
}

const sharedSubnet = "The rails of a pod share the subnet; without a table per rail all traffic would leave through " +
	"one of them."

// doc is the Fabric, with its comments.
func (x *Object) doc(o *Options) doc {
	spec := v1alpha1.FabricSpec{
		Match:      v1alpha1.Match{LinkLayer: string(x.LinkLayer), SubnetPrefix: x.Prefix, Devices: x.Devices},
		Attachment: x.Attachment,
		Network:    v1alpha1.Network{RDMAMode: x.RDMA, AllPorts: x.AllPorts},
		Namespaces: v1alpha1.Namespaces{Names: []string{o.Namespace}},
		Addresses:  &v1alpha1.Addresses{NodeRanges: &v1alpha1.NodeRanges{}},
	}
	notes := map[string]string{
		"attachment": "One pod per device.",
		"rail":       "Counted from 0 in the order of PCI addresses, on each node.",
		"rdmaMode":   "The mode of the nodes; one in another mode is refused, with the reason.",
		"namespaces": "Where pods can ask for it.",
		"shares":     "Pods on one device.",
		"allPorts":   "Some of the RDMA devices have several ports, each with an interface.",
		"allocation": fmt.Sprintf("Pods have ResourceClaims of the DeviceClass %s; Kubernetes "+
			"1.34.", class(&x.Network)),
		"nodeRanges": fmt.Sprintf("A range of %d addresses for each node, which needs %d; there is room for %d nodes.",
			x.PerHost, x.Need, x.Room),
	}
	if x.Why != "" {
		notes["nodeRanges"] += "\n" + wrapped(x.Why)
	}
	if x.RateGb != 0 {
		spec.Match.RateGb = new(int32(x.RateGb))
	}
	if x.Rail >= 0 {
		spec.Match.Rail = new(int32(x.Rail))
	}
	if x.Shares > 0 {
		spec.Shares = new(int32(x.Shares))
		notes["attachment"] = "The nodes are in RDMA mode shared: each pod has an IPoIB interface of its own on a " +
			"device, and sees the\nRDMA devices of all pods."
	}
	if o.DRA {
		spec.Allocation = v1alpha1.DRA
	}
	r := v1alpha1.NodeRange{Range: x.Range.String(), PerNodePrefixLength: int32(x.PerNode)}
	for _, e := range x.Exclude {
		r.Exclude = append(r.Exclude, e.String())
	}
	spec.Addresses.NodeRanges.Ranges = []v1alpha1.NodeRange{r}
	if x.Keep != nil {
		spec.Addresses = x.Keep
		delete(notes, "nodeRanges")
		notes["addresses"] = "Those that the Fabric has in the cluster."
	}
	return doc{
		object: object{
			TypeMeta: kind(v1alpha1.GroupVersion.String(), "Fabric"),
			Metadata: metav1.ObjectMeta{Name: x.Name}, Spec: spec,
		},
		head:  append([]string{x.Name + ": " + x.Reason + "."}, warnings(x.Fabric.Warnings, x.Warn)...),
		notes: notes,
	}
}

// Warnings say what addresses the pods of a routed fabric need.
func (n *Network) Warnings() []string {
	if !n.Fabric.Routed {
		return nil
	}
	return []string{"these ports are routed. A range that any pod on any node has an address of does not lead to the " +
		"right rack: give each node a subnet that its switches route, with a gateway (nv-ipam with a CIDRPool, or " +
		"nodeRanges with static), and not what stands here"}
}

// mode is that in which the nodes give RDMA devices to pods. A RoCE interface has no IPoIB children: there pods get
// whole interfaces in either mode.
func (x *Object) mode(nodes []*node.Node) {
	in := map[string][]string{}
	for _, name := range x.Fabric.Nodes() {
		if i := slices.IndexFunc(nodes, func(n *node.Node) bool { return n.Name == name }); i >= 0 {
			in[nodes[i].RDMAMode] = append(in[nodes[i].RDMAMode], name)
		}
	}
	exclusive, shared := in["exclusive"], in["shared"]
	if len(exclusive) > 0 && len(shared) > 0 {
		x.Warn = append(x.Warn, fmt.Sprintf("the RDMA mode is exclusive on %s and shared on %s: one of them is what "+
			"this Fabric needs, and the other nodes have to be changed (options ib_core netns_mode=, and a reboot)",
			few(exclusive), few(shared)))
	}
	switch {
	case len(exclusive) > 0 && len(exclusive) >= len(shared):
		x.RDMA = v1alpha1.RDMAExclusive
	case len(shared) > 0 && x.Fabric.LinkLayer == device.InfiniBand:
		x.Attachment, x.Shares = v1alpha1.IPoIBChild, defaultShares
	}
}

// few are some names, for people.
func few(list []string) string {
	const most = 4
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}

// smallest are the longest prefixes of a node's range, by the length of an address: a node that gets another HCA has
// room for it.
var smallest = map[int]int{32: 28, 128: 124}

// need counts the addresses that the node with most of them needs.
func (x *Object) need() {
	perNode := map[string]int{}
	x.Need = 0
	for _, r := range x.Rails {
		for _, p := range r.Ports {
			perNode[p.Node] += max(x.Shares, 1)
			x.Need = max(x.Need, perNode[p.Node])
		}
	}
}

// nodes is how many nodes have ports of the network.
func (x *Object) nodes() int {
	seen := map[string]bool{}
	for _, r := range x.Rails {
		for _, p := range r.Ports {
			seen[p.Node] = true
		}
	}
	return len(seen)
}

// ranges divides the range into one for each node, as small as the interfaces of a node allow.
func (x *Object) ranges(o *Options) error {
	of := func(bits int) int { return pool.Usable(netip.PrefixFrom(x.Range.Addr(), bits)) }
	bits := smallest[x.Range.Addr().BitLen()]
	for bits > x.Range.Bits() && of(bits) < x.Need {
		bits--
	}
	x.PerNode, x.PerHost = bits, of(bits)
	const most = 20 // a million nodes
	x.Room = 1 << min(max(bits-x.Range.Bits(), 0), most)
	for _, e := range o.Exclude {
		e = e.Masked()
		if !x.Range.Overlaps(e) || slices.Contains(x.Exclude, e) {
			continue
		}
		if e.Bits() < x.Range.Bits() {
			e = x.Range
		}
		x.Exclude = append(x.Exclude, e)
		x.Room -= 1 << min(max(bits-e.Bits(), 0), most)
	}
	if nodes := max(o.Nodes, x.nodes()); bits < x.Range.Bits() || x.PerHost < x.Need || x.Room < nodes {
		return fmt.Errorf("fabric %s: range %s has room for %d nodes with %d addresses each (/%d), %d nodes are "+
			"needed; choose a wider --range", x.Name, x.Range, max(x.Room, 0), x.PerHost, bits, nodes)
	}
	return nil
}
