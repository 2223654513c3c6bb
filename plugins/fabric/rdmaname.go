package fabric

import (
	"context"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// evictRDMA is apply.Runner's EvictRDMA. A device on the host is known by its bus address, one in the pod by the
// journal's entries: this is not the usual path, and each of them is read.
func (c *call) evictRDMA(holder *device.HCA, in plan.Side, act func() error) (bool, error) {
	claim, own := "", ""
	if in == plan.Host {
		a, err := c.host.HCAAddress(holder.Name)
		if err != nil {
			return false, nil
		}
		claim = a.String()
		if own, err = c.ownRDMAName(claim); err != nil {
			return false, err
		}
	} else if e := c.attachmentOf(holder); e != nil && holder.Name != e.RDMAName {
		claim, own = e.Claim, e.HCA.Name
	}
	if own == "" || own == holder.Name {
		return false, nil
	}
	lock, err := c.tryLock(claim)
	if errors.Is(err, journal.ErrBusy) { // whoever works on it gives it its own name
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Unlock()
	return true, act()
}

// tryLock takes a device's lock only if nobody has it: the call that has it may be waiting for ours.
func (c *call) tryLock(claim string) (*journal.Lock, error) {
	at, cancel := context.WithCancel(context.Background())
	cancel()
	return c.store.Lock(at, claim)
}

// ownRDMAName is the name that the RDMA device of claim had before any attachment; empty: the journal does not know it,
// and the device is called as its owner wants.
func (c *call) ownRDMAName(claim string) (string, error) {
	owner, ok, err := c.store.Owner(claim)
	if err != nil {
		return "", err
	}
	if !ok {
		return c.store.Owed(claim)
	}
	if e, err := c.store.Load(owner); err == nil && e.HCA != nil && e.MoveRDMA {
		return e.HCA.Name, nil
	}
	return "", nil
}

// attachmentOf is the attachment that has an RDMA device; nil: the journal knows of none.
func (c *call) attachmentOf(h *device.HCA) *journal.Entry {
	entries, err := c.store.List()
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
		if owner, ok, err := c.store.Owner(e.Claim); err == nil && ok && owner == e.Key {
			return e
		}
	}
	return nil
}

// owe notes the name of an RDMA device that is home under another one, when nobody will call DEL for it any more.
func (c *call) owe(e *journal.Entry, why error) error {
	if !e.MoveRDMA || !errors.Is(why, apply.ErrNameTaken) {
		return nil
	}
	h, err := c.hcaAt(e.Claim)
	if err != nil || h == nil || h.Name == e.HCA.Name {
		return err
	}
	c.log.Warn("the RDMA device gets its name when that is free", "device", e.Claim, "name", e.HCA.Name, "now", h.Name)
	return c.store.Owe(e.Claim, e.HCA.Name)
}

// hcaAt is the RDMA device at a claim, which is a bus address; nil: none on the host.
func (c *call) hcaAt(claim string) (*device.HCA, error) {
	a, err := device.ParseAddress(claim)
	if err != nil {
		return nil, nil //nolint:nilerr // a device without an address has no RDMA device
	}
	d, err := c.host.At(a)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return d.HCA, nil
}

// settleNames gives RDMA devices that are home under a temporary name their own, if it is free by now. It is called
// when a device has come home, which is when a name becomes free; held is that device's claim, whose lock the caller
// has. What can't be settled now is left to the next DEL.
func (c *call) settleNames(held string) {
	debtors, err := c.store.Debtors()
	if err != nil {
		c.log.Warn("names that RDMA devices are owed are not known", "reason", err)
	}
	for _, claim := range debtors {
		var lock *journal.Lock
		if claim != held {
			if lock, err = c.tryLock(claim); errors.Is(err, journal.ErrBusy) {
				continue
			}
		}
		if err == nil {
			err = c.settleName(claim)
		}
		lock.Unlock()
		if err != nil {
			c.log.Warn("an RDMA device does not have its own name", "device", claim, "reason", err)
		}
	}
}

// settleName is for one device, whose lock is held.
func (c *call) settleName(claim string) error {
	name, err := c.store.Owed(claim)
	if err != nil || name == "" {
		return err
	}
	h, err := c.hcaAt(claim)
	if err != nil {
		return err
	}
	if h != nil && h.Name == name {
		return c.store.Settle(claim)
	}
	_, taken, err := c.store.Owner(claim)
	if err != nil || taken || h == nil { // its entry has the name, and its DEL gives it back
		return err
	}
	r := c.runner(nil)
	if err := r.NameRDMA(h.Index, name); err != nil {
		if errors.Is(err, unix.EEXIST) { // still taken
			return nil
		}
		return err
	}
	return c.store.Settle(claim)
}

// settled gives an RDMA device that is about to be attached the name that it is owed, and says whether the device has
// changed.
func (c *call) settled(claim string, h *device.HCA) bool {
	if h == nil || !apply.IsTemporary(h.Name) {
		return false
	}
	if err := c.settleName(claim); err != nil {
		c.log.Warn("an RDMA device does not have its own name", "device", claim, "reason", err)
	}
	return true
}

// ownName notes in an entry which name the RDMA device is to have when it comes home, if that is not the one that it
// has now.
func (c *call) ownName(e *journal.Entry) {
	if !e.MoveRDMA || e.HCA == nil || !apply.IsTemporary(e.HCA.Name) {
		return
	}
	own, err := c.store.Owed(e.Claim)
	if err != nil {
		c.log.Warn("the name of an RDMA device is not known", "device", e.Claim, "reason", err)
	}
	if own == "" {
		return
	}
	if e.RDMAName == "" {
		e.RDMAName = e.HCA.Name
	}
	h := *e.HCA
	h.Name = own
	e.HCA = &h
}
