//go:build labguest

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/apiserver"
)

// verifyResult is what a test looks at of the results of fabricctl verify.
type verifyResult struct {
	A, B, Rail, RailB, HCA, Ping, RPing, GID, Verdict, Text string
	RateGb                                                  float64
	Repeats                                                 int
	Reached                                                 *bool
	Bandwidth, Reverse                                      *struct{ Bytes, PeakGb, AverageGb float64 }
	Latency                                                 *struct{ Bytes, Min, Typical, Max, P99 float64 }
}

// measured reports whether perftest has measured both ways, which no figure of an emulated machine says more about.
func (r verifyResult) measured() bool {
	b, l := r.Bandwidth, r.Latency
	return b != nil && b.Bytes == 65536 && b.AverageGb > 0 && r.Reverse != nil && r.Reverse.AverageGb > 0 &&
		l != nil && l.Min > 0 && l.Min <= l.Typical && l.Typical <= l.Max
}

// verify runs fabricctl verify between two pods, behind the words of another program if there are any, and returns its
// results.
func verify(t *testing.T, status int, pods []*Pod, behind ...string) []verifyResult {
	t.Helper()
	return verifyEnds(t, status, []string{"--netns", pods[0].Path + "," + pods[1].Path}, behind...)
}

func verifyEnds(t *testing.T, status int, ends []string, behind ...string) []verifyResult {
	t.Helper()
	return verifyReported(t, status, ends, behind...).Results
}

// verifyReport is what a test looks at of a whole report.
type verifyReport struct {
	Findings, NotTested []string
	Results             []verifyResult
}

