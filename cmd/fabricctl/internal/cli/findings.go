package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/internal/doctor"
)

// findingFormats are how findings can be printed: text is for reading, one line each is for grep and awk.
var findingFormats = []string{"text", "table", "wide", "json", "yaml"}

func findingFlags(c *cobra.Command, format *string, all *bool) {
	c.Flags().StringVarP(format, "output", "o", "text", "text, table, wide, json or yaml")
	c.Flags().BoolVar(all, "all", false, "also what is in order")
}

var findingColours = map[doctor.Status]string{doctor.OK: good, doctor.Warn: warn, doctor.Fail: bad}

// findings prints what was found. Something that fails makes the exit status 3.
func (a *app) findings(list []doctor.Finding, format string, all bool) error {
	doctor.Sort(list)
	switch format {
	case "text":
		a.findingText(list, all)
	case "table", "wide":
		a.findingTable(list, format == "wide", all)
	default:
		if err := a.structured(format, list); err != nil {
			return err
		}
	}
	if doctor.Worst(list) == doctor.Fail {
		return errFinding
	}
	return nil
}

func (a *app) findingText(list []doctor.Finding, all bool) {
	count := map[doctor.Status]int{}
	for _, f := range list {
		count[f.Status]++
		if f.Status == doctor.OK && !all {
			continue
		}
		fmt.Fprintf(
			a.stdout,
			"%s  %s  %s\n",
			a.coloured(findingColours[f.Status], fmt.Sprintf("%-4s", f.Status)),
			f.ID,
			f.Evidence,
		)
		if f.Cause != "" {
			fmt.Fprintf(a.stdout, "      cause: %s\n      cure:  %s\n      docs:  %s\n", f.Cause, f.Cure, f.Docs)
		}
	}
	fmt.Fprintf(
		a.stdout,
		"%d in order, %d to look at, %d wrong\n",
		count[doctor.OK],
		count[doctor.Warn],
		count[doctor.Fail],
	)
}

func (a *app) findingTable(list []doctor.Finding, wide, all bool) {
	t := newTable("STATUS", "ID", "EVIDENCE")
	if wide {
		t.header = append(t.header, "CAUSE", "CURE", "DOCS")
	}
	for _, f := range list {
		if f.Status == doctor.OK && !all {
			continue
		}
		row := []any{cell{string(f.Status), findingColours[f.Status]}, f.ID, f.Evidence}
		if wide {
			row = append(row, f.Cause, f.Cure, f.Docs)
		}
		t.add(row...)
	}
	t.print(a.stdout, a.terminal)
}
