// Package generate writes what a cluster needs for its fabrics: networks, device plugin configurations and workloads,
// ready to apply, with the reason of each choice as a comment. Values in, text out.
package generate

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Kinds are what can be generated.
var Kinds = []string{"fabric", "nad", "device-plugin", "deployment", "pod", "pytorchjob", "mpijob", "volcano",
	"perftest-pods", "claim"}

// AgentPrefix is that of the resources of fabric-agent, which are called like the fabric.
const AgentPrefix = "fabric.dev"

// Options are the choices that the nodes do not make.
type Options struct {
	Namespace string
	Name      string // of the workload
	Image     string
	Fabric    string         // only this one; empty: all for networks, the one with the most bandwidth for workloads
	Prefix    string         // of resources: nvidia.com
	Range     netip.Prefix   // addresses of the rails; planes share it out, a part each
	Exclude   []netip.Prefix // not to be given
	Nodes     int            // that each range has to do for; 0: those that were looked at
	Workers   int            // of a job
	GPUs      int            // per pod; -1: those of a node, in proportion to the rails
	GPU       string         // resource of GPUs; empty: by their vendor
	Shared    bool           // for k8s-rdma-shared-dev-plugin
	Target    string         // nad: NetworkOperator for its objects; empty: networks
	VFs       bool           // networks and resources of virtual functions instead of whole ports
	SameNode  bool           // perftest-pods: they may be on one node

	DRA      bool   // fabrics for ResourceClaims, and pods with them
	Pod      bool   // claim: a pod with it as well
	Rails    int    // of a pod; 0: all
	First    int    // of these, where rails are planes
	PerRail  bool   // a claim has a request for each rail, by its number
	MinRate  int    // of a claim's rails in Gb/s; 0: any
	GPUClass string // DeviceClass of the GPUs that a claim has beside its rails; empty: none

	Taken *Taken       // what the cluster has; nil: not known
	Note  func(string) // receives why a range is proposed; may be nil

	Plugin *DaemonSet   // the device plugin that runs in the cluster; nil: not known
	Warn   func(string) // receives what is left out, which a comment names too; may be nil
}

// Network is one NetworkAttachmentDefinition, and the resource that counts its devices.
type Network struct {
	Name     string
	Resource string // without prefix
	Fabric   *topology.Fabric
	Rails    []topology.Rail
	Range    netip.Prefix
	Exclude  []netip.Prefix
	Reason   string
	Need     int // addresses
	Have     int
	VFs      bool   // of virtual functions: one rail
	Master   string // interface of the host that pods have interfaces on; empty: a device is theirs
	Shared   bool   // pods share the devices: of attachment IPoIBChild, or of the RDMA shared device plugin
	Warn     []string
}

// errNothing tells that no node has a usable port.
var errNothing = errors.New("no usable RDMA port on any node: nothing to generate; fabricctl discover says why")

// Generate writes one kind for the nodes. What is wrong with an option alone is a FlagError.
func Generate(kind string, nodes []*node.Node, o Options) (string, error) {
	for _, n := range nodes {
		if err := Valid(n); err != nil {
			return "", err
		}
	}
	all, doubts := discovered(nodes, o.Fabric)
	if len(all.Fabrics) == 0 {
		return "", errNothing
	}
	if kind == "claim" {
		o.DRA = true
	}
	if o.DRA {
		o.Prefix = AgentPrefix
	}
	list, err := networks(all, &o, nodes)
	if err != nil {
		return "", err
	}
	if kind == "fabric" || kind == "nad" {
		if err := o.own(nodes); err != nil {
			return "", err
		}
	}
	const most = 20 // a longer list is not readable
	d := data{Options: o, kind: kind, doubts: doubts, Networks: list, Left: all.Left[:min(len(all.Left), most)],
		More: max(len(all.Left)-most, 0)}
	var docs []doc
	switch kind {
	case "fabric":
		docs, err = d.fabricDocs(nodes)
	case "nad":
		if err = d.networks(nodes); err == nil {
			docs, err = d.networkDocs()
		}
	case "device-plugin":
		d.Groups = groups(nodes, list, &o)
		d.exclusive(nodes)
		docs, err = d.pluginDocs()
	default:
		if err = d.pods(kind, all, nodes); err == nil {
			docs = d.objects()
		}
	}
	if err == nil && len(docs) == 0 {
		err = errNothing
	}
	if err != nil {
		return "", err
	}
	docs[0].head = append(d.leftOut(), docs[0].head...)
	return d.text(docs)
}

