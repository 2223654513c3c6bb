package doctor

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

// collectDriver reads which of its two kinds of kernel modules NVIDIA's driver is.
func (h *Host) collectDriver(root fs.FS) {
	if len(h.Node.GPUs) == 0 {
		return
	}
	h.Driver, _, _ = strings.Cut(read(root, "proc/driver/nvidia/version"), "\n")
	h.Taint = read(root, "sys/module/nvidia/taint")
}

// openOnly are GPUs, by the first digits of their PCI device, for which NVIDIA has the open kernel modules
// only: Grace
// Hopper, and Blackwell and what came after (README of the driver, "Open Linux Kernel Modules").
var openOnly = []string{"10de:2342", "10de:2348", "10de:29", "10de:2b", "10de:2c", "10de:2d", "10de:2e", "10de:2f",
	"10de:31", "10de:32"}

// openModules tells whether the GPU driver is the open one, and why that is known.
func (h *Host) openModules() (open bool, why string) {
	switch {
	case strings.Contains(h.Driver, "Open Kernel Module"):
		return true, "the GPU driver has the open kernel modules"
	case strings.Contains(h.Driver, "Kernel Module"), strings.Contains(h.Taint, "P"):
		return false, "the GPU driver has the proprietary kernel modules"
	case h.Taint != "":
		return true, "the GPU driver has the open kernel modules"
	case slices.ContainsFunc(h.Node.GPUs, isOpenOnly):
		return true, "GPUs of this kind have the open kernel modules"
	}
	return false, "which kernel modules the GPU driver has is not known"
}

func isOpenOnly(g node.GPU) bool {
	return slices.ContainsFunc(openOnly, func(id string) bool { return strings.HasPrefix(g.ID, id) })
}

// hostGPUDirect looks for either of the two ways: nvidia_peermem, or DMA-BUF, for which the kernel's verbs have an
// interface since Linux 5.12 (ib_umem_dmabuf_get, commit 368c0159d492) and the open kernel modules export GPU memory.
func hostGPUDirect(h *Host, _ topology.Fabrics) []Finding {
	if len(h.Node.GPUs) == 0 || len(h.Node.HCAs) == 0 || !strings.HasPrefix(h.Node.GPUs[0].ID, "10de:") {
		return nil
	}
	if h.Modules["nvidia_peermem"] || h.Modules["nv_peer_mem"] {
		return one(finding("host-gpudirect", OK, "nvidia_peermem is loaded"))
	}
	open, why := h.openModules()
	old := !node.KernelAtLeast(h.Node.Kernel, 5, 12)
	if open && !old {
		return one(finding("host-gpudirect", OK, why+", and Linux "+h.Node.Kernel+" takes GPU memory as DMA-BUF: "+
			"nvidia_peermem is not needed"))
	}
	f := finding("host-gpudirect", Warn, fmt.Sprintf("%d GPUs, nvidia_peermem is not loaded; %s",
		len(h.Node.GPUs), why))
	if open {
		f.Evidence += ", but DMA-BUF takes Linux 5.12 or later"
		if h.Node.Kernel != "" {
			f.Evidence += ", and this is " + h.Node.Kernel
		}
		f.Cause = "nvidia_peermem is not loaded, and the kernel is too old for DMA-BUF"
	}
	return one(f)
}
