package cluster

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// kinds are what generate writes.
var kinds = []string{"fabric", "nad", "device-plugin", "deployment", "pod", "pytorchjob", "mpijob", "volcano",
	"perftest-pods", "claim"}

// judged has the API server look at generated objects; where it has no such kind, at the pods in them.
func judged(t *testing.T, what, text string) {
	t.Helper()
	for _, doc := range strings.Split(text, "\n---\n") {
		var o map[string]any
		if err := yaml.UnmarshalStrict([]byte(doc), &o); err != nil {
			t.Errorf("%s: %v in:\n%s", what, err, doc)
			continue
		}
		switch o["kind"] {
		case "MPIJob", "Job": // their operators' modules have no place here
			templates(t, what, o)
		default:
			dryRun(t, what, doc)
		}
	}
}

// rangeFlag is the flag of the kinds that have addresses.
func rangeFlag(kind string) []string {
	if kind == "fabric" || kind == "nad" {
		return []string{"--range", "198.18.0.0/16"}
	}
	return nil
}

func TestCtlGenerate(t *testing.T) {
	crds(t) // of Fabrics
	// Too large for the annotation that apply would make.
	k(t, "create", "-f", filepath.Join(current.cache, "jobs/kubeflow.org_pytorchjobs.yaml"))
	t.Cleanup(func() { k(t, "delete", "crd", "pytorchjobs.kubeflow.org") })
	established(t, "pytorchjobs.kubeflow.org")
	apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: ml}\n")
	t.Cleanup(func() { k(t, "delete", "namespace", "ml", "--wait") })
	for _, nodes := range [][]string{{"h20"}, {"v100", "a100", "a100-2"}, {"roce"}, {"gb200"}} {
		var recordings []string
		for _, n := range nodes {
			recordings = append(recordings, plant(t, n))
		}
		for _, kind := range kinds {
			what := kind + " of " + strings.Join(nodes, ", ")
			out, _ := ctl(t, 0, slices.Concat([]string{"generate", kind, "-n", "ml"}, rangeFlag(kind), recordings)...)
			judged(t, what, out)
		}
		out, _ := ctl(t, 0, append([]string{"generate", "device-plugin", "--shared", "-n", "ml"}, recordings...)...)
		judged(t, "shared device plugin", out)
		for _, kind := range []string{"nad", "device-plugin", "mpijob"} {
			args := slices.Concat([]string{"generate", kind, "--vfs", "-n", "ml"}, rangeFlag(kind), recordings)
			out, _ := ctl(t, 0, args...)
			judged(t, kind+" of VFs", out)
		}
	}
	// What is judged can fail.
	bad, _ := ctl(t, 0, "generate", "pytorchjob", "-n", "ml", "--root", plant(t, "h20"))
	if _, err := outputWith(strings.Replace(bad, "pytorchReplicaSpecs", "pytorchReplicas", 1), "kubectl", "apply",
		"--dry-run=server", "--validate=strict", "-f", "-"); err == nil {
		t.Error("a PyTorchJob with an unknown field is accepted")
	}
}

// A network that was generated gives a pod an address of its range, and none that is excluded: whereabouts takes the
// options. Its device is a veth here, named instead of counted.
func TestCtlGeneratedNetwork(t *testing.T) {
	rail(t, "rail0")
	text, _ := ctl(t, 0, "generate", "nad", "--root", plant(t, "h20"), "--range", "203.0.113.0/28", "--exclude",
		"203.0.113.0/30,203.0.113.8/29")
	text = strings.Replace(text, `"type": "fabric",`, `"type": "fabric", "device": "rail0",`, 1)
	text = regexp.MustCompile(`(?m)^.*resourceName:.*\n`).ReplaceAllString(text, "    test: rail\n")
	apply(t, text)
	t.Cleanup(func() { k(t, "delete", "network-attachment-definition", "ib-400g") })
	pod(t, "p1", "ib-400g")
	ready(t, "p1")
	if s := status(t, "p1"); len(s) != 2 || len(s[1].IPs) != 1 ||
		!slices.Contains([]string{"203.0.113.4", "203.0.113.5", "203.0.113.6", "203.0.113.7"}, s[1].IPs[0]) {
		t.Errorf("network-status: %+v", s)
	}
	says(t, "its own table", k(t, "exec", "p1", "--", "ip", "rule"), "from 203.0.113.")
	gone(t, "p1")
	home(t, "rail0")
	nothingLeft(t)
}

