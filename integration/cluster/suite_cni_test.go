package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/suites"
	"github.com/fabric-cni/fabric-cni/scripts/image/oci"
)

// whereabouts' e2e, with its DaemonSet and its controller, and with fabric for macvlan: each interface is a rail that
// kubelet hands out. So many rails that a StatefulSet of 20 can grow by 20 while pods before it still end.
func TestWhereabouts(t *testing.T) {
	dir := suiteDir(t, "whereabouts")
	whereabouts(t, dir)
	rails := offered(t, "fabric.dev/rails", 48)
	env := []string{"NUMBER_OF_COMPUTE_NODES=1", "FILL_PERCENT_CAPACITY=20"}
	for _, name := range []string{"whereabouts", "whereabouts-slices"} {
		ginkgo(t, name, filepath.Join(dir, name), env)
		home(t, rails...)
		nothingLeft(t)
	}
}

// whereabouts has what its own DaemonSet and its controller of node slices run, for the test.
func whereabouts(t *testing.T, dir string) {
	t.Helper()
	busybox := filepath.Join(current.cache, "debroot/bin/busybox")
	image := oci.Image{Architecture: "amd64", Files: []oci.File{
		{Path: "/bin"}, {Path: "/bin/busybox", Source: busybox}, {Path: "/bin/sh", Link: "busybox"},
		{Path: "/dev"}, {Path: "/etc"}, {Path: "/proc"}, {Path: "/sys"}, {Path: "/tmp"},
		{Path: "/ip-control-loop", Source: filepath.Join(dir, "ip-control-loop")},
		{Path: "/node-slice-controller", Source: filepath.Join(dir, "node-slice-controller")},
		// The rig has installed the plugin, and its token is good for a day.
		{Path: "/install-cni.sh", Data: []byte("\n"), Mode: 0o755},
		{Path: "/token-watcher.sh", Data: []byte("#!/bin/sh\n"), Mode: 0o755},
	}}
	imported(t, "localhost/whereabouts:e2e", image)
	var all string
	for _, file := range []string{"daemonset-install.yaml", "node-slice-controller.yaml"} {
		text, err := documents(filepath.Join(current.cache, "crds", file), func(kind string) bool {
			return slices.Contains([]string{"ConfigMap", "DaemonSet", "Deployment"}, kind)
		})
		if err != nil {
			t.Fatal(err)
		}
		all += text
	}
	// Pools are where the DaemonSet is, as an installation has them.
	namespace := func(name string) {
		k(t, "config", "--kubeconfig=/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig", "set-context", "c",
			"--namespace="+name)
	}
	namespace("kube-system")
	t.Cleanup(func() { namespace("default") })
	workloads := []string{"-n", "kube-system", "daemonset/whereabouts", "deployment/whereabouts-controller",
		"configmap/whereabouts-config", "--cascade=foreground", "--grace-period=1"}
	t.Cleanup(func() { removed(t, workloads...) })
	apply(t, regexp.MustCompile(`ghcr\.io/\S+`).ReplaceAllString(all, "localhost/whereabouts:e2e"))
	rolledOut(t, "kube-system", "daemonset/whereabouts")
	rolledOut(t, "kube-system", "deployment/whereabouts-controller")
}

// multusKeepsRoute is what Multus' script prints of a fault of Multus 4.2.4, with any plugin: for default-route it
// takes away routes without a destination, and netlink gives a default route one since 1.3 (pkg/netutils/netutils.go,
// DeleteDefaultGW).
const multusKeepsRoute = "default-route-worker1 default route is different: 10.244.0.1"

