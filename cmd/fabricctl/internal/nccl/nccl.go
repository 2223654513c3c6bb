// Package nccl works out the environment that NCCL, UCX and Open MPI need for the rails of a pod, or of a node, as they
// are: values in, variables out, each with its reason.
package nccl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Var is one variable. The names are those of the NCCL user guide (Environment Variables), of UCX (ucx_info -c) and of
// Open MPI (OMPI_MCA_*).
type Var struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Reason string `json:"reason"`
}

// Env returns the variables, and notes on what is left to the reader. Without any usable port there are none.
func Env(n *node.Node) (vars []Var, notes []string) {
	f := n.Usable()
	if len(f.Fabrics) == 0 {
		notes = append(notes, "no usable RDMA port: NCCL would go over TCP without an error; see fabricctl doctor pod")
		for _, l := range f.Left {
			notes = append(notes, l.Port.Name()+": "+l.Reason)
		}
		return nil, notes
	}
	best := choose(f.Fabrics)
	ports, notes := usable(pick(best, n.Name))
	if len(ports) == 0 {
		return nil, notes
	}
	var names []string
	for _, p := range ports {
		names = append(names, p.Name())
	}
	list := strings.Join(names, ",")
	vars = append(
		vars,
		Var{
			"NCCL_IB_HCA",
			"=" + list,
			"the ports of fabric " + best.Name + " in rail order; with = names are exact, without it mlx5_1 is " +
				"mlx5_10 too" + leftOut(
				&f,
			),
		},
	)
	switch {
	case n.Primary != "" && !plain(n.Primary):
		notes = append(notes, "the default route is over "+n.Primary+", a name that NCCL_SOCKET_IFNAME can't have")
	case n.Primary != "":
		vars = append(
			vars,
			Var{"NCCL_SOCKET_IFNAME", "=" + n.Primary, "the bootstrap goes over the interface of the default route"},
		)
	default:
		notes = append(
			notes,
			"no default route: set NCCL_SOCKET_IFNAME to an interface on which all ranks reach each other",
		)
	}
	gid, note := gidIndex(n, ports)
	vars, notes = append(vars, gid...), append(notes, note...)
	vars = append(vars, pkey(n, ports)...)
	if best.Planes {
		vars = append(
			vars,
			Var{"NCCL_CROSS_NIC", "0", "the rails are planes: a rank must not use one rail here and another one there"},
		)
	}
	vars = append(
		vars,
		Var{
			"UCX_NET_DEVICES",
			list,
			"the same ports for UCX, which would take any other. They are this pod's: not for mpirun -x, which " +
				"hands them to pods with other devices, where UCX finds none; set it in each pod",
		},
		Var{
			"OMPI_MCA_coll_hcoll_enable",
			"0",
			"HCOLL opens RDMA devices by itself and hangs in containers; NCCL's traffic is untouched",
		},
	)
	return vars, append(notes, best.Warnings...)
}

// pick takes the node's ports of each rail: whole ports where there are any, since they and their functions share one
// link.
func pick(f *topology.Fabric, name string) (out []topology.Port) {
	for _, r := range f.Rails {
		var whole, parts []topology.Port
		for _, p := range r.Ports {
			switch {
			case p.Node != name:
			case p.Kind == "VF" || p.Kind == "SF":
				parts = append(parts, p)
			default:
				whole = append(whole, p)
			}
		}
		if len(whole) > 0 {
			parts = whole
		}
		out = append(out, parts...)
	}
	return out
}

// usable leaves out ports whose names mean something in NCCL's lists, in a shell or in a file of variables: a pod with
// NET_ADMIN may give its devices any name, and others see it in the shared RDMA mode.
func usable(ports []topology.Port) (out []topology.Port, notes []string) {
	for _, p := range ports {
		if !plain(p.HCA) {
			notes = append(notes, "not "+p.HCA+": its name has other characters than letters, digits, dots, dashes and"+
				" underscores; see rdma dev set help, or who has given it this name")
			continue
		}
		out = append(out, p)
	}
	return out, notes
}

// plain tells whether a name is one word everywhere.
func plain(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_.-", r)
	})
}

// choose takes the fabric with the most bandwidth.
func choose(list []topology.Fabric) *topology.Fabric {
	best := &list[0]
	for i := range list {
		f := &list[i]
		if float64(len(f.Rails))*f.RateGb > float64(len(best.Rails))*best.RateGb {
			best = f
		}
	}
	return best
}

func leftOut(f *topology.Fabrics) string {
	var names []string
	for _, l := range f.Left {
		names = append(names, l.Port.HCA)
	}
	if len(names) == 0 {
		return ""
	}
	return "; not " + strings.Join(names, ", ")
}

// gidIndex is the entry with the port's RoCE v2 GID of an IP address. It differs where ports have different numbers of
// addresses: then no single value is right, and none is set.
func gidIndex(n *node.Node, ports []topology.Port) (vars []Var, notes []string) {
	var found []int
	for _, p := range ports {
		if p.LinkLayer != device.Ethernet {
			continue
		}
		i := routable(portOf(n, &p))
		if i < 0 {
			notes = append(notes, p.Name()+" has no RoCE v2 GID for an IP address: give "+p.Netdev+" an address")
			continue
		}
		found = append(found, i)
	}
	if len(found) == 0 {
		return nil, notes
	}
	slices.Sort(found)
	if same := slices.Compact(found); len(same) > 1 {
		return []Var{
			{
				"NCCL_IB_ROCE_VERSION_NUM",
				"2",
				fmt.Sprintf(
					"the index of the RoCE v2 GID differs by device %v, so NCCL_IB_GID_INDEX can't be set: NCCL "+
						"2.21 and later choose by version",
					same,
				),
			},
		}, notes
	}
	return []Var{
		{
			"NCCL_IB_GID_INDEX",
			strconv.Itoa(found[0]),
			"the RoCE v2 GID of the IP address, at this index on every port; NCCL 2.21 and later would find it, " +
				"older ones take index 0, which is link-local",
		},
	}, notes
}

func portOf(n *node.Node, p *topology.Port) *node.Port {
	h := n.HCA(p.HCA)
	for i := range h.Ports {
		if h.Ports[i].Number == p.Port {
			return &h.Ports[i]
		}
	}
	return &node.Port{}
}

// routable is the index of the RoCE v2 GID of an IPv4 address, or of a global IPv6 one, or -1.
func routable(p *node.Port) int {
	six := -1
	for _, g := range p.GIDs {
		a := g.Addr()
		switch {
		case g.Type != "RoCE v2" || !a.IsValid() || a.IsLinkLocalUnicast():
		case a.Is4():
			return g.Index
		case six < 0:
			six = g.Index
		}
	}
	return six
}

// pkey names the partition by its index where entry 0 is a limited membership: limited members can't talk to each
// other.
func pkey(n *node.Node, ports []topology.Port) []Var {
	for _, p := range ports {
		table := portOf(n, &p).PKeys
		if p.LinkLayer != device.InfiniBand || len(table) == 0 || full(table[0]) {
			continue
		}
		if i := slices.IndexFunc(table, full); i > 0 {
			return []Var{
				{
					"NCCL_IB_PKEY",
					strconv.Itoa(i),
					"entry 0 of " + p.Name() + " is " + table[0] + ", a limited membership; " + table[i] +
						" is a full one",
				},
			}
		}
	}
	return nil
}

func full(k string) bool {
	n, err := strconv.ParseUint(strings.TrimPrefix(k, "0x"), 16, 16)
	return err == nil && n&uint64(device.FullMember) != 0
}
