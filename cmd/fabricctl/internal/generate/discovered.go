package generate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/nccl"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// trained finds the ports that have trained down: those to leave out, by the rule of nccl-env, and what to say of all.
func trained(nodes []*node.Node) (out map[string]bool, doubts []string) {
	out = map[string]bool{}
	for _, n := range nodes {
		list, ports := nccl.SlowPorts(n), n.Ports()
		for i := range list {
			p := &list[i]
			name, fate := n.Name+" "+p.Port, "it is left out (fabricctl doctor host)"
			if all, _ := p.Paced(list, ports); all != nil {
				fate = "it is not left out: with it, ports of this kind carry more, each at the slowest one's rate"
			} else {
				out[name] = true
			}
			doubts = append(doubts, fmt.Sprintf("%s %s; %s", name, p.String(), fate))
		}
	}
	return out, doubts
}

// discovered are the fabrics of the nodes that pods can have: without ports that have trained down, and without those
// of a BlueField beside other rails, which are the host's own as a rule. The fabric that was asked for stays.
func discovered(nodes []*node.Node, asked string) (all topology.Fabrics, doubts []string) {
	slow, doubts := trained(nodes)
	var ports []topology.Port
	for _, n := range nodes {
		for _, p := range n.Ports() {
			if !slow[p.Node+" "+p.Name()] {
				ports = append(ports, p)
			}
		}
	}
	all = topology.Group(ports)
	rails := slices.ContainsFunc(all.Fabrics, func(f topology.Fabric) bool { return !frontEnd(&f, nodes) })
	all.Fabrics = slices.DeleteFunc(all.Fabrics, func(f topology.Fabric) bool {
		if !rails || !frontEnd(&f, nodes) || f.Name == asked {
			return false
		}
		doubts = append(doubts, fmt.Sprintf("%s is left out: its ports are those of a BlueField (%s), which have the "+
			"host's storage and front end as a rule; --fabric %s writes it", f.Name, few(portsOfFabric(&f)), f.Name))
		return true
	})
	return all, doubts
}

// frontEnd reports whether a fabric is Ethernet with no other ports than those of BlueField DPUs.
func frontEnd(f *topology.Fabric, nodes []*node.Node) bool {
	for _, r := range f.Rails {
		for i := range r.Ports {
			if h := hca(nodes, &r.Ports[i]); h == nil || !strings.HasPrefix(h.Model, "BlueField") {
				return false
			}
		}
	}
	return f.LinkLayer == device.Ethernet
}

func portsOfFabric(f *topology.Fabric) (out []string) {
	for _, r := range f.Rails {
		for _, p := range r.Ports {
			out = append(out, strings.TrimSpace(p.Node+" "+p.Name()))
		}
	}
	slices.Sort(out)
	return out
}
