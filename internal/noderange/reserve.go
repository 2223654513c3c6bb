package noderange

import (
	"net/netip"

	"go4.org/netipx"
)

// MaxHeld is of how many blocks of a range a node may hold addresses: that is a /24 of blocks of eight. It is no more
// than the node's word, so no more are kept for it.
const MaxHeld = 32

// maxFormerBlocks is how many blocks a former range may have. It is known what a node had, so it may be more.
const maxFormerBlocks = 4096

// Conflict is an address that pods of a node hold of another node's range.
type Conflict struct {
	Node  string       // whose pods hold it
	Held  netip.Prefix // what they hold
	Owner string       // whose range it is in
	Range netip.Prefix
}

// Conflicts are the addresses that pods of a node hold of another node's range.
func (p *Pool) Conflicts() []Conflict { return p.conflicts }

// Excess are the nodes that say that they hold more than they can.
func (p *Pool) Excess() []string { return p.excess }

// reserve notes what a node had and holds.
func (p *Pool) reserve(o *Owner) {
	for _, d := range p.ranges {
		if p.owners[o.Node].Own == nil {
			d.former(o.Own, o.Node)
		}
		d.former(o.Former, o.Node)
		d.former(o.OthersFormer, "")
		mine, ok := d.held(o.Held, o.Node)
		p.conflicts = append(p.conflicts, mine...)
		others, fits := d.held(o.OthersHeld, "")
		for i := range others {
			others[i].Node = o.Node
		}
		p.conflicts = append(p.conflicts, others...)
		if !ok || !fits {
			p.excess = append(p.excess, o.Node)
		}
	}
}

// former reserves what a node had; without a name no node gets it.
func (d *divided) former(had []netip.Prefix, node string) {
	for _, h := range had {
		if !h.IsValid() || !h.Overlaps(d.spec.Prefix) {
			continue
		}
		if n := d.touched(h); n > maxFormerBlocks {
			d.close(h)
			continue
		}
		for b := range d.each(h) {
			d.keep(b, node)
			if node != "" {
				d.note(b, node, 0)
			}
		}
	}
}

// close takes a prefix away from everybody.
func (d *divided) close(p netip.Prefix) {
	var b netipx.IPSetBuilder
	b.AddSet(d.shut)
	b.AddPrefix(p)
	if s, err := b.IPSet(); err == nil {
		d.shut = s
		d.rewind()
	}
}

// held reserves what pods of a node hold, as far as that is possible. It returns what lies in other nodes' ranges, and
// whether it was possible.
func (d *divided) held(prefixes []netip.Prefix, node string) (conflicts []Conflict, ok bool) {
	seen := map[netip.Prefix]bool{}
	ok = true
	for _, h := range prefixes {
		if !h.IsValid() || !h.Overlaps(d.spec.Prefix) {
			continue
		}
		if d.touched(h) > MaxHeld {
			ok = false
			continue
		}
		for b := range d.each(h) {
			if !seen[b] && len(seen) == MaxHeld {
				ok = false
				break
			}
			seen[b] = true
			if owner, taken := d.taken[b]; taken && owner != node {
				conflicts = append(conflicts, Conflict{node, h, owner, b})
				continue
			}
			d.keep(b, node)
			if node != "" {
				d.note(b, node, count(h, b))
			}
		}
	}
	return conflicts, ok
}

// keep reserves a block for a node.
func (d *divided) keep(block netip.Prefix, node string) {
	if h, is := d.reserved[block]; is && h.node != node {
		node = ""
	}
	d.reserved[block] = holder{node}
}

// note adds to what a node holds of a block.
func (d *divided) note(block netip.Prefix, node string, n int64) {
	if d.mine[node] == nil {
		d.mine[node] = map[netip.Prefix]int64{}
	}
	d.mine[node][block] += n
}

// touched is how many blocks a prefix has something of, up to one more than can be.
func (d *divided) touched(p netip.Prefix) int {
	p = within(p, d.spec.Prefix)
	if more := d.spec.Bits - p.Bits(); more > 0 {
		return 1 << min(more, 20)
	}
	return 1
}

// each yields the blocks that a prefix has something of.
func (d *divided) each(p netip.Prefix) func(yield func(netip.Prefix) bool) {
	p = within(p, d.spec.Prefix)
	return func(yield func(netip.Prefix) bool) {
		a := p.Masked().Addr()
		for range d.touched(p) {
			b := d.block(a)
			if !yield(b) {
				return
			}
			if a = netipx.PrefixLastIP(b).Next(); !a.IsValid() {
				return
			}
		}
	}
}

// within is the part of a prefix that lies in one that it overlaps.
func within(p, in netip.Prefix) netip.Prefix {
	if p.Bits() < in.Bits() {
		return in
	}
	return p
}

// count is how many addresses two prefixes that overlap have in common, up to very many.
func count(a, b netip.Prefix) int64 {
	return 1 << min(a.Addr().BitLen()-max(a.Bits(), b.Bits()), 40)
}
