package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/node"
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
		return p.recorded()
	case !p.linux():
		return nil, fmt.Errorf("%w, or give --root RECORDING", errNotLinux)
	case p.netns != "":
		return p.ofNetns()
	case p.pid != 0:
		return p.ofProcess()
	}
	return p.ofThis()
}

// recorded looks at a recording. The root directory of a container, with proc/self of one of its processes, is as good
// as the container; of another one the network namespace is known.
func (p *podRef) recorded() (*doctor.Pod, error) {
	tree, err := p.tree()
	if err != nil {
		return nil, err
	}
	n, err := node.Open(tree, p.store())
	if err != nil {
		return nil, err
	}
	const proc = "proc/self"
	env, err := fs.ReadFile(tree, proc+"/environ")
	if errors.Is(err, fs.ErrNotExist) {
		return &doctor.Pod{Node: n, Bare: true, Interfaces: doctor.InterfacesOf(tree)}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--root %s: %w", p.root, err)
	}
	of, err := fs.Sub(tree, proc)
	if err != nil {
		return nil, fmt.Errorf("--root %s: %w", p.root, err)
	}
	return doctor.CollectPod(tree, of, n, strings.Split(strings.TrimSpace(string(env)), "\x00")), nil
}
