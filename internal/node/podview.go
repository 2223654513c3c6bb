package node

import (
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// DeviceEnv is what a container knows of the devices that it was given, beside its interfaces.
type DeviceEnv struct {
	Openable map[string]bool // by HCA: whether the container has its character device; those not known are not in it
	PCI      []string        // addresses that a device plugin has named in the environment (PCIDEVICE_*)
}

// PodView is what a pod sees, and what of it is the pod's own.
type PodView struct {
	All    *Node         // what is visible
	Node   *Node         // without what was not given
	Others []ForeignPort // what is visible and was not given
	// Guessed reports that the pod sees every RDMA device of a node in shared mode, and that nothing tells which of
	// them are meant for it.
	Guessed bool
}

// ForeignPort is a port that was not given to the pod.
type ForeignPort struct {
	HCA    string
	Port   string // mlx5_0:1
	Reason ForeignReason
}

// ForeignReason is why a port is not the pod's.
type ForeignReason int

// Reasons.
const (
	NoCharDevice    ForeignReason = iota // the container has no character device of it
	NetdevElsewhere                      // its interface is in another network namespace
	NotNamed                             // a device plugin has named the pod's devices, and not this one
)

// String completes "visible, but ...".
func (r ForeignReason) String() string {
	switch r {
	case NoCharDevice:
		return "without a character device in the container"
	case NetdevElsewhere:
		return "with its interface in another network namespace"
	case NotNamed:
	}
	return "not among the devices that PCIDEVICE_... names"
}

// PodView returns what a pod sees, and which of it was given to the pod. In exclusive mode that is what it can see and
// open. In shared mode every RDMA device is visible in all network namespaces: a port is the pod's if its interface is
// here, or if the device plugin's variables name it, or if it was chosen: if the container has its character device,
// and not those of all others. An Ethernet port is not chosen without its interface where another one has its own: it
// has no GID here.
func (n *Node) PodView(env DeviceEnv) *PodView {
	g := &PodView{All: n, Node: n}
	facts := n.facts(env)
	out := *n
	out.HCAs, out.Kept = []HCA{}, nil // the policy is about the host, and here others are marked as bonds below
	for _, h := range n.HCAs {
		all := h.Ports
		h.Ports = nil
		for _, p := range all {
			if why, other := facts.other(&h, &p); other {
				g.Others = append(g.Others, ForeignPort{h.Name, portName(h.Name, p.Number), why})
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

// facts are what PodView decides by.
type facts struct {
	shared   bool
	openable map[string]bool
	chosen   bool            // the character devices are a choice: some are not there
	named    map[string]bool // HCAs that a device plugin's variable names
	anyFace  bool            // there is an interface of RDMA hardware
	ethFace  bool            // there is one of a RoCE port
}

func (n *Node) facts(env DeviceEnv) *facts {
	f := &facts{
		shared: n.RDMAMode == device.NetnsShared.String(), openable: env.Openable, named: map[string]bool{},
	}
	hardware := slices.ContainsFunc(n.HCAs, func(h HCA) bool { return h.Kind != topology.Soft })
	for i := range n.HCAs {
		h := &n.HCAs[i]
		if hardware && h.Kind == topology.Soft {
			continue // its interface may be any, such as the cluster's
		}
		open, known := env.Openable[h.Name]
		f.chosen = f.chosen || known && !open
		if slices.Contains(env.PCI, h.PCI) && h.PCI != "" || slices.Contains(env.PCI, h.Address.Name) &&
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
func (f *facts) other(h *HCA, p *Port) (why ForeignReason, other bool) {
	if open, known := f.openable[h.Name]; known && !open {
		return NoCharDevice, true
	}
	switch {
	case !f.shared || p.Netdev != "" || f.named[h.Name]:
		return 0, false
	case f.ethFace && p.LinkLayer == device.Ethernet:
		return NetdevElsewhere, true
	case f.chosen:
		return 0, false
	case f.anyFace:
		return NetdevElsewhere, true
	}
	return NotNamed, len(f.named) > 0
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
