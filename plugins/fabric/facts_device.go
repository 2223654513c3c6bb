package fabric

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// inspector reads what there is to know about the device that was found.
type inspector struct {
	c     *call
	facts *attach.Facts
	dev   *inventory.Device
}

// inspect reads what there is to know about the device that was found.
func (g *gatherer) inspect() error {
	if g.dev == nil {
		return nil
	}
	k, ok, err := g.store.Owner(g.dev.DeviceKey())
	if err != nil {
		return err
	}
	if ok {
		g.facts.Owner = g.ownerByKey(k, g.dev.DeviceKey())
	}
	in := &inspector{g.call, g.facts, g.dev}
	if err := in.ports(); err != nil {
		return err
	}
	if err := in.partitions(); err != nil {
		return err
	}
	if g.cfg.Mode == netconf.ModeIPoIB {
		return errors.Join(in.duplicates(), g.preparedForPods())
	}
	for _, read := range []func() error{
		in.snapshot, in.virtualFunction, g.preparedForPods, in.children, in.others, in.rdmaNames, in.uplink, in.soft,
		in.users, in.strays, in.elsewhere, in.rules,
	} {
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

// ports reads the ports' states, and what a pod can change of them.
func (in *inspector) ports() error {
	if in.dev.HCA == nil {
		return nil
	}
	in.c.host.RDMA.AutoCounters(in.dev.HCA)
	if err := in.connections(); err != nil {
		return err
	}
	if !attach.NeedsPorts(in.c.cfg) {
		return nil
	}
	return in.c.host.RDMA.Ports(in.dev.HCA)
}

// snapshot completes the netdev: its addresses and routes, which the policy looks at and a move loses.
func (in *inspector) snapshot() error {
	n := in.dev.Netdev
	switch {
	case n == nil:
		return nil
	case in.facts.Chained.Side == plan.Host:
		return in.c.host.Snapshot(n)
	case n.IsIPoIB():
		return in.c.pod.Snapshot(n)
	}
	return nil
}

// virtualFunction reads the device as a VF, or as a PF that may have some.
func (in *inspector) virtualFunction() error {
	vf, err := in.c.host.VF(in.dev)
	if err != nil {
		return err
	}
	if vf == nil {
		return in.functions()
	}
	in.facts.PF = &vf.PF
	if in.facts.PFOwner, err = in.ownerOfFunction(vf.PF); err != nil || in.c.cfg.Mode != netconf.ModeDevice {
		return err
	}
	if in.dev.Netdev != nil {
		vf.IB = in.dev.Netdev.IsIPoIB()
	}
	in.facts.VF = vf
	if in.c.pod != nil && in.facts.Policy != nil && in.facts.Policy.Rebinds() {
		tenant, noted, err := in.c.store.Tenant(in.dev.DeviceKey())
		if err != nil {
			return err
		}
		in.facts.OtherTenant = noted && tenant != in.c.cfg.Pod.Namespace
		vf.FLR = in.facts.OtherTenant && in.facts.Policy.Resets() && in.c.host.FLR(in.dev.PCI)
	}
	return nil
}

// guid looks who has the GUID that a VF is to get.
func (g *gatherer) guid() (err error) {
	guid, vf := g.cfg.VF.GUID, g.facts.VF
	if guid == nil || vf == nil || vf.PFName == "" {
		return nil
	}
	in := &inspector{g.call, g.facts, g.dev}
	g.facts.GUIDHolder, err = in.guidHolder(*guid, vf)
	return err
}

// functions reads which attachments have VFs of the device, if it is a PF, and what it has set for each.
func (in *inspector) functions() error {
	vfs, err := in.c.host.Functions(in.dev.Address)
	if err != nil {
		return err
	}
	for _, vf := range vfs {
		o, err := in.ownerOfFunction(vf)
		if err != nil {
			return err
		}
		if o != nil {
			in.facts.VFOwners = append(in.facts.VFOwners, attach.VFOwner{VF: vf.Name, Owner: *o})
		}
	}
	if n := in.dev.Netdev; len(vfs) > 0 && n != nil && in.facts.Chained.Side == plan.Host {
		in.facts.VFs, err = in.c.host.Link.VFs(n.Index)
	}
	return err
}

// ownerOfFunction is the attachment that has a PCI function; nil for none.
func (in *inspector) ownerOfFunction(a device.Address) (*attach.Owner, error) {
	k, ok, err := in.c.store.Owner(a.String())
	if err != nil || !ok {
		return nil, err
	}
	o := in.c.ownerByKey(k, a.String())
	if o == nil { // owned, and no entry says by what: only its DEL knows
		o = &attach.Owner{
			ContainerID: k.ContainerID, IfName: k.IfName, Who: k.Who(), DeviceKey: a.String(), Alive: true,
		}
	}
	return o, nil
}

// guidHolder looks who has a GUID that a VF is to get, on the host and in pods. A device that moves from one to the
// other meanwhile is in the journal before it leaves the host and until it is home, so that one of the looks finds it.
func (in *inspector) guidHolder(guid device.GUID, vf *device.VF) (string, error) {
	holder, err := in.guidInPod(guid)
	if holder == "" && err == nil {
		holder, err = in.c.host.GUIDHolder(guid, in.dev.Address, vf)
	}
	if holder == "" && err == nil {
		holder, err = in.guidInPod(guid)
	}
	return holder, err
}

// guidInPod looks for a GUID among the attachments, those included whose ADD is not done: their devices are in pods,
// where the host does not see them, or about to be given the GUID.
func (in *inspector) guidInPod(guid device.GUID) (string, error) {
	entries, err := in.c.store.List()
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return "", err
	}
	for _, e := range entries {
		if e.Key == in.c.key {
			continue
		}
		had := e.VF != nil && e.VF.GUID == guid ||
			e.HCA != nil && e.MoveRDMA && (e.VF == nil || e.VF.GUID == 0) && e.HCA.NodeGUID == guid
		if !had || !in.c.alive(e) {
			continue
		}
		owner, ok, err := in.c.store.Owner(e.DeviceKey)
		if err != nil {
			return "", err
		}
		if ok && owner == e.Key { // else its device is home, and only its addresses are not free yet
			return e.Who() + " (" + e.IfName + ", device " + e.DeviceKey + ")", nil
		}
	}
	return "", nil
}

// partitions reads which PKeys the port has.
func (in *inspector) partitions() (err error) {
	n, pkey := in.dev.Netdev, in.c.cfg.PKey
	if in.dev.HCA == nil || !attach.NeedsPartition(in.c.cfg) || n != nil && n.IPoIB != nil && pkey == n.IPoIB.PKey {
		return nil
	}
	in.facts.PKeys, in.facts.PKeysKnown, err = partitionsOf(in.c, in.dev.HCA)
	return err
}

// partitionsOf reads which PKeys port 1 of an RDMA device has. In a pod of an exclusive system sysfs does not show it:
// the kernel's own check has to do.
func partitionsOf(c *call, h *device.HCA) (held []device.PKey, known bool, err error) {
	if h == nil || !h.Has(device.InfiniBand) {
		return nil, false, nil
	}
	held, err = c.host.PKeys(h.Name, 1, c.cfg.PKey)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return held, err == nil, err
}

// children reads which IPoIB children the netdev has: those that the journal knows, and the host's own. A child whose
// pod is gone may have come to the host: it is its owner's all the same.
func (in *inspector) children() error {
	n := in.dev.Netdev
	if n == nil || !n.IsIPoIB() {
		return nil
	}
	keys, err := in.c.store.Children(in.dev.DeviceKey())
	if err != nil {
		return err
	}
	dead := map[uint32]bool{}
	for _, k := range keys {
		o := in.c.ownerByKey(k, in.dev.DeviceKey())
		if o == nil {
			o = &attach.Owner{ContainerID: k.ContainerID, IfName: k.IfName, Who: k.Who(), Alive: true}
		}
		dead[childGroup(k)] = o.Unreadable == nil && !o.Alive
		in.facts.Children = append(in.facts.Children, attach.Child{Owner: o})
	}
	list, err := in.c.host.ChildrenOf(n)
	for _, n := range list {
		if !dead[n.Group] {
			in.facts.Children = append(in.facts.Children, attach.Child{Netdev: n.Name})
		}
	}
	return err
}

// others reads who else has what the attachment would take.
func (in *inspector) others() error { return errors.Join(in.siblings(), in.duplicates()) }

// duplicates looks for others on this node that have the MAC address or the addresses that the configuration gives. It
// reads nothing for a configuration that leaves both to the device and to an IPAM plugin with a memory.
func (in *inspector) duplicates() error {
	in.facts.MACHolder, in.facts.AddrHolder = nil, nil
	mac := in.c.cfg.VF.MAC
	var err error
	in.facts.MACHolder, in.facts.AddrHolder, err = in.c.duplicatesInPods(mac.String(), in.c.staticAddresses())
	if err == nil && mac != nil && in.facts.MACHolder == nil {
		in.facts.MACHolder, err = in.macOnHost(mac)
	}
	return err
}

// macOnHost looks for a hardware address among the interfaces of the host, and among what the PF of this VF has for its
// other VFs.
func (in *inspector) macOnHost(mac net.HardwareAddr) (*attach.Duplicate, error) {
	all, err := in.c.host.Link.List("")
	if err != nil {
		return nil, err
	}
	for _, n := range all {
		own := in.dev.Netdev != nil && n.Index == in.dev.Netdev.Index
		if !own && bytes.Equal(n.HWAddr, mac) {
			return &attach.Duplicate{Value: mac.String(), By: "interface " + n.Name + " of the host"}, nil
		}
	}
	vf := in.facts.VF
	if vf == nil || vf.PFName == "" {
		return nil, nil
	}
	pf, err := in.c.host.PF(vf)
	if err != nil {
		return nil, err
	}
	vfs, err := in.c.host.Link.VFs(pf.Index)
	for i, a := range vfs {
		if i != vf.Index && bytes.Equal(a.MAC, mac) {
			return &attach.Duplicate{Value: mac.String(), By: "VF " + strconv.Itoa(i) + " of " + pf.Name}, nil
		}
	}
	return nil, err
}

// duplicatesInPods looks for the attachments of this node that have a hardware address, or one of some addresses in the
// network of this configuration.
func (c *call) duplicatesInPods(mac string, addrs []netip.Prefix) (ofMAC, ofAddr *attach.Duplicate, err error) {
	if mac == "" && len(addrs) == 0 {
		return nil, nil, nil
	}
	entries, err := c.store.List()
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, nil, err
	}
	for _, e := range entries {
		if e.Key == c.key {
			continue
		}
		if mac != "" && macInPod(e) == mac && c.alive(e) {
			ofMAC = duplicateOf(e, mac)
		}
		same := func(p netip.Prefix) bool {
			return slices.ContainsFunc(addrs, func(a netip.Prefix) bool { return a.Addr() == p.Addr() })
		}
		if i := slices.IndexFunc(e.Addresses, same); i >= 0 && e.Network == c.cfg.Name && c.alive(e) {
			ofAddr = duplicateOf(e, e.Addresses[i].Addr().String())
		}
	}
	return ofMAC, ofAddr, nil
}

