package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/subnet"
)

func generateTopologyCommand(a *app) *cobra.Command {
	s := &cabling{app: a}
	o := subnet.LabelOptions{}
	c := &cobra.Command{
		Use:   "topology [-f FILE...] [RECORDING...]",
		Short: "Write labels of nodes and a Kueue Topology, by which schedulers keep the pods of a job near each other",
		Long: `generate topology writes the place of each node in the fabric: the labels fabric.dev/leaf,
fabric.dev/spine and fabric.dev/core, and fabric.topograph.run/tier-N as NVIDIA topograph writes them, tier 0 nearest.
Nodes whose rails are on the same leaves have one value of the lowest tier. Values are names of switches, or GUIDs
where names are not valid labels; they stay the same between runs. For FILE see fabricctl topology --help.

-o shell prints kubectl commands for nodes that exist. -o yaml prints manifests for kubectl apply --server-side and
requires --cluster, because applying them would create nodes that do not exist.`,
		Example: `  fabricctl generate topology -f fabric.txt | sh
  fabricctl generate topology -f fabric.txt --cluster -o yaml --kueue v1beta2
  fabricctl generate topology -f fabric.txt --labels topograph --kueue none`,
		Args: argsBetween(0, 10000),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.checkLabels(&o); err != nil {
				return err
			}
			t, err := s.topology(cmd.Context(), args)
			if err != nil {
				return err
			}
			text, err := t.Labels(o)
			if err != nil {
				s.from.warn(&a.console) // what was left out may be the cause
				return fmt.Errorf("generate topology: %w", err)
			}
			if err := a.stdout.Document([]byte(text)); err != nil {
				return err
			}
			return s.from.leftOut(&a.console)
		},
	}
	s.flags(c)
	f := c.Flags()
	f.StringSliceVar(&o.Families, "labels", []string{"fabric", "topograph"}, "fabric (fabric.dev/leaf), topograph "+
		"(fabric.topograph.run/tier-0), nvidia (network.topology.nvidia.com/leaf, topograph before 1.0); Kueue gets "+
		"the first")
	f.StringVar(&o.Kueue, "kueue", "v1beta1", "version of kueue.x-k8s.io for the Topology: v1beta1, v1beta2 or none")
	f.StringVar(&o.Name, "name", "fabric", "name of the Topology")
	f.StringVarP(&o.Format, "output", "o", "shell", "shell or yaml")
	return c
}

// checkLabels checks the flags.
func (s *cabling) checkLabels(o *subnet.LabelOptions) error {
	if err := oneOf("output", &o.Format, "shell", "yaml"); err != nil {
		return err
	}
	if err := oneOf("kueue", &o.Kueue, "v1beta1", "v1beta2", "none"); err != nil {
		return err
	}
	if o.Format == "yaml" && !s.from.cluster {
		return fmt.Errorf(
			"%w: --output yaml: want --cluster with it: what is applied creates nodes that do not exist, and "+
				"only the cluster knows their names; --output shell labels nodes that exist",
			errUsage,
		)
	}
	if o.Kueue == "none" {
		o.Kueue = ""
	}
	known := slices.Sorted(maps.Keys(subnet.LabelKeys))
	if len(o.Families) == 0 {
		return fmt.Errorf("%w: --labels: want some of %s", errUsage, strings.Join(known, ", "))
	}
	for i := range o.Families {
		if err := oneOf("labels", &o.Families[i], known...); err != nil {
			return err
		}
		l := o.Families[i]
		if slices.Contains(o.Families[:i], l) {
			return fmt.Errorf("%w: --labels %s: it is there twice", errUsage, l)
		}
	}
	return labelRule.check("name", o.Name)
}
