package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/generate"
)

// pluginNames are what images and DaemonSets of the two device plugins are called, by whether devices are shared.
var pluginNames = map[bool][]string{
	false: {"sriov-network-device-plugin", "sriov-device-plugin"},
	true:  {"rdma-shared-dev-plugin", "rdma-shared-dp"},
}

// runningPlugin is the DaemonSet of a device plugin that runs in the cluster; in this namespace, if one is given.
func runningPlugin(ctx context.Context, kube *cluster.Cluster, shared bool, namespace string) (*generate.DaemonSet,
	error,
) {
	var found []generate.DaemonSet
	all := cluster.List{Of: cluster.DaemonSets, Namespace: namespace}
	err := cluster.Each(ctx, kube, all, func(o *appsv1.DaemonSet, bad error) {
		if bad == nil && isPlugin(o, shared) {
			found = append(found, known(o))
		}
	})
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
		return nil, fmt.Errorf("--cluster: %s has no DaemonSet of the %s: install it, or give --local and its "+
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

// isPlugin reports whether it is one of the device plugin, and has a name that the API server takes.
func isPlugin(d *appsv1.DaemonSet, shared bool) bool {
	if labelRule.check("", d.Namespace) != nil || domainRule.check("", d.Name) != nil {
		return false
	}
	texts := []string{d.Name}
	for _, c := range d.Spec.Template.Spec.Containers {
		texts = append(texts, c.Image)
	}
	return slices.ContainsFunc(texts, func(text string) bool {
		return slices.ContainsFunc(pluginNames[shared], func(name string) bool { return strings.Contains(text, name) })
	})
}

// known is what generate needs to know of it.
func known(d *appsv1.DaemonSet) generate.DaemonSet {
	out := generate.DaemonSet{Namespace: d.Namespace, Name: d.Name}
	for _, v := range d.Spec.Template.Spec.Volumes {
		if m := v.ConfigMap; m != nil && out.ConfigMap == "" && domainRule.check("", m.Name) == nil {
			out.ConfigMap = m.Name
		}
	}
	return out
}
