// Command fabric is the CNI plugin of type "fabric", and the OCI hook of containers that use ResourceClaims.
package main

import (
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/plugins/fabric"
)

var version = "dev"

func main() {
	debug.SetGCPercent(-1) // the process lives for milliseconds; the limit below is the safety net
	debug.SetMemoryLimit(16 << 20)
	// Nor do huge pages pay: each is cleared as a whole for the little that is used of it. The IPAM plugin inherits
	// this.
	_ = unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0)
	p := fabric.Plugin{
		Version: version, Command: os.Getenv("CNI_COMMAND"), Nested: os.Getenv(ipam.DepthVariable) != "",
		Trace: fabric.TraceID(os.Getenv("TRACEPARENT")), Stdout: os.Stdout, Stderr: os.Stderr,
	}
	if len(os.Args) > 1 { // a CNI call has no arguments
		switch os.Args[1] {
		case fabric.HookCommand:
			if os.Getenv("PATH") == "" { // runtimes may start hooks without; what the plugin runs wants one
				_ = os.Setenv("PATH", ipam.PATH)
			}
			os.Exit(p.Hook(os.Args[2:], os.Stdin))
		case fabric.NamesCommand:
			os.Exit(p.OwnNames())
		}
	}
	os.Exit(p.Main())
}
