package cluster

import (
	"context"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Pool is an IPPool of whereabouts.
type Pool struct {
	Name      string
	Range     netip.Prefix // zero if the object has no valid one
	Allocated int          // number of addresses
}

var pools = schema.GroupVersionResource{Group: "whereabouts.cni.cncf.io", Version: "v1alpha1", Resource: "ippools"}

// Pools lists the IPPools of all namespaces. Without whereabouts there are none.
func (c *Client) Pools(ctx context.Context) ([]Pool, error) {
	list, err := c.dynamic.Resource(pools).List(ctx, cached)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list IPPools of whereabouts: %w", err)
	}
	out := make([]Pool, 0, len(list.Items))
	for i := range list.Items {
		o := list.Items[i].Object
		p := Pool{Name: list.Items[i].GetName()}
		if text, _, err := unstructured.NestedString(o, "spec", "range"); err == nil {
			if r, err := netip.ParsePrefix(text); err == nil {
				p.Range = r.Masked()
			}
		}
		if m, _, err := unstructured.NestedMap(o, "spec", "allocations"); err == nil {
			p.Allocated = len(m)
		}
		out = append(out, p)
	}
	return out, nil
}
