package fabric

import (
	"context"
	"errors"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// runner carries steps out between the host and a pod, which is nil when it is gone.
func (s *session) runner(pod *apply.Side) apply.Runner {
	return apply.Runner{
		Host: s.host, Pod: pod, Proc: s.Proc,
		EvictName: s.evictName, EvictRDMA: s.evictRDMA, Renumbering: s.renumbering,
	}
}

// renumberWait bounds the wait for other calls that move RDMA devices or rebind drivers: one at a time.
const renumberWait = 20 * time.Second

// renumberLock is the name under which numbers of character devices are given out. No device is named so.
const renumberLock = "numbers"

// renumbering is apply.Runner's Renumbering.
func (s *session) renumbering(ctx context.Context) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, renumberWait)
	defer cancel()
	lock, err := s.store.Lock(ctx, renumberLock)
	if err != nil {
		return nil, err
	}
	return lock.Unlock, nil
}

// evictName is apply.Runner's EvictName. The holder's lock is not waited for: the call that has it frees the name by
// itself, and may be waiting for ours.
func (s *session) evictName(holder *device.Netdev, name string, act func(own *device.Netdev) error) (bool, error) {
	claim := holder.Address.String()
	owner, ok, err := s.store.Owner(claim)
	if err != nil || !ok {
		return false, nil
	}
	e, err := s.store.Load(owner)
	if err != nil || e.Netdev == nil || e.Netdev.Named(name) {
		return false, nil
	}
	lock, err := s.tryLock(claim)
	if errors.Is(err, journal.ErrBusy) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Unlock()
	return true, act(e.Netdev)
}

// forget removes every trace of an attachment. The claim goes first: an entry without a claim touches no device.
func (c *call) forget(e *journal.Entry) error {
	if err := c.disclaim(e); err != nil {
		return err
	}
	return c.erase(e)
}

// erase removes what is on disk of an attachment that has no device any more.
func (c *call) erase(e *journal.Entry) error {
	c.undescribe(e)
	return c.store.Remove(e.Key)
}

// disclaim gives up the device, or the child on it.
func (s *session) disclaim(e *journal.Entry) error {
	switch {
	case e.Kind == journal.KindIPoIB:
		return s.store.RemoveChild(e.Claim, e.Key)
	case e.Claim != "":
		return s.store.Disclaim(e.Claim, e.Key)
	}
	return nil
}
