package controller

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/ipam/whereabouts"
)

// liveEvery is how long an address in use holds a change back before it is looked for again.
const liveEvery = 10 * time.Second

// given is an address that whereabouts has given to a pod.
type given struct {
	address netip.Addr
	pool    string // namespace/name
	pod     string // namespace/name; what its author says
}

// leases are those of whereabouts, as they were when a change was last judged.
type leases struct {
	at  time.Time
	all []given
}

// checkLive returns an error if a spec that is not in force yet would take an address from a pod that has it, or give
// it to another one. It names who has it. What is in force is not judged again.
func (c *Controller) checkLive(ctx context.Context, w *world, candidate, force *fabrics.Fabric) error {
	if force != nil && sameAddresses(force, candidate) {
		return nil
	}
	if w.holdings == nil {
		c.Ranges.ledger.read(w.nodes)
		w.holdings = c.Ranges.holdings(w.nodes, w.present)
		slices.SortFunc(w.holdings, func(a, b holding) int { return cmp.Compare(a.node, b.node) })
	}
	if err := c.checkUses(ctx, w, candidate, force); err != nil {
		return err
	}
	if candidate.NodeRanges == nil {
		return checkSection(w, candidate)
	}
	if err := checkCut(w, candidate, force, c.Now()); err != nil {
		return err
	}
	return c.checkLeases(ctx, candidate)
}

// sameAddresses reports whether two specs give the same addresses to the same nodes.
func sameAddresses(a, b *fabrics.Fabric) bool {
	if (a.NodeRanges == nil) != (b.NodeRanges == nil) {
		return false
	}
	if a.NodeRanges == nil {
		return reflect.DeepEqual(a.Network["ipam"], b.Network["ipam"])
	}
	return reflect.DeepEqual(a.NodeRanges.Ranges, b.NodeRanges.Ranges) &&
		reflect.DeepEqual(a.NodeRanges.Static, b.NodeRanges.Static)
}

// checkCut looks for addresses of the fabric's pods that would no longer be in the range of their node.
func checkCut(w *world, candidate, force *fabrics.Fabric, now time.Time) error {
	pool, err := poolOf(candidate, w.holdings, now)
	if err != nil {
		return err
	}
	excess := pool.Excess()
	for i := range w.holdings {
		if h := &w.holdings[i]; h.gone.IsZero() && len(h.held[candidate.Name]) > 0 {
			pool.Claim(h.node)
		}
	}
	for i := range w.holdings {
		h := &w.holdings[i]
		if !h.gone.IsZero() || slices.Contains(excess, h.node) {
			continue
		}
		own := pool.Own(h.node)
		for _, held := range h.held[candidate.Name] {
			if !reaches(candidate, held) || holds(own, held) ||
				force != nil && reaches(force, held) && !holds(ownRanges(h.ranges, candidate.Name), held) {
				continue // the last: it is cut already
			}
			would := "no range"
			if own != nil {
				would = fmt.Sprint(own)
			}
			return fmt.Errorf("%s is in use on node %s%s, which would have %s: keep "+
				"perNodePrefixLength, exclude and static so "+
				"that it stays the node's, or wait until these pods have ended", held, h.node,
				w.podsOf(h.node, candidate.Name), would)
		}
	}
	return nil
}

// reaches reports whether a prefix has addresses of the fabric's nodeRanges, excluded ones too.
func reaches(f *fabrics.Fabric, p netip.Prefix) bool {
	if f.NodeRanges == nil {
		return false
	}
	for i := range f.NodeRanges.Ranges {
		if f.NodeRanges.Ranges[i].Prefix.Overlaps(p) {
			return true
		}
	}
	return false
}

// holds reports whether a prefix lies in one of several.
func holds(own []netip.Prefix, p netip.Prefix) bool {
	return slices.ContainsFunc(own, func(o netip.Prefix) bool { return o.Bits() <= p.Bits() && o.Contains(p.Addr()) })
}

