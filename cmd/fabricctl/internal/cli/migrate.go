package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/migrate"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// migration is the flags of migrate.
type migration struct {
	migrate.Options
	from  sources
	files []string
}

func migrateCommand(a *app) *cobra.Command {
	m := &migration{}
	c := &cobra.Command{
		Use:   "migrate [RECORDING...]",
		Short: "Turn objects of NVIDIA's network operator and the SR-IOV network operator into those of fabric-cni",
		Long: `migrate reads NicClusterPolicy, NicNodePolicy, HostDeviceNetwork, IPoIBNetwork, MacvlanNetwork,
SriovNetwork and SriovIBNetwork, and writes their replacements; comments explain each field:

  --to fabric  Fabrics, whose devices fabric-agent offers; networks where the devices are virtual functions
  --to nad     NetworkAttachmentDefinitions of the same names and resources: no pod and no device plugin changes

Device plugins select by vendor, device ID and driver, which Fabrics do not; recordings of the nodes (discover
--record) provide the devices. Lines with CHECK need a decision. It changes nothing in the cluster.

Exit status 3 if there is something to check.`,
		Example: `  fabricctl migrate -f operator.yaml gpu-*.tar.gz >fabrics.yaml
  fabricctl migrate --cluster --to nad
  kubectl get hostdevicenetworks,nicclusterpolicies -o json | fabricctl migrate -f -`,
		Args: argsBetween(0, 10000),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := errors.Join(oneOf("to", &m.To, migrate.ToFabric, migrate.ToNAD),
				domainRule.check("resource-prefix", m.Prefix))
			if err != nil {
				return err
			}
			m.from.machine, m.from.recordings = a.machine, args
			m.from.place.settle(&a.machine, len(m.files) > 0)
			if m.from.cluster == (len(m.files) > 0) {
				return fmt.Errorf("%w: give the objects with -f FILE (- for standard input), or --cluster", errUsage)
			}
			return m.run(cmd.Context(), a)
		},
	}
	c.Flags().StringSliceVarP(&m.files, "filename", "f", nil,
		"files with the objects, YAML or JSON; - for standard input")
	m.from.flags(c, "read the objects, and the nodes if fabric-agent runs, from the cluster",
		"read them from files (-f), and nodes from recordings")
	c.Flags().StringVar(&m.To, "to", migrate.ToFabric, "fabric, or nad: keep today's device plugin")
	c.Flags().StringVar(&m.Prefix, "resource-prefix", "nvidia.com",
		"prefix of the resources of the SR-IOV network operator: openshift.io unless NVIDIA's chart has installed it")
	return c
}

func (m *migration) run(ctx context.Context, a *app) error {
	list, err := m.objects(ctx, &a.console)
	if err != nil {
		return err
	}
	if m.Nodes, err = m.nodes(ctx); err != nil {
		return err
	}
	out, err := migrate.Convert(list, m.Options)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	text, err := migrate.Text(out, m.steps(list))
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := a.stdout.Document([]byte(text)); err != nil {
		return err
	}
	if err := m.from.leftOut(&a.console); err != nil {
		return err
	}
	if slices.ContainsFunc(out, func(o migrate.Output) bool { return len(o.Doubts) > 0 }) {
		return errFinding
	}
	return nil
}

// objects reads the objects of the operators.
func (m *migration) objects(ctx context.Context, c *console) (out []migrate.Object, err error) {
	if m.from.cluster {
		return clusterObjects(ctx, m.from.kube)
	}
	for _, name := range m.files {
		f, err := c.open(name)
		if err != nil {
			return nil, fmt.Errorf("-f: %w", err)
		}
		list, err := migrate.Read(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("-f %s: %w", name, err)
		}
		out = append(out, list...)
	}
	return out, nil
}

// operatorKinds are the resources that are asked for. A cluster has those of the operators that it runs.
var operatorKinds = []cluster.Resource{
	cluster.NicClusterPolicies, cluster.NicNodePolicies, {Group: "mellanox.com", Resource: "hostdevicenetworks"},
	{Group: "mellanox.com", Resource: "ipoibnetworks"}, {Group: "mellanox.com", Resource: "macvlannetworks"},
	{Group: "sriovnetwork.openshift.io", Resource: "sriovnetworks"},
	{Group: "sriovnetwork.openshift.io", Resource: "sriovibnetworks"},
	{Group: "sriovnetwork.openshift.io", Resource: "sriovnetworknodepolicies"},
	{Group: "nv-ipam.nvidia.com", Resource: "ippools"}, {Group: "nv-ipam.nvidia.com", Resource: "cidrpools"},
}

func clusterObjects(ctx context.Context, kube *cluster.Cluster) (out []migrate.Object, err error) {
	for _, of := range operatorKinds {
		asked := cluster.Each(ctx, kube, cluster.List{Of: of}, func(o *map[string]any, unread error) {
			if unread != nil || err != nil {
				err = errors.Join(err, unread)
				return
			}
			out, err = migrate.Add(out, *o)
		})
		if asked != nil && !errors.Is(asked, cluster.ErrNotServed) {
			return nil, fmt.Errorf("--cluster: %w", asked)
		}
	}
	return out, err
}

// nodes reads the nodes, as far as they are known.
func (m *migration) nodes(ctx context.Context) ([]*node.Node, error) {
	if !m.from.cluster {
		if len(m.from.recordings) == 0 && m.from.root == "/" {
			return nil, nil
		}
		return m.from.nodes(ctx)
	}
	if len(m.from.recordings) > 0 {
		return m.from.recorded()
	}
	nodes, err := m.from.clusterNodes(ctx)
	if err != nil {
		return nil, nil //nolint:nilerr // no agent runs, no FabricNodes: the output says what is missing
	}
	return nodes, nil
}

// steps says in which order things are done, so that no device is offered twice and no address given twice.
func (m *migration) steps(list []migrate.Object) (out []string) {
	out = []string{"fabricctl migrate has changed nothing. In this order, a network at a time:"}
	var old []string
	for _, o := range list {
		if strings.HasSuffix(o.Kind, "Network") && o.Kind != "MacvlanNetwork" {
			old = append(old, strings.ToLower(o.Kind)+"/"+o.Name)
		}
	}
	if len(old) > 8 {
		old = append(old[:8:8], "...")
	}
	out = append(out, "1. end the pods of the network",
		"2. kubectl delete "+strings.Join(old, " ")+" (its operator would take the network back otherwise)")
	if m.To == migrate.ToFabric {
		out = append(out,
			"3. remove the resource from the policy of its device plugin, and wait until no node offers it",
			"4. apply this; kubectl wait --for=condition=Ready fabric/NAME", "5. start the pods with the new resource")
	} else {
		out = append(out, "3. apply this", "4. start the pods as they are")
	}
	return append(out, "CHECK marks what needs a decision.")
}
