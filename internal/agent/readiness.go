package agent

import (
	"errors"
	"fmt"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/install"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
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

// checkModeOf returns an error for a fabric that the node's mode does not fit, and whether ADD succeeds all the same.
// What ADD refuses is decided in package attach. A whole device in shared mode is not refused, but its RDMA device
// stays on the host, where every pod sees it: a fabric of mode exclusive promises more.
func checkModeOf(
	list []fabrics.Fabric, assigned map[string][]survey.Device, mode device.NetnsMode,
) (usable bool, err error) {
	for i := range list {
		f := &list[i]
		if len(assigned[f.Name]) == 0 {
			continue
		}
		config, perr := f.Netconf()
		if perr != nil {
			return false, perr
		}
		if r := attach.JudgeMode(config.RDMA, mode, true, "the RDMA device"); r != nil {
			return false, fmt.Errorf("fabric %s: %s; %s", f.Name, r.Message, r.Hint)
		}
		if f.Mode == v1alpha1.Exclusive && mode == device.NetnsShared && config.RDMA == netconf.RDMAAuto {
			err = fmt.Errorf("fabric %s hands out whole devices, but the node's RDMA network namespace mode is "+
				"shared: "+
				"their RDMA devices stay on the host, where every pod sees them; put options ib_core netns_mode=0 "+
				"into the node's /etc/modprobe.d and reboot, or put \"rdma\": \"shared\" into its network if that is what you "+
				"want", f.Name)
		}
	}
	return true, err
}
