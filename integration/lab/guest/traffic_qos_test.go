//go:build labguest

package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// connectionManager makes its configuration visible, as systemd does on a host.
func connectionManager(t testing.TB) {
	t.Helper()
	Modprobe(t, "rdma_cm")
	const dir = "/sys/kernel/config"
	if _, err := os.Stat(dir + "/rdma_cm"); err != nil {
		shell(t, "mount -t configfs configfs "+dir)
	}
}

// setCM sets what the connection manager gives connections over port 1 of an RDMA device, as cma_roce_tos and
// cma_roce_mode do.
func setCM(t testing.TB, hca string, tos int, mode string) {
	t.Helper()
	dir := "/sys/kernel/config/rdma_cm/" + hca
	shell(t, fmt.Sprintf("mkdir -p %[1]s && echo %[2]d >%[1]s/ports/1/default_roce_tos && "+
		"echo %[3]s >%[1]s/ports/1/default_roce_mode && rmdir %[1]s", dir, tos, mode))
}

// cm is what the connection manager has for port 1 of the RDMA device of a name: "106 RoCE v2".
func cm(t testing.TB, hca string) string {
	t.Helper()
	dir := "/sys/kernel/config/rdma_cm/" + hca
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(dir)
	var out []string
	for _, f := range []string{"default_roce_tos", "default_roce_mode"} {
		b, err := os.ReadFile(filepath.Join(dir, "ports/1", f))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.TrimSpace(string(b)))
	}
	return strings.Join(out, " ")
}

// The type of service and the RoCE mode that the host has set for connections go along with the device, unless the
// configuration has others, and return with it. Connections carry them. Where two pods' devices can have one name, they
// have.
func TestTrafficRoCEQoS(t *testing.T) {
	UserLand(t)
	connectionManager(t)
	e := nics(t, "e1000e")
	Fabric{RoCE: []string{e[0].Attrs().Name, e[1].Attrs().Name}, RoCEVerbs: true, RoCEClass: true}.Load(t)
	setCM(t, "mlx5_0", 106, RoCEv2)
	setCM(t, "mlx5_1", 32, RoCEv1)
	Unchanged(t)
	names := [2]string{"mlx5_0", "mlx5_1"}
	if namesPerNetns(t) {
		names = [2]string{"mlx5_1", "mlx5_1"} // mlx5_1 is read while a pod has its name, and set while two have
	}
	var pods [2]*attachment
	for i, more := range []config{{}, {"tos": 72, "roceMode": "v2", "trafficClass": 96}} {
		more["device"], more["ipam"] = e[i].Attrs().Name, static(fmt.Sprintf("10.1.0.%d/24", i+1))
		more["rdmaName"] = names[i]
		pods[i] = interfaceOf(NewPod(t, fmt.Sprintf("pod%d", i)), "net1", network(more))
		pods[i].add(t)
	}
	for i, want := range []string{"106 RoCE v2", "72 RoCE v2"} {
		if got := cm(t, names[i]); names[0] != names[1] && got != want {
			t.Errorf("%s in its pod: %s, want %s", names[i], got, want)
		}
		PortIs(t, pods[i].pod, names[i], 1, "4: ACTIVE")
	}
	class := pods[1].pod.Run(t, "cat", "/sys/class/infiniband/"+names[1]+"/tc/1/traffic_class")
	if !class.OK() || class.Output != "Global tclass=96\n" {
		t.Errorf("traffic class of %s in its pod: %s", names[1], class)
	}
	ping(t, pods[1].pod, "10.1.0.1")
	for i, want := range []string{"106:", "72:"} {
		// Who connects decides for both: the answer goes by the path of the request (cma.c, cma_ib_req_handler).
		const seen = "/sys/module/fakeib/parameters/tclasses"
		shell(t, "echo >"+seen)
		from, to := &trafficPod{Pod: pods[i].pod}, &trafficPod{Pod: pods[1-i].pod}
		rping(to, from, fmt.Sprintf("10.1.0.%d", 2-i)).Must(t)
		b, err := os.ReadFile(seen)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Fields(string(b)); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("pod%d connects: packets by traffic class: %q, want %s alone", i, got, want)
		}
	}
	for _, a := range pods {
		a.del(t)
	}
}