// Multus' e2e scripts with fabric for macvlan and bridge. One that only prints that an address or a route is different
// has failed.
func TestMultus(t *testing.T) {
	const name = "multus"
	dir := filepath.Join(current.cache, "thick", "e2e")
	tools(t)
	tag(t, "localhost/tools:e2e", "docker.io/library/centos:8")
	rails := offered(t, "fabric.dev/rails", 3)
	// Multus finds no device of a static pod. kubelet may not know yet that a pod of an earlier script, which had one
	// of the rails, is deleted, and the plugin refuses what is given to another pod.
	const unoffered = "static0"
	rail(t, unoffered)
	work := t.TempDir()
	image := regexp.MustCompile(`(?m)^( *)image: centos:8`)
	changed := strings.NewReplacer(
		"{{ CNI_VERSION }}", "0.4.0",
		`"type": "macvlan",`, `"type": "fabric", "capabilities": {"deviceID": true, "ips": true},`,
		`"capabilities": { "ips": true },`, "",
		`"master": "eth1",`, "",
		`"mode": "bridge",`, "",
		`"type": "bridge",`, `"type": "fabric", "device": "`+unoffered+`",`,
		`"bridge": "testnet0",`, "",
		"-config\nspec:", "-config\n  annotations: {k8s.v1.cni.cncf.io/resourceName: fabric.dev/rails}\nspec:",
		"/bin/sleep", "sleep", // ended by SIGTERM
		"/bin/bash\", \"-c", "/bin/sh\", \"-c",
		"kubectl wait --for=condition=Ready --namespace=default pod/static-web-kind-worker",
		"kubectl wait --for=create --timeout=60s pod/static-web-rig\n"+ // kubectl wait fails before there is one
			"kubectl wait --for=condition=Ready --timeout=60s pod/static-web-rig",
		"kind-worker2", "rig", "kind-worker", "rig", // the node
		"10.244.1.1", "10.244.0.1", // the gateway of the cluster's network
	)
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, sub := range []string{"yamls", "bin"} {
		if err := os.Mkdir(filepath.Join(work, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(dir + "/*.yml")
	if err != nil {
		t.Fatal(err)
	}
	templates, err := filepath.Glob(dir + "/templates/*")
	if err != nil || len(files) == 0 || len(templates) == 0 {
		t.Fatal(files, templates, err)
	}
	for _, f := range slices.Concat(files, templates) {
		to := filepath.Base(f)
		if base, ok := strings.CutSuffix(to, ".j2"); ok {
			to = "yamls/" + base
		}
		text := changed.Replace(read(t, f))
		if to != "simple-static-pod.yml" {
			text = image.ReplaceAllString(text, "$0\n${1}resources: {limits: {fabric.dev/rails: 1}}")
		}
		write(to, text)
	}
	write("bin/docker", "#!/bin/sh\nverb=$1\nshift\ncase $verb in\ncp) cp \"$1\" \"${2#*:}\" ;;\n"+
		"exec) shift; exec \"$@\" ;;\nesac\n")
	scripts, err := filepath.Glob(dir + "/test-*.sh")
	if err != nil {
		t.Fatal(err)
	}
	parts := suites.Differences(t, filepath.Join(current.repo, "integration/suites/differences.txt"), name)
	var specs []suites.Spec
	for _, script := range scripts {
		spec := suites.Spec{Name: filepath.Base(script), State: "passed"}
		write(spec.Name, changed.Replace(read(t, script)))
		if slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(spec.Name, p) }) {
			spec.State = "skipped"
		} else {
			cmd := exec.Command("bash", "./"+spec.Name)
			cmd.Dir, cmd.Env = work, append(os.Environ(), "PATH="+work+"/bin:"+os.Getenv("PATH"))
			b, err := cmd.CombinedOutput()
			out := strings.ReplaceAll(string(b), multusKeepsRoute, "")
			if err != nil || strings.Contains(out, "is different") {
				spec.State, spec.Why = "failed", out
			}
		}
		specs = append(specs, spec)
	}
	suites.Judge(t, name, specs, parts, "skipped")
	home(t, append(rails, unoffered)...)
	nothingLeft(t)
}

// suiteDir is where scripts/cluster-setup.sh has put tests of others.
func suiteDir(t *testing.T, part string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(filepath.Join(current.cache, part))
	if err != nil {
		t.Fatal(err, ": make e2e E2E_RUN="+t.Name(), "and make test-full build it")
	}
	return dir
}

// ginkgo runs a suite but for those of its tests that integration/suites/differences.txt has, and judges its report.
func ginkgo(t *testing.T, name, program string, env []string, args ...string) {
	t.Helper()
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
	cmd := exec.Command(program, append(args, "-ginkgo.no-color", "-ginkgo.v", "-ginkgo.json-report="+report,
		"-ginkgo.skip="+strings.Join(quoted, "|"))...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = t.TempDir(), log, log, append(os.Environ(), env...)
	err = cmd.Run()
	if _, serr := os.Stat(report); serr != nil {
		t.Fatal(err, serr)
	}
	suites.Judge(t, name, suites.Report(t, report), parts, "skipped")
}
