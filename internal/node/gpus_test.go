package node_test

import (
	"io/fs"
	"maps"
	"reflect"
	"testing"
	"testing/fstest"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Single facts, read from /sys alone, are those of the whole picture.
func TestPlaceOf(t *testing.T) {
	for _, m := range machines.All() {
		n, err := node.Open(m.FS, journal.Store{})
		if err != nil {
			t.Fatal(err)
		}
		sys, err := fs.Sub(m.FS, "sys")
		if err != nil {
			t.Fatal(err)
		}
		if got := node.GPUs(sys); !reflect.DeepEqual(got, n.GPUs) {
			t.Errorf("%s: GPUs %+v, want %+v", m.Name, got, n.GPUs)
		}
		for i := range n.HCAs {
			h := &n.HCAs[i]
			got := node.PlaceOf(sys, h.Address, h.PCI, node.ReadDataDirects(sys))
			if !reflect.DeepEqual(got, h.Place()) || len(got.Path) < 3 || got.PCIeRoot() != h.Place().Path[0] {
				t.Errorf("%s: %s is at %v, want %v", m.Name, h.Name, got, h.Place())
			}
			if slot := node.Slot(sys, h.PCI); slot != h.PCI {
				t.Errorf("%s: %s is in slot %s, want %s", m.Name, h.Name, slot, h.PCI)
			}
		}
	}
	none := fstest.MapFS{}
	if got := node.PlaceOf(none, device.Address{Bus: "platform", Name: "fakeib.0"}, "", nil); got.NUMA != -1 ||
		len(got.Path) > 0 || got.PCIeRoot() != "" {
		t.Errorf("a device on no PCI bus is at %v", got)
	}
}

// A virtual function shares the slot of its physical function.
func TestSlot(t *testing.T) {
	sys := fstest.MapFS{"bus/pci/devices/0000:3b:00.2/physfn": {Data: []byte("../0000:3b:00.0"), Mode: fs.ModeSymlink}}
	if got := node.Slot(sys, "0000:3b:00.2"); got != "0000:3b:00.0" {
		t.Errorf("slot %s", got)
	}
	if got := node.Slot(sys, "0000:3b:00.0"); got != "0000:3b:00.0" {
		t.Errorf("slot %s", got)
	}
}

func TestNVIDIA(t *testing.T) {
	information := func(uuid string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("Model: \t\t NVIDIA H20\nIRQ:   \t\t 18\nGPU UUID: \t " + uuid +
			"\nVideo BIOS: \t 96.00.5e.00.01\nBus Type: \t PCIe\n")}
	}
	got := node.NVIDIA(fstest.MapFS{
		"driver/nvidia/gpus/0000:1b:00.0/information": information("GPU-0a1b2c3d-0000-1111-2222-333344445555"),
		"driver/nvidia/gpus/0000:1c:00.0/information": information("GPU-????????-????-????-????-????????????"),
		"driver/nvidia/version":                       {Data: []byte("NVRM version: 570")},
	})
	want := map[string]string{"GPU-0a1b2c3d-0000-1111-2222-333344445555": "0000:1b:00.0"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := node.NVIDIA(fstest.MapFS{}); len(got) > 0 {
		t.Errorf("without the driver: %v", got)
	}
}
