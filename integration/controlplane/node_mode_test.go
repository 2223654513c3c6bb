package controlplane_test

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fabric-cni/fabric-cni/integration/controlplane"
)

// modeRun starts fabricctl node-mode.
func modeRun(t *testing.T, s *controlplane.Server, args ...string) (cmd *exec.Cmd, out *bytes.Buffer) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), built(t, "fabricctl"), append([]string{"node-mode",
		"--agent-namespace=ml", "--image=example.com/fabricctl:1"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfigOf(t, s.Config.Host, s.Config.BearerToken),
		"HOME="+t.TempDir())
	out = &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// modeSays runs it to its end, with this exit status and words.
func modeSays(t *testing.T, s *controlplane.Server, status int, want string, args ...string) {
	t.Helper()
	cmd, out := modeRun(t, s, args...)
	_ = cmd.Wait() // the status is what matters
	if got := cmd.ProcessState.ExitCode(); got != status || !strings.Contains(out.String(), want) {
		t.Errorf("%s: exit status %d, want %d and %q:\n%s", strings.Join(args, " "), got, status, want, out)
	}
}

// modeNode changes a Node, and its status.
func modeNode(t *testing.T, c kubernetes.Interface, name string, change func(n *corev1.Node)) {
	t.Helper()
	n, err := c.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change(n)
	status := n.Status
	if n, err = c.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.Status = status
	if _, err = c.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// modePod waits for the pod that does this on the Node, and has it end like that, as kubelet would.
func modePod(t *testing.T, c kubernetes.Interface, node, what string, exit int32, message string) {
	t.Helper()
	until(t, func() string {
		list, err := c.CoreV1().Pods("ml").List(t.Context(), metav1.ListOptions{
			LabelSelector: "fabric.dev/node-mode=" + what, FieldSelector: "spec.nodeName=" + node,
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 || list.Items[0].Status.ContainerStatuses != nil {
			return "no pod " + what + " on " + node
		}
		p := &list.Items[0]
		if !p.Spec.HostPID || !slices.Contains(p.Spec.Containers[0].Command, "exclusive") {
			t.Errorf("pod: %+v", p.Spec)
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "node-mode", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: exit, Message: message},
		}}}
		if _, err := c.CoreV1().Pods("ml").UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// rebooted gives a Node another boot, once its pod is there and says nothing.
func rebooted(t *testing.T, c kubernetes.Interface, node string) {
	t.Helper()
	modePod(t, c, node, "set", 137, "") // it was killed by the shutdown
	modeNode(t, c, node, func(n *corev1.Node) { n.Status.NodeInfo.BootID += "+" })
}

// fabricctl node-mode on a real API server, where the test is kubelet: what it refuses changes no Node, a Node that it
// could not change stays cordoned and marked, and the same command goes on. The emulated nodes of integration/cluster
// reboot.
func TestNodeMode(t *testing.T) {
	s, c := withGate(t)
	for _, name := range []string{"g1", "g2", "away"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": name[:1]}}}
		if _, err := c.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		modeNode(t, c, name, func(n *corev1.Node) {
			n.Spec.Taints = nil
			n.Status.NodeInfo.BootID = "boot"
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			if name == "away" {
				n.Status.Conditions[0].Status = corev1.ConditionUnknown
			}
		})
	}
	preflightPod(t, c, "bare", &corev1.PodSpec{NodeName: "g1", Containers: []corev1.Container{{}}})

	modeSays(t, s, 2, "name the nodes, or choose them with --selector", "exclusive")
	modeSays(t, s, 2, `--mode "exclusiv": want one of exclusive, shared`, "exclusiv", "g1")
	modeSays(t, s, 2, `--max-unavailable "0": must be a number of nodes from 1`, "exclusive", "g1",
		"--max-unavailable=0")
	modeSays(t, s, 2, "--selector: ", "exclusive", "--selector=(a")
	modeSays(t, s, 1, `the cluster has no node "g3"`, "exclusive", "g1", "g3")
	modeSays(t, s, 1, "no node has the labels", "exclusive", "--selector=pool=x")
	modeSays(t, s, 1, "node away is not Ready", "exclusive", "g1", "away")
	modeSays(t, s, 3, "declare no controller", "exclusive", "g1", "--dry-run")
	modeSays(t, s, 3, "g1    -     reboot  ml/bare", "exclusive", "g1", "away", "--dry-run", "--force")
	modeSays(t, s, 0, "2 of 2 nodes would be set to exclusive mode, at most 1 at a time", "exclusive",
		"--selector=pool=g", "--dry-run", "--force", "--max-unavailable=10%")
	if n, err := c.CoreV1().Nodes().Get(t.Context(), "g1", metav1.GetOptions{}); err != nil || n.Spec.Unschedulable ||
		len(n.Annotations) > 0 {
		t.Errorf("it is changed: %v, %+v", err, n)
	}

	modeSays(t, s, 1, "the namespace must be there", "exclusive", "g1", "--force", "--agent-namespace=nowhere")

	// The first node fails: the second is left alone.
	cmd, out := modeRun(t, s, "exclusive", "--selector=pool=g", "--force", "--grace-period=0s")
	modePod(t, c, "g1", "check", 3, "the mode is shared")
	modePod(t, c, "g1", "set", 1, "fabricctl: no space left")
	if err := cmd.Wait(); err == nil || !strings.Contains(out.String(),
		"node g1: fabricctl: no space left; the node stays cordoned: after the repair the same command continues") {
		t.Errorf("%v: %s", err, out)
	}
	g1, err := c.CoreV1().Nodes().Get(t.Context(), "g1", metav1.GetOptions{})
	if err != nil || !g1.Spec.Unschedulable || !strings.Contains(g1.Annotations["fabric.dev/node-mode"], "exclusive") {
		t.Errorf("%v, %+v", err, g1)
	}
	if strings.Contains(out.String(), "g2") {
		t.Errorf("it has gone on:\n%s", out)
	}
	modeSays(t, s, 0, "g1    -     continue", "exclusive", "g1", "--dry-run")

	// The same command goes on, and both get there: g2 is asked first, and was cordoned before.
	modeNode(t, c, "g2", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	if err := c.CoreV1().Pods("ml").DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)},
		metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	cmd, out = modeRun(t, s, "exclusive", "g1", "g2", "--max-unavailable=2")
	rebooted(t, c, "g1")
	modePod(t, c, "g1", "check", 0, "exclusive")
	modePod(t, c, "g2", "check", 3, "the mode is shared")
	rebooted(t, c, "g2")
	modePod(t, c, "g2", "check", 0, "exclusive")
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	for name, cordoned := range map[string]bool{"g1": false, "g2": true} {
		n, err := c.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || n.Spec.Unschedulable != cordoned || len(n.Annotations) > 0 {
			t.Errorf("%v, %+v", err, n)
		}
	}
	if list, err := c.CoreV1().Pods("ml").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("pods are left: %v, %d", err, len(list.Items))
	}
	modeNode(t, c, "g1", func(n *corev1.Node) { n.Annotations = map[string]string{"fabric.dev/node-mode": "x"} })
	modeSays(t, s, 1, `the annotation fabric.dev/node-mode is "x", which is not of node-mode`, "exclusive", "g1")
}
