package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// writers is how many FabricNodes are written at once.
const writers = 16

// errLease means that this process may no longer be the one that gives out ranges.
var errLease = errors.New("the lease is not fresh any more")

// ledger is what the leading controller knows of the specs of all FabricNodes: what the cache has, or what it has
// written since. A spec is changed only as long as its generation is the one that is known here, which the API server
// checks together with the change (RFC 6902, test). So neither an old cache nor another controller, which has lost its
// lease and does not know it yet, can give out a range twice.
type ledger struct {
	client  client.Client
	term    string      // of this leader, different from that of any other
	leading func() bool // whether the lease is fresh

	mu    sync.Mutex
	nodes map[string]entry
}

// entry is the spec of one FabricNode.
type entry struct {
	uid        types.UID
	generation int64
	spec       v1alpha1.FabricNodeSpec
}

// read takes over what the cache or the API server has, where it is newer than what is known.
func (l *ledger) read(list []v1alpha1.FabricNode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[string]bool{}
	for i := range list {
		n := &list[i]
		seen[n.Name] = true
		if e := l.nodes[n.Name]; e.uid != n.UID || e.generation < n.Generation {
			l.nodes[n.Name] = entry{n.UID, n.Generation, n.Spec}
		}
	}
	maps.DeleteFunc(l.nodes, func(name string, _ entry) bool { return !seen[name] })
}

// entry returns what is known of a FabricNode; without a UID: nothing.
func (l *ledger) entry(node string) entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.nodes[node]
	e.spec = *e.spec.DeepCopy()
	return e
}

// operation is one of RFC 6902.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// write changes the spec of a FabricNode, if it is still the one that is known.
func (l *ledger) write(ctx context.Context, node string, spec v1alpha1.FabricNodeSpec) error {
	e := l.entry(node)
	if e.uid == "" {
		return fmt.Errorf("FabricNode %s is gone", node)
	}
	spec.Allocator = l.term
	patch, err := json.Marshal([]operation{
		{"test", "/metadata/uid", e.uid},
		{"test", "/metadata/generation", e.generation},
		{"add", "/spec", spec},
	})
	if err != nil {
		return fmt.Errorf("encode the spec of FabricNode %s: %w", node, err)
	}
	if !l.leading() {
		return errLease
	}
	n := &v1alpha1.FabricNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := l.client.Patch(ctx, n, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return fmt.Errorf("write the spec of FabricNode %s: %w", node, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.nodes[node]; now.uid == e.uid && now.generation == e.generation {
		l.nodes[node] = entry{n.UID, n.Generation, n.Spec}
	}
	return nil
}

// writeAll writes several specs side by side.
func (l *ledger) writeAll(ctx context.Context, specs map[string]v1alpha1.FabricNodeSpec) error {
	nodes := slices.Collect(maps.Keys(specs))
	errs := make([]error, len(nodes))
	workqueue.ParallelizeUntil(ctx, writers, len(nodes), func(i int) {
		errs[i] = client.IgnoreNotFound(l.write(ctx, nodes[i], specs[nodes[i]]))
	})
	return errors.Join(append(errs, ctx.Err())...) // once ctx is done, what is left is not tried
}

// begin makes sure that no controller of an earlier term can give out ranges any more: each FabricNode that waits for a
// range gets this term first, which changes its generation, so that a write that an earlier leader has decided on is
// refused from now on, even if it is under way.
func (l *ledger) begin(ctx context.Context, waiting []string) error {
	specs := map[string]v1alpha1.FabricNodeSpec{}
	for _, node := range waiting {
		if spec := l.entry(node).spec; spec.Allocator != l.term {
			specs[node] = spec
		}
	}
	return l.writeAll(ctx, specs)
}

// same reports whether a FabricNode has the spec that is known.
func (l *ledger) same(n *v1alpha1.FabricNode) bool {
	e := l.entry(n.Name)
	return e.uid == n.UID && e.generation == n.Generation
}
