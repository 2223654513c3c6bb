package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/ipam/nvipam"
	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
	"github.com/fabric-cni/fabric-cni/internal/ipam/ranges"
	"github.com/fabric-cni/fabric-cni/internal/noderange"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// poolGrace is how long a node may be new before an IPAM plugin must have given it a block of its pool.
const poolGrace = time.Minute

// addresses is what there is to say of a fabric's addresses.
type addresses struct {
	verdict verdict
	counts  v1alpha1.AddressCounts
}

// addresses judges the addresses of a fabric by what nodes need and by what its pools have. Bad news from pools that
// were read a while ago is asked for again.
func (c *Controller) addresses(ctx context.Context, j *judged, s *sum, w *world) *addresses {
	a := c.judgeAddresses(j, s, w)
	if a.verdict.err != nil && c.pools.key != "" {
		c.pools.missing = true
		if c.lookAtPools(ctx, w.force) {
			a = c.judgeAddresses(j, s, w)
		}
	}
	return a
}

func (c *Controller) judgeAddresses(j *judged, s *sum, w *world) *addresses {
	a := &addresses{verdict: verdict{reason: sufficient}}
	if j.force == nil {
		return a
	}
	section := sectionOf(j.force)
	switch {
	case j.force.NodeRanges != nil:
		a.verdict = nodeRanges(j.force, w.usage[j.force.Name])
		a.count(capacity(j.force, w.nodes), s.given, true)
	case section.HasPools():
		c.ofWhereabouts(a, section)
	case len(section.Refs) > 0:
		c.ofNVIPAM(a, section, c.neededBy(j.force, w))
	}
	if len(s.missing) > 0 && j.force.NodeRanges == nil && a.verdict.err == nil {
		a.verdict = verdict{reason: ipamMissing,
			err: fmt.Errorf("the IPAM plugin that addresses.ipam.type names is not on %s: install it there, or "+
				"correct the name; the condition DevicesAvailable of these FabricNodes says where it was looked for",
				list(s.missing))}
	}
	if err := j.force.CheckCapacity(s.need.inCluster, s.need.onNode); err != nil && a.verdict.err == nil {
		a.verdict = verdict{reason: rangeTooSmall, err: err}
	}
	return a
}

// count sets the counts; told: the allocated ones are known too.
func (a *addresses) count(capacity, allocated int64, told bool) {
	a.counts = v1alpha1.AddressCounts{Capacity: capacity, Allocated: allocated}
	switch {
	case capacity == 0 && allocated == 0:
	case told:
		a.counts.Summary = fmt.Sprintf("%d/%d", allocated, capacity)
	default:
		a.counts.Summary = fmt.Sprintf("-/%d", capacity)
	}
}

// nodeRanges judges by how many nodes there are ranges for.
func nodeRanges(f *fabrics.Fabric, u Usage) verdict {
	switch {
	case len(u.Conflicts) > 0:
		return verdict{reason: conflict, err: conflictOf(u.Conflicts)}
	case errors.Is(u.Exhausted, noderange.ErrReserved):
		return verdict{reason: rangeReserved, err: u.Exhausted}
	case len(u.Unheard) > 0 && len(u.Waiting) > 0:
		return verdict{reason: waitingFor,
			err: fmt.Errorf("%s: no range yet, as one of these nodes may have pods with addresses of it and has not "+
				"said so, for %s at most: %s", list(u.Waiting), patience, list(u.Unheard))}
	case u.Exhausted != nil:
		return verdict{reason: rangeTooSmall, err: u.Exhausted}
	case u.Total == 0: // nothing was allocated yet
	case pool.LevelOf(u.Total-u.Left, u.Total) == pool.Full:
		return verdict{reason: poolNearlyFull,
			note: fmt.Sprintf("each range of %s is given: the next node gets none; choose "+
				"a wider range or a longer perNodePrefixLength", f.NodeRanges.Ranges[0].Prefix)}
	case pool.LevelOf(u.Total-u.Left, u.Total) == pool.NearlyFull:
		return verdict{reason: poolNearlyFull,
			note: fmt.Sprintf("over %d %% of the %d ranges of %s are given; choose a wider "+
				"range or a longer perNodePrefixLength before nodes have to wait", pool.NearlyFullPercent, u.Total,
				f.NodeRanges.Ranges[0].Prefix)}
	}
	return verdict{reason: sufficient}
}

// conflictOf says who holds whose addresses.
func conflictOf(all []noderange.Conflict) error {
	var texts []string
	for _, c := range all {
		texts = append(texts, fmt.Sprintf("%s holds %s of %s, which is %s's", c.Node, c.Held, c.Range, c.Owner))
	}
	return fmt.Errorf("pods of two nodes may have one address: %s; delete the pods of the node that holds it",
		list(texts))
}

