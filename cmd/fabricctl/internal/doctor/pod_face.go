package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/nccl"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// podInterface explains a pod that has verbs devices and no interface. InfiniBand in shared mode needs none: queue
// pairs go by LID. RoCE goes by the GID of an address, which is that of an interface.
func podInterface(p *Pod) []Finding {
	if names := p.rdmaFaces(); len(names) > 0 {
		return one(finding("pod-interface", OK, strings.Join(names, ", ")))
	}
	ib, roce := p.layers(true)
	if len(ib)+len(roce) == 0 {
		ib, roce = p.layers(false)
	}
	shared := p.Node.RDMAMode == device.NetnsShared.String()
	switch {
	case p.Bare && shared && len(ib) > 0:
		return one(finding("pod-interface", Warn, "no interface; InfiniBand in shared RDMA mode ("+few(ib)+") works "+
			"without, if the container has the character device: --pid PID shows that"))
	case p.Bare && len(p.Node.HCAs) > 0:
		var hcas []string
		for _, h := range p.Node.HCAs {
			hcas = append(hcas, h.Name)
		}
		return one(finding("pod-interface", Fail,
			"RDMA devices ("+strings.Join(hcas, ", ")+"), but no interface of theirs"))
	case p.Bare:
		return one(finding("pod-interface", Fail, "no interface of RDMA hardware"))
	case len(p.Uverbs) == 0:
		f := finding("pod-interface", Fail, "neither a verbs device nor an interface of RDMA hardware")
		f.Cause = "the container was given no RDMA device: the pod asks for no resource of RDMA devices and for no " +
			"networks, or this is another container of the pod"
		return one(f)
	case !p.usable() && len(ib) > 0: // podPorts says why
		return nil
	case shared && len(ib) > 0:
		return one(finding("pod-interface", OK, "none, and none is needed: InfiniBand in shared RDMA mode ("+few(ib)+
			"). NCCL's NET/IB and UCX work; IPoIB, and rdma_cm by IP address (ib_write_bw -R, rping), do not"))
	case shared && len(roce) > 0:
		f := finding("pod-interface", Fail, "RoCE ("+few(roce)+") needs a GID of an address in the pod's own network "+
			"namespace, and the pod has no interface of these ports")
		f.Cause = noRoCEFace
		f.Cure = addRoCEFace
		return one(f)
	case p.Node.RDMAMode == device.NetnsExclusive.String() && len(ib) > 0:
		f := finding("pod-interface", Warn, "InfiniBand ("+few(ib)+") without an interface in the pod: NCCL's NET/IB "+
			"and UCX work; IPoIB, and rdma_cm by IP address, do not")
		f.Cause = "the HCA was moved into the pod and its interface was not: a network is missing in the annotation"
		return one(f)
	case p.Node.RDMAMode == "" && len(ib) > 0:
		return one(finding("pod-interface", Warn, "no interface, and the RDMA mode is not known: InfiniBand ("+few(ib)+
			") works without in shared mode"))
	}
	return one(finding("pod-interface", Fail,
		fmt.Sprintf("%d verbs devices in /dev/infiniband, no interface of RDMA hardware", len(p.Uverbs))))
}

const (
	noRoCEFace = "the GIDs that are visible are of addresses of the host or of other pods. DOCA-OFED and MLNX_OFED " +
		"refuse them (ibv_modify_qp: No such device), rdma_cm does not find them, and in the others the traffic has " +
		"the host's address"
	addRoCEFace = "a network with an address for each rail in the annotation: fabric, or macvlan on the rail; or " +
		"hostNetwork: true"
)

// usable reports whether the pod has a port that can work.
func (p *Pod) usable() bool { return len(p.choice.Ports) > 0 }

// rdmaFaces are the interfaces of RDMA hardware.
func (p *Pod) rdmaFaces() (names []string) {
	for _, d := range p.Node.Netdevs {
		rdma := slices.ContainsFunc(p.Node.HCAs, func(h node.HCA) bool {
			return !d.Address.IsZero() && h.Address == d.Address
		})
		if rdma || d.Type == 32 {
			names = append(names, d.Name)
		}
	}
	p.Node.EachPort(func(_ *node.HCA, q *node.Port) { // a macvlan or a VLAN is not among Netdevs
		here := p.Node.Netdev(q.Netdev) != nil || slices.Contains(p.Interfaces, q.Netdev)
		if here && !slices.Contains(names, q.Netdev) {
			names = append(names, q.Netdev)
		}
	})
	return names
}

