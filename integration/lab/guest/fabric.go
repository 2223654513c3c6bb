package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Port states as InfiniBand counts them.
const (
	Down   = 1
	Init   = 2
	Armed  = 3
	Active = 4
)

// Fabric describes simulated HCAs: the parameters of the fakeib module.
type Fabric struct {
	Num       int      // HCAs on platform devices fakeib.0, fakeib.1, ... each with one IB port
	Names     []string // of the HCAs, RoCE ones last; default mlx5_%d
	States    []int    // of the ports; default Active
	PKeys     []uint16 // default 0xffff 0x8001 0x8002 0x8003 0x9001
	RoCE      []string // netdevs to put HCAs on: "eth1", or "bond0@eth1" for eth1's PCI function with bond0 as netdev
	RoCEClass bool     // those have a file tc/1/traffic_class
	RoCEVerbs bool     // those have a data path, and the state of their netdev
	RoCEAnew  bool     // those are made anew, on the host, when their netdev moves
	Immovable bool     // the driver lacks disassociate_ucontext: no moves between network namespaces
	SRIOV     bool     // drive the PCI functions of QEMU's nvme, PF and VFs, as HCAs
	SFs       int      // HCAs on auxiliary devices fakeib.sf.0, fakeib.sf.1, ...
	NoVFGUID  bool     // VFs have no GUID until their PF gives them one
	Bare      bool     // without the IPoIB module: RDMA devices that have no netdev
}

// Load replaces whatever fabric the guest has by f. It is not removed when the test ends: the next one replaces it.
func (f Fabric) Load(t testing.TB) {
	t.Helper()
	forgetS1()
	Unload(t)
	args := []string{"fakeib", fmt.Sprintf("num=%d", f.Num)}
	add := func(name string, n int, value func(i int) string) {
		if n == 0 {
			return
		}
		values := make([]string, n)
		for i := range values {
			values[i] = value(i)
		}
		args = append(args, name+"="+strings.Join(values, ","))
	}
	add("names", len(f.Names), func(i int) string { return f.Names[i] })
	add("state", len(f.States), func(i int) string { return fmt.Sprint(f.States[i]) })
	add("pkeys", len(f.PKeys), func(i int) string { return fmt.Sprintf("%#x", f.PKeys[i]) })
	add("roce", len(f.RoCE), func(i int) string { return f.RoCE[i] })
	if f.RoCEVerbs {
		args = append(args, "roce_verbs=1")
	}
	if f.RoCEClass {
		args = append(args, "roce_tc=1")
	}
	if f.RoCEAnew {
		args = append(args, "roce_leaves=1")
	}
	if f.Immovable {
		args = append(args, "movable=0")
	}
	if f.SRIOV {
		args = append(args, "pci=1")
	}
	if f.SFs > 0 {
		args = append(args, fmt.Sprintf("sf=%d", f.SFs))
	}
	if f.NoVFGUID {
		args = append(args, "vf_guid=0")
	}
	if f.Bare {
		Modprobe(t, "-r", "ib_ipoib")
	} else {
		Modprobe(t, "ib_ipoib")
	}
	Modprobe(t, "ib_uverbs")
	Modprobe(t, "ib_umad")
	Modprobe(t, args...)
}

// Unload removes the fabric, wherever its devices are.
func Unload(t testing.TB) {
	t.Helper()
	if _, err := os.Stat("/sys/module/fakeib"); errors.Is(err, fs.ErrNotExist) {
		return
	}
	// A netlink dump or a closing file may hold a reference for a moment.
	Until(t, "fakeib is unloaded", func() error { return run("rmmod", "fakeib") })
}

// SetStates changes the port states of the platform HCAs, in their order.
func SetStates(t testing.TB, states ...int) {
	t.Helper()
	text := strings.Trim(strings.ReplaceAll(fmt.Sprint(states), " ", ","), "[]")
	if err := os.WriteFile("/sys/module/fakeib/parameters/state", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Modprobe loads a kernel module with parameters.
func Modprobe(t testing.TB, args ...string) {
	t.Helper()
	if err := run("modprobe", args...); err != nil {
		t.Fatal(err)
	}
}

// BusAddress returns the address of the platform HCA with index i.
func BusAddress(i int) string { return fmt.Sprintf("fakeib.%d", i) }

// NetdevOf returns the name of the IPoIB netdev on a bus address in the calling thread's network namespace, PKey
// children excepted; fs.ErrNotExist if it is not there.
func NetdevOf(h *netlink.Handle, bus string) (netlink.Link, error) {
	links, err := dump(h.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		if a := l.Attrs(); a.ParentDev == bus && l.Type() == "ipoib" && a.ParentIndex == 0 {
			return l, nil
		}
	}
	return nil, fmt.Errorf("find netdev of %s: %w", bus, fs.ErrNotExist)
}

// Host returns a netlink handle into the network namespace of the guest's host, closed when the test ends.
func Host(t testing.TB) *netlink.Handle {
	t.Helper()
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_RDMA)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// Ports returns "NAME/PORT state, physical state" of every RDMA device in the host's sysfs.
func Ports() (map[string]string, error) {
	paths, err := filepath.Glob("/sys/class/infiniband/*/ports/*")
	if err != nil {
		return nil, err
	}
	ports := make(map[string]string)
	for _, p := range paths {
		state, err := os.ReadFile(p + "/state")
		if err != nil {
			return nil, fmt.Errorf("read port state: %w", err)
		}
		phys, err := os.ReadFile(p + "/phys_state")
		if err != nil {
			return nil, fmt.Errorf("read port state: %w", err)
		}
		name := filepath.Base(filepath.Dir(filepath.Dir(p))) + "/" + filepath.Base(p)
		ports[name] = strings.TrimSpace(string(state)) + ", " + strings.TrimSpace(string(phys))
	}
	return ports, nil
}

// dump repeats a netlink dump that was interrupted by a change.
func dump[T any](f func() ([]T, error)) ([]T, error) {
	for {
		list, err := f()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
	}
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
