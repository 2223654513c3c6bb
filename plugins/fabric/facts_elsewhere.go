package fabric

import (
	"os"
	"slices"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// elsewhere looks for the interface of an InfiniBand HCA that has none on the host, and that no attachment has. This is
// not the usual path: every network namespace is looked at, within bounds.
func (g *gatherer) elsewhere() error {
	d := g.dev
	if d.Netdev != nil || d.HCA == nil || g.cfg.Mode == netconf.ModeIPoIB || g.facts.Owner != nil ||
		!slices.ContainsFunc(d.HCA.Ports, func(p device.Port) bool { return p.LinkLayer == device.InfiniBand }) {
		return nil
	}
	_, err := os.Stat("/sys/module/ib_ipoib")
	g.facts.IPoIBLoaded = err == nil
	if !g.facts.IPoIBLoaded { // then no HCA has one
		return nil
	}
	return netns.Each(g.Proc, func(ns *netns.NS) bool {
		if ns.ID == g.host.NS.ID {
			return false
		}
		_ = ns.Do(func() error { // one that can't be looked at tells nothing
			c, err := link.Dial()
			if err != nil {
				return err
			}
			list, err := c.List("ipoib")
			for i := range list {
				if n := &list[i]; n.Parent == 0 && n.Address == d.Address {
					g.facts.Elsewhere = &attach.Place{Interface: n.Name, Netns: ns.Path}
				}
			}
			_ = c.Close()
			return err
		})
		return g.facts.Elsewhere != nil
	})
}
