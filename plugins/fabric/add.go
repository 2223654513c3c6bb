package fabric

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/result"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

func (c *call) add() error {
	c.doing = fmt.Sprintf("attach %s to container %s", c.key.IfName, c.key.ContainerID)
	if err := c.openHost(); err != nil {
		return err
	}
	if err := c.openPod(); err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) { // not there, or a namespace of another kind
			return &failure{code: codeBadEnv, err: fmt.Errorf("CNI_NETNS %q: %w", c.env.Netns, err)}
		}
		return err
	}
	if err := c.rollBackEarlier(); err != nil {
		return err
	}
	var res *result.Result
	var err error
	switch c.cfg.Mode {
	case netconf.ModeIPoIB:
		res, err = c.addChild()
	case netconf.ModeRDMA:
		res, err = c.addRDMA()
	default:
		res, err = c.addDevice()
	}
	if err != nil {
		return err
	}
	return c.print(func(w io.Writer) error { return res.Print(w, c.cfg.CNIVersion) })
}

// rollBackEarlier clears what an earlier ADD of the same attachment has left: it was killed, or its pod is gone. One
// that is alive and complete is an error: the runtime has to call DEL first.
func (c *call) rollBackEarlier() error {
	e, err := c.store.Load(c.key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, journal.ErrCorrupt) {
		return c.delWithout()
	}
	if err != nil {
		return err
	}
	if e.Attached && e.Netns == c.pod.NS.ID && c.alive(e) {
		return inUse(e.Claim, e)
	}
	c.log.Warn("clearing what an earlier ADD of this attachment has left")
	return c.giveBack(e, c.staleDelegate(e))
}

