package cli

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/policy"
)

func (a *app) doctor() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Find what is wrong with a host, a pod or the cluster, and explain messages",
		Args:  argsBetween(0, 0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(a.doctorHost(), a.doctorPod(), a.doctorCluster(), a.doctorExplain())
	return c
}

func (a *app) doctorHost() *cobra.Command {
	var format string
	var all bool
	c := &cobra.Command{
		Use:   "host",
		Short: "Check the node: modules, RDMA mode, ports, names, MTU, PCIe, containerd, Multus, what pods have left",
		Long: "doctor host prints what is wrong, worst first; with --all also what is in order. Exit status 3 if " +
			"anything fails.",
		Args: argsBetween(0, 0),
		RunE: func(*cobra.Command, []string) error {
			if err := oneOf("output", format, findingFormats...); err != nil {
				return err
			}
			h, err := a.host()
			if err != nil {
				return err
			}
			return a.findings(doctor.CheckHost(h), format, all)
		},
	}
	findingFlags(c, &format, &all)
	return c
}

// host collects the picture of the node.
func (a *app) host() (*doctor.Host, error) {
	tree, err := a.tree()
	if err != nil {
		return nil, err
	}
	n, err := node.Open(tree, a.store())
	if err != nil {
		return nil, err
	}
	h := doctor.CollectHost(tree, n)
	if a.root != "/" {
		return h, nil
	}
	list, err := a.attachments()
	if err != nil {
		n.Problems = append(n.Problems, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	for _, l := range list {
		if l.State == stateDead || l.State == stateBefore {
			h.Stranded = append(
				h.Stranded,
				fmt.Sprintf("%s of %s: device %s, state %s", l.IfName, l.who(), l.Device, l.State),
			)
		}
	}
	_, h.PolicyErr = policy.Load(policy.DefaultPath)
	if b, err := os.ReadFile(installed); err == nil {
		h.PluginSum = fmt.Sprintf("(sha256 %x)", sha256.Sum256(b))
		h.Version, h.PluginVersion = a.version, pluginVersion(installed)
	}
	return h, nil
}

// installed is where the plugin is.
const installed = "/opt/cni/bin/fabric"

// pluginVersion asks a plugin without a command, which makes it say its name and version. It returns "" if it says
// something else.
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

func (a *app) doctorExplain() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "explain [LOG LINE...]",
		Short: "Say what a message of NCCL, verbs, perftest, Open MPI, Multus, whereabouts or fabric means",
		Long: `doctor explain names cause and cure of the messages it knows, in the line given or in a log on standard input. Exit status 3
if it knows none of them.`,
		Example: `  fabricctl doctor explain "Couldn't allocate MR"
  kubectl logs train-0 | fabricctl doctor explain`,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := oneOf("output", format, "text", "json", "yaml"); err != nil {
				return err
			}
			log := strings.Join(args, " ")
			if log == "" || log == "-" {
				b, err := io.ReadAll(io.LimitReader(a.stdin, 64<<20))
				if err != nil {
					return fmt.Errorf("read standard input: %w", err)
				}
				log = string(b)
			}
			list := doctor.Explain(log)
			if format != "text" {
				if err := a.structured(format, append([]doctor.Explanation{}, list...)); err != nil {
					return err
				}
			} else {
				for _, e := range list {
					fmt.Fprintf(
						a.stdout,
						"%s\n  %s (%s)\n  cause: %s\n  cure:  %s\n  docs:  %s\n\n",
						e.Line,
						a.coloured(warn, e.Title),
						e.ID,
						e.Cause,
						e.Cure,
						e.Docs,
					)
				}
			}
			if len(list) == 0 {
				fmt.Fprintln(a.stderr, "no message in it that is known here; docs/doctor.md has the list")
				return errFinding
			}
			return nil
		},
	}
	c.Flags().StringVarP(&format, "output", "o", "text", "text, json or yaml")
	return c
}

func (a *app) coloured(colour, s string) string {
	if !a.terminal {
		return s
	}
	return colour + s + plain
}

// manifest reads a pod, and the networks if there is a file of them.
func (a *app) manifest(file, nads string) (*doctor.Manifest, *doctor.NADs, error) {
	if file == "-" && nads == "-" {
		return nil, nil, fmt.Errorf("%w: standard input is one file only", errUsage)
	}
	b, err := a.read(file)
	if err != nil {
		return nil, nil, fmt.Errorf("--manifest: %w", err)
	}
	m := &doctor.Manifest{}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, nil, errors.Join(
			fmt.Errorf("--manifest %s: %w", file, err),
			errors.New("want what kubectl get pod NAME -o json prints"),
		)
	}
	if nads == "" {
		return m, nil, nil
	}
	if b, err = a.read(nads); err != nil {
		return nil, nil, fmt.Errorf("--nads: %w", err)
	}
	n := &doctor.NADs{}
	if err := json.Unmarshal(b, n); err != nil {
		return nil, nil, errors.Join(
			fmt.Errorf("--nads %s: %w", nads, err),
			errors.New("want what kubectl get net-attach-def -A -o json prints"),
		)
	}
	return m, n, nil
}
