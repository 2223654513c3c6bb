package node

import (
	"cmp"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// The functions here read single facts from a /sys, for those that look at a node often and do not need the picture:
// Read uses the same ones. sys is the /sys of the namespace that the device is in.

// PortRate returns the rate of a port in Gb/s; 0 if the port does not report one.
func PortRate(sys fs.FS, hca string, port uint32) float64 {
	gb, _ := single(sys).rate(portDir(hca, port))
	return gb
}

// PortPrefix returns the subnet prefix of an InfiniBand port; 0 if the port has none.
func PortPrefix(sys fs.FS, hca string, port uint32) device.SubnetPrefix {
	return single(sys).prefix(portDir(hca, port))
}

// PlaceOf returns where the hardware meets GPUs: there where its Data Direct function is, if it has one of all. pci is
// the PCI function that the device is or sits on. The hardware is in the /sys of every namespace.
func PlaceOf(sys fs.FS, a device.Address, pci string, all DataDirects) Place {
	t, dir, function := single(sys), path.Join("bus", a.Bus, "devices", a.Name), path.Join(sysFunctions, pci)
	p := Place{NUMA: t.numa(dir, function)}
	if pci == "" {
		return p
	}
	p.Path = chain(t.real(function))
	if d := t.dataDirect(sysFunctions, all, Slot(sys, pci)); d != nil {
		p.Path = d.Path
	}
	return p
}

// Firmware returns the version of an HCA's firmware; empty if unknown.
func Firmware(sys fs.FS, hca string) string {
	return single(sys).text(path.Join("class/infiniband", hca), "fw_ver")
}

// Slot returns the PCI address of the card's physical function: that of the function pci itself, or of the one that it
// is a virtual function of. Functions of one slot share its ports.
func Slot(sys fs.FS, pci string) string {
	return cmp.Or(single(sys).target(path.Join(sysFunctions, pci, "physfn")), pci)
}

func portDir(hca string, port uint32) string {
	return path.Join("class/infiniband", hca, "ports", strconv.FormatUint(uint64(port), 10))
}

// single is a tree for one fact: what can't be read is left out.
func single(sys fs.FS) tree {
	var problems []string
	return tree{sys, &problems}
}

// rate is the rate in Gb/s, and as the kernel spells it: 200 Gb/sec (4X HDR).
func (t tree) rate(port string) (gb float64, text string) {
	text = t.text(port, "rate")
	word, _, _ := strings.Cut(text, " ")
	gb, err := strconv.ParseFloat(word, 64)
	if err != nil {
		return 0, text
	}
	return gb, text
}

// prefix is the upper half of GID 0, which only InfiniBand ports have.
func (t tree) prefix(port string) device.SubnetPrefix {
	if device.LinkLayer(t.text(port, "link_layer")) != device.InfiniBand {
		return 0
	}
	gid, ok := gidOf(t.text(port, "gids/0"))
	if !ok {
		return 0
	}
	return device.SubnetPrefixOf(gid)
}

// numa is the first NUMA node that one of the directories reports.
func (t tree) numa(dirs ...string) int {
	for _, dir := range dirs {
		if n := t.number(-1, dir, "numa_node"); n >= 0 {
			return n
		}
	}
	return -1
}
