package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/internal/doctor"
)

func doctorPodCommand(a *app) *cobra.Command {
	out := findings{console: &a.console}
	pod := podRef{machine: &a.machine}
	manifest := manifestRef{console: &a.console}
	c := &cobra.Command{
		Use:   "pod",
		Short: "Check a pod: interfaces, verbs devices, memory, GIDs, variables; from inside, or from the host",
		Long: `doctor pod looks at the container it runs in, or from the host at that of a process (--pid) or at a
network namespace (--netns). With --pod, or --manifest where there is no kubectl, it says from the pod's
manifest which step is missing: annotation, network, Multus, count. Exit status 3 if anything fails.`,
		Example: `  kubectl exec train-0 -- fabricctl doctor pod
  fabricctl doctor pod --pid $(crictl inspect --output go-template --template '{{.info.pid}}' ID)
  fabricctl doctor pod --pod ml/train-0
  kubectl get pod train-0 -o json | fabricctl doctor pod --manifest -
  kubectl get net-attach-def -A -o json >nads.json
  kubectl get pod train-0 -o json | fabricctl doctor pod --manifest - --nads nads.json`,
		Args: argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			if manifest.file != "" || manifest.pod != "" {
				list, err := manifest.check(cmd.Context())
				if err != nil {
					return err
				}
				return out.print(list)
			}
			p, err := pod.collect()
			if err != nil {
				return err
			}
			return out.print(doctor.CheckPod(p))
		},
	}
	out.flags(c)
	pod.flags(c)
	manifest.flags(c)
	return c
}

// manifestRef names the manifest of a pod: a file, or a pod to ask kubectl for.
type manifestRef struct {
	*console
	file string
	nads string // file with the networks
	pod  string // NAMESPACE/NAME
}

func (m *manifestRef) flags(c *cobra.Command) {
	c.Flags().StringVar(&m.file, "manifest", "",
		"the pod as kubectl get pod NAME -o json prints it; - for standard input")
	c.Flags().StringVar(&m.pod, "pod", "", "NAMESPACE/NAME of the pod to ask kubectl for")
	c.Flags().StringVar(&m.nads, "nads", "", "the networks as kubectl get net-attach-def -A -o json prints them")
}

// check reads the manifest and checks it.
func (m *manifestRef) check(ctx context.Context) ([]doctor.Finding, error) {
	read := m.fromFiles
	if m.pod != "" {
		read = func() (*doctor.Manifest, *doctor.NADs, error) { return podByName(ctx, m.pod) }
	}
	pod, nads, err := read()
	if err != nil {
		return nil, err
	}
	list, err := doctor.CheckManifest(pod, nads)
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", m.file, m.pod, err)
	}
	return list, nil
}

// fromFiles reads the pod, and the networks if there is a file with them.
func (m *manifestRef) fromFiles() (*doctor.Manifest, *doctor.NADs, error) {
	if m.file == "-" && m.nads == "-" {
		return nil, nil, fmt.Errorf("%w: standard input is one file only", errUsage)
	}
	pod := &doctor.Manifest{}
	if err := m.decode("manifest", m.file, pod, "kubectl get pod NAME -o json"); err != nil {
		return nil, nil, err
	}
	if m.nads == "" {
		return pod, nil, nil
	}
	nads := &doctor.NADs{}
	if err := m.decode("nads", m.nads, nads, "kubectl get net-attach-def -A -o json"); err != nil {
		return nil, nil, err
	}
	return pod, nads, nil
}

// decode reads the file of a flag: what a command prints.
func (m *manifestRef) decode(flag, file string, into any, command string) error {
	b, err := m.read(file)
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return errors.Join(fmt.Errorf("--%s %s: %w", flag, file, err), errors.New("want what "+command+" prints"))
	}
	return nil
}

// podByName asks kubectl for a pod and the networks. Without the right to list the networks, the rest is checked.
func podByName(ctx context.Context, name string) (*doctor.Manifest, *doctor.NADs, error) {
	namespace, pod, ok := strings.Cut(name, "/")
	if !ok {
		namespace, pod = "default", name
	}
	m := &doctor.Manifest{}
	if err := kubectlGet(ctx, m, "-n", namespace, "get", "pod", pod, "-o", "json"); err != nil {
		return nil, nil, fmt.Errorf("--pod: %w", err)
	}
	n := &doctor.NADs{}
	err := kubectlGet(ctx, n, "get", "network-attachment-definitions.k8s.cni.cncf.io", "-A", "-o", "json")
	if err != nil {
		return m, nil, nil //nolint:nilerr // as above
	}
	return m, n, nil
}
