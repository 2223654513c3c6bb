package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/nccl"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

// CheckPod runs every check of a pod.
func CheckPod(p *Pod) (out []Finding) {
	pod := *p
	given := p.PodView()
	pod.Node, pod.given, pod.choice = given.Node, given, nccl.Choose(given)
	p = &pod
	checks := []func(*Pod) []Finding{podInterface, podPorts, podRates, podGIDs, podSubnets, podMTU}
	if !p.Bare {
		checks = []func(*Pod) []Finding{
			podInterface,
			podRails,
			podVerbs,
			podUsable,
			podForeign,
			podPorts,
			podRates,
			podMemlock,
			podMemory,
			podGIDs,
			podGIDIndex,
			podSubnets,
			podMTU,
			podPKeys,
			podEnvHCA,
			podEnvCrossNIC,
			podEnvDataDirect,
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

func podVerbs(p *Pod) []Finding {
	if len(p.Uverbs) == 0 {
		return one(finding("pod-verbs", Fail, "/dev/infiniband has no uverbs device"))
	}
	return one(finding("pod-verbs", OK, strings.Join(p.Uverbs, ", ")))
}

func podForeign(p *Pod) []Finding {
	if len(p.Verbs) == 0 && len(p.Node.HCAs) > 0 {
		return nil // sysfs does not tell which is which
	}
	var foreign []string
	for _, name := range p.Uverbs {
		if p.Verbs[name] == "" {
			foreign = append(foreign, "/dev/infiniband/"+name)
		}
	}
	if len(foreign) > 0 {
		return one(finding("pod-foreign", Warn, "of no HCA of the pod: "+few(foreign)))
	}
	return nil
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

func podPorts(p *Pod) []Finding {
	n := 0
	var down []string
	p.ports(func(h *node.HCA, q *node.Port) {
		if p.given.Guessed && !q.Active() && !p.isRail(h) && len(p.choice.Ports) > 0 {
			return // it may be unused on purpose
		}
		n++
		if !q.Active() {
			down = append(down, fmt.Sprintf("%s:%d is %s (%s)", h.Name, q.Number, q.State, q.Phys))
		}
	})
	switch {
	case n == 0:
		return nil
	case len(down) == 0:
		return one(finding("pod-port-state", OK, strconv.Itoa(n)+" ports, all Active"))
	case len(p.choice.Ports) == 0:
		return one(finding("pod-port-state", Fail, few(down)+". No port that can work: NCCL goes over TCP without an "+
			"error"))
	}
	return one(finding("pod-port-state", Warn, few(down)))
}

// isRail reports whether an HCA is of the kind of the pod's rails.
func (p *Pod) isRail(h *node.HCA) bool {
	return slices.ContainsFunc(p.choice.Ports, func(q topology.Port) bool { return q.Device == h.ID })
}

// enoughMemlock is a limit that suffices for many jobs, in bytes.
const enoughMemlock = 8 << 30

func podMemlock(p *Pod) []Finding {
	limit := "locked memory is limited to " + bytesText(p.Memlock)
	switch {
	case p.Memlock < 0:
		return one(finding("pod-memlock", OK, "locked memory is not limited"))
	case p.IPCLock:
		return one(finding("pod-memlock", OK, limit+", which the capability IPC_LOCK lifts"))
	}
	f := finding("pod-memlock", Fail, limit+", and the capability IPC_LOCK is missing")
	if p.IPCLockBound {
		f.Evidence = limit + "; the container has the capability IPC_LOCK, but not for this user"
		f.Cure = "LimitMEMLOCK=infinity in the unit of the container runtime (containerd) on the nodes, or run as " +
			"root: Kubernetes gives other users no ambient capabilities"
	}
	if p.Memlock >= enoughMemlock {
		f.Status = Warn
	}
	return one(f)
}

// bytesText is a number of bytes in the largest unit that it is at least one of.
func bytesText(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size {
			return fmt.Sprintf("%.4g %s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// podPKeys finds ports that reach no other member of their partition.
func podPKeys(p *Pod) (out []Finding) {
	value, set := p.Env["NCCL_IB_PKEY"]
	index, err := strconv.Atoi(value)
	if set && (err != nil || index < 0) {
		return one(finding("pod-pkey", Fail, "NCCL_IB_PKEY="+value+" is no index"))
	}
	var limited, empty []string
	n := 0
	for i := range p.choice.Ports {
		q := &p.choice.Ports[i]
		table := p.choice.PKeys(q)
		if len(table) == 0 {
			continue
		}
		n++
		switch {
		case set && (index >= len(table) || table[index] == node.EmptyPKey):
			empty = append(empty, q.Name())
		case set && !nccl.FullMember(table[index]), !set && !slices.ContainsFunc(table, nccl.FullMember):
			limited = append(limited, q.Name())
		}
	}
	if len(empty) > 0 {
		out = append(out, finding("pod-pkey", Fail, "NCCL_IB_PKEY="+value+" is an empty entry of "+few(empty)))
	}
	if len(limited) > 0 {
		out = append(out, finding("pod-pkey", Warn, "limited members, which do not reach each other: "+few(limited)))
	}
	if n == 0 {
		return nil
	}
	return pass(out, "pod-pkey", fmt.Sprintf("%d ports are full members", n))
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

func podSubnets(p *Pod) (out []Finding) {
	for _, f := range p.Node.Fabrics().Fabrics {
		quiet := len(p.ARPIgnore) > 0
		for _, q := range f.On(p.Node.Name) {
			quiet = quiet && p.ARPIgnore[q.Netdev] > 0
		}
		for _, w := range f.Warnings {
			if strings.Contains(w, "have no IP address") { // podGIDs says it
				continue
			}
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

func podEnvOff(p *Pod) []Finding {
	return envOff("", func(name string) string { return p.Env[name] })
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
