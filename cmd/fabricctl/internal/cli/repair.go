package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) repair() *cobra.Command {
	var dry bool
	var plugin, format string
	c := &cobra.Command{
		Use:   "repair",
		Short: "Return what pods that are gone have left behind",
		Long: `repair runs the plugin's DEL for every attachment whose pod's network namespace is gone, or that is
from before the last boot: devices return to the host with their names, addresses and routes, and IPAM addresses are
released. It never touches an attachment whose pod is alive or whose ADD is running.

Exit status 3 if something could not be returned; you can run it again safely.`,
		Example: "  fabricctl repair --dry-run",
		Args:    argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("output", &format, "text", "json", "yaml"); err != nil {
				return err
			}
			if err := a.running("repair"); err != nil {
				return err
			}
			list, err := a.attachments()
			if err != nil && len(list) == 0 {
				return err
			}
			if err != nil {
				a.stderr.Println("warning:", strings.ReplaceAll(err.Error(), "\n", "; "))
			}
			report := repairReport{DryRun: dry}
			for _, l := range list {
				if l.State == stateDead || l.State == stateBefore {
					r := a.returned(cmd.Context(), &l, plugin, dry, format == "text")
					report.Repairs = append(report.Repairs, r)
					if r.Result == resultFailed {
						err = errors.Join(err, errFinding)
					}
				}
			}
			if format != "text" {
				if perr := a.structured(format, report); perr != nil {
					return perr
				}
			} else if len(report.Repairs) == 0 {
				a.stdout.Println("nothing to repair")
			}
			if err != nil {
				return errFinding
			}
			return nil
		},
	}
	c.Flags().StringVarP(&format, "output", "o", "text", "text, json or yaml")
	c.Flags().BoolVar(&dry, "dry-run", false, "only say what would be done")
	c.Flags().StringVar(
		&plugin,
		"plugin",
		"",
		"the CNI plugin (default: fabric in the directories of the attachment's CNI_PATH, then /opt/cni/bin)",
	)
	return c
}

// repairReport is what repair prints.
type repairReport struct {
	DryRun  bool       `json:"dryRun"`
	Repairs []repaired `json:"repairs"`
}

// repaired is an attachment of a pod that is gone, and what became of it.
type repaired struct {
	Attachment attached `json:"attachment"` // as it was before
	Result     string   `json:"result"`     // returned, failed, or pending with --dry-run
	Error      string   `json:"error,omitempty"`
}

// Results of a repair.
const (
	resultReturned = "returned"
	resultFailed   = "failed"
	resultPending  = "pending"
)

// returned returns what an attachment has left, and prints it if say is set.
func (a *app) returned(ctx context.Context, l *attached, plugin string, dry, say bool) repaired {
	out := repaired{Attachment: *l, Result: resultPending}
	what := fmt.Sprintf("%s of %s (network %s, device %s, %s)", l.IfName, l.who(), l.Network, l.Device, l.State)
	said := "would give back"
	if !dry {
		said, out.Result = "gave back", resultReturned
		if err := a.del(ctx, plugin, l.entry); err != nil {
			out.Result, out.Error = resultFailed, err.Error()
			a.stderr.Printf("could not give back %s: %v\n", what, err)
			return out
		}
	}
	if say {
		a.stdout.Println(said, what)
	}
	return out
}
