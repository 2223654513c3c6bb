//go:build labguest

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// softOn makes a soft RDMA device on a netdev of the host.
func softOn(t *testing.T, name, netdev string) {
	t.Helper()
	shell(t, fmt.Sprintf("rdma link add %s type rxe netdev %s", name, netdev))
}

// endsSoft waits until an RDMA device is no more: the kernel unregisters it a moment later.
func endsSoft(t *testing.T, name string) {
	t.Helper()
	host := Host(t)
	Until(t, name+" is gone", func() error {
		if _, err := RDMA(host, name); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}

// fact45 is the same in both RDMA modes.
func fact45(t *testing.T, shared bool) {
	SoftRDMA(t)
	Modprobe(t, "dummy")
	before := Snapshot(t)
	shell(t, "ip link add d0 type dummy")
	host, pod := Host(t), NewPod(t, "pod")

	softOn(t, "rxe0", "d0")
	if dirs := softDevices(); len(dirs) != 1 || dirs[0] != "/sys/class/infiniband/rxe0" {
		t.Errorf("RDMA devices without hardware: %v", dirs)
	}
	if err := MoveLink(mustLink(t, host, "d0").Index, pod.Path, "net1"); err != nil {
		t.Fatal(err)
	}
	endsSoft(t, "rxe0")

	// One that a process in a pod makes is in the initial network namespace.
	pod.sh(t, "rdma link add rxe1 type rxe netdev net1")
	if _, err := RDMA(host, "rxe1"); err != nil {
		t.Errorf("a soft RDMA device made in a pod is not on the host: %v", err)
	}
	if _, err := RDMA(pod.Handle(t), "rxe1"); (err == nil) != shared {
		t.Errorf("a soft RDMA device made in a pod, seen there: %v", err)
	}
	out, err := exec.Command("rdma", "-d", "link", "show", "rxe1/1").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "rxe1/1") || strings.Contains(string(out), "netdev") {
		t.Errorf("on the host rdma shows its netdev, which is in the pod: %s, %v", out, err)
	}
	pod.Delete(t)
	endsSoft(t, "rxe1")
	Until(t, "the dummy is gone", func() error { // it does not outlive its namespace
		_, err := host.LinkByName("net1")
		if err == nil {
			return errors.New("it is there")
		}
		return nil
	})
	Same(t, before)
}

// Fact 45: a soft RDMA device has no hardware in sysfs, and is destroyed when its netdev moves.
func TestFactSoftRDMA(t *testing.T)       { fact45(t, false) }
func TestSharedFactSoftRDMA(t *testing.T) { fact45(t, true) }

// ADD refuses a card that has a soft RDMA device of the host on it, before anything has changed, and STATUS reports it.
// What is selected by such a device is called what it is.
func TestEtherSoftRDMARefused(t *testing.T) {
	SoftRDMA(t)
	e := nics(t, "e1000e")
	name, other := e[0].Attrs().Name, e[1].Attrs().Name
	softOn(t, "rxe0", name)
	before := Unchanged(t)
	pod := NewPod(t, "pod")
	for what, fields := range map[string]config{
		"name":      {"device": name},
		"PCI":       {"deviceID": functionOf(t, e[0])},
		"none":      {"device": name, "rdma": "none"},
		"exclusive": {"device": name, "rdma": "exclusive"},
	} {
		t.Run(what, func(t *testing.T) {
			a := interfaceOf(pod, "net1", network(fields))
			wantError(t, a.call("ADD").Exec(t), 101, name+" carries", "soft RDMA device rxe0", "rdma link delete rxe0")
			Same(t, before)
			wantError(t, readiness(t, fields, ""), 50, "soft RDMA device rxe0")
			a.del(t)
		})
	}
	guid, err := os.ReadFile("/sys/class/infiniband/rxe0/node_guid")
	if err != nil {
		t.Fatal(err)
	}
	for what, fields := range map[string]config{
		"RDMA device": {"rdmaDevice": "rxe0"},
		"GUID":        {"guid": strings.TrimSpace(string(guid))},
		"mode rdma":   {"mode": "rdma", "rdmaDevice": "rxe0"},
	} {
		t.Run(what, func(t *testing.T) {
			a := interfaceOf(pod, "net1", network(fields))
			wantError(t, a.call("ADD").Exec(t), 100, "RDMA device rxe0 is a soft one", "on "+name, "without hardware",
				"fabricctl discover")
			Same(t, before)
			a.del(t)
		})
	}
	a := interfaceOf(pod, "net1", network(config{"device": other})) // a card without one
	a.add(t)
	a.del(t)
}

// What the pod makes on its interface ends with the attachment, whether the pod lives or not, and DEL succeeds.
func TestEtherSoftRDMAOfThePod(t *testing.T) {
	SoftRDMA(t)
	e := nics(t, "e1000e")[0].Attrs()
	before := Unchanged(t)
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprint(gone), func(t *testing.T) { softOfThePod(t, config{"device": e.Name}, before, gone) })
	}
}

