package cli

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
		Long: `doctor cluster asks kubectl, with whatever cluster and rights it is configured for, and changes nothing.
What may not be listed is reported, and the rest is checked all the same. Exit status 3 if anything
fails.`,
		Args: argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			if err := labelRule.check("agent-namespace", namespace); err != nil {
				return err
			}
			p, err := collectCluster(cmd.Context(), namespace, time.Now())
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
	asked, refused int
}

// missing notes what could not be listed, and reports whether it could.
func (c *collector) missing(err error) (ok bool) {
	// Whether a CRD is installed is a check of its own, and says nothing of rights.
	if err != nil && strings.Contains(err.Error(), "the server doesn't have a resource type") {
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
func objects[T any](ctx context.Context, c *collector, each func(o *T), args ...string) (ok bool) {
	return c.missing(kubectlEach(ctx, func(o *T, bad error) {
		if bad != nil {
			c.Missing = append(c.Missing, fmt.Sprintf("kubectl %s: %v; left out", strings.Join(args, " "), bad))
			return
		}
		each(o)
	}, args...))
}

// collectCluster collects what doctor cluster checks. It is an error only if nothing may be listed.
func collectCluster(ctx context.Context, namespace string, now time.Time) (*doctor.Cluster, error) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		return nil, fmt.Errorf("doctor cluster: %w: it asks the cluster through kubectl", err)
	}
	c := &collector{}
	objects(ctx, c, func(o *named) { c.CRDs = append(c.CRDs, o.Metadata.Name) }, "get", "crd", "-o", "json")
	objects(ctx, c, func(o *doctor.DaemonSet) { c.DaemonSets.Items = append(c.DaemonSets.Items, *o) },
		"get", "daemonsets", "-A", "-o", "json")
	c.collectDaemonPods(ctx)
	objects(ctx, c, func(o *doctor.ClusterNode) { c.Nodes.Items = append(c.Nodes.Items, *o) },
		"get", "nodes", "-o", "json")
	objects(ctx, c, func(o *doctor.NAD) { c.NADs.Items = append(c.NADs.Items, *o) },
		"get", "network-attachment-definitions.k8s.cni.cncf.io", "-A", "-o", "json")
	objects(ctx, c, func(o *doctor.Pool) { c.Pools.Items = append(c.Pools.Items, *o) },
		"get", "ippools.whereabouts.cni.cncf.io", "-A", "-o", "json")
	c.collectFabrics(ctx)
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
	for i := range c.DaemonSets.Items {
		d := &c.DaemonSets.Items[i]
		if !d.Matters() || d.Status.Ready >= d.Status.Desired || len(d.Spec.Selector.Labels) == 0 ||
			asked == maxDaemons {
			continue
		}
		asked++
		var selector []string
		for k, v := range d.Spec.Selector.Labels {
			selector = append(selector, k+"="+v)
		}
		objects(ctx, c, func(o *doctor.DaemonPod) { d.Pods = append(d.Pods, *o) },
			"get", "pods", "-n", d.Metadata.Namespace, "-l", strings.Join(selector, ","), "-o", "json")
	}
}

// named is an object of which the name is enough.
type named struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
}

func (c *collector) collectFabrics(ctx context.Context) {
	list, bad, err := listFabrics(ctx)
	c.missing(err)
	c.Fabrics = list
	nodes, worse, err := fabricNodes(ctx, "")
	c.missing(err)
	c.FabricNodes = nodes
	for _, err := range append(bad, worse...) {
		c.Missing = append(c.Missing, err.Error())
	}
}

// collectController asks for the controller and for the agents' pods.
func (c *collector) collectController(ctx context.Context, namespace string, now time.Time) {
	const label = "app.kubernetes.io/name="
	k := &doctor.Controller{Namespace: namespace}
	ok := objects(ctx, c, func(o *deployment) {
		k.Found, k.Name, k.Wanted, k.Ready = true, o.Metadata.Name, o.Spec.Replicas, o.Status.Ready
	}, "get", "deployments", "-n", namespace, "-l", label+"fabric-controller", "-o", "json")
	// The clock of this machine may be wrong: the components of the control plane renew their Leases all the time.
	var clock time.Time
	objects(ctx, c, func(o *lease) {
		if o.Spec.Renewed.After(clock) {
			clock = o.Spec.Renewed
		}
	}, "get", "leases", "-n", "kube-system", "-o", "json")
	if clock.IsZero() {
		clock = now
	}
	ok = objects(ctx, c, func(o *lease) {
		if o.Metadata.Name == "fabric-controller" {
			k.Leader, k.Lasts = o.Spec.Holder, o.Spec.Lasts
			k.Silent = max(0, int(clock.Sub(o.Spec.Renewed).Seconds()))
		}
	}, "get", "leases", "-n", namespace, "-o", "json") && ok
	if ok {
		c.Controller = k
	}
	pods := &doctor.AgentPods{On: map[string]bool{}}
	ok = objects(ctx, c, func(o *agentPod) {
		if o.Spec.Node != "" {
			pods.On[o.Spec.Node] = o.ready()
		}
	}, "get", "pods", "-n", namespace, "-l", label+"fabric-agent", "-o", "json")
	if ok {
		c.AgentPods = pods
	}
}

type deployment struct {
	named
	Spec struct {
		Replicas int `json:"replicas"`
	} `json:"spec"`
	Status struct {
		Ready int `json:"readyReplicas"`
	} `json:"status"`
}

type lease struct {
	named
	Spec struct {
		Holder  string    `json:"holderIdentity"`
		Lasts   int       `json:"leaseDurationSeconds"`
		Renewed time.Time `json:"renewTime"`
	} `json:"spec"`
}

type agentPod struct {
	Spec struct {
		Node string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

func (p *agentPod) ready() bool {
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}
