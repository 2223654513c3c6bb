package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

func (a *app) doctorCluster() *cobra.Command {
	var format string
	var all bool
	c := &cobra.Command{
		Use: "cluster",
		Short: "Check the cluster: CRDs, Multus, device plugins, networks against resources, ranges and pools, " +
			"nodes of a kind",
		Long: `doctor cluster asks kubectl, with whatever cluster and rights it is configured for, and changes nothing. What may not be listed
is reported, and the rest is checked all the same. Exit status 3 if anything fails.`,
		Args: argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("output", format, findingFormats...); err != nil {
				return err
			}
			p, err := collectCluster(cmd.Context())
			if err != nil {
				return err
			}
			p.Version = cmd.Root().Version
			return a.findings(doctor.CheckCluster(p), format, all)
		},
	}
	findingFlags(c, &format, &all)
	return c
}

// collectCluster asks for everything, and goes on past what it may not have.
func collectCluster(ctx context.Context) (*doctor.Cluster, error) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		return nil, fmt.Errorf("doctor cluster: %w: it asks the cluster through kubectl", err)
	}
	c := &doctor.Cluster{}
	ask := func(into any, args ...string) {
		err := kubectl(ctx, into, args...)
		if err != nil &&
			!strings.Contains(err.Error(), "the server doesn't have a resource type") { // its CRD is a check of its own
			c.Missing = append(c.Missing, err.Error())
		}
	}
	var crds struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"items"`
	}
	ask(&crds, "get", "crd", "-o", "json")
	for _, i := range crds.Items {
		c.CRDs = append(c.CRDs, i.Metadata.Name)
	}
	ask(&c.DaemonSets, "get", "daemonsets", "-A", "-o", "json")
	ask(&c.Nodes, "get", "nodes", "-o", "json")
	ask(&c.NADs, "get", "network-attachment-definitions.k8s.cni.cncf.io", "-A", "-o", "json")
	ask(&c.Pools, "get", "ippools.whereabouts.cni.cncf.io", "-A", "-o", "json")
	list, err := published(ctx)
	if c.Inventories = list; err != nil {
		c.Missing = append(c.Missing, err.Error())
	}
	if len(c.Missing) == 6 {
		return nil, fmt.Errorf("doctor cluster: no cluster, or no rights: %s", c.Missing[0])
	}
	// A ConfigMap outlives its Node.
	c.Inventories = slices.DeleteFunc(c.Inventories, func(p node.Published) bool {
		return !slices.ContainsFunc(
			c.Nodes.Items,
			func(n doctor.ClusterNode) bool { return n.Metadata.Name == p.Node.Name },
		)
	})
	return c, nil
}

// published reads what the agents have published, in whatever namespace, in the order of the nodes' names.
func published(ctx context.Context) (out []node.Published, err error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Data map[string]string `json:"data"`
		} `json:"items"`
	}
	if err := kubectl(ctx, &list, "get", "configmaps", "-A", "-l", node.PublishedLabel, "-o", "json"); err != nil {
		return nil, err
	}
	for _, i := range list.Items {
		var p node.Published
		if err := json.Unmarshal(
			[]byte(i.Data[node.PublishedKey]),
			&p,
		); err != nil || p.Node == nil ||
			p.Node.Name == "" {
			return nil, errors.Join(
				fmt.Errorf(
					"ConfigMap %s: %s is not an inventory; delete it, the agent writes it again",
					i.Metadata.Name,
					node.PublishedKey,
				),
				err,
			)
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b node.Published) int { return strings.Compare(a.Node.Name, b.Node.Name) })
	return out, nil
}

// clusterNodes are the pictures that the agents have published, for the Nodes that are still there.
func clusterNodes(ctx context.Context) (out []*node.Node, err error) {
	list, err := published(ctx)
	if err != nil {
		return nil, fmt.Errorf("--cluster: %w", err)
	}
	var there doctor.ClusterNodes
	if err := kubectl(ctx, &there, "get", "nodes", "-o", "json"); err != nil {
		return nil, fmt.Errorf("--cluster: %w", err)
	}
	for i := range list {
		if slices.ContainsFunc(
			there.Items,
			func(n doctor.ClusterNode) bool { return n.Metadata.Name == list[i].Node.Name },
		) {
			out = append(out, list[i].Node)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf(
			"--cluster: no node has published an inventory (ConfigMaps with the label %s): fabric-agent does; "+
				"without it give recordings (discover --record)",
			node.PublishedLabel,
		)
	}
	return out, nil
}

// kubectl reads the JSON that a call prints.
func kubectl(ctx context.Context, into any, args ...string) error {
	what := "kubectl " + strings.Join(args, " ")
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	var diag bytes.Buffer
	cmd.Stderr = &diag
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s: kubectl is not in PATH", what)
	}
	if err != nil {
		return fmt.Errorf("%s: %s", what, strings.TrimSpace(diag.String()))
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// podByName asks for the pod and the networks.
func podByName(ctx context.Context, name string) (*doctor.Manifest, *doctor.NADs, error) {
	space, pod, ok := strings.Cut(name, "/")
	if !ok {
		space, pod = "default", name
	}
	m := &doctor.Manifest{}
	if err := kubectl(ctx, m, "-n", space, "get", "pod", pod, "-o", "json"); err != nil {
		return nil, nil, fmt.Errorf("--pod: %w", err)
	}
	n := &doctor.NADs{}
	if err := kubectl(ctx, n, "get", "network-attachment-definitions.k8s.cni.cncf.io", "-A", "-o", "json"); err != nil {
		return m, nil, nil //nolint:nilerr // without the right to list them the rest is checked all the same
	}
	return m, n, nil
}
