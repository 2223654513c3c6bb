package agent

import (
	"errors"
	"fmt"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/install"
	"github.com/fabric-cni/fabric-cni/internal/agent/settings"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// readiness checks whether the plugin can serve pods on this node.
type readiness struct {
	plugin install.Target
	store  journal.Store
	mode   func() (device.NetnsMode, error) // the node's RDMA mode
}

func (r *readiness) reconcile(v *view) {
	same, err := r.plugin.Same()
	if err == nil && !same {
		err = fmt.Errorf("%s is not the agent's binary", r.plugin.Path())
	}
	if err != nil {
		v.conditions.Fail(condition.PluginInstalled, condition.Node, "%v", err)
	}
	if err := r.store.Writable(); err != nil {
		v.conditions.Fail(condition.StateWritable, condition.Node, "%v", err)
	}
	r.checkMode(v)
}

// checkMode compares the node's RDMA mode with the fabrics that have devices here. A node without RDMA serves no
// fabric, and is healthy.
func (r *readiness) checkMode(v *view) {
	mode, err := r.mode()
	if errors.Is(err, survey.ErrNoRDMA) {
		return
	}
	usable := false
	if err == nil {
		usable, err = checkModeOf(v.fabrics, v.assigned, mode)
	}
	if err == nil {
		return
	}
	t := condition.RDMAModeFits
	if !usable {
		t = condition.RDMAModeUsable
	}
	v.conditions.Fail(t, condition.Node, "%v", err)
}

const modeCure = "put options ib_core netns_mode=0 into /etc/modprobe.d and reboot"

// checkModeOf returns an error for a fabric that the node's mode does not fit, and whether ADD succeeds all the same.
// A whole device in shared mode leaves its RDMA device on the host, where every pod sees it: an error where the
// network asks for more, and otherwise not what a fabric of mode exclusive promises.
func checkModeOf(
	fabrics []settings.Fabric, assigned map[string][]survey.Device, mode device.NetnsMode,
) (usable bool, err error) {
	for i := range fabrics {
		f := &fabrics[i]
		if len(assigned[f.Name]) == 0 {
			continue
		}
		want := f.Network["rdma"]
		switch {
		case mode == device.NetnsExclusive && want == "shared":
			return false, fmt.Errorf("fabric %s has \"rdma\": \"shared\", but the node's RDMA network namespace mode "+
				"is exclusive: remove options ib_core netns_mode=0 from /etc/modprobe.d and reboot", f.Name)
		case f.Mode != settings.Exclusive || mode != device.NetnsShared:
		case want == "exclusive":
			return false, fmt.Errorf("fabric %s wants RDMA devices moved, but the node's RDMA network namespace mode "+
				"is shared: %s", f.Name, modeCure)
		case want == nil || want == "auto":
			err = fmt.Errorf("fabric %s hands out whole devices, but the node's RDMA network namespace mode is "+
				"shared: their RDMA devices stay on the host, where every pod sees them; %s, or put \"rdma\": "+
				"\"shared\" into its network if that is what you want", f.Name, modeCure)
		}
	}
	return true, err
}
