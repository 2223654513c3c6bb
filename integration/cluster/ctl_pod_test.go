package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/image/oci"
)

// asking creates a pod with these annotations that asks for so many of a resource, for the test.
func asking(t *testing.T, name, annotations, resource string, count int) {
	t.Helper()
	resources := ""
	if count > 0 {
		resources = fmt.Sprintf(
			`, resources: {limits: {%s: "%d"}, requests: {%s: "%d"}}`,
			resource,
			count,
			resource,
			count,
		)
	}
	apply(t, `apiVersion: v1
kind: Pod
metadata: {name: `+name+`, annotations: {`+annotations+`}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: "localhost/box:e2e", imagePullPolicy: Never, securityContext: {capabilities: {add: [IPC_LOCK]}}`+resources+`}
`)
	t.Cleanup(func() { k(t, "delete", "pod", name, "--ignore-not-found", "--wait", "--timeout=90s") })
}

func networksOf(list string) string { return `k8s.v1.cni.cncf.io/networks: "` + list + `"` }

// explains asserts that what kubectl describe says of a pod is explained, as people would ask.
func explains(t *testing.T, pod string, ids ...string) {
	t.Helper()
	out, _ := ctlWith(t, 0, k(t, "describe", "pod", pod), nil, "doctor", "explain")
	says(t, "the events of "+pod, out, ids...)
}

