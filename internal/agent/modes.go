package agent

import (
	"errors"
	"fmt"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// checkModes compares the node's RDMA mode with each fabric that has devices here, and returns the fabrics whose
// devices are of no use in it. A node without RDMA serves no fabric, and is healthy.
func (r *offerReconciler) checkModes(v *view) (useless map[string]bool) {
	mode, err := r.mode()
	if errors.Is(err, survey.ErrNoRDMA) {
		return nil
	}
	if err != nil {
		v.findings.Add(condition.RefusedRDMAMode, condition.Node, "%v", err)
		return nil
	}
	useless = map[string]bool{}
	for i := range v.fabrics {
		f := &v.fabrics[i]
		if len(v.assigned[f.Name]) == 0 {
			continue
		}
		m := modeOf(f, mode)
		if m.err == nil {
			continue
		}
		reason := condition.WrongRDMAMode
		if m.refused {
			reason = condition.RefusedRDMAMode
		}
		v.findings.Add(reason, condition.Fabric(f.Name), "fabric %s%v", f.Name, m.err)
		useless[f.Name] = m.useless
	}
	return useless
}

// modeFit is how a fabric fits the node's RDMA mode.
type modeFit struct {
	err     error // nil: it fits
	refused bool  // ADD fails
	useless bool  // pods would not get what the fabric promises: no pod should get a device
}

// modeOf judges a fabric by the node's mode. What ADD refuses is decided in package attach. It refuses neither of the
// others: a whole device in shared mode leaves its RDMA device on the host, where every pod sees it, and can use it; an
// IPoIB child in exclusive mode comes with device files that its pod can't use, because the RDMA device is in another
// network namespace (ib_uverbs_open asks for it).
func modeOf(f *fabrics.Fabric, mode device.NetnsMode) modeFit {
	config, err := f.Netconf()
	if err != nil {
		return modeFit{err: fmt.Errorf(": %w", err), refused: true}
	}
	if r := attach.JudgeMode(config.RDMA, mode, true, "the RDMA device"); r != nil {
		return modeFit{fmt.Errorf(": %s; %s", r.Message, r.Hint), true, true}
	}
	switch {
	case f.Attachment == v1alpha1.WholeDevice && mode == device.NetnsShared && config.RDMA == netconf.RDMAAuto:
		return modeFit{err: errors.New(" hands out whole devices, but the node's RDMA network namespace mode is " +
			"shared: their RDMA devices stay on the host, where every pod sees them; put options ib_core " +
			"netns_mode=0 into the node's /etc/modprobe.d and reboot, or rdmaMode: Shared into its spec.network " +
			"if that is what you want")}
	case f.Attachment == v1alpha1.IPoIBChild && mode == device.NetnsExclusive &&
		f.Network["rdma"] != string(netconf.RDMANone):
		return modeFit{useless: true, err: errors.New(" has attachment IPoIBChild, but the node's RDMA network " +
			"namespace mode is exclusive: pods would get device files and no RDMA device, so none is on offer; put " +
			"options ib_core netns_mode=1 into the node's /etc/modprobe.d and reboot, or rdmaMode: Ignore into " +
			"spec.network if IP is all that pods need")}
	}
	return modeFit{}
}
