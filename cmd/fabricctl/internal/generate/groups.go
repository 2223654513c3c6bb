package generate

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Group is the nodes that one device plugin configuration is right for.
type Group struct {
	Prefix    string // of the resources
	Nodes     []string
	Resources []Resource

	nodes []*node.Node
}

// Resource is one resource of a device plugin on such nodes.
type Resource struct {
	Name      string
	Reason    string
	Vendors   []string
	Devices   []string
	Addresses []string // none: the ids tell its ports from all others
	Netdevs   []string // the same
	LinkType  string   // as sysfs says it: infiniband, ether
	Roots     []string // addresses of PFs whose VFs are meant
	Hints     []string
}

// DaemonSet is a device plugin that runs in the cluster.
type DaemonSet struct{ Namespace, Name, ConfigMap string }

// groups puts nodes together for which one configuration is right: it selects their Active ports and no other. Vendor
// and device ids are enough where no other port of these nodes has them. Otherwise ports are selected by address, or
// by interface for the shared device plugin; where one port of two is cabled, and not the same one everywhere, an
// address that is right on one node is a Down port on the next.
func groups(nodes []*node.Node, list []Network, o *Options) (out []Group) {
	ids := map[string]bool{}
	for i := range list {
		ids[list[i].Name] = !o.VFs && separate(&list[i], nodes, o)
	}
	for _, n := range nodes {
		g := configuration(list, n, ids)
		if len(g.Resources) == 0 {
			continue
		}
		joined := false
		for i := 0; i < len(out) && !joined; i++ {
			if both, ok := out[i].join(&g, list, o); ok {
				out[i], joined = both, true
			}
		}
		if !joined {
			out = append(out, g)
		}
	}
	for i := range out {
		out[i].Prefix = o.Prefix
	}
	return out
}

// configuration is that of one node.
func configuration(list []Network, n *node.Node, ids map[string]bool) Group {
	g := Group{nodes: []*node.Node{n}, Nodes: []string{n.Name}}
	for i := range list {
		r := resource(&list[i], n)
		if !r.has() {
			continue
		}
		if ids[list[i].Name] {
			r.Addresses, r.Netdevs = nil, nil
		}
		g.Resources = append(g.Resources, r)
	}
	return g
}

// join is the configuration of the nodes of both, and whether it is right for all of them.
func (g *Group) join(o *Group, list []Network, opt *Options) (Group, bool) {
	both := Group{nodes: append(slices.Clip(g.nodes), o.nodes...), Nodes: append(slices.Clip(g.Nodes), o.Nodes...)}
	for i := range list {
		name := list[i].Resource
		a, b := g.resource(name), o.resource(name)
		if a.Name != "" || b.Name != "" {
			both.Resources = append(both.Resources, a.with(b))
		}
	}
	for _, part := range []*Group{g, o} {
		if !part.same(&both) && !right(&both, part.nodes, list, opt) {
			return Group{}, false
		}
	}
	return both, true
}

func (g *Group) resource(name string) Resource {
	for i := range g.Resources {
		if g.Resources[i].Name == name {
			return g.Resources[i]
		}
	}
	return Resource{}
}

// same reports whether a larger configuration selects by the same values.
func (g *Group) same(larger *Group) bool {
	return slices.EqualFunc(g.Resources, larger.Resources, func(a, b Resource) bool {
		return len(a.Vendors) == len(b.Vendors) && len(a.Devices) == len(b.Devices) &&
			len(a.Addresses) == len(b.Addresses) && len(a.Netdevs) == len(b.Netdevs) && len(a.Roots) == len(b.Roots)
	})
}

// with is a resource on more nodes.
func (r Resource) with(o Resource) Resource {
	for _, l := range []*[]string{&r.Vendors, &r.Devices, &r.Addresses, &r.Netdevs, &r.Roots, &r.Hints} {
		*l = slices.Clip(*l)
	}
	for _, l := range []struct{ to, from *[]string }{
		{&r.Vendors, &o.Vendors}, {&r.Devices, &o.Devices}, {&r.Addresses, &o.Addresses}, {&r.Netdevs, &o.Netdevs},
		{&r.Roots, &o.Roots}, {&r.Hints, &o.Hints},
	} {
		for _, s := range *l.from {
			*l.to = add(*l.to, s)
		}
	}
	r.Name, r.Reason, r.LinkType = cmp.Or(r.Name, o.Name), cmp.Or(r.Reason, o.Reason), cmp.Or(r.LinkType, o.LinkType)
	return r
}

// separate reports whether the ids of a network's ports tell them from all other ports of the nodes. The shared device
// plugin also looks at the link type. The other one can't once a port is in a pod.
func separate(n *Network, nodes []*node.Node, o *Options) bool {
	type id struct {
		device string
		layer  device.LinkLayer
	}
	of := func(p *topology.Port) id {
		if o.Shared {
			return id{p.Device, p.LinkLayer}
		}
		return id{device: p.Device}
	}
	own, mine := map[string]bool{}, map[id]bool{}
	for _, r := range n.Rails {
		for _, p := range r.Ports {
			if p.Kind == "PF" {
				own[p.Node+" "+p.HCA], mine[of(&p)] = true, true
			}
		}
	}
	if len(mine) == 0 || mine[id{}] {
		return false
	}
	for _, on := range nodes {
		for _, p := range on.Ports() {
			if mine[of(&p)] && !own[p.Node+" "+p.HCA] && p.Device != "" {
				return false
			}
		}
	}
	return true
}

// right reports whether a configuration selects on each node the ports of its networks, and no others.
func right(g *Group, nodes []*node.Node, list []Network, o *Options) bool {
	for _, on := range nodes {
		want := map[string]Resource{}
		for i := range list {
			if r := resource(&list[i], on); r.has() {
				want[r.Name] = r
			}
		}
		for i := range g.Resources {
			r := &g.Resources[i]
			if len(r.Addresses)+len(r.Netdevs)+len(r.Roots) == 0 {
				continue
			}
			if !slices.Equal(slices.Sorted(slices.Values(wanted(want[r.Name], o))), selected(r, on, o)) {
				return false
			}
		}
	}
	return true
}

func wanted(r Resource, o *Options) []string {
	switch {
	case len(r.Roots) > 0:
		return r.Roots
	case o.Shared:
		return r.Netdevs
	}
	return r.Addresses
}

// selected are the addresses, or interfaces, of a node that a resource selects.
func selected(r *Resource, on *node.Node, o *Options) []string {
	out := map[string]bool{}
	for i := range on.HCAs {
		h := &on.HCAs[i]
		vendor, id, _ := strings.Cut(h.ID, ":")
		fits := slices.Contains(r.Vendors, vendor) && slices.Contains(r.Devices, id)
		if slices.Contains(r.Roots, h.PCI) {
			out[h.PCI] = true
		}
		if !fits || len(r.Roots) > 0 {
			continue
		}
		if !o.Shared {
			if slices.Contains(r.Addresses, h.PCI) {
				out[h.PCI] = true
			}
			continue
		}
		for _, p := range h.Ports {
			if slices.Contains(r.Netdevs, p.Netdev) {
				out[p.Netdev] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// resource is a network's resource on one node.
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
