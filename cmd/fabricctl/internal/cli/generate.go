package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

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

Pods of Fabrics with allocation DRA have a ResourceClaim instead of a resource: with --cluster the Fabrics say it, else
--allocation dra. With --gpu-class each rail comes with GPUs on its PCIe root.

Ports that are Down, part of a bond or carry the default route are in none of them; comments at the end say which and
why.`,
		Example: `  fabricctl generate fabric --cluster --range 10.20.0.0/16 | kubectl apply -f -
  fabricctl generate mpijob --cluster --workers 4 --image registry.example.com/nccl-tests:latest
  fabricctl generate claim --cluster --rails 1 --gpu-class gpu.nvidia.com --pod
  fabricctl generate nad --range 192.168.128.0/18 gpu-*.tar.gz
  fabricctl generate device-plugin -n kube-system gpu-*.tar.gz`,
		Args:      argsBetween(1, 10000),
		ValidArgs: generate.Kinds,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := g.check(args[0]); err != nil {
				return err
			}
			if err := errors.Join(g.from.checkPrefix(cmd.Flags()), g.checkClaim(args[0], cmd.Flags())); err != nil {
				return err
			}
			g.from.machine, g.from.recordings = a.machine, args[1:]
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
	c.AddCommand(generatePolicyCommand(a), generateTopologyCommand(a))
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
	f.StringVarP(&g.Namespace, "namespace", "n", "default", "namespace of the objects")
	f.StringVar(&g.Name, "name", "rdma-test", "name of the workload")
	f.StringVar(&g.Image, "image", "example.com/nccl-tests:latest", "image of the workload")
	f.StringVar(&g.Fabric, "fabric", "",
		"only this fabric (default: all; for a workload the one with the most bandwidth)")
	f.StringVar(&g.Prefix, "resource-prefix", "nvidia.com", "prefix of the resources; "+generate.AgentPrefix+
		" for those of fabric-agent, as with --cluster")
	f.StringVar(&g.pool, "range", "192.168.128.0/18",
		"addresses of the rails, shared out to the Fabrics or networks in equal parts")
	f.StringSliceVar(&g.excluded, "exclude", nil, "parts of the range that must not be given")
	f.BoolVar(&g.from.cluster, "cluster", false,
		"for what the FabricNodes and Fabrics of the cluster say, through kubectl")
	f.IntVar(&g.Nodes, "nodes", 0, "nodes that the range has to be large enough for (default: those looked at)")
	f.IntVar(&g.Workers, "workers", 2, "pods of a job or deployment")
	f.IntVar(&g.GPUs, "gpus", -1, "GPUs per pod (default: all of a node)")
	f.BoolVar(&g.VFs, "vfs", false, "networks and resources of virtual functions, one per rail, instead of whole ports")
	f.BoolVar(&g.SameNode, "same-node", false, "perftest-pods: they may be on one node")
	f.StringVar(&g.allocation, "allocation", devicePlugin, "who hands out devices: device-plugin, or dra for "+
		"fabrics and pods with ResourceClaims; with --cluster the Fabrics say it")
	f.BoolVar(&g.Pod, "pod", false, "claim: also a pod with it")
	f.IntVar(&g.Rails, "rails", 0, "claims: rails of a pod (default: all of a node)")
	f.BoolVar(&g.PerRail, "per-rail", false, "claims: a request for each rail, by its number, instead of a count")
	f.IntVar(&g.MinRate, "min-rate", 0, "claims: only rails with at least so many Gb/s")
	f.StringVar(&g.GPUClass, "gpu-class", "", "claims: with each rail GPUs of this DeviceClass on the same PCIe root, "+
		"such as gpu.nvidia.com")
	f.BoolVar(&g.Shared, "shared", false,
		"device-plugin: for the RDMA shared device plugin (verbs only, shared RDMA mode)")
}

// The values of --allocation.
const (
	devicePlugin = "device-plugin"
	dra          = "dra"
)

// checkClaim checks the flags of ResourceClaims.
func (g *generation) checkClaim(kind string, f *pflag.FlagSet) error {
	g.DRA = g.allocation == dra || kind == "claim"
	if err := oneOf("allocation", g.allocation, devicePlugin, dra); err != nil {
		return err
	}
	chosen := f.Changed("allocation")
	switch {
	case kind == "claim" && chosen && g.allocation != dra:
		return fmt.Errorf("%w: --allocation %s: claims are for dra", errUsage, g.allocation)
	case chosen && g.from.cluster && generate.IsWorkload(kind):
		return fmt.Errorf("%w: --allocation %s: with --cluster the Fabrics say it (spec.allocation)", errUsage,
			g.allocation)
	case g.DRA && (kind == "nad" || kind == "device-plugin"):
		return fmt.Errorf("%w: --allocation dra: the devices of %s are those of a device plugin; want fabric, claim "+
			"or a workload", errUsage, kind)
	case g.DRA && f.Changed("resource-prefix"):
		return fmt.Errorf("%w: --resource-prefix %.253q: pods with ResourceClaims ask for no resource", errUsage,
			g.Prefix)
	case g.DRA && g.VFs:
		return fmt.Errorf("%w: --vfs and --allocation dra exclude each other: claims are for whole ports", errUsage)
	case g.Rails < 0 || g.Rails > generate.MaxDevices:
		return fmt.Errorf("%w: --rails %d: want 1 to %d, or 0 for all", errUsage, g.Rails, generate.MaxDevices)
	case g.MinRate < 0 || g.MinRate > maxRate:
		return fmt.Errorf("%w: --min-rate %d: want 1 to %d Gb/s, or 0 for any", errUsage, g.MinRate, maxRate)
	case f.Changed("gpu-class"):
		return domainRule.check("gpu-class", g.GPUClass)
	}
	return nil
}

// maxRate is more than any port has, in Gb/s.
const maxRate = 100_000

// check checks the flags for a kind of output, and parses the addresses.
func (g *generation) check(kind string) (err error) {
	if !slices.Contains(generate.Kinds, kind) {
		return fmt.Errorf("%w: kind %q: want one of %s", errUsage, kind, strings.Join(generate.Kinds, ", "))
	}
	err = errors.Join(labelRule.check("namespace", g.Namespace), workloadRule.check("name", g.Name),
		imageRule.check("image", g.Image), domainRule.check("resource-prefix", g.Prefix))
	if err != nil {
		return err
	}
	switch {
	case g.VFs && g.Shared:
		return fmt.Errorf("%w: --vfs and --shared exclude each other", errUsage)
	case g.VFs && (g.from.cluster || kind == "fabric"):
		return fmt.Errorf("%w: --vfs is for networks and resources of another device plugin: give recordings, and "+
			"generate nad and device-plugin", errUsage)
	case g.from.cluster && (kind == "nad" || kind == "device-plugin"):
		return fmt.Errorf("%w: in a cluster with fabric-agent the controller publishes the networks of Fabrics, and "+
			"the agents offer the devices: generate fabric --cluster; for another device plugin generate %s from "+
			"recordings",
			errUsage, kind)
	}
	if g.Range, err = prefixOf("range", g.pool); err != nil {
		return err
	}
	for _, e := range g.excluded {
		p, err := prefixOf("exclude", e)
		if err != nil {
			return err
		}
		g.Exclude = append(g.Exclude, p)
	}
	if g.Workers < 1 || slices.Contains([]string{"pytorchjob", "perftest-pods"}, kind) && g.Workers < 2 {
		return fmt.Errorf("%w: --workers %d: want 1 at least, for perftest-pods and a pytorchjob 2 (a master and a "+
			"worker)", errUsage, g.Workers)
	}
	return nil
}
