// Package noderange divides a fabric's addresses into one range for each node, so that no address needs a lock of the
// whole cluster: host-local gives the addresses of a node's range. One ConfigMap per fabric has the table of which
// node has which range. The API server accepts a change only from whoever has read the latest version, so that no two
// nodes get the same range.
package noderange

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"

	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
)

// Spec is a fabric's range, and how it is divided.
type Spec struct {
	Fabric  string
	Prefix  netip.Prefix   // of the whole fabric
	Bits    int            // prefix length of a node's range
	Without []netip.Prefix // no node's range has any address of these
	Reclaim time.Duration  // how long a Node must have been gone before its range may become another's
}

// Table maps a node to its range: "10.0.3.64/26", or "10.0.3.64/26 gone 2026-01-02T15:04:05Z" once a node that found
// no free range has noticed that the owner's Node is gone.
type Table map[string]string

// ErrExhausted means that every range has an owner.
var ErrExhausted = errors.New("every range has an owner")

// entry is a line of the table.
type entry struct {
	prefix netip.Prefix
	gone   time.Time // when somebody noticed that the Node is gone; zero: nobody has
}

func parse(text string) (e entry, err error) {
	prefix, since, isGone := strings.Cut(text, " gone ")
	if e.prefix, err = netip.ParsePrefix(prefix); err == nil && isGone {
		e.gone, err = time.Parse(time.RFC3339, since)
	}
	return e, err
}

func (e entry) String() string {
	if e.gone.IsZero() {
		return e.prefix.String()
	}
	return e.prefix.String() + " gone " + e.gone.UTC().Format(time.RFC3339)
}

// NodeLister returns the names of all Nodes.
type NodeLister func() (map[string]bool, error)

// Allocate returns a node's range: the one it has in the table, or a free one, or at last that of a Node that has been
// gone for long enough. nodes is called only if nothing is free. The returned table is the one to store, also if the
// error is ErrExhausted.
func (s Spec) Allocate(table Table, node string, nodes NodeLister, now time.Time) (netip.Prefix, Table, error) {
	next := maps.Clone(table)
	if next == nil {
		next = Table{}
	}
	others := map[string]entry{}
	for name, text := range table {
		if e, err := parse(text); err == nil && name != node && e.prefix.Overlaps(s.Prefix) {
			others[name] = e
		}
	}
	free, err := s.free(others)
	if err != nil {
		return netip.Prefix{}, table, err
	}
	if own, err := parse(table[node]); err == nil && s.valid(own.prefix) && free.ContainsPrefix(own.prefix) {
		next[node] = entry{prefix: own.prefix}.String()
		return own.prefix, next, nil
	}
	delete(next, node)
	if prefix, _, ok := free.RemoveFreePrefix(uint8(s.Bits)); ok {
		next[node] = entry{prefix: prefix}.String()
		return prefix, next, nil
	}
	return s.reclaim(others, next, node, nodes, now)
}

func (s Spec) valid(p netip.Prefix) bool { return p.Bits() == s.Bits && p == p.Masked() }

// free are the addresses that no node has.
func (s Spec) free(others map[string]entry) (*netipx.IPSet, error) {
	var b netipx.IPSetBuilder
	b.AddPrefix(s.Prefix)
	for _, w := range s.Without {
		b.RemovePrefix(w)
	}
	for _, e := range others {
		b.RemovePrefix(e.prefix)
	}
	free, err := b.IPSet()
	if err != nil {
		return nil, fmt.Errorf("fabric %s: range %s: %w", s.Fabric, s.Prefix, err)
	}
	return free, nil
}

// reclaim records in the table which owners are gone, and returns the range of those that have been gone for long
// enough, beginning with the longest.
func (s Spec) reclaim(
	others map[string]entry, next Table, node string, nodes NodeLister, now time.Time,
) (netip.Prefix, Table, error) {
	present, err := nodes()
	if err != nil {
		return netip.Prefix{}, next, err
	}
	for name, e := range others {
		switch {
		case present[name]:
			e.gone = time.Time{}
		case e.gone.IsZero():
			e.gone = now
		}
		others[name], next[name] = e, e.String()
	}
	longest := func(a, b string) int {
		return cmp.Or(others[a].gone.Compare(others[b].gone), strings.Compare(a, b))
	}
	for _, name := range slices.SortedFunc(maps.Keys(others), longest) {
		if gone := others[name].gone; gone.IsZero() || now.Sub(gone) < s.Reclaim {
			continue
		}
		delete(others, name)
		delete(next, name)
		free, err := s.free(others)
		if err != nil {
			return netip.Prefix{}, next, err
		}
		if prefix, _, ok := free.RemoveFreePrefix(uint8(s.Bits)); ok {
			next[node] = entry{prefix: prefix}.String()
			return prefix, next, nil
		}
	}
	return netip.Prefix{}, next, fmt.Errorf("fabric %s: range %s has no /%d left for node %s: %w (%d nodes); choose "+
		"a wider range or a longer prefix per node", s.Fabric, s.Prefix, s.Bits, node, ErrExhausted, len(others))
}

// Bounds are the first and last address of a node's range that an interface may have: neither the network's own
// address nor its broadcast address.
func (s Spec) Bounds(own netip.Prefix) (first, last netip.Addr) {
	first, last = own.Masked().Addr(), netipx.PrefixLastIP(own)
	if first == s.Prefix.Masked().Addr() {
		first = first.Next()
	}
	if last == netipx.PrefixLastIP(s.Prefix) {
		last = last.Prev()
	}
	return first, last
}

// Capacity is the number of addresses of a node's range that host-local gives. In the range at the start of the
// network it also keeps the first address, for a gateway.
func (s Spec) Capacity(own netip.Prefix) int {
	first, last := s.Bounds(own)
	n := pool.Between(first, last)
	if first != own.Masked().Addr() {
		n--
	}
	return n
}
