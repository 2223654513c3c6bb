package main

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/golden"
)

const page = "../../docs/reference/fabric-agent.md"

const head = `# fabric-agent: commands and flags

What each command prints with -h, on one page, written by make generate. How the manifests use the commands:
[install.md](../install.md). Exit codes: [signals.md](signals.md#error-codes-and-exit-codes).

`

var (
	aCommand = regexp.MustCompile(`(?m)^  ([a-z]+)  `)
	aFlag    = regexp.MustCompile(`(?m)^  -(\S+)(?: (\S+))?\n    \t(.*?)(?: \(default (.*)\))?$`)
)

// TestReference compares docs/reference/fabric-agent.md with what the commands print of themselves; -update writes it.
func TestReference(t *testing.T) {
	usage := help(t)
	var tables []string
	commands := map[string][]string{} // by the table of their flags
	for _, m := range aCommand.FindAllStringSubmatch(usage, -1) {
		table := flagTable(help(t, m[1], "-h"))
		if commands[table] == nil {
			tables = append(tables, table)
		}
		commands[table] = append(commands[table], m[1])
	}
	if len(tables) < 4 {
		t.Fatalf("%d tables of flags: does the usage text look different?", len(tables))
	}
	var b strings.Builder
	b.WriteString(head + "```\n" + usage + "```\n")
	for _, table := range tables {
		fmt.Fprintf(&b, "\n## %s\n\n", strings.Join(commands[table], ", "))
		if len(commands[table]) > 1 {
			b.WriteString("All of them take these flags; each command uses those that concern it.\n\n")
		}
		b.WriteString("| flag | default | |\n|---|---|---|\n" + table)
	}
	golden.Check(t, page, b.String())
}

// help is what a command prints of itself.
func help(t *testing.T, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	if err := run(t.Context(), args, io.Discard, &stderr); err != nil && len(args) > 0 {
		t.Fatalf("fabric-agent %s: %v", strings.Join(args, " "), err)
	}
	return stderr.String()
}

// flagTable has a row for each flag of a help text.
func flagTable(help string) string {
	var b strings.Builder
	for _, m := range aFlag.FindAllStringSubmatch(help, -1) {
		name, preset := strings.TrimSpace("--"+m[1]+" "+m[2]), strings.Trim(m[4], `"`)
		if preset != "" && !slices.Contains([]string{"false", "0s"}, preset) {
			preset = "`" + preset + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, preset, strings.ReplaceAll(m[3], "|", `\|`))
	}
	return b.String()
}
