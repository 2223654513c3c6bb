// Package cli has the commands of fabricctl.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// Exit statuses; docs/fabricctl.md has them.
const (
	exitOK      = 0
	exitFailed  = 1 // could not do it
	exitUsage   = 2 // asked in a way that can't be understood
	exitFinding = 3 // done, and something is wrong with what was looked at
)

// app is one run of the program, with all it takes from its surroundings.
type app struct {
	stdin    io.Reader
	stdout   io.Writer
	stderr   io.Writer
	getenv   func(string) string
	terminal bool // stdout is one
	version  string

	root     string
	stateDir string
}

// errUsage marks what is the caller's mistake.
var errUsage = errors.New("usage")

// errFinding ends a command whose output has said everything.
var errFinding = errors.New("finding")

// Main runs fabricctl and returns its exit status.
func Main(ctx context.Context, args []string, version string) int {
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
	if st, err := os.Stdout.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
		a.terminal = a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
	}
	return a.run(ctx, args, version)
}

func (a *app) run(ctx context.Context, args []string, version string) (status int) {
	name := "fabricctl"
	if strings.HasPrefix(filepath.Base(args[0]), "kubectl-fabric") {
		name = "kubectl fabric"
	}
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(
				a.stderr,
				"%s: internal error: %v; please report it, with the command and its --root recording\n",
				name,
				r,
			)
			status = exitFailed
		}
	}()
	a.version = version
	cmd := a.command(version)
	cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	cmd.SetArgs(args[1:])
	cmd.SetIn(a.stdin)
	cmd.SetOut(a.stdout)
	cmd.SetErr(a.stderr)
	err := cmd.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFinding):
		return exitFinding
	case errors.Is(err, errUsage),
		strings.HasPrefix(err.Error(), "unknown command"),
		strings.HasPrefix(err.Error(), "required flag"),
		strings.HasPrefix(err.Error(), "if any flags in the group"):
		fmt.Fprintf(
			a.stderr,
			"%s: %s; see %s --help\n",
			name,
			strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", " "), "usage: "),
			name,
		)
		return exitUsage
	}
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if errors.Is(err, fs.ErrPermission) && !strings.Contains(text, "run as root") {
		text += "; run as root"
	}
	fmt.Fprintf(a.stderr, "%s: %s\n", name, text)
	return exitFailed
}

func (a *app) command(version string) *cobra.Command {
	root := &cobra.Command{
		Use:   "fabricctl",
		Short: "Show, plan, check and verify the RDMA fabrics of a node",
		Long: `fabricctl shows which HCAs, ports and GPUs a node has and which ports belong together, prints what the CNI
plugin fabric would do, lists and repairs attachments, explains errors, and writes the files that a cluster needs.

Exit status: 0 done; 1 could not be done; 2 asked in a way that can't be understood; 3 done, and something is wrong
with what was looked at.`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("fabricctl {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	root.PersistentFlags().StringVar(
		&a.root,
		"root",
		"/",
		"root directory of the machine to look at, or a recording of one (discover --record)",
	)
	root.PersistentFlags().StringVar(&a.stateDir, "state-dir", journal.DefaultDir, "where the plugin keeps its journal")
	root.AddCommand(
		a.discover(),
		a.list(),
		a.plan(),
		a.repair(),
		a.doctor(),
		a.ncclEnv(),
		a.generate(),
		a.verify(),
		a.bundle(),
		manCommand(),
	)
	return root
}

// args checks the number of arguments; a wrong one is the caller's mistake.
func argsBetween(least, most int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("%w: %d arguments, %d at least", errUsage, len(args), least)
		case len(args) > most:
			return fmt.Errorf("%w: unexpected argument %q", errUsage, args[most])
		}
		return nil
	}
}

// running refuses a recording for what concerns the running machine only.
func (a *app) running(what string) error {
	if a.root != "/" {
		return fmt.Errorf("%w: %s is about the running machine, and --root is %s", errUsage, what, a.root)
	}
	return nil
}

// oneOf checks a value that has to be one of a few.
func oneOf(flag, value string, allowed ...string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return fmt.Errorf("%w: --%s %q: want one of %s", errUsage, flag, value, strings.Join(allowed, ", "))
}

// tree is the machine to look at.
func (a *app) tree() (fs.FS, error) { return openTree(a.root) }

func openTree(root string) (fs.FS, error) {
	st, err := os.Stat(root)
	if err != nil {
		return nil, fmt.Errorf("--root: %w", err)
	}
	if st.IsDir() {
		return os.DirFS(root), nil
	}
	f, err := os.Open(root)
	if err != nil {
		return nil, fmt.Errorf("--root: %w", err)
	}
	defer f.Close()
	tree, err := node.Unpack(f)
	if err != nil {
		return nil, fmt.Errorf("--root %s: %w", root, err)
	}
	return tree, nil
}

func (a *app) store() journal.Store { return journal.Store{Dir: a.stateDir} }

// node reads the picture of the machine.
func (a *app) node() (*node.Node, error) {
	tree, err := a.tree()
	if err != nil {
		return nil, err
	}
	return node.Open(tree, a.store())
}

// write puts a whole file in place, or to standard output for "-".
func (a *app) write(name string, content []byte) error {
	if name == "-" {
		_, err := a.stdout.Write(content)
		return err
	}
	if err := os.WriteFile(name, content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
