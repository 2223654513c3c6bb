package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/settings"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// networkReconciler publishes the fabrics' networks: NetworkAttachmentDefinitions for the cluster, and configuration
// files in Multus's directory where the configuration is this node's own.
type networkReconciler struct {
	cluster *cluster.Client // nil: no definitions
	confDir string          // Multus's; empty: no files
	ipamDir string          // where host-local keeps the addresses of this node's ranges
	store   journal.Store
	ranges  *rangeReconciler
	log     *slog.Logger
	now     func() time.Time

	published map[string]time.Time // definition -> when it was last applied
}

// reconcile publishes the definitions, and makes the files those of the fabrics in force.
func (r *networkReconciler) reconcile(ctx context.Context, v *view) {
	files := map[string][]byte{}
	for i := range v.fabrics {
		f := &v.fabrics[i]
		if b := r.config(f, v.assigned[f.Name]); b != nil {
			files[f.Name] = b
		}
		if err := r.publish(ctx, f); err != nil {
			r.unpublished(f, err, v.conditions)
		}
	}
	r.write(v.fabrics, files)
}

// config returns the fabric's configuration for this node; nil: it has none of its own, or cannot have one now.
func (r *networkReconciler) config(f *settings.Fabric, devices []survey.Device) []byte {
	if !network.Configurable(f, devices) {
		return nil
	}
	here := network.Here{Master: network.Master(devices), IPAMDir: r.ipamDir}
	if f.NodeRanges != nil {
		n, ok := r.ranges.get(f)
		if !ok {
			return nil
		}
		here.First, here.Last = n.bounds()
	}
	b, err := network.Config(f, here)
	if err != nil {
		r.log.Error("cannot write this node's configuration", "fabric", f.Name, "error", err)
	}
	return b
}

// publish applies the definition of a fabric, if it is new, has changed, or was last applied some minutes ago:
// somebody may have deleted it since.
func (r *networkReconciler) publish(ctx context.Context, f *settings.Fabric) error {
	if r.cluster == nil {
		return nil
	}
	object, err := network.Definition(f)
	if err != nil {
		return err
	}
	key := fmt.Sprint(object)
	if r.now().Sub(r.published[key]) < reapply {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := r.cluster.Apply(ctx, object); err != nil {
		return err
	}
	if r.published[key].IsZero() {
		r.log.Info("published NetworkAttachmentDefinition", "namespace", f.Namespace, "name", f.Name)
	}
	r.published[key] = r.now()
	return nil
}

// unpublished reports a definition that could not be applied. A conflict needs somebody's decision; anything else is
// tried again with the next look.
func (r *networkReconciler) unpublished(f *settings.Fabric, err error, conditions *condition.Set) {
	var conflict *cluster.ConflictError
	if errors.As(err, &conflict) {
		conditions.Fail(condition.NetworkPublished, condition.Fabric(f.Name), "%v", err)
		return
	}
	r.log.Error("cannot publish NetworkAttachmentDefinition", "name", f.Name, "error", err)
}

// write makes the agent's files in Multus's directory these. A file that is missing now stays while pods of this node
// are on its network, or while its fabric has nodeRanges (the API server may be away); but never with addresses that
// are another node's by now.
func (r *networkReconciler) write(fabrics []settings.Fabric, files map[string][]byte) {
	if r.confDir == "" {
		return
	}
	keep := attachedNetworks(r.store, r.log)
	for i := range fabrics {
		if f := &fabrics[i]; f.NodeRanges != nil {
			keep[f.Name] = !r.ranges.ranges[f.Name].lost
		}
	}
	if _, err := network.WriteFiles(r.confDir, files, func(name string) bool { return keep[name] }); err != nil {
		r.log.Error("cannot write this node's network configurations", "error", err)
	}
}

// attachedNetworks are the names of the networks that pods of this node are on.
func attachedNetworks(store journal.Store, log *slog.Logger) map[string]bool {
	out := map[string]bool{}
	entries, err := store.List()
	if err != nil {
		log.Error("some journal entries cannot be read", "error", err)
	}
	for _, e := range entries {
		out[e.Network] = true
	}
	return out
}
