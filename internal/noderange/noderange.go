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

// Owner is a node that has ranges.
type Owner struct {
	Node string
	Own  []netip.Prefix
	Gone time.Time // since when the cluster has no such Node; zero: it has
}

// ErrExhausted means that no range is left.
var ErrExhausted = errors.New("every range has an owner")

// Pool knows which ranges of a fabric are free. It is not for several goroutines at once.
type Pool struct {
	spec   Spec
	all    []*netipx.IPSet  // by range: what nodes can have
	free   []*netipx.IPSet  // by range: what is no node's
	owners map[string]Owner // by node, with valid ranges
	before map[string]Owner // by node, with ranges that are not valid any more
}

// New returns the pool of a fabric whose ranges these nodes have. What a node has is valid if it is as the spec wants
// it and no other node's; where two nodes have the same, it is that of the node that is first in the list. A node whose
// ranges are not valid gets others; until then nobody gets what it has, as pods may still have the addresses.
func New(spec Spec, owners []Owner) (*Pool, error) {
	p := &Pool{spec: spec, owners: map[string]Owner{}, before: map[string]Owner{}}
	for _, r := range spec.Ranges {
		s, err := r.Free()
		if err != nil {
			return nil, fmt.Errorf("fabric %s: range %s: %w", spec.Fabric, r.Prefix, err)
		}
		p.all, p.free = append(p.all, s), append(p.free, s)
	}
	for _, o := range owners {
		switch _, twice := p.owners[o.Node]; {
		case twice:
		case p.valid(&o):
			p.take(o)
		default:
			p.before[o.Node] = o
		}
	}
	return p, nil
}

// Own returns the ranges of a node, in the order of the spec; none if it has none that are valid.
func (p *Pool) Own(node string) []netip.Prefix { return p.owners[node].Own }

// Assign returns the ranges of a node: those that it has, or else free ones, or else those of Nodes that have been gone
// for long enough. These are returned too: they must lose their ranges before the node gets them.
func (p *Pool) Assign(node string, now time.Time) (own []netip.Prefix, reclaimed []string, err error) {
	if o, ok := p.owners[node]; ok {
		o.Gone = time.Time{}
		p.owners[node] = o
		return o.Own, nil, nil
	}
	delete(p.before, node)
	own = p.next(node)
	var released []Owner
	for _, o := range p.reclaimable(now) {
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
	for i := range p.spec.Ranges {
		if _, ok := p.first(i); !ok {
			r = p.spec.Ranges[i]
			break
		}
	}
	return fmt.Errorf("fabric %s: range %s has no /%d left for node %s: %w (%d nodes); "+
		"choose a wider range or a longer prefix per "+
		"node", p.spec.Fabric, r.Prefix, r.Bits, node, ErrExhausted, len(p.owners))
}

// next returns ranges for a node that has none: its static ones, and otherwise the first that are free and nobody's
// static ones.
func (p *Pool) next(node string) []netip.Prefix {
	var own []netip.Prefix
	for i, r := range p.spec.Ranges {
		prefix, ok := p.fixed(node, &r)
		switch {
		case ok:
			ok = p.free[i].ContainsPrefix(prefix)
		default:
			prefix, ok = p.first(i)
		}
		if !ok {
			return nil
		}
		own = append(own, prefix)
	}
	return own
}

// first returns the first free prefix of a range that is no node's static one, and that no node had before.
func (p *Pool) first(i int) (netip.Prefix, bool) {
	free, err := p.open(i)
	if err != nil {
		return netip.Prefix{}, false
	}
	prefix, _, ok := free.RemoveFreePrefix(uint8(p.spec.Ranges[i].Bits))
	return prefix, ok
}

// open is what is free of a range for any node.
func (p *Pool) open(i int) (*netipx.IPSet, error) {
	r := &p.spec.Ranges[i]
	var b netipx.IPSetBuilder
	b.AddSet(p.free[i])
	for node := range p.spec.Static {
		if fixed, ok := p.fixed(node, r); ok {
			b.RemovePrefix(fixed)
		}
	}
	for _, o := range p.before {
		for _, own := range o.Own {
			b.RemovePrefix(own)
		}
	}
	return b.IPSet()
}

// fixed returns the static range that a node has of a range.
func (p *Pool) fixed(node string, r *Range) (netip.Prefix, bool) {
	for _, s := range p.spec.Static[node] {
		if s.Bits() == r.Bits && r.Prefix.Contains(s.Addr()) {
			return s.Masked(), true
		}
	}
	return netip.Prefix{}, false
}

// valid reports whether what a node has is as the spec wants it and nobody else's.
func (p *Pool) valid(o *Owner) bool {
	if len(o.Own) != len(p.spec.Ranges) {
		return false
	}
	for i, own := range o.Own {
		r := &p.spec.Ranges[i]
		if own.Bits() != r.Bits || own != own.Masked() || !p.free[i].ContainsPrefix(own) {
			return false
		}
		if fixed, ok := p.fixed(o.Node, r); ok && fixed != own {
			return false
		}
		if p.othersFixed(o.Node, r, own) {
			return false
		}
	}
	return true
}

// othersFixed reports whether a range is another node's static one.
func (p *Pool) othersFixed(node string, r *Range, own netip.Prefix) bool {
	for other := range p.spec.Static {
		if fixed, ok := p.fixed(other, r); ok && other != node && fixed.Overlaps(own) {
			return true
		}
	}
	return false
}

func (p *Pool) take(o Owner) {
	p.owners[o.Node] = o
	for i, own := range o.Own {
		p.free[i] = change(p.free[i], own, (*netipx.IPSetBuilder).RemovePrefix)
	}
}

func (p *Pool) release(node string) {
	for i, own := range p.owners[node].Own {
		p.free[i] = change(p.free[i], own, (*netipx.IPSetBuilder).AddPrefix)
	}
	delete(p.owners, node)
}

// change can't fail: it is given valid prefixes only.
func change(s *netipx.IPSet, prefix netip.Prefix, f func(*netipx.IPSetBuilder, netip.Prefix)) *netipx.IPSet {
	var b netipx.IPSetBuilder
	b.AddSet(s)
	f(&b, prefix)
	out, err := b.IPSet()
	if err != nil {
		return s
	}
	return out
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
	for i := range p.spec.Ranges {
		r := &p.spec.Ranges[i]
		free, err := p.open(i)
		if err != nil {
			continue
		}
		l, t := blocks(free, r.Bits), blocks(p.all[i], r.Bits)
		if int64(l)*int64(total) < int64(left)*int64(t) || i == 0 {
			left, total = l, t
		}
	}
	return left, total
}

// blocks returns how many prefixes of a length a set has, at most pool.Max.
func blocks(s *netipx.IPSet, bits int) (n int) {
	for _, p := range s.Prefixes() {
		switch more := bits - p.Bits(); {
		case more >= 31:
			return pool.Max
		case more >= 0:
			n = min(pool.Max, n+1<<more)
		}
	}
	return n
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
