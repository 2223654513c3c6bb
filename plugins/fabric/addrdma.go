package fabric

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/result"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// addRDMA moves the RDMA device of a netdev that an earlier plugin of the chain has put into the pod. On InfiniBand the
// move destroys that netdev: it is put back with everything the earlier plugin gave it.
func (c *call) addRDMA() (*result.Result, error) {
	prev, err := c.prev()
	if err != nil {
		return nil, err
	}
	dev, lock, err := c.acquire(func() (*inventory.Device, error) { return c.chained(prev) })
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	if err := c.use(dev); err != nil {
		return nil, err
	}
	move, err := c.rdmaDecision(dev)
	if err != nil {
		return nil, err
	}
	if err := c.ports(dev); err != nil {
		return nil, err
	}
	if dev.HCA == nil {
		return nil, &failure{
			code: codeNoDevice,
			err:  fmt.Errorf("device %s has no RDMA device on the host", dev.Claim()),
			todo: "load its RDMA driver, or leave this plugin out of the chain",
		}
	}
	if !move { // shared mode: the pod sees it already
		e := c.newEntry(journal.KindRDMA) // so that DEL knows that there is nothing to return
		e.IPAM, e.Attached = "", true
		return result.Extend(prev, result.Interface{}, nil, netconf.DNS{}), c.store.Save(e)
	}
	if err := c.childlessHCA(dev); err != nil {
		return nil, err
	}
	e := c.newEntry(journal.KindRDMA)
	e.Claim, e.Address, e.PCI, e.HCA, e.MoveRDMA, e.RDMAName = dev.Claim(), dev.Address, dev.PCI, dev.HCA, true, c.cfg.RDMAName
	e.IPAM = "" // the addresses are the earlier plugin's
	if dev.Netdev != nil && dev.Netdev.IsIPoIB() {
		if err := c.pod.Snapshot(dev.Netdev); err != nil {
			return nil, err
		}
		e.Netdev = dev.Netdev
	}
	a := c.attach(e)
	return a.finish(a.rdma(prev))
}

func (a *attachment) rdma(prev *result.Result) (*result.Result, error) {
	if a.err != nil {
		return nil, a.err
	}
	ctx, cancel := bounded(kernelMax)
	defer cancel()
	e := a.entry
	a.runner.Track(e.HCA, e.Netdev)
	a.runner.Undo.Push("attachment", a.giveDeviceBack)
	if err := a.runner.Run(ctx, plan.Attach(a.cfg, nameOf(e.Netdev), e.HCA, e.Netdev)); err != nil {
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
		if err := a.runner.Run(ctx, plan.Restore(plan.Pod, e.Netdev, have, 0)); err != nil {
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

func nameOf(n *device.Netdev) string {
	if n == nil {
		return ""
	}
	return n.Name
}

func sandboxOf(prev *result.Result, name, netns string) string {
	if x, ok := prev.Expect(name, netns); ok {
		return x.Interface.Sandbox
	}
	return netns
}

func (c *call) prev() (*result.Result, error) {
	if c.cfg.PrevResult == nil {
		return nil, nil
	}
	prev, err := result.Parse(c.cfg.PrevResult, c.cfg.CNIVersion)
	if err != nil {
		return nil, &failure{code: codeBadConfig, err: fmt.Errorf("field \"prevResult\": %w", err)}
	}
	return prev, nil
}

// chained finds the RDMA device: by the selector, or as the one that belongs to the only interface of the prevResult.
// Its netdev is looked for in the pod, where the earlier plugin has put it.
func (c *call) chained(prev *result.Result) (*inventory.Device, error) {
	if c.cfg.Selector.Kind != netconf.ByNothing {
		dev, err := c.host.Find(c.cfg.Selector)
		if errors.Is(err, fs.ErrNotExist) {
			return c.inPod()
		}
		if err != nil {
			return nil, err
		}
		return c.withPodNetdev(dev)
	}
	var ifaces []result.Interface
	if prev != nil {
		ifaces = prev.InSandbox(c.env.Netns)
	}
	if len(ifaces) != 1 {
		return nil, &failure{
			code: codeBadConfig,
			err:  fmt.Errorf("the device can't be derived: the prevResult has %d interfaces in the pod", len(ifaces)),
			todo: "name it: deviceID, rdmaDevice or guid",
		}
	}
	n, err := c.pod.Link.ByName(ifaces[0].Name)
	if err != nil {
		return nil, fmt.Errorf("interface %s of the prevResult in the pod: %w", ifaces[0].Name, err)
	}
	return c.fromPod(n)
}

// inPod finds a device whose selector names a netdev that the earlier plugin has moved already.
func (c *call) inPod() (*inventory.Device, error) {
	dev, err := c.pod.Find(c.cfg.Selector)
	if err != nil {
		return nil, err
	}
	return c.fromPod(dev.Netdev)
}

func (c *call) fromPod(n *device.Netdev) (*inventory.Device, error) {
	if n == nil || n.Address.IsZero() {
		return nil, &failure{
			code: codeNoDevice,
			err:  fmt.Errorf("interface %s in the pod is no hardware: it has no RDMA device", nameOf(n)),
		}
	}
	dev, err := c.host.At(n.Address)
	if err == nil {
		dev.Netdev = n
	}
	return dev, err
}

func (c *call) withPodNetdev(dev *inventory.Device) (*inventory.Device, error) {
	if dev.Netdev != nil {
		if !dev.Netdev.IsIPoIB() { // RoCE over an interface of the host: the node may live on it
			return dev, c.mayMove(dev)
		}
		return nil, &failure{
			code: codeInUse,
			err: fmt.Errorf(
				"the IPoIB interface %s of %s is on the host: moving the RDMA device alone would destroy it",
				dev.Netdev.Name,
				dev.Address,
			),
			todo: "move both with \"mode\": \"device\"",
		}
	}
	n, err := c.pod.Netdev(&device.Netdev{Address: dev.Address, ARPType: 32, Kind: "ipoib"})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	dev.Netdev = n
	return dev, nil
}

// childlessHCA refuses to move an RDMA device whose IPoIB netdev has children.
func (c *call) childlessHCA(dev *inventory.Device) error {
	if dev.Netdev == nil || !dev.Netdev.IsIPoIB() {
		return nil
	}
	return c.childless(dev)
}
