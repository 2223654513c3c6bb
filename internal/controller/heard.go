package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// patience is how long a fresh range waits for a node that says nothing.
const patience = 2 * time.Minute

// Agents returns how many nodes should have an agent; false: unknown.
type Agents func(ctx context.Context) (desired int, known bool, err error)

// AgentsOf asks a DaemonSet.
func AgentsOf(live client.Reader, namespace, name string) Agents {
	if name == "" {
		return nil
	}
	return func(ctx context.Context) (int, bool, error) {
		d := &appsv1.DaemonSet{}
		err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, d)
		switch {
		case apierrors.IsNotFound(err):
			return 0, false, nil
		case err != nil:
			return 0, true, fmt.Errorf("read DaemonSet %s/%s: %w", namespace, name, err)
		case d.Status.ObservedGeneration == 0: // not counted yet
			return maxAgents, true, nil
		}
		return int(d.Status.DesiredNumberScheduled), true, nil
	}
}

// maxAgents is more than there are.
const maxAgents = 1 << 30

// heard is what a leader remembers of which nodes have said what their pods hold.
type heard struct {
	began  time.Time
	nodes  int                  // that say it now
	once   map[string]bool      // that have said it in this term
	silent map[string]time.Time // Nodes that do not, since when in this term
}

// note takes over what FabricNodes say.
func (h *heard) note(nodes []v1alpha1.FabricNode, present map[string]bool, now time.Time) {
	says := map[string]bool{}
	for i := range nodes {
		says[nodes[i].Name] = nodes[i].Status.Held != nil
	}
	h.nodes = 0
	once, silent := map[string]bool{}, map[string]time.Time{}
	for name := range present {
		once[name] = h.once[name] || says[name]
		if since, already := h.silent[name]; says[name] {
			h.nodes++
		} else if silent[name] = now; already {
			silent[name] = since
		}
	}
	h.once, h.silent = once, silent
}

// missing are the nodes that fresh ranges wait for: those that have been heard in this term and are silent now, as
// their FabricNodes were deleted, and as long as not all agents are heard those that were there when the term began. A
// Node that is new since is not waited for, nor one that has been silent for too long. After an error they are waited
// for in the same way.
func (h *heard) missing(
	ctx context.Context, agents Agents, born map[string]time.Time, now time.Time,
) (out []string, err error) {
	if agents == nil {
		return nil, nil
	}
	var again []string
	for name, since := range h.silent {
		if now.Sub(since) >= patience {
			continue
		}
		if h.once[name] {
			again = append(again, name)
		} else if !born[name].After(h.began) {
			out = append(out, name)
		}
	}
	if len(out) > 0 {
		desired, known, aerr := agents(ctx)
		if err = aerr; err == nil && (!known || h.nodes >= desired) {
			out = nil
		}
	}
	out = append(out, again...)
	slices.Sort(out)
	return out, err
}

// heldOf are the addresses that pods of a node hold, by fabric. What can't be read is left out.
func heldOf(n *v1alpha1.FabricNode) map[string][]netip.Prefix {
	if n.Status.Held == nil {
		return nil
	}
	out := map[string][]netip.Prefix{}
	for i := range n.Status.Held.Fabrics {
		f := &n.Status.Held.Fabrics[i]
		for _, text := range f.Prefixes {
			if p, err := netip.ParsePrefix(text); err == nil {
				out[f.Name] = append(out[f.Name], p.Masked())
			}
		}
	}
	return out
}

// released reports whether a node works with the spec that it has now, and none of its pods holds an address of a range
// that it had before. An older agent does not say what pods hold: then no device may be in a pod.
func (r *Ranges) released(n *v1alpha1.FabricNode, had v1alpha1.AssignedRange) bool {
	if n.Status.ObservedGeneration < r.ledger.entry(n.Name).generation {
		return false
	}
	if n.Status.Held == nil {
		return n.Status.Agent != "" && n.Status.Devices.Attached == 0
	}
	p, err := netip.ParsePrefix(had.Range)
	if err != nil {
		return true
	}
	for _, held := range heldOf(n) {
		if slices.ContainsFunc(held, p.Overlaps) {
			return false
		}
	}
	return true
}
