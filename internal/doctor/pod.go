package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// CheckPod runs every check of a pod.
func CheckPod(p *Pod) (out []Finding) {
	pod := *p
	pod.Node, pod.elsewhere = p.Node.Here()
	p = &pod
	checks := []func(*Pod) []Finding{podInterface, podPorts, podGIDs, podSubnets, podMTU}
	if !p.Bare {
		checks = []func(*Pod) []Finding{
			podInterface,
			podRails,
			podVerbs,
			podUsable,
			podForeign,
			podPorts,
			podMemlock,
			podMemory,
			podGIDs,
			podGIDIndex,
			podSubnets,
			podMTU,
			podEnvHCA,
			podEnvSocket,
			podEnvOff,
			podHCOLL,
			podShm,
		}
	}
	for _, check := range checks {
		out = append(out, check(p)...)
	}
	return out
}

// podInterface explains a pod that has verbs devices and no interface.
func podInterface(p *Pod) []Finding {
	var names []string
	for _, d := range p.Node.Netdevs {
		rdma := slices.ContainsFunc(p.Node.HCAs, func(h node.HCA) bool {
			return !d.Address.IsZero() && h.Address == d.Address ||
				slices.ContainsFunc(h.Ports, func(q node.Port) bool { return q.Netdev == d.Name })
		})
		if rdma || d.Type == 32 {
			names = append(names, d.Name)
		}
	}
	switch {
	case len(names) > 0:
		return one(finding("pod-interface", OK, strings.Join(names, ", ")))
	case p.Bare && len(p.Node.HCAs) > 0:
		var hcas []string
		for _, h := range p.Node.HCAs {
			hcas = append(hcas, h.Name)
		}
		return one(finding("pod-interface", Fail,
			"RDMA devices ("+strings.Join(hcas, ", ")+"), but no interface of theirs"))
	case p.Bare:
		return one(finding("pod-interface", Fail, "no interface of RDMA hardware"))
	case len(p.Uverbs) > 0:
		return one(
			finding(
				"pod-interface",
				Fail,
				fmt.Sprintf("%d verbs devices in /dev/infiniband, no interface of RDMA hardware", len(p.Uverbs)),
			),
		)
	}
	return one(finding("pod-interface", Fail, "neither a verbs device nor an interface of RDMA hardware"))
}

func podVerbs(p *Pod) []Finding {
	if len(p.Uverbs) == 0 {
		return one(finding("pod-verbs", Fail, "/dev/infiniband has no uverbs device"))
	}
	return one(finding("pod-verbs", OK, strings.Join(p.Uverbs, ", ")))
}

func podUsable(p *Pod) (out []Finding) {
	for _, name := range keys(p.Verbs) {
		if !slices.Contains(p.Uverbs, name) {
			out = append(
				out,
				finding("pod-usable", Warn, p.Verbs[name]+" is visible, /dev/infiniband/"+name+" is not there"),
			)
		}
	}
	if len(p.Verbs) == 0 {
		return nil
	}
	return pass(out, "pod-usable", fmt.Sprintf("%d HCAs", len(p.Verbs)))
}

func podForeign(p *Pod) (out []Finding) {
	if len(p.Verbs) == 0 && len(p.Node.HCAs) > 0 {
		return nil // sysfs does not tell which is which
	}
	for _, name := range p.Uverbs {
		if p.Verbs[name] == "" {
			out = append(out, finding("pod-foreign", Warn, "/dev/infiniband/"+name+" belongs to no HCA of the pod"))
		}
	}
	return out
}

// ports calls f for each port of an HCA that is no bond.
func (p *Pod) ports(f func(h *node.HCA, q *node.Port)) {
	for i := range p.Node.HCAs {
		h := &p.Node.HCAs[i]
		for j := range h.Ports {
			if h.Bond == "" {
				f(h, &h.Ports[j])
			}
		}
	}
}

func podPorts(p *Pod) (out []Finding) {
	n := 0
	p.ports(func(h *node.HCA, q *node.Port) {
		n++
		if !q.Active() {
			out = append(
				out,
				finding("pod-port-state", Warn, fmt.Sprintf("%s:%d is %s (%s)", h.Name, q.Number, q.State, q.Phys)),
			)
		}
	})
	if n == 0 {
		return nil
	}
	return pass(out, "pod-port-state", strconv.Itoa(n)+" ports, all Active")
}

