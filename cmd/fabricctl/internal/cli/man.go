package cli

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand writes the manual pages.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages of every command to a directory",
		Args:  argsBetween(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:filemode // manual pages are for everybody
				return fmt.Errorf("man: %w", err)
			}
			date := time.Unix(0, 0) // the same pages for the same program
			cmd.Root().DisableAutoGenTag = true
			return doc.GenManTree(
				cmd.Root(),
				&doc.GenManHeader{Section: "1", Source: "fabric-cni", Manual: "fabric-cni", Date: &date},
				args[0],
			)
		},
	}
}
