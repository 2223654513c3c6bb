package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// podRails finds HCAs that the pod can open and that have no interface, while others have theirs: one network too few.
// In shared mode an HCA whose interface is elsewhere may be meant for verbs only.
func podRails(p *Pod) []Finding {
	if p.Node.RDMAMode == device.NetnsShared.String() {
		return nil
	}
	var with, without []string
	for _, u := range p.Uverbs {
		h := p.Node.HCA(p.Verbs[u])
		if h == nil || h.Bond != "" {
			continue
		}
		if attached(p.Node, h) {
			with = append(with, h.Name)
		} else {
			without = append(without, h.Name)
		}
	}
	switch {
	case len(with) == 0: // podInterface says it
		return nil
	case len(without) > 0:
		return one(finding("pod-rails", Warn, fmt.Sprintf("%d of %d HCAs have an interface; without: %s", len(with),
			len(with)+len(without), strings.Join(without, ", "))))
	}
	return one(finding("pod-rails", OK, fmt.Sprintf("%d HCAs, each with its interface", len(with))))
}

// attached reports whether an interface of an HCA is there.
func attached(n *node.Node, h *node.HCA) bool {
	return slices.ContainsFunc(n.Netdevs, func(d node.Netdev) bool {
		return !d.Address.IsZero() && d.Address == h.Address ||
			slices.ContainsFunc(h.Ports, func(q node.Port) bool { return q.Netdev == d.Name })
	})
}
