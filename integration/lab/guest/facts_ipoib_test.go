//go:build labguest

package guest

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Fact 7: moving an RDMA device destroys all IPoIB netdevs of it, wherever they are, and recreates the parent.
func TestFactMoveDestroysIPoIB(t *testing.T) {
	Fabric{Num: 3}.Load(t)
	host, pod, other := Host(t), NewPod(t, "pod"), NewPod(t, "other")
	shell(
		t,
		"ip link set ib1 name ibs110 mtu 1500 alias mine up; ip address add 10.0.0.1/24 dev ibs110; ip link "+
			"property add dev ibs110 altname rail1",
	)
	for _, child := range []string{"stays", "goes"} {
		if err := Child(host, "ibs110", child, map[string]uint16{"stays": 0x8001, "goes": 0x8002}[child]); err != nil {
			t.Fatal(err)
		}
	}
	if err := MoveLink(mustLink(t, host, "goes").Index, other.Path, "goes"); err != nil {
		t.Fatal(err)
	}
	old := mustLink(t, host, "ibs110")
	if err := MoveRDMA("mlx5_1", pod.Path); err != nil {
		t.Fatal(err)
	}
	noLink(t, host, "ibs110")
	noLink(t, host, "rail1")
	noLink(t, host, "stays")
	noLink(t, other.Handle(t), "goes")
	where, want := host, "ib1" // the lowest free one: ib0 and ib2 are there
	if recreatesInPod(t) {
		where, want = pod.Handle(t), "ib0"
	}
	l, err := NetdevOf(where, "fakeib.1")
	if err != nil {
		t.Fatal(err)
	}
	now := l.Attrs()
	if now.Name != want || now.Index == old.Index && !recreatesInPod(t) || now.MTU == 1500 || now.Alias != "" ||
		now.RawFlags&unix.IFF_UP != 0 {
		t.Errorf("the new netdev is %+v, want name %s and nothing of the old one", now, want)
	}
	// Fact 10: of the hardware address only the port GUID stays.
	if string(old.HardwareAddr[12:]) != string(now.HardwareAddr[12:]) {
		t.Errorf("port GUID was %s, is %s", old.HardwareAddr, now.HardwareAddr)
	}
	if string(old.HardwareAddr) == string(now.HardwareAddr) {
		t.Errorf("queue pair of %s is the same", now.HardwareAddr)
	}
}

// Fact 7, the other order: a netdev that went first is destroyed by the move of its RDMA device.
func TestFactNetdevFirstIsLost(t *testing.T) {
	Fabric{Num: 1}.Load(t)
	host, pod := Host(t), NewPod(t, "pod")
	if err := MoveLink(mustLink(t, host, "ib0").Index, pod.Path, "net1"); err != nil {
		t.Fatal(err)
	}
	if err := MoveRDMA("mlx5_0", pod.Path); err != nil {
		t.Fatal(err)
	}
	noLink(t, pod.Handle(t), "net1")
}

// Fact 7a: a return makes a new netdev in the host, under the lowest free name: another device's.
func TestFactReturnSwapsNames(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	host := Host(t)
	pods := []*Pod{NewPod(t, "pod0"), NewPod(t, "pod1")}
	for i, pod := range pods {
		Give(t, pod, i, "net1")
	}
	for i := 1; i >= 0; i-- {
		TakeBack(t, pods[i], fmt.Sprintf("mlx5_%d", i))
		noLink(t, pods[i].Handle(t), "net1")
	}
	for i, want := range []string{"ib1", "ib0"} {
		l, err := NetdevOf(host, BusAddress(i))
		if err != nil {
			t.Fatal(err)
		}
		if l.Attrs().Name != want {
			t.Errorf("netdev of HCA %d is %s, want %s", i, l.Attrs().Name, want)
		}
	}
}

// Fact 8: IPoIB netdevs whose RDMA device stayed survive the namespace, children too: down, under the pod's name, or
// as dev<ifindex> if that is taken.
func TestFactNetnsDeletionReturnsIPoIB(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	host := Host(t)
	up(t, host, "ib1", "")
	if err := Child(host, "ib1", "child", 0x8001); err != nil {
		t.Fatal(err)
	}
	pod := NewPod(t, "pod")
	for from, to := range map[string]string{"ib0": "net1", "child": "net2"} {
		if err := MoveLink(mustLink(t, host, from).Index, pod.Path, to); err != nil {
			t.Fatal(err)
		}
		up(t, pod.Handle(t), to, "")
	}
	Modprobe(t, "dummy")
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "net2"
	taken := &netlink.Dummy{LinkAttrs: attrs}
	if err := host.LinkAdd(taken); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.LinkDel(taken) }()
	childIndex := mustLink(t, pod.Handle(t), "net2").Index
	pod.Delete(t)
	if l := comesBack(t, "fakeib.0"); l.Name != "net1" || l.RawFlags&unix.IFF_UP != 0 {
		t.Errorf("the parent came back as %+v, want net1, down", l)
	}
	Until(t, "the child is back", func() error {
		_, err := host.LinkByName(fmt.Sprintf("dev%d", childIndex))
		return err
	})
	if l := mustLink(t, host, fmt.Sprintf("dev%d", childIndex)); l.RawFlags&unix.IFF_UP != 0 {
		t.Errorf("the child came back up: %+v", l)
	}
}

