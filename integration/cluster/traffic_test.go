package cluster

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/integration/lab"
)

// Two replicas of a job on one node, four rails each by annotation and resource: their RDMA goes through the fabric
// inside the node's kernel. fabricctl looks at them while all is well, then with one thing wrong at a time.
func traffic(t *testing.T, n *LabNode) {
	pods := []string{"train-0-" + n.Name, "train-1-" + n.Name}
	var addresses [2][]string
	for _, p := range pods {
		trainPod(t, p, n.Name, strings.TrimSuffix(strings.Repeat(fabric200+", ", 4), ", "), 4)
		ready(t, p) // one after the other, see mistakes
	}
	for i, p := range pods {
		for _, s := range status(t, p)[1:] {
			addresses[i] = append(addresses[i], s.IPs...)
		}
	}
	if len(addresses[0]) != 4 || len(addresses[1]) != 4 {
		t.Fatalf("addresses: %v", addresses)
	}
	stage(t, "both replicas are Ready")
	eachRail(t, pods[0], pods[1], addresses[1])
	stage(t, "each rail has carried its own")
	mpi(t, pods[0], pods[1])
	stage(t, "MPI has run")
	verified(t, pods[0], pods[1])
	stage(t, "verify has judged")
	portDown(t, n, pods[0], pods[1])
	stage(t, "a port was Down")
	k(t, "delete", "pod", pods[1], "--wait=false")
	bare := withoutInterface(t, n, pods[0])
	stage(t, "verbs without an interface")
	foreign := foreignPartition(t, n)
	stage(t, "a partition that the port is not in")
	gone(t, pods[0], pods[1], bare, foreign)
}

// trainPod is a replica of a job: networks by annotation, so many rails by resource, IPC_LOCK, and the user land of the
// lab as /usr.
func trainPod(t *testing.T, name, node, networks string, rails int) {
	t.Helper()
	annotations := ""
	if networks != "" {
		annotations = networksOf(networks)
	}
	dir, err := lab.UserLand()
	if err != nil {
		t.Fatal(err)
	}
	programs, err := filepath.EvalSymlinks(filepath.Join(current.run, "bin")) // a path that guests have too
	if err != nil {
		t.Fatal(err)
	}
	var mounts, volumes []string
	for i, m := range [][2]string{{"/usr", "/run/usr"}, {"/lib", "/run/usr/lib"}, {"/lib64", "/run/usr/lib64"},
		{"/etc/libibverbs.d", dir + "/root/etc/libibverbs.d"}, {"/etc/openmpi", dir + "/root/etc/openmpi"},
		{"/opt/fabric", programs}} {
		mounts = append(mounts, fmt.Sprintf("{name: v%d, mountPath: %s, readOnly: true}", i, m[0]))
		volumes = append(volumes, fmt.Sprintf("{name: v%d, hostPath: {path: %s}}", i, m[1]))
	}
	apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {%s}}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: localhost/box:e2e
    imagePullPolicy: Never
    env: [{name: PATH, value: "/opt/fabric:/usr/local/bin:/usr/bin:/usr/sbin:/bin"}]
    securityContext: {capabilities: {add: [IPC_LOCK]}}
    resources: {requests: {fabric.dev/%s: %d}, limits: {fabric.dev/%s: %d}}
    volumeMounts: [%s]
  volumes: [%s]
`, name, annotations, node, fabric200, rails, fabric200, rails, strings.Join(mounts, ", "),
		strings.Join(volumes, ", ")))
	t.Cleanup(func() { gone(t, name) })
}

// in runs a shell script in a pod: each exec takes seconds in emulation, so a script does as much as it can.
func in(t *testing.T, pod, script string, args ...string) string {
	t.Helper()
	return k(t, append([]string{"exec", pod, "--", "sh", "-c", script, "sh"}, args...)...)
}

// The shell's words for the HCA of a rail.
const hcaOf = `hca() { ls "/sys/class/net/net$1/device/infiniband"; }
`

// eachRail writes over one rail after the other, and looks at what the ports of all have sent.
func eachRail(t *testing.T, a, b string, to []string) {
	t.Helper()
	const flags = "-F -s 65536 -n 50 --report_gbits"
	in(t, b, hcaOf+`for i in 1 2 3 4; do
  timeout 900 ib_write_bw -d "$(hca $i)" -p 1850$i `+flags+` >/tmp/bw$i 2>&1 &
done
for i in $(seq 300); do
  [ "$(ss -ltnH | grep -c ':1850[1-4] ')" != 4 ] || exit 0
  sleep .2
