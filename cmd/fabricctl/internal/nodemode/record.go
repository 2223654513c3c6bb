package nodemode

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Annotation marks a Node whose mode is being changed. Its value is a record, and it goes when the Node is done.
const Annotation = "fabric.dev/node-mode"

// record is how far a Node is. A run that was killed goes on from it.
type record struct {
	Mode     string `json:"mode"`
	Uncordon bool   `json:"uncordon,omitempty"` // it was schedulable before
	Boot     string `json:"boot,omitempty"`     // the boot that is to end; empty: pods may not have been drained yet
}

// maxRecord bounds what is read: a kubelet may write annotations of its Node.
const maxRecord = 512

// recordOf reads it; nil: the Node is not being changed.
func recordOf(n *corev1.Node) (*record, error) {
	text, ok := n.Annotations[Annotation]
	if !ok {
		return nil, nil
	}
	var r record
	if len(text) > maxRecord || json.Unmarshal([]byte(text), &r) != nil {
		return nil, fmt.Errorf("the annotation %s is %.60q, which is not of node-mode: remove it, and uncordon the "+
			"node by hand", Annotation, text)
	}
	return &r, nil
}

// patch is a merge patch of a Node that has the record, or none, and unless cordon is nil sets whether it takes pods.
// It fails if the Node has changed since.
func (r *record) patch(n *corev1.Node, cordon *bool) ([]byte, error) {
	var value any
	if r != nil {
		b, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		value = string(b)
	}
	p := map[string]any{"metadata": map[string]any{
		"resourceVersion": n.ResourceVersion, "annotations": map[string]any{Annotation: value},
	}}
	if cordon != nil {
		p["spec"] = map[string]any{"unschedulable": *cordon}
	}
	return json.Marshal(p)
}
