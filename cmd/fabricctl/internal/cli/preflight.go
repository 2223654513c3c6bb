package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// preflight is the flags of the command.
type preflight struct {
	*console
	place

	format string
	mode   string
}

func preflightCommand(a *app) *cobra.Command {
	p := preflight{console: &a.console}
	c := &cobra.Command{
		Use:   "preflight",
		Short: "Say before the installation what is missing, and name what exclusive RDMA mode stops",
		Long: `preflight checks the cluster with the rights of the kubeconfig, and changes nothing: Kubernetes,
Multus, driver containers, RDMA modes, device plugins and operators, and every workload that requests rdma/... or uses
the host's device files. For facts that the API server does not have, run preflight --local on the node, or on a
recording (--root).

"to do" (WARN in JSON) needs attention first. "stops" (FAIL) is what exclusive mode stops, or what prevents the
installation. Objects that you may not list are reported as a problem. With --rdma-mode shared nothing stops.

Exit status 3 if there is something to do.`,
		Example: `  kubectl fabric preflight
  fabricctl preflight --rdma-mode shared
  fabricctl preflight --local            # on a node, as root
  fabricctl preflight -o json | jq -r '.findings[] | select(.status == "FAIL") | .evidence'`,
		Args: argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(a); err != nil {
				return err
			}
			list, err := p.find(cmd.Context(), a)
			if err != nil {
				return err
			}
			return p.print(list)
		},
	}
	c.Flags().StringVarP(&p.format, "output", "o", "table", "table, wide, json or yaml")
	c.Flags().StringVar(&p.mode, "rdma-mode", device.NetnsExclusive.String(),
		"RDMA mode that the nodes are to have, exclusive or shared")
	c.Flags().BoolVar(&p.cluster, "cluster", false, "look at the cluster (the default)")
	c.Flags().BoolVar(&p.local, "local", false, "look at this node (with --root the default: at a recording of one)")
	c.MarkFlagsMutuallyExclusive("cluster", "local")
	return c
}

func (p *preflight) check(a *app) error {
	if p.local = p.local || a.root != "/"; p.local && p.cluster {
		return errSources
	}
	return errors.Join(oneOf("output", &p.format, "table", "wide", "json", "yaml"),
		oneOf("rdma-mode", &p.mode, device.NetnsExclusive.String(), device.NetnsShared.String()))
}

func (p *preflight) find(ctx context.Context, a *app) ([]doctor.Finding, error) {
	if p.local {
		h, err := a.host()
		if err != nil {
			return nil, err
		}
		if a.root == "/" && h.Node.RDMAMode == device.NetnsShared.String() { // host has it of exclusive mode
			users, err := node.Users()
			if err != nil {
				h.Node.Problems = append(h.Node.Problems, fmt.Sprintf("users of RDMA devices: %v", err))
			}
			h.Node.Users, h.UsersKnown = users, err == nil
		}
		return doctor.CheckPreflightHost(h, p.mode), nil
	}
	seen, err := collectPreflight(ctx, a.kube)
	if err != nil {
		return nil, err
	}
	seen.Mode = p.mode
	return doctor.CheckPreflight(seen), nil
}

