package prefer

import (
	"maps"
	"slices"

	"github.com/fabric-cni/fabric-cni/internal/node"
)

// Container is one container, and what kubelet has given it.
type Container struct {
	Pod     string // namespace/name
	Devices []Device
}

// Device is one device of any plugin.
type Device struct {
	Resource string
	ID       string
	NUMA     int // -1: the plugin has not said
}

// Waiting returns where the GPUs of pods are that may be the one that kubelet is giving units of a resource right now:
// by pod, the GPUs of those of its containers that have none of the resource. at tells where a device is if it is a
// GPU.
func Waiting(list []Container, resource string, at func(Device) (node.Place, bool)) map[string][]node.Place {
	out := map[string][]node.Place{}
	for _, c := range list {
		if slices.ContainsFunc(c.Devices, func(d Device) bool { return d.Resource == resource }) {
			continue
		}
		for _, d := range c.Devices {
			if p, ok := at(d); ok {
				out[c.Pod] = append(out[c.Pod], p)
			}
		}
	}
	return out
}

// OfStarting returns the GPUs of the one pod among those waiting that has not started: the pod that kubelet is about to
// admit has no sandbox yet. If there are several, the result is empty: it can't be told which of them it is.
func OfStarting(waiting map[string][]node.Place, started map[string]bool) []node.Place {
	maps.DeleteFunc(waiting, func(pod string, _ []node.Place) bool { return started[pod] })
	if len(waiting) != 1 {
		return nil
	}
	for _, gpus := range waiting {
		return gpus
	}
	return nil
}
