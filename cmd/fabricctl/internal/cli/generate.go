package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/generate"
)

func generateCommand(a *app) *cobra.Command {
	g := &generation{}
	c := &cobra.Command{
		Use:   "generate KIND [RECORDING...]",
		Short: "Write Fabrics, networks, device plugin configurations and workloads, ready to apply",
		Long: `generate writes YAML for this node, for the nodes of which there are recordings (discover --record) or
pictures (discover -o json), or with --cluster for what the FabricNodes and Fabrics of the cluster say,
with the reason of each choice as a comment. KIND is one of:

  fabric          Fabrics, for a cluster with fabric-agent: one per fabric, or one per rail where rails are planes
  deployment, pod, pytorchjob, mpijob, volcano    a workload with all rails of one fabric
  claim           a ResourceClaimTemplate for these rails, for Fabrics with allocation DRA; --pod: and a pod with it
  perftest-pods   pods to measure with, each on a node of its own: two, or --workers
  policy          admission policies that give pods with one label their rails, see generate policy --help
  topology        labels of nodes and a Kueue Topology from the fabric's cabling, see generate topology --help

and for clusters without fabric-agent, from recordings only:

  nad             NetworkAttachmentDefinitions, one per fabric, or one per rail where rails are planes
  device-plugin   ConfigMap of the SR-IOV network device plugin; with --shared of the RDMA shared device plugin

With --shared workloads ask the RDMA shared device plugin for devices. On InfiniBand they need no network; on RoCE they
have macvlan interfaces, whose networks are those of nad --shared.

Pods of Fabrics with allocation DRA have a ResourceClaim instead of a resource: with --cluster the Fabrics say it, else
--allocation dra. With --gpu-class each rail comes with GPUs on its PCIe root.

Ports that are Down, part of a bond or carry the default route are in none of them; comments at the end say which and
why.`,
		Example: `  fabricctl generate fabric --cluster | kubectl apply -f -
  fabricctl generate mpijob --cluster --workers 4 --image registry.example.com/nccl-tests:latest
  fabricctl generate claim --cluster --rails 1 --gpu-class gpu.nvidia.com --pod
  fabricctl generate pytorchjob --rails 2 gpu-*.tar.gz
  fabricctl generate nad --range 198.18.0.0/18 gpu-*.tar.gz
  fabricctl generate device-plugin -n kube-system gpu-*.tar.gz`,
		Args:      argsBetween(1, 10000),
		ValidArgs: generate.Kinds,
		RunE: func(cmd *cobra.Command, args []string) error {
			g.from.machine, g.from.recordings = a.machine, args[1:]
			switch args[0] {
			case "nad": // is for recordings only
			case devicePlugin:
				g.from.place.settle(&a.machine, len(args) == 1)
			default:
				g.from.settle()
			}
			if err := g.check(args[0], cmd.Flags()); err != nil {
				return err
			}
			if err := g.plugin(cmd.Context(), args[0], cmd.Flags()); err != nil {
				return fmt.Errorf("generate %s: %w", args[0], err)
			}
			g.Warn = func(s string) { a.stderr.Println("warning:", s) }
			g.Note = func(s string) { a.stderr.Println(s) }
			text, err := g.from.generate(cmd.Context(), "generate "+args[0], args[0], g.Options)
			if err != nil {
				g.from.warn(&a.console) // what was left out may be the cause
				return err
			}
			if err := a.stdout.Document([]byte(text)); err != nil {
				return err
			}
			return g.from.leftOut(&a.console)
		},
	}
	g.flags(c)
	c.AddCommand(generatePolicyCommand(a), generateVerifyCommand(a), generateTopologyCommand(a))
	return c
}

// generation is the flags of generate.
type generation struct {
	generate.Options
	from       sources
	pool       string
	excluded   []string
	allocation string
}

func (g *generation) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&g.Namespace, "namespace", "n", "default", "namespace of the objects (for device-plugin that of the "+
		"plugin's DaemonSet: default kube-system, with --cluster where it runs)")
	f.StringVar(&g.Name, "name", "rdma-test", "name of the workload")
	f.StringVar(&g.Image, "image", "example.com/nccl-tests:latest", "image of the workload")
	f.StringVar(&g.Fabric, "fabric", "",
		"only this fabric (default: all; for a workload the one with the most bandwidth)")
	f.StringVar(&g.Prefix, "resource-prefix", "nvidia.com", "prefix of the resources; "+generate.AgentPrefix+
		" for those of fabric-agent, as with --cluster; "+generate.SharedPrefix+" with --shared")
	f.StringVar(&g.pool, "range", "",
		"addresses of the rails, shared out to the Fabrics or networks in equal parts (default: fabric --cluster "+
			"proposes a free range for each, or keeps that of a Fabric which is there)")
	f.StringSliceVar(&g.excluded, "exclude", nil, "parts of the range that must not be given")
	g.from.flags(c, "for what the FabricNodes and Fabrics of the cluster say; device-plugin, beside recordings: "+
		"where the plugin runs", "for recordings or this machine")
	f.IntVar(&g.Nodes, "nodes", 0, "nodes that the range has to be large enough for (default: those looked at)")
	f.IntVar(&g.Workers, "workers", 2, "pods of a job or deployment")
	f.IntVar(&g.GPUs, "gpus", -1, "GPUs per pod (default: all of a node, with --rails in proportion)")
	f.StringVar(&g.GPU, "gpu-resource", "", "resource of the GPUs, such as nvidia.com/v100 (default: by their vendor, "+
		"nvidia.com/gpu)")
	f.StringVar(&g.For, "for", "", "nad: "+generate.NetworkOperator+" writes the objects of NVIDIA's network operator "+
		"instead of networks")
	f.BoolVar(&g.VFs, "vfs", false, "networks and resources of virtual functions, one per rail, instead of whole ports")
	f.BoolVar(&g.SameNode, "same-node", false, "perftest-pods: they may be on one node")
	f.StringVar(&g.allocation, "allocation", devicePlugin, "who hands out devices: device-plugin, or dra for "+
		"fabrics and pods with ResourceClaims; with --cluster the Fabrics say it")
	f.BoolVar(&g.Pod, "pod", false, "claim: also a pod with it")
	f.IntVar(&g.Rails, "rails", 0, "rails of a pod (default: all of a node)")
	f.IntVar(&g.First, "first-rail", 0, "with --rails, where rails are planes: the first of them, counted from 0")
	f.BoolVar(&g.PerRail, "per-rail", false, "claims: a request for each rail, by its number, instead of a count")
	f.IntVar(&g.MinRate, "min-rate", 0, "claims: only rails with at least so many Gb/s")
	f.StringVar(&g.GPUClass, "gpu-class", "", "claims: with each rail GPUs of this DeviceClass on the same PCIe root, "+
		"such as gpu.nvidia.com")
	f.BoolVar(&g.Shared, "shared", false,
		"for the RDMA shared device plugin (shared RDMA mode): its configuration, networks and workloads")
}

// plugin finds out where the device plugin's configuration belongs.
func (g *generation) plugin(ctx context.Context, kind string, f *pflag.FlagSet) (err error) {
	if kind != devicePlugin {
		return nil
	}
	namespace := ""
	if f.Changed("namespace") {
		namespace = g.Namespace
	} else {
		g.Namespace = "kube-system"
	}
	if !g.from.cluster {
		return nil
	}
	g.from.cluster = false // the nodes are those of the recordings
	if g.Plugin, err = runningPlugin(ctx, g.from.kube, g.Shared, namespace); err != nil {
		return err
	}
	g.Namespace = g.Plugin.Namespace
	return nil
}