// What the agent says of its node, on the way to what is generated from it; the image's fabricctl; a bundle.
func TestCtlInventory(t *testing.T) {
	deploy(t)
	until(t, "the FabricNode is there", prints("e2e []",
		"get", "fabricnode", "rig", "-o",
		"jsonpath={.status.agent} {.status.inventory.hcas}"))
	out, _ := ctl(t, 0, "discover", "--cluster")
	says(t, "discover --cluster", out, "1 node, 0 RDMA devices")
	_, diag := ctl(t, 1, "generate", "fabric", "--cluster")
	says(t, "nothing there", diag, "no usable RDMA port on any node")
	_, diag = ctl(t, 1, "generate", "pod", "--cluster")
	says(t, "no Fabric", diag, "the cluster has no Fabric: fabricctl generate fabric --cluster writes them")

	t.Run("in the image", func(t *testing.T) {
		out := k(t, "-n", "fabric-system", "exec", "ds/fabric-agent", "-c", "agent", "--", "fabricctl", "discover")
		says(t, "discover in the agent's container", out, "node rig", "0 RDMA devices")
		out = k(t, "-n", "fabric-system", "exec", "ds/fabric-agent", "-c", "agent", "--", "kubectl-fabric", "--version")
		says(t, "version", out, "e2e")
	})
	t.Run("kubectl plugin", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Symlink(filepath.Join(current.run, "bin/fabricctl"),
			filepath.Join(dir, "kubectl-fabric")); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
		says(t, "kubectl fabric", k(t, "fabric", "discover"), "1 node, 0 RDMA devices")
		says(t, "kubectl fabric --local", k(t, "fabric", "discover", "--local"), "node rig")
	})
	t.Run("of machines", testInventories)
	t.Run("bundle", testBundle)
}

// Nodes as their agents would write them, of recorded machines: two kinds, V100 and A100, in two fabrics.
func testInventories(t *testing.T) {
	var recordings []string
	for _, name := range []string{"a100", "a100-2", "v100"} { // in the order of the cluster's
		otherNode(t, name, "")
		dir := plant(t, name)
		recordings = append(recordings, dir)
		fabricNode(t, name, dir)
	}
	want, _ := ctl(t, 0, append([]string{"generate", "fabric", "--range", "198.18.0.0/20"}, recordings...)...)
	got, _ := ctl(t, 0, "generate", "fabric", "--range", "198.18.0.0/20", "--cluster")
	if want != got {
		t.Errorf("generate fabric: from recordings\n%s\nfrom the cluster\n%s", want, got)
	}
	judged(t, "fabric --cluster", got)
	table, _ := ctl(t, 0, "discover", "--cluster")
	says(t, "discover --cluster", table, "4 nodes", "fabric ib-100g: 1 node, 2 rails", "fabric ib-200g: 2 nodes")
	one, _ := ctl(t, 0, "discover", "--cluster", "v100")
	says(t, "discover --cluster NODE", one, "node v100, 2 RDMA devices")

	daemonSet(t, "kube-multus-ds", "")
	out, _ := ctl(t, 3, "doctor", "cluster", "--all")
	says(t, "nodes without agents", out, "OK    cluster-versions  one version on 4 nodes", "OK    cluster-controller",
		"WARN  cluster-discovered  no Fabric has the ports of ib-100g (1 nodes, 2 rails)",
		"FAIL  cluster-agents  ") // these nodes have no kubelet: no pod of the agent, or none that is ready
	testFabricsOfCluster(t, got)

	// An update that did not reach one node; a network that names the interface of one kind of node.
	k(t, "patch", "fabricnode", "a100-2", "--subresource=status", "--type=merge", "-p", `{"status":{"agent":"v0"}}`)
	network(t, "rail", `{"cniVersion":"1.0.0","name":"rail","type":"fabric","device":"ibp33s0"}`)
	out, _ = ctl(t, 3, "doctor", "cluster")
	says(t, "skew", out, "WARN  cluster-versions  fabric-agent: e2e on a100, rig, v100; v0 on a100-2",
		"WARN  cluster-nad  default/rail names the interface ibp33s0, which is not on v100")
	k(t, "patch", "fabricnode", "v100", "--subresource=status", "--type=merge", "-p",
		`{"status":{"inventory":{"hcas":"none"}}}`)
	out, _ = ctl(t, 3, "doctor", "cluster")
	says(t, "broken", out, "WARN  cluster-access  FabricNode v100: status.inventory: ")
}

// testFabricsOfCluster applies the Fabrics that were generated, and asks for what they give to a pod.
func testFabricsOfCluster(t *testing.T, text string) {
	t.Helper()
	apply(t, text)
	t.Cleanup(func() {
		k(t, "delete", "fabric", "ib-100g", "ib-200g")
		until(t, "their networks are gone", func() error {
			left, err := output("kubectl", "get", "network-attachment-definitions", "-o", "name")
			if err == nil && strings.Contains(left, "/ib-") {
				err = textError(left)
			}
			return err
		})
	})
	devices := `{"id":"0000:3b:00.0","hca":"mlx5_0","rateGb":100},{"id":"0000:3b:00.1","hca":"mlx5_1","rateGb":100}`
	k(t, "patch", "fabricnode", "v100", "--subresource=status", "--type=merge", "-p",
		`{"status":{"fabrics":[{"name":"ib-100g","devices":[`+devices+`]}]}}`)
	until(t, "the Fabric is Ready", prints(`["default"] True`,
		"get", "fabric", "ib-100g", "-o",
		`jsonpath={.status.published} {.status.conditions[?(@.type=="Ready")].status}`))
	until(t, "the node has a range", prints("ib-100g",
		"get", "fabricnode", "v100", "-o", "jsonpath={.spec.ranges[*].fabric}"))
	pod, _ := ctl(t, 0, "generate", "pod", "--cluster")
	says(t, "generate pod --cluster", pod, "fabric.dev/ib-100g: 2", "cni.cncf.io/networks: ib-100g, ib-100g")
	judged(t, "pod --cluster", pod)
	out, _ := ctl(t, 3, "doctor", "cluster", "--all")
	says(t, "Fabrics", out, "FAIL  cluster-fabrics  Fabric ib-200g is not Ready: NoDevices:",
		"OK    cluster-node-ranges  every node has its ranges", "cure:  fabricctl generate fabric --cluster writes")
	silent(t, "Fabrics", out, "Fabric ib-100g is not Ready", "ports of ib-100g", "cluster-deletion")
}

