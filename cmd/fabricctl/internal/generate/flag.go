package generate

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

// FlagError is an option that the nodes do not allow.
type FlagError struct {
	Flag  string // without dashes
	Value any
	Want  string
}

func (e *FlagError) Error() string { return fmt.Sprintf("--%s %v: %s", e.Flag, e.Value, e.Want) }

// own refuses a range with addresses that the nodes themselves have or reach elsewhere: a pod's interface with such an
// address, or with a route to such a subnet, takes away what the node and other pods have there. The addresses of a
// rail go with its port to the pod, so the rail's subnet may be the range, without these addresses.
func (o *Options) own(nodes []*node.Node) error {
	for _, n := range nodes {
		rails := map[string]bool{}
		for _, p := range n.Ports() {
			rails[p.Netdev] = rails[p.Netdev] || p.Bond == "" && !p.Primary && p.Kind != topology.Soft
		}
		for i := range n.Netdevs {
			d := &n.Netdevs[i]
			for _, a := range d.Addrs {
				if !a.IsValid() || a.Addr().IsLinkLocalUnicast() || a.Addr().IsLoopback() || !o.Range.Overlaps(a) {
					continue
				}
				whose := fmt.Sprintf("%s of %s on node %s", a, d.Name, n.Name)
				switch {
				case !rails[d.Name]:
					return &FlagError{"range", o.Range, fmt.Sprintf("overlaps the node's own subnet, %s: want a range "+
						"that no interface of the nodes is in", whose)}
				case o.Range.Contains(a.Addr()) && !o.excluded(a.Addr()):
					return &FlagError{"range", o.Range, fmt.Sprintf("has an address that is in use, %s: want "+
						"another range, or "+
						"--exclude with the addresses that nodes have (%s)", whose,
						netip.PrefixFrom(a.Addr(), a.Addr().BitLen()))}
				}
			}
		}
	}
	return nil
}

func (o *Options) excluded(a netip.Addr) bool {
	for _, e := range o.Exclude {
		if e.Contains(a) {
			return true
		}
	}
	return false
}

// noClaim refuses what only a claim can ask for.
func (o *Options) noClaim(why string) error {
	for _, f := range []struct {
		flag  string
		given bool
	}{{"per-rail", o.PerRail}, {"min-rate", o.MinRate != 0}, {"gpu-class", o.GPUClass != ""}, {"with-pod", o.Pod}} {
		if f.given {
			return fmt.Errorf("--%s is for ResourceClaims: %s", f.flag, why)
		}
	}
	return nil
}

// having are the nodes with ports of the workload's fabric.
func (d *data) having(nodes []*node.Node) (out []*node.Node) {
	on := map[string]bool{}
	for _, n := range d.Workload {
		for _, r := range n.Rails {
			for _, p := range r.Ports {
				on[p.Node] = true
			}
		}
	}
	for _, n := range nodes {
		if on[n.Name] {
			out = append(out, n)
		}
	}
	return out
}

// chooseGPUs takes as many GPUs as most of the nodes have, or as many as were asked for, and finds out what their
// resource is called.
func (d *data) chooseGPUs(kind string, nodes []*node.Node) error {
	d.askedGPUs = d.GPUs
	seen := map[int]int{}
	most := 0
	vendor := ""
	for _, n := range nodes {
		seen[len(n.GPUs)]++
		most = max(most, len(n.GPUs))
		for i := range n.GPUs {
			id, _, _ := strings.Cut(n.GPUs[i].ID, ":")
			vendor = cmp.Or(vendor, id)
		}
	}
	named := d.GPU != ""
	d.GPU = cmp.Or(d.GPU, gpuResources[vendor], gpuResources["10de"])
	switch {
	case kind == "perftest-pods":
		d.GPUs = 0
	case d.GPUs < 0:
		d.GPUs = usual(seen)
	case most == 0 && d.GPUs > 0 && !named: // a device that is not known as a GPU has a resource of its own name
		return &FlagError{"gpus", d.GPUs, "no node of " + d.workloadName() + " has a GPU; --gpu-resource names " +
			"another accelerator"}
	case d.GPUs > most && most > 0:
		return &FlagError{"gpus", d.GPUs, fmt.Sprintf("want 0 to %d: no node of %s has more GPUs", most,
			d.workloadName())}
	}
	return nil
}

// gpuResources are the resources that vendors' device plugins offer, by PCI vendor.
var gpuResources = map[string]string{"10de": "nvidia.com/gpu", "1002": "amd.com/gpu"}

// limit leaves as many rails as are asked for, and the GPUs in proportion.
func (d *data) limit() error {
	have := d.RailCount()
	switch {
	case d.Rails == 0 && d.First == 0:
		return nil
	case d.Shared && d.Rails > 0 && (len(d.Workload) == 1 || d.Rails > len(d.Workload)):
		return &FlagError{"rails", d.Rails, "of the shared device plugin a pod gets all devices of a resource: " +
			"choose the GPUs with --gpus, and the ports with NCCL_IB_HCA"}
	case d.Rails > have:
		return &FlagError{"rails", d.Rails, fmt.Sprintf("want 1 to %d: a node has %[1]d of %s", have, d.workloadName())}
	case d.First > 0 && !d.distinct():
		return &FlagError{"first-rail", d.First, "is for rails that are planes, or for --vfs: here a pod gets any " +
			"rails of " +
			d.workloadName()}
	case d.First+max(d.Rails, 1) > have:
		return &FlagError{"first-rail", d.First, fmt.Sprintf("want 0 to %d: a node has %d rails, 0 to %d",
			have-max(d.Rails, 1), have, have-1)}
	}
	if d.Rails == 0 {
		d.Rails = have - d.First
	}
	skip, left := d.First, d.Rails
	var chosen []Network
	for _, n := range d.Workload {
		from := min(skip, len(n.Rails))
		skip -= from
		n.Rails = n.Rails[from:min(from+left, len(n.Rails))]
		left -= len(n.Rails)
		if len(n.Rails) > 0 {
			chosen = append(chosen, n)
		}
	}
	if d.distinct() && d.Rails < have && !d.VFs && !d.Workload[0].Shared && !d.Shared {
		d.Note = fmt.Sprintf("Another pod on the same node needs other rails than these: --first-rail %d",
			(d.First+d.Rails)%have)
	}
	d.Workload = chosen
	d.proportion(have)
	return nil
}

// distinct reports whether each rail has a network and a resource of its own.
func (d *data) distinct() bool { return len(d.Workload) > 1 }

// proportion leaves a pod with some of the rails as large a part of the GPUs, so that pods with the others have theirs.
func (d *data) proportion(have int) {
	total := d.GPUs
	if d.askedGPUs >= 0 || total == 0 || d.Rails >= have {
		return
	}
	d.GPUs = max(total*d.Rails/have, 1)
	d.GPUNote = fmt.Sprintf("of the node's %d, in proportion to %d of %d rails", total, d.Rails, have)
}
