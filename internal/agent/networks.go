package agent

import (
	"errors"
	"log/slog"

	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// networkReconciler writes the configurations that are this node's own for the plugin, and into Multus's directory.
type networkReconciler struct {
	confDir string // Multus's; empty: no files there
	noted   string // where the plugin reads which configurations are the agent's: policy.PublishedDir
	ipamDir string // where host-local keeps the addresses of this node's ranges
	store   journal.Store
	ranges  *rangeReconciler
	log     *slog.Logger

	failed map[string]error // by network: why its file is not as it should be
}

func (r *networkReconciler) reconcile(v *view) {
	files := map[string][]byte{}
	for i := range v.fabrics {
		f := &v.fabrics[i]
		if b := r.config(f, v.assigned[f.Name]); b != nil {
			files[f.Name] = b
		}
	}
	r.write(files)
}

// config returns the fabric's configuration for this node; nil: it has none of its own, or cannot have one now.
func (r *networkReconciler) config(f *fabrics.Fabric, devices []survey.Device) []byte {
	if !network.Configurable(f, devices) {
		return nil
	}
	here := fabrics.NodeParams{Master: network.Master(devices), Several: len(devices) > 1, IPAMDir: r.ipamDir}
	if f.NodeRanges != nil {
		own, err := r.ranges.own(f)
		if err != nil {
			return nil // which is a finding
		}
		here.Own = own
	}
	b, err := f.Config(here)
	if err != nil {
		r.log.Error("cannot write this node's configuration", "fabric", f.Name, "error", err)
	}
	return b
}

// configOf is the configuration of a fabric's network as pods of this node have it: the node's own, or that of its
// definition.
func (r *networkReconciler) configOf(f *fabrics.Fabric, devices []survey.Device) ([]byte, error) {
	if !f.OfNode() {
		return f.Config(fabrics.NodeParams{Several: len(devices) > 1})
	}
	if b := r.config(f, devices); b != nil {
		return b, nil
	}
	return nil, errNoConfig
}

// errNoConfig means that a fabric has no configuration on this node.
var errNoConfig = errors.New("this node has no configuration of its network now: it has no range yet, or it is of " +
	"attachment IPoIBChild and the node has no interface (the conditions of its FabricNode say which)")

// write makes the agent's files in Multus's directory, and its notes of them for the plugin, these. A file that is
// missing now stays while pods of this node are on its network, unless its addresses are no longer this node's: a
// fabric with nodeRanges has no file then.
func (r *networkReconciler) write(files map[string][]byte) {
	keep := attachedNetworks(r.store, r.log)
	r.failed = nil
	for _, dir := range []string{r.noted, r.confDir} { // the plugin knows a configuration before a pod can have it
		if dir == "" {
			continue
		}
		if _, err := network.WriteFiles(dir, files, func(name string) bool { return keep[name] }); err != nil {
			r.log.Error("cannot write this node's network configurations", "error", err)
			r.failed = network.Unwritten(dir, files, err)
			return
		}
	}
}

// attachedNetworks are the names of the networks that pods of this node are on.
func attachedNetworks(store journal.Store, log *slog.Logger) map[string]bool {
	out := map[string]bool{}
	entries, err := store.List()
	if err != nil {
		log.Debug("some journal entries cannot be read", "error", err)
	}
	for _, e := range entries {
		out[e.Network] = true
	}
	return out
}
