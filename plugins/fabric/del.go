package fabric

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/failpoint"
	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/result"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
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
		return errors.Join(ports{c}.del(nil), newUnjournaled(c, damaged).run())
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
	return errors.Join(ports{c}.del(e), ended(returner{c}.giveBack(e, d)))
}

// passOn is the ADD of a plugin whose work the plugin before it in the chain has done. The entry says that it was here:
// its DEL comes first, and leaves the device to the other one's.
func (c *call) passOn() error {
	prev, err := c.prevResult()
	if err != nil {
		return err
	}
	e, err := c.store.Load(c.key)
	if err != nil {
		return err
	}
	e.Chained = true
	if err := c.store.Save(e); err != nil {
		return err
	}
	c.log.Info("the plugin before this one in the chain has moved the RDMA device", "device", e.DeviceKey)
	res := result.Extend(prev, result.Interface{}, nil, netconf.DNS{})
	return c.print(func(w io.Writer) error { return res.Print(w, c.cfg.CNIVersion) })
}

// passedOn says whether a DEL is that of a plugin that has passed on. It is so once: whatever comes after it, and
// whatever the configuration has become, returns the device.
func (c *call) passedOn(e *journal.Entry) bool {
	if !e.Chained || c.cfg.Mode != netconf.ModeRDMA {
		return false
	}
	e.Chained = false
	if err := c.store.Save(e); err != nil {
		c.log.Warn("the device is returned at once", "reason", err)
		return false
	}
	return true
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

// giveBack returns everything an attachment holds: device, child, addresses, ownership and entry. The caller holds the
// attachment's lock. What fails does not stop the rest: another call finds less to do. The entry stays until nothing is
// left.
func (c returner) giveBack(e *journal.Entry, d ipam.Delegate) error {
	var lock *journal.Lock
	if e.DeviceKey != "" { // else nothing was taken
		ctx, cancel := bounded(lockWait)
		defer cancel()
		var err error
		if lock, err = c.store.Lock(ctx, e.DeviceKey); err != nil {
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

// takeHome returns the device or removes the child, and then gives up the ownership: from there on any pod may have the
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
		err = c.clearOwner(e)
	}
	return result, err
}

// owns says whether the attachment still has what its entry speaks of. After a reboot, or when the device has gone to
// another attachment, there is nothing of it left on the kernel's side.
func (c returner) owns(e *journal.Entry) (bool, error) {
	if e.DeviceKey == "" || e.BeforeBoot(c.bootID()) {
		return false, nil
	}
	if e.Kind == journal.KindIPoIB {
		return true, nil
	}
	owner, ok, err := c.store.Owner(e.DeviceKey)
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
	defer c.names().restoreNames(e.DeviceKey)
	if errors.Is(err, apply.ErrGone) {
		c.log.Warn("device can't be returned", "device", e.DeviceKey, "reason", err)
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

// removedUppers is apply.Events' Removed. The pod has chosen the names, and their number: the log has the first ten.
func (s *session) removedUppers(all []device.Netdev) {
	for i := range all[:min(len(all), 10)] {
		s.log.Warn("removed what the pod had made on the device", "interface", all[i].Name, "kind", all[i].Kind,
			"removed", len(all))
	}
}

// keptChildren are the IPoIB children that other attachments have in the pod of this one. They are read only where a
// child could be taken for one on this device: where its IPoIB netdev has moved without the RDMA device.
func (s *session) keptChildren(e *journal.Entry) []plan.KeptChild {
	if e.Kind != journal.KindDevice || e.MoveRDMA || e.Netdev == nil || !e.Netdev.IsIPoIB() {
		return nil
	}
	var out []plan.KeptChild
	for _, o := range s.store.Of(e.ContainerID) {
		if o.Child != nil {
			hw, _ := net.ParseMAC(o.Child.HWAddr) // not known yet: then the group has to do
			out = append(out, plan.KeptChild{HWAddr: hw, Group: o.Child.Group})
		}
	}
	return out
}

// missing is for what an attachment has and DEL did not find. It keeps its addresses, its ownership and its entry,
// which notes it, until it is found or proved gone: it may be in use, in a network namespace that the pod has made. The
// third DEL ends, so that the pod does. The next DEL, GC or repair looks again, and an ADD that wants the device.
func (c returner) missing(e *journal.Entry, err error) error {
	last := e.Missing || e.Tries+1 >= maxTries
	if last && !e.Missing {
		e.Missing = true
		if err := c.store.Save(e); err != nil {
			c.log.Error("can't note that a device is missing", "device", e.DeviceKey, "reason", err)
		}
	}
	if last {
		c.log.Error("giving up after repeated tries: what the pod had stays reserved", "device", e.DeviceKey,
			"reason", err)
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
		c.log.Error("giving up after repeated tries", "device", e.DeviceKey, "reason", err)
		return c.names().setPending(e, err)
	}
	return errors.Join(err, c.store.Try(e))
}

// unsureWait bounds the wait for what earlier calls did not find.
const unsureWait = 3 * time.Second

// soon is when a child that is not where it belongs is looked for elsewhere.
const soon = 200 * time.Millisecond

// removeChild deletes the child wherever it is. When the pod's namespace is gone the kernel has put it on the host, or
// is about to; or the pod has moved it to another namespace before. A child that is found nowhere is gone only if the
// kernel says that its queue pair is.
func (c returner) removeChild(r *apply.Runner, e *journal.Entry) error {
	users, err := c.store.Children(e.DeviceKey)
	if err != nil {
		return err
	}
	removed := !slices.Contains(users, e.Key) // by an earlier call
	ctx, cancel := bounded(kernelMax)
	defer cancel()
	wait := homeWait
	switch {
	case r.Pod != nil, removed: // the kernel has nothing to bring
		wait = 0
	case e.Missing:
		wait = unsureWait
	}
	end, next := time.Now().Add(wait), time.Now().Add(soon)
	for {
		found, err := c.deleteChild(ctx, r, e)
		if found || err != nil {
			return err
		}
		last := !time.Now().Before(end)
		if last && removed {
			return releaseRules(ctx, r)
		}
		if last || !time.Now().Before(next) {
			gone, err := c.childGone(e)
			if gone || err != nil {
				return errors.Join(err, releaseRules(ctx, r))
			}
			if c.childElsewhere(ctx, e) {
				return releaseRules(ctx, r)
			}
			if last {
				return c.childLost(ctx, r, e)
			}
			next = time.Now().Add(time.Second)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// deleteChild deletes the child if it is in the pod or on the host.
func (c returner) deleteChild(ctx context.Context, r *apply.Runner, e *journal.Entry) (found bool, err error) {
	for _, side := range []plan.Side{plan.Pod, plan.Host} {
		s := r.Pod
		if side == plan.Host {
			s = r.Host
		}
		if s == nil {
			continue
		}
		n, err := s.Child(childOf(e, side == plan.Host))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		r.Track(nil, n)
		w := plan.Where{Netdev: n, NetdevSide: side, PodGone: r.Pod == nil}
		if side == plan.Pod {
			if w.Rules, err = s.Link.Rules(); err != nil {
				return false, err
			}
		}
		return true, r.Run(ctx, plan.Preview(w, plan.Home{Child: true}))
	}
	return false, nil
}

// childElsewhere looks into all other network namespaces for the child, and deletes it where it finds it.
func (c returner) childElsewhere(ctx context.Context, e *journal.Entry) (found bool) {
	_ = netns.Search(c.Proc, func(ns *netns.NS) bool {
		if ns.ID == c.host.NS.ID {
			return false
		}
		s, done, err := apply.OpenSide(ns)
		if err != nil {
			return false
		}
		defer done()
		n, err := s.Child(childOf(e, false))
		if err != nil {
			return false
		}
		r := c.runner(s)
		r.Track(nil, n)
		steps := plan.Preview(plan.Where{Netdev: n, NetdevSide: plan.Pod}, plan.Home{Child: true})
		found = r.Run(ctx, steps) == nil
		return found
	})
	if found {
		c.log.Warn("the pod had moved its interface to another network namespace", "parent", e.DeviceKey)
	}
	return found
}

// childGone says whether the kernel has deleted the child. It has a queue pair of its parent's HCA as long as it lives,
// whose number is in its hardware address (drivers/infiniband/ulp/ipoib/ipoib_verbs.c). That nldev does not list it
// proves something only if nldev did once. One whose address was never written down was not in a pod that ran.
func (c returner) childGone(e *journal.Entry) (bool, error) {
	qpn, ok := device.QPNOf(childOf(e, false).HWAddr)
	if !ok {
		return false, nil
	}
	if !c.host.Present(e.Child.Parent) {
		return true, nil
	}
	d, err := c.host.At(e.Child.Parent)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return false, err
	case d.HCA == nil: // moved, which destroys its IPoIB interfaces: kernel fact 1
		return true, nil
	case e.Child.HCA != nil && *e.Child.HCA != d.HCA.Index:
		return true, nil
	case !e.Child.Listed:
		return false, nil
	}
	there, err := c.host.RDMA.HasQP(d.HCA.Index, qpn)
	return err == nil && !there, err
}

// childLost is for a child that was found nowhere, and that may be alive.
func (c returner) childLost(ctx context.Context, r *apply.Runner, e *journal.Entry) error {
	if e.Child.HWAddr == "" { // ADD was killed before it had seen one
		return releaseRules(ctx, r)
	}
	why := "the kernel still has its queue pair"
	if !e.Child.Listed {
		why = "the kernel did not list its queue pair when it was made, so it can't be proved gone"
	}
	return c.missing(e, fmt.Errorf("the IPoIB child of %s with the hardware address %s: %w: %s", e.DeviceKey,
		e.Child.HWAddr, apply.ErrMissing, why))
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
	return r.Run(ctx, plan.ReleaseOrphans(there, rules, nil))
}

func releaseRules(ctx context.Context, r *apply.Runner) error {
	if r.Pod == nil {
		return nil
	}
	return releaseOrphans(ctx, r)
}

// removeStrays removes what a pod has made on its netdev and moved into a third network namespace. It is the pod's: ADD
// refuses a netdev that something of another namespace sits on.
func (c returner) removeStrays(e *journal.Entry) error {
	if e.Kind != journal.KindDevice || e.Netdev == nil || e.Netdev.IsIPoIB() {
		return nil
	}
	n, err := c.host.Netdev(e.Netdev)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.eachStray(n.Index, func(ns *netns.NS, l *link.Conn, u *device.Netdev) error {
		c.log.Warn("removed what the pod had made on the device, and moved", "interface", u.Name, "kind", u.Kind,
			"netns", ns.Path)
		return apply.DeleteStray(l, u.Index)
	})
}
