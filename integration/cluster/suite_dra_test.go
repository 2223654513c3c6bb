package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

// Kubernetes' own tests of DRA drivers (test/e2e/dra), on a node without Multus: with our driver for theirs, and a pod
// is right if its net1 has the MTU that its claim asks for. integration/suites/differences.txt has those that are not
// run.
func TestKubernetesDRA(t *testing.T) {
	dir := suiteDir(t, "dra")
	rigWithoutMultus(t)
	g := newDRARig(t, current.run+"/bin/held", 10) // as many as their driver has
	tag(t, "localhost/box:e2e", "registry.k8s.io/e2e-test-images/busybox:1.37.0-2")
	ginkgo(t, "kubernetes-dra", filepath.Join(dir, "suite"), nil, "-kubeconfig="+os.Getenv("KUBECONFIG"))
	g.allHome(t)
}
