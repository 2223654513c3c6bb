//go:build labguest

package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The facts of the kernel that the plugin's order of steps rests on. Each of these tests fails on the kernel that
// changes one of them.

// recreatesInPod says whether the kernel recreates an IPoIB netdev in its RDMA device's network namespace: since 6.17,
// upstream f1208b05574f. Older ones do so in the initial one.
func recreatesInPod(t *testing.T) bool {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	return major > 6 || major == 6 && minor >= 17
}

// mustLink returns a link by name.
func mustLink(t testing.TB, h *netlink.Handle, name string) *netlink.LinkAttrs {
	t.Helper()
	l, err := h.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs()
}

// noLink fails the test if there is a link of this name.
func noLink(t *testing.T, h *netlink.Handle, name string) {
	t.Helper()
	if l, err := h.LinkByName(name); err == nil {
		t.Errorf("there is a link %s: %+v", name, l.Attrs())
	}
}

func wantErrno(t *testing.T, err error, want unix.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

// comesBack waits until the netdev of a bus address is in the host, and returns it.
func comesBack(t *testing.T, bus string) *netlink.LinkAttrs {
	t.Helper()
	host := Host(t)
	var l netlink.Link
	Until(t, "the netdev of "+bus+" is back", func() error {
		var err error
		l, err = NetdevOf(host, bus)
		return err
	})
	return l.Attrs()
}

// Fact 1: only drivers with disassociate_ucontext can be moved; rxe is not one of them.
func TestFactMoveNeedsDriverSupport(t *testing.T) {
	Fabric{Num: 1, Immovable: true}.Load(t)
	pod := NewPod(t, "pod")
	wantErrno(t, MoveRDMA("mlx5_0", pod.Path), unix.EOPNOTSUPP)

	SoftRDMA(t)
	shell(t, "rdma link add rxe0 type rxe netdev "+firstNIC(t))
	defer shell(t, "rdma link delete rxe0")
	if !kernelFrom(t, 7, 3) {
		wantErrno(t, MoveRDMA("rxe0", pod.Path), unix.EOPNOTSUPP)
		return
	}
	if err := MoveRDMA("rxe0", pod.Path); err != nil { // rxe can be moved since 7.3
		t.Fatal(err)
	}
	TakeBack(t, pod, "rxe0")
}

// kernelFrom tells whether the guest's kernel is of this version or newer.
func kernelFrom(t testing.TB, major, minor int) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	var x, y int
	if _, err := fmt.Sscanf(string(b), "%d.%d", &x, &y); err != nil {
		t.Fatalf("kernel release %q: %v", b, err)
	}
	return x > major || x == major && y >= minor
}

// Fact 2: the kernel compares with the namespace of the calling thread, not with that of the socket.
func TestFactMoveComparesTheThread(t *testing.T) {
	Fabric{Num: 1}.Load(t)
	pod := NewPod(t, "pod")
	if err := MoveRDMA("mlx5_0", pod.Path); err != nil {
		t.Fatal(err)
	}
	h := pod.Handle(t)
	l, err := RDMA(h, "mlx5_0")
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Open(HostPath)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	wantErrno(t, h.RdmaLinkSetNsFd(l, uint32(host.Fd())), unix.ENODEV)
	TakeBack(t, pod, "mlx5_0")
}

// Fact 3: the mode can't be switched while there is another network namespace.
func TestFactModeSwitch(t *testing.T) {
	RequireMode(t, "exclusive")
	h, err := netlink.NewHandle(unix.NETLINK_RDMA)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	pod := NewPod(t, "pod")
	wantErrno(t, h.RdmaSystemSetNetnsMode("shared"), unix.EBUSY)
	pod.Delete(t)
	Until(t, "the mode is shared", func() error { return h.RdmaSystemSetNetnsMode("shared") })
	Until(t, "the mode is exclusive", func() error { return h.RdmaSystemSetNetnsMode("exclusive") })
}

// charDevices returns name and number of the character devices.
func charDevices(t *testing.T) map[string]uint64 {
	t.Helper()
	entries, err := os.ReadDir("/dev/infiniband")
	if err != nil {
		t.Fatal(err)
	}
	devices := make(map[string]uint64)
	for _, e := range entries {
		var st unix.Stat_t
		if err := unix.Stat("/dev/infiniband/"+e.Name(), &st); err != nil {
			t.Fatal(err)
		}
		devices[e.Name()] = st.Rdev
	}
	return devices
}

// Fact 5: a device that sits elsewhere is gone from the host's sysfs; its character devices stay, with their numbers.
func TestFactMovedDeviceInSysfs(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	pod := NewPod(t, "pod")
	before := charDevices(t)
	if len(before) < 4 {
		t.Fatalf("character devices are %v", before)
	}
	if err := MoveRDMA("mlx5_0", pod.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/sys/class/infiniband/mlx5_0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("mlx5_0 is still in the host's sysfs: %v", err)
	}
	if got := pod.Sysfs(t, "/sys/class/infiniband"); len(got) != 1 || got[0] != "mlx5_0" {
		t.Errorf("the pod's sysfs has %v", got)
	}
	if got := charDevices(t); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("character devices were %v, are %v", before, got)
	}
	TakeBack(t, pod, "mlx5_0")
	if got := charDevices(t); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("character devices were %v, are %v after the return", before, got)
	}
}

// Fact 6: RDMA devices come back with their name when the last process has left the deleted namespace, not before.
func TestFactNetnsDeletionReturnsRDMA(t *testing.T) {
	Fabric{Num: 1}.Load(t)
	pod := NewPod(t, "pod")
	proc := pod.Spawn(t)
	Give(t, pod, 0, "net1")
	pod.Delete(t)
	// Nothing happens, however long one waits: ask as often as the return below takes.
	host := Host(t)
	for range 20 {
		if _, err := RDMA(host, "mlx5_0"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("mlx5_0 is back while a process is in the namespace: %v", err)
		}
	}
	proc.Kill()
	Until(t, "mlx5_0 is back", func() error { _, err := RDMA(host, "mlx5_0"); return err })
	if got := comesBack(t, "fakeib.0").Name; got != "ib0" {
		t.Errorf("its netdev is %s, want ib0", got)
	}
}
