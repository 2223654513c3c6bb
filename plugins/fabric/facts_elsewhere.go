package fabric

import (
	"errors"
	"os"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// elsewhere looks for the interface of an HCA that has none on the host, and that no attachment has. This is not the
// usual path: every network namespace is looked at, within bounds.
func (g *gatherer) elsewhere() error {
	d, kind := g.dev, ""
	if d.Netdev != nil || d.HCA == nil || g.cfg.Mode == netconf.ModeIPoIB || g.facts.Owner != nil {
		return nil
	}
	if d.HCA.Has(device.InfiniBand) {
		_, err := os.Stat("/sys/module/ib_ipoib")
		g.facts.IPoIBLoaded = err == nil
		kind = "ipoib"
	}
	if !g.facts.IPoIBLoaded && !d.HCA.Has(device.Ethernet) { // then no HCA has one
		return nil
	}
	here := false
	err := netns.Each(g.Proc, func(ns *netns.NS) bool {
		if ns.ID == g.host.NS.ID {
			return false
		}
		_ = ns.Do(func() error { // one that can't be looked at tells nothing
			c, err := link.Dial()
			if err != nil {
				return err
			}
			list, err := c.List(kind)
			for i := range list {
				if n := &list[i]; n.Parent == 0 && n.Address == d.Address {
					g.facts.Elsewhere = &attach.Place{Interface: n.Name, Netns: ns.Path}
				}
			}
			_ = c.Close()
			return err
		})
		here = g.facts.Elsewhere != nil && g.pod != nil && ns.ID == g.pod.NS.ID
		return g.facts.Elsewhere != nil
	})
	if errors.Is(err, netns.ErrTooMany) { // what others have left is no reason to refuse every pod
		g.log.Warn("the HCA's interface may be in another network namespace", "device", d.Address.String(),
			"reason", err)
		err = nil
	}
	if d.HCA.Has(device.Ethernet) {
		g.facts.StrayNetdev = g.host.StrayNetdev(d.HCA)
		if here { // an earlier plugin of the chain has put it there, and the RDMA device follows: nothing is torn
			g.facts.Elsewhere, g.facts.StrayNetdev = nil, false
		}
	}
	return err
}