// podsOf names the pods that are on a fabric's devices of a node.
func (w *world) podsOf(node, fabric string) string {
	var pods []string
	for i := range w.nodes {
		if w.nodes[i].Name != node {
			continue
		}
		for j := range w.nodes[i].Status.Fabrics {
			f := &w.nodes[i].Status.Fabrics[j]
			for k := range f.Devices {
				if f.Name == fabric {
					pods = append(pods, f.Devices[k].Pods...)
				}
			}
		}
	}
	if len(pods) == 0 {
		return ""
	}
	slices.Sort(pods)
	return " (pods " + list(slices.Compact(pods)) + ")"
}

// checkSection looks for addresses that pods have of nodes' ranges, and that an IPAM plugin would give again.
func checkSection(w *world, candidate *fabrics.Fabric) error {
	section := sectionOf(candidate)
	for i := range w.holdings {
		h := &w.holdings[i]
		if !h.gone.IsZero() {
			continue
		}
		for name, all := range h.held {
			for _, held := range all {
				for _, r := range section.Ranges {
					if r.Free != nil && r.Free.OverlapsPrefix(held) {
						return fmt.Errorf("%s is in use on node %s%s, of nodeRanges of fabric %s, and %s %s has it "+
							"too: exclude it, or wait until these pods have ended", held, h.node,
							w.podsOf(h.node, name), name, r.Field, r.Prefix)
					}
				}
			}
		}
	}
	return nil
}

// checkLeases looks for addresses that whereabouts has given, and that nodes would give again. What lets a change pass
// is read in that moment.
func (c *Controller) checkLeases(ctx context.Context, candidate *fabrics.Fabric) error {
	if c.Now().Sub(c.leases.at) < liveEvery {
		if err := clash(candidate, c.leases.all); err != nil {
			return err
		}
	}
	next := leases{at: c.Now()}
	reached := func(name string) bool {
		return slices.ContainsFunc(whereabouts.Named(name), func(p netip.Prefix) bool { return reaches(candidate, p) })
	}
	_, err := c.eachPool(ctx, whereaboutsPools, reached, func(u *unstructured.Unstructured) {
		next.all = append(next.all, leasesOf(u)...)
	})
	if err != nil {
		return fmt.Errorf("cannot see which addresses whereabouts has given: %w", err)
	}
	c.leases = next
	return clash(candidate, c.leases.all)
}

func clash(candidate *fabrics.Fabric, all []given) error {
	for i := range candidate.NodeRanges.Ranges {
		free, err := candidate.NodeRanges.Ranges[i].Free()
		if err != nil {
			return fmt.Errorf("addresses.nodeRanges: %w", err)
		}
		n := 0
		var first given
		for _, l := range all {
			if free.Contains(l.address) {
				if n++; n == 1 || l.address.Less(first.address) {
					first = l
				}
			}
		}
		if n > 0 {
			return fmt.Errorf("whereabouts has given %s to pod %.300s (IPPool %s), and %d addresses of "+
				"addresses.nodeRanges %s in all: exclude them, or wait until these pods have ended",
				first.address, first.pod, first.pool, n, candidate.NodeRanges.Ranges[i].Prefix)
		}
	}
	return nil
}

// leasesOf are the addresses that whereabouts has given of a pool. Its keys are distances from the first address.
func leasesOf(u *unstructured.Unstructured) (out []given) {
	text, _, _ := unstructured.NestedString(u.Object, "spec", "range")
	allocations, _, _ := unstructured.NestedMap(u.Object, "spec", "allocations")
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return nil
	}
	first := prefix.Masked().Addr()
	for key, value := range allocations {
		offset, ok := new(big.Int).SetString(key, 10)
		if !ok || offset.Sign() < 0 || offset.BitLen() > first.BitLen() {
			continue
		}
		sum := offset.Add(offset, new(big.Int).SetBytes(first.AsSlice()))
		if sum.BitLen() > first.BitLen() {
			continue
		}
		a, _ := netip.AddrFromSlice(sum.FillBytes(make([]byte, first.BitLen()/8)))
		l := given{address: a, pool: u.GetNamespace() + "/" + u.GetName()}
		if v, ok := value.(map[string]any); ok {
			l.pod, _ = v["podref"].(string)
		}
		out = append(out, l)
	}
	return out
}
