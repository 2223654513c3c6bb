package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// forgottenAtOnce is how many FabricNodes a round deletes at most: more are left to the next.
const forgottenAtOnce = 100

// forget deletes the FabricNodes whose Nodes are gone, after the longest reclaim of the fabrics whose ranges they have:
// a Node that comes back before has its ranges again. Nothing is deleted that was marked in this round, nor what is not
// as the cache has it: an agent that writes, or a leader that has seen the Node again, is not overruled.
func (r *Ranges) forget(
	ctx context.Context, list []fabrics.Fabric, nodes []v1alpha1.FabricNode, present map[string]bool,
) error {
	reclaim := map[string]time.Duration{}
	for i := range list {
		if s := list[i].NodeRanges; s != nil {
			reclaim[list[i].Name] = s.Reclaim
		}
	}
	deleted := 0
	for i := range nodes {
		n := &nodes[i]
		if present[n.Name] || n.Spec.Gone == nil || deleted == forgottenAtOnce || !r.ledger.same(n) {
			continue
		}
		var keep time.Duration
		for _, own := range slices.Concat(n.Spec.Ranges, n.Spec.Former) {
			of, known := reclaim[own.Fabric]
			if !known {
				of = fabrics.DefaultReclaim
			}
			keep = max(keep, of)
		}
		if n.Status.Held != nil && len(n.Status.Held.Fabrics) > 0 {
			keep = max(keep, fabrics.DefaultReclaim)
		}
		if r.Now().Sub(n.Spec.Gone.Add(r.pausedSince(n.Spec.Gone.Time))) < keep {
			continue
		}
		if err := r.forgetOne(ctx, n); err != nil {
			return err
		}
		deleted++
	}
	return nil
}

func (r *Ranges) forgetOne(ctx context.Context, n *v1alpha1.FabricNode) error {
	// The cache of Nodes may lag behind the agent of a new one.
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	err := r.Live.Get(ctx, client.ObjectKey{Name: n.Name}, node)
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("look for Node %s: %w", n.Name, err)
	}
	if !r.ledger.leading() {
		return errLease
	}
	err = r.ledger.client.Delete(ctx, n, client.Preconditions{UID: &n.UID, ResourceVersion: &n.ResourceVersion})
	switch {
	case err == nil:
		r.Log.Info("deleted FabricNode: its Node is gone", "node", n.Name, "gone", n.Spec.Gone.Time)
	case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
		return fmt.Errorf("delete FabricNode %s: %w", n.Name, err)
	}
	return nil
}
