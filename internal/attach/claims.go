package attach

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Claims is what ResourceClaims give to a pod of the devices of one fabric, if the configuration takes its device from
// there. Names of the pod and its claims are ready for messages.
type Claims struct {
	Fabric     string
	Pod        string // namespace/name, as far as the runtime passes them; else empty
	PodUID     string // empty: the runtime does not pass it
	BadUID     bool   // it is no UID
	Unreadable error  // what is prepared for the pod can't be read
	DeviceID   string // the one that Multus names; empty: none
	IfName     string // of the interface in the pod
	// Devices are in the order in which interfaces get them.
	Devices []Claimed
}

// Claimed is a device that a ResourceClaim gives to the pod.
type Claimed struct {
	Claim  string // namespace/name of the ResourceClaim
	Device string // as the journal names it; several shares of an HCA have one name
	ID     string // as Multus names it
	// Interface is what the claim calls its interface; empty: any name will do. Unfit: this one has another name.
	Interface string
	Unfit     bool
	// Taken is the other interface of this very container that has it; empty: none. What an older container of the pod
	// has counts as free: it is returned first if that is dead, and refused as in use if not.
	Taken string
}

// Choose returns the index of the device that the next interface of the pod gets: the one that Multus names, otherwise
// the first that no other interface of the container has, and whose claim gives it this name or none. It returns -1 and
// no refusal if the device is not from a claim: kubelet's device plugin has given it, before the fabric was switched to
// claims.
func (c *Claims) Choose() (int, *Refusal) {
	switch {
	case c.PodUID == "" || c.BadUID || c.Unreadable != nil:
		return -1, c.unknown()
	case len(c.Devices) == 0 && c.DeviceID != "":
		return -1, nil
	case len(c.Devices) == 0:
		return -1, c.refusal(fmt.Sprintf("pod %s has the network %s in its annotation, but none of its ResourceClaims "+
			"gives it a device of fabric %s", c.pod(), c.Fabric, c.Fabric),
			fmt.Sprintf("add a claim of DeviceClass %s.fabric.dev to the pod, or take the network out of its "+
				"annotation", c.Fabric))
	}
	named, other, free := false, "", -1
	for i, d := range c.Devices {
		if c.DeviceID != "" && c.DeviceID != d.ID && c.DeviceID != d.Device {
			continue
		}
		switch named = true; {
		case d.Taken != "":
		case d.Unfit:
			other = cmp.Or(other, d.Interface)
		case d.Interface != "": // before those that have any name
			return i, nil
		case free < 0:
			free = i
		}
	}
	if free >= 0 {
		return free, nil
	}
	if other != "" {
		return -1, c.refusal(fmt.Sprintf("the ResourceClaim of pod %s names its interface of fabric %s %.40q, and the "+
			"annotation asks for %s", c.pod(), c.Fabric, other, c.IfName),
			fmt.Sprintf("name it in the annotation as well, as in %s@ib0, or take the network out of the annotation: "+
				"the claim is enough", c.Fabric))
	}
	if !named {
		return -1, c.refusal(fmt.Sprintf("device %q is none of those of fabric %s that ResourceClaims give to pod %s: "+
			"%s", cut(c.DeviceID), c.Fabric, c.pod(), c.list()),
			"leave deviceID out: the pod's devices are handed out in the order of their rails")
	}
	return -1, c.refusal(fmt.Sprintf("pod %s has the network %s in its annotation once more than its ResourceClaims "+
		"give it devices: %s", c.pod(), c.Fabric, c.list()),
		fmt.Sprintf("name the network %s at most %d times, or let a claim ask for more devices", c.Fabric,
			len(c.Devices)))
}

// unknown refuses a pod of which it is not known what it has been given.
func (c *Claims) unknown() *Refusal {
	switch {
	case c.PodUID == "":
		return c.refusal("CNI_ARGS has no K8S_POD_UID, and the device is one that a ResourceClaim gives to the pod "+
			"(\"allocation\": \"DRA\"): which pod is it?",
			"containerd and CRI-O pass it, through Multus too; any other caller of the plugin has to")
	case c.BadUID:
		return c.refusal(fmt.Sprintf("CNI_ARGS K8S_POD_UID: value %q is no UID", cut(c.PodUID)),
			"want letters, digits and '-', at most 128")
	}
	return c.refusal(fmt.Sprintf("what ResourceClaims give to pod %s can't be read: %v", c.pod(), c.Unreadable),
		"delete the pod: the claims of the next one are prepared anew")
}

func (*Claims) refusal(message, hint string) *Refusal {
	return &Refusal{Reason: NoDevice, Message: message, Hint: hint, Passing: true}
}

func (c *Claims) pod() string { return cmp.Or(c.Pod, fmt.Sprintf("of UID %q", cut(c.PodUID))) }

// cut bounds what a message repeats of an unchecked value.
func cut(s string) string { return s[:min(len(s), 80)] }

// list says which devices the pod has been given, and what has become of each.
func (c *Claims) list() string {
	const most = 16 // of the devices that a message names
	var out []string
	for _, d := range c.Devices[:min(len(c.Devices), most)] {
		s := fmt.Sprintf("%s (claim %s)", d.Device, d.Claim)
		if d.Taken != "" {
			s += " is " + d.Taken
		}
		out = append(out, s)
	}
	if n := len(c.Devices) - most; n > 0 {
		out = append(out, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(out, ", ")
}

// Promise is a device that a ResourceClaim or kubelet gives to another pod than the one that is to be attached. Names
// are ready for messages.
type Promise struct {
	Pod, Claim string // namespace/name
	Resource   string // kubelet gives it, of this resource, and Pod has the UID; empty: the claim does
	Device     string // as the journal names it
	Shared     bool   // the pod gets an IPoIB child of it
}

// refusePreparedForOther refuses a device that a claim gives to another pod, if the attachment would take it from that
// pod: the whole device, its PF or one of its VFs. A child takes nothing from a pod that gets a child as well.
func (d *decider) refusePreparedForOther(moves bool) {
	i := slices.IndexFunc(d.Promises, func(p Promise) bool {
		switch {
		case p.Device == d.Device.DeviceKey:
			return moves || !p.Shared
		case d.PF != nil && p.Device == d.PF.String():
			return moves && !p.Shared
		}
		return moves // a VF of this PF
	})
	if i < 0 {
		return
	}
	p := d.Promises[i]
	what := "device " + p.Device
	if p.Device != d.Device.DeviceKey {
		what += fmt.Sprintf(", a function of the same card as %s,", d.Device.DeviceKey)
	}
	d.refuse(&Refusal{
		Reason:  InUse,
		Message: fmt.Sprintf("%s is given to pod %s by %s", what, p.Pod, p.by()),
		Hint:    p.until(),
		Passing: true,
	})
}