// Story S1 from the host: which step is missing, on pods that kubelet, Multus and whereabouts have had to do with.
func TestCtlDoctorPod(t *testing.T) {
	const resource = "fabric.dev/ib-400g"
	rail(t, "rail0")
	rail(t, "rail1")
	network(t, "ib0", fabricOn("rail0", "ib0"))
	offers(t, "rig", resource, "4")
	apply(t, `apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: ib-400g, annotations: {k8s.v1.cni.cncf.io/resourceName: `+resource+`}}
spec: {config: '{"cniVersion":"1.0.0","name":"ib-400g","type":"fabric","ipam":{"type":"whereabouts","range":"198.51.100.0/28"}}'}
`)
	t.Cleanup(func() { k(t, "delete", "network-attachment-definition", "ib-400g") })

	t.Run("all right", func(t *testing.T) {
		asking(t, "right", networksOf("ib0"), "", 0)
		ready(t, "right")
		out, _ := ctl(t, 0, "doctor", "pod", "--pod", "right", "--all")
		says(
			t,
			"all right",
			out,
			"OK    pod-annotation  default/ib0",
			"OK    pod-multus",
			"OK    pod-nad",
			", 0 to look at, 0 wrong",
		)
	})
	t.Run("no annotation", func(t *testing.T) {
		asking(t, "bare", "", resource, 1)
		ready(t, "bare")
		out, _ := ctl(t, 3, "doctor", "pod", "--pod", "default/bare")
		says(t, "no annotation", out, "FAIL  pod-annotation  no annotation k8s.v1.cni.cncf.io/networks")
	})
	t.Run("no such network", func(t *testing.T) {
		asking(t, "lost", networksOf("ib-a100"), "", 0)
		event(t, "lost", "ib-a100")
		out, _ := ctl(t, 3, "doctor", "pod", "--pod", "lost")
		says(t, "no such network", out, "FAIL  pod-nad  default/ib-a100 does not exist", "FAIL  pod-multus")
		explains(t, "lost", "log-nad-missing")
	})
	t.Run("too few resources", func(t *testing.T) {
		asking(t, "few", networksOf("ib-400g, ib-400g, ib-400g, ib-400g"), resource, 1)
		event(t, "few", "deviceID")
		out, _ := ctl(t, 3, "doctor", "pod", "--pod", "few")
		says(t, "too few", out, "FAIL  pod-count  4 networks take a device of "+resource+", the pod asks for 1")
		explains(t, "few", "log-no-deviceid")
	})
	t.Run("too many for any node", func(t *testing.T) {
		asking(
			t,
			"many",
			networksOf("ib-400g, ib-400g, ib-400g, ib-400g, ib-400g, ib-400g, ib-400g, ib-400g"),
			resource,
			8,
		)
		event(t, "many", "Insufficient "+resource)
		explains(t, "many", "log-insufficient")
	})
	t.Run("in use", func(t *testing.T) {
		asking(t, "first", networksOf("ib0"), "", 0)
		ready(t, "first")
		asking(t, "second", networksOf("ib0"), "", 0)
		event(t, "second", "is in use by container")
		explains(t, "second", "log-in-use")
	})
	t.Run("range full", func(t *testing.T) {
		network(
			t,
			"narrow",
			`{"cniVersion":"1.0.0","name":"narrow","type":"fabric","device":"rail1","ipam":{"type":"whereabouts",`+
				`"range":"203.0.113.0/29","exclude":["203.0.113.0/30","203.0.113.4/30"]}}`,
		)
		asking(t, "full", networksOf("narrow"), "", 0)
		event(t, "full", "Could not allocate IP in range")
		explains(t, "full", "log-range-full")
	})
	t.Run("no such pod", func(t *testing.T) {
		_, diag := ctl(t, 1, "doctor", "pod", "--pod", "nowhere")
		says(t, "no such pod", diag, `fabricctl: --pod: kubectl -n default get pod nowhere`, "NotFound")
	})
	t.Run("from the host", func(t *testing.T) {
		asking(t, "inside", networksOf("ib0"), "", 0)
		ready(t, "inside")
		out, _ := ctl(t, 0, "list")
		says(t, "list", out, "default/inside", "net1", "rail0", "attached")
		id := strings.TrimPrefix(
			strings.TrimSpace(
				k(t, "get", "pod", "inside", "-o", "jsonpath={.status.containerStatuses[0].containerID}"),
			),
			"containerd://",
		)
		tasks, err := output("ctr", "-n", "k8s.io", "tasks", "list")
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^` + id + `\s+(\d+)`).FindStringSubmatch(tasks)
		if m == nil {
			t.Fatalf("no task %s in:\n%s", id, tasks)
		}
		out, _ = ctl(t, 3, "doctor", "pod", "--pid", m[1], "--all")
		says(t, "from the host", out, "pod-interface", "pod-memlock", "pod-verbs")
	})
	nothingLeft(t)
}

// tools is an image with what measuring needs: the node's own ip and ping, and perftest as recorded on two 200 Gb/s
// nodes, since no HCA is here. sh answers the question for the HCA of an interface; everything else goes to the real
// one.
func tools(t *testing.T) {
	t.Helper()
	file := func(path, text string) oci.File { return oci.File{Path: path, Data: []byte(text), Mode: 0o755} }
	image := oci.Image{
		Architecture: "amd64",
		Config: oci.Config{
			Entrypoint: []string{"/bin/sleep", "2147483647"},
			Env:        []string{"PATH=/rec:/usr/bin:/bin"},
		},
	}
	for _, dir := range []string{"/bin", "/rec", "/usr", "/usr/bin", "/etc", "/proc", "/sys", "/dev", "/tmp", "/lib", "/lib/x86_64-linux-gnu", "/lib64"} {
		image.Files = append(image.Files, oci.File{Path: dir})
	}
	busybox := filepath.Join(current.cache, "debroot/bin/busybox")
	image.Files = append(image.Files, oci.File{Path: "/bin/busybox", Source: busybox},
		oci.File{Path: "/usr/bin/fabricctl", Source: filepath.Join(current.run, "bin/fabricctl")})
	for _, name := range []string{"sh", "sleep", "timeout", "cat", "ls", "head"} {
		image.Files = append(image.Files, oci.File{Path: "/bin/" + name, Link: "busybox"})
	}
	image.Files = append(image.Files, perftestFiles(t)...)
	libraries := map[string]bool{}
	for _, name := range []string{"ip", "ping"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		image.Files = append(image.Files, oci.File{Path: "/usr/bin/" + name, Source: path})
		out, err := output("ldd", path)
		if err != nil {
			t.Fatal(err)
		}
		for _, lib := range regexp.MustCompile(`/lib\S+`).FindAllString(out, -1) {
			libraries[lib] = true
		}
	}
	for lib := range libraries {
		if slices.ContainsFunc(image.Files, func(f oci.File) bool { return f.Path == lib }) {
			continue // perftest has brought it
		}
		target, err := filepath.EvalSymlinks(lib)
		if err != nil {
			t.Fatal(err)
		}
		image.Files = append(image.Files, oci.File{Path: lib, Source: target})
	}
	recorded := func(name string) string {
		b, err := os.ReadFile(filepath.Join(current.repo, "cmd/fabricctl/internal/perftest/testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	// A server has no address as its last argument and waits; a client prints what was recorded.
	perftest := func(name string) string {
		return "#!/bin/sh\ncase \"$*\" in\n*10.99.*) cat <<'END'\n" + recorded(
			name,
		) + "\nEND\n;;\n*) exec sleep 3600 ;;\nesac\n"
	}
	image.Files = append(
		image.Files,
		file("/rec/ib_write_bw", perftest("bw-200g.txt")),
		file("/rec/ib_write_lat", perftest("lat.txt")),
		file("/rec/sh", `#!/bin/busybox sh
case "$4" in
net1) printf 'hca mlx5_0\nlayer InfiniBand\nrate 200 Gb/sec (4X HDR)\ngid 0 fe80:0000:0000:0000:0002:c903:00fa:0011\n' ;;
*) exec /bin/sh "$@" ;;
esac
`),
	)
	archive, err := current.image("localhost/tools:e2e", image)
	if err != nil {
		t.Fatal(err)
	}
	if err := current.load(archive); err != nil {
		t.Fatal(err)
	}
}

// perftestFiles are Debian's own ib_write_bw and ib_write_lat, with the libraries they load.
func perftestFiles(t *testing.T) (files []oci.File) {
	t.Helper()
	root := filepath.Join(current.cache, "perftest")
	for _, name := range []string{"ib_write_bw", "ib_write_lat"} {
		files = append(files, oci.File{Path: "/usr/bin/" + name, Source: filepath.Join(root, "usr/bin", name)})
	}
	for _, dir := range []string{"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"} {
		list, err := filepath.Glob(filepath.Join(root, dir, "lib*.so.*"))
		if err != nil || len(list) == 0 {
			t.Fatal(dir, list, err)
		}
		for _, lib := range list {
			target, err := filepath.EvalSymlinks(lib)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, oci.File{Path: "/lib/x86_64-linux-gnu/" + filepath.Base(lib), Source: target})
		}
	}
	for _, lib := range []string{"libm.so.6", "libc.so.6"} {
		target, err := filepath.EvalSymlinks("/lib/x86_64-linux-gnu/" + lib)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, oci.File{Path: "/lib/x86_64-linux-gnu/" + lib, Source: target})
	}
	return files
}

// linked is two rails on one switch: what one sends the other gets.
func linked(t *testing.T, names ...string) {
	t.Helper()
	ip(t, "link", "add", "switch0", "type", "bridge")
	t.Cleanup(func() { ip(t, "link", "delete", "switch0") })
	ip(t, "link", "set", "switch0", "up")
	for _, name := range names {
		rail(t, name)
		ip(t, "link", "set", name+"p", "master", "switch0")
	}
}

// Ping for real between pods through their rails, kubectl exec and all; perftest as recorded.
func TestCtlVerify(t *testing.T) {
	tools(t)
	linked(t, "rail0", "rail1", "rail2")
	for i, device := range []string{"rail0", "rail1", "rail2"} {
		name := fmt.Sprintf("verify%d", i)
		network(
			t,
			name,
			fmt.Sprintf(
				`{"cniVersion":"1.0.0","name":"%s","type":"fabric","device":"%s","ipam":{"type":"static",`+
					`"addresses":[{"address":"10.99.0.%d/24"}]}}`,
				name,
				device,
				i+1,
			),
		)
		apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: p%d, annotations: {k8s.v1.cni.cncf.io/networks: %s}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "localhost/tools:e2e", imagePullPolicy: Never}]
`, i, name))
		t.Cleanup(
			func() { k(t, "delete", "pod", fmt.Sprintf("p%d", i), "--ignore-not-found", "--wait", "--timeout=90s") },
		)
	}
	for i := range 3 {
		ready(t, fmt.Sprintf("p%d", i))
	}
	out, _ := ctl(t, 0, "verify", "--pods", "p0,p1")
	if !regexp.MustCompile(
		`1 +p0 +p1 +net1 +mlx5_0 +reachable +good +183\.6 of 200 Gb/s: good; 2\.73 us`,
	).MatchString(
		out,
	) {
		t.Errorf("two pods:\n%s", out)
	}
	out, _ = ctl(t, 0, "verify", "--pods", "p0,p1,p2", "-o", "json")
	var list []struct {
		Round   int
		A, B    string
		RTT     float64
		Verdict string
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 3 {
		t.Fatalf("%v: %s", err, out)
	}
	rounds := map[int]bool{}
	for _, r := range list {
		if r.Verdict != "good" || r.RTT <= 0 || rounds[r.Round] { // of three pods only two can measure at a time
			t.Errorf("%+v of %+v", r, list)
		}
		rounds[r.Round] = true
	}
	// From inside, as the container's user: it has an interface and no verbs device.
	out, err := outputWith("", "kubectl", "exec", "p0", "--", "fabricctl", "doctor", "pod", "--all")
	says(t, "doctor in the pod", out, "pod-verbs", "pod-memlock", "pod-shm", "command terminated with exit code 3")
	if err == nil {
		t.Error("doctor in the pod finds nothing")
	}
	out, _ = outputWith("", "kubectl", "exec", "p0", "--", "fabricctl", "nccl-env")
	says(t, "nccl-env in the pod", out, "# note: no usable RDMA port", "command terminated with exit code 3")
	// Debian's perftest takes the flags, and says what doctor explains: there is no HCA here.
	for _, args := range [][]string{{"ib_write_bw", "-d", "mlx5_0", "-i", "1", "-p", "18500", "-F", "--report_gbits"}, {"ib_write_lat", "-d", "mlx5_0", "-i", "1", "-p", "18501", "-F", "-x", "3", "10.99.0.2"}} {
		said, err := outputWith(
			"",
			"kubectl",
			append([]string{"exec", "p0", "--", "/usr/bin/" + args[0]}, args[1:]...)...)
		if err == nil {
			t.Errorf("%v works without an HCA: %s", args, said)
		}
		out, _ = ctlWith(t, 0, said, nil, "doctor", "explain")
		says(t, said, out, "log-no-such-device")
	}
	// One rail is taken off the switch.
	ip(t, "link", "set", "rail2p", "nomaster")
	out, _ = ctl(t, 3, "verify", "--pods", "p0,p2", "-o", "junit")
	says(t, "unplugged", out, `failures="1"`, "packets are lost")
	_, diag := ctl(t, 1, "verify", "--pods", "p0,nowhere")
	says(t, "no such pod", diag, "fabricctl: verify: nowhere: ip -j address show", "not found")
}

