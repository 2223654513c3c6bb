package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/internal/doctor"
)

// podRef names the pod to look at. The zero value is the container that fabricctl runs in, or the recording of --root.
type podRef struct {
	*machine
	pid   int
	netns string
}

func (p *podRef) flags(c *cobra.Command) {
	c.Flags().IntVar(&p.pid, "pid", 0,
		"a process of the container, as the host counts (crictl inspect); default: this one")
	c.Flags().StringVar(&p.netns, "netns", "",
		"network namespace of the pod: what concerns its processes is left out")
	c.MarkFlagsMutuallyExclusive("pid", "netns")
}

// collect reads the pod.
func (p *podRef) collect() (*doctor.Pod, error) {
	switch {
	case p.root != "/":
		n, err := p.node()
		if err != nil {
			return nil, err
		}
		return &doctor.Pod{Node: n, Bare: true}, nil
	case !p.linux():
		return nil, fmt.Errorf("%w, or give --root RECORDING", errNotLinux)
	case p.netns != "":
		return p.ofNetns()
	case p.pid != 0:
		return p.ofProcess()
	}
	return p.ofThis()
}
