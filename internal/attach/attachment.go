package attach

import (
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// Attachment is what has to be done to attach a device. It is carried out in four parts, Prepare, Attach, Configure
// and Address, because each part depends on what the kernel has made of the one before; Steps predicts them all.
type Attachment struct {
	Device   *Device
	IfName   string
	Config   *netconf.Config
	MoveRDMA bool // the RDMA device goes along
	Namesake bool // a device in a pod has the name that it has on the host

	PF        *device.Address  // of this VF; nil: no VF
	VFs       []device.VFAttrs // what this PF has set for each of its VFs: the pod could change it
	VF        *device.VF       // nil: none whose settings can be changed
	Change    plan.VFChange    // of the VF's settings
	AwaitPort bool             // the port comes up, or not, only with the new GUID or link state

	Child *plan.CreateChild // mode ipoib: the child to be created
	Host  *plan.OnHost      // what goes along of the addressing on the host; nil: the IPAM plugin has the addresses
}

// newChild is an IPoIB child as the configuration wants it, and otherwise as its parent is.
func newChild(f *Facts, pkey device.PKey) *Attachment {
	parent := f.Device.Netdev
	c := &plan.CreateChild{Master: *parent, Name: f.IfName, PKey: pkey, Group: f.ChildGroup}
	mode := parent.IPoIB.Mode
	switch f.Config.IPoIBMode {
	case "connected":
		mode = device.ModeConnected
	case "datagram":
		mode = device.ModeDatagram
	}
	if mode != device.ModeDatagram { // the kernel's default; drivers with an IPoIB of their own reject any mode
		c.Mode = &mode
	}
	if f.Config.Umcast != nil {
		var on uint16
		if *f.Config.Umcast {
			on = 1
		}
		c.Umcast = &on
	}
	cfg := *f.Config
	if cfg.MTU == 0 {
		cfg.MTU = parent.MTU
	}
	return &Attachment{Device: f.Device, IfName: f.IfName, Config: &cfg, Child: c}
}

// HCA is the RDMA device that goes into the pod, nil for none.
func (a *Attachment) HCA() *device.HCA {
	if !a.MoveRDMA {
		return nil
	}
	return a.Device.HCA
}

// Netdev is the netdev that goes into the pod, or in mode rdma the one that the move of the RDMA device destroys there;
// nil for none.
func (a *Attachment) Netdev() *device.Netdev {
	if a.Child != nil || a.chained() && !a.Device.isIPoIB() {
		return nil
	}
	return a.Device.Netdev
}

func (a *Attachment) chained() bool { return a.Config.Mode == netconf.ModeRDMA }

// recreated says whether the netdev in the pod is a new one: a child, or an IPoIB netdev whose RDMA device has moved or
// whose driver was bound again.
func (a *Attachment) recreated() bool {
	return a.Child != nil || (a.MoveRDMA || a.Change.Rebind) && a.Netdev() != nil && a.Netdev().IsIPoIB()
}

// Prepare returns the steps on the host, before anything moves: the settings of a VF.
func (a *Attachment) Prepare() []plan.Step { return a.Change.Steps }

// Attach returns the steps that bring the device into the pod. hca is the RDMA device as it is after Prepare, which may
// have made a new one; nil for none.
func (a *Attachment) Attach(hca *device.HCA) []plan.Step {
	cfg, hca := a.withRoCE(hca)
	switch {
	case a.Child != nil:
		return []plan.Step{*a.Child}
	case a.chained() && hca == nil:
		return nil // in shared mode the pod sees it already
	case a.chained() && a.Netdev() != nil:
		return plan.Attach(cfg, a.Netdev().Name, hca, a.Netdev())
	}
	return plan.Attach(cfg, a.IfName, hca, a.Netdev())
}

// withRoCE is hca with the connection manager's defaults and the traffic class that its RoCE ports had on the host,
// and the configuration to attach it by. A device that Prepare has made anew has no traffic class: if the configuration
// asks for none, it asks for the host's.
func (a *Attachment) withRoCE(hca *device.HCA) (*netconf.Config, *device.HCA) {
	cfg := a.Config
	if hca == nil || a.Device.HCA == nil {
		return cfg, hca
	}
	out := *hca
	out.Ports = slices.Clone(hca.Ports)
	for i := range out.Ports[:min(len(out.Ports), len(a.Device.HCA.Ports))] {
		was, now := &a.Device.HCA.Ports[i], &out.Ports[i]
		now.CM, now.TrafficClass = was.CM, was.TrafficClass
		if !a.Change.Rebind || was.TrafficClass == nil {
			continue
		}
		now.TrafficClass = new(-1)
		if cfg.Class == nil && *was.TrafficClass >= 0 {
			with := *cfg
			with.Class = new(uint8(*was.TrafficClass))
			cfg = &with
		}
	}
	return cfg, &out
}

// Configure returns the steps that give the netdev in the pod (have) its settings.
func (a *Attachment) Configure(have *device.Netdev) []plan.Step {
	switch {
	case a.chained() && (a.Netdev() == nil || !a.MoveRDMA):
		return nil
	case a.chained():
		return plan.Restore(plan.Pod, a.Netdev(), a.known(have), 0)
	}
	return plan.Configure(a.Config, a.Netdev(), a.known(have), a.VF, a.Host)
}

// known is the netdev in the pod without what can't be known before: that is set in any case, so that the same
// attachment has the same steps each time. The MTU of a new IPoIB netdev is that of its port until it has joined the
// broadcast group, and then that group's (drivers/infiniband/ulp/ipoib/ipoib_multicast.c); its queue length is a
// parameter of the module. The IPv4 settings of a netdev that comes into a namespace are that namespace's defaults.
func (a *Attachment) known(have *device.Netdev) *device.Netdev {
	n := *have
	if a.recreated() {
		n.MTU = 0
		if a.Child == nil {
			n.TxQueue = -1
		}
	}
	if a.Config.SourceBased {
		n.IPv4Conf = nil
	}
	return &n
}

// Address returns the steps that give the netdev in the pod (have) the addresses and routes of the IPAM plugin, or
// those of the host.
func (a *Attachment) Address(ips *plan.Addressing, have *device.Netdev) []plan.Step {
	if a.Host != nil {
		ips = &a.Host.Addressing
	}
	return plan.Address(a.Config, ips, have)
}

// Steps predicts everything that an ADD does. ips are the addresses that the IPAM plugin would give, nil if they are
// not known. noIPv6 says that IPv6 is off by default in the pod.
func (a *Attachment) Steps(ips *plan.Addressing, noIPv6 bool) []plan.Step {
	steps := slices.Concat(a.Prepare(), a.Attach(a.HCA()))
	if a.Netdev() == nil && a.Child == nil {
		return steps
	}
	have := a.predict(noIPv6)
	steps = append(steps, a.Configure(have)...)
	if (ips != nil || a.Host != nil) && !a.chained() {
		steps = append(steps, a.Address(ips, have)...)
	}
	return steps
}

// predict is the netdev in the pod as Attach leaves it.
func (a *Attachment) predict(noIPv6 bool) *device.Netdev {
	var n *device.Netdev
	if a.Child != nil {
		parent := &a.Child.Master
		n = &device.Netdev{
			Index: parent.Index, Name: a.IfName, Kind: parent.Kind, ARPType: parent.ARPType, Flags: device.FlagUp,
			IPoIB: &device.IPoIB{PKey: a.Child.PKey}, IPv6Conf: parent.IPv6Conf,
		}
	} else {
		n = plan.After(a.where(), slices.Concat(a.Prepare(), a.Attach(a.HCA()))).Netdev
	}
	const disableIPv6 = 26 // DEVCONF_DISABLE_IPV6 (include/uapi/linux/ipv6.h)
	if len(n.IPv6Conf) > disableIPv6 {
		n.IPv6Conf = slices.Clone(n.IPv6Conf)
		n.IPv6Conf[disableIPv6] = 0
		if noIPv6 {
			n.IPv6Conf[disableIPv6] = 1
		}
	}
	return n
}

// where is where the device is before the ADD.
func (a *Attachment) where() plan.Where {
	w := plan.Where{HCA: a.HCA(), Netdev: a.Netdev(), NetdevSide: a.Device.Side}
	if a.VF != nil {
		w.VF = &plan.VFNow{
			VFAttrs: a.VF.VFAttrs, Faces: true, Driver: a.VF.Driver, HCA: a.Device.HCA, Netdev: a.Device.Netdev != nil,
		}
	}
	return w
}

// Return predicts what the DEL after an ADD with these steps does. home is what the journal would have of it.
func (a *Attachment) Return(steps []plan.Step, home plan.Home) []plan.Step {
	w := plan.After(a.where(), steps)
	if a.Child != nil {
		w.Netdev, w.NetdevSide = a.predict(false), plan.Pod
	}
	return plan.Preview(w, home)
}
