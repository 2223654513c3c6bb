package noderange

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
)

// divided is a range of a fabric, in blocks: parts as long as a node's. Everything about a block is found by the block,
// so that a round with thousands of nodes looks at each of them once.
type divided struct {
	spec  *Range
	all   *netipx.IPSet           // what nodes can have
	fixed map[string]netip.Prefix // the static ones of nodes
	whose map[netip.Prefix]string // the same, by block
	taken map[netip.Prefix]string // whose they are
	// What nodes had or hold: no other node gets it.
	reserved map[netip.Prefix]holder
	mine     map[string]map[netip.Prefix]int64 // by node: how many addresses it holds of a block; 0: it had it
	shut     *netipx.IPSet                     // what is too wide for blocks: no node gets it

	parts []netip.Prefix // of what is free, where first looks; nil: not known
	at    int            // in parts
	next  netip.Addr     // in that part; not valid: its first
}

// holder is the node that had or holds something of a block. No node: several, or one that must not have it again.
type holder struct{ node string }

func divide(spec *Spec, r *Range) (*divided, error) {
	all, err := r.Free()
	if err != nil {
		return nil, fmt.Errorf("fabric %s: range %s: %w", spec.Fabric, r.Prefix, err)
	}
	d := &divided{
		spec: r, all: all, fixed: map[string]netip.Prefix{}, whose: map[netip.Prefix]string{},
		taken: map[netip.Prefix]string{}, reserved: map[netip.Prefix]holder{},
		mine: map[string]map[netip.Prefix]int64{}, shut: &netipx.IPSet{},
	}
	for node, static := range spec.Static {
		for _, s := range static {
			if _, twice := d.fixed[node]; !twice && s.Bits() == r.Bits && r.Prefix.Contains(s.Addr()) {
				d.fixed[node], d.whose[s.Masked()] = s.Masked(), node
			}
		}
	}
	return d, nil
}

// block is the one that an address is in.
func (d *divided) block(a netip.Addr) netip.Prefix {
	return netip.PrefixFrom(a, d.spec.Bits).Masked()
}

// open reports whether a node may have a block as far as the spec and the other nodes' ranges say.
func (d *divided) open(block netip.Prefix, node string) bool {
	static, is := d.whose[block]
	_, taken := d.taken[block]
	return d.all.ContainsPrefix(block) && !taken && (!is || static == node)
}

// freeFor reports whether a node may have a block, and no other had or holds anything of it.
func (d *divided) freeFor(block netip.Prefix, node string) bool {
	h, is := d.reserved[block]
	return d.open(block, node) && (!is || h.node != "" && h.node == node) && !d.shut.OverlapsPrefix(block)
}

// inTheWay says why a block is not free.
func (d *divided) inTheWay(block netip.Prefix) string {
	if node := d.taken[block]; node != "" {
		return "it belongs to node " + node
	}
	if h, is := d.reserved[block]; is && h.node != "" {
		return "node " + h.node + " had it, and has not said yet that none of its pods holds an address of it"
	}
	if !d.all.ContainsPrefix(block) {
		return "some of it is excluded"
	}
	return "nodes had it or other fabrics' pods hold addresses of it"
}

// claim returns the block that a node had, or whose addresses its pods hold: of several that of which it holds most.
func (d *divided) claim(node string) (block netip.Prefix, ok bool) {
	most := int64(-1)
	fixed, static := d.fixed[node]
	for b, n := range d.mine[node] {
		if static && b != fixed || !d.freeFor(b, node) {
			continue
		}
		if n > most || n == most && b.Addr().Less(block.Addr()) {
			block, most, ok = b, n, true
		}
	}
	return block, ok
}

// first returns the first block that no node has or had, and of which no pod holds an address.
func (d *divided) first() (netip.Prefix, bool) {
	if d.parts == nil {
		d.parts = d.free()
	}
	for ; d.at < len(d.parts); d.at, d.next = d.at+1, (netip.Addr{}) {
		part := d.parts[d.at]
		if !d.next.IsValid() {
			d.next = part.Addr()
		}
		for part.Contains(d.next) {
			b := d.block(d.next)
			_, static := d.whose[b]
			if !static && d.freeFor(b, "") {
				return b, true
			}
			if d.next = netipx.PrefixLastIP(b).Next(); !d.next.IsValid() {
				break
			}
		}
	}
	return netip.Prefix{}, false
}

// rewind has first look at everything again.
func (d *divided) rewind() { d.parts, d.at, d.next = nil, 0, netip.Addr{} }

// free is what no node has, had or holds, as prefixes of which blocks can be taken: the smallest first, so that large
// ones stay whole.
func (d *divided) free() []netip.Prefix {
	var b netipx.IPSetBuilder
	b.AddSet(d.all)
	b.RemoveSet(d.shut)
	for p := range d.taken {
		b.RemovePrefix(p)
	}
	for p := range d.whose {
		b.RemovePrefix(p)
	}
	for p := range d.reserved {
		b.RemovePrefix(p)
	}
	out := []netip.Prefix{}
	if s, err := b.IPSet(); err == nil {
		out = slices.DeleteFunc(s.Prefixes(), func(p netip.Prefix) bool { return p.Bits() > d.spec.Bits })
	}
	slices.SortStableFunc(out, func(a, b netip.Prefix) int { return cmp.Compare(b.Bits(), a.Bits()) })
	return out
}

// usage is how many blocks are left for any node, and how many there are.
func (d *divided) usage() (left, total int) {
	total = blocks(d.all, d.spec.Bits)
	used := len(d.taken)
	for b := range d.whose {
		if _, taken := d.taken[b]; !taken && d.all.ContainsPrefix(b) {
			used++
		}
	}
	for b := range d.reserved {
		_, taken := d.taken[b]
		if _, static := d.whose[b]; !taken && !static && d.all.ContainsPrefix(b) {
			used++
		}
	}
	if total == pool.Max {
		return total, total
	}
	return max(total-used, 0), total
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
