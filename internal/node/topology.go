package node

import (
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// chain is the way down the PCI tree in a device's real path: the host bridge (pci0000:16), the bridges, the function.
func chain(dir string) (out []string) {
	for part := range strings.SplitSeq(dir, "/") {
		if strings.HasPrefix(part, "pci") && strings.Contains(part, ":") {
			out = append(out[:0], part)
			continue
		}
		if a, err := device.ParseAddress(part); err == nil && a.Bus == "pci" {
			out = append(out, part)
		}
	}
	return out
}

// Place is where a device is in its node.
type Place struct {
	Path []string // the way down the PCI tree: host bridge (pci0000:16), bridges, function; empty without one
	NUMA int      // -1: the firmware does not tell
}

// PCIeRoot is the host bridge, as the attribute resource.kubernetes.io/pcieRoot spells it (pci0000:16); empty for a
// device that is on no PCI bus.
func (p Place) PCIeRoot() string {
	if len(p.Path) == 0 {
		return ""
	}
	return p.Path[0]
}

// Distance is how far two places are from each other, nearest first.
type Distance int

// The distances, as nvidia-smi topo -m names them.
const (
	PIX  Distance = iota // one PCIe bridge at most
	PXB                  // several
	PHB                  // through the host bridge
	NODE                 // through the interconnect between host bridges of one NUMA node
	SYS                  // between NUMA nodes
)

func (d Distance) String() string { return [...]string{"PIX", "PXB", "PHB", "NODE", "SYS"}[d] }

// Distance compares two places.
func (p Place) Distance(q Place) Distance {
	a, b := p.Path, q.Path
	common := 0
	for common < len(a) && common < len(b) && a[common] == b[common] {
		common++
	}
	switch {
	case common == 0 && p.NUMA == q.NUMA:
		return NODE
	case common == 0:
		return SYS
	case common == 1:
		return PHB
	case len(a)-common <= 2 && len(b)-common <= 2: // below one switch: a downstream port each
		return PIX
	}
	return PXB
}

// nearest returns the GPUs at the smallest distance there is, and drops those across NUMA nodes when there is a nearer
// one.
func nearest(at Place, gpus []GPU) (out []Near) {
	if len(at.Path) == 0 {
		return nil
	}
	least := SYS
	for i := range gpus {
		least = min(least, at.Distance(gpus[i].Place()))
	}
	for i := range gpus {
		if at.Distance(gpus[i].Place()) == least {
			out = append(out, Near{gpus[i].Index, least.String()})
		}
	}
	return out
}

// models names the devices that are met in GPU clusters, by vendor:device as the PCI ID database has them.
var models = map[string]string{
	"15b3:1003": "ConnectX-3",
	"15b3:1004": "ConnectX-3 VF",
	"15b3:1007": "ConnectX-3 Pro",
	"15b3:1011": "Connect-IB",
	"15b3:1012": "Connect-IB VF",
	"15b3:1013": "ConnectX-4",
	"15b3:1014": "ConnectX-4 VF",
	"15b3:1015": "ConnectX-4 Lx",
	"15b3:1016": "ConnectX-4 Lx VF",
	"15b3:1017": "ConnectX-5",
	"15b3:1018": "ConnectX-5 VF",
	"15b3:1019": "ConnectX-5 Ex",
	"15b3:101a": "ConnectX-5 Ex VF",
	"15b3:101b": "ConnectX-6",
	"15b3:101c": "ConnectX-6 VF",
	"15b3:101d": "ConnectX-6 Dx",
	"15b3:101e": "ConnectX VF",
	"15b3:101f": "ConnectX-6 Lx",
	"15b3:1021": "ConnectX-7",
	"15b3:1023": "ConnectX-8",
	"15b3:2100": "ConnectX-8 Data Direct",
	"15b3:a2d2": "BlueField",
	"15b3:a2d6": "BlueField-2",
	"15b3:a2dc": "BlueField-3",
	"8086:1592": "E810-C",
	"8086:1593": "E810-C",
	"8086:159b": "E810-XXV",
	"14e4:1750": "BCM57508",
	"14e4:1760": "BCM57608",
	"10de:1db1": "Tesla V100 SXM2 16GB",
	"10de:1db4": "Tesla V100 PCIe 16GB",
	"10de:1db5": "Tesla V100 SXM2 32GB",
	"10de:1db6": "Tesla V100 PCIe 32GB",
	"10de:20b0": "A100 SXM4 40GB",
	"10de:20b2": "A100 SXM4 80GB",
	"10de:20b5": "A100 PCIe 80GB",
	"10de:20f1": "A100 PCIe 40GB",
	"10de:2329": "H20",
	"10de:2330": "H100 SXM5 80GB",
	"10de:2331": "H100 PCIe",
	"10de:2335": "H200 SXM 141GB",
	"10de:26b5": "L40",
	"10de:26b9": "L40S",
	"10de:2901": "B200",
	"10de:2941": "GB200",
	"10de:31c2": "GB300",
	"10de:2342": "GH200 120GB",
}
