package doctor

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// CheckHost runs every check of the host.
func CheckHost(h *Host) (out []Finding) {
	f := h.Node.Fabrics()
	for _, check := range []func(*Host, topology.Fabrics) []Finding{
		hostDevices, hostSoft, hostUse, hostModules, hostMode, hostDrivers, hostInitramfs, hostPorts,
		hostRates, hostCounters, hostFirmware, hostRoCE, hostVFs, hostGUIDs,
		hostNames,
		hostSubnets, hostMTU, hostBond, hostPCIe, hostACS, hostGPUDirect, hostIOMMU, hostMemlock, hostPlugin,
		hostVersion, hostOrder, hostStranded, hostForeign, hostPolicy, hostProblems,
	} {
		out = append(out, check(h, f)...)
	}
	return out
}

func one(f Finding) []Finding { return []Finding{f} }

// pass is a check without anything to say but OK, or nothing at all.
func pass(out []Finding, id, evidence string) []Finding {
	if len(out) > 0 {
		return out
	}
	return one(finding(id, OK, evidence))
}

func hostDevices(h *Host, _ topology.Fabrics) []Finding {
	if len(h.Node.HCAs) == 0 {
		return one(finding("host-devices", Fail, "no RDMA device in /sys/class/infiniband, none in the journal"))
	}
	soft := 0
	for i := range h.Node.HCAs {
		if h.Node.HCAs[i].Kind == topology.Soft {
			soft++
		}
	}
	if soft == len(h.Node.HCAs) {
		return one(finding("host-devices", Fail, fmt.Sprintf("%d RDMA devices, all soft ones (rxe, siw)", soft)))
	}
	return one(finding("host-devices", OK, fmt.Sprintf("%d RDMA devices", len(h.Node.HCAs)-soft)))
}

// hostSoft finds soft RDMA devices on interfaces that could be given to pods, and no others: those of pods, and of
// virtual interfaces, do no harm.
func hostSoft(h *Host, _ topology.Fabrics) (out []Finding) {
	for i := range h.Node.HCAs {
		s := &h.Node.HCAs[i]
		if s.Kind != topology.Soft || len(s.Ports) == 0 {
			continue
		}
		d := h.Node.Netdev(s.Ports[0].Netdev)
		if d == nil || d.Address.IsZero() {
			continue
		}
		f := finding("host-soft-rdma", Warn, s.Name+" is a soft RDMA device (rxe, siw) on "+d.Name)
		f.Cure = "rdma link delete " + s.Name
		out = append(out, f)
	}
	return out
}

// hostDrivers finds HCAs that can't be moved into pods, where only that gives pods their RDMA devices.
func hostDrivers(h *Host, _ topology.Fabrics) (out []Finding) {
	if h.Node.RDMAMode != device.NetnsExclusive.String() {
		return nil
	}
	for i := range h.Node.HCAs {
		d := &h.Node.HCAs[i]
		if why := d.Stays(h.Node.Kernel); why != "" {
			out = append(out, finding("host-driver", Warn, fmt.Sprintf("%s can't be moved: %s", d.Name, why)))
		}
	}
	return out
}

// hostUse finds RDMA devices that something on the host uses: no pod gets them.
func hostUse(h *Host, _ topology.Fabrics) (out []Finding) {
	for i := range h.Node.HCAs {
		d := &h.Node.HCAs[i]
		if users := h.Node.Users[d.Name]; len(users) > 0 && d.Kind != topology.Soft && d.InPod == "" {
			out = append(out, finding("host-use", Warn, d.Name+" is in use by "+strings.Join(users, ", ")))
		}
	}
	return out
}

func hostModules(h *Host, _ topology.Fabrics) (out []Finding) {
	want := []string{"ib_core", "ib_uverbs", "rdma_cm"}
	for i := range h.Node.HCAs {
		if slices.ContainsFunc(
			h.Node.HCAs[i].Ports,
			func(p node.Port) bool { return p.LinkLayer == device.InfiniBand },
		) {
			want = append(want, "ib_ipoib")
			break
		}
	}
	var missing []string
	for _, m := range want {
		if !h.Modules[m] {
			missing = append(missing, m)
		}
	}
	switch {
	case len(h.Node.HCAs) == 0:
		return nil
	case len(missing) > 0:
		f := finding("host-modules", Warn, "not loaded: "+strings.Join(missing, ", "))
		f.Cure = "modprobe -a " + strings.Join(missing, " ") + "; to keep: /etc/modules-load.d/rdma.conf"
		return one(f)
	}
	return one(finding("host-modules", OK, strings.Join(want, ", ")))
}

