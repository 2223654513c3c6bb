package inventory

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

func at(s string) device.Address {
	a, err := device.ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

func TestNetdevsAt(t *testing.T) {
	for _, tt := range []struct {
		tree, address string
		netdevs, pci  string
	}{
		{"mlx5-pf-vf", "0000:3b:00.0", "ibs108 pci/0000:3b:00.0", "0000:3b:00.0"},
		{"mlx5-pf-vf", "0000:3b:00.2", "", "0000:3b:00.2"},
		{"mlx5-pf-vf", "0000:99:00.0", "", "0000:99:00.0"},
		{"mlx5-sf", "mlx5_core.sf.4", "sf4 auxiliary/mlx5_core.sf.4", "0000:3b:00.0"},
		{"mlx5-sf", "0000:3b:00.0", "uplink , child ", "0000:3b:00.0"},
		{"mlx4-dual-port", "0000:04:00.0", "ib0 pci/0000:04:00.0, ib1 pci/0000:04:00.0", "0000:04:00.0"},
		{"virtio-fakeib", "virtio/virtio2", "ens5 virtio/virtio2", "0000:00:05.0"},
		{"virtio-fakeib", "platform/fakeib.0", "ib0 platform/fakeib.0", ""},
	} {
		t.Run(tt.tree+" "+tt.address, func(t *testing.T) {
			t.Parallel()
			r, _ := plant(t, tt.tree)
			nets, err := r.NetdevsAt(at(tt.address))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, n := range nets {
				got = append(got, n.Name+" "+n.Address.String())
			}
			slices.Sort(got)
			want := strings.Split(tt.netdevs, ", ")
			slices.Sort(want)
			if tt.netdevs == "" {
				want = nil
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if pci := r.pciOf(sysDevice(at(tt.address)), at(tt.address)); pci != tt.pci {
				t.Errorf("on PCI function %q, want %q", pci, tt.pci)
			}
		})
	}
}

// A VLAN or IPoIB child is shown under its parent's device, and is not it.
func TestChildrenAreLeftOut(t *testing.T) {
	r, n := plant(t, "mlx5-sf")
	n.IP(t, "link", "delete", "child")
	uplink, err := r.Link.ByName("uplink")
	if err != nil {
		t.Fatal(err)
	}
	n.IP(t, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	n.IP(t, "link", "add", "link", "v0", "name", "child", "index", "700", "type", "macvlan")
	r.Sys = withFile(t, r.Sys, "devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/net/child/ifindex", "700")
	nets, err := r.NetdevsAt(at("0000:3b:00.0"))
	if err != nil || len(nets) != 1 || nets[0].Index != uplink.Index {
		t.Errorf("%v, %v", nets, err)
	}
}

// withFile is a copy of the tree with another content of one file.
func withFile(t *testing.T, tree fs.FS, file, content string) fs.FS {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, tree); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/"+file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return os.DirFS(dir)
}

func TestRepresentor(t *testing.T) {
	for port, want := range map[string]bool{
		"": false, "p0": false, "p1": false, "pf0vf3": true, "pf0sf1": true, "pf0": true, "c1pf0vf0": true,
		"c1pf0sf2": true, "cable": false,
	} {
		if got := representor(&device.Netdev{PortName: port}); got != want {
			t.Errorf("%q: %v", port, got)
		}
	}
}

func TestAt(t *testing.T) {
	tests := map[string]struct {
		tree, address string
		want          string // name, address, PCI
		err           error
	}{
		"virtio by PCI address": {"virtio-fakeib", "0000:00:05.0", "ens5 virtio/virtio2 0000:00:05.0", nil},
		"virtio by its own":     {"virtio-fakeib", "virtio/virtio2", "ens5 virtio/virtio2 0000:00:05.0", nil},
		"platform":              {"virtio-fakeib", "platform/fakeib.0", "ib0 platform/fakeib.0 ", nil},
		"missing":               {"virtio-fakeib", "0000:00:06.0", "", fs.ErrNotExist},
		"two netdevs":           {"mlx4-dual-port", "0000:04:00.0", "", ErrAmbiguous},
		"RDMA without netlink":  {"mlx5-pf-vf", "0000:3b:00.0", "", rdma.ErrNoRDMA},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := plant(t, tt.tree)
			d, err := r.Find(netconf.Selector{Kind: netconf.ByAddress, Address: at(tt.address)})
			if !errors.Is(err, tt.err) {
				t.Fatalf("got %v, want %v", err, tt.err)
			}
			if err != nil {
				return
			}
			if got := d.Netdev.Name + " " + d.Address.String() + " " + d.PCI; got != tt.want ||
				d.DeviceKey() != d.Address.String() {
				t.Errorf("got %q (claim %s), want %q", got, d.DeviceKey(), tt.want)
			}
		})
	}
}

