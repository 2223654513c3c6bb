package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// names gives devices their own names back, and makes those step aside that have the name of another.
type names struct{ s *session }

func (s *session) names() names { return names{s} }

// named are what of a device has a name.
var named = []journal.NameOf{journal.RDMA, journal.Netdev}

// setPending notes the names of a device that is home under others, when no DEL for it will come any more.
func (nm names) setPending(e *journal.Entry, why error) error {
	if !errors.Is(why, apply.ErrNameTaken) {
		return nil
	}
	d, err := nm.deviceAt(e.DeviceKey)
	if err != nil || d == nil {
		return err
	}
	if e.MoveRDMA && d.HCA != nil {
		err = nm.setPendingName(journal.RDMA, e.DeviceKey, e.HCA.Name, d.HCA.Name)
	}
	if e.Kind == journal.KindDevice && e.Netdev != nil && d.Netdev != nil {
		err = errors.Join(err, nm.setPendingName(journal.Netdev, e.DeviceKey, e.Netdev.Name, d.Netdev.Name))
	}
	return err
}

func (nm names) setPendingName(f journal.NameOf, deviceKey, own, now string) error {
	if own == now {
		return nil
	}
	nm.s.log.Warn("the device gets its name when that is free", "device", deviceKey, "name", own, "now", now)
	return nm.s.store.PendingNames(f).Set(deviceKey, own)
}

// deviceAt is the device of a key, if that is a bus address; nil: none on the host.
func (nm names) deviceAt(deviceKey string) (*inventory.Device, error) {
	a, err := device.ParseAddress(deviceKey)
	if err != nil {
		return nil, nil //nolint:nilerr // a virtual one: it is known by its name, and has no RDMA device
	}
	d, err := nm.s.host.At(a)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return d, err
}

// restoreNames gives devices that are home under a temporary name their own, if it is free by now. It is called when a
// device has returned to the host, which is when a name becomes free; held is that device's key, whose lock the
// caller has. What can't be settled now is left to the next DEL.
func (nm names) restoreNames(held string) {
	for _, f := range named {
		devices, err := nm.s.store.PendingNames(f).Devices()
		if err != nil {
			nm.s.log.Warn("pending names are not known", "reason", err)
		}
		for _, deviceKey := range devices {
			var lock *journal.Lock
			if deviceKey != held {
				if lock, err = nm.tryLock(deviceKey); errors.Is(err, journal.ErrBusy) {
					continue
				}
			}
			if err == nil {
				err = nm.restoreName(f, deviceKey)
			}
			lock.Unlock()
			if err != nil {
				nm.s.log.Warn("a device does not have its own name", "device", deviceKey, "reason", err)
			}
		}
	}
}

// restoreName is for one device, whose lock is held.
func (nm names) restoreName(f journal.NameOf, deviceKey string) error {
	name, err := nm.s.store.PendingNames(f).Get(deviceKey)
	if err != nil || name == "" {
		return err
	}
	d, err := nm.deviceAt(deviceKey)
	if err != nil || d == nil {
		return err
	}
	_, taken, err := nm.s.store.Owner(deviceKey)
	switch {
	case f == journal.RDMA && d.HCA != nil && d.HCA.Name == name, f == journal.Netdev && d.Netdev != nil &&
		!apply.IsTemporary(d.Netdev.Name): // an administrator may have given it another one
		return nm.s.store.PendingNames(f).Clear(deviceKey)
	case err != nil || taken: // its entry has the name, and its DEL gives it back
		return err
	case f == journal.RDMA && d.HCA != nil:
		r := nm.s.runner(nil)
		err = r.NameRDMA(d.HCA.Index, name)
	case f == journal.Netdev && d.Netdev != nil:
		err = nm.nameNetdev(d.Netdev, name)
	default:
		return nil
	}
	if errors.Is(err, unix.EEXIST) { // still taken
		return nil
	}
	if err != nil {
		return err
	}
	return nm.s.store.PendingNames(f).Clear(deviceKey)
}

// nameNetdev renames a netdev that may be up, which loses addresses and routes before Linux 6.2.
func (nm names) nameNetdev(n *device.Netdev, name string) error {
	if holder, err := nm.s.host.Link.ByName(name); err == nil && holder.Index != n.Index {
		return unix.EEXIST
	}
	if err := nm.s.host.Snapshot(n); err != nil {
		return err
	}
	was := *n
	was.Name = name
	ctx, cancel := bounded(homeWait)
	defer cancel()
	r := nm.s.runner(nil)
	return r.Return(ctx, plan.Home{Netdev: &was}, apply.Events{})
}

