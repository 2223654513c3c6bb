package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/fabric-cni/fabric-cni/internal/agent/noderange"
)

// rangePrefix is the beginning of the name of a ConfigMap with a fabric's node ranges.
const rangePrefix = "fabric-ranges-"

// contention is for many nodes that start at once: in each round one of them succeeds.
var contention = wait.Backoff{Steps: 12, Duration: 10 * time.Millisecond, Factor: 1.7, Jitter: 1, Cap: 3 * time.Second}

// NodeRange returns this node's own range of a fabric, and allocates one if it has none. The table of all nodes'
// ranges is a ConfigMap in the namespace. If another node has changed it meanwhile, the API server refuses the change,
// and NodeRange tries again with the new table. It returns noderange.ErrExhausted if no range is left.
func (c *Client) NodeRange(
	ctx context.Context, namespace string, s noderange.Spec, now func() time.Time,
) (own netip.Prefix, err error) {
	name := rangePrefix + s.Fabric
	var exhausted error
	err = retry.OnError(contention, raced, func() error {
		m, err := c.table(ctx, namespace, name)
		if err != nil {
			return err
		}
		var table noderange.Table
		nodes := func() (map[string]bool, error) { return c.nodes(ctx) }
		own, table, exhausted = s.Allocate(m.Data, c.node, nodes, now())
		if exhausted != nil && !errors.Is(exhausted, noderange.ErrExhausted) {
			return nil
		}
		if maps.Equal(table, m.Data) {
			return nil
		}
		m.Data = table
		_, err = c.core.ConfigMaps(namespace).Update(ctx, m, metav1.UpdateOptions{FieldManager: fieldManager})
		return err
	})
	if err = errors.Join(err, exhausted); err != nil {
		return netip.Prefix{}, fmt.Errorf("allocate a node range in ConfigMap %s/%s: %w", namespace, name, err)
	}
	return own, nil
}

// raced returns whether another node has changed the table meanwhile.
func raced(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// table reads the ConfigMap, and creates it if it does not exist.
func (c *Client) table(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	m, err := c.core.ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return c.core.ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{managedBy: fieldManager},
		}}, metav1.CreateOptions{FieldManager: fieldManager})
	}
	return m, err
}

// cached lets the API server answer from its cache: every node asks for these lists.
var cached = metav1.ListOptions{ResourceVersion: "0"}

// nodes are the names of all Nodes, as of now: a Node that is not among them may lose its range.
func (c *Client) nodes(ctx context.Context) (map[string]bool, error) {
	list, err := c.core.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	out := map[string]bool{}
	for i := range list.Items {
		out[list.Items[i].Name] = true
	}
	return out, nil
}

// Capacity returns the capacity of all nodes together, by resource, of the resources with this prefix.
func (c *Client) Capacity(ctx context.Context, prefix string) (map[string]int, error) {
	list, err := c.core.Nodes().List(ctx, cached)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	out := map[string]int{}
	for i := range list.Items {
		for name, q := range list.Items[i].Status.Capacity {
			if len(name) > len(prefix) && string(name[:len(prefix)]) == prefix {
				out[string(name)] += int(q.Value())
			}
		}
	}
	return out, nil
}
