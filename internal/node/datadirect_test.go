package node_test

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// An HCA with a Data Direct function is beside the GPU that this one is beside, and so are its VFs.
func TestDataDirect(t *testing.T) {
	m := machines.GB300()
	n, err := node.Open(m.FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	direct := []string{"0009:03:00.0", "0008:03:00.0", "0019:03:00.0", "0018:03:00.0"}
	gpus := map[string]string{} // PCIe root -> GPU
	for _, g := range n.GPUs {
		gpus[g.Place().PCIeRoot()] = g.PCI
	}
	for i := range n.HCAs {
		h := &n.HCAs[i]
		d := h.DataDirect
		if d == nil || d.PCI != direct[i] || len(h.GPUs) != 1 || h.GPUs[0].Distance != "PXB" {
			t.Fatalf("%s has Data Direct function %+v, nearest GPUs %+v", h.Name, d, h.GPUs)
		}
		want := strings.Replace(d.PCI, ":03:", ":06:", 1)
		nearest := func(g node.GPU) bool { return g.Index == h.GPUs[0].GPU }
		if got := n.GPUs[slices.IndexFunc(n.GPUs, nearest)]; got.PCI != want {
			t.Errorf("%s is beside GPU %s, want %s", h.Name, got.PCI, want)
		}
		if root := h.Place().PCIeRoot(); gpus[root] != want || gpus[h.Path[0]] != "" {
			t.Errorf("%s: PCIe root %s, of its own function %s; GPUs by root: %v", h.Name, root, h.Path[0], gpus)
		}
	}
	sys, err := fs.Sub(withVF(m.FS), "sys")
	if err != nil {
		t.Fatal(err)
	}
	at := node.PlaceOf(sys, n.HCAs[0].Address, "0000:03:00.2", node.ReadDataDirects(sys))
	if at.PCIeRoot() != "pci0009:00" {
		t.Errorf("a VF is at %+v", at)
	}
}

// withVF is a tree in which 0000:03:00.0 has a VF.
func withVF(tree fstest.MapFS) fstest.MapFS {
	out := maps.Clone(tree)
	out["sys/bus/pci/devices/0000:03:00.2/physfn"] =
		&fstest.MapFile{Data: []byte("../0000:03:00.0"), Mode: fs.ModeSymlink}
	return out
}

// What can't be told is left out: the HCA is where its own function is.
func TestDataDirectUnknown(t *testing.T) {
	const nic, other = "sys/devices/pci0000:00/0000:00:00.0/0000:01:00.0/0000:02:00.0/0000:03:00.0/vpd",
		"sys/devices/pci0008:00/0008:00:00.0/0008:01:00.0/0008:02:00.0/0008:03:00.0/vpd"
	for name, edit := range map[string]func(tree fstest.MapFS){
		"no vital product data": func(tree fstest.MapFS) { delete(tree, nic) },
		"without V3": func(tree fstest.MapFS) {
			tree[nic] = &fstest.MapFile{Data: []byte("\x90\x06\x00SN\x03abc\x78")}
		},
		"of two functions": func(tree fstest.MapFS) { tree[other] = tree[nic] },
	} {
		m := machines.GB300()
		tree := maps.Clone(m.FS)
		if tree[nic] == nil || tree[other] == nil {
			t.Fatal("the machine has other functions")
		}
		edit(tree)
		n, err := node.Open(tree, journal.Store{})
		if err != nil {
			t.Fatal(err)
		}
		if h := n.HCA("mlx5_0"); h.DataDirect != nil || h.Place().PCIeRoot() != "pci0000:00" {
			t.Errorf("%s: %+v, at %+v", name, h.DataDirect, h.Place())
		}
	}
}

func TestOnlyUUID(t *testing.T) {
	name, sn := "\x82\x04\x00name", "SN\x06secret"
	keys := func(s string) string { return fmt.Sprintf("\x90%c\x00%s", len(s), s) }
	for in, want := range map[string]string{
		name + keys(sn+"V3\x04uuid") + "\x78":   "\x90\x07\x00V3\x04uuid\x78",
		keys("V3\x04uuid"+sn) + name + "\x78":   "\x90\x07\x00V3\x04uuid\x78",
		keys("V3\x06uu\xffid\x00"):              "\x90\x08\x00V3\x05uu?id\x78",
		name + "\x78" + keys("V3\x04uuid"):      "", // after the end
		name + keys(sn) + "\x78":                "",
		keys("V3\x05uuid"):                      "", // longer than its item
		"\x90\xff\xffV3\x04uuid":                "", // longer than all
		"\x91\x07\x00V3\x04uuid\x78":            "", // writable by anyone
		"\x90\x07":                              "",
		"\x02ab" + keys("V3\x04uuid"):           "\x90\x07\x00V3\x04uuid\x78",
		"":                                      "",
		strings.Repeat("\x00", 100):             "",
		strings.Repeat("\x90\x00\x00", 100):     "",
		keys("V3\x00") + keys("V3\x01a"):        "",
		keys("SN") + keys("V3\x01a"):            "\x90\x04\x00V3\x01a\x78",
		string([]byte{0x90, 3, 0, 'V', '3', 0}): "",
	} {
		got := string(node.OnlyUUID([]byte(in)))
		if got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
		if again := string(node.OnlyUUID([]byte(got))); again != got {
			t.Errorf("%q again: %q", got, again)
		}
	}
}