// leftOut names the ports that are in no network.
func (d *data) leftOut() (lines []string) {
	what := map[string]string{"fabric": "Fabric", "nad": "network", "device-plugin": "resource"}[d.kind]
	if what == "" {
		return nil
	}
	for _, l := range d.Left {
		lines = append(lines, fmt.Sprintf("Not in any %s: %s %s: %s.", what, l.Port.Node, l.Port.Name(), l.Reason))
	}
	if d.More > 0 {
		lines = append(lines, fmt.Sprintf("Nor are %d others: fabricctl discover says why.", d.More))
	}
	return lines
}

// networks are those of the nad kind, with their addresses.
func (d *data) networks(nodes []*node.Node) (err error) {
	if d.Target != "" {
		if err := d.operator(nodes); err != nil {
			return err
		}
	}
	if d.Shared {
		d.exclusive(nodes)
		if d.Networks, err = onMasters(d.Networks); err != nil {
			return err
		}
	}
	return ranges(d.Networks, &d.Options)
}

// pods chooses what the pods of a workload have.
func (d *data) pods(kind string, all topology.Fabrics, nodes []*node.Node) (err error) {
	if d.Workload, err = d.workload(all); err != nil {
		return err
	}
	if d.Shared {
		d.exclusive(nodes)
	}
	if d.Prefix == AgentPrefix && !d.DRA {
		d.sharedFabrics(nodes)
	}
	if err := d.chooseGPUs(kind, d.having(nodes)); err != nil {
		return err
	}
	if d.DRA {
		return d.claim(nodes)
	}
	if err := d.noClaim("want generate claim, or a workload with --allocation dra"); err != nil {
		return err
	}
	return d.limit()
}

// networks makes one network per fabric, or one per rail where rails are planes: an address, and a device, of one plane
// is of no use on another.
func networks(all topology.Fabrics, o *Options, pictures []*node.Node) (out []Network, err error) {
	for i := range all.Fabrics {
		f := &all.Fabrics[i]
		if o.Fabric != "" && f.Name != o.Fabric {
			continue
		}
		nodes := max(o.Nodes, len(f.Nodes()))
		if o.VFs {
			out = append(out, virtual(f, nodes, pictures)...)
			continue
		}
		if !f.Planes {
			out = append(
				out,
				Network{Name: f.Name, Fabric: f, Rails: f.Rails, Need: nodes * len(f.Rails), Reason: f.Reason},
			)
			continue
		}
		for _, r := range f.Rails {
			out = append(
				out,
				Network{
					Name:   fmt.Sprintf("%s-rail%d", f.Name, r.Index),
					Fabric: f,
					Rails:  []topology.Rail{r},
					Need:   nodes,
					Reason: "rail " + fmt.Sprint(r.Index) + " of " + f.Name + ", a plane of its own: " + r.Reason,
				},
			)
		}
	}
	if len(out) == 0 && o.VFs && o.Fabric == "" {
		return nil, errors.New(
			"no port has virtual functions, or could have: SR-IOV is off in the BIOS or in firmware (mlxconfig -d " +
				"ADDRESS set SRIOV_EN=1 NUM_OF_VFS=8)",
		)
	}
	if len(out) == 0 {
		var names []string
		for _, f := range all.Fabrics {
			names = append(names, f.Name)
		}
		return nil, fmt.Errorf("no fabric %q: there are %s", o.Fabric, strings.Join(names, ", "))
	}
	for i := range out {
		out[i].Resource = out[i].Name
		if o.Prefix != AgentPrefix { // the SR-IOV network device plugin takes no dash
			out[i].Resource = strings.ReplaceAll(out[i].Name, "-", "_")
		}
	}
	return out, nil
}

