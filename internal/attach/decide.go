package attach

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// Decision is the answer: whether the device can be attached, and what has to be done.
type Decision struct {
	// Refusals are all reasons against it, the one that counts first. ADD ends with the first.
	Refusals []*Refusal
	// Warnings are for people: what is unusual, but no reason against it.
	Warnings []string
	// Reclaims are attachments that have left something behind that no other call will return: ADD returns what they
	// have, and asks again. Where the device itself is among it, nothing more is known yet, and Attachment is nil.
	Reclaims []Owner
	// Done says that nothing is to be done, and nothing stands against it: the plugin before this one in the chain has
	// done it all.
	Done bool
	// OtherPorts are the interfaces that go along, each by an attachment of its own.
	OtherPorts []OtherPort
	// Attachment is what has to be done. It is nil while it can't be known: without a device.
	*Attachment
}

// Decide decides.
func Decide(f *Facts) *Decision {
	d := &decider{Facts: f}
	if d.earlier() && d.found() && d.owner() {
		switch d.Config.Mode {
		case netconf.ModeIPoIB:
			d.child()
		case netconf.ModeRDMA:
			d.chained()
		default:
			d.device()
		}
	}
	return &d.decision
}

// decider is one decision in the making. Its methods that return a bool say whether the rest can be judged.
type decider struct {
	*Facts
	decision Decision
}

// refuse notes a reason against the attachment. nil is ignored.
func (d *decider) refuse(r *Refusal) {
	if r != nil {
		d.decision.Refusals = append(d.decision.Refusals, r)
	}
}

func (d *decider) reclaim(o *Owner, what string) {
	d.decision.Reclaims = append(d.decision.Reclaims, *o)
	of := fmt.Sprintf("%s (%s), which is gone", o.who(), o.IfName)
	if o.Self {
		of = "an earlier ADD of this attachment"
	}
	d.decision.Warnings = append(d.decision.Warnings, what+" is returned to the host first, from "+of)
}

// earlier looks at what the journal has of this very attachment. One that is alive and complete is an error: the
// runtime has to call DEL first.
func (d *decider) earlier() bool {
	if e := d.Earlier; e != nil {
		if e.Alive && e.Unreadable == nil {
			d.refuseDuplicateAdd(e)
			return false
		}
		d.reclaim(e, "what is left")
		return false
	}
	if d.Pod && d.NameTaken != "" && d.Config.Mode != netconf.ModeRDMA {
		d.refuse(&Refusal{
			Reason:  NameTaken,
			Message: fmt.Sprintf("CNI_IFNAME %s: the pod has an interface of this name (%s)", d.IfName, d.NameTaken),
			Hint:    "choose another one, as in the annotation's NETWORK@INTERFACE",
		})
	}
	return true
}

// found judges whether there is a device to look at.
func (d *decider) found() bool {
	switch {
	case d.Device != nil:
		return true
	case d.refuseUnclaimed():
	case d.Unselected && !d.Pod:
		// STATUS of a network whose device is known only with a pod: what can be said without one.
	case d.Unselected && d.Missing == nil:
		d.refuse(&Refusal{
			Reason: BadConfig,
			Message: fmt.Sprintf("the device can't be derived: the prevResult has %d interfaces in the pod",
				d.Chained.Interfaces),
			Hint: "name it: deviceID, rdmaDevice or guid",
		})
		return false
	case d.Chained.NoHardware != "":
		d.refuse(d.noHardware())
		return false
	case d.Soft != nil:
		d.refuse(d.softSelected())
		return false
	case d.Ambiguous:
		d.refuse(&Refusal{Reason: BadConfig, Message: d.Missing.Error()})
		return false
	case d.Holder != nil && d.Holder.reclaimable():
		d.reclaim(d.Holder, "device "+d.Holder.DeviceKey)
	case d.Holder != nil:
		d.refuse(d.inUse(d.Holder))
	default:
		d.refuse(d.noDevice())
	}
	d.refusePolicyErr()
	if d.Config.Mode != netconf.ModeIPoIB {
		d.refuse(d.noSubsystem())
		d.refuse(JudgeMode(d.Config.RDMA, d.NetnsMode, d.RDMA, "the RDMA device"))
	}
	return false
}

// refuseUnclaimed refuses a pod that has no device for this attachment from its claims, and reports whether it did.
func (d *decider) refuseUnclaimed() bool {
	if d.Claims == nil {
		return false
	}
	_, r := d.Claims.Choose()
	d.refuse(r)
	return r != nil
}

