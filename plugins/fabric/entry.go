package fabric

import (
	"crypto/rand"
	"net"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/devinfo"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// newEntry is the journal's entry of what the decision is about to do.
func (c *call) newEntry(d *attach.Decision, ch *choice) *journal.Entry {
	e := &journal.Entry{
		Key: c.key, Network: c.cfg.Name, Created: time.Now().UTC(), BootID: c.bootID(),
		BootTime: int64(journal.Now()), Nonce: rand.Text(),
		NetnsPath: c.env.Netns, Netns: c.pod.NS.ID,
		Trace: c.Trace, IPAM: c.cfg.IPAM.Type, Conf: c.cfg.Raw, Args: c.env.Args, Path: c.env.Path,
	}
	for _, p := range d.OtherPorts {
		e.OtherPorts = append(e.OtherPorts, portName(c.key.IfName, p.Number))
	}
	if c.first != nil {
		e.Of = c.first.key.IfName
	}
	dev := d.Device
	switch c.cfg.Mode {
	case netconf.ModeIPoIB:
		e.Kind, e.DeviceKey, e.Address, e.PCI = journal.KindIPoIB, dev.DeviceKey, dev.Address, dev.PCI
		e.Child = &journal.Child{
			Parent: dev.Address, Master: dev.Netdev.Name, PKey: d.Child.PKey, Group: d.Child.Group,
		}
	case netconf.ModeRDMA:
		e.Kind, e.IPAM = journal.KindRDMA, "" // the addresses are the earlier plugin's
		if d.MoveRDMA {
			e.DeviceKey, e.Address, e.PCI, e.HCA = dev.DeviceKey, dev.Address, dev.PCI, dev.HCA
			e.MoveRDMA, e.RDMAName, e.Netdev = true, d.Config.RDMAName, d.Netdev()
		}
	default:
		e.Kind, e.DeviceKey, e.Address, e.PCI = journal.KindDevice, dev.DeviceKey, dev.Address, dev.PCI
		e.HCA, e.Netdev, e.MoveRDMA, e.RDMAName = dev.HCA, dev.Netdev, d.MoveRDMA, d.Config.RDMAName
		e.VF, e.VFs = recordVF(d.Attachment), d.VFs
		if d.Host != nil {
			e.Rules = d.Host.Rules
		}
	}
	e.FromClaim, e.Held = ch.fromClaim, c.claimed != nil
	c.names().recordOwnNames(e)
	e.DeviceInfo = c.deviceInfo(e)
	if e.Kind != journal.KindRDMA {
		e.MAC, e.Addresses = c.cfg.VF.MAC.String(), c.staticAddresses()
	}
	return e
}

// recordVF is the VF's part of a journal entry.
func recordVF(a *attach.Attachment) *journal.VF {
	if a.VF == nil {
		return nil
	}
	out := &journal.VF{Was: *a.VF, Set: a.Change.Set, Rebind: a.Change.Rebind}
	if guid := a.Config.VF.GUID; guid != nil {
		out.GUID = *guid
	}
	return out
}

// homeOf is where the device of an attachment belongs. ADD and DEL return it from the same values.
func homeOf(e *journal.Entry) plan.Home {
	h := plan.Home{
		Netdev: e.Netdev, VF: vfHome(e), Attached: attachedHCA(e), Elapsed: elapsed(e),
		Child: e.Kind == journal.KindIPoIB, VFs: e.VFs, Rules: e.Rules, PodIndex: e.PodIndex,
	}
	if e.MoveRDMA {
		h.HCA = e.HCA
	}
	if e.Kind == journal.KindRDMA {
		h.Side = plan.Pod // where the plugin that put the netdev there will look for it
	}
	return h
}

// vfHome is what a virtual function had before ADD; nil if nothing of it was to be changed, nor its driver bound.
func vfHome(e *journal.Entry) *plan.VFHome {
	if e.VF == nil || len(e.VF.Set) == 0 && !e.VF.Rebind {
		return nil
	}
	return &plan.VFHome{VF: &e.VF.Was, Set: e.VF.Set, Rebind: e.VF.Rebind, HCA: e.HCA, Netdev: e.Netdev != nil}
}

// attachedHCA is the RDMA device as it went into the pod, if its driver was bound again before; nil otherwise.
func attachedHCA(e *journal.Entry) *device.HCA {
	if e.VF == nil || !e.MoveRDMA {
		return nil
	}
	return e.VF.HCA
}

// childOf is what the child of an attachment is known by.
func childOf(e *journal.Entry, host bool) inventory.Child {
	hw, _ := net.ParseMAC(e.Child.HWAddr)
	return inventory.Child{
		Parent: e.Child.Parent, PKey: e.Child.PKey, Group: e.Child.Group, HWAddr: hw, Index: e.PodIndex, OnHost: host,
	}
}

func elapsed(e *journal.Entry) uint32 {
	return uint32(max(0, min(e.Age()/time.Second, 1<<31)))
}

// macInPod is the hardware address that an attachment's interface has in the pod: the one it was given, or its own.
func macInPod(e *journal.Entry) string {
	switch {
	case e.MAC != "" || e.Netdev == nil || e.Kind != journal.KindDevice:
		return e.MAC
	}
	return e.Netdev.HWAddr.String()
}

// selects says whether a selector means the device of an entry, as that was on the host.
func selects(s netconf.Selector, master string, e *journal.Entry) bool {
	n, h := e.Netdev, e.HCA
	switch s.Kind {
	case netconf.ByAddress:
		return s.Address == e.Address || s.Address.String() == e.DeviceKey ||
			e.PCI != "" && s.Address == device.OnPCI(e.PCI)
	case netconf.ByName:
		return n != nil && n.Named(s.Value)
	case netconf.ByRDMADevice:
		return h != nil && h.Name == s.Value
	case netconf.ByGUID:
		return h != nil && h.NodeGUID == s.GUID || n != nil && hasGUID(n, s.GUID)
	case netconf.ByHWAddr:
		return n != nil && (n.HWAddr.String() == s.HWAddr.String() || s.GUID != 0 && hasGUID(n, s.GUID))
	case netconf.ByNothing:
		return master != "" && n != nil && n.Named(master)
	}
	return false
}

func hasGUID(n *device.Netdev, g device.GUID) bool {
	have, ok := device.GUIDOf(n.HWAddr)
	return ok && have == g
}

// forget removes every trace of an attachment. The ownership goes first: an entry without a device touches none.
func (c *call) forget(e *journal.Entry) error {
	if err := c.clearOwner(e); err != nil {
		return err
	}
	return c.erase(e)
}

// erase removes what is on disk of an attachment that has no device any more.
func (c *call) erase(e *journal.Entry) error {
	c.undescribe(e)
	err := c.store.Remove(e.Key)
	if err == nil && e.Held {
		if err := (journal.Holds{Store: c.store}).Release(e); err != nil { // the agent tries again
			c.log.Warn("a network namespace stays", "reason", err)
		}
	}
	return err
}

// clearOwner gives up the device, or the child on it.
func (s *session) clearOwner(e *journal.Entry) error {
	switch {
	case e.Kind == journal.KindIPoIB:
		return s.store.RemoveChild(e.DeviceKey, e.Key)
	case e.DeviceKey != "":
		return s.store.ClearOwner(e.DeviceKey, e.Key)
	}
	return nil
}

// describe writes the device information file that the runtime asks for. The attachment works without.
func (a *attachment) describe() {
	e := a.entry
	if e.DeviceInfo == "" {
		return
	}
	d := devinfo.PCI{Address: e.PCI}
	if e.VF != nil {
		d.PF = e.VF.Was.PF.Name
	}
	if d.RDMA = rdmaIn(e); d.RDMA == "" && e.HCA != nil {
		d.RDMA = e.HCA.Name
	}
	var err error
	if r := a.chosen.replaced; r == nil {
		err = devinfo.Save(e.DeviceInfo, d, writer(e.Key))
	} else {
		err = devinfo.SaveOther(e.DeviceInfo, d, writer(e.Key), r.pci, r.plugin)
	}
	if err != nil {
		a.log.Warn("device information was not written", "reason", err)
	}
}

// deviceInfo is the device information file that ADD writes; empty for none.
func (c *call) deviceInfo(e *journal.Entry) string {
	if e.Kind == journal.KindIPoIB || e.PCI == "" {
		return ""
	}
	return c.cfg.DeviceInfo
}

// writer is what device information files of an attachment say about their origin. DEL removes only a file with this
// writer: the path is the configuration's, these names are the runtime's.
func writer(k journal.Key) string { return "fabric " + k.String() }

// undescribe removes the file of an attachment. It is the runtime's to do, too: what it finds gone is no error there.
// An entry of an older version does not have the path, which the configuration has, and its file names no writer.
func (c *call) undescribe(e *journal.Entry) {
	file, about := e.DeviceInfo, ""
	if file == "" && e.Key == c.key {
		file, about = c.cfg.DeviceInfo, e.PCI
	}
	if file == "" {
		return
	}
	if err := devinfo.Remove(file, writer(e.Key), about); err != nil {
		c.log.Warn("device information was not removed", "reason", err)
	}
}
