package whereabouts

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"strings"

	"go4.org/netipx"
)

// Count is how many addresses a set has, at most math.MaxInt32: nobody fills more.
func Count(s *netipx.IPSet) int {
	n := uint64(0)
	for _, r := range s.Ranges() {
		from, to := r.From().As16(), r.To().As16()
		if [8]byte(from[:8]) != [8]byte(to[:8]) {
			return math.MaxInt32
		}
		size := binary.BigEndian.Uint64(to[8:]) - binary.BigEndian.Uint64(from[8:])
		if n += size; size >= math.MaxInt32 || n >= math.MaxInt32 {
			return math.MaxInt32
		}
		n++
	}
	return int(n)
}

// NeedError tells that a range has not got enough addresses.
type NeedError struct {
	Field string
	Range netip.Prefix
	Have  int // addresses to give
	Need  int // interfaces that want one
	Who   string
}

func (e *NeedError) Error() string {
	return fmt.Sprintf(
		"%s %s has %d addresses to give, %s %d: choose a wider range",
		e.Field,
		e.Range,
		e.Have,
		e.Who,
		e.Need,
	)
}

// Enough tells whether each range does for so many interfaces in the cluster, of which one node has onNode: every
// interface gets an address of every range. The error is a *NeedError.
func (c *Config) Enough(inCluster, onNode int) error {
	for _, r := range c.Ranges {
		if n := Count(r.Free); n < inCluster {
			return &NeedError{r.Field, r.Prefix, n, inCluster, "and all nodes together need"}
		}
		if c.SliceBits == 0 {
			continue
		}
		if n := 1<<min(30, r.Prefix.Addr().BitLen()-c.SliceBits) - 2; n < onNode {
			return &NeedError{
				"ipam." + sliceField,
				netip.PrefixFrom(r.Prefix.Addr(), c.SliceBits),
				n,
				onNode,
				"and this node needs",
			}
		}
	}
	return nil
}

// Owns tells whether an IPPool of whereabouts belongs to the range of this network: by its name, which has the
// network's and the range's, and by its range, which is a part where each node has one.
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

// Capacity is how many addresses whereabouts gives of a pool that Owns has said is the range's.
func (c *Config) Capacity(r Range, of netip.Prefix) int {
	if of == r.Prefix {
		return Count(r.Free)
	}
	var b netipx.IPSetBuilder
	b.AddPrefix(of)
	b.Remove(of.Masked().Addr())
	b.Remove(netipx.PrefixLastIP(of))
	b.Intersect(r.Free)
	s, err := b.IPSet()
	if err != nil {
		return 0
	}
	return Count(s)
}
