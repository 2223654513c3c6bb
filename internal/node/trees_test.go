package node_test

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// planted reads one of the trees that internal/inventory was tested with, and more lines of that kind.
func planted(t *testing.T, name, more string) *node.Node {
	t.Helper()
	text, err := os.ReadFile("../inventory/testdata/" + name + ".tree")
	if err != nil {
		t.Fatal(err)
	}
	tree := fstest.MapFS{}
	for line := range strings.Lines(string(text) + more) {
		line = strings.TrimSpace(line)
		if path, target, ok := strings.Cut(line, " -> "); ok {
			tree["sys/"+path] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
		} else if path, content, ok := strings.Cut(line, " = "); ok {
			tree["sys/"+path] = &fstest.MapFile{Data: []byte(content + "\n")}
		}
	}
	n, err := node.Open(tree, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A subfunction is on the auxiliary bus, and so is its interface.
func TestSubfunction(t *testing.T) {
	const dir = "devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/mlx5_core.sf.4/"
	n := planted(
		t,
		"mlx5-sf",
		"\n"+dir+"infiniband/mlx5_3/ports/1/link_layer = Ethernet\n"+dir+"infiniband/mlx5_3/ports/1/state = 4: "+
			"ACTIVE\n"+dir+"net/sf4/type = 1\n",
	)
	h := n.HCA("mlx5_3")
	if h == nil || h.Kind != "SF" || h.Parent != "0000:3b:00.0" ||
		h.Address != (device.Address{Bus: "auxiliary", Name: "mlx5_core.sf.4"}) ||
		h.Ports[0].Netdev != "sf4" {
		t.Errorf("%+v", h)
	}
}

// One function with two ports: each has its own interface, told by the GUID at the end of its address.
func TestDualPort(t *testing.T) {
	const dir = "devices/pci0000:00/0000:00:03.0/0000:04:00.0/"
	more := ""
	for _, p := range []string{"1", "2"} {
		more += "\n" + dir + "infiniband/mlx4_0/ports/" + p + "/link_layer = InfiniBand\n"
		i := string(p[0] - 1)
		more += dir + "net/ib" + i + "/type = 32\n" + dir + "net/ib" + i + "/address = " +
			"80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:40:00:0" + p + "\n"
	}
	h := planted(t, "mlx4-dual-port", more).HCA("mlx4_0")
	if h == nil || len(h.Ports) != 2 || h.Ports[0].Netdev != "ib0" || h.Ports[1].Netdev != "ib1" {
		t.Errorf("%+v", h)
	}
}

// A platform device, as the lab's simulated HCAs are.
func TestPlatformDevice(t *testing.T) {
	const dir = "devices/platform/fakeib.0/"
	n := planted(
		t,
		"virtio-fakeib",
		"\nclass/infiniband/fakeib0 -> ../../devices/platform/fakeib.0/infiniband/fakeib0\n"+
			dir+"infiniband/fakeib0/device -> ../../../fakeib.0\n"+dir+"infiniband/fakeib0/ports/1/link_layer = "+
			"InfiniBand\n"+
			dir+"infiniband/fakeib0/ports/1/state = 4: ACTIVE\n"+dir+"infiniband/fakeib0/ports/1/rate = 100 Gb/sec "+
			"(4X EDR)\n"+
			dir+"infiniband/fakeib0/ports/1/gids/0 = fe80:0000:0000:0000:0002:c903:00fa:0010\n"+
			"class/net/a-child -> ../../devices/platform/fakeib.0/net/a-child\n"+dir+"net/a-child/parent = ib0\n"+
			dir+"net/a-child/type = 32\n"+
			dir+"net/a-child/device -> ../../../fakeib.0\n"+dir+"net/a-child/address = "+
			"80:00:02:09:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fa:00:10\n"+
			dir+"net/ib0/type = 32\n"+dir+"net/ib0/address = "+
			"80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fa:00:10\n",
	)
	h := n.HCA("fakeib0")
	if h == nil || h.Kind != "PF" || h.Address.String() != "platform/fakeib.0" || h.Ports[0].Netdev != "ib0" {
		t.Errorf("%+v", h)
	}
	if f := n.Fabrics(); len(f.Fabrics) != 1 || f.Fabrics[0].Rails[0].Ports[0].HCA != "fakeib0" {
		t.Errorf("%+v", f)
	}
}
