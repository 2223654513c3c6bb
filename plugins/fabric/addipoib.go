package fabric

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/result"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// addChild creates an IPoIB child of the master in the pod. The master stays on the host, and its lock is held until
// the child is recorded and made, so that nobody moves the master meanwhile.
func (c *call) addChild() (*result.Result, error) {
	if err := c.free(c.key.IfName); err != nil {
		return nil, err
	}
	dev, lock, err := c.acquire(c.master)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	if err := c.use(dev); err != nil {
		return nil, err
	}
	if err := c.ports(dev); err != nil {
		return nil, err
	}
	pkey := c.cfg.PKey
	if pkey == 0 {
		pkey = dev.Netdev.IPoIB.PKey
	}
	if err := c.partition(dev, pkey); err != nil {
		return nil, err
	}
	e := c.newEntry(journal.KindIPoIB)
	e.Claim, e.Address, e.PCI = dev.Claim(), dev.Address, dev.PCI
	e.Child = &journal.Child{Parent: dev.Address, Master: dev.Netdev.Name, PKey: pkey, Group: mark(c.key)}
	a := c.attach(e)
	return a.finish(a.child(dev, lock))
}

func (a *attachment) child(dev *inventory.Device, lock *journal.Lock) (*result.Result, error) {
	if a.err != nil {
		return nil, a.err
	}
	ctx, cancel := bounded(kernelMax)
	defer cancel()
	create := plan.CreateChild{
		Master: *dev.Netdev,
		Name:   a.key.IfName,
		PKey:   a.entry.Child.PKey,
		Group:  a.entry.Child.Group,
	}
	mode := dev.Netdev.IPoIB.Mode
	if a.cfg.IPoIBMode != "" {
		mode = device.ModeDatagram
		if a.cfg.IPoIBMode == "connected" {
			mode = device.ModeConnected
		}
	}
	if mode != device.ModeDatagram { // the kernel's default; drivers with their own IPoIB refuse to hear of a mode
		create.Mode = &mode
	}
	if a.cfg.Umcast != nil {
		var on uint16
		if *a.cfg.Umcast {
			on = 1
		}
		create.Umcast = &on
	}
	if err := a.runner.Run(ctx, []plan.Step{create}); err != nil {
		return nil, err
	}
	lock.Unlock()
	have, err := a.runner.Current()
	if err != nil {
		return nil, err
	}
	a.entry.Child.HWAddr = have.HWAddr.String()
	if a.cfg.MTU == 0 {
		a.cfg.MTU = dev.Netdev.MTU
	}
	return a.configure(ctx, nil)
}

// master finds the parent of the child to be.
func (c *call) master() (*inventory.Device, error) {
	n, err := c.host.Link.ByName(c.cfg.Master)
	if err != nil {
		return nil, err
	}
	var wrong string
	switch {
	case !n.IsIPoIB():
		wrong = "is no IPoIB interface"
	case n.Parent != 0:
		wrong = "is an IPoIB child itself, and a child can't have children"
	default:
		return c.host.Of(n)
	}
	return nil, &failure{
		code: codeBadConfig,
		err:  fmt.Errorf("field \"master\": value %q is not allowed: %s %s", c.cfg.Master, n.Name, wrong),
		todo: "name an IPoIB parent, one of: " + c.parents(),
	}
}

func (c *call) parents() string {
	list, err := c.host.Link.List("ipoib")
	out := ""
	for _, n := range list {
		if n.Parent == 0 {
			out += " " + n.Name
		}
	}
	if err != nil || out == "" {
		return "(none on this host)"
	}
	return out[1:]
}

// partition refuses a PKey that the port does not have: the child would never get carrier.
func (c *call) partition(dev *inventory.Device, pkey device.PKey) error {
	if pkey == dev.Netdev.IPoIB.PKey || dev.HCA == nil {
		return nil
	}
	ok, held, err := c.host.HasPKey(dev.HCA.Name, 1, pkey)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // in the pod of an exclusive system: the kernel's own check has to do
	}
	if err != nil || ok {
		return err
	}
	return &failure{
		code: codePortDown,
		err: fmt.Errorf(
			"field \"pkey\": value %s: %s port 1 is not a member of this partition, it has %v",
			pkey,
			dev.HCA.Name,
			held,
		),
		todo: "add the port's GUID to the partition at the subnet manager",
	}
}

// mark is the device group a child is created with. It is how the child is found if its creator is killed before it can
// write down the hardware address. Group 0 is everybody's.
func mark(k journal.Key) uint32 {
	h := fnv.New32a()
	h.Write([]byte(k.String()))
	return h.Sum32()&(1<<31-1) | 1<<30 // iproute2 prints groups as signed
}