// restoreOwn gives a device that is about to be attached its pending names, and says whether it has changed.
// The caller holds the device's lock.
func (nm names) restoreOwn(deviceKey string, d *inventory.Device) bool {
	pending := map[journal.NameOf]bool{
		journal.RDMA:   d.HCA != nil && apply.IsTemporary(d.HCA.Name),
		journal.Netdev: d.Netdev != nil && apply.IsTemporary(d.Netdev.Name),
	}
	changed := false
	for _, f := range named {
		if !pending[f] {
			continue
		}
		changed = true
		if err := nm.restoreName(f, deviceKey); err != nil {
			nm.s.log.Warn("a device does not have its own name", "device", deviceKey, "reason", err)
		}
	}
	return changed
}

// dropForeign is disown for an ADD that has found the netdev: perhaps under a name that is another device's.
func (nm names) dropForeign(deviceKey string, n *device.Netdev) bool {
	done, err := nm.dropForeignNames(deviceKey, n)
	if err != nil {
		nm.s.log.Warn("a device has the name that a pod gave it", "device", deviceKey, "reason", err)
	}
	return done
}

// dropForeignNames takes from a netdev on the host the names that are not its own, if an attachment has it: its pod had
// moved it to a network namespace that has ended. The caller holds the device's lock.
func (nm names) dropForeignNames(deviceKey string, n *device.Netdev) (bool, error) {
	if n == nil || n.Address.IsZero() {
		return false, nil
	}
	owner, ok, err := nm.s.store.Owner(deviceKey)
	if err != nil || !ok {
		return false, err
	}
	e, err := nm.s.store.Load(owner)
	if err != nil || e.Netdev == nil || e.Kind != journal.KindDevice {
		return false, err
	}
	r := nm.s.runner(nil)
	done, err := r.DropForeignNames(n, e.Netdev)
	if done {
		nm.s.log.Warn("a device that a pod has is on the host, and has lost the names that the pod gave it",
			"device", deviceKey, "owner", e.Who())
	}
	return done, err
}

// NamesCommand is the first argument of the program when the agent calls it for OwnNames.
const NamesCommand = "own-names"

// OwnNames takes from all devices that attachments have and that are on the host the names that are not their own: for
// the agent, as pods live long. It also lets go of network namespaces that no attachment holds. It returns the exit
// status.
func (p Plugin) OwnNames() int {
	if err := p.dropAllForeignNames(); err != nil {
		fmt.Fprintln(p.Stderr, "fabric: "+quote.Terminal(strings.ReplaceAll(err.Error(), "\n", "; ")))
		return 1
	}
	return 0
}