done
tail /tmp/bw*; exit 1`)
	out := in(t, a, hcaOf+`sent() {
  for i in 1 2 3 4; do cat "/sys/class/infiniband/$(hca $i)/ports/1/counters/port_xmit_data"; done | xargs
}
sent
for i in 1 2 3 4; do
  ib_write_bw -d "$(hca $i)" -p 1850$i `+flags+` "$1" >/tmp/bw || { cat /tmp/bw; exit 1; }
  grep '^ *65536 ' /tmp/bw
  shift
  sent
done`, to...)
	lines := strings.Split(out, "\n")
	if len(lines) != 10 {
		t.Fatalf("ib_write_bw:\n%s", out)
	}
	for i := range 4 {
		before, after := numbers(t, lines[2*i]), numbers(t, lines[2*i+2])
		for j := range 4 {
			// The unit is four bytes. Beside verbs, a rail has now and then a packet of IPoIB.
			moved, least := after[j]-before[j], 50*65536.0/4
			if (i == j) != (moved >= least) {
				t.Errorf("net%d has sent %.0f words while net%d wrote:\n%s", j+1, moved, i+1, out)
			}
		}
	}
	t.Logf("ib_write_bw, emulated:\n%s", out)
}

// numbers are those of the four rails.
func numbers(t *testing.T, line string) (out []float64) {
	t.Helper()
	for _, f := range strings.Fields(line) {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	if len(out) != 4 {
		t.Fatalf("want four numbers: %q", line)
	}
	return out
}

// mpi runs an MPI job over both pods: mpirun in one starts its daemon in the other through the cluster's network, where
// a shell listens in place of sshd. Every process has the variables that fabricctl works out in its own pod.
func mpi(t *testing.T, a, b string) {
	t.Helper()
	var ips []string
	for _, p := range []string{a, b} {
		ips = append(ips, k(t, "get", "pod", p, "-o", "jsonpath={.status.podIP}"))
	}
	const agent = `printf '#!/bin/sh\nhost=$1; shift; echo "$@" | busybox nc "$host" 2200\n' >/tmp/rsh
chmod +x /tmp/rsh
`
	in(t, b, agent+`busybox nc -ll -p 2200 -e /bin/sh </dev/null >/dev/null 2>&1 &`)
	out := in(t, a, agent+`export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
timeout 900 mpirun.openmpi --mca plm_rsh_agent /tmp/rsh --mca oob_tcp_if_include eth0 --host "$1:1,$2:1" -np 2 \
  --mca mpi_yield_when_idle 1 --mca pml ucx --mca osc ucx --mca btl self sh -c '
    eval "$(fabricctl nccl-env)"; export UCX_TLS=rc,self UCX_LOG_LEVEL=info
    exec NPopenmpi -l 1024 -u 65536 -p 0 -n 5 -o /tmp/np' 2>&1`, ips...)
	// UCX says which transport each end has chosen, NetPIPE what it has carried.
	says(t, "MPI", out, "0: "+a, "1: "+b, " 1024 bytes ", " 65536 bytes ")
	for _, pod := range []string{a, b} {
		if !regexp.MustCompile(`\[` + pod + `:.* tag\(rc_verbs/mlx5_`).MatchString(out) {
			t.Errorf("want UCX over rc in %s:\n%s", pod, out)
		}
	}
	t.Logf("MPI, emulated:\n%s", out)
}

