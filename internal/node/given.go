package node

import (
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Told is what a container knows of the devices that it was given, beside its interfaces.
type Told struct {
	Openable map[string]bool // by HCA: whether the container has its character device; those not known are not in it
	PCI      []string        // addresses that a device plugin has named in the environment (PCIDEVICE_*)
}

// Given is what a pod sees, and what of it is the pod's own.
type Given struct {
	All    *Node   // what is visible
	Node   *Node   // without what was not given
	Others []Other // what is visible and was not given
	// Guessed reports that the pod sees every RDMA device of a node in shared mode, and that nothing tells which of
	// them are meant for it.
	Guessed bool
}

// Other is a port that was not given to the pod.
type Other struct {
	HCA  string
	Port string // mlx5_0:1
	Why  Why
}

// Why says in which way a port is another's.
type Why int

// The ways.
const (
	Closed    Why = iota // the container has no character device of it
	Elsewhere            // its interface is in another network namespace
	Unnamed              // a device plugin has named the pod's devices, and not this one
)

// Given tells what was given to a pod. In exclusive mode that is what it can see and open. In shared mode every RDMA
// device is visible in all network namespaces: a port is the pod's if its interface is here, or if the device plugin's
// variables name it, or if it was chosen: if the container has its character device, and not those of all others. An
// Ethernet port is not chosen without its interface where another one has its own: it has no GID here.
func (n *Node) Given(told Told) *Given {
	g := &Given{All: n, Node: n}
	facts := n.facts(told)
	out := *n
	out.HCAs, out.Kept = []HCA{}, nil // the policy is about the host, and here others are marked as bonds below
	for _, h := range n.HCAs {
		all := h.Ports
		h.Ports = nil
		for _, p := range all {
			if why, other := facts.other(&h, &p); other {
				g.Others = append(g.Others, Other{h.Name, portName(h.Name, p.Number), why})
				continue
			}
			if facts.shared && p.LinkLayer == device.Ethernet {
				p.GIDs = gidsHere(p.GIDs)
			}
			h.Ports = append(h.Ports, p)
		}
		if len(h.Ports) > 0 {
			out.HCAs = append(out.HCAs, h)
		}
	}
	if facts.shared {
		out.bondsElsewhere()
	}
	g.Node = &out
	g.Guessed = facts.shared && !facts.chosen && !facts.anyFace && len(facts.named) == 0 && len(out.HCAs) > 1
	return g
}

// facts are what Given decides by.
type facts struct {
	shared   bool
	openable map[string]bool
	chosen   bool            // the character devices are a choice: some are not there
	named    map[string]bool // HCAs that a device plugin's variable names
	anyFace  bool            // there is an interface of RDMA hardware
	ethFace  bool            // there is one of a RoCE port
}

func (n *Node) facts(told Told) *facts {
	f := &facts{
		shared: n.RDMAMode == device.NetnsShared.String(), openable: told.Openable, named: map[string]bool{},
	}
	hardware := slices.ContainsFunc(n.HCAs, func(h HCA) bool { return h.Kind != topology.Soft })
	for i := range n.HCAs {
		h := &n.HCAs[i]
		if hardware && h.Kind == topology.Soft {
			continue // its interface may be any, such as the cluster's
		}
		open, known := told.Openable[h.Name]
		f.chosen = f.chosen || known && !open
		if slices.Contains(told.PCI, h.PCI) && h.PCI != "" || slices.Contains(told.PCI, h.Address.Name) &&
			!h.Address.IsZero() {
			f.named[h.Name] = true
		}
		for _, p := range h.Ports {
			f.anyFace = f.anyFace || p.Netdev != ""
			f.ethFace = f.ethFace || p.Netdev != "" && p.LinkLayer == device.Ethernet
		}
	}
	return f
}

// other reports whether a port is not the pod's, and why.
func (f *facts) other(h *HCA, p *Port) (why Why, other bool) {
	if open, known := f.openable[h.Name]; known && !open {
		return Closed, true
	}
	switch {
	case !f.shared || p.Netdev != "" || f.named[h.Name]:
		return 0, false
	case f.ethFace && p.LinkLayer == device.Ethernet:
		return Elsewhere, true
	case f.chosen:
		return 0, false
	case f.anyFace:
		return Elsewhere, true
	}
	return Unnamed, len(f.named) > 0
}

// gidsHere leaves out the GIDs of interfaces that are elsewhere, if it is known of any where its interface is.
func gidsHere(all []GID) []GID {
	if !slices.ContainsFunc(all, func(g GID) bool { return g.Netdev != "" }) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(g GID) bool { return g.Netdev == "" })
}

// bondsElsewhere marks the ports of bonds whose interface is not here: they carry the node's own network. Where there
// is nothing but bonds, they are the rails.
func (n *Node) bondsElsewhere() {
	found := map[int]string{}
	other := false
	for i := range n.HCAs {
		h := &n.HCAs[i]
		for j := range h.Ports {
			p := &h.Ports[j]
			bond := ""
			if p.Netdev == "" && p.LinkLayer == device.Ethernet {
				bond = bondElsewhere(h, p)
			}
			if bond != "" {
				found[i] = bond
			} else {
				other = other || p.Active() && h.Bond == "" && h.Kind != topology.Soft
			}
		}
	}
	for i, bond := range found {
		if other && n.HCAs[i].Bond == "" {
			n.HCAs[i].Bond = bond
		}
	}
}

// bondElsewhere tells that a port is that of a bond, by the name of the interface in the GID table or the driver's name
// for the device.
func bondElsewhere(h *HCA, p *Port) string {
	for _, g := range p.GIDs {
		if strings.HasPrefix(g.Elsewhere, "bond") {
			return g.Elsewhere
		}
	}
	if strings.Contains(h.Name, "_bond_") { // as mlx5 names it (drivers/infiniband/hw/mlx5/main.c)
		return h.Name
	}
	return ""
}
