package nccl

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Choice says which ports of a pod NCCL, UCX and NVSHMEM should use. What doctor pod finds in a pod's variables is
// judged by it, and nccl-env prints it.
type Choice struct {
	Fabric *topology.Fabric // nil: there is no usable port
	Ports  []topology.Port  // in rail order
	Left   []Left           // the pod's other ports
	Slow   []Slow           // of Ports, those whose link has trained down: all run at their pace

	given *node.PodView
}

// Left is a port of the pod that is not to be used.
type Left struct {
	Port   topology.Port
	Why    Why
	Reason string // a sentence without the port's name
}

// Why is the kind of reason for which a port is left.
type Why int

// The kinds.
const (
	NotUp    Why = iota // Down, or without a subnet manager: NCCL skips it
	Bond                // carries the node's own network
	Primary             // carries the default route
	Soft                // a soft RDMA device beside hardware
	Slower              // it has trained down: others of its kind are faster
	Fabric              // part of another fabric
	NoGID               // RoCE without the GID of an IP address: a connection over it fails
	NoFace              // RoCE without an interface in the pod, so its GIDs are of other network namespaces
	Named               // its name means something else in a list
	Function            // a function of a port that is in the list
	Kind                // another kind of card than the rails, in a pod that sees the whole node
)

var short = map[Why]string{
	NotUp: "not Active", Bond: "bond", Primary: "default route", Soft: "soft RDMA device", Slower: "slower",
	Fabric: "another fabric", NoGID: "no IP address", NoFace: "no interface",
	Kind: "another kind of card", Named: "its name", Function: "function of a port in the list",
}

func (w Why) String() string { return short[w] }

// Choose takes the ports of the fabric with the most bandwidth that can work.
func Choose(g *node.PodView) *Choice {
	c := &Choice{given: g}
	ports := slices.DeleteFunc(g.Node.Ports(), c.noFace)
	slow := SlowPorts(g.All)
	pace(ports, slow)
	f := node.Usable(ports)
	if len(f.Fabrics) > 0 {
		if without := c.withoutGID(most(f.Fabrics).On(g.Node.Name)); len(without) > 0 {
			// What the others have in common, such as planes, is another thing without these.
			f = node.Usable(slices.DeleteFunc(ports, func(p topology.Port) bool {
				return slices.Contains(without, p.Name())
			}))
		}
	}
	for _, l := range f.Left {
		c.leave(l.Port, whyLeft(&l.Port), l.Reason)
	}
	if len(f.Fabrics) == 0 {
		return c
	}
	best := most(f.Fabrics)
	c.Fabric = best
	for i := range f.Fabrics {
		if o := &f.Fabrics[i]; o != best {
			for _, p := range o.On(g.Node.Name) {
				is := slices.IndexFunc(slow, func(s Slow) bool { return s.Port == p.Name() })
				if is >= 0 && p.RateGb < best.RateGb {
					c.leave(p, Slower, slow[is].String()+". A collective runs at the pace of its slowest port")
				} else {
					c.leave(p, Fabric, "is in fabric "+o.Name+" ("+o.Reason+")"+both(o, best))
				}
			}
		}
	}
	c.take(best.On(g.Node.Name))
	for i := range slow {
		if slices.Contains(c.Names(), slow[i].Port) {
			c.Slow = append(c.Slow, slow[i])
		}
	}
	return c
}

// noFace leaves a RoCE port whose interface is in another network namespace. DOCA-OFED and MLNX_OFED refuse its GIDs
// (ibv_modify_qp: No such device), and rdma_cm does not find them.
func (c *Choice) noFace(p topology.Port) bool {
	is := p.LinkLayer == device.Ethernet && p.Netdev == "" && p.Bond == "" && p.Kind != topology.Soft &&
		p.State == device.PortActive && len(c.port(&p).GIDs) > 0
	if is {
		c.leave(p, NoFace, "has no interface in the pod, and its GIDs are of addresses in other network namespaces")
	}
	return is
}

// both says what to do where two fabrics are planes of one network, which a node does not show.
func both(a, b *topology.Fabric) string {
	if a.LinkLayer != b.LinkLayer || a.RateGb != b.RateGb {
		return ""
	}
	return "; if both connect the same nodes, name the ports of both, with NCCL_CROSS_NIC=0"
}