// layers are the pod's ports by link layer, without those of bonds and of soft RDMA devices, or the Active ones of
// them.
func (p *Pod) layers(active bool) (ib, roce []string) {
	p.ports(func(h *node.HCA, q *node.Port) {
		switch {
		case h.Kind == topology.Soft, active && !q.Active():
		case q.LinkLayer == device.InfiniBand:
			ib = append(ib, h.PortName(q))
		case q.LinkLayer == device.Ethernet:
			roce = append(roce, h.PortName(q))
		}
	})
	return ib, roce
}

// podUsable finds HCAs that libraries list and can't open. In shared mode that is so by design for those of other pods.
func podUsable(p *Pod) (out []Finding) {
	var others []string
	denied := Fail // unless there is one that works
	if slices.ContainsFunc(p.Uverbs, func(u string) bool { return p.Verbs[u] != "" && !slices.Contains(p.Denied, u) }) {
		denied = Warn
	}
	for _, name := range keys(p.Verbs) {
		switch {
		case slices.Contains(p.Denied, name):
			f := finding("pod-usable", denied, "/dev/infiniband/"+name+" ("+p.Verbs[name]+") is there, and opening it "+
				"is not permitted")
			f.Cause = deniedCause
			out = append(out, f)
		case slices.Contains(p.Uverbs, name):
		case p.Node.RDMAMode == device.NetnsShared.String():
			others = append(others, p.Verbs[name])
		default:
			out = append(out,
				finding("pod-usable", Warn, p.Verbs[name]+" is visible, /dev/infiniband/"+name+" is not there"))
		}
	}
	switch {
	case len(p.Verbs) == 0:
		return nil
	case len(others) > 0:
		return pass(out, "pod-usable", fmt.Sprintf("%d HCAs; shared RDMA mode shows others of the node, too: %s",
			len(p.Verbs)-len(others), few(others)))
	}
	return pass(out, "pod-usable", fmt.Sprintf("%d HCAs", len(p.Verbs)))
}

const deniedCause = "the container's device cgroup does not allow it: the file comes from a hostPath volume or from " +
	"the image, and not from a device plugin"

// podRates finds ports that have trained down, among those of one kind of card.
func podRates(p *Pod) []Finding {
	ib, roce := p.layers(true)
	mine := append(ib, roce...)
	out := trainedDown("pod-rate", slices.DeleteFunc(nccl.SlowPorts(p.given.All), func(s nccl.Slow) bool {
		return !slices.Contains(mine, s.Port)
	}))
	if len(mine) < 2 {
		return out
	}
	return pass(out, "pod-rate", fmt.Sprintf("%d ports", len(mine)))
}

func podGIDs(p *Pod) (out []Finding) {
	n := 0
	noFace := len(p.rdmaFaces()) == 0 // then podInterface says it
	p.ports(func(h *node.HCA, q *node.Port) {
		if q.LinkLayer != device.Ethernet || !q.Active() || h.Kind == topology.Soft {
			return
		}
		n++
		global := slices.ContainsFunc(q.GIDs, func(g node.GID) bool {
			return g.Addr().IsValid() && !g.Addr().IsLinkLocalUnicast()
		})
		switch {
		case p.Node.RDMAMode == device.NetnsShared.String() && q.Netdev == "":
			if noFace {
				n--
				return
			}
			f := finding("pod-gids", Warn, h.PortName(q)+": no GID of an address in the pod's network namespace")
			f.Cause, f.Cure = noRoCEFace, addRoCEFace
			out = append(out, f)
		case len(q.GIDs) == 0:
			out = append(out, finding("pod-gids", Fail, h.Name+": the GID table is empty"))
		case !global:
			out = append(out, finding("pod-gids", Warn, h.Name+": only link-local GIDs"))
		}
	})
	if n == 0 {
		return nil
	}
	return pass(out, "pod-gids", fmt.Sprintf("%d RoCE ports have GIDs for addresses", n))
}
