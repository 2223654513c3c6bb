//go:build labguest

package guest

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// namesPerNetns says whether names of RDMA devices are unique per network namespace, since 7.3, and not in the whole
// system.
func namesPerNetns(t testing.TB) bool {
	t.Helper()
	return kernelFrom(t, 7, 3)
}

// nameOnHost and nameIn return what an RDMA device is called in a namespace; empty: it is not there.
func nameOnHost(t testing.TB, index uint32) string {
	t.Helper()
	return RDMANames(t, Host(t))[index]
}

func nameIn(t testing.TB, pod *Pod, index uint32) string {
	t.Helper()
	return RDMANames(t, pod.Handle(t))[index]
}

// indexOf returns the index of an RDMA device on the host.
func indexOf(t testing.TB, name string) uint32 {
	t.Helper()
	l, err := RDMA(Host(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs.Index
}

// Fact 26: up to 7.2 a name of an RDMA device is taken wherever the device is that has it; since 7.3 only in its own
// namespace, and there a move onto a taken name fails and changes nothing.
func TestFactNamesOfRDMADevices(t *testing.T) {
	Fabric{Num: 2, Bare: true}.Load(t)
	before := Snapshot(t)
	a, b := NewPod(t, "a"), NewPod(t, "b")
	first, second := indexOf(t, "mlx5_0"), indexOf(t, "mlx5_1")
	if err := SetRDMA(first, "", a.Path); err != nil {
		t.Fatal(err)
	}
	err := SetRDMA(second, "mlx5_0", "") // on the host, while the holder of the name is in a pod
	if !namesPerNetns(t) {
		wantErrno(t, err, unix.EEXIST)
		if got := nameOnHost(t, second); got != "mlx5_1" {
			t.Errorf("the second device is %q", got)
		}
	} else {
		if err != nil {
			t.Fatal(err)
		}
		wantErrno(t, SetRDMA(second, "", a.Path), unix.EEXIST)
		if got := nameOnHost(t, second); got != "mlx5_0" {
			t.Errorf("after a move that failed the second device is %q on the host", got)
		}
		if err := SetRDMA(second, "", b.Path); err != nil { // two pods with equal names
			t.Fatal(err)
		}
		if x, y := nameIn(t, a, first), nameIn(t, b, second); x != "mlx5_0" || y != "mlx5_0" {
			t.Errorf("the devices are %q and %q", x, y)
		}
		if err := b.Do(func() error { return SetRDMA(second, "", HostPath) }); err != nil {
			t.Fatal(err)
		}
		wantErrno(t, a.Do(func() error { return SetRDMA(first, "", HostPath) }), unix.EEXIST)
		if got := nameIn(t, a, first); got != "mlx5_0" {
			t.Errorf("after a move home that failed the first device is %q in the pod", got)
		}
		if err := SetRDMA(second, "mlx5_1", ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Do(func() error { return SetRDMA(first, "", HostPath) }); err != nil {
		t.Fatal(err)
	}
	Same(t, before)
}

// Fact 27: since 7.3 one message moves and renames, or fails and does neither; before, it renames, and says nothing of
// the namespace.
func TestFactMoveAndRenameRDMA(t *testing.T) {
	Fabric{Num: 2, Bare: true}.Load(t)
	before := Snapshot(t)
	pod := NewPod(t, "pod")
	first, second := indexOf(t, "mlx5_0"), indexOf(t, "mlx5_1")
	if err := SetRDMA(first, "rail0", pod.Path); err != nil {
		t.Fatal(err)
	}
	if !namesPerNetns(t) {
		if got := nameOnHost(t, first); got != "rail0" {
			t.Errorf("the device is %q on the host, want it there, renamed", got)
		}
		if err := SetRDMA(first, "rail0", pod.Path); err != nil || nameOnHost(t, first) != "rail0" {
			t.Errorf("the same name and a namespace: %v, it is %q on the host", err, nameOnHost(t, first))
		}
		wantErrno(t, SetRDMA(first, "mlx5_1", pod.Path), unix.EEXIST)
		if err := SetRDMA(first, "mlx5_0", ""); err != nil {
			t.Fatal(err)
		}
		Same(t, before)
		return
	}
	if got := nameIn(t, pod, first); got != "rail0" {
		t.Errorf("the device is %q in the pod", got)
	}
	wantErrno(t, SetRDMA(second, "rail0", pod.Path), unix.EEXIST) // taken there
	if got := nameOnHost(t, second); got != "mlx5_1" {
		t.Errorf("after a message that failed the second device is %q on the host", got)
	}
	// A name that is taken only where the device comes from is no obstacle, nor is its own where it goes to.
	if err := pod.Do(func() error { return SetRDMA(first, "mlx5_1", "") }); err != nil {
		t.Fatal(err)
	}
	if err := SetRDMA(second, "mlx5_2", pod.Path); err != nil {
		t.Fatal(err)
	}
	if err := pod.Do(func() error {
		return errors.Join(SetRDMA(first, "mlx5_0", HostPath), SetRDMA(second, "mlx5_1", HostPath))
	}); err != nil {
		t.Fatal(err)
	}
	if err := SetRDMA(first, "mlx5_0", HostPath); err != nil { // its own name and where it is
		t.Logf("a message that changes nothing: %v", err)
	}
	Same(t, before)
}

// Fact 28: since 7.3 a device of a namespace that ends returns to the host as ibdevN if its name is taken there.
func TestFactNetnsDeletionAndTakenName(t *testing.T) {
	Fabric{Num: 2, Bare: true}.Load(t)
	before := Snapshot(t)
	pod := NewPod(t, "pod")
	first, second := indexOf(t, "mlx5_0"), indexOf(t, "mlx5_1")
	if err := SetRDMA(first, "", pod.Path); err != nil {
		t.Fatal(err)
	}
	err := pod.Do(func() error { return SetRDMA(first, "mlx5_1", "") })
	if !namesPerNetns(t) {
		wantErrno(t, err, unix.EEXIST)
	} else if err != nil {
		t.Fatal(err)
	}
	pod.Delete(t)
	var name string
	Until(t, "the device is back", func() error {
		if name = nameOnHost(t, first); name == "" {
			return errors.New("it is not")
		}
		return nil
	})
	t.Logf("index %d came home as %s", first, name)
	if namesPerNetns(t) != strings.HasPrefix(name, "ibdev") {
		t.Errorf("the device came home as %s", name)
	}
	if got := nameOnHost(t, second); got != "mlx5_1" {
		t.Errorf("the other device is %s", got)
	}
	if name != "mlx5_0" {
		if err := SetRDMA(first, "mlx5_0", ""); err != nil {
			t.Fatal(err)
		}
	}
	Same(t, before)
}

// Fact 27, told without a change: a message with the name that the device has, and with a namespace that does not
// exist.
func TestFactProbeOfMoveAndRename(t *testing.T) {
	Fabric{Num: 1, Bare: true}.Load(t)
	before := Snapshot(t)
	err := setRDMA(indexOf(t, "mlx5_0"), "mlx5_0", true, ^uint32(0))
	t.Logf("the kernel says %v", err)
	if (err != nil) != namesPerNetns(t) {
		t.Errorf("got %v", err)
	}
	Same(t, before)
}

// Fact 50: a netdev that arrives as "all" has no IPv4 settings, and its RoCE HCA has no netdev; a move under another
// name gives it both.
func TestEtherFactNameAll(t *testing.T) {
	nic := nics(t, "e1000e")[0].Attrs()
	Fabric{RoCE: []string{nic.Name}}.Load(t)
	before := Unchanged(t)
	pod, ports := NewPod(t, "pod"), before.RDMA["mlx5_0"].Ports["1"]
	if err := MoveLink(nic.Index, pod.Path, "net9"); err != nil {
		t.Fatal(err)
	}
	pod.sh(t, "ip link set net9 mtu 1279; ip link set net9 name all; ip link set all netns 1")
	now := Snapshot(t)
	if l := now.Links["all"]; len(l.IPv4) > 0 {
		t.Errorf("it has settings: %v", l.IPv4)
	}
	if got := now.RDMA["mlx5_0"].Ports["1"]; got == ports {
		t.Errorf("the port is %s", got)
	}
	shell(t, "ip link set all name "+nic.Name)
	if got := Snapshot(t).RDMA["mlx5_0"].Ports["1"]; got == ports {
		t.Errorf("with its name the port is %s", got)
	}
	shell(t, "ip link set "+nic.Name+" netns "+pod.Name)
	pod.sh(t, "ip link set "+nic.Name+" netns 1")
	shell(t, "ip link set "+nic.Name+" mtu 1500")
}
