package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/failpoint"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
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
		err = a.store.AddChild(e.DeviceKey, e.Key)
	} else {
		err = a.store.SetOwner(e.DeviceKey, e.Key)
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

// addressLock is the name under which what is to be unique is compared with the journal and written to it. No device is
// named so. Nothing else is waited for by who holds it.
const addressLock = "addresses"

// saveIntent writes the entry before anything changes. What two calls at once found to be free goes to the first one.
func (a *attachment) saveIntent() error {
	e := a.entry
	if e.MAC == "" && len(e.Addresses) == 0 {
		return a.store.Save(e)
	}
	ctx, cancel := bounded(lockWait)
	defer cancel()
	lock, err := a.store.Lock(ctx, addressLock)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	ofMAC, ofAddr, err := a.duplicatesInPods(e.MAC, e.Addresses)
	switch {
	case err != nil:
		return err
	case ofMAC != nil:
		return refused(ofMAC.Refusal("mac"))
	case ofAddr != nil:
		return refused(ofAddr.Refusal("ipam"))
	}
	return a.store.Save(e)
}

// alone makes sure that no other call has taken the PF of this VF, or a VF of this PF, since it was looked at: each
// has its own lock. Both calls take theirs before they look, so that one of them at least sees the other.
func (a *attachment) alone() error {
	var related []device.Address
	if a.PF != nil {
		related = append(related, *a.PF)
	} else {
		var err error
		if related, err = a.host.Functions(a.entry.Address); err != nil {
			return err
		}
	}
	for _, f := range related {
		k, ok, err := a.store.Owner(f.String())
		if err != nil {
			return err
		}
		if ok && k != a.key {
			return refused(&attach.Refusal{
				Reason: attach.InUse,
				Message: fmt.Sprintf("function %s of the same card as %s has just been taken by %s as %s",
					f.Name, a.entry.DeviceKey, k.Who(), k.IfName),
				Hint: "a PF and its VFs can't be in pods at the same time",
			})
		}
	}
	return nil
}

// device moves the device into the pod and configures it. The lock is not held while IPAM is awaited: from begin
// on, the journal has its owner.
func (a *attachment) device(ctx context.Context) (*result.Result, error) {
	e, hca := a.entry, a.HCA()
	a.runner.Track(hca, e.Netdev)
	a.runner.Undo.Push("attachment", a.giveDeviceBack)
	if err := a.connections(); err != nil {
		return nil, err
	}
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

// prepare changes the settings of a VF. When that has made new ones, they are what goes into the pod; the journal has
// them before they move.
func (a *attachment) prepare(ctx context.Context) error {
	e := a.entry
	if err := a.runner.Run(ctx, a.Prepare()); err != nil {
		return a.notAnew(err)
	}
	if a.PF != nil { // not before: an ADD that is killed has the next one bind the driver again
		if err := a.store.NoteTenant(e.DeviceKey, a.cfg.Pod.Namespace); err != nil {
			return err
		}
	}
	if len(a.Prepare()) == 0 {
		return nil
	}
	var dev *inventory.Device
	if a.Change.Rebind {
		var err error
		if dev, err = a.host.At(e.Address); err != nil {
			return fmt.Errorf("find the device after its driver was bound again: %w", err)
		}
		e.VF.HCA = dev.HCA
		if err := a.store.Save(e); err != nil {
			return err
		}
	}
	return a.portUp(ctx, dev)
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

// noteQP notes in the entry by what childGone can tell later that the new child is gone.
func (a *attachment) noteQP(hwaddr net.HardwareAddr) {
	hca, child := a.Device.HCA, a.entry.Child
	qpn, ok := device.QPNOf(hwaddr)
	if hca == nil || !ok {
		return
	}
	child.HCA = &hca.Index
	var err error
	if child.Listed, err = a.host.RDMA.HasQP(hca.Index, qpn); err != nil {
		a.log.Warn("the child can't be proved gone by its queue pair later", "reason", err)
	}
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
	if err := a.connections(); err != nil {
		return nil, err
	}
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
			a.log.Warn("no neighbour could be asked whether the addresses are free", "reason", err)
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

// pendingIPAM is an IPAM ADD that runs while the device moves.
type pendingIPAM struct {
	done chan struct{}
	res  *result.Result
	err  error
}

func (a *attachment) startIPAM() *pendingIPAM {
	p, d := &pendingIPAM{done: make(chan struct{})}, a.delegate()
	if d.Type == "" {
		close(p.done)
		return p
	}
	// Here, where no device is on its way: a SIGKILL within a move has effects of its own, see kernel fact 46.
	if p.err = failpoint.Hit("before/ipam-add"); p.err != nil {
		close(p.done)
		return p
	}
	go func() {
		defer close(p.done)
		p.err = a.callIPAM(a.key, d, func(d ipam.Delegate) (err error) {
			p.res, err = d.Add(context.Background())
			return err
		})
	}()
	return p
}

func (p *pendingIPAM) wait() { <-p.done }

func (p *pendingIPAM) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// addresses waits for IPAM, or calls it now when it needed the interface. An interface that keeps the addresses of the
// host has no IPAM plugin.
func (a *attachment) addresses() (*result.Result, error) {
	if a.Host != nil {
		return resultOf(&a.Host.Addressing), nil
	}
	if a.ipam == nil {
		a.ipam = a.startIPAM()
	}
	if err := a.await(); err != nil {
		return nil, err
	}
	return a.ipam.res, a.ipam.err
}

// await waits for IPAM and holds no lock meanwhile: an IPAM plugin may hang, and no other call is to hang with it. A
// DEL, or another ADD of this container and interface, may have returned the device by then, and the next pod may have
// it: then nothing of it may be touched.
func (a *attachment) await() error {
	if a.superseded == nil && !a.ipam.ended() {
		a.lock.Unlock()
		a.letGo()
		a.ipam.wait()
		var err error
		if a.superseded, err = a.regain(); err != nil {
			a.superseded = &superseded{err: err}
		}
	}
	if a.superseded != nil {
		return a.superseded
	}
	return nil
}

// superseded says that an attachment is not its ADD's any more.
type superseded struct {
	err       error
	addresses bool // no other call gives back what IPAM has given: this ADD has to
	entry     bool // likewise what is left on disk
}

func (s *superseded) Error() string { return s.err.Error() }

func (s *superseded) Unwrap() error { return s.err }

// regain takes the attachment's lock again and looks whether the attachment is this ADD's still.
func (a *attachment) regain() (*superseded, error) {
	if err := a.hold(); err != nil {
		return nil, err // the call that works on it for so long returns it, and calls IPAM's DEL
	}
	e, err := a.store.Load(a.key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &superseded{err: returned("DEL came while ADD waited for its IPAM plugin"), addresses: true}, nil
	case err != nil:
		return nil, err
	case e.Nonce != a.entry.Nonce:
		return &superseded{err: &failure{
			code: codeInUse, err: errors.New("another ADD of this attachment came while this one waited for IPAM"),
		}}, nil
	}
	mine, err := a.holdsDevice()
	if err != nil || mine {
		return nil, err
	}
	const what = "its device was returned while ADD waited for its IPAM plugin"
	return &superseded{err: returned(what), addresses: true, entry: true}, nil
}

// returned is the error of an ADD whose attachment has been ended meanwhile. Nothing is left of it: the specification
// has a code for that.
func returned(what string) error {
	return &failure{code: types.ErrUnknownContainer, err: fmt.Errorf("%s", what)}
}

// holdsDevice says whether the journal has the device, or the child on it, as this attachment's.
func (a *attachment) holdsDevice() (bool, error) {
	e := a.entry
	if e.Kind == journal.KindIPoIB {
		users, err := a.store.Children(e.DeviceKey)
		return slices.Contains(users, e.Key), err
	}
	owner, ok, err := a.store.Owner(e.DeviceKey)
	return ok && owner == e.Key, err
}

// finish commits, or takes everything back. The entry goes only when nothing is left of the attachment.
func (a *attachment) finish(res *result.Result, err error) (*result.Result, error) {
	if err == nil {
		err = a.confirm()
	}
	if err == nil {
		a.entry.Attached = len(a.entry.OtherPorts) == 0 // else ports.attach sets it, when it has them all
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
		if a.superseded.entry {
			errs = append(errs, a.erase(a.entry))
		}
		return nil, errors.Join(errs...)
	}
	defer a.relock().Unlock()
	undone := a.runner.Undo.Run()
	switch {
	case undone != nil:
	case held: // DEL has something to give back
		undone = a.clearOwner(a.entry)
	default:
		undone = a.forget(a.entry)
	}
	if undone != nil {
		errs = append(errs, undone)
	}
	return nil, errors.Join(errs...)
}

// confirm makes sure that the pod still has its RDMA device. A driver may make it anew when its interface moves: the
// kernel puts a new one on the host, and programs in the pod would use TCP.
func (a *attachment) confirm() error {
	hca := a.HCA()
	if t := attachedHCA(a.entry); t != nil {
		hca = t
	}
	if hca == nil || a.entry.Netdev == nil || a.entry.Netdev.IsIPoIB() {
		return nil
	}
	_, err := a.pod.RDMA.ByIndex(hca.Index)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return &failure{
		code: codeKernel,
		err: fmt.Errorf("RDMA device %s left the pod when interface %s moved there: its driver %s makes it anew",
			hca.Name, a.entry.Netdev.Name, a.Device.Driver),
		hint: "use shared RDMA mode on this node, or an adapter whose driver keeps the device",
	}
}

// giveDeviceBack is the way back of an ADD that failed.
func (a *attachment) giveDeviceBack() error {
	ctx, cancel := bounded(kernelMax)
	defer cancel()
	home := homeOf(a.entry)
	home.Keep = a.keptChildren(a.entry)
	return a.runner.Return(ctx, home, apply.Events{Removed: a.removedUppers})
}

// releaseAddresses waits for IPAM and gives back what it has given, in an ADD that has failed with err. held is set if
// the plugin may hold addresses all the same.
func (a *attachment) releaseAddresses(err error) (held bool, _ error) {
	var errs []error
	if werr := a.await(); werr != nil && !errors.Is(err, werr) {
		errs = append(errs, werr)
	}
	ierr := a.ipam.err
	held = errors.Is(ierr, ipam.ErrHeld)
	switch {
	case ierr != nil && !errors.Is(err, ierr):
		errs = append(errs, ierr)
	case ierr == nil && (a.superseded == nil || a.superseded.addresses):
		derr := a.callIPAMDel(a.key, a.delegate())
		held = derr != nil
		errs = append(errs, derr)
	}
	return held, errors.Join(errs...)
}

// relock takes the device's lock again for the way back, unless it is held still: without it another call could take
// the device for idle. If it is not to be had, the way back has to do without.
func (a *attachment) relock() *journal.Lock {
	if a.entry.Kind == journal.KindIPoIB || a.lock.Held() {
		return nil
	}
	ctx, cancel := bounded(lockWait)
	defer cancel()
	lock, err := a.store.Lock(ctx, a.entry.DeviceKey)
	if err != nil {
		a.log.Warn("undoing without the device's lock", "reason", err)
	}
	return lock
}
