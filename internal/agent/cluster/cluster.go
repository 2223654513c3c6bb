// Package cluster is the agent's client of the API server: it publishes NetworkAttachmentDefinitions and the
// inventory, allocates node ranges, and makes Events on the Node.
package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	typedauthenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	typedauthorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
)

// Client acts for one node.
type Client struct {
	node     string
	server   *url.URL
	dynamic  dynamic.Interface
	core     typedcorev1.CoreV1Interface
	metadata metadata.Interface
	recorder record.EventRecorder
	stop     func()

	// Each has a rate limit of its own (client-go: 5 in a second): who asks for metrics holds up nothing else.
	authentication typedauthenticationv1.AuthenticationV1Interface
	authorization  typedauthorizationv1.AuthorizationV1Interface
}

var definitions = schema.GroupVersionResource{
	Group:    "k8s.cni.cncf.io",
	Version:  "v1",
	Resource: "network-attachment-definitions",
}

// fieldManager owns the fields that the agent applies. All nodes have the same, because they apply the same.
const fieldManager = "fabric-agent"

// Dial returns a client for the API server of a kubeconfig file, or without one of the pod's service account. It does
// not connect yet.
func Dial(kubeconfig, node string) (*Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	return New(config, node)
}

// New returns a client for the API server of this configuration.
func New(config *rest.Config, node string) (*Client, error) {
	config = rest.AddUserAgent(rest.CopyConfig(config), "fabric-agent")
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	core, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	authentication, err := typedauthenticationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	authorization, err := typedauthorizationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: core.Events("default")})
	return &Client{node: node, server: server, dynamic: d, core: core, metadata: meta, stop: b.Shutdown,
		authentication: authentication, authorization: authorization,
		recorder: b.NewRecorder(scheme, corev1.EventSource{Component: "fabric-agent", Host: node})}, nil
}

// Close sends the Events that are still queued.
func (c *Client) Close() { c.stop() }

// Warn makes an Event on the Node. The recorder counts a repeated Event instead of making another. The uid is the
// node's name, as in kubelet's own Events: kubectl describe node looks for that.
func (c *Client) Warn(reason, message string) {
	c.recorder.Event(&corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: c.node, UID: types.UID(c.node)},
		corev1.EventTypeWarning, reason, message)
}

// ConflictError means that somebody else has changed a field that the agent applies.
type ConflictError struct {
	Name    string
	Message string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("NetworkAttachmentDefinition %s differs from the settings, and is left as it is: %s; revert "+
		"these edits, or remove the fabric from the settings", e.Name, e.Message)
}

// Apply publishes a NetworkAttachmentDefinition by server-side apply. It never takes a field from another owner: then
// it returns a ConflictError and changes nothing.
func (c *Client) Apply(ctx context.Context, object map[string]any) error {
	u := unstructured.Unstructured{Object: object}
	b, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encode NetworkAttachmentDefinition %s: %w", u.GetName(), err)
	}
	_, err = c.dynamic.Resource(definitions).Namespace(u.GetNamespace()).
		Patch(ctx, u.GetName(), types.ApplyPatchType, b, metav1.PatchOptions{FieldManager: fieldManager})
	if apierrors.IsConflict(err) {
		return &ConflictError{u.GetNamespace() + "/" + u.GetName(), err.Error()}
	}
	if err != nil {
		return fmt.Errorf("apply NetworkAttachmentDefinition %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	return nil
}
