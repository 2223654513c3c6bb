package cli

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/internal/doctor"
)

func doctorCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Find what is wrong with a host, a pod or the cluster, and explain messages",
		Args:  argsBetween(0, 0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	a.languageFlag(c)
	c.AddCommand(doctorHostCommand(a), doctorPodCommand(a), doctorJobCommand(a),
		doctorClusterCommand(a), doctorExplainCommand(a))
	return c
}

// languageFlag is for a command that prints findings, and those below it.
func (a *app) languageFlag(c *cobra.Command) {
	lang := string(doctor.English)
	c.PersistentFlags().StringVar(&a.lang, "lang", lang, "language of titles, causes and cures: en or zh (Chinese); "+
		"the default is that of the variable FABRICCTL_LANG")
	if a.getenv != nil {
		a.lang = cmp.Or(a.getenv("FABRICCTL_LANG"), lang)
	}
}

// language is that of titles, causes and cures.
func (c *console) language() (doctor.Lang, error) {
	l := doctor.Lang(c.lang)
	if slices.Contains(doctor.Langs, l) {
		return l, nil
	}
	return l, fmt.Errorf("%w: --lang or FABRICCTL_LANG %q: want one of en, zh", errUsage, c.lang)
}

// findings prints what a check of doctor found. Each of its commands has the same flags for that.
type findings struct {
	*console
	format string
	all    bool
}

var findingColours = map[doctor.Status]string{doctor.OK: good, doctor.Warn: warn, doctor.Fail: bad}

func (f *findings) flags(c *cobra.Command) {
	c.Flags().StringVarP(&f.format, "output", "o", "text", "text, table, wide, json or yaml")
	c.Flags().BoolVar(&f.all, "all", false, "also what is in order")
}

// check checks the flags. The format text is for reading, table and wide are for grep and awk.
func (f *findings) check() error {
	if _, err := f.language(); err != nil {
		return err
	}
	return oneOf("output", f.format, "text", "table", "wide", "json", "yaml")
}

// print prints the findings, worst first. A failure makes the exit status 3.
func (f *findings) print(list []doctor.Finding) error {
	doctor.Sort(list)
	lang, err := f.language()
	if err != nil {
		return err
	}
	list = lang.Findings(list)
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
	if doctor.Worst(list) == doctor.Fail {
		return errFinding
	}
	return nil
}

// label is what the program itself says around titles, causes and cures.
type label struct{ title, cause, cure, docs, counts, example, seen, line, lines, to string }

var labels = map[doctor.Lang]label{
	doctor.English: {"", "cause: ", "cure:  ", "docs:  ", "%d in order, %d to look at, %d wrong\n",
		"as:    ", "seen:  ", "line %d", "; %d lines", " to %s"},
	doctor.Chinese: {"检查：", "原因：", "处理：", "文档：", "%d 项正常，%d 项需要留意，%d 项有错\n",
		"消息：", "位置：", "第 %d 行", "；共 %d 行", " 到 %s"},
}

func (f *findings) text(list []doctor.Finding) {
	lang, _ := f.language() // check has looked at it
	words := labels[lang]
	count := map[doctor.Status]int{}
	for _, i := range list {
		count[i.Status]++
		if i.Status == doctor.OK && !f.all {
			continue
		}
		status := f.coloured(findingColours[i.Status], fmt.Sprintf("%-4s", i.Status))
		f.stdout.Printf("%s  %s  %s\n", status, i.ID, i.Evidence)
		if words.title != "" {
			f.stdout.Printf("      %s%s\n", words.title, i.Title)
		}
		if i.Cause != "" {
			f.stdout.Printf("      %s%s\n      %s%s\n      %s%s\n",
				words.cause, i.Cause, words.cure, i.Cure, words.docs, i.Docs)
		}
	}
	f.stdout.Printf(words.counts, count[doctor.OK], count[doctor.Warn], count[doctor.Fail])
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