// free makes sure that the name is not taken in the pod.
func (c *call) free(name string) error {
	n, err := c.pod.Link.ByName(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return &failure{
		code: codeBadEnv,
		err:  fmt.Errorf("CNI_IFNAME %s: the pod has an interface of this name (%s)", name, n.Name),
		todo: "choose another one, as in the annotation's NETWORK@INTERFACE",
	}
}

func (c *call) addDevice() (*result.Result, error) {
	if err := c.free(c.key.IfName); err != nil {
		return nil, err
	}
	dev, lock, err := c.acquire(func() (*inventory.Device, error) { return c.host.Find(c.cfg.Selector) })
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	if dev.Netdev == nil && dev.HCA == nil && !isUserspace(dev, c.host.Driver(dev.Address)) {
		return nil, &failure{
			code: codeNoDevice,
			err:  fmt.Errorf("device %s has neither a netdev nor an RDMA device on the host", dev.Address),
			todo: "look where it is: bound to another driver, or moved by another tool",
		}
	}
	move, vf, err := c.preflight(dev)
	if err != nil {
		return nil, err
	}
	e := c.newEntry(journal.KindDevice)
	e.Claim, e.Address, e.PCI, e.HCA, e.Netdev = dev.Claim(), dev.Address, dev.PCI, dev.HCA, dev.Netdev
	e.MoveRDMA, e.RDMAName, e.VF = move, c.cfg.RDMAName, vf.record()
	a := c.attach(e)
	a.vf = vf
	return a.finish(a.device(lock))
}

// attachment is one ADD between its first write and its result.
type attachment struct {
	*call
	entry  *journal.Entry
	runner apply.Runner
	lock   *journal.Lock
	ipam   *beside
	vf     *virtual // nil for what is none
	err    error
}

// attach begins: the intent goes to disk before anything changes, then the device is ours.
func (c *call) attach(e *journal.Entry) *attachment {
	a := &attachment{
		call:   c,
		entry:  e,
		runner: apply.Runner{Host: c.host, Pod: c.pod, EvictName: c.evictName, Renumbering: c.renumbering},
	}
	if a.err = c.store.Save(e); a.err != nil {
		return a
	}
	if e.Kind == journal.KindIPoIB {
		a.err = c.store.AddChild(e.Claim, e.Key)
	} else {
		a.err = c.store.Claim(e.Claim, e.Key)
	}
	if a.err == nil && !ipam.TypeOf(e.IPAM).NeedsInterface {
		a.ipam = startIPAM(c.delegate())
	}
	return a
}

// device takes the device into the pod and addresses it. The lock is not held while IPAM is awaited: from the claim on,
// the journal is the ownership.
func (a *attachment) device(lock *journal.Lock) (*result.Result, error) {
	if a.err != nil {
		return nil, a.err
	}
	ctx, cancel := bounded(kernelMax)
	defer cancel()
	e := a.entry
	var hca *device.HCA
	if e.MoveRDMA {
		hca = e.HCA
	}
	a.lock = lock
	a.runner.Track(hca, e.Netdev)
	a.runner.Undo.Push("attachment", a.giveDeviceBack)
	if err := a.virtual(ctx); err != nil {
		return nil, err
	}
	if t := taken(e); t != nil {
		hca = t
		a.runner.Track(hca, e.Netdev)
	}
	if err := a.runner.Run(ctx, plan.Attach(a.cfg, a.key.IfName, hca, e.Netdev)); err != nil {
		return nil, err
	}
	lock.Unlock()
	if e.Netdev == nil {
		return a.result(nil, nil)
	}
	return a.configure(ctx, e.Netdev)
}

// giveDeviceBack is the way back of an ADD that failed.
func (a *attachment) giveDeviceBack() error {
	ctx, cancel := bounded(kernelMax)
	defer cancel()
	return a.runner.Return(ctx, homeOf(a.entry), apply.Events{})
}

// configure gives the netdev, which is in the pod now, its settings and addresses.
func (a *attachment) configure(ctx context.Context, was *device.Netdev) (*result.Result, error) {
	have, err := a.runner.Current()
	if err != nil {
		return nil, err
	}
	steps := plan.Configure(a.cfg, was, have, a.vf.function())
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
	for _, s := range plan.Address(a.cfg, addressing(ips), have) {
		err := a.runner.Run(ctx, []plan.Step{s})
		if _, ok := s.(plan.Announce); ok && err != nil {
			a.log.Warn("neighbours were not told of the new address", "reason", err)
			continue
		}
		if err != nil {
			return nil, err
		}
	}
	return a.result(have, ips)
}

// addresses waits for IPAM, or calls it now when it needed the interface.
func (a *attachment) addresses() (*result.Result, error) {
	if a.ipam == nil {
		a.ipam = startIPAM(a.delegate())
	}
	return a.ipam.wait()
}

func (a *attachment) result(have *device.Netdev, ips *result.Result) (*result.Result, error) {
	if have == nil {
		var err error
		if ips, err = a.addresses(); err != nil {
			return nil, err
		}
	}
	var iface result.Interface
	if have == nil &&
		a.entry.HCA == nil { // with a driver for userspace: nothing is in the pod, but it has the function
		iface = result.Interface{Name: a.key.IfName, MAC: a.cfg.VF.MAC.String(), PCIID: a.entry.PCI}
	}
	if have != nil {
		iface = result.Interface{
			Name:    have.Name,
			MAC:     have.HWAddr.String(),
			MTU:     have.MTU,
			Sandbox: a.env.Netns,
			PCIID:   a.entry.PCI,
		}
	}
	var prev *result.Result
	if a.cfg.PrevResult != nil {
		var err error
		if prev, err = result.Parse(a.cfg.PrevResult, a.cfg.CNIVersion); err != nil {
			return nil, &failure{code: codeBadConfig, err: fmt.Errorf("field \"prevResult\": %w", err)}
		}
	}
	return result.Extend(prev, iface, ips, a.cfg.DNS), nil
}

// finish commits, or takes everything back. The entry goes only when nothing is left of the attachment.
func (a *attachment) finish(res *result.Result, err error) (*result.Result, error) {
	if err == nil {
		a.entry.Attached = true
		if err = a.store.Save(a.entry); err == nil {
			a.runner.Undo.Release()
			a.describe(a.entry)
			return res, nil
		}
	}
	errs := []error{err}
	if a.ipam != nil {
		if _, ierr := a.ipam.wait(); ierr == nil {
			if derr := a.delegate().Del(context.Background()); derr != nil {
				errs = append(errs, derr)
			}
		} else if !errors.Is(err, ierr) {
			errs = append(errs, ierr)
		}
	}
	defer a.relock().Unlock()
	undone := a.runner.Undo.Run()
	if undone == nil {
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
	if a.lock == nil || a.lock.Held() {
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

// forget removes every trace of an attachment. The claim goes first: an entry without a claim touches no device.
func (c *call) forget(e *journal.Entry) error {
	var err error
	if e.Kind == journal.KindIPoIB {
		err = c.store.RemoveChild(e.Claim, e.Key)
	} else if e.Claim != "" {
		err = c.store.Disclaim(e.Claim, e.Key)
	}
	if err != nil {
		return err
	}
	return c.store.Remove(e.Key)
}

// evictName is apply.Runner's EvictName. The holder's lock is not waited for: the call that has it gives the name up by
// itself, and may be waiting for ours.
func (c *call) evictName(holder *device.Netdev, act func() error) (bool, error) {
	claim := holder.Address.String()
	owner, ok, err := c.store.Owner(claim)
	if err != nil || !ok {
		return false, nil
	}
	e, err := c.store.Load(owner)
	if err != nil || e.Netdev == nil || e.Netdev.Name == holder.Name {
		return false, nil
	}
	at, cancel := context.WithCancel(context.Background())
	cancel()
	lock, err := c.store.Lock(at, claim)
	if errors.Is(err, journal.ErrBusy) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Unlock()
	return true, act()
}

// addressing turns an IPAM result into what plan works with.
func addressing(ips *result.Result) *plan.Addressing {
	out := &plan.Addressing{}
	if ips == nil {
		return out
	}
	for _, a := range ips.Addresses {
		out.Addrs = append(out.Addrs, a.Prefix)
		out.Gateways = append(out.Gateways, a.Gateway)
	}
	for _, r := range ips.Routes {
		d := device.Route{
			Dst:      r.Dst,
			Gateway:  r.Gateway,
			MTU:      uint32(r.MTU),
			AdvMSS:   uint32(r.AdvMSS),
			Priority: uint32(r.Priority),
		}
		if r.Table != nil {
			d.Table = uint32(*r.Table)
		}
		if r.Scope != nil {
			d.Scope = uint8(*r.Scope)
		}
		out.Routes = append(out.Routes, d)
	}
	return out
}
