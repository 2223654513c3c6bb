package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// acquire finds the device that find looks for, takes its lock and makes sure that nobody owns it. A device whose
// owner's pod is dead is taken back first: nobody else may ever call DEL for it.
func (c *call) acquire(find func() (*inventory.Device, error)) (*inventory.Device, *journal.Lock, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	for {
		dev, err := find()
		if errors.Is(err, fs.ErrNotExist) {
			if err := c.awaken(ctx, err); err != nil {
				return nil, nil, err
			}
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		lock, err := c.store.Lock(ctx, dev.Claim())
		if err != nil {
			return nil, nil, err
		}
		again, err := c.freeUp(dev.Claim())
		if err == nil && !again && !lock.Waited {
			return dev, lock, nil
		}
		if err == nil && lock.Waited && !again { // whoever had it may have moved it: look again, now under the lock
			locked := dev.Claim()
			if dev, err = find(); err == nil &&
				dev.Claim() == locked { // another one, when names were swapped: not ours to touch yet
				return dev, lock, nil
			}
		}
		lock.Unlock()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
	}
}

// freeUp looks at the owner of a device whose lock is held. A live owner is an error; what a dead one left is taken
// home, and true returned: the device has to be looked up again.
func (c *call) freeUp(claim string) (again bool, err error) {
	owner, ok, err := c.store.Owner(claim)
	if err != nil || !ok {
		return false, err
	}
	e, err := c.store.Load(owner)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, &failure{
			code: codeInUse,
			err:  fmt.Errorf("device %s belongs to %s, whose journal entry can't be read: %w", claim, owner, err),
			todo: "DEL of that attachment gives it back",
		}
	}
	if e.Key != c.key && c.alive(e) {
		return false, inUse(claim, e)
	}
	c.log.Warn("taking a device back from a dead pod", "device", claim, "owner", e.String())
	return true, c.giveBackLocked(e, c.staleDelegate(e))
}

func inUse(claim string, e *journal.Entry) error {
	return &failure{
		code: codeInUse,
		err: fmt.Errorf("device %s is in use by container %s as %s (network %s, network namespace %s)",
			claim, e.ContainerID, e.IfName, e.Network, e.NetnsPath),
		todo: "it is free again when that pod is deleted",
	}
}

// awaken is called when the selected device is not on the host. If an attachment holds it, that is the answer; if that
// attachment's pod is dead, the device is brought home and nil returned: look again.
func (c *call) awaken(ctx context.Context, notFound error) error {
	e, err := c.holder()
	if err != nil {
		return err
	}
	if e == nil {
		err := fmt.Errorf("no such device on this host: %w", notFound)
		if field, value := c.selected(); field != "" {
			err = fmt.Errorf("%s %q: %w", field, value, err)
		}
		return &failure{code: codeNoDevice, err: err, todo: "see what is there with: ip -d link; rdma link"}
	}
	lock, err := c.store.Lock(ctx, e.Claim)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	again, err := c.freeUp(e.Claim)
	if err != nil {
		return err
	}
	if !again { // it came home between our look and the lock, or is lost
		if ctx.Err() != nil {
			return &failure{code: codeNoDevice, err: notFound}
		}
	}
	return nil
}

// selected is the field that names the device, and its value; empty where the device is derived from the prevResult.
func (c *call) selected() (field, value string) {
	if c.cfg.Selector.Kind == netconf.ByNothing && c.cfg.Master != "" {
		return "master", c.cfg.Master
	}
	return c.cfg.Selector.Field, c.cfg.Selector.Value
}

// holder looks through the journal for the attachment that has the selected device. This is not the usual path: every
// entry is read.
func (c *call) holder() (*journal.Entry, error) {
	entries, err := c.store.List()
	if len(entries) == 0 && err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, err
	}
	for _, e := range entries {
		if e.Claim == "" || e.Kind == journal.KindIPoIB || !selects(c.cfg.Selector, c.cfg.Master, e) {
			continue
		}
		if owner, ok, err := c.store.Owner(e.Claim); err != nil || ok && owner == e.Key {
			return e, err
		}
	}
	return nil, nil
}

// selects tells whether a selector means the device of an entry, as that was on the host.
func selects(s netconf.Selector, master string, e *journal.Entry) bool {
	n, h := e.Netdev, e.HCA
	switch s.Kind {
	case netconf.ByAddress:
		return s.Address == e.Address || e.PCI != "" && s.Address == device.Address{Bus: "pci", Name: e.PCI}
	case netconf.ByName:
		return n != nil && n.Named(s.Value)
	case netconf.ByRDMADevice:
		return h != nil && h.Name == s.Value
	case netconf.ByGUID:
		return h != nil && h.NodeGUID == s.GUID || n != nil && hasGUID(n, s.GUID)
	case netconf.ByHWAddr:
		return n != nil && (n.HWAddr.String() == s.HWAddr.String() || s.GUID != 0 && hasGUID(n, s.GUID))
	case netconf.ByNothing:
		return master != "" && n != nil && n.Named(master)
	}
	return false
}

func hasGUID(n *device.Netdev, g device.GUID) bool {
	have, ok := device.GUIDOf(n.HWAddr)
	return ok && have == g
}
