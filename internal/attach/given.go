package attach

import (
	"cmp"
	"fmt"
)

// Allotment is what kubelet or a ResourceClaim has given to the pod of the device that the configuration selects.
type Allotment struct {
	Unjudged bool  // no pod is known: it is a plan for any
	NoUID    bool  // CNI_ARGS does not say which pod it is
	Unknown  error // what kubelet has given can't be read
	Whole    bool  // the device itself

	// Of a device in a Fabric: its resource, how many shares of the Fabric's devices the pod has, and how many children
	// on them the container has already.
	Resource         string
	Shares, Children int
}

func (p *Promise) by() string {
	if p.Resource != "" {
		return "kubelet (resource " + p.Resource + ")"
	}
	return "ResourceClaim " + p.Claim
}

func (p *Promise) until() string {
	if p.Resource != "" {
		return "kubelet takes it back when that pod has ended, and forgets it when the pod is deleted"
	}
	return "kubelet gives it back when that pod has ended (NodeUnprepareResources)"
}

// refuseNotAllotted refuses what the pod was not given, where the node policy wants that: a device that leaves the
// host, and a child of one that is in a Fabric.
func (d *decider) refuseNotAllotted(moves bool) {
	g := &d.Allotment
	if !d.Pod || g.Unjudged || d.Policy == nil || !d.Policy.Allocated() || g.Whole || !moves && g.Resource == "" {
		return
	}
	device := d.Device.DeviceKey
	switch {
	case g.NoUID:
		d.refuseAllotment(fmt.Sprintf("CNI_ARGS has no K8S_POD_UID: was device %s given to this pod?", device),
			"containerd and CRI-O pass it, through Multus too; without them set \"requireAllocated\": false in "+
				policyPath)
	case g.Unknown != nil:
		d.refuseAllotment(fmt.Sprintf("was device %s given to this pod? %v", device, g.Unknown),
			"kubelet writes that file; \"devicePluginDir\" in "+policyPath+" says where")
	case !moves && g.Shares == 0:
		d.refuse(&Refusal{
			Reason: NoDevice,
			Message: fmt.Sprintf("the pod names a network on device %s, and was given no share of %s", device,
				g.Resource),
			Hint: fmt.Sprintf("let a container of the pod ask for it: resources.limits %s: 1 for each network",
				g.Resource),
			Passing: true,
		})
	case !moves && g.Children >= g.Shares:
		d.refuse(&Refusal{
			Reason: NoDevice,
			Message: fmt.Sprintf("the pod names networks on devices of %s once more than it was given shares: it has "+
				"%d interfaces of %d", g.Resource, g.Children, g.Shares),
			Hint:    fmt.Sprintf("each network needs a share: resources.limits %s: %d", g.Resource, g.Children+1),
			Passing: true,
		})
	case moves:
		d.refuseAllotment(fmt.Sprintf("device %s was not given to this pod, by kubelet or by a ResourceClaim", device),
			fmt.Sprintf("let the pod ask for %s, and let the network take it from there (annotation "+
				"k8s.v1.cni.cncf.io/resourceName), or set \"requireAllocated\": false in %s",
				cmp.Or(g.Resource, "the resource of the device"), policyPath))
	}
}

func (d *decider) refuseAllotment(message, hint string) {
	d.refuse(&Refusal{Reason: Forbidden, Message: message, Hint: hint, Passing: true})
}