func TestFind(t *testing.T) {
	r, n := plant(t, "virtio-fakeib")
	n.IP(t, "link", "property", "add", "dev", "ens5", "altname", "enp0s5")
	n.IP(t, "link", "set", "ens5", "address", "02:00:00:00:00:05")
	n.IP(t, "link", "add", "v0", "address", "02:00:00:00:00:06", "type", "veth", "peer", "name", "v1")
	n.IP(t, "link", "add", "twin", "address", "02:00:00:00:00:07", "type", "bridge")
	n.IP(t, "link", "add", "twin2", "address", "02:00:00:00:00:07", "type", "bridge")
	const pci, platform = "/sys/devices/pci0000:00/0000:00:05.0", "/sys/devices/platform/fakeib.0"
	hw := func(s string) netconf.Selector {
		mac, err := net.ParseMAC(s)
		if err != nil {
			t.Fatal(err)
		}
		return netconf.Selector{Kind: netconf.ByHWAddr, HWAddr: mac, Value: s}
	}
	by := func(k netconf.SelectorKind, v string) netconf.Selector { return netconf.Selector{Kind: k, Value: v} }
	tests := map[string]struct {
		s    netconf.Selector
		want string // claim
		err  error
	}{
		"name":             {by(netconf.ByName, "ens5"), "virtio/virtio2", nil},
		"altname":          {by(netconf.ByName, "enp0s5"), "virtio/virtio2", nil},
		"virtual":          {by(netconf.ByName, "v0"), "netdev/v0", nil},
		"no such name":     {by(netconf.ByName, "ens6"), "", fs.ErrNotExist},
		"hardware address": {hw("02:00:00:00:00:05"), "virtio/virtio2", nil},
		"of a veth":        {hw("02:00:00:00:00:06"), "netdev/v0", nil},
		"of two":           {hw("02:00:00:00:00:07"), "", ErrAmbiguous},
		"of none":          {hw("02:00:00:00:00:08"), "", fs.ErrNotExist},
		"of none, IPoIB": {
			hw("00:00:10:29:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fa:00:10"),
			"",
			fs.ErrNotExist,
		},
		"path of the device":     {by(netconf.ByKernelPath, platform), "platform/fakeib.0", nil},
		"path of its net":        {by(netconf.ByKernelPath, platform+"/net"), "platform/fakeib.0", nil},
		"path of its netdev":     {by(netconf.ByKernelPath, platform+"/net/ib0"), "platform/fakeib.0", nil},
		"path of the function":   {by(netconf.ByKernelPath, pci), "virtio/virtio2", nil},
		"no such path":           {by(netconf.ByKernelPath, pci+"/x"), "", fs.ErrNotExist},
		"path of something else": {by(netconf.ByKernelPath, "/sys/devices/platform"), "", fs.ErrNotExist},
		"no RDMA device":         {by(netconf.ByRDMADevice, "mlx5_0"), "", fs.ErrNotExist},
		"no GUID":                {netconf.Selector{Kind: netconf.ByGUID, GUID: 5}, "", fs.ErrNotExist},
		"nothing":                {netconf.Selector{}, "", fs.ErrNotExist},
	}
	for name, tt := range tests {
		d, err := r.Find(tt.s)
		if !errors.Is(err, tt.err) || err == nil && d.DeviceKey() != tt.want {
			t.Errorf("%s: %+v, %v, want %s, %v", name, d, err, tt.want, tt.err)
		}
	}
}

func TestGUIDs(t *testing.T) {
	r, _ := plant(t, "mlx5-pf-vf")
	for g, want := range map[device.GUID]bool{0x0002c90300fa0010: true, 0x0002c90300fa0011: true,
		0x0002c90300fa0012: false} {
		if got := r.hasGUID("class/infiniband/mlx5_0", g); got != want {
			t.Errorf("%s: %v", g, got)
		}
	}
	// Found by its node GUID and by its port GUID: from here on only nldev can tell more.
	for _, g := range []device.GUID{0x0002c90300fa0010, 0x0002c90300fa0011} {
		if _, err := r.Find(netconf.Selector{Kind: netconf.ByGUID, GUID: g}); !errors.Is(err, rdma.ErrNoRDMA) {
			t.Errorf("%s: %v", g, err)
		}
	}
	if _, err := r.Find(
		netconf.Selector{Kind: netconf.ByRDMADevice, Value: "mlx5_0"},
	); !errors.Is(
		err,
		rdma.ErrNoRDMA,
	) {
		t.Errorf("by name: %v", err)
	}
}

func TestPKeys(t *testing.T) {
	r, _ := plant(t, "mlx5-pf-vf")
	for p, want := range map[device.PKey]int{0xffff: 1, 0x7fff: 1, 0x8001: 2, 1: 2, 0x8002: 2} {
		if held, err := r.PKeys("mlx5_0", 1, p); err != nil || len(held) != want {
			t.Errorf("%s: %v, %v, want %d", p, held, err, want)
		}
	}
	if _, err := r.PKeys("mlx5_9", 1, 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such device: %v", err)
	}
}

func TestPresent(t *testing.T) {
	for _, tt := range []struct {
		tree    string
		address device.Address
		want    bool
	}{
		{"mlx5-pf-vf", at("0000:3b:00.0"), true},
		{"mlx5-pf-vf", at("0000:3b:00.2"), false}, // no driver
		{"mlx5-pf-vf", at("0000:3b:00.3"), false},
		{"mlx5-sf", at("mlx5_core.sf.4"), true},
		{"virtio-fakeib", at("platform/fakeib.0"), true}, // needs none
		{"virtio-fakeib", device.Address{}, true},
	} {
		r, _ := plant(t, tt.tree)
		if got := r.Present(tt.address); got != tt.want {
			t.Errorf("%s %s: %v", tt.tree, tt.address, got)
		}
	}
}
