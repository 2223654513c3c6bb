// Package generate writes what a cluster needs for its fabrics: networks, device plugin configurations and workloads,
// ready to apply, with the reason of each choice as a comment. Values in, text out.
package generate

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"text/template"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

//go:embed templates/*.yaml
var files embed.FS

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
	GPUs      int            // per pod; -1: those of a node
	Shared    bool           // device-plugin: for k8s-rdma-shared-dev-plugin
	VFs       bool           // networks and resources of virtual functions instead of whole ports
	SameNode  bool           // perftest-pods: they may be on one node

	DRA      bool   // fabrics for ResourceClaims, and pods with them
	Pod      bool   // claim: a pod with it as well
	Rails    int    // of a claim; 0: all
	PerRail  bool   // a claim has a request for each rail, by its number
	MinRate  int    // of a claim's rails in Gb/s; 0: any
	GPUClass string // DeviceClass of the GPUs that a claim has beside its rails; empty: none
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
	VFs      bool // of virtual functions: one rail
}

// errNothing tells that no node has a usable port.
var errNothing = errors.New("no usable RDMA port on any node: nothing to generate; fabricctl discover says why")

// Generate writes one kind for the nodes.
func Generate(kind string, nodes []*node.Node, o Options) (string, error) {
	var ports []topology.Port
	gpus := 0
	mode := ""
	for _, n := range nodes {
		if err := Valid(n); err != nil {
			return "", err
		}
		ports = append(ports, n.Ports()...)
		gpus = max(gpus, len(n.GPUs))
		mode = cmp.Or(mode, n.RDMAMode)
	}
	all := topology.Group(ports)
	if len(all.Fabrics) == 0 {
		return "", errNothing
	}
	asked := o.GPUs
	if kind == "claim" {
		o.DRA = true
	}
	if o.DRA {
		o.Prefix = AgentPrefix
	}
	if o.GPUs < 0 {
		o.GPUs = gpus
	}
	if kind == "perftest-pods" {
		o.GPUs = 0
	}
	list, err := networks(all, &o, nodes)
	if err != nil {
		return "", err
	}
	if kind == "fabric" {
		const most = 20 // of thousands of nodes nobody reads more
		d := data{Options: o, Left: all.Left[:min(len(all.Left), most)], More: max(len(all.Left)-most, 0)}
		if d.Objects, err = objects(list, nodes, &o); err != nil {
			return "", err
		}
		return d.render("fabric.yaml")
	}
	if err := ranges(list, &o); err != nil {
		return "", err
	}
	d := data{Options: o, Networks: list, Left: all.Left, Mode: cmp.Or(mode, "shared"), Several: len(nodes) > 1}
	d.askedGPUs = asked
	if d.Workload, err = d.workload(all); err != nil {
		return "", err
	}
	d.Groups = groups(nodes, list)
	if o.DRA && IsWorkload(kind) {
		err = d.claim(nodes)
	} else {
		err = o.noClaim(kind, "want generate claim, or a workload with --allocation dra")
	}
	if err != nil {
		return "", err
	}
	return d.render(d.file(kind))
}

