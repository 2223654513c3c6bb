package controller

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/noderange"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// holding is what a node has of the fabrics' ranges.
type holding struct {
	node   string
	wants  []string // fabrics that it has devices of
	ranges []v1alpha1.AssignedRange
	gone   time.Time // since when there is no such Node; zero: there is
}

// change gives a node other ranges.
type change struct {
	node   string
	ranges []v1alpha1.AssignedRange
}

// allocation is what is to be done about ranges. Whatever is in takes must be written before what is in gives: the
// ranges change their owners.
type allocation struct {
	takes, gives []change
	usage        map[string]Usage // by fabric
}

// Usage is how much of a fabric's nodeRanges is given.
type Usage struct {
	Exhausted   error // why nodes wait; nil: none does
	Left, Total int   // ranges for nodes
}

// allocate decides which ranges each node should have: what it has of the fabrics in force, and what it lacks of those
// that it has devices of. A node that is gone loses its ranges when another one needs them and the time reclaim has
// passed. The ranges of unread fabrics stay as they are.
func allocate(
	list []fabrics.Fabric, unread map[string]bool, holdings []holding, now time.Time,
) (*allocation, error) {
	slices.SortFunc(holdings, func(a, b holding) int { return cmp.Compare(a.node, b.node) })
	out := &allocation{usage: map[string]Usage{}}
	should := map[string][]v1alpha1.AssignedRange{}
	lost := map[string]bool{}
	for i := range holdings {
		for _, r := range holdings[i].ranges {
			if unread[r.Fabric] {
				should[holdings[i].node] = append(should[holdings[i].node], r)
			}
		}
	}
	for i := range list {
		f := &list[i]
		if f.NodeRanges == nil {
			continue
		}
		usage, losers, err := allocateFabric(f, holdings, should, now)
		if err != nil {
			return nil, err
		}
		out.usage[f.Name] = usage
		for _, l := range losers {
			lost[l] = true
		}
	}
	for i := range holdings {
		h := &holdings[i]
		c := change{h.node, should[h.node]}
		switch {
		case slices.Equal(c.ranges, h.ranges):
		case lost[h.node]:
			out.takes = append(out.takes, c)
		default:
			out.gives = append(out.gives, c)
		}
	}
	return out, nil
}

// allocateFabric adds the ranges of one fabric to those that nodes should have. It returns the nodes that lose theirs.
func allocateFabric(
	f *fabrics.Fabric, holdings []holding, should map[string][]v1alpha1.AssignedRange, now time.Time,
) (usage Usage, losers []string, err error) {
	var owners []noderange.Owner
	for i := range holdings {
		h := &holdings[i]
		if own := ownRanges(h.ranges, f.Name); own != nil {
			owners = append(owners, noderange.Owner{Node: h.node, Own: own, Gone: h.gone})
		}
	}
	pool, err := noderange.New(*f.NodeRanges, owners)
	if err != nil {
		return usage, nil, err
	}
	for i := range holdings {
		h := &holdings[i]
		if !h.gone.IsZero() || !slices.Contains(h.wants, f.Name) {
			continue
		}
		_, from, err := pool.Assign(h.node, now)
		if errors.Is(err, noderange.ErrExhausted) {
			if usage.Exhausted == nil {
				usage.Exhausted = err
			}
			continue
		}
		if err != nil {
			return usage, nil, err
		}
		losers = append(losers, from...)
	}
	for i := range holdings {
		node := holdings[i].node
		for j, own := range pool.Own(node) {
			should[node] = append(should[node], v1alpha1.AssignedRange{
				Fabric: f.Name, Subnet: f.NodeRanges.Ranges[j].Prefix.String(), Range: own.String(),
			})
		}
	}
	usage.Left, usage.Total = pool.Usage()
	return usage, losers, nil
}

// ownRanges are a node's ranges of a fabric. What can't be read is no range of anybody.
func ownRanges(ranges []v1alpha1.AssignedRange, fabric string) (out []netip.Prefix) {
	for _, r := range ranges {
		if r.Fabric != fabric {
			continue
		}
		if p, err := netip.ParsePrefix(r.Range); err == nil {
			out = append(out, p)
		}
	}
	return out
}