// data is what is written.
type data struct { //nolint:methods // templates call them
	Options
	Networks []Network
	Workload []Network // those of the workload's fabric
	Groups   []Group
	Left     []topology.Left
	More     int    // that are not in Left
	Claim    *Claim // nil: pods ask for resources

	cluster     bool // from Fabrics
	gpusInClaim bool
	GPUNote     string // where the number of GPUs comes from
	Note        string // of all documents

	kind      string
	doubts    []string // left out, with the reason
	askedGPUs int      // -1: those that there are
}

// workload are the networks of one fabric: the one asked for, or the one with the most bandwidth.
func (d *data) workload(all topology.Fabrics) (out []Network, err error) {
	var best *topology.Fabric
	for i := range all.Fabrics {
		f := &all.Fabrics[i]
		here := slices.ContainsFunc(d.Networks, func(n Network) bool { return n.Fabric.Name == f.Name })
		if here && (best == nil || float64(len(f.Rails))*f.RateGb > float64(len(best.Rails))*best.RateGb) {
			best = f
		}
	}
	if best.RateGb < float64(d.MinRate) {
		return nil, &FlagError{"min-rate", d.MinRate, fmt.Sprintf("the rails of %s have %v Gb/s", best.Name,
			best.RateGb)}
	}
	for _, n := range d.Networks {
		if n.Fabric.Name == best.Name {
			out = append(out, n)
		}
	}
	return out, nil
}

// Annotation names each network once per rail. Pods that share InfiniBand devices by the shared device plugin need
// none.
func (d *data) Annotation() string {
	var names []string
	for i := range d.Workload {
		n := &d.Workload[i]
		if d.Shared && n.InfiniBand() {
			continue
		}
		for j := range n.devices() {
			name := n.Name
			if d.Shared {
				name = railName(n, j)
			}
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// slots is how many processes a pod has: one per GPU, and one without any.
func (d *data) slots() int { return max(1, d.GPUs) }

// Sides are the endings of the names of n test pods: a, b, ... z, aa, ab, ...
func Sides(n int) (out []string) {
	for i := range n {
		s := ""
		for i++; i > 0; i = (i - 1) / 26 {
			s = string(rune('a'+(i-1)%26)) + s
		}
		out = append(out, s)
	}
	return out
}

// Planes tells whether the workload's rails are planes.
func (d *data) Planes() bool {
	return len(d.Workload) > 0 && d.Workload[0].Fabric.Planes || d.SharedRoCE() &&
		d.RailCount() > 1 // ranges of their own
}

// ConfigMap is the name of a device plugin's configuration.
func (d *data) ConfigMap(g Group) string {
	name := "sriovdp-config"
	if d.Shared {
		name = "rdma-devices"
	}
	if d.Plugin != nil {
		name = cmp.Or(d.Plugin.ConfigMap, name)
	}
	if len(d.Groups) > 1 {
		name += "-" + g.Nodes[0]
	}
	return name
}

// devices are the rails with an HCA of their own. The further ports of a RoCE HCA, which are rails too, go into the pod
// with its first one.
func (n *Network) devices() (out []topology.Rail) {
	seen := map[hcaKey]bool{}
	for i := range n.Rails {
		again := n.joinsPorts() && len(n.Rails[i].Ports) > 0
		for _, p := range n.Rails[i].Ports {
			again = again && seen[hcaKey{p.Node, p.HCA}]
			seen[hcaKey{p.Node, p.HCA}] = true
		}
		if !again {
			out = append(out, n.Rails[i])
		}
	}
	return out
}

// joinsPorts says whether a pod can get all ports of an HCA: see allPorts.
func (n *Network) joinsPorts() bool { return n.Fabric.LinkLayer == device.Ethernet && n.Master == "" }

// hcaKey names an HCA of all nodes.
type hcaKey struct{ node, name string }

// RailCount is how many rails a pod gets.
func (d *data) RailCount() (n int) {
	for _, w := range d.Workload {
		n += len(w.Rails)
	}
	return n
}
