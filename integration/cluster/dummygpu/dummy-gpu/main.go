// Command dummy-gpu is the driver of a node's GPUs that do not exist, see package dummygpu: a program of its own, as
// only some tests want it, and what it is made of takes a guest without KVM seconds to start.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fabric-cni/fabric-cni/integration/cluster/dummygpu"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dummy-gpu:", err)
		os.Exit(1)
	}
}

// run serves one GPU for each PCIe root that is named, until it gets SIGTERM.
func run(args []string) error {
	if len(args) < 3 {
		return errors.New("usage: dummy-gpu KUBECONFIG NODE PCIE-ROOT [PCIE-ROOT]")
	}
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var gpus []dummygpu.GPU
	for _, root := range args[2:] {
		if !strings.HasPrefix(root, "pci") {
			return fmt.Errorf("GPU at %q: want a PCIe root as pci0000:15", root)
		}
		gpus = append(gpus, dummygpu.GPU{Root: root, NUMA: -1})
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	return dummygpu.Serve(ctx, client, args[1], gpus)
}
