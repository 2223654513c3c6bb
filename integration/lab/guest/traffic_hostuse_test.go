//go:build labguest

package guest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
)

// ulpFile is where fakeib makes a queue pair of the kernel, in the name of a module that has such.
const ulpFile = "/sys/module/fakeib/parameters/ulp"

func setUlp(t *testing.T, value string) {
	t.Helper()
	if err := os.WriteFile(ulpFile, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

func wantUlp(t *testing.T, want string) {
	t.Helper()
	if b, err := os.ReadFile(ulpFile); err != nil || strings.TrimSpace(string(b)) != want {
		t.Errorf("the kernel's user of an HCA is %q, %v, want %q", b, err, want)
	}
}

// usedHost has an HCA with an address on the host, mlx5_0, and one in a pod, mlx5_1.
func usedHost(t *testing.T) (host *Pod, peer *attachment) {
	t.Helper()
	RequireMode(t, "exclusive")
	UserLand(t)
	Fabric{Num: 2}.Load(t)
	t.Cleanup(func() { Unload(t) })
	shell(t, "ip address add 10.9.0.1/24 dev ib0; ip link set ib0 up")
	Unchanged(t)
	peer = interfaceOf(NewPod(t, "peer"), "net1", network(config{"device": "ib1", "ipam": static("10.9.0.2/24")}))
	peer.add(t)
	return InHost(), peer
}

// A pod asks for an HCA over which the host's kernel reaches a disk: the move would cut that off.
func TestTrafficAdversaryHostKernel(t *testing.T) {
	_, peer := usedHost(t)
	pod := interfaceOf(NewPod(t, "pod"), "net1", network(config{"device": "ib0"}))
	setUlp(t, "mlx5_0 nvme_rdma")
	wantError(t, pod.call("ADD").Exec(t), 101, "mlx5_0", "kernel module nvme_rdma", "allowHostUse")
	wantUlp(t, "mlx5_0 nvme_rdma")
	pod.del(t)
	policyFile(t, `{"allowHostUse": ["mlx5_1"]}`)
	wantError(t, pod.call("ADD").Exec(t), 101, "kernel module nvme_rdma")
	pod.del(t)
	policyFile(t, `{"allowHostUse": ["mlx5_0"]}`)
	pod.add(t)
	wantUlp(t, "")
	pod.del(t)
	peer.del(t)
}

// The same with processes of the host: one with a connection, which goes on, and those that are no use.
func TestTrafficAdversaryHostProcess(t *testing.T) {
	host, peer := usedHost(t)
	pod := interfaceOf(NewPod(t, "pod"), "net1", network(config{"device": "ib0"}))
	talking := Pair{
		Server: host, Client: peer.pod, Tool: []string{"rping", "-a", "10.9.0.1"},
		ServerArgs: []string{"-s"}, ClientArgs: []string{"-c"}, CM: true,
	}.Start(t)
	moved := func() uint64 { return Counters(t, host, "mlx5_0")["port_rcv_data"] }
	flows := func(when string) {
		before := moved()
		Until(t, "rping goes on "+when, func() error {
			if now := moved(); now < before+100 {
				return fmt.Errorf("%d after %d\n%s\n%s", now, before, talking.Server.Output(), talking.Client.Output())
			}
			return nil
		})
	}
	// The counter rises by ARP and by datagrams of the connection manager, too, before there is a queue pair.
	Until(t, "rping is connected", func() error { return host.readyToSend(talking.Server) })
	flows("before ADD")
	who := fmt.Sprintf("process %d (rping)", talking.Server.PID())
	wantError(t, pod.call("ADD").Exec(t), 101, "mlx5_0", who, "allowHostUse")
	pod.del(t)
	flows("after ADD")
	policyFile(t, `{"allowHostUse": ["platform/fakeib.0"]}`)
	pod.add(t)
	talking.Client.Kill()
	talking.Server.Kill()
	pod.del(t)
	os.Remove("/etc/cni/fabric.d/policy.json")

	listener := host.Start(t, "rping", "-s", "-a", "0.0.0.0")
	Until(t, "rping listens", func() error { return host.listensByCM(listener) })
	pod.add(t)
	listener.Kill()
	pod.del(t)

	v := openVerbs(t, nil, "mlx5_0")
	v.qp(0, "rc", 0)
	wantError(t, pod.call("ADD").Exec(t), 101, fmt.Sprintf("process %d (lab-verbs)", v.cmd.Process.Pid))
	pod.del(t)
	v.kill()
	program, err := exec.LookPath("lab-verbs")
	if err != nil {
		t.Fatal(err)
	}
	named := filepath.Join(t.TempDir(), "ibacm")
	if err := os.Symlink(program, named); err != nil {
		t.Fatal(err)
	}
	service := startVerbsAs(t, nil, named)
	service.must("open", "mlx5_0")
	service.must("pd")
	service.qp(0, "rc", 0)
	pod.add(t)
	service.kill()
	pod.del(t)
	peer.del(t)
}

// What it costs to ask who uses an HCA is printed, not judged: emulation says little about time.
func TestTrafficHostUseCost(t *testing.T) {
	_, peer := usedHost(t)
	nldev, err := rdma.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer nldev.Close()
	r := inventory.Reader{Sys: os.DirFS("/sys"), RDMA: nldev}
	hca, err := r.HCANamed("mlx5_0")
	if err != nil {
		t.Fatal(err)
	}
	cost := func(what string, f func() error) {
		result := testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
		t.Logf("%s: %s", what, result)
	}
	users := func(want int) func() error {
		return func() error {
			list, err := r.Users(hca, "/proc")
			if err == nil && len(list) != want {
				err = fmt.Errorf("%v", list)
			}
			return err
		}
	}
	cost("the device, by its index", func() error {
		_, err := nldev.ByIndex(hca.Index)
		return err
	})
	cost("its users, idle", users(0))
	v := openVerbs(t, nil, "mlx5_0")
	for range 16 {
		v.qp(0, "rc", 0)
	}
	cost("its users, 16 queue pairs of a process", users(1))
	v.kill()
	peer.del(t)
}
