//go:build labguest

package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// In shared mode the netdevs are in the pods and the RDMA devices on the host: programs of both pods use the HCA that
// they name, and rdma_cm finds it by the address of the pod's interface.
func TestTrafficSharedPods(t *testing.T) {
	RequireMode(t, "shared")
	UserLand(t)
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	pods, attachments := podsWithHCAs(t, "server", "client")
	ping(t, pods[1], "10.1.0.1")
	Pair{
		Server: pods[0], Client: pods[1], Address: "10.1.0.1",
		Tool:       []string{"ib_write_bw", "-F", "-n", "50", "-s", "65536"},
		ServerArgs: []string{"-d", "mlx5_0"}, ClientArgs: []string{"-d", "mlx5_1"},
	}.Must(t)
	Pair{
		Server: pods[0], Client: pods[1], CM: true, Tool: []string{"rping", "-a", "10.1.0.1", "-C", "3", "-v"},
		ServerArgs: []string{"-s"}, ClientArgs: []string{"-c"},
	}.Must(t)
	for _, a := range attachments {
		a.del(t)
	}
	wantUnused(t)
}

// sharedPods makes two pods that have the interfaces of mlx5_0 and mlx5_1, and a third one that was given nothing.
func sharedPods(t *testing.T) (owner, peer, third *Pod, attachments []*attachment) {
	t.Helper()
	pods, attachments := podsWithHCAs(t, "owner", "peer")
	return pods[0], pods[1], NewPod(t, "third"), attachments
}

// What a pod of shared mode sees of the HCAs of others, whatever it was given itself. docs/security.md has it in words.
func TestTrafficSharedSees(t *testing.T) {
	RequireMode(t, "shared")
	UserLand(t)
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	owner, peer, third, attachments := sharedPods(t)
	v, w := openVerbs(t, owner, "mlx5_0"), openVerbs(t, peer, "mlx5_1")
	secret := v.memory(0, "rw", "secret")
	qp, back := connected(v, w)
	wantStatus(t, "the peer writes", back.write(w.memory(0, "-", "hello"), secret), wcSuccess)

	// What others send and receive is not in a pod's /sys, where the kernel puts no counters in shared mode, not even
	// those of the pod's own HCA. Netlink has the ones of hw_counters.
	for _, pod := range []*Pod{owner, third} {
		if got := Counters(t, pod, "mlx5_0"); len(got) != 0 {
			t.Errorf("%s has counters in /sys: %v", pod.Name, got)
		}
		if out := pod.sh(t, "rdma statistic show link mlx5_0/1"); !strings.Contains(out, "rx_write_requests 1 ") {
			t.Errorf("%s does not see by netlink that the owner was written to:\n%s", pod.Name, out)
		}
	}
	// All HCAs, with their GIDs, PKeys and state.
	if got := third.Sysfs(t, "/sys/class/infiniband"); !slices.Equal(got, []string{"mlx5_0", "mlx5_1"}) {
		t.Errorf("sysfs of the third pod has %v", got)
	}
	third.hasHCA(t, "mlx5_0", "mlx5_1")
	port := "/sys/class/infiniband/mlx5_0/ports/1/"
	for file, want := range map[string]string{
		"gids/0": "fe80:0000:0000:0000:0002:c903:00fa:0010", "pkeys/1": "0x8001", "state": "4: ACTIVE",
	} {
		if got := third.sysfsText(t, port+file); got != want {
			t.Errorf("the third pod reads %s: %q, want %q", file, got, want)
		}
	}
	// The queue pairs of all pods with their peers, and with NET_ADMIN the keys of their memory.
	out := third.sh(t, "rdma resource show qp")
	for _, want := range []string{"lqpn " + qp.number + " ", fmt.Sprintf("pid %d ", v.cmd.Process.Pid)} {
		if !strings.Contains(out, want) {
			t.Errorf("the third pod does not see %q of the owner's queue pair:\n%s", want, out)
		}
	}
	// In a PID namespace of its own, as a container has one, not whose they are.
	out = third.sh(t, "unshare --fork --pid --mount-proc rdma resource show qp")
	if !strings.Contains(out, "lqpn "+qp.number+" ") || strings.Contains(out, "lab-verbs") {
		t.Errorf("a container of the third pod does not see the owner's queue pair, or sees whose it is:\n%s", out)
	}
	out = third.sh(t, "rdma resource show mr")
	var rkey uint32
	if _, err := fmt.Sscan(secret.number, &rkey); err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprintf("rkey %#x ", rkey)
	if !strings.Contains(out, shown) {
		t.Errorf("the third pod with NET_ADMIN does not see %q:\n%s", shown, out)
	}
	without := third.sh(t, "setpriv --bounding-set=-net_admin --inh-caps=-net_admin rdma resource show mr")
	if !strings.Contains(without, "mlx5_0") || strings.Contains(without, "rkey") {
		t.Errorf("the third pod without NET_ADMIN sees other than memory without keys:\n%s", without)
	}
	// The interface that belongs to an HCA stays unknown: an InfiniBand GID has none, and netlink names no other pod's.
	if _, err := third.readSysfs(port + "gid_attrs/ndevs/0"); err == nil {
		t.Error("an InfiniBand GID has an interface")
	}
	v.kill()
	w.kill()
	for _, a := range attachments {
		a.del(t)
	}
	wantUnused(t)
}

