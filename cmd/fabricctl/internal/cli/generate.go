package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/generate"
)

func generateCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "generate KIND",
		Short: "Write Fabrics, networks, device plugin configurations and workloads, ready to apply",
		Long: `generate writes YAML for this node, for nodes in recordings (discover --record, or discover -o json),
or with --cluster for the FabricNodes and Fabrics of the cluster. Comments give the reason of each choice.

Ports that are Down, part of a bond or carry the default route are left out, and comments at the end list them.`,
		Example: `  fabricctl generate fabric --cluster | kubectl apply -f -
  fabricctl generate mpijob --cluster --workers 4 --image registry.example.com/nccl-tests:latest
  fabricctl generate nad --range 198.18.0.0/18 gpu-*.tar.gz`,
		RunE: func(_ *cobra.Command, args []string) error {
			what := "KIND is missing"
			if len(args) > 0 {
				what = fmt.Sprintf("kind %.300q", args[0])
			}
			return fmt.Errorf("%w: %s: must be one of %s, policy, topology, verify", errUsage, what,
				strings.Join(generate.Kinds, ", "))
		},
	}
	for _, kind := range generate.Kinds {
		c.AddCommand(generateKindCommand(a, kind))
	}
	c.AddCommand(generatePolicyCommand(a), generateVerifyCommand(a), generateTopologyCommand(a))
	return c
}

// kindHelp is what the help of a kind says.
type kindHelp struct{ short, long, example string }

const aWorkload = `The pods have a /dev/shm of memory, the capability IPC_LOCK, and all rails and GPUs of a node
unless flags limit them. --cluster uses the devices of one Fabric, and of Fabrics that differ from it only in the rail;
recordings use the resources of another device plugin, such as nvidia.com/ib_400g. With allocation DRA, of the Fabrics
or by --allocation dra, the pods have a ResourceClaim instead.

With --shared, for the RDMA shared device plugin, InfiniBand needs no network; RoCE needs the macvlan networks of
generate nad --shared.`

var kindHelps = map[string]kindHelp{
	"fabric": {
		"Write Fabrics, for a cluster with fabric-agent: one per fabric, or one per rail where rails are planes",
		`generate fabric writes Fabrics that are published in --namespace. With --cluster and without --range each keeps
its range, or gets a free one.`,
		`  fabricctl generate fabric --cluster | kubectl apply -f -
  fabricctl generate fabric --range 198.18.0.0/16 gpu-*.tar.gz`,
	},
	"nad": {
		"Write NetworkAttachmentDefinitions, for a cluster without fabric-agent",
		`generate nad writes a network per fabric, or per rail where rails are planes, for nodes of recordings. With
fabric-agent use generate fabric: the controller publishes the networks.`,
		`  fabricctl generate nad --range 198.18.0.0/18 gpu-*.tar.gz`,
	},
	devicePlugin: {
		"Write the ConfigMap of the SR-IOV network device plugin, for a cluster without fabric-agent",
		`generate device-plugin writes the ConfigMap of the SR-IOV network device plugin, with --shared of the RDMA
shared device plugin, for nodes of recordings. It belongs in the namespace of the plugin's DaemonSet, which --cluster
looks up.`,
		`  fabricctl generate device-plugin -n kube-system gpu-*.tar.gz`,
	},
	"deployment": {"Write a Deployment with rails", aWorkload, "  fabricctl generate deployment --cluster --rails 2"},
	"pod":        {"Write a pod with rails", aWorkload, "  fabricctl generate pod --cluster"},
	"pytorchjob": {
		"Write a PyTorchJob with rails", aWorkload, "  fabricctl generate pytorchjob --rails 2 gpu-*.tar.gz",
	},
	"mpijob": {
		"Write an MPIJob with rails", aWorkload,
		"  fabricctl generate mpijob --cluster --workers 4 --image registry.example.com/nccl-tests:latest",
	},
	"volcano": {"Write a Job of Volcano with rails", aWorkload, "  fabricctl generate volcano --cluster --workers 4"},
	"perftest-pods": {
		"Write pods to measure between (verify), each on a node of its own", aWorkload,
		"  fabricctl generate perftest-pods --cluster --image IMAGE | kubectl apply -f -",
	},
	"claim": {
		"Write a ResourceClaimTemplate for the rails of a pod, for Fabrics with allocation DRA",
		`generate claim writes a ResourceClaimTemplate, with --with-pod also a pod that uses it. With --gpu-class each
rail comes with GPUs on its PCIe root.`,
		`  fabricctl generate claim --cluster --rails 1 --gpu-class gpu.nvidia.com --with-pod`,
	},
}

