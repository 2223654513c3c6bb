package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
)

func doctorExplainCommand(a *app) *cobra.Command {
	e := explainer{console: &a.console}
	c := &cobra.Command{
		Use:   "explain [ID | LOG LINE...]",
		Short: "Say what a message, a log, or an id of doctor means",
		Long: `doctor explain prints cause and cure of known messages of NCCL, PyTorch, verbs, perftest, UCX, Open
MPI, Multus, whereabouts, kubelet and fabric. It reads the line given, files, or a log of any length on standard
input, and prints for each message its first line, the number of lines, and the first and last time. It understands
colours, prefixes of kubectl, mpirun and torchrun, log files of Docker and CRI, and gzip.

With an id (log-mr, host-mtu, pod-count) it prints the entry of docs/doctor.md; --list prints all ids.

Exit status: 0 no message, or harmless ones only; 1 a log could not be read to its end, and the part before was
explained; 3 a message reports a problem.`,
		Example: `  fabricctl doctor explain "Couldn't allocate MR"
  kubectl logs train-0 | fabricctl doctor explain
  fabricctl doctor explain -f worker-0.log -f worker-1.log.gz -o json
  fabricctl doctor explain log-mr`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := e.check(args); err != nil {
				return err
			}
			return e.run(cmd.Context(), args)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return doctor.IDs(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	c.Flags().StringVarP(&e.format, "output", "o", "text", "text, json or yaml")
	c.Flags().StringArrayVarP(&e.files, "filename", "f", nil, "log to read, several times for several; -: standard "+
		"input")
	c.Flags().BoolVar(&e.list, "list", false, "print all ids with their titles")
	return c
}

// explainer is one run of doctor explain.
type explainer struct {
	*console
	format string
	files  []string
	list   bool
}

// looksLikeID tells an id from a line of a log.
var looksLikeID = regexp.MustCompile(`^(log|host|pod|cluster|job|preflight)-[a-z0-9-]+$`)

func (e *explainer) check(args []string) error {
	if err := oneOf("output", &e.format, "text", "json", "yaml"); err != nil {
		return err
	}
	switch {
	case e.list && len(args)+len(e.files) > 0:
		return fmt.Errorf("%w: --list prints all ids, and takes neither arguments nor --filename", errUsage)
	case len(args) > 0 && len(e.files) > 0:
		return fmt.Errorf("%w: argument %q beside --filename: a line or an id, or files", errUsage, args[0])
	case len(args) == 1 && looksLikeID.MatchString(args[0]) && !slices.Contains(doctor.IDs(), args[0]):
		return fmt.Errorf("%w: argument %q: no id of this name; doctor explain --list prints all", errUsage, args[0])
	}
	return nil
}

func (e *explainer) run(ctx context.Context, args []string) error {
	switch {
	case e.list:
		return e.ids(doctor.IDs())
	case len(args) == 1 && slices.Contains(doctor.IDs(), args[0]):
		return e.ids(args)
	case len(args) > 0 && !slices.Equal(args, []string{"-"}):
		return e.found(doctor.Explain(strings.Join(args, " ")), false)
	}
	scan := doctor.NewScan()
	unread := e.read(ctx, scan)
	if errors.Is(unread, errInterrupted) || unread != nil && scan.Lines == 0 {
		return unread
	}
	err := e.found(scan.Explanations(), true) // what is found in a part of a log is worth knowing
	if unread != nil {
		return unread
	}
	return err
}

// ids prints what is known of ids.
func (e *explainer) ids(ids []string) error {
	list := make([]doctor.Explanation, 0, len(ids))
	for _, id := range ids {
		list = append(list, doctor.ExplainID(id))
	}
	switch {
	case e.format != "text":
		return e.structured(e.format, explanationList{list})
	case e.list:
		for _, x := range list {
			e.stdout.Printf("%-24s %s\n", x.ID, x.Title)
		}
		return nil
	}
	for _, x := range list {
		e.stdout.Printf("%s: %s\n", x.ID, x.Title)
		for _, line := range x.Examples {
			e.stdout.Printf("  as:    %s\n", line)
		}
		e.stdout.Printf("  cause: %s\n  cure:  %s\n  docs:  %s\n", x.Cause, x.Cure, x.Docs)
	}
	return nil
}

// found prints the messages that were found in a log, or in a line.
func (e *explainer) found(list []doctor.Explanation, log bool) error {
	if e.format != "text" {
		if err := e.structured(e.format, explanationList{append([]doctor.Explanation{}, list...)}); err != nil {
			return err
		}
	} else {
		for i := range list {
			x := &list[i]
			colour := warn
			if x.Harmless {
				colour = good
			}
			e.stdout.Printf("%s\n  %s (%s)\n", x.Line, e.coloured(colour, x.Title), x.ID)
			if log {
				e.stdout.Printf("  seen:  %s\n", seen(x))
			}
			e.stdout.Printf("  cause: %s\n  cure:  %s\n  docs:  %s\n\n", x.Cause, x.Cure, x.Docs)
		}
	}
	if len(list) == 0 {
		e.stderr.Println("no message in it that is known here; fabricctl doctor explain --list has all")
		return nil
	}
	if slices.ContainsFunc(list, func(x doctor.Explanation) bool { return !x.Harmless }) {
		return errFinding
	}
	return nil
}

// seen is where and when a message is in a log.
func seen(x *doctor.Explanation) string {
	s := fmt.Sprintf("line %d", x.LineNumber)
	if x.Log != "" {
		s = x.Log + ": " + s
	}
	if x.Count > 1 {
		s += fmt.Sprintf("; %d lines", x.Count)
	}
	switch {
	case x.FirstTime != "" && x.LastTime != "" && x.Count > 1:
		return s + "; " + x.FirstTime + " to " + x.LastTime
	case x.FirstTime+x.LastTime != "":
		return s + "; " + x.FirstTime + x.LastTime[min(len(x.FirstTime), len(x.LastTime)):]
	}
	return s
}
