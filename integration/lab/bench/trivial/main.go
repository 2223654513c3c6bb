// Command trivial is a CNI plugin that does nothing: the least that one written with the CNI library costs.
package main

import (
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"
)

func main() {
	none := func(*skel.CmdArgs) error { return nil }
	skel.PluginMainFuncs(
		skel.CNIFuncs{Add: none, Del: none, Check: none, GC: none, Status: none},
		version.All,
		"CNI plugin trivial",
	)
}