func duplicateOf(e *journal.Entry, value string) *attach.Duplicate {
	by := e.Who() + " (" + e.IfName + ", network " + e.Network + ", device " + e.DeviceKey + ")"
	return &attach.Duplicate{Value: value, By: by, Pod: true}
}

// staticAddresses are the addresses that the configuration itself gives. Other IPAM plugins have a memory of their own.
// What is wrong with the section is for the IPAM plugin to say.
func (c *call) staticAddresses() []netip.Prefix {
	if c.cfg.IPAM.Type != "static" {
		return nil
	}
	if c.static.of == c.cfg {
		return c.static.addrs
	}
	c.static.of, c.static.addrs = c.cfg, nil
	if r, known, err := c.delegate().Predict(); err == nil && known {
		for _, a := range r.Addresses {
			c.static.addrs = append(c.static.addrs, a.Prefix)
		}
	}
	return c.static.addrs
}

// rdmaNames reads what a new name of the RDMA device depends on, if the configuration asks for one: how far names reach
// on this kernel, and then either the names in the pod or who on the node has had the name.
func (in *inspector) rdmaNames() error {
	want, f := in.c.cfg.RDMAName, in.facts
	if want == "" || in.dev.HCA == nil || f.NetnsMode != device.NetnsExclusive {
		return nil
	}
	f.RDMANamesPerNetns = in.c.host.RDMA.PerNetns(in.dev.HCA)
	switch {
	case !f.RDMANamesPerNetns && want != netconf.RDMANameAuto:
		return in.nameHolder(want)
	case f.RDMANamesPerNetns && want == netconf.RDMANameAuto && in.c.pod != nil && in.c.pod.RDMA != nil:
		return in.namesInPod()
	}
	return nil
}