func podMemlock(p *Pod) []Finding {
	switch {
	case p.Memlock < 0:
		return one(finding("pod-memlock", OK, "locked memory is not limited"))
	case p.IPCLock:
		return one(
			finding("pod-memlock", OK, fmt.Sprintf("the capability IPC_LOCK lifts the limit of %d bytes", p.Memlock)),
		)
	}
	return one(
		finding(
			"pod-memlock",
			Fail,
			fmt.Sprintf("locked memory is limited to %d bytes, and the capability IPC_LOCK is missing", p.Memlock),
		),
	)
}

// leastMemory is what NCCL's buffers and a small model need at the least, in bytes; below it registrations fail first.
const leastMemory = 4 << 30

func podMemory(p *Pod) []Finding {
	if p.Memory < 0 {
		return nil
	}
	if p.Memory < leastMemory {
		return one(finding("pod-memory", Warn, fmt.Sprintf("the memory limit is %d MiB", p.Memory>>20)))
	}
	return one(finding("pod-memory", OK, fmt.Sprintf("the memory limit is %d MiB", p.Memory>>20)))
}

func podGIDs(p *Pod) (out []Finding) {
	n := 0
	p.ports(func(h *node.HCA, q *node.Port) {
		if q.LinkLayer != device.Ethernet || !q.Active() {
			return
		}
		n++
		global := slices.ContainsFunc(
			q.GIDs,
			func(g node.GID) bool { return g.Addr().IsValid() && !g.Addr().IsLinkLocalUnicast() },
		)
		switch {
		case len(q.GIDs) == 0:
			out = append(out, finding("pod-gids", Fail, h.Name+": the GID table is empty"))
		case !global:
			out = append(out, finding("pod-gids", Warn, h.Name+": only link-local GIDs"))
		}
	})
	if n == 0 {
		return nil
	}
	return pass(out, "pod-gids", strconv.Itoa(n)+" RoCE ports have GIDs for addresses")
}

func podGIDIndex(p *Pod) (out []Finding) {
	want, ok := p.Env["NCCL_IB_GID_INDEX"]
	if !ok || want == "-1" {
		return nil
	}
	index, err := strconv.Atoi(want)
	if err != nil {
		return one(finding("pod-gid-index", Fail, "NCCL_IB_GID_INDEX="+want+" is no number"))
	}
	p.ports(func(h *node.HCA, q *node.Port) {
		if !q.Active() || q.LinkLayer != device.Ethernet {
			return
		}
		i := slices.IndexFunc(q.GIDs, func(g node.GID) bool { return g.Index == index })
		switch {
		case i < 0:
			out = append(
				out,
				finding(
					"pod-gid-index",
					Fail,
					fmt.Sprintf("NCCL_IB_GID_INDEX=%d, and %s has no such entry", index, h.Name),
				),
			)
		case q.GIDs[i].Type != "RoCE v2" || q.GIDs[i].Addr().IsLinkLocalUnicast():
			out = append(
				out,
				finding(
					"pod-gid-index",
					Warn,
					fmt.Sprintf(
						"NCCL_IB_GID_INDEX=%d is %s of type %s on %s",
						index,
						q.GIDs[i].GID,
						q.GIDs[i].Type,
						h.Name,
					),
				),
			)
		}
	})
	return pass(out, "pod-gid-index", want)
}

func podSubnets(p *Pod) (out []Finding) {
	for _, f := range p.Node.Fabrics().Fabrics {
		quiet := len(p.ARPIgnore) > 0
		for _, q := range f.On(p.Node.Name) {
			quiet = quiet && p.ARPIgnore[q.Netdev] > 0
		}
		for _, w := range f.Warnings {
			if quiet { // as "sourceBased" sets it
				out = append(
					out,
					finding(
						"pod-subnets",
						OK,
						f.Name+": rails share a subnet, and each answers ARP for its own addresses only (arp_ignore)",
					),
				)
				break
			}
			out = append(out, finding("pod-subnets", Warn, w))
		}
	}
	return out
}

func podMTU(p *Pod) []Finding { return mtus("pod-mtu", p.Node, p.Node.Fabrics()) }

