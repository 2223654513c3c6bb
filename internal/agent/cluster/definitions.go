package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// managedBy is the label of a definition that the agents have published.
const managedBy = "app.kubernetes.io/managed-by"

// KeptError means that a definition is not removed.
type KeptError struct {
	Name    string
	Reason  string
	Foreign bool // it is somebody else's, so that trying again makes no difference
}

func (e *KeptError) Error() string {
	return fmt.Sprintf("NetworkAttachmentDefinition %s stays, though its fabric is no longer in the settings: %s",
		e.Name, e.Reason)
}

// Remove removes a NetworkAttachmentDefinition that the agents have published. It returns a KeptError if somebody else
// has changed the definition, or a pod asks for it. One that does not exist is no error.
func (c *Client) Remove(ctx context.Context, namespace, name string) error {
	full := namespace + "/" + name
	u, err := c.dynamic.Resource(definitions).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get NetworkAttachmentDefinition %s: %w", full, err)
	}
	if reason := foreign(u); reason != "" {
		return &KeptError{full, reason, true}
	}
	pod, err := c.user(ctx, namespace, name)
	if err != nil {
		return err
	}
	if pod != "" {
		return &KeptError{full, "pod " + pod + " asks for it", false}
	}
	uid, version := u.GetUID(), u.GetResourceVersion()
	err = c.dynamic.Resource(definitions).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove NetworkAttachmentDefinition %s: %w", full, err)
	}
	return nil
}

// foreign returns why a definition is not the agents' alone; empty if it is.
func foreign(u *unstructured.Unstructured) string {
	if u.GetLabels()[managedBy] != fieldManager {
		return "it lacks the label " + managedBy + "=" + fieldManager
	}
	for _, m := range u.GetManagedFields() {
		if m.Manager != fieldManager && m.FieldsV1 != nil && strings.Contains(string(m.FieldsV1.Raw), `"f:spec"`) {
			return m.Manager + " has changed it"
		}
	}
	return ""
}

// user names a pod whose annotation asks for a network. It lists the metadata of all pods.
func (c *Client) user(ctx context.Context, namespace, name string) (string, error) {
	list, err := c.metadata.Resource(podResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list pods: %w", err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		if slices.Contains(networks(p.Annotations[networksAnnotation], p.Namespace), namespace+"/"+name) {
			return p.Namespace + "/" + p.Name, nil
		}
	}
	return "", nil
}

const networksAnnotation = "k8s.v1.cni.cncf.io/networks"

// networks reads the annotation of a pod: "a, other/b@net1", or JSON (NetworkAttachmentDefinition specification 1.2,
// 4.1).
func networks(annotation, namespace string) (out []string) {
	annotation = strings.TrimSpace(annotation)
	if strings.HasPrefix(annotation, "[") {
		var list []struct{ Name, Namespace string }
		if json.Unmarshal([]byte(annotation), &list) != nil {
			return nil
		}
		for _, n := range list {
			if n.Namespace == "" {
				n.Namespace = namespace
			}
			out = append(out, n.Namespace+"/"+n.Name)
		}
		return out
	}
	for _, n := range strings.Split(annotation, ",") {
		n, _, _ = strings.Cut(strings.TrimSpace(n), "@")
		if !strings.Contains(n, "/") {
			n = namespace + "/" + n
		}
		out = append(out, n)
	}
	return out
}