// namesInPod asks more than once: a dump may skip a device while another one moves. See kernel fact 7 in
// docs/kernel.md.
func (in *inspector) namesInPod() error {
	for range 3 {
		list, err := in.c.pod.RDMA.List()
		if err != nil {
			return err
		}
		for _, h := range list {
			in.facts.RDMANamesInPod = append(in.facts.RDMANamesInPod, h.Name)
		}
	}
	return nil
}

// nameHolder looks through the journal for another device whose own name this is: it needs it when it returns.
func (in *inspector) nameHolder(name string) error {
	deviceKey := in.dev.DeviceKey()
	entries, err := in.c.store.List()
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return err
	}
	for _, e := range entries {
		if e.MoveRDMA && e.DeviceKey != deviceKey && e.HCA != nil && e.HCA.Name == name {
			in.facts.RDMANameHolder = fmt.Sprintf("device %s, which %s has as %s",
				e.DeviceKey, e.Who(), e.IfName)
			return nil
		}
	}
	pending := in.c.store.PendingNames(journal.RDMA)
	devices, err := pending.Devices()
	if err != nil {
		return err
	}
	for _, d := range devices {
		want, err := pending.Get(d)
		if err != nil {
			return err
		}
		if d != deviceKey && want == name {
			in.facts.RDMANameHolder = fmt.Sprintf("device %s, which gets it back as soon as it is free", d)
			return nil
		}
	}
	return nil
}

