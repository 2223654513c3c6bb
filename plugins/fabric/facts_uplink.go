package fabric

import "github.com/fabric-cni/fabric-cni/pkg/plan"

// uplink reads what sits on the netdev, and whether the host needs any of it for itself.
func (g *gatherer) uplink() error {
	n := g.dev.Netdev
	if n == nil || g.facts.Chained.Side != plan.Host {
		return nil
	}
	err := g.uppers()
	if err == nil {
		g.facts.Device.Uplink, err = g.host.Uplink(n, g.facts.Uppers)
	}
	return err
}
