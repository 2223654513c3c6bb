// Package pool is the arithmetic of address pools: how many addresses a pool has to give, and when it is nearly full.
// It is pure. fabricctl generate, the doctor and the agent decide by it, so that they agree.
package pool

import (
	"encoding/binary"
	"math"
	"net/netip"

	"go4.org/netipx"
)

// Max is the largest number of addresses that this package reports. A larger pool has Max: it is never full.
const Max = math.MaxInt32

// NearlyFullPercent is the share of a pool's addresses from which on the pool is nearly full.
//
// The ranges of a fabric are usually cut for the interfaces that its nodes can have at most, so a cluster that works at
// capacity uses most of them for good. A warning at 80 % would stay on there, and such a warning is not read. At 90 % a
// /24 still has 25 addresses: room for six pods with four rails each while the range is widened.
const NearlyFullPercent = 90

// Level is how full a pool is.
type Level int

// The levels of a pool.
const (
	Room       Level = iota // less than NearlyFullPercent of the addresses are in use
	NearlyFull              // at least NearlyFullPercent, but not all
	Full                    // all; also a pool without any address
)

// LevelOf returns the level of a pool that has given so many of its addresses.
func LevelOf(given, have int) Level {
	switch {
	case given >= have:
		return Full
	case int64(given)*100 >= int64(have)*NearlyFullPercent:
		return NearlyFull
	}
	return Room
}

// Count returns the number of addresses in a set, at most Max.
func Count(s *netipx.IPSet) int {
	n := 0
	for _, r := range s.Ranges() {
		n = min(Max, n+Between(r.From(), r.To()))
	}
	return n
}

// Between returns the number of addresses from first to last, both included, at most Max. It is 0 when last comes
// before first, or when they are of different families.
func Between(first, last netip.Addr) int {
	if first.BitLen() != last.BitLen() || last.Less(first) {
		return 0
	}
	from, to := first.As16(), last.As16()
	if [8]byte(from[:8]) != [8]byte(to[:8]) {
		return Max
	}
	n := binary.BigEndian.Uint64(to[8:]) - binary.BigEndian.Uint64(from[8:])
	return int(min(n, Max-1)) + 1
}

// Usable returns the number of addresses that whereabouts gives of a prefix, at most Max: all but the first and the
// last, which it keeps in both families, and but those in exclude. An exclude outside of the prefix changes nothing.
func Usable(p netip.Prefix, exclude ...netip.Prefix) int {
	s, err := UsableSet(p, exclude...)
	if err != nil {
		return 0
	}
	return Count(s)
}

// UsableSet returns the addresses that Usable counts. It fails if a prefix is not valid.
func UsableSet(p netip.Prefix, exclude ...netip.Prefix) (*netipx.IPSet, error) {
	var b netipx.IPSetBuilder
	b.AddPrefix(p)
	if p.IsValid() {
		b.Remove(p.Masked().Addr())
		b.Remove(netipx.PrefixLastIP(p))
	}
	for _, e := range exclude {
		b.RemovePrefix(e)
	}
	return b.IPSet()
}
