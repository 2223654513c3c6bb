package cluster

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/scripts/image"
	"github.com/fabric-cni/fabric-cni/scripts/image/oci"
)

// tools is the image fabric-tools, with perftest as recorded on two 200 Gb/s nodes, since no HCA is here. sh answers
// the question for the HCA of an interface; everything else goes to the real one.
func tools(t *testing.T) {
	t.Helper()
	file := func(path, text string) oci.File { return oci.File{Path: path, Data: []byte(text), Mode: 0o755} }
	image, err := image.Tools("amd64", filepath.Join(current.cache, "tools"), filepath.Join(current.run, "bin"), "e2e")
	if err != nil {
		t.Fatal(err)
	}
	image.Config.Env = []string{"PATH=/rec:/usr/bin:/bin"}
	image.Files = append(image.Files, oci.File{Path: "/rec"})
	// rping has no recording, and no HCA to run on.
	image.Files = slices.DeleteFunc(image.Files, func(f oci.File) bool { return filepath.Base(f.Path) == "rping" })
	recorded := func(name string) string {
		return read(t, filepath.Join(current.repo, "cmd/fabricctl/internal/perftest/testdata", name))
	}
	// A server has no address as its last argument and waits; a client prints what was recorded.
	perftest := func(name string) string {
		return "#!/bin/sh\ncase \"$*\" in\n*--help*) echo usage ;;\n*10.99.*) cat <<'END'\n" + recorded(name) +
			"\nEND\n;;\n*) exec /bin/sleep 3600 ;;\nesac\n"
	}
	image.Files = append(image.Files,
		file("/rec/ib_write_bw", perftest("bw-200g.txt")),
		file("/rec/ib_write_lat", perftest("lat.txt")),
		// The first process of a container is not ended by SIGTERM unless it handles it: pods go at once by this one.
		file("/rec/sleep", "#!/bin/busybox sh\ntrap 'exit 0' TERM\n/bin/sleep \"$@\" &\nwait\n"),
		file("/rec/sh", `#!/bin/busybox sh
case "$4" in
net1)
	a=$(ip -4 -o address show dev net1)
	a=${a#*inet }
	printf 'port mlx5_0 1 1\nlink_layer Ethernet\nstate 4: ACTIVE\nphys_state 5: LinkUp\nrate 200 Gb/sec (4X HDR)\n'
	printf 'gid 3 ::ffff:%s net1 RoCE v2\n' "${a%%/*}"
	;;
*) exec /bin/sh "$@" ;;
esac
`),
	)
	imported(t, "localhost/tools:e2e", image)
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
		t.Cleanup(func() { gone(t, fmt.Sprintf("p%d", i)) })
	}
	for i := range 3 {
		ready(t, fmt.Sprintf("p%d", i))
	}
	out, _ := ctl(t, 0, "verify", "p0", "p1")
	want := regexp.MustCompile(`1 +p0 +p1 +net1 +mlx5_0 +reachable +good +183\.6 of 200 Gb/s: good; back 183\.6 .*; 2\.73 us`)
	if !want.MatchString(out) {
		t.Errorf("two pods:\n%s", out)
	}
	out, _ = ctl(t, 0, "verify", "p0", "p1", "p2", "-o", "json")
	var report struct {
		Results []struct {
			Round   int
			A, B    string
			RTT     float64
			Verdict string
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Results) != 3 {
		t.Fatalf("%v: %s", err, out)
	}
	list := report.Results
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
	for _, line := range []string{"ib_write_bw -d mlx5_0 -i 1 -p 18500 -F --report_gbits",
		"ib_write_lat -d mlx5_0 -i 1 -p 18501 -F -x 3 10.99.0.2"} {
		said, err := outputWith("", "kubectl", strings.Fields("exec p0 -- /usr/bin/"+line)...)
		if err == nil {
			t.Errorf("%s works without an HCA: %s", line, said)
		}
		out, _ = ctlWith(t, 3, said, nil, "doctor", "explain")
		says(t, said, out, "log-no-such-device")
	}
	// One rail is taken off the switch.
	ip(t, "link", "set", "rail2p", "nomaster")
	out, _ = ctl(t, 3, "verify", "p0", "p2", "-o", "junit")
	says(t, "unplugged", out, `failures="1"`, "packets are lost")
	_, diag := ctl(t, 1, "verify", "p0", "nowhere")
	says(t, "no such pod", diag, "fabricctl: verify: nowhere: create pods/exec default/nowhere: ",
		`pods "nowhere" not found`)
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
	// net2 has no device in these recordings, so it was not measured.
	out, _ := ctl(t, 3, "verify", "--deploy", "--timeout", machine.scaled(3*time.Minute).String(),
		"--same-node", "--workers", "3", "--image", "localhost/tools:e2e", recording)
	for _, pair := range []string{"a +fabricctl-verify-b", "a +fabricctl-verify-c", "b +fabricctl-verify-c"} {
		for _, net := range []string{`net1 +mlx5_0 +reachable +good`, `net2 +- +reachable +skipped`} {
			if !regexp.MustCompile(`fabricctl-verify-` + pair + ` +` + net).MatchString(out) {
				t.Errorf("%s %s is missing in:\n%s", pair, net, out)
			}
		}
	}
	deployedGone := func() {
		t.Helper()
		until(t, "the pods are gone", func() error {
			list, err := output("kubectl", "get", "pods", "-o", "name")
			if err == nil && strings.Contains(list, "fabricctl-verify") {
				err = textError(list)
			}
			return err
		})
	}
	deployedGone()
	// Each pod wants a node of its own, and there is one.
	_, diag := ctl(t, 1, "verify", "--deploy", "--timeout", "5s", "--image", "localhost/tools:e2e", recording)
	says(t, "one node only", diag, "is not Ready: timed out after 5s", "describe pod fabricctl-verify-")
	deployedGone()
	nothingLeft(t)
}
