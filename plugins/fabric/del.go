package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/failpoint"
	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// del is the verb DEL: everything that the attachment has is returned.
func del(c *call) error {
	c.doing = fmt.Sprintf("return %s of container %s", c.key.IfName, c.key.ContainerID)
	if err := c.openHost(); err != nil {
		return err
	}
	e, err := c.store.Load(c.key)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, journal.ErrCorrupt):
		return newUnjournaled(c).run()
	case err != nil:
		return err
	}
	d := c.delegate()
	if d.Type == "" || e.Kind == journal.KindRDMA { // the configuration may have changed since ADD
		d = c.delegateOf(e)
	}
	return returner{c}.giveBack(e, d)
}

// returner returns what attachments have, as their journal entries say: for DEL, for GC, and for an ADD that needs what
// a dead pod has left.
type returner struct{ *call }

// giveBack returns everything an attachment holds: device, child, addresses, claim and entry.
func (c returner) giveBack(e *journal.Entry, d ipam.Delegate) error {
	if e.Claim == "" { // nothing was taken
		return c.giveBackLocked(e, d)
	}
	ctx, cancel := bounded(lockWait)
	defer cancel()
	lock, err := c.store.Lock(ctx, e.Claim)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	return c.giveBackLocked(e, d)
}

// giveBackLocked is giveBack for a caller that holds the device's lock. What fails does not stop the rest: whoever
// calls again finds less to do. The entry stays until nothing is left.
func (c returner) giveBackLocked(e *journal.Entry, d ipam.Delegate) error {
	ours, err := c.owns(e)
	if err != nil {
		return err
	}
	released := make(chan error, 1)
	release := func() {
		go func() {
			err := failpoint.Hit("before/ipam-del")
			if err == nil {
				err = d.Del(context.Background())
			}
			released <- err
		}()
	}
	var errs []error
	if ours {
		errs = append(errs, c.bringHome(e, release))
	} else {
		release()
	}
	errs = append(errs, <-released)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.forget(e)
}

// owns says whether the attachment still has what its entry speaks of. After a reboot, or when the device has gone to
// another attachment, there is nothing of it left on the kernel's side.
func (c returner) owns(e *journal.Entry) (bool, error) {
	if e.Claim == "" || e.BeforeBoot(bootID()) {
		return false, nil
	}
	if e.Kind == journal.KindIPoIB {
		return true, nil
	}
	owner, ok, err := c.store.Owner(e.Claim)
	return ok && owner == e.Key, err
}

// bringHome returns the device or removes the child. release is called exactly once, as soon as the pod can't use the
// addresses any more: IPAM works while the device moves.
func (c returner) bringHome(e *journal.Entry, release func()) error {
	pod, err := c.podOf(e)
	if err != nil {
		release()
		return err
	}
	runner := c.runner(pod)
	r := &runner
	if e.Kind == journal.KindIPoIB {
		defer release()
		if err := c.removeChild(r, e); err != nil {
			return err
		}
		return c.store.RemoveChild(e.Claim, e.Key) // if IPAM fails now, the next call need not wait for a child
	}
	wait := homeWait
	if e.VF != nil && e.VF.Rebind {
		wait = kernelMax // others may be rebinding theirs
	}
	ctx, cancel := bounded(wait)
	defer cancel()
	gone := func() bool { return c.gone(e, pod == nil) }
	home := homeOf(e)
	home.Keep = c.keptChildren(e)
	err = r.Return(ctx, home, apply.Events{Released: release, Gone: gone, Removed: c.removedUpper})
	if e.MoveRDMA {
		defer c.settleNames(e.Claim)
	}
	if errors.Is(err, apply.ErrGone) {
		c.log.Warn("device can't be returned", "device", e.Claim, "reason", err)
		return nil
	}
	var partly *apply.RestoreError
	if errors.As(err, &partly) {
		return c.restoredPartly(e, partly)
	}
	return err
}

// gone says that a device which is nowhere to be found does not come back: its hardware has left, or it is a virtual
// one, which the kernel deletes with the namespace it is in (net/core/dev.c, default_device_exit_batch).
func (c returner) gone(e *journal.Entry, pod bool) bool {
	if e.Address.IsZero() { // in a pod that is alive, it is known by its ifindex: the pod has deleted it
		return (pod || e.PodIndex != 0) && e.Netdev != nil && e.Netdev.Kind != ""
	}
	return !c.host.Present(e.Address)
}

// maxTries is how often DEL reports that a device is home but could not be restored in full. The runtime calls again
// each time; a cause that does not pass must not keep the pod Terminating for ever.
const maxTries = 3

func (c returner) restoredPartly(e *journal.Entry, err error) error {
	e.Tries++
	if e.Tries >= maxTries {
		c.log.Error("giving up after repeated tries", "device", e.Claim, "reason", err)
		return c.owe(e, err)
	}
	return errors.Join(err, c.store.Save(e))
}

// releaseOrphans removes the rules of rails that are not in the pod any more.
func releaseOrphans(ctx context.Context, r *apply.Runner) error {
	rules, err := r.Pod.Link.Rules()
	if err != nil {
		return err
	}
	there, err := r.Pod.Link.List("")
	if err != nil {
		return err
	}
	return r.Run(ctx, plan.ReleaseOrphans(there, rules))
}

// unsureWait bounds the wait for a child that may never have been made: its creator was killed at an unknown point.
const unsureWait = 3 * time.Second

// removeChild deletes the child wherever it is. When the pod's namespace is gone the kernel has put it on the host, or
// is about to.
func (c returner) removeChild(r *apply.Runner, e *journal.Entry) error {
	users, err := c.store.Children(e.Claim)
	if err != nil {
		return err
	}
	wait := homeWait
	switch {
	case !slices.Contains(users, e.Key): // an earlier call has removed it
		wait = 0
	case e.Child.HWAddr == "":
		wait = unsureWait
	}
	ctx, cancel := bounded(kernelMax)
	defer cancel()
	enough := time.After(wait)
	for {
		for side, s := range map[plan.Side]*apply.Side{plan.Pod: r.Pod, plan.Host: r.Host} {
			if s == nil {
				continue
			}
			n, err := s.Child(e.Child.PKey, e.Child.Group, e.Child.HWAddr)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			r.Track(nil, n)
			w := plan.Where{Netdev: n, NetdevSide: side, PodGone: r.Pod == nil}
			if side == plan.Pod {
				if w.Rules, err = s.Link.Rules(); err != nil {
					return err
				}
			}
			return r.Run(ctx, plan.Preview(w, plan.Home{Child: true}))
		}
		if r.Pod != nil { // not in the pod, not on the host: the pod has deleted it, or it never was
			return releaseOrphans(ctx, r)
		}
		if !c.host.Present(e.Child.Parent) {
			return nil
		}
		select {
		case <-enough:
			return nil // gone with its parent, whose RDMA device has moved or left
		case <-time.After(20 * time.Millisecond):
		}
	}
}
