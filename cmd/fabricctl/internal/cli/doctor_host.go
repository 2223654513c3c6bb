package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/policy"
)

func doctorHostCommand(a *app) *cobra.Command {
	out := findings{console: &a.console}
	var looks twoLooks
	c := &cobra.Command{
		Use: "host",
		Short: "Check the node: modules, RDMA mode, ports, counters, names, MTU, PCIe, containerd, Multus, " +
			"devices that dead pods left behind",
		Long: `doctor host prints problems of this machine, worst first; --all also prints passed checks. Port
counters are totals since boot. --duration reads them twice and compares the increase with fabric-agent's limits; for
recordings, --before is the earlier sample. In a container that has its node's /proc at /host/proc, such as the
agent's, it reads the node's files. Exit status 3 if a check fails.`,
		Args: argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(out.check(), looks.check(a)); err != nil {
				return err
			}
			h, err := a.host()
			if err == nil {
				err = looks.take(cmd.Context(), a, h)
			}
			if err != nil {
				return err
			}
			if _, proc, problem, err := a.nodeTree(); err == nil && problem == nil && proc != "" {
				a.stderr.Printf("this is a container: its node is looked at, through %s; what the cures say is for "+
					"the node\n", proc)
			}
			return out.print(doctor.CheckHost(h))
		},
	}
	out.flags(c)
	looks.flags(c)
	return c
}

// host collects what doctor host checks. The attachments, the node policy and the plugin are those of the running
// machine only.
func (a *app) host() (*doctor.Host, error) {
	tree, _, problem, err := a.nodeTree()
	if err != nil {
		return nil, err
	}
	n, err := node.Open(tree, a.store())
	if err != nil {
		return nil, err
	}
	if problem != nil {
		n.Problems = append(n.Problems, problem.Error())
	}
	h := doctor.CollectHost(tree, n)
	if a.root != "/" {
		return h, nil
	}
	h.Look.Add(a.liveCounters(n), n)
	list, err := a.attachments()
	h.Foreign = a.foreign()
	h.Journal, h.StrandedErr = true, err
	if damaged(err) { // Foreign has it
		h.StrandedErr = nil
	}
	for _, l := range list {
		if l.State == stateAttached || l.State == stateBegun { // or the pod could not be looked at
			h.StrandedErr = cmp.Or(h.StrandedErr, l.unclear())
		}
		if l.Missing {
			h.Stranded = append(h.Stranded, fmt.Sprintf("%s of %s: DEL has found its interface on %s in no network "+
				"namespace; it may be in use, and keeps its addresses", l.IfName, l.who(), l.Device))
			continue
		}
		if l.State == stateDead || l.State == stateBefore {
			h.Stranded = append(h.Stranded,
				fmt.Sprintf("%s of %s: device %s, state %s", l.IfName, l.who(), l.Device, l.State))
		}
	}
	_, h.PolicyErr = policy.Load(policy.DefaultPath, a.store().Dir)
	if b, err := os.ReadFile(installed); err == nil {
		h.PluginSum = fmt.Sprintf("(sha256 %x)", sha256.Sum256(b))
		h.Version, h.PluginVersion = a.version, pluginVersion(installed)
	}
	return h, nil
}

// installed is where the plugin is installed.
const installed = "/opt/cni/bin/fabric"

// pluginVersion runs a plugin without a command, which makes it print its name and version. It returns "" if the
// plugin prints anything else.
func pluginVersion(path string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = []string{"PATH=/nowhere"}
	out, err := cmd.CombinedOutput()
	line, _, _ := strings.Cut(string(out), "\n")
	if v, ok := strings.CutPrefix(line, "CNI plugin fabric "); ok && err == nil {
		return strings.TrimSpace(v)
	}
	return ""
}
