package cluster

import (
	"bufio"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// modeSteps are the lines of node-mode behind which it is killed, each once, on whatever node it comes first.
var modeSteps = []string{"cordon", "drain", "evicting pod ", "write the mode", "rebooted", "check the mode"}

// nodeModeOf runs fabricctl node-mode shared or exclusive on the nodes, and kills it behind each line that a pattern of
// kill begins.
func nodeModeOf(t *testing.T, mode string, kill []string, nodes ...*LabNode) {
	t.Helper()
	args := []string{"node-mode", mode, "--max-unavailable=2", "--image=localhost/fabric-agent:latest"}
	for _, n := range nodes {
		args = append(args, n.Name)
	}
	left := slices.Clone(kill)
	for range len(kill) + 1 {
		cmd := exec.Command(filepath.Join(current.run, "bin/fabricctl"), args...)
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var complaints strings.Builder
		cmd.Stderr = &complaints
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		killed := ""
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			stage(t, lines.Text())
			_, text, _ := strings.Cut(lines.Text(), ": ")
			i := slices.IndexFunc(left, func(begin string) bool { return strings.HasPrefix(text, begin) })
			if i < 0 || killed != "" {
				continue
			}
			killed = left[i]
			left = slices.Delete(left, i, i+1)
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		err = cmd.Wait()
		var exit *exec.ExitError
		switch {
		case killed != "" && errors.As(err, &exit) && !exit.Exited():
			stage(t, "killed behind: "+killed)
		case err != nil:
			t.Fatalf("%v: %s", err, complaints.String())
		default:
			if len(left) > 0 {
				t.Errorf("it was never killed behind %q", left)
			}
			return
		}
	}
	t.Fatal("it was killed more often than there are steps")
}

var netnsMode = regexp.MustCompile(`netns (\w+)`)

// modeKilled has the nodes go to shared mode. node-mode is killed behind each of its steps, and goes on. Pods are
// evicted, and come back; nothing is left on the Nodes; the file and the initramfs are what the mode is in.
func modeKilled(t *testing.T, nodes ...*LabNode) {
	for _, n := range nodes {
		t.Cleanup(n.FollowReboots(func(err error) { t.Error(err) }))
	}
	apply(t, `apiVersion: v1
kind: Namespace
metadata: {name: fabric-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: evicted, namespace: default}
spec:
  selector: {matchLabels: {app: evicted}}
  template:
    metadata: {labels: {app: evicted}}
    spec:
      nodeSelector: {kubernetes.io/hostname: `+nodes[0].Name+`}
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: "localhost/box:e2e", imagePullPolicy: Never}]
`)
	t.Cleanup(func() {
		removed(t, "deployment/evicted")
		removed(t, "namespace", "fabric-system")
	})
	rolledOut(t, "default", "deployment/evicted")
	k(t, "cordon", nodes[1].Name) // it stays so
	nodeModeOf(t, "shared", modeSteps, nodes...)
	for i, n := range nodes {
		if m := netnsMode.FindStringSubmatch(on(t, n, "rdma system")); len(m) == 0 || m[1] != "shared" {
			t.Errorf("%s: rdma system: %q", n.Name, m)
		}
		got := k(t, "get", "node", n.Name, "-o", "jsonpath={.spec.unschedulable} {.metadata.annotations}")
		want := map[bool]string{true: "true", false: ""}[i == 1]
		if cordoned, notes, _ := strings.Cut(got, " "); cordoned != want || strings.Contains(notes, "fabric.dev/") {
			t.Errorf("%s: unschedulable and annotations: %s", n.Name, got)
		}
		if out := on(t, n, "cat /etc/modprobe.d/*; cat /out/initramfs/*"); strings.Count(out, "netns_mode=1") != 2 {
			t.Errorf("%s: modprobe.d and initramfs:\n%s", n.Name, out)
		}
		on(t, n, "rm -f /etc/modprobe.d/*")
	}
	k(t, "uncordon", nodes[1].Name)
	until(t, "no pod of node-mode is left", func() error {
		out, err := output("kubectl", "-n", "fabric-system", "get", "pods", "-o", "name")
		if err == nil && out != "" {
			err = textError(out)
		}
		return err
	})
	rolledOut(t, "default", "deployment/evicted")
	began := time.Now()
	nodeModeOf(t, "shared", nil, nodes...) // they are in it: nothing is done, and no file is needed
	stage(t, "again: "+time.Since(began).String())
}