// fabricNode writes what the agent of a recorded machine would.
func fabricNode(t *testing.T, name, dir string) {
	t.Helper()
	out, _ := ctl(t, 0, "discover", "--root", dir, "-o", "json")
	var d struct{ Node json.RawMessage }
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatal(err)
	}
	sum := k(t, "get", "fabricnode", "rig", "-o", "jsonpath={.status.plugin.sha256}")
	apply(t, "apiVersion: fabric.dev/v1alpha1\nkind: FabricNode\nmetadata: {name: "+name+"}\n")
	t.Cleanup(func() { k(t, "delete", "fabricnode", name, "--ignore-not-found") })
	b, err := json.Marshal(map[string]any{"status": map[string]any{
		"agent": "e2e", "plugin": map[string]string{"sha256": sum}, "inventory": d.Node,
	}})
	if err != nil {
		t.Fatal(err)
	}
	k(t, "patch", "fabricnode", name, "--subresource=status", "--type=merge", "-p", string(b))
}

func testBundle(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	ctl(t, 0, "support-bundle", "--cluster", "--output-file", file)
	list, err := output("tar", "tzf", file)
	if err != nil {
		t.Fatal(err)
	}
	says(t, "bundle", list, "fabric-support/node.tar.gz", "fabric-support/doctor-host.json",
		"fabric-support/commands/kubectl_get_nodes_-o_wide.txt")
	text, err := output("tar", "xzOf", file, "fabric-support/commands/kubectl_get_nodes_-o_wide.txt",
		"fabric-support/plugin.sha256", "fabric-support/commands/kubectl_-n_kube-system_get_daemonsets_-o_wide.txt",
		"fabric-support/doctor-host.json")
	if err != nil {
		t.Fatal(err)
	}
	says(t, "bundle", text, "rig", "/opt/cni/bin/fabric", "host-plugin")
	all, err := output("tar", "xzOf", file)
	if err != nil {
		t.Fatal(err)
	}
	token := read(t, "/etc/cni/net.d/multus.d/multus.kubeconfig")
	m := regexp.MustCompile(`token: "([^"]+)"`).FindStringSubmatch(token)
	if m == nil || strings.Contains(all, m[1]) {
		t.Error("Multus's token is in the bundle, or in no file")
	}
}

// The address that plan names is the one that host-local then gives.
func TestCtlPlan(t *testing.T) {
	rail(t, "rail0")
	ip(t, "netns", "add", "planned")
	t.Cleanup(func() { ip(t, "netns", "delete", "planned") })
	const ns = "/run/netns/planned"
	conf := `{"cniVersion":"1.0.0","name":"planned","type":"fabric","device":"rail0","ipam":{"type":"host-local",` +
		`"ranges":[[{"subnet":"10.98.0.0/29"}],[{"subnet":"fd98::/64"}]]}}`
	for range 3 { // round-robin: another one each time
		plan, _ := ctlWith(t, 0, conf, nil, "plan", "--netns", ns, "-f", "-")
		addresses := regexp.MustCompile(`ip addr add (\S+)`).FindAllStringSubmatch(strings.Split(plan, "# DEL")[0], -1)
		if len(addresses) != 2 {
			t.Fatalf("%v:\n%s", addresses, plan)
		}
		cni := func(command string) {
			t.Helper()
			cmd := exec.Command("/opt/cni/bin/fabric")
			cmd.Stdin = strings.NewReader(conf)
			cmd.Env = []string{
				"CNI_COMMAND=" + command,
				"CNI_CONTAINERID=planned",
				"CNI_IFNAME=net1",
				"CNI_NETNS=" + ns,
				"CNI_PATH=/opt/cni/bin",
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", command, err, out)
			}
		}
		cni("ADD")
		have := ip(t, "-n", "planned", "address", "show", "net1")
		for _, a := range addresses {
			says(t, "what plan said", have, " "+a[1]+" ")
		}
		cni("DEL")
	}
	home(t, "rail0")
	nothingLeft(t)
}
