package fabric

import (
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// uppers reads what sits on a netdev of the host that is to be moved: it stays, and loses its way out.
func (g *gatherer) uppers() (err error) {
	n := g.dev.Netdev
	if n == nil || g.cfg.Mode == netconf.ModeIPoIB || g.facts.Chained.Side != plan.Host {
		return nil
	}
	g.facts.Uppers, err = g.host.Uppers(n)
	return err
}
