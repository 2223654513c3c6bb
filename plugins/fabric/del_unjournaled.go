package fabric

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// unjournaled is DEL without a readable entry: it came twice, the ADD never changed anything, the host has been
// rebooted, or the journal is lost or damaged. What is found in the pod, and is no other attachment's, returns to the
// host; IPAM gets its DEL in any case.
type unjournaled struct {
	*call
	damaged bool           // there is an entry, which can't be read
	owned   []string       // devices that the journal says are this attachment's
	parents []string       // devices on which it has a child, likewise
	address device.Address // of the owned device; zero for none, or for a virtual one
}

func newUnjournaled(c *call, damaged bool) *unjournaled {
	return &unjournaled{call: c, damaged: damaged}
}

func (u *unjournaled) run() error {
	var err error
	if u.owned, u.parents, err = u.store.DevicesOf(u.key); err != nil {
		return err
	}
	if len(u.owned) > 0 {
		if a, err := device.ParseAddress(u.owned[0]); err == nil {
			u.address = a
		}
	}
	gone := u.env.Netns == ""
	if !gone {
		if u.pod == nil { // ADD has opened it
			err = u.openPod()
		}
		gone = errors.Is(err, fs.ErrNotExist)
	}
	switch {
	case gone:
		err = u.restoreReturned()
	case err == nil:
		err = u.bringFound()
	}
	if err := errors.Join(err, u.freeAddresses()); err != nil {
		return err
	}
	for _, parent := range u.parents {
		if err := u.store.RemoveChild(parent, u.key); err != nil {
			return err
		}
	}
	for _, deviceKey := range u.owned {
		if err := u.store.ClearOwner(deviceKey, u.key); err != nil {
			return err
		}
	}
	u.undescribe(&journal.Entry{Key: u.key})
	if !u.damaged { // no entry is removed that was not seen
		return u.store.Sweep(u.key)
	}
	return u.store.Remove(u.key)
}

// freeAddresses gives addresses back. Without an entry the tries can't be counted: a plugin that an ADD has started and
// that goes on is waited for, but does not keep DEL from its end. Nor does a configuration with which no ADD can have
// reserved anything, nor what a plugin says for a pod that is there and has nothing on file: an ADD that may have
// reserved something has left its entry. After a reboot the entries are gone, and so are the pods.
func (u *unjournaled) freeAddresses() error {
	d := u.delegate()
	if err := d.Usable("DEL"); err != nil {
		u.log.Warn("no address can have been reserved with this configuration", "reason", err)
		return nil
	}
	err := u.callIPAMDel(u.key, d)
	switch {
	case errors.Is(err, journal.ErrBusy):
		u.log.Warn("the IPAM plugin of an ADD still runs", "reason", err)
		return d.Del(context.Background())
	case err != nil && u.pod != nil && !u.damaged && len(u.owned) == 0 && len(u.parents) == 0:
		u.log.Warn("the IPAM plugin of an ADD that took nothing has failed", "reason", err)
		return nil
	}
	return err
}