// collectPreflight asks the cluster. It is an error only if nothing may be asked.
func collectPreflight(ctx context.Context, kube *cluster.Cluster) (*doctor.Preflight, error) {
	c := &collector{kube: kube}
	p := &doctor.Preflight{Listed: map[string]bool{}}
	version, err := kube.Version(ctx)
	if c.missing(err) {
		p.Version = version
	}
	p.Features = c.features(ctx)
	p.Listed["nodes"] = objects(ctx, c, cluster.List{Of: cluster.Nodes}, func(o *corev1.Node) {
		p.Nodes = append(p.Nodes, corev1.Node{ // the list of images alone would be most of it
			ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: o.Labels},
			Status:     corev1.NodeStatus{Allocatable: o.Status.Allocatable, NodeInfo: o.Status.NodeInfo},
		})
	})
	p.Listed["daemonsets"] = objects(ctx, c, cluster.List{Of: cluster.DaemonSets}, func(o *doctor.DaemonSet) {
		p.DaemonSets = append(p.DaemonSets, *o)
	})
	objects(ctx, c, cluster.List{Of: cluster.Networks}, func(o *doctor.NAD) { p.NADs.Items = append(p.NADs.Items, *o) })
	for _, of := range []struct {
		kind string
		cluster.Resource
	}{{"NicClusterPolicy", cluster.NicClusterPolicies}, {"NicNodePolicy", cluster.NicNodePolicies}} {
		objects(ctx, c, cluster.List{Of: of.Resource}, func(o *doctor.NicPolicy) {
			o.Kind = of.kind
			p.Policies = append(p.Policies, *o)
		})
	}
	objects(ctx, c, cluster.List{Of: cluster.SriovPools}, func(o *doctor.SriovPool) { p.Pools = append(p.Pools, *o) })
	objects(ctx, c, cluster.List{Of: cluster.SriovStates}, func(o *doctor.SriovState) {
		p.States = append(p.States, *o)
	})
	objects(ctx, c, cluster.List{Of: cluster.MachineConfigs}, func(o *doctor.MachineConfig) {
		p.MachineConfigs = append(p.MachineConfigs, *o)
	})
	nodes, bad, err := fabricNodes(ctx, kube, "")
	c.missing(err)
	p.FabricNodes = nodes
	for _, err := range bad {
		c.Missing = append(c.Missing, err.Error())
	}
	p.Listed["pods"] = objects(ctx, c, cluster.List{Of: cluster.Pods}, p.AddPod)
	if c.refused == c.asked {
		return nil, fmt.Errorf("preflight: no cluster, or no rights: %s", strings.Join(c.Missing[:1], ""))
	}
	p.Missing, p.Net = c.Missing, clusterUses(ctx, kube)
	return p, nil
}

// features asks which of doctor.Features the API server serves; nil: it could not be asked.
func (c *collector) features(ctx context.Context) map[string][]string {
	out := map[string][]string{}
	for _, f := range doctor.Features {
		versions, err := c.kube.Versions(ctx, f.Group)
		if errors.Is(err, cluster.ErrNotServed) {
			continue
		}
		if !c.missing(err) {
			return nil
		}
		for _, v := range versions {
			if f.Resource != "" {
				served, err := c.kube.Resources(ctx, f.Group, v)
				if err != nil && !errors.Is(err, cluster.ErrNotServed) {
					c.missing(err)
					return nil
				}
				if !slices.ContainsFunc(served, func(r metav1.APIResource) bool { return r.Name == f.Resource }) {
					continue
				}
			}
			out[f.Name] = append(out[f.Name], v)
		}
	}
	return out
}

// preflightWords are the statuses in the table.
var preflightWords = map[doctor.Status]string{doctor.OK: "ok", doctor.Warn: "to do", doctor.Fail: "stops"}

// print prints all findings, worst first. If something is to be done, the exit status is 3.
func (p *preflight) print(list []doctor.Finding) error {
	doctor.Sort(list)
	if p.format != "table" && p.format != "wide" {
		if err := p.structured(p.format, findingList{list}); err != nil {
			return err
		}
	} else {
		p.table(list)
	}
	if doctor.Worst(list) != doctor.OK {
		return errFinding
	}
	return nil
}

func (p *preflight) table(list []doctor.Finding) {
	t := newTable("CHECK", "STATUS", "FOUND", "WHAT TO DO")
	t.share = []string{"FOUND", "WHAT TO DO"}
	if p.format == "wide" {
		t.header = append(t.header, "WHY", "DOCS")
	}
	count := map[doctor.Status]int{}
	for _, f := range list {
		count[f.Status]++
		row := []any{f.ID, cell{preflightWords[f.Status], findingColours[f.Status]}, f.Evidence, f.Cure}
		if p.format == "wide" {
			row = append(row, f.Cause, f.Docs)
		}
		t.add(row...)
	}
	t.print(p.console)
	p.stdout.Printf("\n%d ok, %d to do, %d stops; why: fabricctl doctor explain CHECK\n", count[doctor.OK],
		count[doctor.Warn], count[doctor.Fail])
}
