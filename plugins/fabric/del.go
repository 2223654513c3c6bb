package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/failpoint"
	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// del is the verb DEL: everything that the attachment has is returned.
func del(c *call) error {
	c.doing = fmt.Sprintf("return %s of %s", c.key.IfName, c.who())
	if err := c.openHost(); err != nil {
		return err
	}
	if err := c.hold(); err != nil {
		return err
	}
	e, err := c.store.Load(c.key)
	damaged := errors.Is(err, journal.ErrCorrupt)
	switch {
	case errors.Is(err, fs.ErrNotExist), damaged:
		return newUnjournaled(c, damaged).run()
	case err != nil:
		return err
	}
	if c.passedOn(e) {
		return nil
	}
	d := c.delegate()
	if d.Type == "" || e.Kind == journal.KindRDMA { // the configuration may have changed since ADD
		d = c.delegateOf(e)
	}
	return ended(returner{c}.giveBack(e, d))
}

// ended is the result of a DEL: one that has kept something does not keep the pod.
func ended(err error) error {
	var kept *keptError
	if errors.As(err, &kept) {
		return nil
	}
	return err
}

// returner returns what attachments have, as their journal entries say: for DEL, for GC, and for an ADD that needs what
// a dead pod has left.
type returner struct{ *call }

// giveBack returns everything an attachment holds: device, child, addresses, claim and entry. The caller holds the
// attachment's lock. What fails does not stop the rest: another call finds less to do. The entry stays until nothing is
// left.
func (c returner) giveBack(e *journal.Entry, d ipam.Delegate) error {
	var lock *journal.Lock
	if e.Claim != "" { // else nothing was taken
		ctx, cancel := bounded(lockWait)
		defer cancel()
		var err error
		if lock, err = c.store.Lock(ctx, e.Claim); err != nil {
			return err
		}
		defer lock.Unlock()
	}
	released, err := c.takeHome(e, func() error { return c.callIPAMDel(e.Key, d) })
	lock.Unlock() // the next call for the device must not wait for an IPAM plugin
	held := <-released
	if err == nil && held != nil {
		held = c.keepsAddresses(e, d, held)
	}
	if err := errors.Join(err, held); err != nil {
		return err
	}
	return c.erase(e)
}

// keepsAddresses judges why the addresses of an attachment could not be given back. nil: DEL ends all the same. A
// plugin that has failed is called again without end, as its daemon or the API server comes back. The tries are counted
// if that may never change, and if ADD has never succeeded: then it may have reserved nothing.
func (c returner) keepsAddresses(e *journal.Entry, d ipam.Delegate, why error) error {
	busy := errors.Is(why, journal.ErrBusy)
	if !busy && e.Attached && d.Usable("DEL") == nil {
		return why
	}
	if why = c.tryAgain(e, why); why == nil && busy {
		// The ADD whose plugin still runs sees that it has lost its device, if it lives.
		return d.Del(context.Background())
	}
	return why
}

// deadWait is how long the ADD of a pod waits for the IPAM plugin of a dead one. It works on while the ADD does.
const deadWait = time.Second

// giveBackOfDead is giveBack for the ADD of another pod, which holds the device's lock. It wants the device: if the
// addresses can't be had now, they stay reserved with the entry until its DEL or a GC.
func (c returner) giveBackOfDead(at context.Context, e *journal.Entry) error {
	d := c.delegateOf(e)
	released, err := c.takeHome(e, func() error {
		return c.callIPAMWithin(at, e.Key, d, func(d ipam.Delegate) error { return d.Del(context.Background()) })
	})
	var kept error
	select {
	case kept = <-released:
	case <-time.After(deadWait):
		kept = errors.New("its IPAM plugin has not answered yet")
	}
	if err != nil {
		return errors.Join(err, kept)
	}
	if kept != nil {
		c.log.Warn("the addresses of a dead pod stay reserved until its DEL", "owner", e.Who(), "its", e.IfName,
			"reason", kept)
		return nil
	}
	return c.erase(e)
}

// takeHome returns the device or removes the child, and then gives up the claim: from there on anybody may have the
// device. free gives the addresses back; it runs meanwhile, and the channel has its result. The caller holds the
// device's lock.
func (c returner) takeHome(e *journal.Entry, free func() error) (released <-chan error, err error) {
	result := make(chan error, 1)
	var once sync.Once
	ours, err := c.owns(e)
	if err != nil {
		result <- nil
		return result, err
	}
	release := func() {
		once.Do(func() {
			err := failpoint.Hit("before/ipam-del") // no device is on its way: see kernel fact 46
			go func() {
				if err == nil {
					err = free()
				}
				result <- err
			}()
		})
	}
	if ours {
		err = c.bringHome(e, release)
	}
	if errors.Is(err, apply.ErrMissing) { // it may be in use, with its addresses
		once.Do(func() { result <- nil })
		return result, err
	}
	release()
	if err == nil && ours {
		err = c.removeStrays(e)
	}
	if err == nil {
		err = c.disclaim(e)
	}
	return result, err
}

