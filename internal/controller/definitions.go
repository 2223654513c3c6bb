package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
)

// missingEvery is how often the controller looks for what others must install or make, such as Multus, and whether
// somebody has changed a definition. Watches would need the kinds to be there.
const missingEvery = 30 * time.Second

// pageSize is how many objects a list has at once.
const pageSize = 500

// definitions are the cluster's NetworkAttachmentDefinitions, as they were a short time ago.
type definitions struct {
	at     time.Time
	key    string // what they depend on; empty: the controller has changed one since
	list   []unstructured.Unstructured
	multus bool // the cluster has such objects
}

// lookAtDefinitions reads the definitions, if they should be others or were not read for a while.
func (c *Controller) lookAtDefinitions(ctx context.Context, w *world) error {
	key := definitionsKey(w)
	if d := &c.defined; d.key == key && c.Now().Sub(d.at) < missingEvery {
		return nil
	}
	list, multus, err := c.live(ctx, fabrics.Definitions)
	if err != nil {
		return err
	}
	c.defined = definitions{c.Now(), key, list, multus}
	return nil
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

// live lists all objects of a kind in pages; false: the cluster does not know the kind.
func (c *Controller) live(ctx context.Context, kind schema.GroupVersionKind) ([]unstructured.Unstructured, bool, error) {
	var out []unstructured.Unstructured
	next := ""
	for {
		page := &unstructured.UnstructuredList{}
		page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := c.Ranges.Live.List(ctx, page, client.Limit(pageSize), client.Continue(next))
		switch {
		case apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err):
			return nil, false, nil
		case apierrors.IsResourceExpired(err) && next != "": // it took too long, or was changed too much
			out, next = nil, ""
			continue
		case err != nil:
			return nil, false, fmt.Errorf("list %ss: %w", kind.Kind, err)
		}
		out = append(out, page.Items...)
		if next = page.GetContinue(); next == "" {
			return out, true, nil
		}
	}
}
