package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/generate"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

func (a *app) generate() *cobra.Command {
	o := generate.Options{}
	var pool string
	var cluster bool
	var exclude []string
	c := &cobra.Command{
		Use:   "generate KIND [RECORDING...]",
		Short: "Write networks, device plugin configurations and workloads, ready to apply",
		Long: `generate writes YAML for this node, for the nodes of which there are recordings (discover --record) or pictures (discover -o json), or
with --cluster for those of which fabric-agent has published the inventory,
with the reason of each choice as a comment. KIND is one of:

  nad             NetworkAttachmentDefinitions, one per fabric, or one per rail where rails are planes
  device-plugin   ConfigMap of the SR-IOV network device plugin; with --shared of the RDMA shared device plugin
  deployment, pod, pytorchjob, mpijob, volcano    a workload with all rails of one fabric
  perftest-pods   pods to measure with, each on a node of its own: two, or --workers

Ports that are Down, part of a bond or carry the default route are in none of them; comments at the end say which and why.`,
		Example: `  fabricctl generate nad --range 192.168.128.0/18 | kubectl apply -f -
  fabricctl generate device-plugin -n kube-system gpu-*.tar.gz
  fabricctl generate nad --cluster --range 192.168.128.0/18
  fabricctl generate mpijob --workers 4 --image registry.example.com/nccl-tests:latest`,
		Args:      argsBetween(1, 10000),
		ValidArgs: generate.Kinds,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(generate.Kinds, args[0]) {
				return fmt.Errorf("%w: kind %q: want one of %s", errUsage, args[0], strings.Join(generate.Kinds, ", "))
			}
			if o.VFs && o.Shared {
				return fmt.Errorf("%w: --vfs and --shared exclude each other", errUsage)
			}
			var err error
			if o.Range, err = netip.ParsePrefix(pool); err != nil {
				return fmt.Errorf("%w: --range: %w", errUsage, err)
			}
			for _, e := range exclude {
				p, err := netip.ParsePrefix(e)
				if err != nil {
					return fmt.Errorf("%w: --exclude: %w", errUsage, err)
				}
				o.Exclude = append(o.Exclude, p)
			}
			if o.Workers < 1 || slices.Contains([]string{"pytorchjob", "perftest-pods"}, args[0]) && o.Workers < 2 {
				return fmt.Errorf(
					"%w: --workers %d: want 1 at least, for perftest-pods and a pytorchjob 2 (a master and a worker)",
					errUsage,
					o.Workers,
				)
			}
			if cluster && args[0] != "device-plugin" && !cmd.Flags().Changed("resource-prefix") {
				o.Prefix = generate.AgentPrefix
			}
			nodes, err := a.nodesOf(cmd.Context(), cluster, args[1:])
			if err != nil {
				return err
			}
			text, err := generate.Generate(args[0], nodes, o)
			if err != nil {
				return fmt.Errorf("generate %s: %w", args[0], err)
			}
			_, err = fmt.Fprint(a.stdout, text)
			return err
		},
	}
	f := c.Flags()
	f.StringVarP(&o.Namespace, "namespace", "n", "default", "namespace of the objects")
	f.StringVar(&o.Name, "name", "rdma-test", "name of the workload")
	f.StringVar(&o.Image, "image", "example.com/nccl-tests:latest", "image of the workload")
	f.StringVar(
		&o.Fabric,
		"fabric",
		"",
		"only this fabric (default: all; for a workload the one with the most bandwidth)",
	)
	f.StringVar(
		&o.Prefix,
		"resource-prefix",
		"nvidia.com",
		"prefix of the resources; "+generate.AgentPrefix+" for those of fabric-agent (default with --cluster, "+
			"device-plugin aside)",
	)
	f.StringVar(&pool, "range", "192.168.128.0/18", "addresses of the rails, shared out to the networks in equal parts")
	f.StringSliceVar(&exclude, "exclude", nil, "parts of the range that must not be given")
	f.BoolVar(
		&cluster,
		"cluster",
		false,
		"for every node of which fabric-agent has published the inventory, through kubectl",
	)
	f.IntVar(&o.Nodes, "nodes", 0, "nodes that the range has to do for (default: those looked at)")
	f.IntVar(&o.Workers, "workers", 2, "pods of a job or deployment")
	f.IntVar(&o.GPUs, "gpus", -1, "GPUs per pod (default: all of a node)")
	f.BoolVar(&o.VFs, "vfs", false, "networks and resources of virtual functions, one per rail, instead of whole ports")
	f.BoolVar(&o.SameNode, "same-node", false, "perftest-pods: they may be on one node")
	f.BoolVar(
		&o.Shared,
		"shared",
		false,
		"device-plugin: for the RDMA shared device plugin (verbs only, shared RDMA mode)",
	)
	return c
}

// picture reads one recording, or the picture of a node as JSON (discover -o json).
func (a *app) picture(name string) (*node.Node, error) {
	if b, err := os.ReadFile(name); err == nil && len(b) > 0 && b[0] == '{' {
		var d discovery
		if err := json.Unmarshal(b, &d); err != nil || d.Node == nil || d.Node.Name == "" {
			return nil, errors.Join(fmt.Errorf("recording %s: not what discover -o json prints", name), err)
		}
		return d.Node, nil
	}
	tree, err := openTree(name)
	if err != nil {
		return nil, fmt.Errorf("recording %s", strings.TrimPrefix(err.Error(), "--root: "))
	}
	n, err := node.Open(tree, a.store())
	if err != nil {
		return nil, fmt.Errorf("recording %s: %w", name, err)
	}
	return n, nil
}

// nodesOf are the nodes to write for.
func (a *app) nodesOf(ctx context.Context, cluster bool, recordings []string) ([]*node.Node, error) {
	switch {
	case !cluster:
		return a.nodes(recordings)
	case len(recordings) > 0 || a.root != "/":
		return nil, fmt.Errorf("%w: --cluster, recordings and --root exclude each other", errUsage)
	}
	return clusterNodes(ctx)
}

// nodes reads the recordings, or this machine without any.
func (a *app) nodes(recordings []string) (out []*node.Node, err error) {
	if len(recordings) == 0 {
		n, err := a.node()
		return []*node.Node{n}, err
	}
	seen := map[string]string{}
	for _, r := range recordings {
		n, err := a.picture(r)
		if err != nil {
			return nil, err
		}
		if other, ok := seen[n.Name]; ok {
			return nil, fmt.Errorf("recordings %s and %s are both of node %s", other, r, n.Name)
		}
		seen[n.Name] = r
		out = append(out, n)
	}
	return out, nil
}
