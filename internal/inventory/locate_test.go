package inventory

import (
	"errors"
	"io/fs"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// udev renames between the reading of the directory and the question to the kernel; another device may have got the
// name.
func TestRenamedMeanwhile(t *testing.T) {
	r, n := plant(t, "virtio-fakeib")
	tree := r.Sys
	const dir = "bus/virtio/devices/virtio2/net"
	r.Sys = &changing{tree, dir, func() {
		n.IP(t, "link", "set", "ens5", "name", "ens5v2")
		n.IP(t, "link", "set", "ib0", "name", "ens5")
	}}
	nets, err := r.NetdevsAt(at("virtio/virtio2"))
	if err != nil || len(nets) != 1 || nets[0].Name != "ens5v2" {
		t.Errorf("%v, %v", nets, err)
	}
	// One that is gone for good is not waited for.
	n.IP(t, "link", "delete", "ens5v2")
	if nets, err := r.NetdevsAt(at("virtio/virtio2")); err != nil || len(nets) != 0 {
		t.Errorf("%v, %v", nets, err)
	}
}

func TestNetdev(t *testing.T) {
	r, n := plant(t, "virtio-fakeib")
	was := &device.Netdev{Name: "ens5", Kind: "bridge", ARPType: 1, Address: at("virtio/virtio2")}
	n.IP(t, "link", "set", "ens5", "name", "dev7")
	got, err := r.Netdev(was)
	if err != nil || got.Name != "dev7" {
		t.Errorf("by bus address: %v, %v", got, err)
	}
	was.Address = at("virtio/virtio9")
	if got, err := r.Netdev(was); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another bus address: %v, %v", got, err)
	}
	pod := &Reader{Link: r.Link} // no sysfs there
	n.IP(t, "link", "add", "v0", "address", "02:00:00:00:00:06", "type", "veth", "peer", "name", "v1")
	n.IP(t, "link", "set", "v0", "name", "net1")
	v0 := &device.Netdev{Name: "v0", Kind: "veth", ARPType: 1, HWAddr: []byte{2, 0, 0, 0, 0, 6}}
	if got, err := pod.Netdev(v0); err != nil || got.Name != "net1" {
		t.Errorf("by hardware address: %v, %v", got, err)
	}
	v0.HWAddr = []byte{2, 0, 0, 0, 0, 9}
	if got, err := pod.Netdev(v0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another hardware address: %v, %v", got, err)
	}
	n.IP(t, "link", "property", "add", "dev", "net1", "altname", "v0")
	if got, err := pod.Netdev(v0); err != nil || got.Name != "net1" {
		t.Errorf("by altname: %v, %v", got, err)
	}
	if _, err := pod.Child(Child{PKey: 0x8001, Group: 5}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("child: %v", err)
	}
	if list, err := pod.ChildrenOf(v0); err != nil || len(list) != 0 {
		t.Errorf("children: %v, %v", list, err)
	}
	if _, err := pod.HCA(&device.HCA{Name: "mlx5_0"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("RDMA device: %v", err)
	}
}

func TestFits(t *testing.T) {
	guid := func(qpn byte) []byte {
		return []byte{0, 0, 0, qpn, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0, 0xfa, 0, 0x10}
	}
	pci := at("0000:3b:00.0")
	was := device.Netdev{Name: "ibs108", Kind: "ipoib", ARPType: 32, HWAddr: guid(1), Address: pci}
	tests := map[string]struct {
		edit func(*device.Netdev)
		want bool
	}{
		"itself":    {func(*device.Netdev) {}, true},
		"recreated": {func(n *device.Netdev) { n.Name, n.HWAddr, n.Index = "ib3", guid(2), 99 }, true},
		"GUID changed": {
			func(n *device.Netdev) { n.HWAddr = append(guid(2)[:19], 0x77) },
			true,
		}, // the bus address counts
		"another device":      {func(n *device.Netdev) { n.Address = at("0000:3b:00.1") }, false},
		"child":               {func(n *device.Netdev) { n.Parent = 4 }, false},
		"another kind":        {func(n *device.Netdev) { n.Kind = "" }, false},
		"another link type":   {func(n *device.Netdev) { n.ARPType = 1 }, false},
		"no address told":     {func(n *device.Netdev) { n.Address, n.HWAddr = device.Address{}, guid(9) }, true},
		"no address, no GUID": {func(n *device.Netdev) { n.Address, n.HWAddr = device.Address{}, nil }, false},
	}
	for name, tt := range tests {
		n := was
		tt.edit(&n)
		if got := fits(&was, &n); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	first, second := was, was
	first.PortName, second.PortName = "p0", "p1" // two ports of one function, with one GUID as mlx4 VFs have them
	was.PortName = "p1"
	if Likeness(&was, &second) <= Likeness(&was, &first) {
		t.Error("the port does not count")
	}
}

// The routes that come back with the addresses are left out, those that only look like it are kept.
func TestSnapshot(t *testing.T) {
	n := sandbox.New(t)
	n.Veth(t, "v0", sandbox.New(t), "v1")
	for _, c := range []string{
		"addr add 10.1.0.1/24 dev v0", "addr add 10.2.0.1/24 noprefixroute dev v0", "route add 10.2.0.0/24 dev v0 " +
			"proto kernel scope link src 10.2.0.1 metric 100",
		"addr add 10.3.0.1 peer 10.4.0.2/32 noprefixroute dev v0", "route add 10.4.0.2 dev v0 proto kernel scope link",
		"addr add 2001:db8:2::1/64 noprefixroute dev v0", "-6 route add 2001:db8:2::/64 dev v0 proto kernel metric 100",
		"addr add 2001:db8:1::1/64 dev v0", "route add 10.9.0.0/16 via 10.1.0.9 dev v0",
	} {
		n.IP(t, strings.Fields(c)...)
	}
	r := &Reader{Link: n.Link(t), NS: n.Open(t)}
	dev, err := r.Link.ByName("v0")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Snapshot(dev); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range dev.Routes {
		got = append(got, x.Dst.String())
	}
	if diff := cmp.Diff([]string{"10.2.0.0/24", "10.4.0.2/32", "10.9.0.0/16", "2001:db8:2::/64"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(dev.Addrs) != 6 || dev.Addrs[0].Prefix != netip.MustParsePrefix("10.1.0.1/24") {
		t.Errorf("addresses: %v", dev.Addrs)
	}
}
