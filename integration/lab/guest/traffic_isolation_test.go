//go:build labguest

package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// podsWithHCAs makes pods with these names. The first one has mlx5_0 as net1, the second mlx5_1, and so on.
func podsWithHCAs(t *testing.T, names ...string) ([]*Pod, []*attachment) {
	t.Helper()
	var pods []*Pod
	var attachments []*attachment
	for i, name := range names {
		pod := NewPod(t, name)
		a := interfaceOf(pod, "net1", network(config{
			"device": fmt.Sprintf("ib%d", i), "ipam": static(fmt.Sprintf("10.1.0.%d/24", i+1)),
		}))
		a.add(t)
		pods, attachments = append(pods, pod), append(attachments, a)
	}
	return pods, attachments
}

// charDeviceFiles returns the character devices of the guest by "RDMA device/class", as in "mlx5_0/infiniband_verbs".
// Sysfs shows those of all RDMA devices in every network namespace.
func charDeviceFiles(t *testing.T) map[string]string {
	t.Helper()
	devices := make(map[string]string)
	for _, class := range []string{"infiniband_verbs", "infiniband_mad"} {
		paths, err := filepath.Glob("/sys/class/" + class + "/*[0-9]")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			if strings.HasPrefix(filepath.Base(p), "issm") {
				continue // for subnet managers
			}
			hca, err := os.ReadFile(p + "/ibdev")
			if err != nil {
				t.Fatal(err)
			}
			devices[strings.TrimSpace(string(hca))+"/"+class] = "/dev/infiniband/" + filepath.Base(p)
		}
	}
	return devices
}

// opens returns what the kernel says when a process of the host, or of a pod, opens a file for reading and writing.
func opens(pod *Pod, file string) error {
	open := func() error {
		f, err := os.OpenFile(file, os.O_RDWR, 0)
		if err == nil {
			f.Close()
		}
		return err
	}
	if pod == nil {
		return open()
	}
	return pod.Do(open)
}

// In exclusive mode a character device can be opened in the network namespace of its RDMA device and nowhere else, by
// any program with the device node and all capabilities.
func TestTrafficOpenElsewhere(t *testing.T) {
	RequireMode(t, "exclusive")
	UserLand(t)
	Fabric{Num: 3}.Load(t)
	Unchanged(t)
	early := openVerbs(t, InHost(), "mlx5_0")
	pods, attachments := podsWithHCAs(t, "pod0", "pod1")
	// ADD has taken the HCA from a process of the host that had it open.
	if got := early.say("pd"); !strings.HasSuffix(got, "Input/output error") {
		t.Errorf("a process of the host goes on with an HCA that is in a pod: %q", got)
	}
	chars := charDeviceFiles(t)
	if len(chars) != 6 {
		t.Fatalf("character devices are %v, want two of each HCA", chars)
	}
	at := map[string]*Pod{"mlx5_0": pods[0], "mlx5_1": pods[1], "mlx5_2": nil}
	for device, file := range chars {
		hca, class, _ := strings.Cut(device, "/")
		for _, pod := range []*Pod{nil, pods[0], pods[1]} {
			where := "the host"
			if pod != nil {
				where = pod.Name
			}
			err := opens(pod, file)
			if pod == at[hca] && err != nil {
				t.Errorf("%s can't open its %s of %s: %v", where, class, hca, err)
			}
			if pod != at[hca] && !errors.Is(err, unix.EPERM) {
				t.Errorf("%s opens %s of %s, which is elsewhere: %v, want EPERM", where, class, hca, err)
			}
		}
	}
	// Neither libraries nor the kernel's own list show it another pod's HCA. The class of the character devices has no
	// network namespaces: its names are all that is seen.
	for i, pod := range pods {
		pod.hasHCA(t, fmt.Sprintf("mlx5_%d", i))
		if got := pod.Sysfs(t, "/sys/class/infiniband"); !slices.Equal(got, []string{fmt.Sprintf("mlx5_%d", i)}) {
			t.Errorf("sysfs of %s has %v", pod.Name, got)
		}
		if got := pod.Sysfs(t, "/sys/class/infiniband_verbs"); len(got) != 4 { // and abi_version
			t.Errorf("the character devices that sysfs of %s has are %v", pod.Name, got)
		}
		err := pod.DoSysfs(func() error {
			_, err := os.ReadFile(fmt.Sprintf("/sys/class/infiniband/mlx5_%d/ports/1/gids/0", 1-i))
			return err
		})
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s reads the GID of the other's HCA: %v", pod.Name, err)
		}
	}
	v := startVerbs(t, pods[0])
	if got := v.say("open", "mlx5_1"); !strings.HasPrefix(got, "error find") {
		t.Errorf("libibverbs opens the other pod's HCA: %s", got)
	}
	for _, a := range attachments {
		a.del(t)
	}
}