// ofWhereabouts judges by the pools that whereabouts has made so far: one for a range, or one for each node and range.
func (c *Controller) ofWhereabouts(a *addresses, section *ranges.Section) {
	if known, looked := c.pools.kinds[whereaboutsPools]; looked && !known {
		a.verdict = verdict{reason: ipamMissing, err: errors.New("the cluster has no IPPools of whereabouts " +
			"(ippools.whereabouts.cni.cncf.io): install whereabouts, or use addresses.nodeRanges, which needs nothing")}
		return
	}
	var all, given int64
	for _, p := range c.pools.whereabouts {
		n, ours := section.PoolCapacity(p.name, p.prefix)
		if !ours {
			continue
		}
		switch level := pool.LevelOf(p.allocated, n); {
		case level == pool.Full && a.verdict.err == nil:
			a.verdict = verdict{reason: poolFull,
				err: fmt.Errorf("all %d addresses of %s are given (IPPool %s): choose a wider "+
					"range", n, p.prefix, p.name)}
		case level == pool.NearlyFull && a.verdict.reason == sufficient:
			a.verdict = verdict{reason: poolNearlyFull,
				note: fmt.Sprintf("over %d %% of the %d addresses of %s are given (IPPool %s); choose a wider range "+
					"before pods have to wait", pool.NearlyFullPercent, n, p.prefix, p.name)}
		}
		if section.Ranges[0].Prefix.Contains(p.prefix.Addr()) {
			all += int64(n)
			given += int64(p.allocated)
		}
	}
	if all == 0 && len(section.Ranges) > 0 {
		all = int64(pool.Count(section.Ranges[0].Free))
	}
	a.count(all, given, true)
}

// neededBy is how many addresses each node needs that is not new.
func (c *Controller) neededBy(f *fabrics.Fabric, w *world) map[string]int {
	out := map[string]int{}
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.Spec.Gone != nil || c.Now().Sub(n.CreationTimestamp.Time) < poolGrace {
			continue
		}
		for k := range n.Status.Fabrics {
			if nf := &n.Status.Fabrics[k]; nf.Name == f.Name && len(nf.Devices) > 0 {
				out[n.Name] += len(nf.Devices) * max(f.Shares, 1)
			}
		}
	}
	return out
}

// ofNVIPAM judges by the blocks that nv-ipam has given to nodes. Which of their addresses are given only the nodes
// know.
func (c *Controller) ofNVIPAM(a *addresses, section *ranges.Section, needs map[string]int) {
	for i, ref := range section.Refs {
		p, v := c.named(ref, needs)
		if a.verdict.err == nil && (v.err != nil || a.verdict.reason == sufficient) {
			a.verdict = v
		}
		if p == nil || i > 0 { // an interface has an address of each
			continue
		}
		var all int64
		for _, n := range p.Given {
			all += int64(n)
		}
		a.count(all, 0, false)
	}
}

// named judges one pool of nv-ipam.
func (c *Controller) named(ref ranges.Ref, needs map[string]int) (*nvipam.Pool, verdict) {
	if known, looked := c.pools.kinds[kindOf(ref)]; !looked {
		return nil, verdict{reason: sufficient}
	} else if !known {
		return nil, verdict{reason: ipamMissing,
			err: fmt.Errorf("the cluster has no %ss of nv-ipam (%s): install nv-ipam, or "+
				"use addresses.nodeRanges, which needs nothing", ref.Kind, nvipam.Group)}
	}
	p := c.pools.nvipam[ref]
	if p == nil {
		if err := c.pools.unreadable[ref]; err != nil {
			return nil, verdict{reason: poolNotReady, err: err}
		}
		return nil, verdict{reason: poolMissing,
			err: fmt.Errorf("there is no %s %s: make it in the namespace where nv-ipam "+
				"looks for pools, or correct poolName and poolType", ref.Kind, ref.Name)}
	}
	nothing, little := lacking(p, needs)
	name := fmt.Sprintf("%s %s/%s", p.Kind, p.Namespace, p.Name)
	level := pool.LevelOf(len(p.Given), p.Blocks)
	switch {
	case len(nothing) > 0 && level == pool.Full:
		return p, verdict{reason: rangeTooSmall,
			err: fmt.Errorf("%s has blocks for %d nodes, and none is left for %s: choose a "+
				"wider range or a smaller block", name, p.Blocks, list(nothing))}
	case len(nothing) > 0:
		return p, verdict{reason: poolNotReady,
			err: fmt.Errorf("%s has no block for %s: does its nodeSelector select them, and "+
				"does nv-ipam's controller run?", name, list(nothing))}
	case len(little) > 0:
		return p, verdict{reason: rangeTooSmall,
			err: fmt.Errorf("the blocks of %s are too small: %s; choose a larger one", name,
				list(little))}
	case level != pool.Room:
		return p, verdict{reason: poolNearlyFull,
			note: fmt.Sprintf("over %d %% of the %d blocks of %s are given; choose a "+
				"wider range before nodes have to wait", pool.NearlyFullPercent, p.Blocks, name)}
	}
	return p, verdict{reason: sufficient}
}