// owns says whether the attachment still has what its entry speaks of. After a reboot, or when the device has gone to
// another attachment, there is nothing of it left on the kernel's side.
func (c returner) owns(e *journal.Entry) (bool, error) {
	if e.Claim == "" || e.BeforeBoot(c.bootID()) {
		return false, nil
	}
	if e.Kind == journal.KindIPoIB {
		return true, nil
	}
	owner, ok, err := c.store.Owner(e.Claim)
	return ok && owner == e.Key, err
}

// bringHome returns the device or removes the child. It calls release as soon as the pod can't use the addresses any
// more: IPAM works while the device moves.
func (c returner) bringHome(e *journal.Entry, release func()) error {
	pod, err := c.podOf(e)
	if err != nil {
		return err
	}
	runner := c.runner(pod)
	r := &runner
	if e.Kind == journal.KindIPoIB {
		return c.removeChild(r, e)
	}
	wait := homeWait
	if e.VF != nil && e.VF.Rebind {
		wait = kernelMax // others may be rebinding theirs
	}
	if e.Missing {
		wait = unsureWait
	}
	ctx, cancel := bounded(wait)
	defer cancel()
	gone := func() bool { return c.gone(e, pod == nil) }
	home := homeOf(e)
	home.Keep = c.keptChildren(e)
	err = r.Return(ctx, home, apply.Events{Released: release, Gone: gone, Removed: c.removedUppers})
	defer c.settleNames(e.Claim)
	if errors.Is(err, apply.ErrGone) {
		c.log.Warn("device can't be returned", "device", e.Claim, "reason", err)
		return nil
	}
	if errors.Is(err, apply.ErrMissing) {
		return c.missing(e, err)
	}
	var partly *apply.RestoreError
	if errors.As(err, &partly) {
		return c.tryAgain(e, partly)
	}
	return err
}

// missing is for what an attachment has and DEL did not find. It keeps its addresses, its claim and its entry, which
// notes it, until it is found or proved gone: it may be in use, in a network namespace that the pod has made. The third
// DEL ends, so that the pod does. The next DEL, GC or repair looks again, and an ADD that wants the device.
func (c returner) missing(e *journal.Entry, err error) error {
	last := e.Missing || e.Tries+1 >= maxTries
	if last && !e.Missing {
		e.Missing = true
		if err := c.store.Save(e); err != nil {
			c.log.Error("can't note that a device is missing", "device", e.Claim, "reason", err)
		}
	}
	if last {
		c.log.Error("giving up after repeated tries: what the pod had stays reserved", "device", e.Claim, "reason", err)
		return &keptError{err}
	}
	return errors.Join(err, c.store.Try(e))
}

// keptError says that an attachment can't be returned, and its DEL is not to wait for that.
type keptError struct{ err error }

func (e *keptError) Error() string { return e.err.Error() }
func (e *keptError) Unwrap() error { return e.err }

// gone says that a device which is nowhere to be found does not come back: its hardware has left, or it is a virtual
// one, which the kernel deletes with the namespace it is in (net/core/dev.c, default_device_exit_batch).
func (c returner) gone(e *journal.Entry, pod bool) bool {
	if e.Address.IsZero() {
		// In a pod that is alive, it is known by its ifindex: the pod has deleted it. After an ADD that was killed it
		// has its own name and address, or the one that ADD gave it, because no container of the pod has run: it is
		// deleted too.
		return (pod || e.PodIndex != 0 || !e.Attached) && e.Netdev != nil && e.Netdev.Kind != "" && !c.hasPeer(e.Netdev)
	}
	return !c.host.Present(e.Address)
}

// hasPeer says whether the other end of a veth exists: then it does so itself, wherever it is.
func (c returner) hasPeer(was *device.Netdev) bool {
	if was.Kind != "veth" || was.Parent == 0 {
		return false
	}
	peer, err := c.host.Link.At(was.ParentIn, was.Parent)
	return err == nil && peer.Kind == "veth" && peer.ParentIn != nil // its other end is not on the host
}

// maxTries is how often DEL reports what may never end: a device that is home but could not be restored in full, an
// IPAM plugin that goes on. The runtime calls again each time; a cause that does not pass must not keep the pod
// Terminating for ever.
const maxTries = 3

func (c returner) tryAgain(e *journal.Entry, err error) error {
	if e.Tries+1 >= maxTries {
		c.log.Error("giving up after repeated tries", "device", e.Claim, "reason", err)
		return c.owe(e, err)
	}
	return errors.Join(err, c.store.Try(e))
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