// file is the template of a kind.
func (d *data) file(kind string) string {
	switch {
	case d.Shared && kind == "device-plugin":
		return "rdma-shared.yaml"
	case d.Pod && kind == "claim":
		return "pod.yaml"
	}
	return kind + ".yaml"
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

// Group is the nodes that one device plugin configuration is right for.
type Group struct {
	Name      string
	Nodes     []string
	Resources []Resource
}

// Resource is one resource of a device plugin on such nodes.
type Resource struct {
	Name      string
	Reason    string
	Vendors   []string
	Devices   []string
	Addresses []string
	Netdevs   []string
	LinkType  string   // as sysfs says it: infiniband, ether
	Roots     []string // addresses of PFs whose VFs are meant
	Hint      string
}

// groups puts nodes together that have the same ports in the same places and states: where one port of two is cabled,
// and not the same one everywhere, an address that is right on one node is a Down port on the next.
func groups(nodes []*node.Node, list []Network) (out []Group) {
	for _, n := range nodes {
		g := Group{Nodes: []string{n.Name}}
		for i := range list {
			if r := resource(&list[i], n); r.has() {
				g.Resources = append(g.Resources, r)
			}
		}
		if len(g.Resources) == 0 {
			continue
		}
		same := func(o Group) bool { return slices.EqualFunc(o.Resources, g.Resources, equal) }
		if i := slices.IndexFunc(out, same); i >= 0 {
			out[i].Nodes = append(out[i].Nodes, n.Name)
			continue
		}
		out = append(out, g)
	}
	for i := range out {
		out[i].Name = "config"
		if len(out) > 1 {
			out[i].Name = "config-" + out[i].Nodes[0]
		}
	}
	return out
}

func equal(a, b Resource) bool {
	return a.Name == b.Name && slices.Equal(a.Addresses, b.Addresses) && slices.Equal(a.Roots, b.Roots) &&
		slices.Equal(a.Netdevs, b.Netdevs) &&
		slices.Equal(a.Devices, b.Devices)
}

func resource(n *Network, on *node.Node) Resource {
	r := Resource{Name: n.Resource, Reason: n.Reason, LinkType: "infiniband"}
	if n.Fabric.LinkLayer == device.Ethernet {
		r.LinkType = "ether"
	}
	if n.VFs {
		return vfResource(n, r, on)
	}
	for _, rail := range n.Rails {
		for _, p := range rail.Ports {
			if p.Node != on.Name || p.Kind != "PF" {
				continue
			}
			vendor, dev, _ := strings.Cut(p.Device, ":")
			r.Vendors, r.Devices = add(r.Vendors, vendor), add(r.Devices, dev)
			r.Addresses, r.Netdevs = add(r.Addresses, p.PCI), add(r.Netdevs, p.Netdev)
		}
	}
	return r
}

// data is what the templates see.
type data struct {
	Options
	Networks []Network
	Workload []Network // those of the workload's fabric
	Objects  []Object
	Groups   []Group
	Left     []topology.Left
	More     int // that are not in Left
	Mode     string
	Several  bool
	Claim    *Claim // nil: pods ask for resources

	cluster     bool // from Fabrics
	askedGPUs   int  // -1: those that there are
	gpusInClaim bool
}

// workload are the networks of one fabric: the one asked for, or the one with the most bandwidth.
func (d *data) workload(all topology.Fabrics) (out []Network, err error) {
	best := &all.Fabrics[0]
	for i := range all.Fabrics {
		f := &all.Fabrics[i]
		if f.Name == d.Fabric ||
			d.Fabric == "" && float64(len(f.Rails))*f.RateGb > float64(len(best.Rails))*best.RateGb {
			best = f
		}
	}
	if best.RateGb < float64(d.MinRate) {
		return nil, fmt.Errorf("--min-rate %d: the rails of %s have %v Gb/s", d.MinRate, best.Name, best.RateGb)
	}
	for _, n := range d.Networks {
		if n.Fabric.Name == best.Name {
			out = append(out, n)
		}
	}
	return out, nil
}

// Annotation names each network once per rail.
func (d *data) Annotation() string {
	var names []string
	for _, n := range d.Workload {
		for range n.Rails {
			names = append(names, n.Name)
		}
	}
	return strings.Join(names, ", ")
}

// Slots is how many processes a pod has: one per GPU, and one without any.
func (d *data) Slots() int { return max(1, d.GPUs) }

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

// PluginGPUs is how many GPUs a pod asks the GPUs' device plugin for.
func (d *data) PluginGPUs() int {
	if d.gpusInClaim {
		return 0
	}
	return d.GPUs
}

// Planes tells whether the workload's rails are planes.
func (d *data) Planes() bool { return len(d.Workload) > 0 && d.Workload[0].Fabric.Planes }

// RailCount is how many rails a pod gets.
func (d *data) RailCount() (n int) {
	for _, w := range d.Workload {
		n += len(w.Rails)
	}
	return n
}

func (d *data) render(name string) (string, error) {
	var b strings.Builder
	var values slots
	t := template.New("")
	t.Funcs(template.FuncMap{
		"put":   values.put,
		"names": func(list []string) string { return strings.Join(list, ", ") },
		"last":  func(i, n int) bool { return i == n-1 },
		"roles": func() []string { return []string{"Master", "Worker"} },
		"sides": func() []string { return Sides(d.Workers) },
		"add":   func(a, b int) int { return a + b },
		"include": func(name string, by int) (included, error) {
			var s strings.Builder
			err := t.ExecuteTemplate(&s, name, d)
			pad := strings.Repeat(" ", by)
			return included(strings.TrimRight(strings.ReplaceAll(pad+s.String(), "\n", "\n"+pad), " \n")), err
		},
	})
	if _, err := t.ParseFS(files, "templates/*.yaml"); err != nil {
		return "", fmt.Errorf("parse templates: %w", err)
	}
	guard(t)
	if err := t.ExecuteTemplate(&b, name, d); err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	text, err := values.encoded(b.String())
	if err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	return text, nil
}
