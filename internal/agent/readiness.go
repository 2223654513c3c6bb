package agent

import (
	"fmt"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/install"
	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// readiness checks whether the plugin can serve pods on this node.
type readiness struct {
	plugin install.Target
	store  journal.Store
}

func (r *readiness) reconcile(v *view) {
	same, err := r.plugin.Same()
	if err == nil && !same {
		err = fmt.Errorf("%s is not the agent's binary", r.plugin.Path())
	}
	if err != nil {
		v.findings.Add(condition.PluginMissing, condition.Node, "%v", err)
	}
	if err := r.store.Writable(); err != nil {
		v.findings.Add(condition.StateNotWritable, condition.Node, "%v", err)
	}
}