// withoutGID leaves RoCE ports without the GID of an address where others have one, and returns their names: a
// connection over such a port fails, or waits for a peer that never answers.
func (c *Choice) withoutGID(ports []topology.Port) (names []string) {
	for i := range ports {
		p := &ports[i]
		if p.LinkLayer != device.Ethernet || c.GID(p) >= 0 {
			continue
		}
		anyGID := slices.ContainsFunc(ports, func(q topology.Port) bool { return c.GID(&q) >= 0 })
		if anyGID || len(c.port(p).GIDs) == 0 {
			names = append(names, p.Name())
			c.leave(*p, NoGID, "has no RoCE v2 GID for an IP address: give "+cmp.Or(p.Netdev, "its interface")+
				" an address")
		}
	}
	return names
}

func (c *Choice) leave(p topology.Port, w Why, reason string) {
	c.Left = append(c.Left, Left{p, w, reason})
}

func whyLeft(p *topology.Port) Why {
	switch {
	case p.Kind == topology.Soft:
		return Soft
	case p.State != device.PortActive:
		return NotUp
	case p.Bond != "":
		return Bond
	case p.Primary:
		return Primary
	}
	return Fabric
}

// most takes the fabric with the most bandwidth.
func most(list []topology.Fabric) *topology.Fabric {
	best := &list[0]
	for i := range list {
		f := &list[i]
		if float64(len(f.Rails))*f.RateGb > float64(len(best.Rails))*best.RateGb {
			best = f
		}
	}
	return best
}

// take takes those of a fabric's ports that can work: whole ports where there are any, since they and their functions
// share one link.
func (c *Choice) take(ports []topology.Port) {
	whole := map[string]bool{}
	for _, p := range ports {
		if p.Kind != "VF" && p.Kind != "SF" {
			whole[p.Slot] = true
		}
	}
	kinds := c.kinds(ports)
	for _, p := range ports {
		switch {
		case kinds[p.Device] < kinds[usual]:
			c.leave(p, Kind, fmt.Sprintf("is another kind of card than %d others at its rate, and nothing says that "+
				"it was given to this pod", kinds[usual]))
		case (p.Kind == "VF" || p.Kind == "SF") && whole[p.Slot]:
			c.leave(p, Function, "is a function of "+p.Slot+", whose port is in the list: they share one link")
		case !plain(p.HCA):
			c.leave(p, Named, "its name has other characters than letters, digits, dots, dashes and underscores; see "+
				"rdma dev set help, or who has given it this name")
		default:
			c.Ports = append(c.Ports, p)
		}
	}
}

// usual is where kinds has the number of ports of the most frequent kind.
const usual = "usual"

// kinds counts ports by the kind of card, in a pod that sees those of the whole node and was told of none: a port for
// storage may have the rate of the rails. In others all count, because they were given to the pod.
func (c *Choice) kinds(ports []topology.Port) map[string]int {
	count := map[string]int{}
	for _, p := range ports {
		if c.given.Guessed {
			count[p.Device]++
			count[usual] = max(count[usual], count[p.Device])
		}
	}
	return count
}

// plain tells whether a name is one word everywhere: in NCCL's lists, in a shell and in a file of variables. A pod with
// NET_ADMIN may give its devices any name, and others see it in the shared RDMA mode.
func plain(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_.-", r)
	})
}

// Names are the ports of the choice, as NCCL and UCX spell them.
func (c *Choice) Names() (names []string) {
	for i := range c.Ports {
		names = append(names, c.Ports[i].Name())
	}
	return names
}

// port is what the node says of a port.
func (c *Choice) port(p *topology.Port) *node.Port {
	return cmp.Or(c.given.Node.HCA(p.HCA).Port(p.Port), &node.Port{})
}

// GID is the index of the RoCE v2 GID of an IPv4 address, or of a global IPv6 one, or -1.
func (c *Choice) GID(p *topology.Port) int { return routable(c.port(p)) }

func routable(p *node.Port) int {
	six := -1
	for _, g := range p.GIDs {
		a := g.Addr()
		switch {
		case g.Type != device.RoCEv2 || !a.IsValid() || a.IsLinkLocalUnicast():
		case a.Is4():
			return g.Index
		case six < 0:
			six = g.Index
		}
	}
	return six
}

// few is a list of names that has an end.
func few(names []string) string {
	const most = 8
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

func portName(hca string, port uint32) string { return (&topology.Port{HCA: hca, Port: port}).Name() }
