// Command fabricctl shows, explains, plans and checks the RDMA fabrics of a node. Called kubectl-fabric it is the
// kubectl plugin "kubectl fabric".
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cli"
)

var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(cli.Main(ctx, os.Args, version))
}
