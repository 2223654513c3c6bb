// Command containerd is containerd and ctr in one binary, chosen by argv[0]: one link instead of two. With its shim it
// is a module of its own: nothing of this belongs into the product's go.mod. Debian 12 has containerd 1.6, which knows
// nothing of the Container Device Interface.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins"
	"github.com/containerd/containerd/v2/cmd/containerd/command"
	ctr "github.com/containerd/containerd/v2/cmd/ctr/app"
)

func main() {
	name := filepath.Base(os.Args[0])
	app := command.App()
	if name == "ctr" {
		app = ctr.New()
	}
	if err := app.Run(context.Background(), os.Args); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
