package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
)

// agentNamespace is where deployments/ runs fabric-agent and its controller.
const agentNamespace = "fabric-system"

func doctorClusterCommand(a *app) *cobra.Command {
	out := findings{console: &a.console}
	var namespace string
	c := &cobra.Command{
		Use: "cluster",
		Short: "Check the cluster: CRDs, Multus, the controller, Fabrics and their nodes, networks against " +
			"resources, ranges and pools",
		Long: `doctor cluster queries the cluster with the rights of the kubeconfig, and changes nothing. Objects that
you may not list are reported. Exit status 3 if a check fails.`,
		Args: argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			if err := labelRule.check("agent-namespace", namespace); err != nil {
				return err
			}
			p, err := collectCluster(cmd.Context(), a.kube, namespace, time.Now())
			if err != nil {
				return err
			}
			p.Version = a.version
			return out.print(doctor.CheckCluster(p))
		},
	}
	out.flags(c)
	c.Flags().StringVar(&namespace, "agent-namespace", agentNamespace,
		"namespace of fabric-agent and its controller, the only one in which they count")
	return c
}

// collector asks for one thing after the other. What may not be listed is in Missing.
type collector struct {
	doctor.Cluster
	kube           *cluster.Cluster
	asked, refused int
}

// missing notes what could not be listed, and reports whether it could.
func (c *collector) missing(err error) (ok bool) {
	// Whether a CRD is installed is a check of its own, and says nothing of rights.
	if errors.Is(err, cluster.ErrNotServed) {
		return false
	}
	c.asked++
	if err != nil {
		c.refused++
		c.Missing = append(c.Missing, err.Error())
	}
	return err == nil
}

// objects asks for the objects of a kind. One that can't be read is left out, and in Missing.
func objects[T any](ctx context.Context, c *collector, of cluster.List, each func(o *T)) (ok bool) {
	return c.missing(cluster.Each(ctx, c.kube, of, func(o *T, bad error) {
		if bad != nil {
			c.Missing = append(c.Missing, fmt.Sprintf("list %s: %v; left out", of.Of.Resource, bad))
			return
		}
		each(o)
	}))
}

// collectCluster collects what doctor cluster checks. It is an error only if nothing may be listed.
func collectCluster(ctx context.Context, kube *cluster.Cluster, namespace string, now time.Time) (*doctor.Cluster,
	error,
) {
	c := &collector{kube: kube}
	objects(ctx, c, cluster.List{Of: cluster.CRDs}, func(o *metav1.PartialObjectMetadata) {
		c.CRDs = append(c.CRDs, o.Name)
	})
	objects(ctx, c, cluster.List{Of: cluster.DaemonSets}, func(o *doctor.DaemonSet) {
		c.DaemonSets = append(c.DaemonSets, *o)
	})
	c.collectDaemonPods(ctx)
	objects(ctx, c, cluster.List{Of: cluster.Nodes}, func(o *corev1.Node) {
		c.Nodes = append(c.Nodes, corev1.Node{ // the list of images alone would be most of it
			ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: o.Labels},
			Status:     corev1.NodeStatus{Allocatable: o.Status.Allocatable, NodeInfo: o.Status.NodeInfo},
		})
	})
	objects(ctx, c, cluster.List{Of: cluster.Networks}, func(o *doctor.NAD) {
		c.NADs.Items = append(c.NADs.Items, *o)
	})
	objects(ctx, c, cluster.List{Of: cluster.Pools}, func(o *doctor.Pool) {
		c.Pools.Items = append(c.Pools.Items, *o)
	})
	c.collectFabrics(ctx)
	c.Net = clusterUses(ctx, c.kube)
	c.collectDRA(ctx)
	c.collectController(ctx, namespace, now)
	if c.refused == c.asked {
		return nil, fmt.Errorf("doctor cluster: no cluster, or no rights: %s", c.Missing[0])
	}
	return &c.Cluster, nil
}

// maxDaemons bounds for how many DaemonSets that are not ready the pods are asked for.
const maxDaemons = 8

// collectDaemonPods asks for the pods of DaemonSets that rails depend on and that are not ready, to say on
// which node.
func (c *collector) collectDaemonPods(ctx context.Context) {
	asked := 0
	for i := range c.DaemonSets {
		d := &c.DaemonSets[i]
		if !d.Matters() || d.Status.NumberReady >= d.Status.DesiredNumberScheduled || d.Spec.Selector == nil ||
			len(d.Spec.Selector.MatchLabels) == 0 || asked == maxDaemons {
			continue
		}
		asked++
		objects(ctx, c, cluster.List{
			Of: cluster.Pods, Namespace: d.Namespace, Labels: labels.FormatLabels(d.Spec.Selector.MatchLabels),
		}, func(o *corev1.Pod) { d.Pods = append(d.Pods, *o) })
	}
}

func (c *collector) collectFabrics(ctx context.Context) {
	list, bad, err := listFabrics(ctx, c.kube)
	c.missing(err)
	c.Fabrics = list
	nodes, worse, err := fabricNodes(ctx, c.kube, "")
	c.missing(err)
	c.FabricNodes = nodes
	for _, err := range append(bad, worse...) {
		c.Missing = append(c.Missing, err.Error())
	}
}

// appLabel begins the selector of what a program of this project runs in.
const appLabel = "app.kubernetes.io/name="

// collectController asks for the controller and for the agents' pods.
func (c *collector) collectController(ctx context.Context, namespace string, now time.Time) {
	k := &doctor.Controller{Namespace: namespace}
	in := cluster.List{Of: cluster.Deployments, Namespace: namespace, Labels: appLabel + "fabric-controller"}
	ok := objects(ctx, c, in, func(o *appsv1.Deployment) {
		k.Found, k.Name, k.Ready = true, o.Name, int(o.Status.ReadyReplicas)
		k.Wanted = int(ptr.Deref(o.Spec.Replicas, 1))
		if o.Status.ObservedGeneration >= o.Generation {
			k.Updated = int(o.Status.UpdatedReplicas)
		}
	})
	// The clock of this machine may be wrong: the components of the control plane renew their Leases all the time.
	var clock time.Time
	in = cluster.List{Of: cluster.Leases, Namespace: metav1.NamespaceSystem}
	objects(ctx, c, in, func(o *coordinationv1.Lease) {
		if at := ptr.Deref(o.Spec.RenewTime, metav1.MicroTime{}).Time; at.After(clock) {
			clock = at
		}
	})
	if clock.IsZero() {
		clock = now
	}
	in.Namespace = namespace
	ok = objects(ctx, c, in, func(o *coordinationv1.Lease) {
		if o.Name == "fabric-controller" {
			k.Leader = ptr.Deref(o.Spec.HolderIdentity, "")
			k.Lasts = int(ptr.Deref(o.Spec.LeaseDurationSeconds, 0))
			renewed := ptr.Deref(o.Spec.RenewTime, metav1.MicroTime{})
			k.Silent = max(0, int(clock.Sub(renewed.Time).Seconds()))
		}
	}) && ok
	if ok {
		c.Controller = k
	}
	pods := &doctor.AgentPods{On: map[string]bool{}}
	in = cluster.List{Of: cluster.Pods, Namespace: namespace, Labels: appLabel + "fabric-agent"}
	ok = objects(ctx, c, in, func(o *corev1.Pod) {
		if o.Spec.NodeName != "" {
			pods.On[o.Spec.NodeName] = doctor.PodReady(o)
		}
	})
	if ok {
		c.AgentPods = pods
	}
}