// verifyReported measures with few messages: time is dear in an emulated machine.
func verifyReported(t *testing.T, status int, ends []string, behind ...string) (report verifyReport) {
	t.Helper()
	words := append(append(behind, filepath.Join(BinDir(), "fabricctl"), "verify", "-o", "json", "--iterations", "50"),
		ends...)
	cmd := exec.Command(words[0], words[1:]...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != status {
		t.Fatalf("%v: %v, want status %d: %s%s", words, err, status, out, stderr.String())
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v: %v: %s", words, err, out)
	}
	return report
}

// railed makes two pods with an attachment each that reach each other, and del deletes the attachments.
func railed(t *testing.T, fields func(i int) config) (pods []*Pod, del func()) {
	t.Helper()
	pods = []*Pod{NewPod(t, "a"), NewPod(t, "b")}
	var all []*attachment
	for i, pod := range pods {
		f := fields(i)
		f["ipam"] = static(fmt.Sprintf("10.1.0.%d/24", i+1))
		a := interfaceOf(pod, "net1", network(f))
		a.add(t)
		all = append(all, a)
	}
	ping(t, pods[0], "10.1.0.2") // an Ethernet link takes seconds to come up
	return pods, func() {
		for _, a := range all {
			a.del(t)
		}
	}
}

func wholeHCA(i int) config { return config{"device": fmt.Sprintf("ib%d", i)} }

// Between network namespaces verify runs the perftest of this machine in them, reads what it prints, and judges it: no
// emulated port does 200 Gb/s.
func TestVerifyMeasures(t *testing.T) {
	UserLand(t)
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	pods, del := railed(t, wholeHCA)
	defer del()
	list := verify(t, 3, pods)
	if len(list) != 1 {
		t.Fatalf("%+v", list)
	}
	if r := list[0]; r.HCA != "mlx5_0" || r.Ping != "reachable" || r.RPing != "reachable" ||
		r.GID != "same subnet prefix" || r.RateGb != 200 ||
		!r.measured() || r.Verdict != "slow" || !containsAll(r.Text, " of 200 Gb/s: slow", "; back ", " us") {
		t.Errorf("%+v, %+v, %+v", r, r.Bandwidth, r.Latency)
	}
}

// In pods the same is run through an API server, which is a stub here.
func TestVerifyPods(t *testing.T) {
	UserLand(t)
	if err := run("ip", "link", "set", "lo", "up"); err != nil { // fabricctl asks the server over it
		t.Fatal(err)
	}
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	_, del := railed(t, wholeHCA)
	defer del()
	dir := t.TempDir()
	// The first run says what perftest says where it could not measure the clock.
	stub := "#!/bin/sh\n# NAMESPACE POD COMMAND\np=$2; shift 2\n" +
		"[ $1 = ib_write_bw ] && mkdir " + dir + "/once && {\n" +
		"	until ip netns exec $p \"$@\" >/dev/null; do sleep 0.2; done\n" + // the server may be later
		"	echo 'Correlation coefficient r^2: 0.4 < 0.9'; exit\n}\n" +
		"exec ip netns exec $p \"$@\"\n"
	server := apiserver.New(dir)
	t.Cleanup(server.Close)
	kubeconfig, err := server.Kubeconfig("default")
	err = errors.Join(err, os.Mkdir(filepath.Join(dir, "bin"), 0o755),
		os.WriteFile(filepath.Join(dir, "bin/pod"), []byte(stub), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", kubeconfig)
	// A thousandth of the rate shows that it works, and says nothing of this machine's speed.
	saved, ends := filepath.Join(dir, "last.json"), []string{"a", "b", "--good", "0.1"}
	list := verifyEnds(t, 0, append(slices.Clone(ends), "--output-file", saved))
	if len(list) != 1 || list[0].A != "a" || list[0].HCA != "mlx5_0" || !list[0].measured() ||
		list[0].Verdict != "good" || list[0].Repeats == 0 {
		t.Errorf("in pods: %+v", list)
	}
	// The same again, against a run that was a hundred times as fast, and with a threshold that nothing reaches.
	b, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	faster := regexp.MustCompile(`"averageGb": \d+`).ReplaceAll(b, []byte(`"averageGb": 10000`))
	if err := os.WriteFile(saved, faster, 0o600); err != nil {
		t.Fatal(err)
	}
	list = verifyEnds(t, 3, append(slices.Clone(ends), "--tests", "bandwidth", "--baseline", saved, "--threshold",
		"200=199"))
	if len(list) != 1 || list[0].Verdict != "slow" || !containsAll(list[0].Text, "% less than in the last run: 10000",
		" of 200 Gb/s: slow", "; back ") {
		t.Errorf("against a faster run: %+v", list)
	}
}

// Planes, as partitions of one fabric. The rails of a third pod are swapped: what reaches what shows it, by real queue
// pairs in these partitions.
func TestVerifyGate(t *testing.T) {
	UserLand(t)
	Fabric{Num: 3}.Load(t)
	Unchanged(t)
	var ends []string
	for i, name := range []string{"a", "b", "c"} {
		pod := NewPod(t, name)
		a := interfaceOf(pod, "net1", network(config{"device": fmt.Sprintf("ib%d", i),
			"ipam": static(fmt.Sprintf("10.1.0.%d/24", i+1))}))
		a.add(t)
		defer a.del(t)
		planes := []string{"0x8001", "0x8002"}
		if name == "c" {
			slices.Reverse(planes)
		}
		for j, pkey := range planes {
			pod.sh(t, fmt.Sprintf("ip link add link net1 name net%d type ipoib pkey %s\nip link set net%d up\n"+
				"ip address add 10.%d.0.%d/24 dev net%d", j+2, pkey, j+2, j+2, i+1, j+2))
		}
		// The pod's own network, by which the two sides of perftest find each other.
		pod.sh(t, fmt.Sprintf("ip link add link net1 name eth0 type ipoib pkey 0x8003\nip link set eth0 up\n"+
			"ip address add 10.9.0.%d/24 dev eth0", i+1))
		ends = append(ends, pod.Path)
	}
	for _, to := range []string{"10.9.0.2", "10.9.0.3"} {
		Until(t, "the pods reach each other", func() error {
			return run("ip", "netns", "exec", "a", "ping", "-c", "1", "-W", "1", to)
		})
	}
	report := verifyReported(t, 3, []string{"--netns", strings.Join(ends, ","), "--interfaces", "net2,net3",
		"--tests", "bandwidth", "--good", "0.1", "--cross-rail", "forbidden"})
	if len(report.Results) != 3*4 {
		t.Fatalf("%+v", report)
	}
	for _, r := range report.Results {
		own, swapped := r.RailB == "", r.B == ends[2]
		reached := own != swapped
		if r.Reached != nil && *r.Reached != reached || r.Reached == nil {
			t.Errorf("reached is not %t: %+v", reached, r)
		}
		want := map[bool]string{true: "good", false: "failed"}[!swapped]
		if r.Verdict != want {
			t.Errorf("not %s: %+v", want, r)
		}
	}
	if len(report.Findings) != 2 || !containsAll(report.Findings[0],
		"net2 of /run/netns/c reaches net3 of /run/netns/a, /run/netns/b", "its cable is in another rail's switch") ||
		!containsAll(report.Findings[1], "net3 of /run/netns/c") {
		t.Errorf("%q", report.Findings)
	}
}

// A RoCE rail is measured with the GID of its address.
func TestVerifyRoCE(t *testing.T) {
	UserLand(t)
	nics := nics(t, "e1000e")
	eth := []string{nics[0].Attrs().Name, nics[1].Attrs().Name}
	Fabric{RoCE: eth, RoCEVerbs: true}.Load(t)
	Unchanged(t)
	pods, del := railed(t, func(i int) config { return config{"device": eth[i]} })
	defer del()
	list := verify(t, 3, pods)
	if len(list) != 1 || list[0].HCA != "mlx5_0" || !list[0].measured() || list[0].Verdict != "slow" ||
		!strings.HasPrefix(list[0].GID, "RoCE v2, index ") {
		t.Errorf("%+v", list)
	}
}

// A child of an IPoIB interface is measured in its own partition.
func TestVerifyChild(t *testing.T) {
	UserLand(t)
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	pods, del := railed(t, func(i int) config {
		return config{"device": fmt.Sprintf("ib%d", i)}
	})
	defer del()
	for i, pod := range pods {
		pod.sh(t, fmt.Sprintf("ip link add link net1 name net2 type ipoib pkey 0x8001\n"+
			"ip link set net2 up; ip address add 10.2.0.%d/24 dev net2", i+1))
	}
	Until(t, "the children reach each other", func() error {
		return run("ip", "netns", "exec", "a", "ping", "-c", "1",
			"-W", "1", "10.2.0.2")
	})
	ends := []string{"--netns", pods[0].Path + "," + pods[1].Path, "--interfaces", "net2"}
	if list := verifyEnds(t, 3, ends); len(list) != 1 || list[0].Rail != "net2" || !list[0].measured() {
		t.Errorf("%+v", list)
	}
}

// unlocked is a way to start a program that may not pin memory, as in a container without IPC_LOCK.
var unlocked = []string{"setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock", "prlimit",
	"--memlock=0"}

// What keeps a rail from being measured, and what verify says of it.
func TestVerifyFails(t *testing.T) {
	UserLand(t)
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	pods, del := railed(t, wholeHCA)
	defer del()
	failed := func(t *testing.T, list []verifyResult, ping string, words ...string) {
		t.Helper()
		if len(list) != 1 || list[0].Verdict != "failed" || list[0].Ping != ping ||
			!containsAll(list[0].Text, words...) {
			t.Errorf("%+v, want %s and %q", list, ping, words)
		}
	}
	t.Run("memory is not to be pinned", func(t *testing.T) {
		failed(t, verify(t, 3, pods, unlocked...), "reachable", "ib_write_bw", "log-mr", "IPC_LOCK")
	})
	t.Run("no perftest", func(t *testing.T) {
		dir := t.TempDir()
		for _, name := range []string{"ip", "ping", "sh", "ls"} {
			path, err := exec.LookPath(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", dir)
		failed(t, verify(t, 3, pods), "reachable", "ib_write_bw", "not found", "install perftest")
	})
	t.Run("the port is Down", func(t *testing.T) {
		SetStates(t, 4, 1)
		defer SetStates(t, 4, 4)
		failed(t, verify(t, 3, pods), "unreachable", "b: port mlx5_1:1 is Down (Polling)", "log-port-down",
			"ping -I net1")
	})
}

// Pods that have an RDMA device and no interface of it, as in shared mode: what is needed is a way for TCP.
func TestVerifyNoInterface(t *testing.T) {
	UserLand(t)
	Fabric{Num: 2, Bare: true}.Load(t)
	Unchanged(t)
	pods := []*Pod{NewPod(t, "a"), NewPod(t, "b")}
	for i, pod := range pods {
		name := fmt.Sprintf("mlx5_%d", i)
		if err := MoveRDMA(name, pod.Path); err != nil {
			t.Fatal(err)
		}
		defer TakeBack(t, pod, name)
	}
	verify := exec.Command(filepath.Join(BinDir(), "fabricctl"), "verify", "--netns", pods[0].Path+","+pods[1].Path)
	out, err := verify.CombinedOutput()
	if err == nil || verify.ProcessState.ExitCode() != 1 || !containsAll(string(out),
		"/run/netns/a has RDMA devices (mlx5_0:1), and no interface with an address",
		"fabricctl doctor pod --netns /run/netns/a") {
		t.Errorf("verify: %v: %s", err, out)
	}
	wire(t, pods[0], pods[1])
	for i, pod := range pods {
		pod.sh(t, fmt.Sprintf("ip address add 10.9.0.%d/24 dev eth0; ip link set eth0 up; ip link set lo up", i+1))
	}
	report := verifyReported(t, 0, []string{"--netns", pods[0].Path + "," + pods[1].Path, "--good", "0.1"})
	if list := report.Results; len(list) != 1 || list[0].Rail != "mlx5_0:1" || list[0].Ping != "no interface" ||
		!list[0].measured() || list[0].Verdict != "good" ||
		!slices.Contains(report.NotTested, "ping and rping: not tested on rails without an interface") {
		t.Errorf("%+v", report)
	}
}

// What doctor pod says of a pod is what RDMA programs in it find: the same that verify and doctor explain are told.
func TestVerifyDoctorIsRight(t *testing.T) {
	UserLand(t)
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	pods, del := railed(t, wholeHCA)
	defer del()
	ctl := filepath.Join(BinDir(), "fabricctl")
	// agree runs doctor pod and a program in pod a, behind the same words.
	agree := func(finding, output string, program []string, behind ...string) {
		t.Helper()
		found := pods[0].Run(t, append(slices.Clone(behind), ctl, "doctor", "pod", "--all")...)
		if !containsAll(found.Output, finding) {
			t.Errorf("not %q: %s", finding, found)
		}
		done := pods[0].Run(t, append(slices.Clone(behind), program...)...)
		if !containsAll(done.Output, output) || done.OK() {
			t.Errorf("not %q: %s", output, done)
		}
		explained := pods[0].Run(t, ctl, "doctor", "explain", done.Output)
		if explained.Exit != 3 {
			t.Errorf("not explained: %s", explained)
		}
	}
	pingpong := []string{"ibv_rc_pingpong", "-e", "-n", "10"}
	if talk := Exchange(t, pods[1], pods[0], pingpong, "10.1.0.2"); !talk.OK() {
		t.Error(talk)
	}
	fine := pods[0].Run(t, ctl, "doctor", "pod", "--all")
	if !containsAll(fine.Output, "OK    pod-interface  net1", "OK    pod-usable  1 HCAs",
		"OK    pod-port-state  1 ports, all Active", "OK    pod-memlock") {
		t.Error(fine)
	}
	agree("FAIL  pod-memlock", "Couldn't register MR", pingpong, unlocked...)

	// The variables of nccl-env are good in their own pod, and in no other.
	var own [2]string // UCX_NET_DEVICES=mlx5_0:1
	for i, pod := range pods {
		env := pod.Run(t, ctl, "nccl-env", "-o", "dotenv")
		_, rest, _ := strings.Cut(env.Output, "\nUCX_NET_DEVICES=")
		value, _, _ := strings.Cut(rest, "\n")
		if own[i] = "UCX_NET_DEVICES=" + value; value != fmt.Sprintf("mlx5_%d:1", i) {
			t.Fatal(env)
		}
	}
	ucx := []string{"env", own[1], "UCX_TLS=rc", "ucx_perftest", "-t", "tag_lat", "-n", "10"}
	for _, ofB := range []bool{false, true} {
		server := pods[1].Start(t, ucx...)
		Until(t, "ucx_perftest listens", server.Listens)
		if ofB {
			agree("FAIL  pod-env-hca  "+own[1]+": not in the pod: mlx5_1", "network device 'mlx5_1:1' is not available",
				append(ucx, "10.1.0.2"), "env", own[1])
		} else if out := pods[0].Run(t, append([]string{"env", own[0]}, append(ucx[2:], "10.1.0.2")...)...); !out.OK() {
			t.Error(out)
		}
		server.Kill()
	}

	SetStates(t, 1, 4)
	defer SetStates(t, 4, 4)
	agree("FAIL  pod-port-state  mlx5_0:1 is Down", "Port number 1 state is Down", []string{"ib_write_bw", "-F"})
}
