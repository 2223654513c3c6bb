package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/internal/doctor"
)

// maxLog is how much of a log on standard input is read, in bytes.
const maxLog = 64 << 20

func doctorExplainCommand(a *app) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "explain [LOG LINE...]",
		Short: "Say what a message of NCCL, verbs, perftest, Open MPI, Multus, whereabouts or fabric means",
		Long: `doctor explain names cause and cure of the messages it knows, in the line given or in a log on standard
input. Exit status 3 if it knows none of them.`,
		Example: `  fabricctl doctor explain "Couldn't allocate MR"
  kubectl logs train-0 | fabricctl doctor explain`,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := oneOf("output", format, "text", "json", "yaml"); err != nil {
				return err
			}
			log := strings.Join(args, " ")
			if log == "" || log == "-" {
				b, err := io.ReadAll(io.LimitReader(a.stdin, maxLog))
				if err != nil {
					return fmt.Errorf("read standard input: %w", err)
				}
				log = string(b)
			}
			return explain(&a.console, doctor.Explain(log), format)
		},
	}
	c.Flags().StringVarP(&format, "output", "o", "text", "text, json or yaml")
	return c
}

func explain(out *console, list []doctor.Explanation, format string) error {
	if format != "text" {
		if err := out.structured(format, explanationList{list}); err != nil {
			return err
		}
	} else {
		for _, e := range list {
			out.stdout.Printf("%s\n  %s (%s)\n  cause: %s\n  cure:  %s\n  docs:  %s\n\n",
				e.Line, out.coloured(warn, e.Title), e.ID, e.Cause, e.Cure, e.Docs)
		}
	}
	if len(list) == 0 {
		out.stderr.Println("no message in it that is known here; docs/doctor.md has the list")
		return errFinding
	}
	return nil
}
