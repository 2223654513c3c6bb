// Package noderange gives each node a part of a fabric's addresses for itself, so that no address needs a lock of the
// whole cluster: host-local hands out the part's on the node. Which node has which part is in one ConfigMap per fabric.
// The API server takes a change of it only from whoever has seen the latest version, so that no two nodes get one part.
package noderange

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"
)

// Spec is a fabric's range and how it is cut.
type Spec struct {
	Fabric  string
	Prefix  netip.Prefix   // of the whole fabric
	Bits    int            // prefix length of a part
	Without []netip.Prefix // no part has any address of these
	Reclaim time.Duration  // how long a Node has to have been gone before its part is another's
}

// Table is which node has which part: "10.0.3.64/26", or "10.0.3.64/26 gone 2026-01-02T15:04:05Z" when a node that
// found no part left has seen that the owner's Node is gone.
type Table map[string]string

// ErrExhausted tells that every part has an owner.
var ErrExhausted = errors.New("every part of the range has an owner")

// entry is a line of the table.
type entry struct {
	part netip.Prefix
	gone time.Time // zero: nobody has noticed that it is
}

func parse(text string) (e entry, err error) {
	part, since, isGone := strings.Cut(text, " gone ")
	if e.part, err = netip.ParsePrefix(part); err == nil && isGone {
		e.gone, err = time.Parse(time.RFC3339, since)
	}
	return e, err
}

func (e entry) String() string {
	if e.gone.IsZero() {
		return e.part.String()
	}
	return e.part.String() + " gone " + e.gone.UTC().Format(time.RFC3339)
}

// Take finds a node's part: the one it had, also when it has been away, or a free one, or at last that of a Node that
// has been gone for long enough. nodes lists the Nodes that there are; it is asked only when nothing is free. The table
// that comes back is the one to store, also beside an ErrExhausted.
func (s Spec) Take(
	table Table,
	node string,
	nodes func() (map[string]bool, error),
	now time.Time,
) (netip.Prefix, Table, error) {
	next := maps.Clone(table)
	if next == nil {
		next = Table{}
	}
	others := map[string]entry{}
	for name, text := range table {
		if e, err := parse(text); err == nil && name != node && e.part.Overlaps(s.Prefix) {
			others[name] = e
		}
	}
	free, err := s.free(others)
	if err != nil {
		return netip.Prefix{}, table, err
	}
	if own, err := parse(
		table[node],
	); err == nil && own.part.Bits() == s.Bits && own.part == own.part.Masked() &&
		free.ContainsPrefix(own.part) {
		next[node] = entry{part: own.part}.String()
		return own.part, next, nil
	}
	delete(next, node)
	if part, _, ok := free.RemoveFreePrefix(uint8(s.Bits)); ok {
		next[node] = entry{part: part}.String()
		return part, next, nil
	}
	return s.reclaim(others, next, node, nodes, now)
}

func (s Spec) free(others map[string]entry) (*netipx.IPSet, error) {
	var b netipx.IPSetBuilder
	b.AddPrefix(s.Prefix)
	for _, w := range s.Without {
		b.RemovePrefix(w)
	}
	for _, e := range others {
		b.RemovePrefix(e.part)
	}
	free, err := b.IPSet()
	if err != nil {
		return nil, fmt.Errorf("fabric %s: range %s: %w", s.Fabric, s.Prefix, err)
	}
	return free, nil
}

// reclaim notes which owners are gone, and takes the part of those that have been for long enough, the longest first.
func (s Spec) reclaim(
	others map[string]entry,
	next Table,
	node string,
	nodes func() (map[string]bool, error),
	now time.Time,
) (netip.Prefix, Table, error) {
	there, err := nodes()
	if err != nil {
		return netip.Prefix{}, next, err
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		e := others[name]
		switch {
		case there[name]:
			e.gone = time.Time{}
		case e.gone.IsZero():
			e.gone = now
		}
		others[name], next[name] = e, e.String()
	}
	for _, name := range slices.SortedFunc(maps.Keys(others), func(a, b string) int { return others[a].gone.Compare(others[b].gone) }) {
		if gone := others[name].gone; gone.IsZero() || now.Sub(gone) < s.Reclaim {
			continue
		}
		delete(others, name)
		delete(next, name)
		free, err := s.free(others)
		if err != nil {
			return netip.Prefix{}, next, err
		}
		if part, _, ok := free.RemoveFreePrefix(uint8(s.Bits)); ok {
			next[node] = entry{part: part}.String()
			return part, next, nil
		}
	}
	return netip.Prefix{}, next, fmt.Errorf(
		"fabric %s: range %s has no /%d left for node %s: %w (%d nodes); choose a wider range or a longer prefix "+
			"per node",
		s.Fabric,
		s.Prefix,
		s.Bits,
		node,
		ErrExhausted,
		len(others),
	)
}

// Bounds are the first and last address of a part that an interface may have: not the network's own, nor its broadcast
// address.
func (s Spec) Bounds(part netip.Prefix) (first, last netip.Addr) {
	first, last = part.Masked().Addr(), netipx.PrefixLastIP(part)
	if first == s.Prefix.Masked().Addr() {
		first = first.Next()
	}
	if last == netipx.PrefixLastIP(s.Prefix) {
		last = last.Prev()
	}
	return first, last
}
