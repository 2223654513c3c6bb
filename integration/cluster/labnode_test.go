package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/integration/lab/guest"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/scripts/image"
)

// images are the archives that nodes of the lab get.
func images(t *testing.T) []string {
	t.Helper()
	agent, err := current.image("localhost/fabric-agent:latest",
		image.Agent("amd64", filepath.Join(current.run, "bin"), "e2e"))
	if err != nil {
		t.Fatal(err)
	}
	return []string{filepath.Join(current.run, "box.tar"), agent}
}

// boot starts a node of the lab for the test, and returns before it is up.
func boot(t *testing.T, number int, images []string, mode string, rails, spares []Rail) *LabNode {
	t.Helper()
	n, err := current.Boot(number, images, mode, rails, spares)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			n.Logs(os.Stderr)
		}
		if err := n.Shutdown(); err != nil {
			t.Error(err)
		}
		k(t, "delete", "node", n.Name, "--ignore-not-found")
	})
	return n
}

// stage notes how long all tests have taken up to now.
func stage(t *testing.T, what string) {
	t.Helper()
	t.Logf("%5.1f s: %s", time.Since(began).Seconds(), what)
}

var began = time.Now()

func on(t *testing.T, n *LabNode, script string) string {
	t.Helper()
	out, err := n.Run(script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// state is that of the node without what does not concern the plugin: the interfaces of the cluster's own network, the
// files of other plugins, and what the agent notes of each Fabric's ranges, which stays until the agent goes.
func state(n *LabNode) (guest.State, error) {
	s, err := n.State()
	if err != nil {
		return s, err
	}
	others := func(text string) bool { return strings.Contains(text, "cni0") || strings.Contains(text, "veth") }
	for name := range s.Links {
		if others(name) {
			delete(s.Links, name)
		}
	}
	for name := range s.Addrs {
		if others(name) {
			delete(s.Addrs, name)
		}
	}
	for path := range s.Files {
		ranges, _ := filepath.Match("/run/fabric-cni/ipam/*/ranges", path)
		ranges = ranges || strings.HasPrefix(path, "/run/fabric-cni/networks/")
		if ranges || !strings.HasPrefix(path, "/run/fabric-cni/") {
			delete(s.Files, path)
		}
	}
	s.Routes = slices.DeleteFunc(s.Routes, others)
	return s, nil
}

// settled is the state once nothing changes any more: carriers and link-local addresses are there.
func settled(t *testing.T, n *LabNode) (s guest.State) {
	t.Helper()
	eventually(t, n.Name+" has settled", func() error {
		last := s
		var err error
		if s, err = state(n); err != nil {
			return err
		}
		for _, r := range n.Rails {
			if !strings.Contains(strings.Join(s.Addrs[r.Netdev], " "), "fe80:") {
				return textError(r.Netdev + " has no link-local address")
			}
		}
		if diff := guest.Diff(last, s); diff != "" {
			return textError(diff)
		}
		return nil
	})
	return s
}

// returned waits until the node is what it was, and no address is held.
func returned(t *testing.T, n *LabNode, before guest.State) {
	t.Helper()
	eventually(t, n.Name+" is what it was (-before +after)", func() error {
		now, err := state(n)
		if err != nil {
			return err
		}
		if diff := guest.Diff(before, now); diff != "" {
			return textError(diff)
		}
		return nil
	})
	eventually(t, "no address is held", func() error {
		list, err := allocations(n)
		if err == nil && len(list) > 0 {
			err = textError(strings.Join(list, " "))
		}
		return err
	})
}

// allocations are the addresses of the node's ranges that pods hold, as fabric/address.
func allocations(n *LabNode) ([]string, error) {
	out, err := n.Run("cd " + journal.DefaultDir + "/ipam && find * -type f -name '[0-9]*' || true")
	return strings.Fields(out), err
}

// railPod is a pod with this many rails of a fabric, on a node.
func railPod(t *testing.T, name, fabric string, rails int, node string) {
	t.Helper()
	networks := strings.TrimSuffix(strings.Repeat(fabric+", ", rails), ", ")
	selector := ""
	if node != "" {
		selector = "kubernetes.io/hostname: " + node
	}
	apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {k8s.v1.cni.cncf.io/networks: %q}}
spec:
  nodeSelector: {%s}
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: localhost/box:e2e
    imagePullPolicy: Never
    resources: {requests: {fabric.dev/%s: %d}, limits: {fabric.dev/%s: %d}}
`, name, networks, selector, fabric, rails, fabric, rails))
	t.Cleanup(func() { gone(t, name) })
}

// deployNodes installs the project for the nodes of the lab: its image, what is deployed, and a flag that makes tests
// short. Emulated nodes take their time: for probes, and the controller runs on this machine.
func deployNodes(t *testing.T) {
	t.Helper()
	dir := kustomization(t, `patches:
- target: {kind: Deployment}
  patch: |
    - {op: replace, path: /spec/replicas, value: 0}
- target: {kind: DaemonSet}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --grace=5s}
    - {op: replace, path: /spec/template/spec/containers/0/livenessProbe/timeoutSeconds, value: 60}
    - {op: replace, path: /spec/template/spec/containers/0/readinessProbe/timeoutSeconds, value: 60}
`)
	crds(t)
	k(t, "apply", "-k", dir)
	t.Cleanup(func() { removed(t, "-k", dir) })
	controller(t)
}

// fabricsOf applies the Fabrics of an overlay for the test.
func fabricsOf(t *testing.T, overlay string) {
	t.Helper()
	file := applyFabrics(t, overlay)
	t.Cleanup(func() { removed(t, "-f", file) })
}

// applyFabrics applies the Fabrics of an overlay, and returns their file.
func applyFabrics(t *testing.T, overlay string) string {
	t.Helper()
	file := filepath.Join(current.repo, "deployments/overlays", overlay, "fabrics.yaml")
	k(t, "apply", "-f", file)
	return file
}

// deployed waits until the agents are Ready.
func deployed(t *testing.T) {
	t.Helper()
	rolledOut(t, "fabric-system", "daemonset/fabric-agent")
}
