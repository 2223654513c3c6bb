package cli

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fabric-cni/fabric-cni/internal/testkit/golden"
)

const referenceHead = "# fabricctl: commands and flags\n\n" +
	"What `fabricctl COMMAND --help` prints, on one page, written by `make generate`. What you do with these\n" +
	"commands, sample output, and how results are judged: [fabricctl.md](../fabricctl.md).\n\n"

// TestReference compares docs/reference/fabricctl.md with the commands; -update writes it.
func TestReference(t *testing.T) {
	root := (&app{version: "dev"}).command()
	var all []*cobra.Command
	for _, c := range root.Commands() {
		all = appendCommands(all, c)
	}
	var b strings.Builder
	b.WriteString(referenceHead)
	b.WriteString(prose(root.Long) + "\n\n| command | |\n|---|---|\n")
	for _, c := range all {
		title := titleOf(c)
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", title, strings.ReplaceAll(title, " ", "-"), cellOf(c.Short))
	}
	b.WriteString("\n## Flags of every command\n\n" + flagTable(root.PersistentFlags()))
	for _, c := range all {
		writeCommand(&b, c)
	}
	golden.Check(t, filepath.Join(moduleRoot, "docs/reference/fabricctl.md"), b.String())
}

// appendCommands adds a command and those below it, but for hidden ones.
func appendCommands(all []*cobra.Command, c *cobra.Command) []*cobra.Command {
	if !c.IsAvailableCommand() {
		return all
	}
	all = append(all, c)
	for _, sub := range c.Commands() {
		all = appendCommands(all, sub)
	}
	return all
}

func titleOf(c *cobra.Command) string { return strings.TrimPrefix(c.CommandPath(), "fabricctl ") }

func writeCommand(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n%s.\n", titleOf(c), prose(c.Short))
	if c.Runnable() {
		fmt.Fprintf(b, "\n```\n%s\n```\n", c.UseLine())
	}
	if c.Long != "" {
		fmt.Fprintf(b, "\n%s\n", prose(c.Long))
	}
	if c.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n\n```\n%s\n```\n", dedent(c.Example))
	}
	if flags := flagTable(c.NonInheritedFlags()); flags != "" {
		fmt.Fprintf(b, "\n%s", flags)
	}
}

// flagTable is a table of flags; without one it is empty.
func flagTable(flags *pflag.FlagSet) string {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		if b.Len() == 0 {
			b.WriteString("| flag | default | |\n|---|---|---|\n")
		}
		value, text := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if f.NoOptDefVal == "" {
			name += " " + value
		}
		preset := ""
		if !slices.Contains([]string{"", "false", "0", "0s", "[]"}, f.DefValue) {
			preset = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, preset, cellOf(text))
	})
	return b.String()
}

// prose is a help text as Markdown: no character of it is markup, and paragraphs that are indented are code.
func prose(text string) string {
	paragraphs := strings.Split(strings.Trim(text, "\n"), "\n\n")
	for i, p := range paragraphs {
		if strings.HasPrefix(p, "  ") {
			paragraphs[i] = "```\n" + dedent(p) + "\n```"
			continue
		}
		paragraphs[i] = strings.NewReplacer("<", `\<`, "*", `\*`).Replace(p)
	}
	return strings.Join(paragraphs, "\n\n")
}

// dedent takes the spaces before the first line of a text from all of its lines.
func dedent(text string) string {
	text = strings.TrimRight(text, "\n")
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	return strings.ReplaceAll(strings.TrimPrefix(text, indent), "\n"+indent, "\n")
}

func cellOf(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(prose(text), "\n", " "), "|", `\|`)
}