// Fact 9: what the kernel makes of PKeys.
func TestFactPKeys(t *testing.T) {
	Fabric{Num: 1}.Load(t)
	host := Host(t)
	up(t, host, "ib0", "")
	carrier(t, "ib0", true)
	wantErrno(t, Child(host, "ib0", "zero", 0), unix.EINVAL)
	for _, name := range []string{"one", "same"} {
		if err := Child(host, "ib0", name, 0x8001); err != nil {
			t.Errorf("the same PKey under another name: %v", err)
		}
	}
	if err := Child(host, "ib0", "unknown", 0x8abc); err != nil {
		t.Fatal(err)
	}
	up(t, host, "one", "")
	up(t, host, "unknown", "")
	carrier(t, "one", true)
	carrier(t, "unknown", false)
	if err := Child(host, "one", "grandchild", 0x8002); err == nil {
		t.Error("a child of a child is accepted")
	} else {
		t.Logf("a child of a child: %v", err)
	}
}

// Fact 12: one request moves and renames; 12a: it sets up, too. It is not atomic: a late failure, that of the new name
// included, leaves the link in the pod under its old name.
func TestFactMoveAndRename(t *testing.T) {
	Fabric{Num: 4}.Load(t)
	host, pod := Host(t), NewPod(t, "pod")
	h := pod.Handle(t)
	if err := MoveLink(mustLink(t, host, "ib0").Index, pod.Path, "net0", Up); err != nil {
		t.Fatal(err)
	}
	if l := mustLink(t, h, "net0"); l.RawFlags&unix.IFF_UP == 0 {
		t.Errorf("net0 is not up: %+v", l)
	}
	wantErrno(t, MoveLink(mustLink(t, host, "ib1").Index, pod.Path, "net1", MTU(60000)), unix.EINVAL)
	wantErrno(t, MoveLink(mustLink(t, host, "ib2").Index, pod.Path, "net0"), unix.EEXIST)
	for _, name := range []string{"ib1", "ib2"} {
		noLink(t, host, name)
		mustLink(t, h, name)
	}
	// Only a link whose old name is taken there gets the new one on its way, and then a failure moves nothing.
	shell(t, "ip link set ib3 name net0")
	wantErrno(t, MoveLink(mustLink(t, host, "net0").Index, pod.Path, "ib1"), unix.EEXIST)
	mustLink(t, host, "net0")
	if err := MoveLink(mustLink(t, host, "net0").Index, pod.Path, "net3"); err != nil {
		t.Fatal(err)
	}
	mustLink(t, h, "net3")
}

// Fact 13: what a move of a netdev loses and keeps, and when it is refused.
func TestFactMoveLosesConfiguration(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	host, pod := Host(t), NewPod(t, "pod")
	h := pod.Handle(t)
	shell(
		t,
		"ip link property add dev ib0 altname rail0; ip link set ib0 mtu 1500 alias mine up; ip address add "+
			"10.0.0.1/24 dev ib0; ip route add 10.1.0.0/16 via 10.0.0.2",
	)
	if err := MoveLink(mustLink(t, host, "ib0").Index, pod.Path, "net1"); err != nil {
		t.Fatal(err)
	}
	l := mustLink(t, h, "rail0")
	if l.Name != "net1" || l.RawFlags&unix.IFF_UP != 0 || l.MTU != 1500 || l.Alias != "mine" {
		t.Errorf("net1 is %+v", l)
	}
	link, err := h.LinkByName("net1")
	if err != nil {
		t.Fatal(err)
	}
	if addrs, err := h.AddrList(link, netlink.FAMILY_ALL); err != nil || len(addrs) != 0 {
		t.Errorf("net1 has addresses %v, %v", addrs, err)
	}
	if routes, err := h.RouteList(link, netlink.FAMILY_ALL); err != nil || len(routes) != 0 {
		t.Errorf("net1 has routes %v, %v", routes, err)
	}
	// An altname that is taken there is found before the move.
	shell(t, "ip link property add dev ib1 altname rail0")
	wantErrno(t, MoveLink(mustLink(t, host, "ib1").Index, pod.Path, "net2"), unix.EEXIST)
	mustLink(t, host, "ib1")
}