// A pod that knows a queue pair's LID and number, and the address and rkey of memory, can do nothing with it: the queue
// pair answers its own peer only, and a key counts in its own protection domain.
func TestTrafficForeignKeys(t *testing.T) {
	RequireMode(t, "exclusive")
	UserLand(t)
	Fabric{Num: 3}.Load(t)
	Unchanged(t)
	pods, attachments := podsWithHCAs(t, "victim", "peer", "third")
	victim := openVerbs(t, pods[0], "mlx5_0")
	peer := openVerbs(t, pods[1], "mlx5_1")
	third := openVerbs(t, pods[2], "mlx5_2")
	secret := victim.memory(0, "rw", "secret")
	known := peer.memory(0, "-", "greetings")
	loot := third.memory(0, "-", "nothing")

	// The keys are right: the peer writes and reads.
	toPeer, toVictim := connected(victim, peer)
	wantStatus(t, "the peer writes", toVictim.write(known, secret), wcSuccess)
	if got := secret.text(); got != "greetings" {
		t.Fatalf("the victim has %q after its peer's write", got)
	}
	victim.must("text", secret.index, "secret")

	// The third pod knows everything, and aims at the queue pair that the peer is connected to.
	for _, kind := range []string{"rc", "uc"} {
		for what, do := range map[string]func(q verbsObject) string{
			"writes": func(q verbsObject) string { return q.write(loot, secret) },
			"reads":  func(q verbsObject) string { return q.read(loot, secret) },
		} {
			q := third.qp(0, kind, 0)
			q.connect(toPeer)
			got := do(q)
			if kind == "rc" { // an unreliable connection does not hear what became of it
				wantStatus(t, "the third pod "+what, got, wcNobody)
			}
			if v, l := secret.text(), loot.text(); v != "secret" || l != "nothing" {
				t.Errorf("the third pod %s over %s: the victim has %q, the third pod %q", what, kind, v, l)
			}
		}
	}

	// It is a peer of the victim itself, in another protection domain.
	pd := victim.must("pd")[0]
	if pd != "1" {
		t.Fatalf("the second protection domain is %s", pd)
	}
	shared := victim.memory(1, "rw", "shared")
	meet := func() verbsObject {
		a, b := victim.qp(1, "rc", 0), third.qp(0, "rc", 0)
		a.connect(b)
		b.connect(a)
		return b
	}
	wantStatus(t, "the third pod reads what it may", meet().read(loot, shared), wcSuccess)
	if got := loot.text(); got != "shared" {
		t.Errorf("the third pod has read %q", got)
	}
	wrong, beyond, readOnly := shared, shared, victim.memory(1, "r", "read-only")
	wrong.number = fmt.Sprint(0x7fffff00)
	beyond.addr = "4096"
	for what, remote := range map[string]verbsObject{
		"with the key of another protection domain": secret, "with a key of nobody": wrong,
		"beyond the memory": beyond, "to memory for reading": readOnly,
	} {
		wantStatus(t, "the third pod writes "+what, meet().write(loot, remote), wcRemoteAccess)
	}
	wantStatus(t, "the third pod reads with the key of another protection domain",
		meet().read(loot, secret), wcRemoteAccess)
	for m, want := range map[verbsObject]string{
		secret: "secret", shared: "shared", readOnly: "read-only", loot: "shared",
	} {
		if got := m.text(); got != want {
			t.Errorf("memory that held %q has %q", want, got)
		}
	}
	// None of this has disturbed the two.
	wantStatus(t, "the peer writes again", toVictim.write(known, secret), wcSuccess)
	for _, a := range attachments {
		a.del(t)
	}
}
