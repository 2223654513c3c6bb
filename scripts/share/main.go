// Command share prints what this run of the gate picks of some names, one per line: what internal/testkit/share does,
// for scripts.
//
//	share N NAME...
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/fabric-cni/fabric-cni/internal/testkit/share"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: share N NAME...")
		os.Exit(2)
	}
	n, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "share:", err)
		os.Exit(2)
	}
	for _, name := range share.Pick(n, os.Args[2:]...) {
		fmt.Println(name)
	}
}