func hostVFs(h *Host, _ topology.Fabrics) (out []Finding) {
	vfs := 0
	for i := range h.Node.HCAs {
		d := &h.Node.HCAs[i]
		if d.Kind != "VF" {
			continue
		}
		vfs++
		ib := slices.ContainsFunc(
			d.Ports,
			func(p node.Port) bool { return p.LinkLayer == device.InfiniBand && p.GUID.IsUnset() },
		)
		if ib || d.NodeGUID.IsUnset() {
			f := finding("host-vf-guid", Fail, d.Name+" ("+d.PCI+", VF of "+d.Parent+") has no GUID")
			out = append(out, f)
		}
	}
	if vfs == 0 {
		return nil
	}
	return pass(out, "host-vf-guid", fmt.Sprintf("%d VFs", vfs))
}

var kernelName = regexp.MustCompile(`^ib\d+$`)

func hostNames(h *Host, _ topology.Fabrics) []Finding {
	var names []string
	for _, d := range h.Node.Netdevs {
		if d.Type == 32 && kernelName.MatchString(d.Name) {
			names = append(names, d.Name)
		}
	}
	if len(names) > 0 {
		return one(finding("host-names", Warn, strings.Join(names, ", ")))
	}
	return one(finding("host-names", OK, "no interface has a name of the kernel's counting"))
}

func hostSubnets(_ *Host, f topology.Fabrics) (out []Finding) {
	for _, f := range f.Fabrics {
		for _, w := range f.Warnings {
			out = append(out, finding("host-subnets", Warn, f.Name+": "+w))
		}
	}
	if len(f.Fabrics) == 0 {
		return nil
	}
	return pass(out, "host-subnets", "no two rails share a subnet")
}

func hostMTU(h *Host, f topology.Fabrics) []Finding {
	if len(f.Fabrics) == 0 {
		return nil
	}
	return pass(append(mtus("host-mtu", h.Node, f, "VF", "SF"), h.modes(f)...), "host-mtu", "one MTU in each fabric"+
		h.packets(f))
}

// mtus finds fabrics whose rails on the node differ in MTU, functions of some kinds aside.
func mtus(id string, n *node.Node, f topology.Fabrics, aside ...string) (out []Finding) {
	for _, f := range f.Fabrics {
		by := map[int][]string{}
		for _, p := range f.On(n.Name) {
			if d := n.Netdev(p.Netdev); d != nil && !slices.Contains(aside, p.Kind) {
				by[d.MTU] = append(by[d.MTU], d.Name)
			}
		}
		if len(by) < 2 {
			continue
		}
		var parts []string
		for mtu, names := range by {
			parts = append(parts, fmt.Sprintf("%d: %s", mtu, strings.Join(names, " ")))
		}
		slices.Sort(parts)
		out = append(out, finding(id, Warn, f.Name+": MTU "+strings.Join(parts, "; ")))
	}
	return out
}

func hostBond(h *Host, _ topology.Fabrics) (out []Finding) {
	for i := range h.Node.HCAs {
		d := &h.Node.HCAs[i]
		if d.Bond == "" {
			continue
		}
		evidence := d.Name + " is the RDMA face of " + d.Bond
		if b := h.Node.Netdev(d.Bond); b != nil && b.Bond != nil {
			evidence += " (" + b.Bond.Mode + ": " + strings.Join(b.Bond.Members, ", ") + ")"
		}
		f := finding("host-bond", OK, evidence+": RoCE, no rail, not for NCCL_IB_HCA")
		out = append(out, f)
	}
	return out
}

func hostPCIe(h *Host, _ topology.Fabrics) (out []Finding) {
	known := false
	for i := range h.Node.HCAs {
		d := &h.Node.HCAs[i]
		known = known || d.PCIe != ""
		if d.Slower != "" {
			out = append(out, finding("host-pcie", Warn, d.Name+" ("+d.PCI+") runs at "+d.PCIe+" of "+d.Slower))
		}
	}
	if !known {
		return nil
	}
	return pass(out, "host-pcie", "all at full speed and width")
}

