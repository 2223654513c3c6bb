package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// ctl runs fabricctl on the node and returns what it prints. 3 is its status for "done, and something is wrong with
// what was looked at".
func ctl(t *testing.T, status int, args ...string) (stdout, stderr string) {
	t.Helper()
	return ctlWith(t, status, "", nil, args...)
}

func ctlWith(t *testing.T, status int, stdin string, env []string, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(current.run, "bin/fabricctl"), args...)
	var out, diag bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &diag
	cmd.Env = append(os.Environ(), env...)
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != status {
		t.Errorf("fabricctl %s: exit status %d, want %d:\n%s%s", strings.Join(args, " "), got, status, out.String(),
			diag.String())
	}
	if strings.Contains(diag.String(), "goroutine ") {
		t.Errorf("fabricctl %s: %s", strings.Join(args, " "), diag.String())
	}
	return out.String(), diag.String()
}

// says asserts that a text has all of these.
func says(t *testing.T, what, text string, all ...string) {
	t.Helper()
	for _, s := range all {
		if !strings.Contains(text, s) {
			t.Errorf("%s: %q is missing in:\n%s", what, s, text)
		}
	}
}

// silent asserts that a text has none of these.
func silent(t *testing.T, what, text string, none ...string) {
	t.Helper()
	for _, s := range none {
		if strings.Contains(text, s) {
			t.Errorf("%s: %q should not be in:\n%s", what, s, text)
		}
	}
}

// plant writes the recorded tree of a machine.
func plant(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := machines.Named(name).Plant(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// offers makes the API server say that a node has so many of a resource: what "Advertise Extended Resources for a Node"
// of the Kubernetes documentation does.
func offers(t *testing.T, node, resource, count string) {
	t.Helper()
	key := strings.ReplaceAll(resource, "/", "~1")
	var ops []map[string]string
	for _, where := range []string{"capacity", "allocatable"} {
		ops = append(ops, map[string]string{"op": "add", "path": "/status/" + where + "/" + key, "value": count})
	}
	patch := func(ops []map[string]string) error {
		b, err := json.Marshal(ops)
		if err != nil {
			return err
		}
		_, err = output("kubectl", "patch", "node", node, "--subresource=status", "--type=json", "-p", string(b))
		return err
	}
	if err := patch(ops); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, o := range ops {
			o["op"] = "remove"
			delete(o, "value")
			_ = patch([]map[string]string{o}) // the node may be gone
		}
	})
}

// otherNode makes a Node that no kubelet stands behind. Its taint keeps everything away that does not tolerate all.
func otherNode(t *testing.T, name string, labels string) {
	t.Helper()
	apply(t, `apiVersion: v1
kind: Node
metadata: {name: `+name+`, labels: {`+labels+`}}
spec: {taints: [{key: fabric-test, effect: NoSchedule}]}
`)
	t.Cleanup(func() { k(t, "delete", "node", name) })
	// An empty status has no maps to patch into.
	k(t, "patch", "node", name, "--subresource=status", "--type=merge", "-p",
		`{"status":{"capacity":{"cpu":"8"},"allocatable":{"cpu":"8"}}}`)
}

// daemonSet makes one of this name, of pods that sleep.
func daemonSet(t *testing.T, name, tolerations string) {
	t.Helper()
	apply(t, `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: `+name+`, namespace: kube-system}
spec:
  selector: {matchLabels: {app: `+name+`}}
  template:
    metadata: {labels: {app: `+name+`}}
    spec:
      hostNetwork: true
      terminationGracePeriodSeconds: 1
      tolerations: [`+tolerations+`]
      containers: [{name: c, image: "localhost/box:e2e", imagePullPolicy: Never}]
`)
	t.Cleanup(func() { removed(t, "-n", "kube-system", "daemonset", name) })
	rolledOut(t, "kube-system", "daemonset/"+name)
}

// established waits until the API server serves a kind. kubectl wait fails on a CRD that has no conditions yet.
func established(t testing.TB, crd string) {
	t.Helper()
	until(t, crd+" is established", func() error {
		out, err := output("kubectl", "get", "crd", crd, "-o",
			`jsonpath={.status.conditions[?(@.type=="Established")].status}`)
		if err == nil && out != "True" {
			err = textError("Established: " + out)
		}
		return err
	})
}

// outputWith runs a program with a text on its standard input.
func outputWith(stdin, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
