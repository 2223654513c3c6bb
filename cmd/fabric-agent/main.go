// Command fabric-agent is the node's side of fabric-cni in Kubernetes: it installs the CNI binary and looks after it,
// brings home what dead pods have left, and tells kubelet and the cluster what the node has.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fabric-cni/fabric-cni/internal/agent"
)

var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := agent.Main(ctx, version, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fabric-agent:", err)
		os.Exit(1)
	}
}
