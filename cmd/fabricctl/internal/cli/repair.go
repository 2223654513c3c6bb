package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) repair() *cobra.Command {
	var dry bool
	var plugin string
	c := &cobra.Command{
		Use:   "repair",
		Short: "Return what pods that are gone have left behind",
		Long: `repair calls the plugin's own DEL for every attachment whose pod's network namespace is gone, or that
is from before the last boot: devices come back to the host with their names, addresses and routes, and IPAM gets
its addresses back. It never touches an attachment whose pod is alive, nor one whose ADD is at work.

Exit status 3 means that something could not be returned; calling it again is harmless.`,
		Example: "  fabricctl repair --dry-run",
		Args:    argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
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
			n, failed := 0, 0
			for _, l := range list {
				if l.State != stateDead && l.State != stateBefore {
					continue
				}
				n++
				what := fmt.Sprintf(
					"%s of %s (network %s, device %s, %s)",
					l.IfName,
					l.who(),
					l.Network,
					l.Device,
					l.State,
				)
				if dry {
					a.stdout.Println("would give back", what)
					continue
				}
				if derr := del(cmd.Context(), plugin, l.entry); derr != nil {
					failed++
					a.stderr.Printf("could not give back %s: %v\n", what, derr)
					continue
				}
				a.stdout.Println("gave back", what)
			}
			if n == 0 {
				a.stdout.Println("nothing to repair")
			}
			if failed > 0 || err != nil {
				return errFinding
			}
			return nil
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "only say what would be done")
	c.Flags().StringVar(
		&plugin,
		"plugin",
		"",
		"the CNI plugin (default: fabric in the directories of the attachment's CNI_PATH, then /opt/cni/bin)",
	)
	return c
}
