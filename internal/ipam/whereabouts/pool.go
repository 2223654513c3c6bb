package whereabouts

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"go4.org/netipx"

	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
)

// NeedError is returned for a range that has fewer addresses than are needed.
type NeedError struct {
	Field string
	Range netip.Prefix
	Have  int    // addresses to give
	Need  int    // interfaces that need one
	Who   string // who needs them, with the verb: "and this node needs"
}

func (e *NeedError) Error() string {
	return fmt.Sprintf("%s %s has %d addresses to give, %s %d: choose a wider range",
		e.Field, e.Range, e.Have, e.Who, e.Need)
}

// Enough checks whether each range is large enough for so many interfaces in the cluster, of which one node has onNode:
// every interface gets an address of every range. The error is a *NeedError.
func (c *Config) Enough(inCluster, onNode int) error {
	for _, r := range c.Ranges {
		if n := pool.Count(r.Free); n < inCluster {
			return &NeedError{r.Field, r.Prefix, n, inCluster, "and all nodes together need"}
		}
		if c.SliceBits == 0 {
			continue
		}
		slice := netip.PrefixFrom(r.Prefix.Addr(), c.SliceBits)
		if n := pool.Usable(slice); n < onNode {
			return &NeedError{"ipam." + sliceField, slice, n, onNode, "and this node needs"}
		}
	}
	return nil
}

// Owns reports whether an IPPool of whereabouts belongs to the range of this network. It decides by the name of the
// pool, which consists of the network's and the range's, and by its range, which is a part of r with node_slice_size.
func (c *Config) Owns(r Range, pool string, of netip.Prefix) bool {
	if !of.IsValid() || !r.Prefix.Contains(of.Addr()) || of.Bits() < r.Prefix.Bits() {
		return false
	}
	suffix := strings.NewReplacer(":", "-", "/", "-").Replace(of.String())
	if c.NetworkName == "" {
		return pool == suffix || c.SliceBits > 0 && strings.HasSuffix(pool, "-"+suffix)
	}
	return pool == c.NetworkName+"-"+suffix ||
		c.SliceBits > 0 && strings.HasPrefix(pool, c.NetworkName+"-") && strings.HasSuffix(pool, "-"+suffix)
}

// Named returns the ranges that the name of an IPPool may end with; whereabouts writes : and / as -, so that an IPv6
// range may be read in several ways. An IPPool that whereabouts has made has one of them as its range.
func Named(pool string) (out []netip.Prefix) {
	k := strings.LastIndexByte(pool, '-')
	bits, err := strconv.Atoi(pool[k+1:])
	if k < 0 || err != nil {
		return nil
	}
	for rest, more := pool[:k], true; more; _, rest, more = strings.Cut(rest, "-") {
		a, err := netip.ParseAddr(strings.ReplaceAll(rest, "-", ":"))
		if p := netip.PrefixFrom(a, bits); err == nil && p.IsValid() {
			out = append(out, p)
		}
	}
	return out
}

// Capacity is how many addresses whereabouts gives of a pool that Owns has attributed to the range.
func (c *Config) Capacity(r Range, of netip.Prefix) int {
	if of == r.Prefix {
		return pool.Count(r.Free)
	}
	slice, err := pool.UsableSet(of)
	if err != nil {
		return 0
	}
	var b netipx.IPSetBuilder
	b.AddSet(slice)
	b.Intersect(r.Free)
	s, err := b.IPSet()
	if err != nil {
		return 0
	}
	return pool.Count(s)
}
