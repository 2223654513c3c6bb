package fabric

import (
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

// faces are what of a device has a name.
var faces = []journal.Face{journal.RDMA, journal.Netdev}

// owe notes the names of a device that is home under others, when no DEL for it will come any more.
func (s *session) owe(e *journal.Entry, why error) error {
	if !errors.Is(why, apply.ErrNameTaken) {
		return nil
	}
	d, err := s.deviceAt(e.Claim)
	if err != nil || d == nil {
		return err
	}
	if e.MoveRDMA && d.HCA != nil {
		err = s.oweName(journal.RDMA, e.Claim, e.HCA.Name, d.HCA.Name)
	}
	if e.Kind == journal.KindDevice && e.Netdev != nil && d.Netdev != nil {
		err = errors.Join(err, s.oweName(journal.Netdev, e.Claim, e.Netdev.Name, d.Netdev.Name))
	}
	return err
}

func (s *session) oweName(f journal.Face, claim, own, now string) error {
	if own == now {
		return nil
	}
	s.log.Warn("the device gets its name when that is free", "device", claim, "name", own, "now", now)
	return s.store.Owe(f, claim, own)
}

// deviceAt is the device at a claim, which is a bus address; nil: none on the host.
func (s *session) deviceAt(claim string) (*inventory.Device, error) {
	a, err := device.ParseAddress(claim)
	if err != nil {
		return nil, nil //nolint:nilerr // a virtual one: it is known by its name, and has no RDMA device
	}
	d, err := s.host.At(a)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return d, err
}

// settleNames gives devices that are home under a temporary name their own, if it is free by now. It is called when a
// device has returned to the host, which is when a name becomes free; held is that device's claim, whose lock the
// caller has. What can't be settled now is left to the next DEL.
func (s *session) settleNames(held string) {
	for _, f := range faces {
		debtors, err := s.store.Debtors(f)
		if err != nil {
			s.log.Warn("names that devices are owed are not known", "reason", err)
		}
		for _, claim := range debtors {
			var lock *journal.Lock
			if claim != held {
				if lock, err = s.tryLock(claim); errors.Is(err, journal.ErrBusy) {
					continue
				}
			}
			if err == nil {
				err = s.settleName(f, claim)
			}
			lock.Unlock()
			if err != nil {
				s.log.Warn("a device does not have its own name", "device", claim, "reason", err)
			}
		}
	}
}

// settleName is for one device, whose lock is held.
func (s *session) settleName(f journal.Face, claim string) error {
	name, err := s.store.Owed(f, claim)
	if err != nil || name == "" {
		return err
	}
	d, err := s.deviceAt(claim)
	if err != nil || d == nil {
		return err
	}
	_, taken, err := s.store.Owner(claim)
	switch {
	case f == journal.RDMA && d.HCA != nil && d.HCA.Name == name, f == journal.Netdev && d.Netdev != nil &&
		!apply.IsTemporary(d.Netdev.Name): // an administrator may have given it another one
		return s.store.Settle(f, claim)
	case err != nil || taken: // its entry has the name, and its DEL gives it back
		return err
	case f == journal.RDMA && d.HCA != nil:
		r := s.runner(nil)
		err = r.NameRDMA(d.HCA.Index, name)
	case f == journal.Netdev && d.Netdev != nil:
		err = s.nameNetdev(d.Netdev, name)
	default:
		return nil
	}
	if errors.Is(err, unix.EEXIST) { // still taken
		return nil
	}
	if err != nil {
		return err
	}
	return s.store.Settle(f, claim)
}

// nameNetdev renames a netdev that may be up, which loses addresses and routes before Linux 6.2.
func (s *session) nameNetdev(n *device.Netdev, name string) error {
	if holder, err := s.host.Link.ByName(name); err == nil && holder.Index != n.Index {
		return unix.EEXIST
	}
	if err := s.host.Snapshot(n); err != nil {
		return err
	}
	was := *n
	was.Name = name
	ctx, cancel := bounded(homeWait)
	defer cancel()
	r := s.runner(nil)
	return r.Return(ctx, plan.Home{Netdev: &was}, apply.Events{})
}

// settled gives a device that is about to be attached the names that it is owed, and says whether it has changed. The
// caller holds the device's lock.
func (s *session) settled(claim string, d *inventory.Device) bool {
	owed := map[journal.Face]bool{
		journal.RDMA:   d.HCA != nil && apply.IsTemporary(d.HCA.Name),
		journal.Netdev: d.Netdev != nil && apply.IsTemporary(d.Netdev.Name),
	}
	changed := false
	for _, f := range faces {
		if !owed[f] {
			continue
		}
		changed = true
		if err := s.settleName(f, claim); err != nil {
			s.log.Warn("a device does not have its own name", "device", claim, "reason", err)
		}
	}
	return changed
}

// disowned is disown for an ADD that has found the netdev: perhaps under a name that is another device's.
func (s *session) disowned(claim string, n *device.Netdev) bool {
	done, err := s.disown(claim, n)
	if err != nil {
		s.log.Warn("a device has the name that a pod gave it", "device", claim, "reason", err)
	}
	return done
}

// disown takes from a netdev on the host the names that are not its own, if an attachment has it: its pod had moved it
// to a network namespace that has ended. The caller holds the device's lock.
func (s *session) disown(claim string, n *device.Netdev) (bool, error) {
	if n == nil || n.Address.IsZero() {
		return false, nil
	}
	owner, ok, err := s.store.Owner(claim)
	if err != nil || !ok {
		return false, err
	}
	e, err := s.store.Load(owner)
	if err != nil || e.Netdev == nil || e.Kind != journal.KindDevice {
		return false, err
	}
	r := s.runner(nil)
	done, err := r.Disown(n, e.Netdev)
	if done {
		s.log.Warn("a device that a pod has is on the host, and has lost the names that the pod gave it",
			"device", claim, "owner", e.Who())
	}
	return done, err
}

// NamesCommand is the first argument of the program when the agent calls it for OwnNames.
const NamesCommand = "own-names"

// OwnNames takes from all devices that attachments have and that are on the host the names that are not their own: for
// the agent, as pods live long. It returns the exit status.
func (p Plugin) OwnNames() int {
	if err := p.disownAll(); err != nil {
		fmt.Fprintln(p.Stderr, "fabric: "+quote.Terminal(strings.ReplaceAll(err.Error(), "\n", "; ")))
		return 1
	}
	return 0
}

func (p Plugin) disownAll() error {
	c := p.withDefaults().newCall(&netconf.Config{}, netconf.Env{})
	defer c.close()
	if err := c.openHost(); err != nil {
		return err
	}
	entries, err := c.store.List()
	if errors.Is(err, journal.ErrCorrupt) { // the agent names them
		err = nil
	}
	errs := []error{err}
	for _, e := range entries {
		if e.Kind != journal.KindDevice || e.Netdev == nil || e.Address.IsZero() || !e.Attached {
			continue
		}
		d, err := c.deviceAt(e.Claim)
		if err != nil || d == nil || d.Netdev == nil || !foreign(d.Netdev, e.Netdev) {
			errs = append(errs, err)
			continue
		}
		lock, err := c.tryLock(e.Claim)
		if errors.Is(err, journal.ErrBusy) { // the call that works on it gives it its own name
			continue
		}
		if err == nil {
			_, err = c.disown(e.Claim, d.Netdev)
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

// ownName notes in an entry which names the device is to have on the host, if those are not the ones that it has
// now.
func (s *session) ownName(e *journal.Entry) {
	if e.MoveRDMA && e.HCA != nil {
		if own := s.owedName(journal.RDMA, e.Claim, e.HCA.Name); own != "" {
			if e.RDMAName == "" {
				e.RDMAName = e.HCA.Name
			}
			h := *e.HCA
			h.Name = own
			e.HCA = &h
		}
	}
	if e.Kind == journal.KindDevice && e.Netdev != nil {
		if own := s.owedName(journal.Netdev, e.Claim, e.Netdev.Name); own != "" {
			n := *e.Netdev
			n.Name = own
			e.Netdev = &n
		}
	}
}

// owedName is the name that a face of a device is owed, if it has a temporary one.
func (s *session) owedName(f journal.Face, claim, now string) string {
	if !apply.IsTemporary(now) {
		return ""
	}
	own, err := s.store.Owed(f, claim)
	if err != nil {
		s.log.Warn("the name of a device is not known", "device", claim, "reason", err)
	}
	return own
}