// uplink reads what sits on the netdev, and whether the host needs any of it for itself.
func (in *inspector) uplink() error {
	n := in.dev.Netdev
	if n == nil || in.facts.Chained.Side != plan.Host {
		return nil
	}
	err := in.uppers()
	if err == nil {
		in.facts.Device.Uplink, err = in.c.host.Uplink(n, in.facts.Uppers)
	}
	return err
}

// rules reads the host's routing rules that go along with its addresses.
func (in *inspector) rules() (err error) {
	if in.c.cfg.HostAddresses {
		in.facts.HostRules, err = in.c.host.Link.SourceRules()
	}
	return err
}

// uppers reads what sits on a netdev of the host that is to be moved: it stays, and loses its way out.
func (in *inspector) uppers() (err error) {
	n := in.dev.Netdev
	if n == nil || in.c.cfg.Mode == netconf.ModeIPoIB || in.facts.Chained.Side != plan.Host {
		return nil
	}
	in.facts.Uppers, err = in.c.host.Uppers(n)
	return err
}

// soft reads which soft RDMA devices are on a netdev of the host that is to be moved.
func (in *inspector) soft() (err error) {
	n := in.dev.Netdev
	if n == nil || in.c.cfg.Mode != netconf.ModeDevice || in.facts.Chained.Side != plan.Host {
		return nil
	}
	in.facts.SoftRDMA, err = in.c.host.SoftOn(n)
	return err
}

// users reads what on the host uses an RDMA device that is to be moved.
func (in *inspector) users() (err error) {
	if in.facts.MayMoveRDMA() && !in.facts.AllowsHostUse() {
		in.facts.Users, err = in.c.host.Users(in.dev.HCA, in.c.Proc)
	}
	return err
}

// strays reads what of other network namespaces sits on a netdev of the host that is to be moved: it would go on taking
// the frames of the pod that has the netdev. An IPoIB netdev is left out: with its RDMA device all that sits on it
// ends.
func (in *inspector) strays() error {
	n := in.dev.Netdev
	if n == nil || n.IsIPoIB() || in.c.cfg.Mode != netconf.ModeDevice || in.facts.Chained.Side != plan.Host {
		return nil
	}
	return in.c.eachStray(n.Index, func(ns *netns.NS, _ *link.Conn, u *device.Netdev) error {
		in.facts.Strays = append(in.facts.Strays, attach.Place{Interface: u.Kind + " " + u.Name, Netns: ns.Path})
		return nil
	})
}

