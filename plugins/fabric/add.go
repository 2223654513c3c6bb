package fabric

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// add is the verb ADD: it decides, records, and carries the decision out.
func add(c *call) error {
	c.doing = fmt.Sprintf("attach %s to %s", c.key.IfName, c.who())
	if err := c.openHost(); err != nil {
		return err
	}
	if err := c.openPodForAdd(); err != nil {
		return err
	}
	if err := c.hold(); err != nil {
		return err
	}
	a := &adder{call: c}
	defer a.end()
	given := a.allocatedToPod()
	if err := a.takeTurn(given); err != nil {
		return err
	}
	var err error
	if a.chosen, err = a.choose(given); err != nil {
		return err
	}
	a.cfg = a.chosen.cfg
	d, err := a.decide()
	if err != nil {
		return err
	}
	if d.Done {
		return c.passOn()
	}
	if c.cfg.Mode != netconf.ModeRDMA { // there the addresses are the earlier plugin's
		if err := c.delegate().Usable("ADD"); err != nil {
			return err
		}
	}
	res, err := newAttachment(a, d).run()
	if err != nil {
		return err
	}
	a.unlock()
	c.letGo()
	return c.print(func(w io.Writer) error { return res.Print(w, c.cfg.CNIVersion) })
}

// openPodForAdd opens the pod's namespace, which has to be there.
func (c *call) openPodForAdd() error {
	err := c.openPod()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) { // not there, or a namespace of another kind
		return &failure{code: codeBadEnv, err: fmt.Errorf("CNI_NETNS %q: %w", c.env.Netns, err)}
	}
	return err
}

// adder gets from a configuration to a decision, and to the locks that it holds for.
type adder struct {
	*call
	chosen choice
	turn   *journal.Lock // of the pod; nil if the configuration says which device it is
	device *journal.Lock // nil if there is no device to lock
	guids  *journal.Lock // nil if the configuration sets no GUID
}

func (a *adder) unlock() {
	a.device.Unlock()
	a.guids.Unlock()
}

// end gives back what is still held.
func (a *adder) end() {
	a.unlock()
	a.turn.Unlock()
}

// decide finds the device, takes its lock and decides. Refusals end the ADD. What dead attachments have left is
// returned first: a DEL for it may never come. Then everything is looked at again.
func (a *adder) decide() (*attach.Decision, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	for {
		d, err := a.look(ctx)
		if err != nil {
			return nil, err
		}
		if len(d.Refusals) > 0 {
			return nil, refused(d.Refusals[0])
		}
		if len(d.Reclaims) == 0 {
			return d, nil
		}
		a.guids.Unlock() // the rest of the node need not wait for a device's return
		if d.Attachment != nil && slices.ContainsFunc(d.Reclaims, func(o attach.Owner) bool {
			return o.Claim != d.Device.Claim
		}) { // it has a lock of its own, and no call waits for a second device's
			a.device.Unlock()
		}
		err = a.reclaim(ctx, d.Reclaims)
		a.unlock()
		if errors.Is(err, journal.ErrBusy) && ctx.Err() == nil { // another call returns it, and may wait for our lock
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
				err = nil
			}
		}
		if err != nil {
			return nil, err
		}
	}
}

// look gathers the facts with the device locked, and decides on them.
func (a *adder) look(ctx context.Context) (*attach.Decision, error) {
	for {
		a.unlock()
		g, err := a.gather(&a.chosen)
		if err != nil {
			return nil, err
		}
		if g.facts.Earlier != nil { // it may have the device, its lock, or the name
			return attach.Decide(g.facts), nil
		}
		if err := g.find(); err != nil {
			return nil, err
		}
		if g.dev == nil {
			return attach.Decide(g.facts), nil
		}
		claim := g.dev.Claim()
		if a.device, err = a.store.Lock(ctx, claim); err != nil {
			return nil, err
		}
		if a.device.Waited { // its holder may have moved it: look again, now under the lock
			err = g.find()
		}
		if err == nil && (g.dev == nil || g.dev.Claim() != claim) { // another one, when names were swapped
			continue
		}
		if err == nil && a.disowned(claim, g.dev.Netdev) {
			continue
		}
		if err == nil && a.settled(claim, g.dev) {
			err = g.find()
		}
		if err == nil && a.cfg.Mode == netconf.ModeDevice && a.cfg.VF.GUID != nil {
			a.guids, err = a.store.Lock(ctx, guidLock)
		}
		if err == nil {
			err = g.inspect()
		}
		if err != nil {
			return nil, err
		}
		return attach.Decide(g.facts), nil
	}
}

// guidLock is the name under which a GUID is given to a VF: held from the look whether the node has it until the
// journal says who has. No device is named so.
const guidLock = "guids"

