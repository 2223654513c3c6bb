// Package cluster is the agent's way to the API server: the Link tells it of Fabrics and of its FabricNode and writes
// the latter's status, the Client makes Events on the Node and asks who may read metrics.
package cluster

import (
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typeddiscoveryv1 "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
)

// Client acts for one node.
type Client struct {
	node     string
	config   *rest.Config
	recorder record.EventRecorder
	stop     func()

	*Reviewer
	discovery typeddiscoveryv1.DiscoveryV1Interface

	connections *connections
}

// Dial returns a client for the API server of a kubeconfig file, or without one of the pod's service account. It does
// not connect yet.
func Dial(kubeconfig, node string, log *slog.Logger) (*Client, *Link, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("find the API server: %w", err)
	}
	seen := &connections{}
	config.Wrap(seen.wrap)
	link, err := NewLink(config, node, log)
	if err != nil {
		return nil, nil, err
	}
	c, err := New(config, node)
	if err != nil {
		return nil, nil, err
	}
	c.connections = seen
	return c, link, nil
}

// New returns a client for the API server of this configuration.
func New(config *rest.Config, node string) (*Client, error) {
	config = rest.AddUserAgent(rest.CopyConfig(config), "fabric-agent")
	core, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	reviewer, err := NewReviewer(config)
	if err != nil {
		return nil, err
	}
	discovery, err := typeddiscoveryv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: core.Events("default")})
	return &Client{node: node, config: config, stop: b.Shutdown,
		Reviewer: reviewer, discovery: discovery,
		connections: &connections{},
		recorder:    b.NewRecorder(scheme, corev1.EventSource{Component: "fabric-agent", Host: node})}, nil
}

// Limits of calls for ResourceClaims: kubelet waits for the answers while pods start, many at once.
const (
	claimQPS   = 50
	claimBurst = 100
)

// Kubernetes returns a client for libraries that want one of all kinds. It has rate limits of its own.
func (c *Client) Kubernetes() (kubernetes.Interface, error) {
	config := rest.CopyConfig(c.config)
	config.QPS, config.Burst = claimQPS, claimBurst
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	return k, nil
}

// Close sends the Events that are still queued.
func (c *Client) Close() { c.stop() }

// Event makes an Event on the Node. The recorder counts a repeated Event instead of making another. The uid is the
// node's name, as in kubelet's own Events: kubectl describe node looks for that.
func (c *Client) Event(warning bool, reason, message string) {
	kind := corev1.EventTypeNormal
	if warning {
		kind = corev1.EventTypeWarning
	}
	c.recorder.Event(&corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: c.node, UID: types.UID(c.node)},
		kind, reason, message)
}
