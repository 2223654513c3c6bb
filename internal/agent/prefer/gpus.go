package prefer

import (
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
)

// GPUs knows a node's GPUs by the ids that their device plugins give them.
type GPUs map[string]node.Place

// NewGPUs returns the GPUs by PCI address, as AMD's plugin calls them, and by UUID, as NVIDIA's does. uuids maps the
// latter to the former.
func NewGPUs(list []node.GPU, uuids map[string]string) GPUs {
	out := GPUs{}
	for i := range list {
		out[list[i].PCI] = list[i].Place()
	}
	for uuid, pci := range uuids {
		if p, ok := out[pci]; ok {
			out[uuid] = p
		}
	}
	return out
}

// At returns where a device is if it is a GPU, or part of one: a replica (GPU-5f3e...::2) is at the place of the whole,
// and of a MIG device nothing but the NUMA node is known.
func (g GPUs) At(d Device) (node.Place, bool) {
	id, _, _ := strings.Cut(d.ID, "::")
	if p, ok := g[id]; ok {
		return p, true
	}
	return node.Place{NUMA: d.NUMA}, strings.HasPrefix(id, "MIG-") && d.NUMA >= 0
}
