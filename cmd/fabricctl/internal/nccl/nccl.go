// Package nccl works out the environment that NCCL, UCX, NVSHMEM and Open MPI need for the rails of a pod, or of a
// node, as they are: values in, variables out, each with its reason. It also reads such variables as those libraries
// do.
package nccl

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Var is one variable. The names are those of the NCCL user guide (Environment Variables), of UCX (ucx_info -c), of
// NVSHMEM, PyTorch and of Open MPI (OMPI_MCA_*).
type Var struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Reason string `json:"reason"`
}

// Env returns the variables, and notes on what is left to the reader. Without any usable port there are none.
func (c *Choice) Env() (vars []Var, notes []string) {
	if len(c.Ports) == 0 {
		notes = append(notes, "no usable RDMA port: NCCL would go over TCP without an error; see fabricctl doctor pod")
		var left []string
		for i := range c.Left {
			left = append(left, c.Left[i].Port.Name()+": "+c.Left[i].Reason)
		}
		return nil, slices.Concat(notes, bounded(left), c.others())
	}
	list := strings.Join(c.Names(), ",")
	vars = append(vars, Var{"NCCL_IB_HCA", "=" + list, "the ports of fabric " + c.Fabric.Name + " in rail order; " +
		"with = names are exact, without it mlx5_1 is mlx5_10 too" + c.leftOut()})
	notes = append(notes, c.loud()...)
	for _, s := range c.Slow {
		notes = append(notes, s.Port+" "+s.String()+". All ports of the list together carry more than the others "+
			"alone, each at its pace")
	}
	sock, note := c.sockets()
	vars, notes = append(vars, sock...), append(notes, note...)
	gid, note := c.gidIndex()
	vars, notes = append(vars, gid...), append(notes, note...)
	pkey, note := c.pkey()
	vars, notes = append(vars, pkey...), append(notes, note...)
	if c.Fabric.Planes && len(c.Ports) > 1 {
		vars = append(vars, Var{"NCCL_CROSS_NIC", "0",
			"the rails are planes: a rank must not use one rail here and another one there"})
	}
	vars = append(vars,
		Var{"UCX_NET_DEVICES", list, "the same ports for UCX, which would take any other. They are this pod's: not " +
			"for mpirun -x, which hands them to pods with other devices, where UCX finds none; set it in each pod"})
	vars = append(vars, c.nvshmem(gid)...)
	vars = append(vars, Var{"OMPI_MCA_coll_hcoll_enable", "0",
		"HCOLL opens RDMA devices by itself and hangs in containers; NCCL's traffic is untouched"})
	return vars, slices.Concat(notes, c.others(), c.Fabric.Warnings)
}

// leftOut names the ports that are left, in short.
func (c *Choice) leftOut() string {
	var names []string
	for i := range c.Left {
		l := &c.Left[i]
		names = append(names, l.Port.HCA+" ("+short[l.Why]+")")
	}
	if len(names) == 0 {
		return ""
	}
	return "; not " + few(names)
}

// bounded are notes that have an end: a node may have hundreds of functions.
func bounded(notes []string) []string {
	const most = 16
	if len(notes) > most {
		return append(notes[:most:most], fmt.Sprintf("and %d more ports", len(notes)-most))
	}
	return notes
}

// loud says in full which ports are left that should have been rails.
func (c *Choice) loud() (notes []string) {
	kinds := map[string]bool{}
	for _, p := range c.Ports {
		kinds[p.Device] = true
	}
	for i := range c.Left {
		switch l := &c.Left[i]; {
		case l.Why == NotUp && !kinds[l.Port.Device], l.Why == Bond, l.Why == Primary, l.Why == Soft, l.Why == Function:
		case l.Why == Fabric && l.Port.RateGb < c.Fabric.RateGb:
		default:
			notes = append(notes, "left out: "+l.Port.Name()+" "+verb(l))
		}
	}
	return bounded(notes)
}

// verb is a reason behind a port's name.
func verb(l *Left) string {
	switch l.Why {
	case NotUp, Bond, Soft:
		return "is " + l.Reason
	case Named:
		return "because " + l.Reason
	}
	return l.Reason
}

// others names the visible ports that were not given to the pod.
func (c *Choice) others() (notes []string) {
	by := map[string][]string{}
	for _, o := range c.given.Others {
		by[o.Reason.String()] = append(by[o.Reason.String()], o.Port)
	}
	for _, why := range slices.Sorted(maps.Keys(by)) {
		notes = append(notes, "visible, but "+why+": "+few(by[why]))
	}
	if c.given.Guessed {
		notes = append(notes, "the pod sees and can open every RDMA device of the node, and nothing tells which were "+
			"given to it: other pods may be told to use the same ones")
	}
	if names := c.withoutFace(); len(names) > 0 {
		notes = append(notes, "without an interface in the pod: "+few(names)+". NCCL and UCX work, IPoIB and "+
			"rdma_cm by IP address do not")
	}
	return notes
}

// withoutFace are InfiniBand ports in exclusive mode whose interface is not in the pod: a network is missing.
func (c *Choice) withoutFace() (names []string) {
	if c.given.Node.RDMAMode != device.NetnsExclusive.String() {
		return nil
	}
	for i := range c.Ports {
		p := &c.Ports[i]
		if p.LinkLayer == device.InfiniBand && p.Netdev == "" {
			names = append(names, p.Name())
		}
	}
	return names
}

