package inventory

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// An RDMA device without hardware is told apart from one that is not there, by every selector that names it.
func TestSoft(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{
		"class/infiniband", "devices/virtual/infiniband/rxe0", "devices/pci0/infiniband/mlx5_0", "bus/pci",
	} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for file, target := range map[string]string{
		"class/infiniband/rxe0":                 "../../devices/virtual/infiniband/rxe0",
		"class/infiniband/mlx5_0":               "../../devices/pci0/infiniband/mlx5_0",
		"devices/pci0/infiniband/mlx5_0/device": "../..",
		"devices/pci0/subsystem":                "../../bus/pci",
	} {
		if err := os.Symlink(target, filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	guid := filepath.Join(dir, "devices/virtual/infiniband/rxe0/node_guid")
	if err := os.WriteFile(guid, []byte("505c:47ff:fe00:0200\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &Reader{Sys: os.DirFS(dir)}
	for name, want := range map[string]bool{"rxe0": true, "mlx5_0": false, "gone": false} {
		_, err := r.HCAAddress(name)
		var soft *SoftError
		if errors.As(err, &soft) != want || want && (soft.Name != name || !errors.Is(err, fs.ErrNotExist)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	g, err := device.ParseGUID("505c:47ff:fe00:0200")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []netconf.Selector{
		{Kind: netconf.ByRDMADevice, Value: "rxe0"}, {Kind: netconf.ByGUID, GUID: g},
	} {
		var soft *SoftError
		if _, err := r.Find(s); !errors.As(err, &soft) || soft.Name != "rxe0" {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if on, err := r.SoftOn(&device.Netdev{Index: 2}); err != nil || on != nil { // without RDMA netlink
		t.Errorf("%v, %v", on, err)
	}
}
