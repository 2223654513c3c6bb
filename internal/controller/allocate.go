package controller

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/noderange"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// holding is what a node has of the fabrics' ranges, what it had, and what its pods hold.
type holding struct {
	node     string
	wants    []string // fabrics that it has devices of
	ranges   []v1alpha1.AssignedRange
	former   []v1alpha1.AssignedRange
	held     map[string][]netip.Prefix         // by fabric
	released func(v1alpha1.AssignedRange) bool // whether the node is done with a former range; nil: with none
	gone     time.Time                         // since when there is no such Node; zero: there is
	marked   bool                              // its FabricNode tells so
	paused   time.Duration                     // that does not count of the time since then
}

// missed is since when there is no such Node, for how long that counts.
func (h *holding) missed() time.Time {
	if h.gone.IsZero() {
		return h.gone
	}
	return h.gone.Add(h.paused)
}

// change gives a node other ranges, or marks it as gone or as there.
type change struct {
	node   string
	ranges []v1alpha1.AssignedRange
	former []v1alpha1.AssignedRange
	gone   time.Time
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

	Waiting   []string // nodes that wait for a fresh range until others have been heard
	Unheard   []string // those others
	Conflicts []noderange.Conflict
	Excess    []string // nodes that say that they hold more than they can
}

// allocate decides which ranges each node should have: what it has of the fabrics in force, and what it lacks of those
// that it has devices of. A node that is gone loses its ranges when another one needs them and the time reclaim has
// passed. The ranges of unread fabrics stay as they are. Without fresh no node gets a range that it does not have:
// also one that its own pods hold addresses of may have been wider than what others had of it.
func allocate(
	list []fabrics.Fabric, unread map[string]bool, holdings []holding, now time.Time, fresh bool,
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
		usage, err := allocateFabric(f, holdings, should, lost, now, fresh)
		if err != nil {
			return nil, err
		}
		out.usage[f.Name] = usage
	}
	for i := range holdings {
		h := &holdings[i]
		c := change{h.node, should[h.node], formerOf(h, should[h.node]), h.gone}
		switch {
		case slices.Equal(c.ranges, h.ranges) && slices.Equal(c.former, h.former) && h.marked == !h.gone.IsZero():
		case lost[h.node]:
			out.takes = append(out.takes, c)
		default:
			out.gives = append(out.gives, c)
		}
	}
	return out, nil
}

// waiting reports whether a node waits for a fresh range.
func (a *allocation) waiting() bool {
	for _, u := range a.usage {
		if len(u.Waiting) > 0 {
			return true
		}
	}
	return false
}

// open are the nodes that an earlier leader may be about to write as well: those that wait, and those with changes.
func (a *allocation) open() (nodes []string) {
	for _, u := range a.usage {
		nodes = append(nodes, u.Waiting...)
	}
	for _, c := range slices.Concat(a.takes, a.gives) {
		nodes = append(nodes, c.node)
	}
	return nodes
}

// maxFormer is how many former ranges a FabricNode may have.
const maxFormer = 256

// formerOf is what a node had before, once it has these ranges: what it loses now is among it, until it has released
// that.
func formerOf(h *holding, has []v1alpha1.AssignedRange) (out []v1alpha1.AssignedRange) {
	covered := func(r v1alpha1.AssignedRange) bool {
		p, err := netip.ParsePrefix(r.Range)
		return err != nil || slices.ContainsFunc(ownRanges(has, r.Fabric), func(own netip.Prefix) bool {
			return own.Bits() <= p.Bits() && own.Contains(p.Addr())
		})
	}
	for _, r := range h.former {
		if !covered(r) && !slices.Contains(out, r) && (h.released == nil || !h.released(r)) {
			out = append(out, r)
		}
	}
	for _, r := range h.ranges {
		if !covered(r) && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out[max(0, len(out)-maxFormer):]
}

// ownerOf is a node as the pool of a fabric sees it.
func ownerOf(h *holding, f *fabrics.Fabric, now time.Time) noderange.Owner {
	o := noderange.Owner{Node: h.node, Own: ownRanges(h.ranges, f.Name), Gone: h.missed()}
	if !h.gone.IsZero() && now.Sub(h.missed()) >= f.NodeRanges.Reclaim {
		return o
	}
	o.Former, o.Held = ownRanges(h.former, f.Name), h.held[f.Name]
	for _, r := range slices.Concat(h.former, h.ranges) {
		if p, err := netip.ParsePrefix(r.Range); err == nil && r.Fabric != f.Name {
			o.OthersFormer = append(o.OthersFormer, p)
		}
	}
	for name, held := range h.held {
		if name != f.Name {
			o.OthersHeld = append(o.OthersHeld, held...)
		}
	}
	return o
}

// poolOf is the pool of a fabric, with what all nodes have, had and hold.
func poolOf(f *fabrics.Fabric, holdings []holding, now time.Time) (*noderange.Pool, error) {
	owners := make([]noderange.Owner, 0, len(holdings))
	for i := range holdings {
		owners = append(owners, ownerOf(&holdings[i], f, now))
	}
	return noderange.New(*f.NodeRanges, owners)
}

// allocateFabric adds the ranges of one fabric to those that nodes should have, and the nodes that lose theirs to lost.
func allocateFabric(
	f *fabrics.Fabric, holdings []holding, should map[string][]v1alpha1.AssignedRange, lost map[string]bool,
	now time.Time, fresh bool,
) (usage Usage, err error) {
	pool, err := poolOf(f, holdings, now)
	if err != nil {
		return usage, err
	}
	var without []string
	for i := range holdings {
		h := &holdings[i]
		if !h.gone.IsZero() || !slices.Contains(h.wants, f.Name) || pool.Own(h.node) != nil {
			continue
		}
		if !fresh {
			usage.Waiting = append(usage.Waiting, h.node)
		} else if _, ok := pool.Claim(h.node); !ok {
			without = append(without, h.node) // after all claims
		}
	}
	for _, node := range without {
		_, from, err := pool.Assign(node, now)
		if err != nil && usage.Exhausted == nil {
			usage.Exhausted = err
		}
		for _, loser := range from {
			lost[loser] = true
		}
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
	usage.Conflicts, usage.Excess = pool.Conflicts(), pool.Excess()
	return usage, nil
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