// bringFound looks into the pod for the interface of this attachment.
func (u *unjournaled) bringFound() error {
	n, err := u.pod.Link.ByName(u.key.IfName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if ours, err := u.ownsInterface(n); err != nil || !ours {
		return err
	}
	ctx, cancel := bounded(homeWait)
	defer cancel()
	runner := u.runner(u.pod)
	r := &runner
	r.Track(nil, n)
	if u.isChild(n) {
		w := plan.Where{Netdev: n, NetdevSide: plan.Pod}
		if w.Rules, err = u.pod.Link.Rules(); err != nil {
			return err
		}
		return r.Run(ctx, plan.Preview(w, plan.Home{Child: true}))
	}
	u.log.Warn("no journal entry: returning what is in the pod", "device", n.Address.String())
	home := plan.Home{Netdev: likelySnapshot(n)}
	if u.cfg.RDMA != netconf.RDMANone {
		if home.HCA, err = u.podHCA(n.Address); err != nil {
			return err
		}
	}
	return r.Return(ctx, home, apply.Events{
		Gone: func() bool { return !u.host.Present(n.Address) }, Removed: u.removedUppers,
	})
}

// restoreReturned is for a pod that is gone: the kernel has put on the host what was in it, a netdev under its name in
// the pod, a child of no use. Without a device there is nothing to wait for.
func (u *unjournaled) restoreReturned() error {
	ctx, cancel := bounded(homeWait)
	defer cancel()
	for {
		n, err := u.findReturned()
		if err != nil {
			return err
		}
		runner := u.runner(nil)
		r := &runner
		switch {
		case n != nil && n.IsIPoIBChild():
			r.Track(nil, n)
			w := plan.Where{Netdev: n, NetdevSide: plan.Host, PodGone: true}
			return r.Run(ctx, plan.Preview(w, plan.Home{Child: true}))
		case n != nil && n.Name == u.key.IfName && len(n.AltNames) > 0:
			return r.Return(ctx, plan.Home{Netdev: likelySnapshot(n)}, apply.Events{})
		case n != nil, len(u.owned) == 0 && len(u.parents) == 0:
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// findReturned finds what this attachment had, on the host: a child by its group, a device by its key. nil: not (yet)
// there.
func (u *unjournaled) findReturned() (*device.Netdev, error) {
	if u.cfg.Mode == netconf.ModeIPoIB {
		list, err := u.host.Link.List("ipoib")
		for i := range list {
			if list[i].IsIPoIBChild() && list[i].Group == childGroup(u.key) {
				return &list[i], nil
			}
		}
		return nil, err
	}
	if u.address.IsZero() {
		return nil, nil
	}
	d, err := u.host.At(u.address)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return d.Netdev, nil
}

// ownsInterface says whether an interface in the pod can be this attachment's: the journal has its device, or no other
// attachment has its device or this namespace, and the configuration means it.
func (u *unjournaled) ownsInterface(n *device.Netdev) (bool, error) {
	if len(u.owned) > 0 {
		return true, nil
	}
	entries, err := u.store.List()
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return false, err
	}
	for _, e := range entries {
		if e.Key == u.key {
			continue
		}
		sameInterface := e.Netns == u.pod.NS.ID && e.IfName == n.Name
		sameDevice := !n.Address.IsZero() && e.Kind != journal.KindIPoIB && e.Address == n.Address
		if sameInterface || sameDevice {
			return false, nil
		}
	}
	if u.isChild(n) {
		return u.cfg.Mode == netconf.ModeIPoIB, nil
	}
	// A chained configuration without a prevResult (DEL below spec 0.4.0) looks like one of mode device: the interface
	// is then the earlier plugin's, which has its own DEL coming.
	if u.cfg.Mode != netconf.ModeDevice || u.cfg.ModeDerived && u.cfg.IPAM.Type == "" {
		return false, nil
	}
	s := u.cfg.Selector
	was := &journal.Entry{Address: n.Address, Netdev: n}
	if d, err := u.host.At(n.Address); err == nil {
		was.PCI = d.PCI
	}
	if u.cfg.FromClaim && s.Kind == netconf.ByNothing {
		return u.isOfClaim(n.Address), nil
	}
	return !n.Address.IsZero() && (selects(s, "", was) || chooser{u.call}.isGiven(n.Address, was.PCI)), nil
}

// isClaimed says whether a ResourceClaim of the pod has the device at an address: then the configuration means it.
func (u *unjournaled) isOfClaim(a device.Address) bool {
	claims, _ := chooser{u.call}.claimed()
	return slices.ContainsFunc(claims.Devices, func(d attach.Claimed) bool { return d.Device == a.String() })
}

// isChild says whether an interface in the pod is an IPoIB child: one that shows its parent, or has the group of this
// attachment's (see inventory.Reader.Child).
func (u *unjournaled) isChild(n *device.Netdev) bool {
	return n.IsIPoIBChild() || n.IsIPoIB() && n.Group == childGroup(u.key)
}

// likelySnapshot is what the host is likely to have had: the last altname in the pod is the host's name, as
// plan.Configure has put it there.
func likelySnapshot(n *device.Netdev) *device.Netdev {
	was := *n
	was.Alias, was.AltNames, was.Flags = "", nil, device.FlagMulticast
	was.Kept = device.Kept{Attrs: map[device.LinkAttr]uint32{device.LinkMode: 0}} // and no programs
	if last := len(n.AltNames) - 1; last >= 0 {
		was.Name, was.AltNames = n.AltNames[last], n.AltNames[:last]
	}
	was.IPv4Conf, was.IPv6Conf = nil, nil
	return &was
}

// podHCA finds the RDMA device at a bus address in the pod, nil without one. netlink does not say where an RDMA device
// sits; the pod's view of sysfs does.
func (u *unjournaled) podHCA(a device.Address) (*device.HCA, error) {
	if u.pod.RDMA == nil || a.IsZero() {
		return nil, nil
	}
	var name string
	err := u.pod.NS.DoWithSys(func(sys fs.FS) error {
		entries, err := fs.ReadDir(sys, path.Join("bus", a.Bus, "devices", a.Name, "infiniband"))
		if len(entries) > 0 {
			name = entries[0].Name()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil || name == "" {
		return nil, err
	}
	h, err := u.pod.HCANamed(name)
	if err == nil {
		h.Address = a
	}
	return h, err
}