// readSysfs reads a file of the pod's own /sys.
func (p *Pod) readSysfs(file string) (string, error) {
	var text []byte
	err := p.DoSysfs(func() (err error) {
		text, err = os.ReadFile(file)
		return err
	})
	return strings.TrimSpace(string(text)), err
}

// sysfsText is readSysfs of a file that has to be there.
func (p *Pod) sysfsText(t *testing.T, file string) string {
	t.Helper()
	text, err := p.readSysfs(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// What a pod of shared mode can reach: every HCA whose character device it can open, in each of its partitions. Memory
// is guarded by keys and protection domains alone, addresses by the pod's own network namespace.
func TestTrafficSharedReaches(t *testing.T) {
	RequireMode(t, "shared")
	UserLand(t)
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	owner, peer, third, attachments := sharedPods(t)
	v, w := openVerbs(t, owner, "mlx5_0"), openVerbs(t, peer, "mlx5_1")
	secret, hello := v.memory(0, "rw", "secret"), w.memory(0, "-", "hello")
	ownersQP, peersQP := connected(v, w)

	// The third pod, which was given nothing, opens the owner's HCA: it sends with the owner's LID.
	x := openVerbs(t, third, "mlx5_0")
	if x.lid != v.lid {
		t.Errorf("LID %s, that of the owner is %s", x.lid, v.lid)
	}
	loot := x.memory(0, "rw", "nothing")
	open := w.memory(0, "rw", "open")
	fromThird, _ := connected(x, w)
	wantStatus(t, "the third pod reads over the owner's port", fromThird.read(loot, open), wcSuccess)
	// In a partition of the port that no pod was given.
	a, b := x.qp(0, "rc", 3), w.qp(0, "rc", 3)
	a.connect(b)
	b.connect(a)
	wantStatus(t, "the third pod writes in another partition", a.write(loot, open), wcSuccess)
	// Not with the owner's keys.
	stray := x.qp(0, "rc", 0)
	stray.connect(ownersQP)
	wantStatus(t, "the third pod reads from the owner's queue pair", stray.read(loot, secret), wcNobody)
	v.must("pd")
	mine, second := x.qp(0, "rc", 0), v.qp(1, "rc", 0)
	mine.connect(second)
	second.connect(mine)
	wantStatus(t, "the third pod reads with a key of another protection domain",
		mine.read(loot, secret), wcRemoteAccess)
	if got := secret.text(); got != "secret" {
		t.Errorf("the owner has %q", got)
	}
	wantStatus(t, "the peer writes", peersQP.write(hello, secret), wcSuccess)

	// The device node is what decides, and the cgroup's list of devices.
	nodes := charDeviceFiles(t)
	allowed := nodes["mlx5_1/infiniband_verbs"]
	cgroup := deviceCgroup(t, allowed)
	for hca, file := range nodes {
		out, err := third.Command("sh", "-c", fmt.Sprintf("echo $$ >%s/cgroup.procs; exec 3<>%s", cgroup, file))
		if ok := file == allowed; ok != (err == nil) {
			t.Errorf("with the device %s allowed the third pod opens that of %s: %v %s", allowed, hca, err, out)
		}
	}

	// DEL takes the interface, and no queue pair.
	for _, a := range attachments {
		a.del(t)
	}
	wantStatus(t, "the peer writes after DEL", peersQP.write(hello, secret), wcSuccess)
	for _, p := range []*verbsProcess{v, w, x} {
		p.kill()
	}
	wantUnused(t)
}

// deviceCgroup makes a cgroup whose processes may open this character device and /dev/null, and returns its directory.
func deviceCgroup(t *testing.T, file string) string {
	t.Helper()
	const mount = "/run/cgroup-devices"
	shell(t, "mkdir -p "+mount+" && mount -t cgroup -o devices devices "+mount)
	dir := filepath.Join(mount, "third")
	t.Cleanup(func() { shell(t, "rmdir "+dir+" && umount "+mount) })
	var stat unix.Stat_t
	if err := unix.Stat(file, &stat); err != nil {
		t.Fatal(err)
	}
	shell(t, fmt.Sprintf("mkdir %[1]s; echo a >%[1]s/devices.deny; echo c 1:3 rwm >%[1]s/devices.allow; "+
		"echo c %[2]d:%[3]d rw >%[1]s/devices.allow", dir, unix.Major(stat.Rdev), unix.Minor(stat.Rdev)))
	return dir
}

// The RDMA connection manager goes by addresses, and so by the pod's network namespace: a pod listens at its own
// addresses only, each at the same port, and is reached by all that reach the address.
func TestTrafficSharedListeners(t *testing.T) {
	RequireMode(t, "shared")
	UserLand(t)
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	owner, peer, third, attachments := sharedPods(t)
	ping(t, peer, "10.1.0.1")
	rping := func(pod *Pod, args ...string) Ended {
		return pod.Run(t, append([]string{"rping", "-C", "1"}, args...)...)
	}
	servers := []*Program{}
	for pod, address := range map[*Pod]string{owner: "10.1.0.1", peer: "10.1.0.2"} {
		p := pod.Start(t, "rping", "-s", "-a", address, "-C", "1")
		servers = append(servers, p)
		Until(t, "rping listens in "+pod.Name, func() error { return pod.listensByCM(p) })
	}
	for what, end := range map[string]Ended{
		"listens at the owner's address": rping(third, "-s", "-a", "10.1.0.1"),
		"connects to the owner":          rping(third, "-c", "-a", "10.1.0.1"),
	} {
		if end.OK() || end.Late {
			t.Errorf("the third pod, which has no interface, %s: %s", what, end)
		}
	}
	if end := rping(InHost(), "-c", "-a", "10.1.0.1"); end.OK() || end.Late {
		t.Errorf("the host, which has no such interface, connects to the owner: %s", end)
	}
	if end := rping(peer, "-c", "-a", "10.1.0.1"); !end.OK() {
		t.Errorf("the peer does not reach the owner: %s", end)
	}
	if end := rping(owner, "-c", "-a", "10.1.0.2"); !end.OK() {
		t.Errorf("the owner does not reach the peer: %s", end)
	}
	for _, p := range servers {
		if end := p.Wait(Patience); !end.OK() {
			t.Errorf("a server: %s", end)
		}
	}
	for _, a := range attachments {
		a.del(t)
	}
	wantUnused(t)
}

// A RoCE GID carries the name of its interface, also of one that is in another pod.
func TestTrafficSharedInterfaces(t *testing.T) {
	RequireMode(t, "shared")
	UserLand(t)
	nic := nics(t, "virtio_net")[0].Attrs().Name
	Fabric{Num: 1, RoCE: []string{nic}}.Load(t)
	Unchanged(t)
	owner, third := NewPod(t, "owner"), NewPod(t, "third")
	a := interfaceOf(owner, "net1", network(config{"device": nic, "ipam": static("10.1.0.1/24")}))
	a.add(t)
	if got := third.sysfsText(t, "/sys/class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/0"); got != "net1" {
		t.Errorf("the third pod reads the interface %q of a RoCE GID, want the other pod's net1", got)
	}
	if out := third.sh(t, "rdma link show mlx5_1/1"); strings.Contains(out, "netdev") {
		t.Errorf("netlink names another pod's interface: %s", out)
	}
	if out := owner.sh(t, "rdma link show mlx5_1/1"); !strings.Contains(out, "netdev net1") {
		t.Errorf("netlink does not name the pod's own interface: %s", out)
	}
	a.del(t)
}