func hostIOMMU(h *Host, _ topology.Fabrics) []Finding {
	words := strings.Fields(h.Cmdline)
	on := slices.ContainsFunc(words, func(w string) bool {
		return w == "intel_iommu=on" || w == "amd_iommu=on" || w == "iommu=force" ||
			strings.HasPrefix(w, "intel_iommu=on,")
	})
	switch {
	case len(words) == 0 || len(h.Node.HCAs) == 0:
		return nil
	case on && !slices.Contains(words, "iommu=pt"):
		return one(finding("host-iommu", Warn, "the kernel command line has the IOMMU on, and no iommu=pt"))
	}
	return one(finding("host-iommu", OK, "the command line does not force translation"))
}

func hostMemlock(h *Host, _ topology.Fabrics) []Finding {
	switch {
	case !h.HasUnit:
		return nil
	case h.Memlock == "infinity":
		return one(finding("host-memlock", OK, "containerd.service: LimitMEMLOCK=infinity"))
	case h.Memlock == "":
		return one(finding("host-memlock", Warn, "containerd.service has no LimitMEMLOCK"))
	}
	return one(finding("host-memlock", Warn, "containerd.service: LimitMEMLOCK="+h.Memlock))
}

func hostPlugin(h *Host, _ topology.Fabrics) []Finding {
	if slices.Contains(h.Plugins, "fabric") {
		return one(finding("host-plugin", OK, strings.TrimSpace("/opt/cni/bin/fabric "+h.PluginSum)))
	}
	if len(h.Plugins) == 0 && len(h.CNI) == 0 {
		return nil // no container runtime here
	}
	return one(
		finding(
			"host-plugin",
			Warn,
			fmt.Sprintf("/opt/cni/bin has %d plugins, fabric is not among them", len(h.Plugins)),
		),
	)
}

func hostOrder(h *Host, _ topology.Fabrics) []Finding {
	var confs []string
	for _, name := range h.CNI {
		if strings.HasSuffix(name, ".conf") || strings.HasSuffix(name, ".conflist") ||
			strings.HasSuffix(name, ".json") {
			confs = append(confs, name)
		}
	}
	i := slices.IndexFunc(confs, func(n string) bool { return strings.Contains(n, "multus") })
	multus := i >= 0 || slices.ContainsFunc(h.CNI, func(n string) bool { return strings.Contains(n, "multus") })
	switch {
	case !multus:
		return nil
	case i == 0:
		return one(finding("host-cni-order", OK, confs[0]))
	case len(confs) == 0:
		return one(finding("host-cni-order", Fail, "/etc/cni/net.d has no configuration"))
	}
	return one(finding("host-cni-order", Fail, "the first configuration in /etc/cni/net.d is "+confs[0]))
}

// hostStranded says nothing of a recording, which does not have what the journal has to be compared with.
func hostStranded(h *Host, _ topology.Fabrics) (out []Finding) {
	for _, s := range h.Stranded {
		out = append(out, finding("host-stranded", Fail, s))
	}
	switch {
	case h.StrandedErr != nil:
		f := finding("host-stranded", Warn, "could not be checked: "+strings.ReplaceAll(h.StrandedErr.Error(),
			"\n", "; "))
		f.Cause = "the journal and the network namespaces of pods are root's"
		f.Cure = "run as root"
		return append(out, f)
	case !h.Journal:
		return out
	}
	return pass(out, "host-stranded", "nothing is left behind")
}

// hostForeign finds what lies in the plugin's state directory and has no business there.
func hostForeign(h *Host, _ topology.Fabrics) (out []Finding) {
	for _, what := range h.Foreign {
		out = append(out, finding("host-foreign", Warn, what))
	}
	return out
}

func hostPolicy(h *Host, _ topology.Fabrics) []Finding {
	if h.PolicyErr != nil {
		return one(finding("host-policy", Fail, h.PolicyErr.Error()))
	}
	return nil
}

func hostProblems(h *Host, _ topology.Fabrics) (out []Finding) {
	for _, p := range h.Node.Problems {
		out = append(out, finding("host-picture", Warn, p))
	}
	return out
}
