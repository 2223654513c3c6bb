package fabric

import (
	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// soft reads which soft RDMA devices are on a netdev of the host that is to be moved.
func (g *gatherer) soft() (err error) {
	n := g.dev.Netdev
	if n == nil || g.cfg.Mode != netconf.ModeDevice || g.facts.Chained.Side != plan.Host {
		return nil
	}
	g.facts.SoftRDMA, err = g.host.SoftOn(n)
	return err
}

// softSelected notes that what the configuration selects is a soft RDMA device.
func (g *gatherer) softSelected(e *inventory.SoftError) {
	g.facts.Soft = &attach.Soft{Name: e.Name, Netdev: g.host.NetdevUnder(e.Name)}
}

// softInPod looks for an RDMA device on an interface in the pod that no hardware is behind. That of a bond may be its
// members'. What can't be read is not known: the refusal stands without it.
func (g *gatherer) softInPod(n *device.Netdev) {
	if n == nil || n.Kind == "bond" || g.pod.RDMA == nil {
		return
	}
	list, err := g.pod.RDMA.List()
	if err != nil {
		return
	}
	for i := range list {
		if h := &list[i]; g.pod.NetdevUnder(h.Name) == n.Name {
			g.facts.Soft = &attach.Soft{Name: h.Name, Netdev: n.Name}
			return
		}
	}
}