// reclaim returns what attachments have left whose pods are dead.
func (a *adder) reclaim(ctx context.Context, list []attach.Owner) error {
	for _, o := range list {
		key := journal.Key{ContainerID: o.ContainerID, IfName: o.IfName}
		if !o.Self {
			if err := a.reclaimFromDead(ctx, key); err != nil {
				return err
			}
			continue
		}
		e, err := a.store.Load(key)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, journal.ErrCorrupt):
			err = newUnjournaled(a.call, true).run()
		case err == nil:
			a.log.Warn("clearing what an earlier ADD of this attachment has left")
			err = returner{a.call}.giveBack(e, a.delegateOf(e))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reclaimFromDead returns what one attachment has, if its pod is still dead and the device still its own once the lock
// is ours. We hold a device's lock and may not wait for the attachment's: its DEL may wait for the device.
func (a *adder) reclaimFromDead(ctx context.Context, key journal.Key) error {
	at, cancel := context.WithCancel(ctx)
	cancel()
	lock, err := a.store.LockAttachment(at, key)
	if err != nil {
		return fmt.Errorf("return what %s, which is dead, has left of %s: %w", key.Who(), key.IfName, err)
	}
	defer lock.Unlock()
	e, err := a.store.Load(key)
	if errors.Is(err, fs.ErrNotExist) { // DEL has come meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	if !a.device.Held() {
		device, err := a.store.Lock(ctx, e.Claim)
		if err != nil {
			return err
		}
		defer device.Unlock()
	}
	if e.Kind != journal.KindIPoIB {
		owner, ok, err := a.store.Owner(e.Claim)
		if err != nil {
			return err
		}
		if !ok || owner != e.Key { // it was returned between our look and the lock
			return a.recoverDevice(ctx, e)
		}
	}
	if a.alive(e) {
		return nil // the next look reports it
	}
	a.log.Warn("reclaiming what a dead pod has left", "device", e.Claim, "owner", e.Who(), "its", e.IfName)
	return returner{a.call}.giveBackOfDead(at, e)
}

// recoverDevice waits a moment for a device that another call has just brought home. If it does not turn up, it is
// lost.
func (*adder) recoverDevice(ctx context.Context, e *journal.Entry) error {
	select {
	case <-ctx.Done():
		return &failure{code: codeNoDevice, err: fmt.Errorf("device %s has not come back: %w", e.Claim, ctx.Err())}
	case <-time.After(time.Millisecond):
		return nil
	}
}

// newEntry is the journal's entry of what the decision is about to do.
func (c *call) newEntry(d *attach.Decision, ch *choice) *journal.Entry {
	e := &journal.Entry{
		Key: c.key, Network: c.cfg.Name, Created: time.Now().UTC(), BootID: c.bootID(),
		BootTime: int64(journal.Now()), Nonce: rand.Text(),
		NetnsPath: c.env.Netns, Netns: c.pod.NS.ID,
		IPAM: c.cfg.IPAM.Type, Conf: c.cfg.Raw, Args: c.env.Args, Path: c.env.Path,
	}
	dev := d.Device
	switch c.cfg.Mode {
	case netconf.ModeIPoIB:
		e.Kind, e.Claim, e.Address, e.PCI = journal.KindIPoIB, dev.Claim, dev.Address, dev.PCI
		e.Child = &journal.Child{
			Parent: dev.Address, Master: dev.Netdev.Name, PKey: d.Child.PKey, Group: d.Child.Group,
		}
	case netconf.ModeRDMA:
		e.Kind, e.IPAM = journal.KindRDMA, "" // the addresses are the earlier plugin's
		if d.MoveRDMA {
			e.Claim, e.Address, e.PCI, e.HCA = dev.Claim, dev.Address, dev.PCI, dev.HCA
			e.MoveRDMA, e.RDMAName, e.Netdev = true, d.Config.RDMAName, d.Netdev()
		}
	default:
		e.Kind, e.Claim, e.Address, e.PCI = journal.KindDevice, dev.Claim, dev.Address, dev.PCI
		e.HCA, e.Netdev, e.MoveRDMA, e.RDMAName = dev.HCA, dev.Netdev, d.MoveRDMA, d.Config.RDMAName
		e.VF, e.VFs = recordVF(d.Attachment), d.VFs
	}
	e.Given = ch.fromClaim
	c.ownName(e)
	e.DeviceInfo = c.deviceInfo(e)
	if e.Kind != journal.KindRDMA {
		e.MAC, e.Addresses = c.cfg.VF.MAC.String(), c.staticAddresses()
	}
	return e
}

// recordVF is the VF's part of a journal entry.
func recordVF(a *attach.Attachment) *journal.VF {
	if a.VF == nil {
		return nil
	}
	out := &journal.VF{Was: *a.VF, Set: a.Change.Set, Rebind: a.Change.Rebind}
	if guid := a.Config.VF.GUID; guid != nil {
		out.GUID = *guid
	}
	return out
}
