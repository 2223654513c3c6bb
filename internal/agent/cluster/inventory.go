package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fabric-cni/fabric-cni/internal/node"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// Inventory publishes the node's inventory, a node.Published as JSON, as a ConfigMap in this namespace by server-side
// apply. The ConfigMap is this agent's alone: edits of others are overwritten.
func (c *Client) Inventory(ctx context.Context, namespace string, text []byte) error {
	name := node.PublishedName + c.node
	b, err := json.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata": map[string]any{
			"name":      name,
			"namespace": namespace,
			"labels":    map[string]any{node.PublishedLabel: "node"},
		},
		"data": map[string]any{node.PublishedKey: string(text)},
	})
	if err != nil {
		return fmt.Errorf("encode the inventory: %w", err)
	}
	force := true
	if _, err = c.dynamic.Resource(configMaps).Namespace(namespace).Patch(ctx, name, types.ApplyPatchType, b,
		metav1.PatchOptions{FieldManager: fieldManager, Force: &force}); err != nil {
		return fmt.Errorf("apply ConfigMap %s/%s: %w", namespace, name, err)
	}
	return nil
}
