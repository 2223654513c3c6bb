// Command floor puts a device into a network namespace, or takes it back, with only the kernel calls that this needs,
// and exits: what a CNI plugin would cost that checked nothing and could lose devices.
//
//	floor add|del MODE NETNS HOSTNAME PODNAME ADDRESS [BUS HCA]
//
// MODE is ipoib (RDMA device and its IPoIB netdev), netdev, or child.
package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/fabric-cni/fabric-cni/integration/lab/bench/bare"
)

func main() {
	runtime.LockOSThread() // bare.Job changes the thread's namespace
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 6 {
		return fmt.Errorf("floor: %d arguments, at least 6 wanted", len(args))
	}
	j := bare.Job{Mode: args[1], Netns: args[2], Host: args[3], Pod: args[4], Address: args[5]}
	if len(args) > 7 {
		j.Bus, j.HCA = args[6], args[7]
	}
	if args[0] == "del" {
		return j.Del()
	}
	return j.Add()
}
