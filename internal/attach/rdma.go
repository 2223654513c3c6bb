package attach

import (
	"fmt"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

const policyPath = policy.DefaultPath

// noSubsystem refuses what needs RDMA on a kernel without it, where no device is there to say so.
func (f *Facts) noSubsystem() *Refusal {
	want := f.Config.RDMA
	if f.RDMA || want == netconf.RDMANone || want == netconf.RDMAAuto && f.Config.Mode == netconf.ModeDevice {
		return nil // a plain netdev needs no RDMA
	}
	return &Refusal{
		Reason:  NoDevice,
		Message: "the kernel has no RDMA subsystem: module ib_core is not loaded",
		Hint:    "load it with: modprobe ib_core",
	}
}

// rdma decides whether the RDMA device goes along.
func (d *decider) rdma() {
	dev, want := d.Device, d.Config.RDMA
	if want == netconf.RDMANone {
		return
	}
	defer refuseRoCE(d)
	if dev.HCA == nil {
		if want == netconf.RDMAAuto {
			return
		}
		hint := "load its RDMA driver (mlx5_ib, mlx4_ib, irdma), or set \"rdma\": \"none\""
		if !d.RDMA {
			hint = "the kernel has no RDMA subsystem: load it with: modprobe ib_core"
		}
		d.refuse(&Refusal{
			Reason:  NoDevice,
			Message: fmt.Sprintf("device %s has no RDMA device on the host, and \"rdma\" is %q", dev.DeviceKey, want),
			Hint:    hint,
		})
		return
	}
	if r := JudgeMode(want, d.NetnsMode, d.RDMA, dev.HCA.Name); r != nil {
		d.refuse(r)
		return
	}
	d.decision.MoveRDMA = d.NetnsMode == device.NetnsExclusive
	d.decision.Namesake = d.Namesake
	d.rdmaName()
}

// JudgeMode refuses a configuration whose wish for the RDMA device does not fit the system's network namespace mode.
// present says whether the kernel has RDMA; without it there is no mode. hca names the RDMA device in the message.
func JudgeMode(want netconf.RDMAPolicy, mode device.NetnsMode, present bool, hca string) *Refusal {
	switch {
	case present && want == netconf.RDMAExclusive && mode == device.NetnsShared:
		return &Refusal{
			Reason:  RDMAMode,
			Message: "\"rdma\" is \"exclusive\", but the system's RDMA network namespace mode is shared",
			Hint: "set it with: rdma system set netns exclusive (before any network namespace exists; to survive a " +
				"reboot: options ib_core netns_mode=0 in /etc/modprobe.d of the node)",
		}
	case present && want == netconf.RDMAShared && mode == device.NetnsExclusive:
		return &Refusal{
			Reason: RDMAMode,
			Message: "\"rdma\" is \"shared\", but the system's RDMA network namespace mode is exclusive: the pod " +
				"could not use " + hca,
			Hint: "set \"rdma\": \"auto\", or the mode with: rdma system set netns shared",
		}
	}
	return nil
}

// JudgePort refuses a device whose port carries no traffic: the pod would fall back to TCP without notice.
func JudgePort(c *netconf.Config, h *device.HCA, n *device.Netdev) *Refusal {
	if h == nil || !NeedsPorts(c) || c.AllowDown {
		return nil
	}
	var down *device.Port
	for i := range h.Ports {
		p := &h.Ports[i]
		if p.CarriesTraffic(n != nil && !n.Up()) {
			return nil
		}
		down = p
	}
	if down == nil {
		return nil
	}
	return &Refusal{
		Reason: PortDown,
		Message: fmt.Sprintf("RDMA device %s port %d is not Active: state %s, physical state %s: %s",
			h.Name, down.Number, down.State, down.Phys, cause(h, down)),
		Hint: "\"allowDown\": true attaches it all the same",
		// An Ethernet link takes seconds to come up after the interface has returned from another pod.
		Awaited: h.Has(device.Ethernet) && n != nil && n.Up() && !n.Carrier,
	}
}

// NeedsPorts says whether a configuration depends on the ports of the RDMA device. An IPoIB child does in any case: it
// has no carrier without its port.
func NeedsPorts(c *netconf.Config) bool {
	return c.RDMA != netconf.RDMANone || c.Mode == netconf.ModeIPoIB
}

// cause is the usual reason for a port to be in this state.
func cause(h *device.HCA, p *device.Port) string {
	switch {
	case p.State == device.PortArmed:
		return "the subnet manager is bringing it up"
	case p.State == device.PortInit && h.NodeGUID.IsUnset():
		return "the device has no GUID, so no subnet manager configures it"
	case p.State == device.PortInit:
		return "no subnet manager has configured it: is one running in this fabric, and does it know the GUID " +
			h.NodeGUID.String() + "?"
	case p.Phys == device.PhysDisabled:
		return "it is disabled, by the administrator or by the VF's link state"
	case p.Phys == device.PhysPolling || p.Phys == device.PhysSleep:
		return "no peer answers: cable, switch port or transceiver"
	case p.Phys == device.PhysLinkUp:
		return "the link is up, the port is not: firmware or VF link state"
	}
	return "the link is not up"
}

// refuseIPoIBChildren refuses to move an IPoIB parent that has children: moving its RDMA device destroys them, in
// whatever pod. Children whose pods are gone are removed first.
func (d *decider) refuseIPoIBChildren() {
	if !d.Device.isIPoIB() {
		return
	}
	var users []string
	passing := true
	for i := range d.Children {
		c := &d.Children[i]
		switch {
		case c.Owner == nil:
			users = append(users, "host interface "+c.Netdev)
			passing = false
		case c.Owner.Unreadable == nil && !c.Owner.Alive:
			d.reclaim(c.Owner, "an IPoIB child of "+d.Device.Netdev.Name)
		default:
			users = append(users, c.Owner.who()+" ("+c.Owner.IfName+")")
		}
	}
	if len(users) == 0 {
		return
	}
	d.refuse(&Refusal{
		Reason: InUse,
		Message: fmt.Sprintf("%s has IPoIB children in use by %s, which would be destroyed",
			d.Device.Netdev.Name, strings.Join(users, ", ")),
		Hint:    "remove them first, or attach a child (\"mode\": \"ipoib\")",
		Passing: passing,
	})
}
