package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/generate"
)

// pluginNames are what images and DaemonSets of the two device plugins are called, by whether devices are shared.
var pluginNames = map[bool][]string{
	false: {"sriov-network-device-plugin", "sriov-device-plugin"},
	true:  {"rdma-shared-dev-plugin", "rdma-shared-dp"},
}

// daemonSet is what matters here of a DaemonSet.
type daemonSet struct {
	Metadata struct{ Namespace, Name string }
	Spec     struct {
		Template struct {
			Spec struct {
				Containers []struct{ Image string }
				Volumes    []struct{ ConfigMap struct{ Name string } }
			}
		}
	}
}

// runningPlugin is the DaemonSet of a device plugin that runs in the cluster; in this namespace, if one is given.
func runningPlugin(ctx context.Context, shared bool, namespace string) (*generate.DaemonSet, error) {
	var found []generate.DaemonSet
	err := kubectlEach(ctx, func(o *daemonSet, bad error) {
		if bad == nil && (namespace == "" || o.Metadata.Namespace == namespace) && o.is(shared) {
			found = append(found, o.known())
		}
	}, "get", "daemonsets.apps", "-A", "-o", "json")
	if err != nil {
		return nil, fmt.Errorf("--cluster: %w", err)
	}
	where := "the cluster"
	if namespace != "" {
		where = "namespace " + namespace
	}
	what := map[bool]string{false: "SR-IOV network device plugin", true: "RDMA shared device plugin"}[shared]
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("--cluster: %s has no DaemonSet of the %s: install it, or leave out --cluster and "+
			"say its "+
			"namespace with --namespace", where, what)
	case 1:
		return &found[0], nil
	}
	const most = 4
	var names []string
	for _, d := range found[:min(len(found), most)] {
		names = append(names, d.Namespace+"/"+d.Name)
	}
	return nil, fmt.Errorf("--cluster: %s has %d DaemonSets of the %s (%s): choose one with --namespace", where,
		len(found),
		what, strings.Join(names, ", "))
}

// is reports whether it is one of the device plugin, and has a name that the API server takes.
func (d *daemonSet) is(shared bool) bool {
	if labelRule.check("", d.Metadata.Namespace) != nil || domainRule.check("", d.Metadata.Name) != nil {
		return false
	}
	texts := []string{d.Metadata.Name}
	for _, c := range d.Spec.Template.Spec.Containers {
		texts = append(texts, c.Image)
	}
	return slices.ContainsFunc(texts, func(text string) bool {
		return slices.ContainsFunc(pluginNames[shared], func(name string) bool { return strings.Contains(text, name) })
	})
}

// known is what generate needs to know of it.
func (d *daemonSet) known() generate.DaemonSet {
	out := generate.DaemonSet{Namespace: d.Metadata.Namespace, Name: d.Metadata.Name}
	for _, v := range d.Spec.Template.Spec.Volumes {
		if name := v.ConfigMap.Name; out.ConfigMap == "" && domainRule.check("", name) == nil {
			out.ConfigMap = name
		}
	}
	return out
}
