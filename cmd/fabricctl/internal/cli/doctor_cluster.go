package cli

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/internal/doctor"
)

func doctorClusterCommand(a *app) *cobra.Command {
	out := findings{console: &a.console}
	var namespace string
	c := &cobra.Command{
		Use: "cluster",
		Short: "Check the cluster: CRDs, Multus, device plugins, networks against resources, ranges and pools, " +
			"nodes of a kind",
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
			p, err := collectCluster(cmd.Context(), namespace)
			if err != nil {
				return err
			}
			p.Version = a.version
			return out.print(doctor.CheckCluster(p))
		},
	}
	out.flags(c)
	c.Flags().StringVar(&namespace, "agent-namespace", agentNamespace, "namespace of fabric-agent")
	return c
}

// collectCluster collects what doctor cluster checks. What may not be listed is in Missing; it is an error only if
// nothing may be listed.
func collectCluster(ctx context.Context, namespace string) (*doctor.Cluster, error) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		return nil, fmt.Errorf("doctor cluster: %w: it asks the cluster through kubectl", err)
	}
	c := &doctor.Cluster{}
	asked := 0
	missing := func(err error) {
		asked++
		// Whether a CRD is installed is a check of its own.
		if err != nil && !strings.Contains(err.Error(), "the server doesn't have a resource type") {
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
	missing(kubectlGet(ctx, &crds, "get", "crd", "-o", "json"))
	for _, i := range crds.Items {
		c.CRDs = append(c.CRDs, i.Metadata.Name)
	}
	missing(kubectlGet(ctx, &c.DaemonSets, "get", "daemonsets", "-A", "-o", "json"))
	missing(kubectlGet(ctx, &c.Nodes, "get", "nodes", "-o", "json"))
	missing(kubectlGet(ctx, &c.NADs, "get", "network-attachment-definitions.k8s.cni.cncf.io", "-A", "-o", "json"))
	missing(kubectlGet(ctx, &c.Pools, "get", "ippools.whereabouts.cni.cncf.io", "-A", "-o", "json"))
	list, bad, err := published(ctx, namespace)
	missing(err)
	if len(c.Missing) == asked {
		return nil, fmt.Errorf("doctor cluster: no cluster, or no rights: %s", c.Missing[0])
	}
	for _, err := range bad {
		c.Missing = append(c.Missing, err.Error())
	}
	c.Inventories = present(list, c.Nodes.Items)
	return c, nil
}
