package plan

import (
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// ReleaseNetdev returns the steps that take our addresses and rules out of the pod before IPAM may give them to
// somebody else. Rules do not leave with the netdev.
func ReleaseNetdev(have *device.Netdev, rules []device.Rule) []Step {
	var steps []Step
	for _, r := range rules {
		if r.Table == Table(have.Index) {
			steps = append(steps, DelRule{r})
		}
	}
	for _, a := range have.Addrs {
		if a.Scope != scopeLink {
			steps = append(steps, DelAddr{In: Pod, Addr: a})
		}
	}
	return steps
}

// ReleaseOrphans returns the steps that remove rules of ours whose netdev is not in the pod any more: they name a
// rail's table, and no netdev there has its ifindex.
func ReleaseOrphans(there []device.Netdev, rules []device.Rule) []Step {
	var steps []Step
	for _, r := range rules {
		if r.Priority == rulePriority && r.Table > Table(0) && r.Src.IsSingleIP() &&
			!slices.ContainsFunc(there, func(n device.Netdev) bool { return Table(n.Index) == r.Table }) {
			steps = append(steps, DelRule{r})
		}
	}
	return steps
}