func (p Plugin) dropAllForeignNames() error {
	c := p.withDefaults().newCall(&netconf.Config{}, netconf.Env{})
	defer c.close()
	if err := c.openHost(); err != nil {
		return err
	}
	entries, err := c.store.List()
	if errors.Is(err, journal.ErrCorrupt) { // the agent names them
		err = nil
	}
	errs := []error{err, journal.Holds{Store: c.store}.ReleaseAll()}
	for _, e := range entries {
		if e.Kind != journal.KindDevice || e.Netdev == nil || e.Address.IsZero() || !e.Attached {
			continue
		}
		d, err := c.names().deviceAt(e.DeviceKey)
		if err != nil || d == nil || d.Netdev == nil || !foreign(d.Netdev, e.Netdev) {
			errs = append(errs, err)
			continue
		}
		lock, err := c.names().tryLock(e.DeviceKey)
		if errors.Is(err, journal.ErrBusy) { // the call that works on it gives it its own name
			continue
		}
		if err == nil {
			_, err = c.names().dropForeignNames(e.DeviceKey, d.Netdev)
		}
		lock.Unlock()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// foreign says whether a netdev has a name that is not its own.
func foreign(n, own *device.Netdev) bool {
	for _, name := range append([]string{n.Name}, n.AltNames...) {
		if !own.Named(name) && !apply.IsTemporary(name) {
			return true
		}
	}
	return false
}

// recordOwnNames notes in an entry which names the device is to have on the host, if those are not the ones that it has
// now.
func (nm names) recordOwnNames(e *journal.Entry) {
	if e.MoveRDMA && e.HCA != nil {
		if own := nm.pendingName(journal.RDMA, e.DeviceKey, e.HCA.Name); own != "" {
			if e.RDMAName == "" {
				e.RDMAName = e.HCA.Name
			}
			h := *e.HCA
			h.Name = own
			e.HCA = &h
		}
	}
	if e.Kind == journal.KindDevice && e.Netdev != nil {
		if own := nm.pendingName(journal.Netdev, e.DeviceKey, e.Netdev.Name); own != "" {
			n := *e.Netdev
			n.Name = own
			e.Netdev = &n
		}
	}
}

// pendingName is the name that a device is to get back, if it has a temporary one.
func (nm names) pendingName(f journal.NameOf, deviceKey, now string) string {
	if !apply.IsTemporary(now) {
		return ""
	}
	own, err := nm.s.store.PendingNames(f).Get(deviceKey)
	if err != nil {
		nm.s.log.Warn("the name of a device is not known", "device", deviceKey, "reason", err)
	}
	return own
}

// evictName is apply.Runner's EvictName. The holder's lock is not waited for: the call that has it frees the name by
// itself, and may be waiting for ours.
func (nm names) evictName(holder *device.Netdev, name string, act func(own *device.Netdev) error) (bool, error) {
	deviceKey := holder.Address.String()
	owner, ok, err := nm.s.store.Owner(deviceKey)
	if err != nil || !ok {
		return false, nil
	}
	e, err := nm.s.store.Load(owner)
	if err != nil || e.Netdev == nil || e.Netdev.Named(name) {
		return false, nil
	}
	lock, err := nm.tryLock(deviceKey)
	if errors.Is(err, journal.ErrBusy) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Unlock()
	return true, act(e.Netdev)
}

// evictRDMA is apply.Runner's EvictRDMA. A device on the host is known by its bus address, one in the pod by the
// journal's entries: this is not the usual path, and each of them is read.
func (nm names) evictRDMA(holder *device.HCA, in plan.Side, act func() error) (bool, error) {
	deviceKey, own := "", ""
	if in == plan.Host {
		a, err := nm.s.host.HCAAddress(holder.Name)
		if err != nil {
			return false, nil
		}
		deviceKey = a.String()
		if own, err = nm.ownRDMAName(deviceKey); err != nil {
			return false, err
		}
	} else if e := nm.attachmentOf(holder); e != nil && holder.Name != e.RDMAName {
		deviceKey, own = e.DeviceKey, e.HCA.Name
	}
	if own == "" || own == holder.Name {
		return false, nil
	}
	lock, err := nm.tryLock(deviceKey)
	if errors.Is(err, journal.ErrBusy) { // the call that works on it gives it its own name
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Unlock()
	return true, act()
}

// ownRDMAName is the name that the RDMA device had before any attachment; empty: the journal does not know it,
// and the device is called as its owner wants.
func (nm names) ownRDMAName(deviceKey string) (string, error) {
	owner, ok, err := nm.s.store.Owner(deviceKey)
	if err != nil {
		return "", err
	}
	if !ok {
		return nm.s.store.PendingNames(journal.RDMA).Get(deviceKey)
	}
	if e, err := nm.s.store.Load(owner); err == nil && e.HCA != nil && e.MoveRDMA {
		return e.HCA.Name, nil
	}
	return "", nil
}

// attachmentOf is the attachment that has an RDMA device; nil: the journal knows of none.
func (nm names) attachmentOf(h *device.HCA) *journal.Entry {
	entries, err := nm.s.store.List()
	if err != nil && len(entries) == 0 {
		return nil
	}
	for _, e := range entries {
		now := e.HCA
		if t := attachedHCA(e); t != nil {
			now = t
		}
		if !e.MoveRDMA || now == nil || now.Index != h.Index || now.NodeGUID != h.NodeGUID {
			continue
		}
		// The entry of a device that is home stays until IPAM has its addresses back; another may have it by then.
		if owner, ok, err := nm.s.store.Owner(e.DeviceKey); err == nil && ok && owner == e.Key {
			return e
		}
	}
	return nil
}

// tryLock takes a device's lock only if it is free: the call that has it may be waiting for ours.
func (nm names) tryLock(deviceKey string) (*journal.Lock, error) {
	at, cancel := context.WithCancel(context.Background())
	cancel()
	return nm.s.store.Lock(at, deviceKey)
}
