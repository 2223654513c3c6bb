// Package cluster asks the API server, as kubectl does and with the same kubeconfig. Nodes and tenants have written
// what it reads: all of it is bounded. It does without cli-runtime's ConfigFlags: 13 MB for two flags.
package cluster

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// Resource is one kind of objects. Without a version it is asked for in the one that the API server prefers.
type Resource = schema.GroupVersionResource

// Cluster is the cluster of a context of the kubeconfig, or the one that fabricctl runs in. It is opened when it is
// first asked.
type Cluster struct {
	rules     *clientcmd.ClientConfigLoadingRules // of kubectl; ExplicitPath is --kubeconfig
	overrides clientcmd.ConfigOverrides           // CurrentContext is --context
	namespace string                              // --namespace

	once   sync.Once
	config *rest.Config
	client *rest.RESTClient
	err    error

	served sync.Map // what the API server has said of itself, []byte by path: it is asked once
}

// New is the cluster of the current context.
func New() *Cluster { return &Cluster{rules: clientcmd.NewDefaultClientConfigLoadingRules()} }

// Flags adds --kubeconfig, --context and --namespace.
func (c *Cluster) Flags(f *pflag.FlagSet) {
	f.StringVar(&c.rules.ExplicitPath, "kubeconfig", "", "kubeconfig of the cluster to ask (default: KUBECONFIG, "+
		"~/.kube/config, or in a pod its own cluster)")
	f.StringVar(&c.overrides.CurrentContext, "context", "", "context of the kubeconfig (default: the current one)")
	f.StringVarP(&c.namespace, "namespace", "n", "", "namespace in the cluster, of what has one (default: that of "+
		"the context)")
}

func (c *Cluster) kubeconfig() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.rules, &c.overrides)
}

// Contexts are the names of the contexts that there are, for completion.
func (c *Cluster) Contexts() []string {
	raw, err := c.kubeconfig().RawConfig()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(raw.Contexts))
}

// Named is the namespace that --namespace names; empty: none.
func (c *Cluster) Named() string { return c.namespace }

// Namespace is the one that is named, else that of the context, else default.
func (c *Cluster) Namespace() string {
	if c.namespace != "" {
		return c.namespace
	}
	if ns, _, err := c.kubeconfig().Namespace(); err == nil && ns != "" {
		return ns
	}
	return metav1.NamespaceDefault
}

// open reads the kubeconfig. Nothing is asked yet.
func (c *Cluster) open() (*rest.RESTClient, error) {
	c.once.Do(func() {
		klog.SetLogger(logr.Discard()) // an error is returned, and printed once
		c.config, c.err = c.kubeconfig().ClientConfig()
		if clientcmd.IsEmptyConfig(c.err) {
			c.err = clientcmd.NewEmptyConfigError("no cluster is known")
		}
		if c.err != nil {
			return
		}
		scheme := runtime.NewScheme()
		metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // the kind Status
		c.config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		c.config.ContentType, c.config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
		c.config.GroupVersion = &schema.GroupVersion{}
		c.config.WarningHandler = rest.NoWarnings{}
		c.config.QPS, c.config.Burst = 50, 300 // as kubectl
		c.config.UserAgent = rest.DefaultKubernetesUserAgent()
		c.client, c.err = rest.UnversionedRESTClientFor(c.config)
	})
	return c.client, c.err
}

// Config is how the cluster is reached, for a client of its own.
func (c *Cluster) Config() (*rest.Config, error) {
	if _, err := c.open(); err != nil {
		return nil, err
	}
	return rest.CopyConfig(c.config), nil
}

// target is what a request is about.
type target struct {
	verb            string
	of              Resource
	namespace, name string
	sub             string
}

// String is for errors: get pods ml/train-0.
func (t target) String() string {
	s := t.verb + " " + t.of.GroupResource().String()
	if t.sub != "" {
		s = t.verb + " " + t.of.Resource + "/" + t.sub
	}
	switch {
	case t.name != "" && t.namespace != "":
		s += " " + t.namespace + "/" + t.name
	case t.name != "":
		s += " " + t.name
	case t.namespace != "":
		s += " in " + t.namespace
	}
	return s
}

func (t target) path() string {
	parts := []string{"/api", t.of.Version}
	if t.of.Group != "" {
		parts = []string{"/apis", t.of.Group, t.of.Version}
	}
	if t.namespace != "" {
		parts = append(parts, "namespaces", t.namespace)
	}
	parts = append(parts, t.of.Resource)
	if t.name != "" {
		parts = append(parts, t.name)
	}
	if t.sub != "" {
		parts = append(parts, t.sub)
	}
	return strings.Join(parts, "/")
}

// at opens the cluster, and finds out the version of a resource that has none.
func (c *Cluster) at(ctx context.Context, t *target) (*rest.RESTClient, error) {
	client, err := c.open()
	if err != nil {
		return nil, err
	}
	for _, part := range []string{t.namespace, t.name} {
		if problems := content.IsPathSegmentName(part); len(problems) > 0 {
			return nil, fmt.Errorf("%.253q: %s", part, problems[0])
		}
	}
	if t.of.Version != "" {
		return client, nil
	}
	var group metav1.APIGroup
	if err := c.discover(ctx, "/apis/"+t.of.Group, &group); err != nil {
		return nil, err
	}
	t.of.Version = group.PreferredVersion.Version
	return client, nil
}

// read asks, and has the answer read while it comes.
func (c *Cluster) read(ctx context.Context, t target, ask func(r *rest.Request), take func(io.Reader) error) error {
	client, err := c.at(ctx, &t)
	if err != nil {
		return c.fault(t, err)
	}
	r := client.Get().AbsPath(t.path())
	if ask != nil {
		ask(r)
	}
	body, err := r.Stream(ctx)
	if err != nil {
		return c.fault(t, err)
	}
	defer body.Close()
	if err := take(body); err != nil {
		return c.fault(t, err)
	}
	return nil
}

// send changes something.
func (c *Cluster) send(ctx context.Context, t target, with func(c *rest.RESTClient) *rest.Request) error {
	client, err := c.at(ctx, &t)
	if err == nil {
		err = with(client).AbsPath(t.path()).Do(ctx).Error()
	}
	return c.fault(t, err)
}
