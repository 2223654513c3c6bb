package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
)

func doctorCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Find what is wrong with a host, a pod or the cluster, and explain messages",
		Args:  argsBetween(0, 0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(doctorHostCommand(a), doctorPodCommand(a), doctorJobCommand(a),
		doctorClusterCommand(a), doctorExplainCommand(a))
	return c
}

// findings prints what a check of doctor found. Each of its commands has the same flags for that.
type findings struct {
	*console
	format string
	all    bool
	strict bool
}

var findingColours = map[doctor.Status]string{doctor.OK: good, doctor.Warn: warn, doctor.Fail: bad}

func (f *findings) flags(c *cobra.Command) {
	c.Flags().StringVarP(&f.format, "output", "o", "text", "text, table, wide, json or yaml")
	c.Flags().BoolVar(&f.all, "all", false, "also what is in order")
	c.Flags().BoolVar(&f.strict, "strict", false, "exit status 3 for a WARN, too")
}

// check checks the flags. The format text is for reading, table and wide are for grep and awk.
func (f *findings) check() error {
	return oneOf("output", &f.format, "text", "table", "wide", "json", "yaml")
}

// print prints the findings, worst first. A failure makes the exit status 3.
func (f *findings) print(list []doctor.Finding) error {
	doctor.Sort(list)
	switch f.format {
	case "text":
		f.text(list)
	case "table", "wide":
		f.table(list, f.format == "wide")
	default:
		if err := f.structured(f.format, findingList{list}); err != nil {
			return err
		}
	}
	return f.verdict(list)
}

// verdict makes the exit status.
func (f *findings) verdict(list []doctor.Finding) error {
	worst := doctor.Worst(list)
	if worst == doctor.Fail || f.strict && worst == doctor.Warn {
		return errFinding
	}
	return nil
}

func (f *findings) text(list []doctor.Finding) {
	count := map[doctor.Status]int{}
	for _, i := range list {
		count[i.Status]++
		if i.Status == doctor.OK && !f.all {
			continue
		}
		status := f.coloured(findingColours[i.Status], fmt.Sprintf("%-4s", i.Status))
		f.stdout.Printf("%s  %s  %s\n", status, i.ID, i.Evidence)
		if i.Cause != "" {
			f.stdout.Printf("      cause: %s\n      cure:  %s\n      docs:  %s\n", i.Cause, i.Cure, i.Docs)
		}
	}
	f.stdout.Printf("%d in order, %d to look at, %d wrong\n", count[doctor.OK], count[doctor.Warn], count[doctor.Fail])
}

func (f *findings) table(list []doctor.Finding, wide bool) {
	t := newTable("STATUS", "ID", "EVIDENCE")
	if wide {
		t.header = append(t.header, "CAUSE", "CURE", "DOCS")
	}
	for _, i := range list {
		if i.Status == doctor.OK && !f.all {
			continue
		}
		row := []any{cell{string(i.Status), findingColours[i.Status]}, i.ID, i.Evidence}
		if wide {
			row = append(row, i.Cause, i.Cure, i.Docs)
		}
		t.add(row...)
	}
	t.print(f.console)
}
