package fabric

import (
	"context"
	"errors"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// evictRDMA is apply.Runner's EvictRDMA. A device on the host is known by its bus address, one in the pod by the
// journal's entries: this is not the usual path, and each of them is read.
func (s *session) evictRDMA(holder *device.HCA, in plan.Side, act func() error) (bool, error) {
	claim, own := "", ""
	if in == plan.Host {
		a, err := s.host.HCAAddress(holder.Name)
		if err != nil {
			return false, nil
		}
		claim = a.String()
		if own, err = s.ownRDMAName(claim); err != nil {
			return false, err
		}
	} else if e := s.attachmentOf(holder); e != nil && holder.Name != e.RDMAName {
		claim, own = e.Claim, e.HCA.Name
	}
	if own == "" || own == holder.Name {
		return false, nil
	}
	lock, err := s.tryLock(claim)
	if errors.Is(err, journal.ErrBusy) { // the call that works on it gives it its own name
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Unlock()
	return true, act()
}

// tryLock takes a device's lock only if it is free: the call that has it may be waiting for ours.
func (s *session) tryLock(claim string) (*journal.Lock, error) {
	at, cancel := context.WithCancel(context.Background())
	cancel()
	return s.store.Lock(at, claim)
}

// ownRDMAName is the name that the RDMA device of claim had before any attachment; empty: the journal does not know it,
// and the device is called as its owner wants.
func (s *session) ownRDMAName(claim string) (string, error) {
	owner, ok, err := s.store.Owner(claim)
	if err != nil {
		return "", err
	}
	if !ok {
		return s.store.Owed(journal.RDMA, claim)
	}
	if e, err := s.store.Load(owner); err == nil && e.HCA != nil && e.MoveRDMA {
		return e.HCA.Name, nil
	}
	return "", nil
}

// attachmentOf is the attachment that has an RDMA device; nil: the journal knows of none.
func (s *session) attachmentOf(h *device.HCA) *journal.Entry {
	entries, err := s.store.List()
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
		if owner, ok, err := s.store.Owner(e.Claim); err == nil && ok && owner == e.Key {
			return e
		}
	}
	return nil
}
