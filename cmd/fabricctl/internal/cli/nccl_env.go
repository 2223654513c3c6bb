package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/nccl"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

func ncclEnvCommand(a *app) *cobra.Command {
	pod := podRef{machine: &a.machine}
	var format string
	c := &cobra.Command{
		Use:   "nccl-env",
		Short: "Print the environment for NCCL, UCX, NVSHMEM, Gloo and Open MPI, with a reason per line",
		Long: `nccl-env computes the variables from this machine or container: ports in rail order, a GID index only
where needed. Exit status 3 if there is no usable port.`,
		Example: `  eval "$(fabricctl nccl-env)"
  fabricctl nccl-env -o nccl.conf >/etc/nccl.conf`,
		Args: argsBetween(0, 0),
		RunE: func(*cobra.Command, []string) error {
			if err := oneOf("output", &format, append(nccl.Formats, "json", "yaml")...); err != nil {
				return err
			}
			p, err := pod.collect()
			if err != nil {
				return err
			}
			vars, notes := nccl.Choose(p.PodView()).Env()
			return printVars(&a.console, format, vars, notes)
		},
	}
	pod.flags(c)
	c.Flags().StringVarP(&format, "output", "o", "export", strings.Join(nccl.Formats, ", ")+", json or yaml")
	return c
}

func printVars(out *console, format string, vars []nccl.Var, notes []string) error {
	if format == "json" || format == "yaml" {
		if err := out.structured(format, ncclEnvironment{vars, notes}); err != nil {
			return err
		}
	} else {
		out.stdout.Printf("%s", quote.Raw(nccl.Print(format, vars, notes)))
	}
	if len(vars) == 0 {
		return errFinding
	}
	return nil
}
