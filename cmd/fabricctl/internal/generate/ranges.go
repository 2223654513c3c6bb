package generate

import (
	"fmt"
	"net/netip"

	"go4.org/netipx"

	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
)

// ranges gives each network its addresses, and refuses a range that is too small: whereabouts would report it only
// when the last pods start.
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
		n.Have = pool.Usable(n.Range, n.Exclude...)
		if n.Have < n.Need {
			return fmt.Errorf("network %s: range %s has %d addresses to give, %d are needed (nodes times rails); "+
				"choose a wider --range", n.Name, n.Range, n.Have, n.Need)
		}
	}
	return nil
}

// split shares a range out into equal parts.
func split(p netip.Prefix, n int) ([]netip.Prefix, error) {
	if !p.IsValid() {
		return nil, ErrNoRange
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
