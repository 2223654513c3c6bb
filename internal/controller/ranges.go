package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/noderange"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Ranges gives nodes their ranges. There is one for each term of a leader: it is the only one who writes the specs of
// FabricNodes.
type Ranges struct {
	Cached client.Reader // FabricNodes may lag behind here
	Live   client.Reader // and not here
	Now    func() time.Time
	Log    *slog.Logger
	// Paused is how long there was no leader before this term, by this machine's clock, which may be ahead: Nodes that
	// were gone then get this time too. Nil: not at all.
	Paused func() time.Duration
	First  func() bool     // whether this is the first term ever; nil: unknown
	Unread map[string]bool // fabrics in force that this version can't read: their ranges stay as they are
	Agents Agents          // nil: it waits for none
	Born   map[string]time.Time
	Labels map[string]labels.Set // of Nodes

	ledger ledger
	heard  heard
	begun  bool // no earlier leader can write any more
	said   map[string]bool
}

// NewRanges returns what gives out ranges in a term. The term is a name that no other leader has, leading says whether
// the lease is fresh.
func NewRanges(c client.Client, live client.Reader, term string, leading func() bool, log *slog.Logger) *Ranges {
	return &Ranges{
		Cached: c, Live: live, Now: time.Now, Log: log,
		ledger: ledger{client: c, term: term, leading: leading, nodes: map[string]entry{}},
	}
}

// Round gives each node the ranges that it lacks, tells it which nodeSelectors select it, and forgets nodes that are
// gone. present are the names of the
// cluster's Nodes. It returns how much is given, by fabric.
func (r *Ranges) Round(ctx context.Context, list []fabrics.Fabric, present map[string]bool) (map[string]Usage, error) {
	if !r.begun {
		r.heard = heard{began: r.Now()}
		if err := r.begin(ctx, list, present); err != nil {
			return nil, fmt.Errorf("begin a term: %w", err)
		}
		r.begun = true
	}
	nodes, err := r.read(ctx, r.Cached)
	if err != nil {
		return nil, err
	}
	usage, err := r.round(ctx, list, nodes, present)
	if err != nil {
		return nil, err
	}
	if err := r.pick(ctx, list, nodes); err != nil {
		return nil, err
	}
	return usage, r.forget(ctx, list, nodes, present)
}

// read reads all FabricNodes from a cache or from the API server, and the ledger takes over what is newer.
func (r *Ranges) read(ctx context.Context, from client.Reader) ([]v1alpha1.FabricNode, error) {
	nodes := &v1alpha1.FabricNodeList{}
	if err := from.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("list FabricNodes: %w", err)
	}
	r.ledger.read(nodes.Items)
	return nodes.Items, nil
}

// begin shuts out earlier leaders, and reads what they have given out.
func (r *Ranges) begin(ctx context.Context, list []fabrics.Fabric, present map[string]bool) error {
	nodes, err := r.read(ctx, r.Live)
	if err != nil {
		return err
	}
	written := func(n v1alpha1.FabricNode) bool { return n.Spec.Allocator != "" }
	if r.First != nil && r.First() && !slices.ContainsFunc(nodes, written) {
		return nil // a cluster that comes up: there is no leader to shut out
	}
	a, err := allocate(list, r.Unread, r.holdings(nodes, present), r.Now(), false)
	if err != nil {
		return err
	}
	if err := r.ledger.begin(ctx, a.open()); err != nil {
		return err
	}
	_, err = r.read(ctx, r.Live)
	return err
}

// holdings are what nodes have and want.
func (r *Ranges) holdings(nodes []v1alpha1.FabricNode, present map[string]bool) (out []holding) {
	for i := range nodes {
		n := &nodes[i]
		spec := r.ledger.entry(n.Name).spec
		h := holding{
			node: n.Name, ranges: spec.Ranges, former: spec.Former, held: heldOf(n), marked: spec.Gone != nil,
			released: func(f v1alpha1.AssignedRange) bool { return r.released(n, f) },
		}
		if !present[n.Name] {
			if h.gone = r.Now(); spec.Gone != nil {
				h.gone = spec.Gone.Time
			}
			h.paused = r.pausedSince(h.gone)
		}
		for j := range n.Status.Fabrics {
			if f := &n.Status.Fabrics[j]; len(f.Devices) > 0 {
				h.wants = append(h.wants, f.Name)
			}
		}
		out = append(out, h)
	}
	return out
}