func podEnvHCA(p *Pod) (out []Finding) {
	for _, v := range []string{"NCCL_IB_HCA", "UCX_NET_DEVICES"} {
		value := p.Env[v]
		if value == "" || value == "all" || strings.HasPrefix(value, "^") {
			continue
		}
		exact := strings.HasPrefix(value, "=")
		var missing, elsewhere []string
		for name := range strings.SplitSeq(strings.TrimPrefix(value, "="), ",") {
			name, _, _ = strings.Cut(name, ":")
			there := p.Node.HCA(name) != nil || v == "UCX_NET_DEVICES" && p.Node.Netdev(name) != nil
			if !exact && v == "NCCL_IB_HCA" {
				there = slices.ContainsFunc(
					p.Node.HCAs,
					func(h node.HCA) bool { return strings.HasPrefix(h.Name, name) },
				)
			}
			cluster := v == "UCX_NET_DEVICES" &&
				(strings.HasPrefix(name, "eth") || name == "lo") // is not in the picture
			isElsewhere := func(port string) bool { return strings.HasPrefix(port, name+":") }
			switch {
			case there || cluster:
			case slices.ContainsFunc(p.elsewhere, isElsewhere):
				elsewhere = append(elsewhere, name)
			default:
				missing = append(missing, name)
			}
		}
		if len(elsewhere) > 0 {
			out = append(out, finding("pod-env-hca", Warn, v+"="+value+": the interface is in another network "+
				"namespace: "+strings.Join(elsewhere, ", ")))
		}
		if len(missing) > 0 {
			out = append(
				out,
				finding("pod-env-hca", Fail, v+"="+value+": not in the pod: "+strings.Join(missing, ", ")),
			)
		} else if len(elsewhere) == 0 {
			out = append(out, finding("pod-env-hca", OK, v+"="+value))
		}
	}
	return out
}

func podEnvSocket(p *Pod) []Finding {
	value := p.Env["NCCL_SOCKET_IFNAME"]
	if value == "" || strings.HasPrefix(value, "^") {
		return nil
	}
	exact := strings.HasPrefix(value, "=")
	for name := range strings.SplitSeq(strings.TrimPrefix(value, "="), ",") {
		for _, d := range p.Node.Netdevs {
			if d.Name == name || !exact && strings.HasPrefix(d.Name, name) {
				return one(finding("pod-env-socket", OK, "NCCL_SOCKET_IFNAME="+value))
			}
		}
		if strings.HasPrefix(name, "eth") ||
			strings.HasPrefix(name, "lo") { // the cluster's own network is not in the picture
			return nil
		}
	}
	return one(finding("pod-env-socket", Fail, "NCCL_SOCKET_IFNAME="+value+" fits no interface of the pod"))
}

func podEnvOff(p *Pod) []Finding {
	if v := p.Env["NCCL_IB_DISABLE"]; v != "" && v != "0" {
		return one(finding("pod-env-off", Fail, "NCCL_IB_DISABLE="+v))
	}
	if v := p.Env["NCCL_NET"]; strings.EqualFold(v, "socket") {
		return one(finding("pod-env-off", Fail, "NCCL_NET="+v))
	}
	return nil
}

func podHCOLL(p *Pod) []Finding {
	v, set := p.Env["OMPI_MCA_coll_hcoll_enable"]
	switch {
	case set && v == "0":
		return one(finding("pod-hcoll", OK, "OMPI_MCA_coll_hcoll_enable=0"))
	case set:
		return one(finding("pod-hcoll", Warn, "OMPI_MCA_coll_hcoll_enable="+v))
	case p.HCOLL:
		return one(finding("pod-hcoll", Warn, "the image has HCOLL, and OMPI_MCA_coll_hcoll_enable is not set"))
	}
	return nil
}

func podShm(p *Pod) []Finding {
	switch {
	case p.Shm < 0:
		return nil
	case p.Shm < 1<<30:
		return one(finding("pod-shm", Warn, fmt.Sprintf("/dev/shm has %d MiB", p.Shm>>20)))
	}
	return one(finding("pod-shm", OK, fmt.Sprintf("/dev/shm has %d MiB", p.Shm>>20)))
}

func keys(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
