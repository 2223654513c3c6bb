package generate

import (
	"errors"
	"fmt"
	"net/netip"

	"go4.org/netipx"
)

// ranges gives each network its addresses, and refuses a range that is too small: whereabouts would say so only when
// the last pods start.
func ranges(list []Network, o *Options) error {
	parts, err := split(o.Range, len(list))
	if err != nil {
		return err
	}
	for i := range list {
		n := &list[i]
		n.Range = parts[i]
		for _, e := range o.Exclude {
			if n.Range.Overlaps(e) {
				n.Exclude = append(n.Exclude, e)
			}
		}
		n.Have = usable(n.Range, n.Exclude)
		if n.Have < n.Need {
			return fmt.Errorf(
				"network %s: range %s has %d addresses to give, %d are needed (nodes times rails); choose a wider "+
					"--range",
				n.Name,
				n.Range,
				n.Have,
				n.Need,
			)
		}
	}
	return nil
}

// split shares a range out into equal parts.
func split(p netip.Prefix, n int) ([]netip.Prefix, error) {
	if !p.IsValid() {
		return nil, errors.New("range is missing: --range 192.168.128.0/18")
	}
	bits := p.Bits()
	for size := 1; size < n; size *= 2 {
		bits++
	}
	if bits > p.Addr().BitLen()-2 {
		return nil, fmt.Errorf("range %s is too small to be shared out to %d networks", p, n)
	}
	out := []netip.Prefix{netip.PrefixFrom(p.Masked().Addr(), bits)}
	for len(out) < n {
		out = append(out, netip.PrefixFrom(netipx.PrefixLastIP(out[len(out)-1]).Next(), bits))
	}
	return out, nil
}

// usable counts the addresses of a range that whereabouts gives: without network and broadcast address, and what is
// excluded. Prefixes are disjoint, or one is in the other: of those only the larger counts.
func usable(p netip.Prefix, exclude []netip.Prefix) int {
	first := p.Masked().Addr()
	last := netipx.PrefixLastIP(p)
	n := count(p) - 2
	for i, e := range exclude {
		e = e.Masked()
		if e.Bits() <= p.Bits() && e.Contains(first) {
			return 0
		}
		inOther := func(j int, o netip.Prefix) bool {
			return j != i && o.Contains(e.Addr()) && (o.Bits() < e.Bits() || o.Bits() == e.Bits() && j < i)
		}
		if !p.Contains(e.Addr()) || anyOf(exclude, inOther) {
			continue
		}
		n -= count(e)
		for _, edge := range []netip.Addr{first, last} { // is not given anyhow
			if e.Contains(edge) {
				n++
			}
		}
	}
	return max(n, 0)
}

func anyOf(list []netip.Prefix, f func(int, netip.Prefix) bool) bool {
	for i, p := range list {
		if f(i, p) {
			return true
		}
	}
	return false
}

func count(p netip.Prefix) int { return 1 << min(p.Addr().BitLen()-p.Bits(), 30) }
