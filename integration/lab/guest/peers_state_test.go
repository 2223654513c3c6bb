//go:build labguest

package guest

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// rdma-cni saves its state after the move: a kill in between strands the device, and DEL says success.
func TestPeerKilledBeforeStateIsSaved(t *testing.T) {
	for _, point := range []string{
		"journal/claim", "before/move-rdma", "after/move-rdma", "after/await-netdev", "after/move-netdev",
		"after/add-address",
	} {
		t.Run(filepath.Base(filepath.Dir(point))+" "+filepath.Base(point), func(t *testing.T) {
			S1(t)
			Unchanged(t)
			pod := NewPod(t, "pod")
			a := interfaceOf(pod, "net1", network(config{"device": "ibs108", "ipam": hostLocal("10.0.0.0/24")}))
			RunWithFault(t, a.call("ADD"), point, FaultKill)
			a.del(t)
		})
	}
}

// The runtime may call ADD again instead of DEL, for the same container or for another one once the first is dead.
func TestPeerKilledThenAddedAgain(t *testing.T) {
	for _, point := range []string{"journal/claim", "after/move-rdma", "after/move-netdev"} {
		t.Run(filepath.Base(point), func(t *testing.T) {
			S1(t)
			Unchanged(t)
			pod := NewPod(t, "pod")
			a := interfaceOf(pod, "net1", network(config{"device": "ibs108", "ipam": static("10.0.0.5/24")}))
			RunWithFault(t, a.call("ADD"), point, FaultKill)
			a.add(t)
			pod.has(t, "net1", "10.0.0.5/24")
			pod.hasHCA(t, "mlx5_0")
			a.del(t)
		})
	}
}

// A state file that a crash has cut off: the device goes home all the same.
func TestPeerTruncatedState(t *testing.T) {
	for name, damage := range map[string]func(file string) error{
		"empty": func(f string) error { return os.Truncate(f, 0) },
		"half": func(f string) error {
			info, err := os.Stat(f)
			if err != nil {
				return err
			}
			return os.Truncate(f, info.Size()/2)
		},
		"garbage": func(f string) error { return os.WriteFile(f, []byte("\x00\xff{"), 0o600) },
		"null":    func(f string) error { return os.WriteFile(f, []byte("null"), 0o600) },
		"removed": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			Fabric{Num: 2}.Load(t)
			Unchanged(t)
			pod := NewPod(t, "pod")
			a := interfaceOf(pod, "net1", network(config{"device": "ib1", "ipam": hostLocal("10.0.0.0/24")}))
			a.add(t)
			if err := damage(a.entryFile()); err != nil {
				t.Fatal(err)
			}
			a.del(t)
			a.del(t)
		})
	}
}

// A damaged entry of one attachment does not hinder another one.
func TestPeerTruncatedStateOfOthers(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	a := interfaceOf(pod, "net1", network(config{"device": "ib0"}))
	b := interfaceOf(pod, "net2", network(config{"device": "ib1"}))
	a.add(t)
	if err := os.Truncate(a.entryFile(), 10); err != nil {
		t.Fatal(err)
	}
	b.add(t)
	// Whose device it is can't be read: it is not taken from anybody.
	c := interfaceOf(NewPod(t, "other"), "net1", network(config{"deviceID": "platform/fakeib.0"}))
	out := c.call("ADD").Exec(t)
	if !out.Failed() || out.Err == nil || out.Err.Code < 100 {
		t.Errorf("ADD of a device with a damaged entry: %s", out)
	}
	b.del(t)
	a.del(t)
}