func (f *Facts) noDevice() *Refusal {
	if f.Config.Mode == netconf.ModeIPoIB && !f.IPoIBLoaded {
		return &Refusal{
			Reason:  NoDevice,
			Message: fmt.Sprintf("master %q: module ib_ipoib is not loaded", f.Config.Master),
			Hint:    "load it with: modprobe ib_ipoib",
		}
	}
	msg := fmt.Sprintf("no such device on this host: %v", f.Missing)
	if field, value := Selected(f.Config); field != "" {
		msg = fmt.Sprintf("%s %q: %s", field, value, msg)
	}
	return &Refusal{
		Reason:  NoDevice,
		Message: msg,
		Hint:    "see what is there with: fabricctl discover, or ip -d link; rdma link",
	}
}

// Selected is the field that names the device, and its value; empty where the device is derived from the prevResult.
func Selected(c *netconf.Config) (field, value string) {
	if c.Selector.Kind == netconf.ByNothing && c.Master != "" {
		return "master", c.Master
	}
	return c.Selector.Field, c.Selector.Value
}

func (f *Facts) inUse(o *Owner) *Refusal {
	if o.Unreadable != nil {
		return &Refusal{
			Reason: InUse,
			Message: fmt.Sprintf("device %s belongs to %s (%s), whose journal entry can't be read: %v",
				o.DeviceKey, o.who(), o.IfName, o.Unreadable),
			Hint:    "DEL of that attachment returns it",
			Passing: true,
		}
	}
	if o.ContainerID == f.ContainerID {
		hint := "name another device in this network: each attachment needs one of its own"
		if f.Config.Injected != "" {
			hint = fmt.Sprintf("the pod names more networks than it has devices, or network %s names its device "+
				"itself: one network for each device that the pod asks for", o.Network)
		}
		return &Refusal{
			Reason: InUse,
			Message: fmt.Sprintf("device %s is in use by this very container: it is attached as %s (network %s)",
				o.DeviceKey, o.IfName, o.Network),
			Hint:    hint,
			Passing: true,
		}
	}
	return &Refusal{
		Reason: InUse,
		Message: fmt.Sprintf("device %s is in use by %s as %s (network %s, network namespace %s)",
			o.DeviceKey, o.who(), o.IfName, o.Network, o.NetnsPath),
		Hint:    "it is free again when that pod is deleted",
		Passing: true,
	}
}

// reclaimable says whether no other call will return what the attachment has. What can't be read is left alone: a
// device is taken only from a pod that is known to be dead.
func (o *Owner) reclaimable() bool { return o.Unreadable == nil && (o.Self || !o.Alive) }

// owner judges whether the device is free.
func (d *decider) owner() bool {
	switch {
	case d.Owner == nil:
		return true
	case d.Owner.reclaimable():
		d.reclaim(d.Owner, "device "+d.Device.DeviceKey)
		return false
	}
	d.refuse(d.inUse(d.Owner))
	return true
}

// device judges mode device: the whole device goes into the pod.
func (d *decider) device() {
	dev := d.Device
	d.decision.Attachment = &Attachment{Device: dev, IfName: d.IfName, Config: d.Config, PF: d.PF, VFs: d.VFs}
	if dev.Netdev == nil && dev.HCA == nil && !slices.Contains(userspace, dev.Driver) {
		d.refuse(&Refusal{
			Reason:  NoDevice,
			Message: fmt.Sprintf("device %s has neither a netdev nor an RDMA device on the host", dev.Address),
			Hint:    "look where it is: bound to another driver, or moved by another tool",
		})
		return
	}
	d.refusePreparedForOther(true)
	d.policy(true)
	d.refuseNotAllotted(true)
	d.refuseSoftRDMA()
	d.rdma()
	d.refuseHostUse()
	d.refuseNotOnHost()
	d.refuseRelatedFunctions()
	d.vf()
	d.refuseDuplicateAddresses()
	host, refusal, warning := d.onHost()
	d.decision.Host = host
	d.refuse(refusal)
	if warning != "" {
		d.decision.Warnings = append(d.decision.Warnings, warning)
	}
	if !d.decision.AwaitPort {
		d.refuse(JudgePort(d.Config, dev.HCA, dev.Netdev))
		d.refusePartition()
	}
	d.refuseIPoIBChildren()
	d.refuseUpperDevices()
	d.refuseStrayDevices()
	d.refuseBPFPrograms()
	d.decision.OtherPorts = d.portsAlong()
	if d.decision.MoveRDMA {
		d.refuse(d.siblings())
		d.refuse(d.portsLeft())
		d.refuse(d.bonded())
	}
}