func softOfThePod(t *testing.T, fields config, before State, gone bool) {
	pod := NewPod(t, "pod")
	fields["ipam"] = static("10.0.0.5/24")
	a := interfaceOf(pod, "net1", network(fields))
	a.add(t)
	pod.sh(t, "rdma link add rxe7 type rxe netdev net1")
	if _, err := RDMA(Host(t), "rxe7"); err != nil {
		t.Fatal(err)
	}
	a.call("CHECK").Must(t)
	if gone {
		pod.Delete(t)
	}
	a.del(t)
	endsSoft(t, "rxe7")
	Same(t, before)
}

// In shared mode the netdev alone moves, which destroys a soft RDMA device as well. One on an interface in the pod is
// no hardware that mode rdma could move, and is called what it is.
func TestSharedSoftRDMA(t *testing.T) {
	RequireMode(t, "shared")
	SoftRDMA(t)
	Modprobe(t, "dummy")
	Modprobe(t, "veth")
	allowVirtual(t)
	shell(t, "ip link add d0 type dummy; ip link add v0 type veth peer name v1")
	t.Cleanup(func() { shell(t, "ip link del d0; ip link del v0") })
	t.Run("of the pod", func(t *testing.T) { softOfThePod(t, config{"device": "d0"}, Snapshot(t), false) })
	softOn(t, "rxe0", "d0")
	before := Unchanged(t)
	pod := NewPod(t, "pod")
	a := interfaceOf(pod, "net1", network(config{"device": "d0"}))
	wantError(t, a.call("ADD").Exec(t), 101, "d0 carries", "soft RDMA device rxe0", "rdma link delete rxe0")
	Same(t, before)
	a.del(t)
	v1, err := netlink.LinkByName("v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := MoveLink(v1.Attrs().Index, pod.Path, "net1"); err != nil {
		t.Fatal(err)
	}
	prev := config{"cniVersion": "1.1.0", "interfaces": []config{{"name": "net1", "sandbox": pod.Path}}}
	chained := interfaceOf(pod, "net1", network(config{"mode": "rdma", "prevResult": prev}))
	wantError(t, chained.call("ADD").Exec(t), 100, "interface net1 in the pod has no hardware: it has no RDMA device")
	pod.sh(t, "rdma link add rxe1 type rxe netdev net1")
	wantError(t, chained.call("ADD").Exec(t), 100, "net1", "no hardware", "its RDMA device rxe1 is a soft one")
	chained.del(t)
	if err := pod.Do(func() error { return MoveLink(pod.link(t, "net1").Attrs().Index, HostPath, "v1") }); err != nil {
		t.Fatal(err)
	}
	endsSoft(t, "rxe1")
}

// People see it for what it is: no rail, and in the way of its card.
func TestCtlSoftRDMA(t *testing.T) {
	SoftRDMA(t)
	Modprobe(t, "virtio_net")
	Until(t, "eth0 is there", func() error { _, err := netlink.LinkByName("eth0"); return err })
	softOn(t, "rxe0", "eth0")
	Unchanged(t)
	table := ctl(t, 0, "discover")
	if !containsAll(table, "in no fabric", "rxe0:1", "a soft RDMA device (rxe, siw) on eth0", "no rail") ||
		strings.Contains(table, "rail 0") {
		t.Errorf("discover:\n%s", table)
	}
	host, _ := ctlStatus(t, "doctor", "host")
	if !containsAll(host, "host-soft-rdma", "rxe0 is a soft RDMA device (rxe, siw) on eth0", "rdma link delete rxe0") {
		t.Errorf("doctor host:\n%s", host)
	}
	pod := NewPod(t, "pod")
	file := t.TempDir() + "/conf"
	conf, err := json.Marshal(network(config{"device": "eth0"}))
	if err == nil {
		err = os.WriteFile(file, conf, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	plan := ctl(t, 3, "plan", "--netns", pod.Path, "-f", file)
	if !containsAll(plan, "refused", "101", "soft RDMA device rxe0", "rdma link delete rxe0") {
		t.Errorf("plan: %s", plan)
	}
}
