package cli

import (
	"bytes"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/generate"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// marker begins each hostile text, so that it can be found in what a command prints.
const marker = "zq7"

// hostileTexts are what a device, a pod, a file or a cluster may call itself, each with marker before it.
var hostileTexts = map[string]string{
	"line break":   "\napiVersion: v1\nkind: ClusterRoleBinding\n---\napiVersion: v1\nkind: Secret\n---\n",
	"return":       "\r\n; touch pwned\r\n>pwned #",
	"double quote": `" onload="alert(1)" x="; touch pwned; "`,
	"single quote": `'; touch pwned; '`,
	"backslash":    `\"\'\n\`,
	"escapes":      "\x1b[2J\x1b]0;x\x07\x9b2J\x7f\x08",
	"substitution": "$(touch pwned)${IFS}`touch pwned`",
	"command":      "; touch pwned # && touch pwned | touch pwned",
	"element":      "<script>alert(1)</script><img src=x onerror=alert(1)>]]><![CDATA[&#x0;",
	"directions":   "\u202e\u2066\u200f\u061c \u05d0",
	"invisible":    "\u200b\ufeff\u00ad\u2028\u3164\U000e0041",
	"no UTF-8":     "\xff\xfe\xc3\x28\xed\xa0\x80",
	"YAML":         "{{.}}: [&a, *b, !!c] # %YAML\t- x",
}

// textsOf are the hostile texts of formats that share their printer with table or their values with JSON, or in which
// few characters have a meaning, and of the command that packs what others print; the others have all.
var textsOf = map[string][]string{
	"wide":  {"line break", "escapes", "directions", "no UTF-8"},
	"topo":  {"line break", "escapes", "directions", "no UTF-8"},
	"yaml":  {"line break", "return", "double quote", "escapes", "directions", "invisible", "no UTF-8", "YAML"},
	"svg":   {"element", "double quote", "single quote", "escapes", "no UTF-8"},
	"html":  {"element", "double quote", "single quote", "escapes", "no UTF-8"},
	"junit": {"element", "double quote", "single quote", "escapes", "no UTF-8"},

	"support-bundle": {"line break", "single quote", "escapes", "substitution", "no UTF-8"},
}

// hostileCase is a command with an input in which every text is hostile.
type hostileCase struct {
	args  []string
	stdin string
	// refuses tells that some of the input is refused, with its text in the error; own that the command has no input.
	refuses, own bool
	found        bool                           // doctor explain finds a message, which is its status 3
	parse        func(t *testing.T, out []byte) // instead of that of the format
	formats      []string                       // that the case has; nil: those of the command
}

// hostileCases has the cases of each command, by its path without the program's name.
func hostileCases(w *hostileWorld) map[string][]hostileCase {
	cases := map[string][]hostileCase{
		"discover": {
			{args: []string{"--root", w.machine}}, {args: []string{"--root", w.changed}},
			{args: []string{"--root", w.machine, "--record", "-"}, parse: isRecording},
			{args: []string{"--cluster"}, refuses: true, formats: []string{"table", "wide", "json", "yaml"}},
			{args: []string{"--cluster", "g1"}, refuses: true},
		},
		"list": {
			{args: w.journal(), refuses: true}, {args: []string{"--cluster", "--all"}}, {args: []string{"--cluster"}},
		},
		"status": {{}, {args: []string{"--wait", "--timeout", "1s"}, formats: []string{"table"}}},
		"repair": {{args: append(w.journal(), "--dry-run")}, {args: append(w.journal(), "--plugin", w.plugin)}},
		"plan": {
			{args: append(w.journal(), "--netns", w.netns), refuses: true},
			{args: append(w.journal(), "--netns", w.netns, "-f", w.conf), refuses: true},
			{args: append(w.journal(), "--netns", w.netns, "-f", w.refused), refuses: true},
		},
		"node-mode": {{args: []string{"exclusive", "--selector", "a!=b", "--dry-run"}, refuses: true}},
		"selftest": {{args: []string{"--bin-dir", w.dir, "--devices", w.text}, refuses: true, own: true},
			{args: []string{"--bin-dir", w.text, "--devices", "mlx5_0"}, refuses: true}},
		"preflight": {{}, {args: []string{"--local", "--root", w.machine}},
			{args: []string{"--local", "--root", w.changed}}},
		"doctor host": {{args: []string{"--all", "--root", w.machine}}, {args: []string{"--all", "--root", w.changed}}},
		"doctor pod": {
			{args: []string{"--all", "--root", w.machine}}, {args: []string{"--all", "--root", w.pod}},
			{args: []string{"--all", "ml/x"}},
			{args: []string{"--all", "-f", "-", "--nads", w.nads}, stdin: w.manifest},
			{args: []string{"--all", "-f", "-", "--claims", w.claims}, stdin: w.manifest},
		},
		"doctor job": {{args: []string{"--all", "-f", w.job, w.picture}},
			{args: []string{"--all", "-f", w.job, "--nads", w.nads}},
			{args: []string{"--all", "-f", w.job, "--cluster"}}, {args: []string{"--all", "--selector", "a=b"}}},
		"doctor cluster": {{args: []string{"--all"}}},
		"doctor explain": {{stdin: w.log, found: true}},
		"nccl-env": {{args: []string{"--root", w.machine}}, {args: []string{"--root", w.changed}},
			{args: []string{"--root", w.pod}}},
		"verify": {{args: []string{"a", "b"}}},
		"watch": {
			{args: []string{"--root", w.machine, "--once", "--interval", "100ms"}, formats: []string{"text"}},
			{args: []string{"--root", w.machine, "--once", "--interval", "100ms"}, formats: []string{"json"},
				parse: isLine},
		},
		"support-bundle": {{args: append(w.journal(), "--root", w.machine, "--cluster", "--output-file", "-"),
			parse: isBundle}},
		"topology": {{args: w.cabling}, {args: append(w.cabling, "--cluster"), refuses: true}},
		"generate topology": {
			{args: w.cabling, parse: isShell, formats: []string{"shell"}},
			{args: append(w.cabling, "--cluster"), parse: areDocuments, formats: []string{"yaml"},
				refuses: true},
		},
		"generate verify": {{args: []string{"--image", "example.com/x:1", "--", "--image", "example.com/p:1"},
			own: true}},
		"generate policy": {{args: []string{"-f", w.fabric}, refuses: true},
			{args: []string{"--cluster"}, refuses: true}},
		"validate": {
			{args: []string{"-f", w.fabric, w.machine}, parse: isVisible, refuses: true},
			{args: []string{"-f", w.fabric, "--cluster"}, parse: isVisible, refuses: true},
			{args: []string{"-f", w.fabric, "--cluster", "-o", "json"}, refuses: true},
		},
		"migrate": {
			{args: []string{"-f", w.operator}, parse: areDocuments, refuses: true},
			{args: []string{"-f", w.operator, "--to", "nad"}, parse: areDocuments, refuses: true},
		},
		"version": {{own: true, args: []string{"--local"}}, {args: []string{"--cluster"}}},
		"man":     {{args: []string{"pages"}, own: true}},
		"help":    {{own: true}},
	}
	maps.Copy(cases, kindCases(w))
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		cases["completion "+shell] = []hostileCase{{own: true}}
	}
	return cases
}

// kindCases are those of the kinds of generate.
func kindCases(w *hostileWorld) map[string][]hostileCase {
	cases := map[string][]hostileCase{}
	for _, kind := range generate.Kinds {
		isKind := func(t *testing.T, out []byte) { t.Helper(); isObjects(t, kind, out) }
		with := map[string][]string{"nad": {"--range", "198.18.0.0/16"}, "fabric": {"--range", "198.18.0.0/16"}}[kind]
		cases["generate "+kind] = []hostileCase{
			{args: append([]string{w.machine}, with...), refuses: true, parse: isKind},
			{args: append([]string{w.picture}, with...), refuses: true, parse: isKind},
		}
		if kind != "nad" && kind != "device-plugin" {
			cases["generate "+kind] = append(cases["generate "+kind],
				hostileCase{args: []string{"--cluster"}, refuses: true, parse: isKind})
		}
	}
	cases["generate fabric"] = append(cases["generate fabric"], hostileCase{args: []string{"--cluster", "--range",
		"10.96.0.0/20"}, refuses: true})
	return cases
}

// Whatever a device, a pod, a file, an entry of the journal or an object of the cluster is called, each command prints
// it in every format so that it is nothing but text for what reads the output.
func TestHostileText(t *testing.T) {
	if err := sandbox.SetPolicy(sandbox.AllowVirtual); err != nil {
		t.Fatal(err)
	}
	for name, text := range hostileTexts {
		t.Run(name, func(t *testing.T) {
			w := newHostileWorld(t, marker+text)
			cases := hostileCases(w)
			for _, c := range leaves((&app{}).command()) {
				path := strings.TrimPrefix(c.CommandPath(), "fabricctl ")
				if len(cases[path]) == 0 {
					t.Errorf("fabricctl %s: no case with hostile text", path)
				}
				for _, hc := range cases[path] {
					formats := hc.formats
					if formats == nil {
						formats = formatsOf(c)
					}
					for _, format := range formats {
						if hasText(format, name) && hasText(path, name) {
							w.check(t, strings.Fields(path), hc, format)
						}
					}
				}
			}
		})
	}
}

// hasText tells whether a format or command is tried with a text.
func hasText(what, text string) bool {
	texts := textsOf[what]
	return texts == nil || slices.Contains(texts, text)
}

// The same for the values of flags and for arguments, which people copy from elsewhere.
func TestHostileFlags(t *testing.T) {
	for _, name := range []string{"line break", "escapes", "substitution", "element", "directions", "no UTF-8"} {
		text := hostileTexts[name]
		t.Run(name, func(t *testing.T) {
			clean := newHostileWorld(t, "")
			for _, c := range leaves((&app{}).command()) {
				path := strings.TrimPrefix(c.CommandPath(), "fabricctl ")
				hc := hostileCases(clean)[path][0]
				value := strings.ReplaceAll(marker+text, "\x00", "")
				clean.run(t, append(strings.Fields(path), value), hc.stdin)
				c.Flags().VisitAll(func(f *pflag.Flag) {
					if slices.Contains([]string{"string", "stringSlice"}, f.Value.Type()) {
						with := hc
						with.args = append(slices.Clone(hc.args), "--"+f.Name+"="+value)
						with.own, with.found = true, false // it may be refused, or mean nothing
						clean.check(t, strings.Fields(path), with, "")
					}
				})
			}
		})
	}
}

// leaves are the commands that do something.
func leaves(root *cobra.Command) (out []*cobra.Command) {
	if !root.HasParent() {
		root.InitDefaultHelpCmd()
		root.InitDefaultCompletionCmd()
	}
	for _, c := range root.Commands() {
		if c.HasSubCommands() {
			out = append(out, leaves(c)...)
		} else {
			out = append(out, c)
		}
	}
	return out
}

// formatsOf are the formats that the help of a command names, or "" for its only one.
func formatsOf(c *cobra.Command) []string {
	f := c.Flags().Lookup("output")
	if f == nil {
		return []string{""}
	}
	return regexp.MustCompile(`, or | or |, `).Split(f.Usage, -1)
}

// check runs a command, and parses what it prints.
func (w *hostileWorld) check(t *testing.T, path []string, hc hostileCase, format string) {
	t.Helper()
	args := slices.Concat(path, hc.args)
	if format != "" {
		args = append(args, "--output", format)
	}
	status, stdout, stderr := w.run(t, args, hc.stdin)
	parse := hc.parse
	if parse == nil {
		parse = parsers[format]
	}
	binary := slices.Contains(args, "--output-file") || slices.Contains(args, "--record")
	if !binary {
		isVisible(t, stdout)
	}
	if len(stdout) > 0 {
		if parse == nil && format != "" {
			t.Errorf("%q: no parser for %s", args, format)
		}
		if parse != nil {
			parse(t, stdout)
		}
	}
	if hc.found && status != exitFinding || !hc.own && !hc.refuses && !hc.found &&
		(status == exitFailed || status == exitUsage) {
		t.Errorf("%q: status %d: %s", args, status, stderr)
	}
	if text := string(stdout) + string(stderr); !hc.own && !binary && !strings.Contains(text, marker) {
		t.Errorf("%q: nothing of the input is printed: the test tests nothing\n%s", args, text)
	}
	if t.Failed() {
		t.Fatalf("%q printed\n%s\n%s", args, stdout, stderr)
	}
}

// colours are those that the program itself prints.
var colours = regexp.MustCompile(`\x1b\[(2|31|32|33|0)m`)

// run runs the program on a terminal, in the world's directory, and looks that nothing was made there.
func (w *hostileWorld) run(t *testing.T, args []string, stdin string) (status int, stdout, stderr []byte) {
	t.Helper()
	t.Chdir(t.TempDir())
	var out, diag bytes.Buffer
	a := &app{
		console: console{stdin: strings.NewReader(stdin), stdout: quote.Printer{W: &out},
			stderr: quote.Printer{W: &diag}, terminal: true},
		getenv: os.Getenv, version: "test",
	}
	status = a.run(t.Context(), append([]string{"fabricctl"}, args...))
	stdout, stderr = colours.ReplaceAll(out.Bytes(), nil), colours.ReplaceAll(diag.Bytes(), nil)
	isVisible(t, stderr)
	if _, err := os.Stat("pwned"); err == nil {
		t.Errorf("%q has run a command", args)
	}
	return status, stdout, stderr
}