// pick writes into each FabricNode which fabrics with a nodeSelector select its Node. An agent can't read its Node: a
// role can't allow it to read just that one. Fabrics that this version can't read stay as they are.
func (r *Ranges) pick(ctx context.Context, list []fabrics.Fabric, nodes []v1alpha1.FabricNode) error {
	specs := map[string]v1alpha1.FabricNodeSpec{}
	for i := range nodes {
		name := nodes[i].Name
		of, there := r.Labels[name]
		if !there {
			continue // the Node is gone
		}
		spec := r.ledger.entry(name).spec
		var selected []string
		for j := range list {
			if f := &list[j]; f.Nodes != nil && f.Nodes.Matches(of) {
				selected = append(selected, f.Name)
			}
		}
		for _, s := range spec.Selected {
			if r.Unread[s] {
				selected = append(selected, s)
			}
		}
		slices.Sort(selected)
		if !slices.Equal(selected, spec.Selected) {
			spec.Selected = selected
			specs[name] = spec
		}
	}
	return r.ledger.writeAll(ctx, specs)
}

// pausedSince is how much of the time since a Node is gone does not count.
func (r *Ranges) pausedSince(gone time.Time) time.Duration {
	if r.Paused == nil || !gone.Before(r.heard.began) {
		return 0
	}
	return r.Paused()
}

func (r *Ranges) round(
	ctx context.Context, list []fabrics.Fabric, nodes []v1alpha1.FabricNode, present map[string]bool,
) (map[string]Usage, error) {
	r.heard.note(nodes, present, r.Now())
	holdings := r.holdings(nodes, present)
	a, err := allocate(list, r.Unread, holdings, r.Now(), false)
	if err == nil && a.waiting() {
		a, err = r.fresh(ctx, list, holdings, a)
	}
	if err != nil {
		return nil, err
	}
	r.complain(a)
	// A node has lost a range before another one gets it.
	if err := r.write(ctx, a.takes); err != nil {
		return nil, err
	}
	if err := r.write(ctx, a.gives); err != nil {
		return nil, err
	}
	return a.usage, nil
}

// fresh gives fresh ranges too, as soon as all nodes have been heard that may have addresses of them.
func (r *Ranges) fresh(
	ctx context.Context, list []fabrics.Fabric, holdings []holding, claims *allocation,
) (*allocation, error) {
	missing, err := r.heard.missing(ctx, r.Agents, r.Born, r.Now())
	if err != nil {
		r.Log.Error("cannot find out how many agents there are: fresh ranges wait for the nodes that are known",
			"error", err)
	}
	if len(missing) == 0 {
		return allocate(list, r.Unread, holdings, r.Now(), true)
	}
	for name, u := range claims.usage {
		u.Unheard = missing
		claims.usage[name] = u
	}
	return claims, nil
}

// complain says once what nodes say that can't be.
func (r *Ranges) complain(a *allocation) {
	say := func(key, text string, args ...any) {
		if r.said[key] {
			return
		}
		if r.said == nil {
			r.said = map[string]bool{}
		}
		r.said[key] = true
		r.Log.Warn(text, args...)
	}
	for name, u := range a.usage {
		for _, n := range u.Excess {
			say(name+"/"+n, "a node says that its pods hold addresses of more ranges than it can have: no more of "+
				"them are kept from other nodes", "fabric", name, "node", n, "ranges", noderange.MaxHeld)
		}
		for _, c := range u.Conflicts {
			say(fmt.Sprint(name, c), "pods of a node hold an address of another node's range", "fabric", name, "node",
				c.Node, "held", c.Held, "owner", c.Owner, "range", c.Range)
		}
	}
	if len(r.said) > maxSaid {
		r.said = nil
	}
}

// maxSaid bounds what is remembered of what was said.
const maxSaid = 10000

func (r *Ranges) write(ctx context.Context, changes []change) error {
	specs := map[string]v1alpha1.FabricNodeSpec{}
	for _, c := range changes {
		spec := r.ledger.entry(c.node).spec
		spec.Ranges, spec.Former, spec.Gone = c.ranges, c.former, nil
		if !c.gone.IsZero() {
			spec.Gone = &metav1.Time{Time: c.gone}
		}
		specs[c.node] = spec
	}
	return r.ledger.writeAll(ctx, specs)
}