// rdma-cni's and host-device's DEL fail for ever once the netns path is gone.
func TestPeerNetnsGone(t *testing.T) {
	for name, gone := range map[string]func(t *testing.T, a *attachment){
		"path and namespace": func(t *testing.T, a *attachment) { a.pod.Delete(t) },
		"path, a process is left": func(t *testing.T, a *attachment) {
			a.pod.Spawn(t)
			a.pod.Delete(t)
		},
		"unmounted, the file is left": func(t *testing.T, a *attachment) {
			a.pod.Delete(t)
			if err := os.WriteFile(a.pod.Path, nil, 0o444); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, device := range []string{"ibs108", "ibs110"} {
			t.Run(name+" "+device, func(t *testing.T) {
				S1(t)
				Unchanged(t)
				pod := NewPod(t, "pod")
				a := interfaceOf(pod, "net1", network(config{"device": device, "ipam": hostLocal("10.0.0.0/24")}))
				a.add(t)
				gone(t, a)
				a.del(t)
				if held := heldAddresses(t); len(held) != 0 {
					t.Errorf("held: %v", held)
				}
			})
		}
	}
}

// host-device skips IPAM DEL when CNI_NETNS is empty, and fails when DEL comes twice.
func TestPeerEmptyNetns(t *testing.T) {
	for name, fields := range map[string]config{
		"device": {"device": "ibs108"}, "ipoib": {"mode": "ipoib", "master": "ibs108"},
	} {
		t.Run(name, func(t *testing.T) {
			S1(t)
			Unchanged(t)
			fields["ipam"] = hostLocal("10.0.0.0/24")
			a := interfaceOf(NewPod(t, "pod"), "net1", network(fields))
			a.add(t)
			if held := heldAddresses(t); len(held) != 1 {
				t.Fatalf("held after ADD: %v", held)
			}
			del := a.call("DEL")
			del.Netns = ""
			del.Must(t)
			if held := heldAddresses(t); len(held) != 0 {
				t.Errorf("held after DEL: %v", held)
			}
			del.Must(t)
			a.del(t)
		})
	}
}

// The address of an ADD that left no entry, or whose entry is gone, is freed by DEL.
func TestPeerDelWithoutEntryFreesAddress(t *testing.T) {
	S1(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	a := interfaceOf(pod, "net1", network(config{"device": "ibs108", "ipam": hostLocal("10.0.0.0/24")}))
	ipam := a.call("ADD")
	ipam.Plugin = "host-local"
	ipam.Must(t)
	if held := heldAddresses(t); len(held) != 1 {
		t.Fatalf("held: %v", held)
	}
	for _, netns := range []string{pod.Path, "", "/run/netns/never-was"} {
		del := a.call("DEL")
		del.Netns = netns
		del.Must(t)
	}
}

// rdma-cni's DEL of an old pod takes the device of the new one that has the same netns path.
func TestPeerNetnsPathReused(t *testing.T) {
	for name, wait := range map[string]func(t *testing.T){
		"at once":          func(*testing.T) {},
		"after the return": func(t *testing.T) { comesBack(t, "fakeib.0") },
	} {
		t.Run(name, func(t *testing.T) { netnsPathReused(t, wait) })
	}
}

// netnsPathReused waits before the path is used again: once the old namespace is gone for good, the kernel gives its
// inode number to the next one.
func netnsPathReused(t *testing.T, wait func(*testing.T)) {
	S1(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	old := interfaceOf(pod, "net1", network(config{"deviceID": "platform/fakeib.0", "ipam": static("10.0.0.5/24")}))
	old.add(t)
	var before, after unix.Stat_t
	if err := unix.Stat(pod.Path, &before); err != nil {
		t.Fatal(err)
	}
	pod.Delete(t)
	wait(t)
	pod.Recreate(t)
	if err := unix.Stat(pod.Path, &after); err != nil {
		t.Fatal(err)
	}
	t.Logf("inode of the namespace: %d, then %d", before.Ino, after.Ino)
	young := interfaceOf(pod, "net1", network(config{"deviceID": "platform/fakeib.0", "ipam": static("10.0.0.6/24")}))
	young.id = "young"
	young.add(t)
	pod.has(t, "net1", "10.0.0.6/24")
	for range 2 {
		old.del(t)
		pod.has(t, "net1", "10.0.0.6/24")
		pod.hasHCA(t, "mlx5_0")
	}
	if out := young.call("CHECK").Exec(t); out.Failed() {
		t.Errorf("CHECK: %s", out)
	}
	young.del(t)
	old.del(t)
}

// The same with other devices: what the new pod has is not what the old one's entry names.
func TestPeerNetnsPathReusedOtherDevice(t *testing.T) {
	S1(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	old := interfaceOf(pod, "net1", network(config{"device": "ibs108", "ipam": static("10.0.0.5/24")}))
	old.add(t)
	pod.Delete(t)
	pod.Recreate(t)
	young := interfaceOf(pod, "net1", network(config{"device": "ibs110", "ipam": static("10.0.0.5/24")}))
	young.id = "young"
	young.add(t)
	old.del(t)
	pod.has(t, "net1", "10.0.0.5/24")
	pod.hasHCA(t, "mlx5_3")
	young.del(t)
}
