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

// rangePrefix begins the name of a ConfigMap that has a fabric's parts.
const rangePrefix = "fabric-ranges-"

// contention is for as many nodes as start at once: each round one of them wins.
var contention = wait.Backoff{Steps: 12, Duration: 10 * time.Millisecond, Factor: 1.7, Jitter: 1, Cap: 3 * time.Second}

// Part returns this node's part of a fabric's range, and takes one if it has none. The table is a ConfigMap in the
// namespace; a change of it that another node was faster than is refused by the API server, and tried again on what
// that one has left. It returns noderange.ErrExhausted when no part is left.
func (c *Client) Part(
	ctx context.Context,
	namespace string,
	s noderange.Spec,
	now func() time.Time,
) (part netip.Prefix, err error) {
	name := rangePrefix + s.Fabric
	var exhausted error
	err = retry.OnError(contention, raced, func() error {
		m, err := c.table(ctx, namespace, name)
		if err != nil {
			return err
		}
		var table noderange.Table
		part, table, exhausted = s.Take(m.Data, c.node, func() (map[string]bool, error) { return c.nodes(ctx) }, now())
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
		return netip.Prefix{}, fmt.Errorf("take a part of the addresses in ConfigMap %s/%s: %w", namespace, name, err)
	}
	return part, nil
}

// raced tells that somebody else was faster.
func raced(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// table reads the ConfigMap, and makes it if it is not there.
func (c *Client) table(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	m, err := c.core.ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return c.core.ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				"app.kubernetes.io/managed-by": fieldManager,
			},
		}}, metav1.CreateOptions{FieldManager: fieldManager})
	}
	return m, err
}

// cached lets the API server answer from its memory: these lists are asked for by every node.
var cached = metav1.ListOptions{ResourceVersion: "0"}

// nodes are the names of all Nodes. It asks for the latest: a part is taken from whoever is not among them.
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

// Capacity is how many units of each resource with this prefix all nodes together have.
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
