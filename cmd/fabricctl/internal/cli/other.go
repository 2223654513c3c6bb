//go:build !linux

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/selftest"
	"github.com/fabric-cni/fabric-cni/internal/counters"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// What follows stands for what is in the files *_linux.go. machine.running and podRef.collect refuse before it.

type entry struct{}

type liveness struct{}

func (*entry) Encode() ([]byte, error) { return nil, errNotLinux }

func (*app) attachments() ([]attached, error)               { return nil, errNotLinux }
func (*attached) unclear() error                            { return errNotLinux }
func (*app) foreign() []string                              { return nil }
func damaged(error) bool                                    { return false }
func (*app) planAdd([]byte, netconf.Env) ([]planned, error) { return nil, errNotLinux }
func (*app) planDel(string, string) ([]planned, error)      { return nil, errNotLinux }
func (*app) del(context.Context, string, *entry) error      { return errNotLinux }
func (*nodeMode) here(*cobra.Command) error                 { return errNotLinux }
func (*selfTest) test(context.Context) (*selftest.Report, []string, error) {
	return nil, nil, errNotLinux
}
func (*watcher) lookHere(*watchLook) error          { return errNotLinux }
func (*app) liveCounters(*node.Node) *counters.Live { return nil }
func (*podRef) ofThis() (*doctor.Pod, error)        { return nil, errNotLinux }
func (*podRef) ofNetns() (*doctor.Pod, error)       { return nil, errNotLinux }
func (*podRef) ofProcess() (*doctor.Pod, error)     { return nil, errNotLinux }