func (c *Choice) sockets() (vars []Var, notes []string) {
	primary := c.given.Node.Primary
	switch {
	case primary == "":
		return nil, []string{"no default route: set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to an interface on " +
			"which all ranks reach each other"}
	case !plain(primary):
		return nil, []string{"the default route is over " + primary + ", a name that NCCL_SOCKET_IFNAME can't have"}
	}
	return []Var{
		{"NCCL_SOCKET_IFNAME", "=" + primary, "the bootstrap goes over the interface of the default route"},
		{"GLOO_SOCKET_IFNAME", primary, "the same for Gloo (PyTorch's CPU collectives), as a plain name without =: " +
			"it would take the address that the host name stands for"},
	}, nil
}

// gidIndex is the entry with the port's RoCE v2 GID of an IP address. It differs where ports have different numbers of
// addresses: then no single value is right, and none is set.
func (c *Choice) gidIndex() (vars []Var, notes []string) {
	var found []int
	for i := range c.Ports {
		if c.Ports[i].LinkLayer != device.Ethernet {
			continue
		}
		n := c.GID(&c.Ports[i])
		if n < 0 {
			p := &c.Ports[i]
			notes = append(notes, p.Name()+" has no RoCE v2 GID for an IP address: give "+p.Netdev+" an address")
			continue
		}
		found = append(found, n)
	}
	if len(found) == 0 {
		return nil, notes
	}
	slices.Sort(found)
	if same := slices.Compact(found); len(same) > 1 {
		return []Var{{"NCCL_IB_ROCE_VERSION_NUM", "2", fmt.Sprintf("the index of the RoCE v2 GID differs by device "+
			"%v, so NCCL_IB_GID_INDEX can't be set: NCCL 2.21 and later choose by version", same)}}, notes
	}
	return []Var{{"NCCL_IB_GID_INDEX", strconv.Itoa(found[0]), "the RoCE v2 GID of the IP address, at this index on " +
		"every port of the list; NCCL 2.21 and later would find it, older ones take index 0, which is " +
		"link-local"}}, notes
}

// nvshmem are NVSHMEM's variables: which ports, and the GID. The list is always there, because PyTorch copies
// NCCL_IB_HCA into it where it is not, with the = that NVSHMEM takes for a part of the name (c10d's
// maybe_initialize_env_vars). Newer versions read it only with NVSHMEM_ENABLE_NIC_PE_MAPPING; without, a GPU gets the
// nearest port, which is one of the list unless a port of the same kind was left.
func (c *Choice) nvshmem(gid []Var) []Var {
	vars := []Var{{"NVSHMEM_HCA_LIST", strings.Join(c.Names(), ","), "the same ports for NVSHMEM, without =: where " +
		"this is not set, PyTorch copies NCCL_IB_HCA into it, and NVSHMEM finds no device whose name begins with ="}}
	if others := c.alike(); len(others) > 0 {
		vars = append(vars, Var{"NVSHMEM_ENABLE_NIC_PE_MAPPING", "1", "without it newer versions ignore the list and " +
			"give a GPU the nearest port, which may be " + few(others) + "; with it ports are given out in the order " +
			"of the list"})
	}
	if len(gid) > 0 && gid[0].Name == "NCCL_IB_GID_INDEX" {
		vars = append(vars, Var{"NVSHMEM_IB_GID_INDEX", gid[0].Value, "the same GID for NVSHMEM, of which most " +
			"versions take index 0"})
	}
	return vars
}

// alike are ports of the kind of those of the list that a library finds which is told nothing.
func (c *Choice) alike() (names []string) {
	use, kinds := c.Names(), map[string]bool{}
	for _, p := range c.Ports {
		kinds[p.Device] = true
	}
	c.given.All.EachPort(func(h *node.HCA, p *node.Port) {
		if name := h.PortName(p); p.Active() && kinds[h.ID] && h.Bond == "" && !slices.Contains(use, name) {
			names = append(names, name)
		}
	})
	return names
}

// pkey names the partition by its index where entry 0 is a limited membership: limited members can't talk to each
// other. One index counts for all ports.
func (c *Choice) pkey() (vars []Var, notes []string) {
	var found []int
	var texts []string
	reason := ""
	for i := range c.Ports {
		p := &c.Ports[i]
		table := c.PKeys(p)
		if len(table) == 0 {
			continue
		}
		at := slices.IndexFunc(table, FullMember)
		if at < 0 { // it reaches full members only, which are storage or gateways
			notes = append(notes, p.Name()+" is a limited member of its partition and does not reach other limited "+
				"members: the partitions of the subnet manager decide")
			continue
		}
		found, texts = append(found, at), append(texts, fmt.Sprintf("%s: %d", p.Name(), at))
		if at > 0 && reason == "" {
			reason = "entry 0 of " + p.Name() + " is " + table[0] + ", a limited membership; " +
				"" + table[at] + " is a full one"
		}
	}
	slices.Sort(found)
	switch found = slices.Compact(found); {
	case len(found) > 1:
		return nil, append(notes, "the full membership has another index on each port ("+strings.Join(texts, ", ")+
			"), and NCCL_IB_PKEY is one index for all: let the subnet manager give them one table")
	case len(found) == 1 && found[0] > 0:
		return []Var{{"NCCL_IB_PKEY", strconv.Itoa(found[0]), reason}}, notes
	}
	return nil, notes
}

// PKeys are the partition keys of an InfiniBand port, in hex.
func (c *Choice) PKeys(p *topology.Port) []string {
	if p.LinkLayer != device.InfiniBand {
		return nil
	}
	return c.port(p).PKeys
}

// FullMember reports whether a partition key is that of a full member.
func FullMember(k string) bool {
	n, err := strconv.ParseUint(strings.TrimPrefix(k, "0x"), 16, 16)
	return err == nil && n&uint64(device.FullMember) != 0
}
