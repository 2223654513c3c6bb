// Package cli has the commands of fabricctl: one command, one file, named after it. What commands share is in app.go
// (the program), errors.go (exit statuses), console.go and table.go (output), machine.go (the node to look at),
// inventories.go (the nodes of a cluster) and pod.go (a pod to look at).
package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// app is one run of the program, with all that it takes from its surroundings.
type app struct {
	console
	machine
	getenv  func(string) string
	version string
}

// Main runs fabricctl and returns its exit status.
func Main(ctx context.Context, args []string, version string) int {
	doctor.SetVersion(version)
	a := &app{
		console: console{stdin: os.Stdin, stdout: quote.Printer{W: os.Stdout}, stderr: quote.Printer{W: os.Stderr}},
		getenv:  os.Getenv, version: version,
	}
	if fd := int(os.Stdout.Fd()); term.IsTerminal(fd) {
		a.terminal = a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
		a.width, _, _ = term.GetSize(fd) // 0 where it is not known
		if n, err := strconv.Atoi(a.getenv("COLUMNS")); err == nil && n > 0 {
			a.width = n
		}
	}
	return a.run(ctx, args)
}

func (a *app) run(ctx context.Context, args []string) (status int) {
	name := "fabricctl"
	if a.plugin = strings.HasPrefix(filepath.Base(args[0]), "kubectl-fabric"); a.plugin {
		name = "kubectl fabric"
	}
	defer func() {
		if r := recover(); r != nil {
			a.stderr.Printf("%s: internal error: %v; please report it, with the command and its --root "+
				"recording\n", name, r)
			status = exitFailed
		}
	}()
	cmd := a.command()
	cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	cmd.SetArgs(args[1:])
	cmd.SetIn(a.stdin)
	cmd.SetOut(a.stdout.W) // cobra prints help, which is the program's own text
	cmd.SetErr(a.stderr.W)
	at, err := cmd.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFinding):
		return exitFinding
	case isUsage(err):
		text := strings.Replace(err.Error(), "\n\nDid you mean this?\n\t", "; did you mean ", 1)
		text = strings.TrimPrefix(strings.Join(strings.FieldsFunc(text, isBreak), " "), "usage: ")
		a.stderr.Printf("%s: %s; see %s --help\n", name, text, at.CommandPath())
		return exitUsage
	}
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if errors.Is(err, errNotLinux) {
		text = strings.TrimPrefix(at.CommandPath(), name+" ") + " " + text
	}
	if errors.Is(err, fs.ErrPermission) && !strings.Contains(text, "run as root") {
		text += "; run as root"
	}
	a.stderr.Printf("%s: %s\n", name, text)
	return exitFailed
}

func (a *app) command() *cobra.Command {
	a.kube = cluster.New()
	root := &cobra.Command{
		Use:   "fabricctl",
		Short: "Show, plan, check and verify the RDMA fabrics of a node",
		Long: `fabricctl shows which HCAs, ports and GPUs a node has and which ports belong together, prints what the
CNI plugin fabric would do, lists and repairs attachments, explains errors, and writes the files that a cluster needs.

A command with --cluster works on this machine as fabricctl, and on the cluster as kubectl fabric, unless --cluster or
--local is given. Recordings and --root need neither flag.

Exit status:

    0  done, no problem found
    1  could not be done: standard error has the reason and what to do
    2  the command line is wrong
    3  done, and problems were found`,
		Version:       a.version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("fabricctl {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.PersistentFlags().StringVar(&a.root, "root", "/",
		"root directory of the machine to look at, or a recording of one (discover --record)")
	root.PersistentFlags().StringVar(&a.stateDir, "state-dir", node.StoreDir, "where the plugin keeps its journal")
	a.kube.Flags(root.PersistentFlags())
	root.AddCommand(
		discoverCommand(a),
		statusCommand(a),
		a.list(),
		a.plan(),
		a.repair(),
		selftestCommand(a),
		preflightCommand(a),
		nodeModeCommand(a),
		doctorCommand(a),
		validateCommand(a),
		ncclEnvCommand(a),
		generateCommand(a),
		migrateCommand(a),
		topologyCommand(a),
		verifyCommand(a),
		watchCommand(a),
		supportBundleCommand(a),
		versionCommand(a),
		manCommand(),
	)
	completions(root, a.kube)
	return root
}
