package controller

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// missingEvery is how often the controller looks for what others must install or make, such as Multus, and whether a
// definition was changed. Watches would need the kinds to be there.
const missingEvery = 30 * time.Second

// Objects that a list has at once: an object has at most 1.5 MB, which may all be metadata.
const (
	pageSize     = 500
	metadataPage = 50
)

// definitions are the NetworkAttachmentDefinitions with the controller's label, as they were a short time ago. Who may
// write one can make thousands of 1 MB: the controller never lists more than metadata, and reads whole only one that it
// would write and that has changed since.
type definitions struct {
	at     time.Time
	key    string // what they depend on; empty: the controller has changed one since
	list   []metav1.PartialObjectMetadata
	multus bool                           // the cluster has such objects
	err    error                          // why they could not be read; what is above is older then
	slots  map[types.UID]map[string]*slot // by Fabric and namespace
}

// unreadEvery is how often the controller tries to read definitions while it can't.
const unreadEvery = 10 * time.Second

// lookAtDefinitions reads the definitions, if they should be others or were not read for a while. That it can't is a
// condition of each Fabric.
func (c *Controller) lookAtDefinitions(ctx context.Context, w *world) {
	key, d := definitionsKey(w), &c.defined
	age := c.Now().Sub(d.at)
	if d.err == nil && d.key == key && age < missingEvery || d.err != nil && age < unreadEvery {
		return
	}
	list, multus, err := listAll(ctx, c.Ranges.Live, fabrics.Definitions, labelled)
	if d.at, d.err = c.Now(), err; err != nil {
		c.Log.Warn("can't read NetworkAttachmentDefinitions", "error", err)
		return
	}
	d.key, d.list, d.multus = key, list, multus
}

// definitionsKey is what the definitions follow from: what is in force, and the namespaces.
func definitionsKey(w *world) string {
	var b strings.Builder
	for i := range w.fabrics {
		f := &w.fabrics[i]
		generation := int64(0)
		if f.Status.InForce != nil {
			generation = f.Status.InForce.Generation
		}
		fmt.Fprintln(&b, f.Name, f.UID, generation, f.DeletionTimestamp.IsZero())
	}
	for i := range w.namespaces {
		n := &w.namespaces[i]
		fmt.Fprintln(&b, n.Name, n.DeletionTimestamp.IsZero(), n.Labels)
	}
	return b.String()
}

// sweep deletes definitions whose Fabrics are gone: Kubernetes' garbage collector does so too, but not if the kind is
// gone as well.
func (c *Controller) sweep(ctx context.Context, w *world) error {
	there := map[types.UID]bool{}
	for i := range w.fabrics {
		there[w.fabrics[i].UID] = true
	}
	maps.DeleteFunc(c.defined.slots, func(uid types.UID, _ map[string]*slot) bool { return !there[uid] })
	for i := range c.defined.list {
		u := &c.defined.list[i]
		o := owner(u)
		if o == nil || there[o.UID] {
			continue
		}
		f := &metav1.PartialObjectMetadata{} // the cache may lag behind
		f.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Fabric"))
		err := c.Ranges.Live.Get(ctx, client.ObjectKey{Name: o.Name}, f)
		switch {
		case err == nil && f.UID == o.UID:
		case err == nil || absent(err):
			if err := c.withdraw(ctx, u); err != nil {
				return err
			}
		default:
			return fmt.Errorf("look for Fabric %s: %w", o.Name, err)
		}
	}
	return nil
}

// labelled selects what the controller has made.
var labelled = client.MatchingLabels{fabrics.ManagedBy: fabrics.Manager}

// listAll lists the metadata of all objects of a kind, as far as the controller looks at it; false: the cluster does
// not know the kind.
func listAll(
	ctx context.Context, r client.Reader, kind schema.GroupVersionKind, opts ...client.ListOption,
) ([]metav1.PartialObjectMetadata, bool, error) {
	var out []metav1.PartialObjectMetadata
	next := ""
	for {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := r.List(ctx, page, append(opts, client.Limit(metadataPage), client.Continue(next))...)
		switch {
		case absent(err):
			return nil, false, nil
		case apierrors.IsResourceExpired(err) && next != "": // it took too long, or was changed too much
			out, next = nil, ""
			continue
		case err != nil:
			return nil, false, fmt.Errorf("list %ss: %w", kind.Kind, err)
		}
		for i := range page.Items {
			out = append(out, slimmed(kind, &page.Items[i]))
		}
		if next = page.GetContinue(); next == "" {
			return out, true, nil
		}
	}
}

// slimmed is what the controller looks at of an object's metadata.
func slimmed(kind schema.GroupVersionKind, o *metav1.PartialObjectMetadata) metav1.PartialObjectMetadata {
	out := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
	}}
	out.SetGroupVersionKind(kind)
	if by := o.Labels[fabrics.ManagedBy]; by == fabrics.Manager {
		out.Labels = map[string]string{fabrics.ManagedBy: fabrics.Manager}
	}
	if owner := owner(o); owner != nil {
		out.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return out
}

// read reads one object; nil: it does not exist.
func (c *Controller) read(
	ctx context.Context, kind schema.GroupVersionKind, namespace, name string,
) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	err := c.Ranges.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, u)
	switch {
	case absent(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s %s: %w", kind.Kind, client.ObjectKey{Namespace: namespace, Name: name}, err)
	}
	return u, nil
}