// Pods for one measurement, on the one node there is, with rails of a macvlan; gone afterwards, also when they never
// start.
func TestCtlVerifyDeploy(t *testing.T) {
	tools(t)
	rail(t, "rail0")
	offers(t, "rig", "nvidia.com/ib_100g", "8")
	network(
		t,
		"ib-100g",
		`{"cniVersion":"1.0.0","name":"ib-100g","plugins":[{"type":"macvlan","master":"rail0","mode":"bridge",`+
			`"ipam":{"type":"whereabouts","range":"10.99.1.0/24"}}]}`,
	)
	recording := plant(t, "v100")
	out, _ := ctl(
		t,
		0,
		"verify",
		"--deploy",
		"--same-node",
		"--workers",
		"3",
		"--image",
		"localhost/tools:e2e",
		recording,
	)
	for _, pair := range []string{"a +fabricctl-verify-b", "a +fabricctl-verify-c", "b +fabricctl-verify-c"} {
		for _, net := range []string{`net1 +mlx5_0 +reachable +good`, `net2 +- +reachable +skipped`} {
			if !regexp.MustCompile(`fabricctl-verify-` + pair + ` +` + net).MatchString(out) {
				t.Errorf("%s %s is missing in:\n%s", pair, net, out)
			}
		}
	}
	gone := func() {
		t.Helper()
		until(t, "the pods are gone", func() error {
			list, err := output("kubectl", "get", "pods", "-o", "name")
			if err == nil && strings.Contains(list, "fabricctl-verify") {
				err = textError(list)
			}
			return err
		})
	}
	gone()
	// Each pod wants a node of its own, and there is one.
	_, diag := ctl(t, 1, "verify", "--deploy", "--timeout", "5s", "--image", "localhost/tools:e2e", recording)
	says(t, "one node only", diag, "timed out waiting", "describe pod fabricctl-verify-")
	gone()
	nothingLeft(t)
}
