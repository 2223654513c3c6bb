// Package noderange divides the ranges of a fabric into one for each node. It is pure: whose range is which stands in
// the FabricNodes, and only the leading controller writes them there.
package noderange

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"

	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
)

// Spec is how a fabric divides its ranges.
type Spec struct {
	Fabric  string
	Ranges  []Range                   // one, or one of each family
	Static  map[string][]netip.Prefix // the fixed ranges of some nodes
	Reclaim time.Duration             // how long a Node must have been gone before its range may become another's
}

// Range is a range of the whole fabric.
type Range struct {
	Prefix  netip.Prefix   // also the subnet of every interface
	Bits    int            // prefix length of a node's range
	Without []netip.Prefix // no node's range has any address of these
}

// Free is what nodes can have of the range.
func (r *Range) Free() (*netipx.IPSet, error) {
	var b netipx.IPSetBuilder
	b.AddPrefix(r.Prefix)
	for _, w := range r.Without {
		b.RemovePrefix(w)
	}
	return b.IPSet()
}

// Owner is a node that has ranges, had some, or whose pods hold addresses. Of a Node that has been gone for the time
// Reclaim, what it had and holds is left out.
type Owner struct {
	Node string
	Own  []netip.Prefix
	Gone time.Time // since when the cluster has no such Node; zero: it has

	Former, Held []netip.Prefix // what it had before, and what its pods hold, of this fabric
	// The same of other fabrics: no node gets it, not even this one, whose plugin counts them apart.
	OthersFormer, OthersHeld []netip.Prefix
}

// ErrExhausted means that no range is left.
var ErrExhausted = errors.New("every range has an owner")

// ErrReserved means that a static range may still be in use by another node.
var ErrReserved = errors.New("it is not free")

// Pool knows which ranges of a fabric are free. It is not for several goroutines at once.
type Pool struct {
	spec   Spec
	ranges []*divided       // one for each range of the spec
	owners map[string]Owner // by node, with valid ranges

	conflicts []Conflict
	excess    []string
}

// New returns the pool of a fabric whose ranges these nodes have. What a node has is valid if it is as the spec wants
// it and no other node's; where two nodes have the same, the first one in the list keeps it. A node whose ranges are
// not valid gets others, and no other node gets what it has, nor what it had or holds.
func New(spec Spec, owners []Owner) (*Pool, error) {
	p := &Pool{spec: spec, owners: map[string]Owner{}}
	for i := range spec.Ranges {
		d, err := divide(&spec, &spec.Ranges[i])
		if err != nil {
			return nil, err
		}
		p.ranges = append(p.ranges, d)
	}
	for i := range owners {
		if o := &owners[i]; p.owners[o.Node].Own == nil && p.valid(o) {
			p.take(*o)
		}
	}
	for i := range owners {
		p.reserve(&owners[i])
	}
	slices.Sort(p.excess)
	p.excess = slices.Compact(p.excess)
	return p, nil
}

// Own returns the ranges of a node, in the order of the spec; none if it has none that are valid.
func (p *Pool) Own(node string) []netip.Prefix { return p.owners[node].Own }

// Claim gives a node without ranges those that it had or whose addresses its pods hold, if nothing is in the way: no
// other node can have anything of them. It returns false if the node needs a fresh range.
func (p *Pool) Claim(node string) (own []netip.Prefix, ok bool) {
	if o, ok := p.owners[node]; ok {
		return o.Own, true
	}
	for _, d := range p.ranges {
		block, ok := d.claim(node)
		if !ok {
			return nil, false
		}
		own = append(own, block)
	}
	p.take(Owner{Node: node, Own: own})
	return own, true
}

// Assign returns the ranges of a node: those that it has or can claim, or else fresh ones, or else those of Nodes that
// have been gone for long enough. These are returned too: they must lose their ranges before the node gets them.
func (p *Pool) Assign(node string, now time.Time) (own []netip.Prefix, reclaimed []string, err error) {
	if o, ok := p.owners[node]; ok {
		o.Gone = time.Time{}
		p.owners[node] = o
		return o.Own, nil, nil
	}
	own = p.next(node)
	var gone, released []Owner
	if own == nil {
		gone = p.reclaimable(now)
	}
	for _, o := range gone {
		if own != nil {
			break
		}
		p.release(o.Node)
		released = append(released, o)
		own = p.next(node)
	}
	if own == nil {
		for _, o := range released {
			p.take(o)
		}
		return nil, nil, p.exhausted(node)
	}
	for _, o := range released {
		reclaimed = append(reclaimed, o.Node)
	}
	p.take(Owner{Node: node, Own: own})
	return own, reclaimed, nil
}

