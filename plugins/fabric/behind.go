package fabric

import (
	"io"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/result"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// before reads what the plugin before this one in the chain has attached, if that was this plugin. Of one attachment
// Multus names the same device to each plugin of a chain, and the first one may have exchanged it.
func (g *gatherer) before(e *journal.Entry) error {
	if g.cfg.Mode != netconf.ModeRDMA || g.cfg.PrevResult == nil || e.Network != g.cfg.Name {
		return nil
	}
	prev, err := g.prevResult()
	if err != nil {
		return err
	}
	b := &attach.Before{MoveRDMA: e.MoveRDMA, RDMAName: e.RDMAName}
	if e.HCA != nil {
		b.HCA = e.HCA.Name
	}
	there := e.Netdev == nil
	if !there {
		_, there = prev.Expect(g.key.IfName, g.env.Netns)
	}
	s := g.cfg.Selector
	b.Device = e.Kind == journal.KindDevice && there &&
		(s.Kind == netconf.ByNothing || g.cfg.Injected != "" || selects(s, "", e))
	g.facts.Before = b
	return nil
}

// passOn is the ADD of a plugin whose work the plugin before it in the chain has done. The entry says that it was here:
// its DEL comes first, and leaves the device to the other one's.
func (c *call) passOn() error {
	prev, err := c.prevResult()
	if err != nil {
		return err
	}
	e, err := c.store.Load(c.key)
	if err != nil {
		return err
	}
	e.Chained = true
	if err := c.store.Save(e); err != nil {
		return err
	}
	c.log.Info("the plugin before this one in the chain has moved the RDMA device", "device", e.Claim)
	res := result.Extend(prev, result.Interface{}, nil, netconf.DNS{})
	return c.print(func(w io.Writer) error { return res.Print(w, c.cfg.CNIVersion) })
}

// passedOn says whether a DEL is that of a plugin that has passed on. It is so once: whatever comes after it, and
// whatever the configuration has become, returns the device.
func (c *call) passedOn(e *journal.Entry) bool {
	if !e.Chained || c.cfg.Mode != netconf.ModeRDMA {
		return false
	}
	e.Chained = false
	if err := c.store.Save(e); err != nil {
		c.log.Warn("the device is returned at once", "reason", err)
		return false
	}
	return true
}
