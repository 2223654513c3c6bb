package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/manifest"
)

// manager owns the fields that fabricctl applies.
const manager = "fabricctl"

// Apply creates the objects of a YAML text, or makes them what it says.
func (c *Cluster) Apply(ctx context.Context, text string) error {
	list, err := manifest.Objects(strings.NewReader(text))
	if err != nil {
		return err
	}
	for _, raw := range list {
		var o unstructured.Unstructured
		if err := json.Unmarshal(raw, &o.Object); err != nil {
			return err
		}
		if err := c.apply(ctx, &o, raw); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) apply(ctx context.Context, o *unstructured.Unstructured, raw []byte) error {
	of := o.GroupVersionKind()
	kinds, err := c.Resources(ctx, of.Group, of.Version)
	if err != nil {
		return err
	}
	for _, k := range kinds {
		if k.Kind != of.Kind || strings.Contains(k.Name, "/") {
			continue
		}
		t := target{"patch", of.GroupVersion().WithResource(k.Name), "", o.GetName(), ""}
		if k.Namespaced {
			t.namespace = o.GetNamespace()
		}
		return c.send(ctx, t, func(c *rest.RESTClient) *rest.Request {
			return c.Patch(types.ApplyYAMLPatchType).Param("fieldManager", manager).Param("force", "true").Body(raw)
		})
	}
	return fmt.Errorf("apply %s %s: %w", of.Kind, o.GetName(), ErrNotServed)
}

// Annotate sets labels and annotations of an object.
func (c *Cluster) Annotate(ctx context.Context, of Resource, name string, labels, notes map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": notes}})
	if err != nil {
		return err
	}
	return c.send(ctx, target{"patch", of, "", name, ""}, func(c *rest.RESTClient) *rest.Request {
		return c.Patch(types.MergePatchType).Param("fieldManager", manager).Body(patch)
	})
}

// Delete deletes an object, if it is there.
func (c *Cluster) Delete(ctx context.Context, of Resource, namespace, name string) error {
	err := c.send(ctx, target{"delete", of, namespace, name, ""}, func(c *rest.RESTClient) *rest.Request {
		return c.Delete().Param("propagationPolicy", "Background")
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Exec runs a command in a container of a pod. A command that fails is a k8s.io/client-go/util/exec.CodeExitError;
// what can't be run at all is another error. It goes on in the pod when the context ends.
func (c *Cluster) Exec(ctx context.Context, namespace, pod, container string, command []string,
	stdout, stderr io.Writer,
) error {
	t := target{"create", Pods, namespace, pod, "exec"}
	client, err := c.at(ctx, &t)
	if err != nil {
		return c.fault(t, err)
	}
	r := client.Get().AbsPath(t.path()).Param("stdout", "true").Param("stderr", "true")
	if container != "" {
		r.Param("container", container)
	}
	for _, arg := range command {
		r.Param("command", arg)
	}
	at := r.URL()
	streams, err := remotecommand.NewWebSocketExecutor(c.config, "GET", at.String())
	if err != nil {
		return c.fault(t, err)
	}
	older, err := remotecommand.NewSPDYExecutor(c.config, "POST", at) // an API server before 1.30, and a proxy
	if err != nil {
		return c.fault(t, err)
	}
	both, err := remotecommand.NewFallbackExecutor(streams, older, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return c.fault(t, err)
	}
	return c.fault(t, both.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: stdout, Stderr: stderr}))
}

// ErrNotServed is for a kind that the API server does not know: what it belongs to is not installed.
var ErrNotServed = errors.New("the API server does not serve it")