func (p *Pool) exhausted(node string) error {
	r := p.spec.Ranges[0]
	for i, d := range p.ranges {
		if fixed, ok := d.fixed[node]; ok && !d.freeFor(fixed, node) {
			return fmt.Errorf("fabric %s: static range %s of node %s: %w: %s", p.spec.Fabric, fixed, node, ErrReserved,
				d.inTheWay(fixed))
		}
		if _, ok := d.first(); !ok {
			r = p.spec.Ranges[i]
			break
		}
	}
	return fmt.Errorf("fabric %s: range %s has no /%d left for node %s: %w (%d nodes); "+
		"choose a wider range or a longer prefix per "+
		"node", p.spec.Fabric, r.Prefix, r.Bits, node, ErrExhausted, len(p.owners))
}

// next returns ranges for a node that has none: its static ones, otherwise those that it can claim, and otherwise the
// first free ones.
func (p *Pool) next(node string) []netip.Prefix {
	var own []netip.Prefix
	for _, d := range p.ranges {
		block, ok := d.claim(node)
		if fixed, is := d.fixed[node]; is && !ok {
			block, ok = fixed, d.freeFor(fixed, node)
		} else if !ok {
			block, ok = d.first()
		}
		if !ok {
			return nil
		}
		own = append(own, block)
	}
	return own
}

// valid reports whether what a node has is as the spec wants it and no other node's.
func (p *Pool) valid(o *Owner) bool {
	if len(o.Own) != len(p.ranges) {
		return false
	}
	for i, own := range o.Own {
		d := p.ranges[i]
		fixed, is := d.fixed[o.Node]
		if own != d.block(own.Addr()) || is && fixed != own || !d.open(own, o.Node) {
			return false
		}
	}
	return true
}

func (p *Pool) take(o Owner) {
	p.owners[o.Node] = o
	for i, own := range o.Own {
		p.ranges[i].taken[own] = o.Node
	}
}

func (p *Pool) release(node string) {
	for i, own := range p.owners[node].Own {
		delete(p.ranges[i].taken, own)
		p.ranges[i].rewind()
	}
	delete(p.owners, node)
}

// reclaimable are the nodes that have been gone for long enough, the longest first.
func (p *Pool) reclaimable(now time.Time) (gone []Owner) {
	for _, o := range p.owners {
		if !o.Gone.IsZero() && now.Sub(o.Gone) >= p.spec.Reclaim {
			gone = append(gone, o)
		}
	}
	slices.SortFunc(gone, func(a, b Owner) int { return cmp.Or(a.Gone.Compare(b.Gone), cmp.Compare(a.Node, b.Node)) })
	return gone
}

// Usage returns how many nodes the pool can have, and for how many more there are ranges: of the range of which the
// smaller share is left.
func (p *Pool) Usage() (left, total int) {
	left, total = pool.Max, pool.Max
	for i, d := range p.ranges {
		l, t := d.usage()
		if int64(l)*int64(total) < int64(left)*int64(t) || i == 0 {
			left, total = l, t
		}
	}
	return left, total
}

// Bounds returns the first and the last address that a node may give of its range: not the network's own address, nor
// its last one, which is the broadcast address.
func (r *Range) Bounds(own netip.Prefix) (first, last netip.Addr) {
	first, last = own.Masked().Addr(), netipx.PrefixLastIP(own)
	if first == r.Prefix.Masked().Addr() {
		first = first.Next()
	}
	if last == netipx.PrefixLastIP(r.Prefix) {
		last = last.Prev()
	}
	return first, last
}

// Capacity returns how many addresses a node can give of its range. host-local keeps the first one of a subnet for the
// gateway.
func (r *Range) Capacity(own netip.Prefix) int {
	first, last := r.Bounds(own)
	n := pool.Between(first, last)
	if first != own.Masked().Addr() {
		n--
	}
	return n
}
