package node

import (
	"io/fs"
	"strings"
)

// GPUs returns the accelerators of the node, in PCI order.
func GPUs(sys fs.FS) []GPU { return single(sys).gpus(sysFunctions) }

// NVIDIA returns the PCI addresses of NVIDIA's GPUs by their UUIDs (GPU-5f3e...), as the driver reports them in
// driver/nvidia/gpus/ADDRESS/information; proc is the node's /proc. A GPU that was never opened has none.
func NVIDIA(proc fs.FS) map[string]string {
	const dir = "driver/nvidia/gpus"
	t, out := single(proc), map[string]string{}
	for _, pci := range t.names(dir) {
		for line := range strings.Lines(t.text(dir, pci, "information")) {
			key, value, _ := strings.Cut(line, ":")
			uuid := strings.TrimSpace(value)
			if key == "GPU UUID" && !strings.Contains(uuid, "?") {
				out[uuid] = pci
			}
		}
	}
	return out
}