// eachStray calls f with each netdev of another network namespace that is made on a netdev of the host, as far as
// netns.Each finds that namespace. One that can't be looked at tells nothing. The peer of a veth is no such netdev.
func (s *session) eachStray(index int, f func(*netns.NS, *link.Conn, *device.Netdev) error) error {
	var errs []error
	err := netns.Each(s.Proc, func(ns *netns.NS) bool {
		if ns.ID == s.host.NS.ID {
			return false
		}
		_ = ns.Do(func() error {
			l, err := link.Dial()
			if err != nil {
				return err
			}
			errs = append(errs, straysIn(l, s.host.NS.FD(), index, func(u *device.Netdev) error { return f(ns, l, u) }))
			return l.Close()
		})
		return false
	})
	if err != nil {
		s.log.Warn("not every network namespace was searched for interfaces on the device", "reason", err)
	}
	return errors.Join(errs...)
}

// straysIn calls f with each netdev of a namespace that is made on a netdev of the host. The list comes first: the
// kernel gives the host its number in the namespace when it shows the first of them.
func straysIn(l *link.Conn, host, index int, f func(*device.Netdev) error) error {
	all, err := l.List("")
	if err != nil {
		return nil //nolint:nilerr // the namespace ends just now
	}
	id := -1
	var errs []error
	for i := range all {
		u := &all[i]
		if u.ParentIn == nil || u.Parent != index || u.Kind == "veth" || u.Kind == "netkit" || u.Kind == "vxcan" {
			continue
		}
		if id < 0 {
			if id, err = l.NSID(host); err != nil {
				return nil //nolint:nilerr // the namespace ends just now
			}
		}
		if *u.ParentIn == id {
			errs = append(errs, f(u))
		}
	}
	return errors.Join(errs...)
}

// elsewhere looks for the interface of an HCA that has none on the host, and that no attachment has. This is not the
// usual path: every network namespace is looked at, within bounds.
func (in *inspector) elsewhere() error {
	d, kind := in.dev, ""
	if d.Netdev != nil || d.HCA == nil || in.c.cfg.Mode == netconf.ModeIPoIB || in.facts.Owner != nil {
		return nil
	}
	if d.HCA.Has(device.InfiniBand) {
		_, err := os.Stat("/sys/module/ib_ipoib")
		in.facts.IPoIBLoaded = err == nil
		kind = "ipoib"
	}
	if !in.facts.IPoIBLoaded && !d.HCA.Has(device.Ethernet) { // then no HCA has one
		return nil
	}
	here := false
	err := netns.Each(in.c.Proc, func(ns *netns.NS) bool {
		if ns.ID == in.c.host.NS.ID {
			return false
		}
		_ = ns.Do(func() error { // one that can't be looked at tells nothing
			c, err := link.Dial()
			if err != nil {
				return err
			}
			list, err := c.List(kind)
			for i := range list {
				if n := &list[i]; n.Parent == 0 && n.Address == d.Address {
					in.facts.Elsewhere = &attach.Place{Interface: n.Name, Netns: ns.Path}
				}
			}
			_ = c.Close()
			return err
		})
		here = in.facts.Elsewhere != nil && in.c.pod != nil && ns.ID == in.c.pod.NS.ID
		return in.facts.Elsewhere != nil
	})
	if errors.Is(err, netns.ErrTooMany) { // what others have left is no reason to refuse every pod
		in.c.log.Warn("the HCA's interface may be in another network namespace", "device", d.Address.String(),
			"reason", err)
		err = nil
	}
	if d.HCA.Has(device.Ethernet) {
		in.facts.StrayNetdev = in.c.host.StrayNetdev(d.HCA)
		if here { // an earlier plugin of the chain has put it there, and the RDMA device follows: nothing is torn
			in.facts.Elsewhere, in.facts.StrayNetdev = nil, false
		}
	}
	return err
}