// child judges mode ipoib: an IPoIB child is created in the pod, its parent stays.
func (d *decider) child() {
	parent := d.Device.Netdev
	wrong := ""
	switch {
	case parent == nil || !parent.IsIPoIB():
		wrong = "is no IPoIB interface"
	case parent.Parent != 0:
		wrong = "is an IPoIB child itself, and a child can't have children"
	}
	if wrong != "" {
		parents := "(none on this host)"
		if len(d.Parents) > 0 {
			parents = strings.Join(d.Parents, " ")
		}
		d.refuse(&Refusal{
			Reason: BadConfig,
			Message: fmt.Sprintf("field \"master\": value %q is not allowed: %s %s",
				d.Config.Master, nameOf(parent), wrong),
			Hint: "name an IPoIB parent, one of: " + parents,
		})
		return
	}
	d.refusePreparedForOther(false)
	d.policy(false)
	d.refuse(JudgePort(d.Config, d.Device.HCA, parent))
	d.refusePartition()
	d.refuseNotAllotted(false)
	d.refuseDuplicateAddresses()
	pkey := d.Config.PKey
	if pkey == 0 {
		pkey = parent.IPoIB.PKey
	}
	d.decision.Attachment = newChild(d.Facts, pkey)
}

// chained judges mode rdma: the RDMA device follows a netdev that an earlier plugin of the chain has put into the pod.
func (d *decider) chained() {
	dev := d.Device
	a := &Attachment{Device: dev, IfName: d.IfName, Config: d.Config, PF: d.PF}
	d.decision.Attachment = a
	moves := false // a netdev of the host, on which the node may depend
	if dev.Netdev != nil && dev.Side == plan.Host && d.Pod {
		if dev.isIPoIB() {
			d.refuse(&Refusal{
				Reason: InUse,
				Message: fmt.Sprintf("the IPoIB interface %s of %s is on the host: moving the RDMA device alone "+
					"would destroy it", dev.Netdev.Name, dev.Address),
				Hint: "move both with \"mode\": \"device\"",
			})
		}
		moves = true
	}
	d.policy(moves)
	d.rdma()
	d.refuse(JudgePort(d.Config, dev.HCA, dev.Netdev))
	if dev.HCA == nil {
		d.refuse(&Refusal{
			Reason:  NoDevice,
			Message: fmt.Sprintf("device %s has no RDMA device on the host", dev.DeviceKey),
			Hint:    "load its RDMA driver, or leave this plugin out of the chain",
		})
		return
	}
	if a.MoveRDMA {
		d.refusePreparedForOther(true)
		d.refuseNotAllotted(true)
		d.refuseHostUse()
		d.refuseNotOnHost()
		d.refuseRelatedFunctions()
		d.refuseIPoIBChildren()
	}
}

func (d *decider) refusePolicyErr() {
	if d.PolicyErr != nil {
		d.refuse(&Refusal{
			Reason:  Forbidden,
			Message: d.PolicyErr.Error(),
			Hint:    "fix the policy file; until then no device is moved",
		})
	}
}

// policy asks the node policy whether the device may be moved, or used where it is.
func (d *decider) policy(moves bool) {
	if d.Policy == nil {
		d.refusePolicyErr()
		return
	}
	err := d.Policy.Use(d.policyDevice())
	if moves {
		err = d.Policy.Move(d.policyDevice())
	}
	if err == nil && d.Config.IgnoreRADefaultRoute && d.Unpublished != nil {
		err = fmt.Errorf("ignoreRADefaultRoute: %w", d.Unpublished)
	}
	d.refuse(byPolicy(err))
}

// byPolicy is the refusal for what the node policy forbids, nil without an error.
func byPolicy(err error) *Refusal {
	if err == nil {
		return nil
	}
	return &Refusal{
		Reason:  Forbidden,
		Message: err.Error(),
		Hint:    "the node's owner can allow it in " + policyPath,
	}
}

func nameOf(n *device.Netdev) string {
	if n == nil {
		return "it"
	}
	return n.Name
}
