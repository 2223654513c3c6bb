package node

import (
	"cmp"
	"slices"
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

// distances in order, as nvidia-smi topo -m names them: one PCIe bridge at most; several; through the host bridge;
// through the interconnect between host bridges of one NUMA node; between NUMA nodes.
var distances = []string{"PIX", "PXB", "PHB", "NODE", "SYS"}

// distance compares two places.
func distance(a, b []string, numaA, numaB int) string {
	common := 0
	for common < len(a) && common < len(b) && a[common] == b[common] {
		common++
	}
	switch {
	case common == 0 && numaA == numaB:
		return "NODE"
	case common == 0:
		return "SYS"
	case common == 1:
		return "PHB"
	case len(a)-common <= 2 && len(b)-common <= 2: // below one switch: a downstream port each
		return "PIX"
	}
	return "PXB"
}

// nearest returns the GPUs at the smallest distance there is, and drops those across NUMA nodes when there is a nearer
// one.
func nearest(at []string, numa int, gpus []GPU) (out []Near) {
	if len(at) == 0 {
		return nil
	}
	for _, g := range gpus {
		out = append(out, Near{g.Index, distance(at, g.Path, numa, g.NUMA)})
	}
	rank := func(n Near) int { return slices.Index(distances, n.Distance) }
	slices.SortStableFunc(out, func(a, b Near) int { return cmp.Compare(rank(a), rank(b)) })
	for i := range out {
		if out[i].Distance != out[0].Distance {
			return out[:i]
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
	"10de:2342": "GH200 120GB",
}
