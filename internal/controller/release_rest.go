package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// slicesKind is what nodes offer to ResourceClaims. Kubernetes 1.34 is the first that serves this version.
var slicesKind = schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: "ResourceSlice"}

// forgetNodes deletes what the agents and the controller have made of nodes.
func (r *releaser) forgetNodes(ctx context.Context) error {
	offered := &unstructured.Unstructured{}
	offered.SetGroupVersionKind(slicesKind)
	var errs []error
	err := r.client.DeleteAllOf(ctx, offered, client.MatchingFields{"spec.driver": fabrics.Driver})
	if err != nil && !absent(err) {
		errs = append(errs, fmt.Errorf("delete the ResourceSlices of %s: %w", fabrics.Driver, err))
	}
	if err := r.client.DeleteAllOf(ctx, &v1alpha1.FabricNode{}); err != nil && !absent(err) {
		errs = append(errs, fmt.Errorf("delete FabricNodes: %w", err))
	}
	var marked []string
	errs = append(errs, eachNode(ctx, r.client, pageSize, func(n *corev1.Node) {
		if r.unmark(n) {
			marked = append(marked, n.Name)
		}
	}))
	for _, name := range marked {
		errs = append(errs, r.unmarkOne(ctx, name))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	r.log.Info("deleted FabricNodes, and what nodes offered", "unmarked", len(marked))
	return nil
}

// unmark takes from a Node what the controller has put there, and reports whether there was anything.
func (r *releaser) unmark(n *corev1.Node) bool {
	taints, conditions := len(n.Spec.Taints), len(n.Status.Conditions)
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == r.taint || strings.HasPrefix(t.Key, fabrics.ResourcePrefix)
	})
	n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == HealthyCondition
	})
	return taints != len(n.Spec.Taints) || conditions != len(n.Status.Conditions)
}

func (r *releaser) unmarkOne(ctx context.Context, name string) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n := &corev1.Node{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
			return err
		}
		old := n.DeepCopy()
		r.unmark(n)
		// Taints are written as a whole: no other client may have written them meanwhile.
		err := r.client.Patch(ctx, n, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}))
		if err != nil {
			return err
		}
		old = n.DeepCopy()
		r.unmark(n)
		return r.client.Status().Patch(ctx, n, client.StrategicMergeFrom(old)) // by type, see markOne
	})
	if err != nil && !absent(err) {
		return fmt.Errorf("remove what the controller has put on Node %s: %w", name, err)
	}
	return nil
}

// taintOf is the key of the taint that a controller sets; empty: none.
func taintOf(d *appsv1.Deployment) string {
	for i := range d.Spec.Template.Spec.Containers {
		for _, a := range d.Spec.Template.Spec.Containers[i].Args {
			if v, ok := strings.CutPrefix(strings.TrimLeft(a, "-"), "taint="); ok {
				key, _, _ := strings.Cut(v, ":")
				return key
			}
		}
	}
	return ""
}
