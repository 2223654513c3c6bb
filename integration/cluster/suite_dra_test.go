package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/suites"
)

// Kubernetes' own tests of DRA drivers (test/e2e/dra), on a node without Multus: with our driver for theirs, and a pod
// is right if its net1 has the MTU that its claim asks for. integration/suites/differences.txt has those that are not
// run.
func TestKubernetesDRA(t *testing.T) {
	suite, err := filepath.EvalSymlinks(filepath.Join(current.cache, "dra", "suite"))
	if err != nil {
		t.Fatal(err, `: "make e2e E2E_RUN=TestKubernetesDRA" and make test-full build it`)
	}
	rigWithoutMultus(t)
	g := newDRARig(t, current.run+"/bin/held", 10) // as many as their driver has
	tag(t, "localhost/box:e2e", "registry.k8s.io/e2e-test-images/busybox:1.37.0-2")
	const name = "kubernetes-dra"
	parts := suites.Differences(t, filepath.Join(current.repo, "integration/suites/differences.txt"), name)
	quoted := make([]string, len(parts))
	for i, p := range parts {
		quoted[i] = regexp.QuoteMeta(p)
	}
	report := filepath.Join(t.TempDir(), "report.json")
	log, err := os.Create(filepath.Join(current.run, "log", name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(suite, "-kubeconfig="+os.Getenv("KUBECONFIG"), "-ginkgo.no-color", "-ginkgo.v",
		"-ginkgo.json-report="+report, "-ginkgo.skip="+strings.Join(quoted, "|"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), log, log
	err = cmd.Run()
	if _, serr := os.Stat(report); serr != nil {
		t.Fatal(err, serr)
	}
	suites.Judge(t, name, suites.Report(t, report), parts, "skipped")
	g.allHome(t)
}