// verified is what fabricctl verify makes of two of the rails, as each takes it several calls of kubectl: all of it
// works. A thousandth of 200 Gb/s is good enough for an emulated machine.
func verified(t *testing.T, a, b string) {
	t.Helper()
	args := []string{"verify", a, b, "--interfaces", "net1,net4", "--good", "0.1", "-o", "json"}
	out, _ := ctl(t, 0, args...)
	var report struct {
		Results []struct {
			Rail, Ping, GID, Verdict, Text string
			RateGb                         float64
			Bandwidth                      struct{ AverageGb float64 }
			Latency                        struct{ Typical float64 }
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Results) != 2 {
		t.Fatalf("%v: %s", err, out)
	}
	for i, r := range report.Results {
		if r.Rail != []string{"net1", "net4"}[i] || r.Ping != "reachable" || r.GID != "same subnet prefix" ||
			r.RateGb != 200 || r.Bandwidth.AverageGb <= 0 || r.Latency.Typical <= 0 || r.Verdict != "good" ||
			!strings.Contains(r.Text, " of 200 Gb/s: good") {
			t.Errorf("%+v", r)
		}
	}
	t.Logf("verify, emulated:\n%s", out)
}

// portDown takes the port of a rail Down under a pod that has it.
func portDown(t *testing.T, n *LabNode, a, b string) {
	t.Helper()
	rails, i := platformRail(t, n, b)
	if i < 0 { // kubelet has given b the PCI devices: a has the others
		a, b = b, a
		rails, i = platformRail(t, n, b)
	}
	if i < 0 {
		t.Fatalf("no port of %v can be taken Down", rails)
	}
	states(t, n, rails[i])
	defer states(t, n, "")
	rail := fmt.Sprintf("net%d", i+1)
	out, _ := ctl(t, 3, "verify", a, b, "--interfaces", rail)
	if !regexp.MustCompile(rail + ` .*unreachable +failed .*packets are lost`).MatchString(out) {
		t.Errorf("verify with %s Down:\n%s", rails[i], out)
	}
	out = k(t, "exec", b, "--", "fabricctl", "doctor", "pod")
	says(t, "doctor pod", out, "WARN  pod-port-state  "+rails[i]+":1 is Down")
}

// platformRail returns the HCAs of a pod by rail, and the first of them whose port states can set, or -1.
func platformRail(t *testing.T, n *LabNode, pod string) (hcas []string, rail int) {
	t.Helper()
	hcas = strings.Fields(in(t, pod, hcaOf+`for i in 1 2 3 4; do hca $i; done`))
	return hcas, slices.IndexFunc(hcas, func(hca string) bool {
		return slices.ContainsFunc(n.Rails, func(r Rail) bool { return r.HCA == hca && r.PCI == "" })
	})
}

// withoutInterface is a pod with a verbs device and no interface: the resource without the annotation.
func withoutInterface(t *testing.T, n *LabNode, with string) (pod string) {
	t.Helper()
	pod = "bare-" + n.Name
	trainPod(t, pod, n.Name, "", 1)
	ready(t, pod)
	out, _ := ctl(t, 3, "doctor", "pod", pod)
	says(t, "doctor pod", out, "FAIL  pod-annotation  no annotation k8s.v1.cni.cncf.io/networks")
	out, err := outputWith("", "kubectl", "exec", pod, "--", "fabricctl", "doctor", "pod")
	says(t, "doctor in the pod", out, "FAIL  pod-interface", "command terminated with exit code 3")
	if err == nil {
		t.Error("doctor in the pod finds nothing")
	}
	_, diag := ctl(t, 1, "verify", pod, with)
	says(t, "verify", diag, pod+" has no rail", "see fabricctl doctor pod")
	return pod
}

// foreignPartition is a pod of a partition that the HCA is not in.
func foreignPartition(t *testing.T, n *LabNode) (pod string) {
	t.Helper()
	// One of those that are coming home.
	master := strings.TrimSpace(on(t, n, `until ls /sys/class/infiniband/*/device/net | grep -m 1 '^ib\(p\|s12\)'; do
  sleep .2
done`))
	network(t, "storage", `{"cniVersion":"1.0.0","name":"storage","type":"fabric","mode":"ipoib","master":"`+master+
		`","pkey":"0x9002","ipam":{"type":"static","addresses":[{"address":"10.99.0.1/24"}]}}`)
	pod = "partition-" + n.Name
	trainPod(t, pod, n.Name, "storage", 0)
	event(t, pod, "is not a member of this partition")
	out, _ := ctl(t, 3, "doctor", "pod", pod)
	says(t, "doctor pod", out, "FAIL  pod-event", "log-pkey", "WARN  pod-multus")
	explains(t, pod, "log-pkey")
	return pod
}

// cable plugs the last of the node's spares in, or pulls the last of its rails out.
func cable(t *testing.T, n *LabNode, rails int) {
	t.Helper()
	if rails > 0 {
		cut := len(n.Spares) - rails
		n.Rails, n.Spares = append(n.Rails, n.Spares[cut:]...), n.Spares[:cut]
	} else {
		cut := len(n.Rails) + rails
		n.Rails, n.Spares = n.Rails[:cut], append(n.Spares, n.Rails[cut:]...)
	}
	states(t, n, "")
	offersAll(t, n)
	stage(t, fmt.Sprintf("%d rails have a cable", len(n.Rails)))
}

// states sets the ports on platform devices: those of spares are Down, those of rails Active but for one.
func states(t *testing.T, n *LabNode, down string) {
	t.Helper()
	var list []string
	for range n.Spares {
		list = append(list, "1")
	}
	for _, r := range n.Rails {
		switch {
		case r.PCI != "":
		case r.HCA == down:
			list = append(list, "1")
		default:
			list = append(list, "4")
		}
	}
	on(t, n, "echo "+strings.Join(list, ",")+" >/sys/module/fakeib/parameters/state")
}