func generateKindCommand(a *app, kind string) *cobra.Command {
	g := newGeneration()
	help := kindHelps[kind]
	c := &cobra.Command{
		Use: kind + " [RECORDING...]", Short: help.short, Long: help.long, Example: help.example,
		Args: argsBetween(0, 10000),
		RunE: func(cmd *cobra.Command, args []string) error {
			g.from.machine, g.from.recordings = a.machine, args
			switch kind {
			case "nad": // is for recordings only
			case devicePlugin:
				g.from.place.settle(&a.machine, len(args) == 0)
			default:
				g.from.settle()
			}
			if err := g.check(kind, cmd.Flags()); err != nil {
				return err
			}
			if err := g.plugin(cmd.Context(), kind, cmd.Flags()); err != nil {
				return fmt.Errorf("generate %s: %w", kind, err)
			}
			g.Warn = func(s string) { a.stderr.Println("warning:", s) }
			g.Note = func(s string) { a.stderr.Println(s) }
			text, err := g.from.generate(cmd.Context(), "generate "+kind, kind, g.Options)
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
	g.flags(c, kind)
	return c
}

// generation is the flags of a kind.
type generation struct {
	generate.Options
	from       sources
	pool       string
	excluded   []string
	allocation string
}

// newGeneration has the values of the flags that are not given.
func newGeneration() *generation {
	return &generation{allocation: devicePlugin, Options: generate.Options{
		Name: "rdma-test", Image: "example.com/nccl-tests:latest", Prefix: "nvidia.com", Workers: 2, GPUs: -1,
	}}
}

// flags adds the flags that mean something to a kind.
func (g *generation) flags(c *cobra.Command, kind string) {
	f := c.Flags()
	namespace, fabric := "namespace of the objects", "only this fabric (default: all)"
	switch {
	case kind == devicePlugin:
		namespace = "that of the plugin's DaemonSet (default: kube-system, with --cluster where it runs)"
	case generate.IsWorkload(kind):
		fabric = "rails of this fabric (default: the one with the most bandwidth)"
	}
	f.StringVarP(&g.Namespace, "namespace", "n", "default", namespace)
	f.StringVar(&g.Fabric, "fabric", "", fabric)
	switch kind {
	case "fabric":
		g.rangeFlags(f, " (default: with --cluster a free range for each Fabric, or the one that it has)")
		g.from.flags(c, "for the FabricNodes of the cluster", "for recordings or this machine")
		g.allocationFlag(f, "who hands out devices")
	case "nad":
		g.rangeFlags(f, "")
		g.prefixFlag(f)
		f.StringVar(&g.Target, "target", "", generate.NetworkOperator+" writes the objects of NVIDIA's network "+
			"operator instead of networks")
		g.functionFlags(f)
	case devicePlugin:
		g.prefixFlag(f)
		g.functionFlags(f)
		g.from.flags(c, "beside recordings: ask the cluster where the plugin runs", "without the cluster")
	default:
		g.from.flags(c, "for the FabricNodes and Fabrics of the cluster", "for recordings or this machine")
		g.workloadFlags(f, kind)
	}
}

// rangeFlags are those of kinds with addresses.
func (g *generation) rangeFlags(f *pflag.FlagSet, without string) {
	f.StringVar(&g.pool, "range", "", "addresses of the rails, shared out to the Fabrics or networks in equal parts"+
		without)
	f.StringSliceVar(&g.excluded, "exclude", nil, "parts of the range that must not be given")
	f.IntVar(&g.Nodes, "nodes", 0, "nodes that the range has to be large enough for (default: those looked at)")
}

// functionFlags are those of kinds for other device plugins than fabric-agent.
func (g *generation) functionFlags(f *pflag.FlagSet) {
	f.BoolVar(&g.VFs, "vfs", false, "networks and resources of virtual functions, one per rail, instead of whole ports")
	f.BoolVar(&g.Shared, "shared", false, "for the RDMA shared device plugin (shared RDMA mode)")
}

func (g *generation) prefixFlag(f *pflag.FlagSet) {
	f.StringVar(&g.Prefix, "resource-prefix", g.Prefix, "prefix of the resources; "+generate.AgentPrefix+
		" for those of fabric-agent, as with --cluster; "+generate.SharedPrefix+" with --shared")
}

func (g *generation) allocationFlag(f *pflag.FlagSet, what string) {
	f.StringVar(&g.allocation, "allocation", devicePlugin, what+": device-plugin, or dra for ResourceClaims")
}

// workloadFlags are those of pods and claims.
func (g *generation) workloadFlags(f *pflag.FlagSet, kind string) {
	f.StringVar(&g.Name, "name", g.Name, "name of the workload")
	f.StringVar(&g.Image, "image", g.Image, "image of the pods")
	f.IntVar(&g.Rails, "rails", 0, "rails of a pod (default: all of a node)")
	f.IntVar(&g.First, "first-rail", 0, "with --rails, where rails are planes: the first of them, counted from 0")
	f.BoolVar(&g.PerRail, "per-rail", false, "claims: a request for each rail, by its number, instead of a count")
	f.IntVar(&g.MinRate, "min-rate", 0, "claims: only rails with at least so many Gb/s")
	f.StringVar(&g.GPUClass, "gpu-class", "", "claims: with each rail GPUs of this DeviceClass on the same PCIe root, "+
		"such as gpu.nvidia.com")
	if kind != "perftest-pods" {
		f.IntVar(&g.GPUs, "gpus", g.GPUs, "GPUs per pod (default: all of a node, with --rails in proportion)")
		f.StringVar(&g.GPU, "gpu-resource", "", "resource of the GPUs, such as nvidia.com/v100 (default: by their "+
			"vendor, nvidia.com/gpu)")
	}
	if kind == "claim" {
		f.BoolVar(&g.Pod, "with-pod", false, "also a pod with it")
		return
	}
	g.prefixFlag(f)
	g.functionFlags(f)
	g.allocationFlag(f, "from recordings, who hands out devices")
	if kind != "pod" {
		f.IntVar(&g.Workers, "workers", g.Workers, "pods")
	}
	if kind == "perftest-pods" {
		f.BoolVar(&g.SameNode, "same-node", false, "they may be on one node")
	}
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
