// Command fabric-agent is both halves of fabric-cni in Kubernetes. On each node it installs the CNI binary and looks
// after it, brings home what dead pods have left, and tells kubelet and the cluster what the node has. Once in the
// cluster, as `fabric-agent controller`, it publishes networks and gives nodes their ranges.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/fabric-cni/fabric-cni/internal/agent"
	"github.com/fabric-cni/fabric-cni/internal/controller"
)

var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fail(os.Stderr, os.Args[1:], err)
		os.Exit(exitCode(err))
	}
}

// Exit codes.
const (
	failed  = 1 // it could not be done, or the command line is wrong; of health and ready: not so
	refused = 3 // release has refused, and trying again at once would change nothing: its Job does not
)

func exitCode(err error) int {
	if errors.Is(err, controller.ErrRefused) {
		return refused
	}
	return failed
}

// fail says why the program ends: where the logs are, in their format. A wrong command line is a person's, and so is
// uninstall.
func fail(stderr io.Writer, args []string, err error) {
	if errors.Is(err, agent.ErrUsage) || args[0] == "uninstall" {
		fmt.Fprintln(stderr, "fabric-agent:", err)
		return
	}
	slog.New(slog.NewJSONHandler(stderr, nil)).Error("fabric-agent ends", "error", err.Error())
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "controller":
			return controller.Command(ctx, version, args[1:], stderr)
		case "release":
			return controller.ReleaseCommand(ctx, args[1:], stderr)
		case "crds":
			return controller.CRDs(ctx, args[1:], stderr)
		}
	}
	return agent.Main(ctx, version, args, stdout, stderr)
}
