package fabric

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/result"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// findChained finds the RDMA device of mode rdma: by the selector, or as the one that belongs to the only interface of
// the prevResult. Its netdev is looked for in the pod too, where the earlier plugin has put it.
func (g *gatherer) findChained() error {
	if g.cfg.Selector.Kind == netconf.ByNothing {
		return g.derive()
	}
	dev, err := g.host.Find(g.cfg.Selector)
	var soft *inventory.SoftError
	if errors.Is(err, fs.ErrNotExist) && !errors.As(err, &soft) { // it may name a netdev that has been moved already
		if dev, err = g.pod.Find(g.cfg.Selector); err != nil {
			return err
		}
		return g.behind(dev.Netdev)
	}
	if err != nil {
		return err
	}
	g.dev = dev
	if dev.Netdev != nil {
		return nil
	}
	n, err := g.pod.Netdev(&device.Netdev{Address: dev.Address, ARPType: 32, Kind: "ipoib"})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dev.Netdev, g.facts.Chained.Side = n, plan.Pod
	return err
}

// derive finds the device behind the only interface that the prevResult has in the pod.
func (g *gatherer) derive() error {
	prev, err := g.prevResult()
	if err != nil {
		return err
	}
	var ifaces []result.Interface
	if prev != nil {
		ifaces = prev.InSandbox(g.env.Netns)
	}
	g.facts.Chained.Interfaces = len(ifaces)
	if len(ifaces) != 1 {
		return nil
	}
	n, err := g.pod.Link.ByName(ifaces[0].Name)
	if err != nil {
		return fmt.Errorf("interface %s of the prevResult in the pod: %w", ifaces[0].Name, err)
	}
	return g.behind(n)
}

// behind finds the device that a netdev in the pod belongs to.
func (g *gatherer) behind(n *device.Netdev) error {
	if n == nil || n.Address.IsZero() {
		g.facts.Chained.NoHardware = g.key.IfName
		if n != nil {
			g.facts.Chained.NoHardware = n.Name
			g.softInPod(n)
		}
		return fmt.Errorf("find the device of %s: %w", g.facts.Chained.NoHardware, fs.ErrNotExist)
	}
	dev, err := g.host.At(n.Address)
	if err != nil {
		return err
	}
	dev.Netdev, g.facts.Chained.Side = n, plan.Pod
	g.dev = dev
	return nil
}

// prevResult is what earlier plugins of the chain have done, nil without one.
func (c *call) prevResult() (*result.Result, error) {
	if c.cfg.PrevResult == nil {
		return nil, nil
	}
	prev, err := result.Parse(c.cfg.PrevResult, c.cfg.CNIVersion)
	if err != nil {
		return nil, &failure{code: codeBadConfig, err: fmt.Errorf("field \"prevResult\": %w", err)}
	}
	return prev, nil
}
