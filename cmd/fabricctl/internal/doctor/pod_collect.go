package doctor

import (
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/nccl"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// Pod is the picture that a pod's checks look at: what a process of the container sees.
type Pod struct {
	Node    *node.Node
	Bare    bool              // only the network namespace is known, no process in it: the rest says nothing
	Uverbs  []string          // in /dev/infiniband
	Verbs   map[string]string // uverbsN to the name of the HCA, of those that sysfs shows
	Env     map[string]string
	Memlock int64 // soft limit in bytes; -1: unlimited
	IPCLock bool  // the capability is effective
	// IPCLockBound: the container has the capability, its root at least.
	IPCLockBound bool
	Memory       int64 // of the cgroup, in bytes; -1: unlimited or unknown
	Shm          int64 // size of /dev/shm in bytes; -1: unknown
	HCOLL        bool  // its library is in the image

	ARPIgnore map[string]int // sysctl arp_ignore by interface; those not known are not in it
	// Interfaces are all of the network namespace, those of the cluster's network too; empty: not known
	Interfaces []string
	Denied     []string // of Uverbs, those that can't be opened; nil: not tried

	given  *node.PodView // what of Node is the pod's
	choice *nccl.Choice  // and what it should use
}

// CollectPod reads a container: root is its root directory, proc that of one of its processes. env is that process's
// environment.
func CollectPod(root, proc fs.FS, n *node.Node, env []string) *Pod {
	p := &Pod{Node: n, Verbs: map[string]string{}, Env: map[string]string{}, Memory: -1, Memlock: -1, Shm: -1}
	for _, name := range list(root, "dev/infiniband") {
		if strings.HasPrefix(name, "uverbs") {
			p.Uverbs = append(p.Uverbs, name)
		}
	}
	for _, name := range list(root, "sys/class/infiniband_verbs") {
		if hca := read(root, "sys/class/infiniband_verbs/"+name+"/ibdev"); hca != "" && n.HCA(hca) != nil {
			p.Verbs[name] = hca
		}
	}
	p.Interfaces = InterfacesOf(root)
	for _, e := range env {
		if k, v, ok := strings.Cut(e, "="); ok {
			p.Env[k] = v
		}
	}
	p.limits(read(proc, "limits"), read(proc, "status"))
	if v := read(root, "sys/fs/cgroup/memory.max"); v != "" {
		p.Memory = size(v)
	}
	for _, dir := range []string{"opt/mellanox/hcoll/lib", "opt/hpcx/hcoll/lib", "usr/lib/hcoll"} {
		p.HCOLL = p.HCOLL ||
			slices.ContainsFunc(list(root, dir), func(n string) bool { return strings.HasPrefix(n, "libhcoll") })
	}
	return p
}

// PodView returns the visible RDMA devices, and which of them were given to the pod.
func (p *Pod) PodView() *node.PodView {
	env := node.DeviceEnv{}
	if !p.Bare && len(p.Verbs) > 0 { // otherwise it is not known which character device is whose
		env.Openable = map[string]bool{}
		for u, hca := range p.Verbs {
			can := slices.Contains(p.Uverbs, u) && !slices.Contains(p.Denied, u)
			env.Openable[hca] = env.Openable[hca] || can
		}
	}
	for name, value := range p.Env {
		// The SR-IOV network device plugin's: PCI addresses or names of auxiliary devices, and another one that ends
		// with _INFO and has JSON.
		if strings.HasPrefix(name, "PCIDEVICE_") && !strings.HasSuffix(name, "_INFO") {
			env.PCI = append(env.PCI, strings.Split(value, ",")...)
		}
	}
	return p.Node.PodView(env)
}

// InterfacesOf are the interfaces of a network namespace, as its sysfs shows them; nil where that is not whole.
func InterfacesOf(root fs.FS) []string {
	names := list(root, "sys/class/net")
	if !slices.Contains(names, "lo") {
		return nil
	}
	return names
}

// limits reads /proc/PID/limits and the effective capabilities of /proc/PID/status (man proc_pid_limits,
// proc_pid_status).
func (p *Pod) limits(limits, status string) {
	for line := range strings.Lines(limits) {
		if rest, ok := strings.CutPrefix(line, "Max locked memory"); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				p.Memlock = size(f[0])
			}
		}
	}
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			p.IPCLock = hasIPCLock(v)
		}
		if v, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			p.IPCLockBound = hasIPCLock(v)
		}
	}
}

// size is a number of bytes, -1 for none.
func size(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return -1 // "unlimited", "max"
	}
	return n
}

// hasIPCLock looks for CAP_IPC_LOCK (include/uapi/linux/capability.h) in a set of capabilities in hex.
func hasIPCLock(set string) bool {
	mask, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
	return err == nil && mask&(1<<14) != 0
}
