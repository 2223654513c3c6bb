package fabric

import (
	"context"
	"errors"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/result"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// attachment is one ADD between its first write and its result: it carries a decision out.
type attachment struct {
	*call
	*attach.Attachment
	entry      *journal.Entry
	runner     apply.Runner
	lock       *journal.Lock // of the device
	guids      *journal.Lock
	chosen     choice
	turn       *journal.Lock
	ipam       *pendingIPAM
	superseded *superseded // nil: it is this ADD's still
}

func newAttachment(a *adder, d *attach.Decision) *attachment {
	return &attachment{
		call: a.call, Attachment: d.Attachment, entry: a.newEntry(d, &a.chosen), runner: a.runner(a.pod),
		lock: a.device, guids: a.guids, chosen: a.chosen, turn: a.turn,
	}
}

// run attaches, or takes everything back.
func (a *attachment) run() (*result.Result, error) {
	if a.entry.Kind == journal.KindRDMA && !a.MoveRDMA { // shared mode: the pod sees the RDMA device already
		prev, err := a.prevResult()
		if err != nil {
			return nil, err
		}
		a.entry.Attached = true // so that DEL knows that there is nothing to return
		return result.Extend(prev, result.Interface{}, nil, netconf.DNS{}), a.store.Save(a.entry)
	}
	if err := a.begin(); err != nil {
		return a.finish(nil, err)
	}
	ctx, cancel := bounded(kernelMax)
	defer cancel()
	switch a.entry.Kind {
	case journal.KindIPoIB:
		return a.finish(a.child(ctx))
	case journal.KindRDMA:
		return a.finish(a.rdma(ctx))
	}
	return a.finish(a.device(ctx))
}

// begin makes the intent durable before anything changes; then the device is ours.
func (a *attachment) begin() error {
	e := a.entry
	err := a.installed() // it may have waited for the device
	if err == nil {
		err = a.saveIntent()
	}
	if err != nil {
		return err
	}
	if e.Kind == journal.KindIPoIB {
		err = a.store.AddChild(e.Claim, e.Key)
	} else {
		err = a.store.Claim(e.Claim, e.Key)
	}
	if err == nil {
		err = a.alone()
	}
	a.guids.Unlock()
	a.turn.Unlock() // the next ADD of the pod sees the entry
	if err == nil && !ipam.TypeOf(e.IPAM).NeedsInterface {
		a.ipam = a.startIPAM()
	}
	return err
}

// device moves the device into the pod and configures it. The lock is not held while IPAM is awaited: from the claim
// on, the journal is the ownership.
func (a *attachment) device(ctx context.Context) (*result.Result, error) {
	e, hca := a.entry, a.HCA()
	a.runner.Track(hca, e.Netdev)
	a.runner.Undo.Push("attachment", a.giveDeviceBack)
	if err := a.prepare(ctx); err != nil {
		return nil, err
	}
	now := hca
	if t := attachedHCA(e); t != nil {
		now = t
		a.runner.Track(now, e.Netdev)
	}
	if err := a.runner.Run(ctx, a.Attach(now)); err != nil {
		return nil, err
	}
	a.lock.Unlock()
	if e.Netdev != nil {
		return a.configure(ctx)
	}
	ips, err := a.addresses()
	if err != nil {
		return nil, err
	}
	var iface result.Interface
	if e.HCA == nil { // with a driver for userspace: nothing is in the pod, but it has the function
		iface = result.Interface{Name: a.key.IfName, MAC: a.cfg.VF.MAC.String(), PCIID: e.PCI}
	}
	return a.result(iface, ips)
}

// child creates an IPoIB child in the pod. The master stays on the host; its lock is held until the child is recorded
// and made, so that no call moves the master meanwhile.
func (a *attachment) child(ctx context.Context) (*result.Result, error) {
	if err := a.runner.Run(ctx, a.Attach(nil)); err != nil {
		return nil, err
	}
	a.lock.Unlock()
	have, err := a.runner.Current()
	if err != nil {
		return nil, err
	}
	a.entry.Child.HWAddr = have.HWAddr.String()
	a.noteQP(have.HWAddr)
	return a.configure(ctx)
}

// rdma moves the RDMA device of a netdev that an earlier plugin of the chain has put into the pod. On InfiniBand the
// move destroys that netdev: the new one gets everything the earlier plugin gave it.
func (a *attachment) rdma(ctx context.Context) (*result.Result, error) {
	prev, err := a.prevResult()
	if err != nil {
		return nil, err
	}
	e := a.entry
	a.runner.Track(e.HCA, e.Netdev)
	a.runner.Undo.Push("attachment", a.giveDeviceBack)
	if err := a.runner.Run(ctx, a.Attach(e.HCA)); err != nil {
		return nil, err
	}
	var iface result.Interface
	if e.Netdev != nil {
		have, err := a.runner.Current()
		if err != nil {
			return nil, err
		}
		if err := a.pod.Snapshot(have); err != nil {
			return nil, err
		}
		if err := a.runner.Run(ctx, a.Configure(have)); err != nil {
			return nil, err
		}
		if have, err = a.runner.Current(); err != nil {
			return nil, err
		}
		if prev != nil { // its hardware address has a new QPN
			iface = result.Interface{
				Name:    have.Name,
				MAC:     have.HWAddr.String(),
				Sandbox: sandboxOf(prev, have.Name, a.env.Netns),
			}
		}
	}
	return result.Extend(prev, iface, nil, netconf.DNS{}), nil
}

func sandboxOf(prev *result.Result, name, netns string) string {
	if x, ok := prev.Expect(name, netns); ok {
		return x.Interface.Sandbox
	}
	return netns
}

// configure gives the netdev, which is in the pod now, its settings and addresses.
func (a *attachment) configure(ctx context.Context) (*result.Result, error) {
	have, err := a.runner.Current()
	if err != nil {
		return nil, err
	}
	steps := a.Configure(have)
	if err := a.runner.Run(ctx, steps); err != nil {
		return nil, err
	}
	ips, err := a.addresses()
	if err != nil {
		return nil, err
	}
	if len(steps) > 0 {
		if have, err = a.runner.Current(); err != nil {
			return nil, err
		}
	}
	a.entry.PodIndex = have.Index
	for _, s := range a.Address(addressing(ips), have) {
		err := a.runner.Run(ctx, []plan.Step{s})
		if _, ok := s.(plan.Announce); ok && err != nil {
			a.log.Warn("the new address was not announced to the neighbours", "reason", err)
			continue
		}
		if errors.Is(err, apply.ErrNoCarrier) && a.cfg.AllowDown {
			a.log.Warn("nobody could be asked whether the addresses are free", "reason", err)
			continue
		}
		if err != nil {
			return nil, err
		}
	}
	return a.result(result.Interface{
		Name:    have.Name,
		MAC:     have.HWAddr.String(),
		MTU:     have.MTU,
		Sandbox: a.env.Netns,
		PCIID:   a.entry.PCI,
	}, ips)
}

func (a *attachment) result(iface result.Interface, ips *result.Result) (*result.Result, error) {
	prev, err := a.prevResult()
	if err != nil {
		return nil, err
	}
	return result.Extend(prev, iface, ips, a.cfg.DNS), nil
}

// giveDeviceBack is the way back of an ADD that failed.
func (a *attachment) giveDeviceBack() error {
	ctx, cancel := bounded(kernelMax)
	defer cancel()
	home := homeOf(a.entry)
	home.Keep = a.keptChildren(a.entry)
	return a.runner.Return(ctx, home, apply.Events{Removed: a.removedUppers})
}

// finish commits, or takes everything back. The entry goes only when nothing is left of the attachment.
func (a *attachment) finish(res *result.Result, err error) (*result.Result, error) {
	if err == nil {
		a.entry.Attached = true
		if err = a.store.Save(a.entry); err == nil {
			a.runner.Undo.Release()
			a.describe()
			return res, nil
		}
	}
	errs := []error{err}
	held := false
	if a.ipam != nil {
		var rerr error
		held, rerr = a.releaseAddresses(err)
		errs = append(errs, rerr)
	}
	if a.superseded != nil {
		return nil, errors.Join(append(errs, a.superseded.clear(a))...)
	}
	defer a.relock().Unlock()
	undone := a.runner.Undo.Run()
	switch {
	case undone != nil:
	case held: // DEL has something to give back
		undone = a.disclaim(a.entry)
	default:
		undone = a.forget(a.entry)
	}
	if undone != nil {
		errs = append(errs, undone)
	}
	return nil, errors.Join(errs...)
}

// relock takes the device's lock again for the way back, unless it is held still: without it another call could take
// the device for idle. If it is not to be had, the way back has to do without.
func (a *attachment) relock() *journal.Lock {
	if a.entry.Kind == journal.KindIPoIB || a.lock.Held() {
		return nil
	}
	ctx, cancel := bounded(lockWait)
	defer cancel()
	lock, err := a.store.Lock(ctx, a.entry.Claim)
	if err != nil {
		a.log.Warn("undoing without the device's lock", "reason", err)
	}
	return lock
}

// homeOf is where the device of an attachment belongs. ADD and DEL return it from the same values.
func homeOf(e *journal.Entry) plan.Home {
	h := plan.Home{
		Netdev: e.Netdev, VF: vfHome(e), Attached: attachedHCA(e), Elapsed: elapsed(e),
		Child: e.Kind == journal.KindIPoIB, VFs: e.VFs, PodIndex: e.PodIndex,
	}
	if e.MoveRDMA {
		h.HCA = e.HCA
	}
	if e.Kind == journal.KindRDMA {
		h.Side = plan.Pod // where the plugin that put the netdev there will look for it
	}
	return h
}

// vfHome is what a virtual function had before ADD; nil if nothing of it was to be changed, nor its driver bound.
func vfHome(e *journal.Entry) *plan.VFHome {
	if e.VF == nil || len(e.VF.Set) == 0 && !e.VF.Rebind {
		return nil
	}
	return &plan.VFHome{VF: &e.VF.Was, Set: e.VF.Set, Rebind: e.VF.Rebind, HCA: e.HCA, Netdev: e.Netdev != nil}
}

// attachedHCA is the RDMA device as it went into the pod, if its driver was bound again before; nil otherwise.
func attachedHCA(e *journal.Entry) *device.HCA {
	if e.VF == nil || !e.MoveRDMA {
		return nil
	}
	return e.VF.HCA
}
