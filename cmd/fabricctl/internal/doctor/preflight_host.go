package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// CheckPreflightHost runs the checks of one node before fabric-cni is installed: those of doctor host that matter then,
// and which driver it has, its RDMA mode against the wanted one, and what uses its HCAs. In shared mode Node.Users has
// to be filled in for that.
func CheckPreflightHost(h *Host, mode string) (out []Finding) {
	f := h.Node.Fabrics()
	p := &Preflight{Mode: mode}
	out = one(finding("preflight-kernel", OK, "Linux "+h.Node.Kernel))
	if h.Node.Kernel == "" {
		out = one(finding("preflight-kernel", Warn, "the release of the kernel is not known"))
	}
	out = append(out, hostDevices(h, f)...)
	out = append(out, h.preflightDriver()...)
	out = append(out, h.preflightMode(mode)...)
	for _, check := range []func(*Host, topology.Fabrics) []Finding{hostMode, hostInitramfs, hostModules, hostSoft} {
		out = append(out, check(h, f)...)
	}
	out = append(out, h.preflightUsers(p)...)
	return append(out, bounded(hostProblems(h, f))...)
}

// preflightDriver tells an inbox driver from one of MLNX_OFED or DOCA: a module that is not of the kernel's own tree
// taints it with O (Documentation/admin-guide/tainted-kernels.rst), and has a version.
func (h *Host) preflightDriver() []Finding {
	if h.RDMATaint == nil {
		if !slices.ContainsFunc(h.Node.HCAs, func(d node.HCA) bool { return d.Driver == "mlx5_core" }) {
			return nil
		}
		f := finding("preflight-driver", Warn, "the source of mlx5_core is not known")
		f.Cause = "the recording does not have /sys/module/mlx5_core/taint"
		f.Cure = localCommand
		return one(f)
	}
	if strings.Contains(*h.RDMATaint, "O") {
		text := "mlx5_core is not the kernel's own (MLNX_OFED or DOCA)"
		if h.RDMAVersion != "" {
			text += ", version " + quote.Clip(h.RDMAVersion, 64)
		}
		return one(finding("preflight-driver", OK, text))
	}
	return one(finding("preflight-driver", OK, "mlx5_core is the kernel's own (inbox)"))
}

func (h *Host) preflightMode(want string) []Finding {
	const id = "preflight-rdma-mode"
	switch h.Node.RDMAMode {
	case "":
		f := finding(id, Warn, "the RDMA mode is not known")
		f.Cause = "ib_core is not loaded, or the kernel could not be asked"
		f.Cure = "modprobe ib_core; rdma system"
		return one(f)
	case want:
		return one(finding(id, OK, want))
	}
	return one(finding(id, Warn, h.Node.RDMAMode+", wanted is "+want))
}

// preflightUsers names what has queue pairs on HCAs of the host.
func (h *Host) preflightUsers(p *Preflight) (out []Finding) {
	const id = "preflight-host-users"
	names := slices.Sorted(maps.Keys(h.Node.Users))
	for _, name := range names {
		if users := h.Node.Users[name]; len(users) > 0 {
			out = append(out, p.stopped(id, fmt.Sprintf("%s is in use by %s", quote.Clip(name, 64), strings.Join(users,
				", "))))
		}
	}
	switch {
	case len(h.Node.HCAs) == 0:
		return nil
	case len(out) == 0 && !h.UsersKnown && h.Node.RDMAMode != device.NetnsExclusive.String():
		f := finding(id, Warn, "what uses the HCAs is not known")
		f.Cause = "a recording of a node in shared mode does not have it, or the kernel could not be asked"
		f.Cure = localCommand
		return one(f)
	}
	return pass(out, id, "no program and no kernel module has queue pairs on an HCA of the host")
}
