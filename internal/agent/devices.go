package agent

import (
	"context"
	"log/slog"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/deviceplugin"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// deviceReconciler reports the devices of each fabric to kubelet and to Prometheus.
type deviceReconciler struct {
	plugins *deviceplugin.Set // nil: no device plugin
	metrics *metrics.Metrics
	saved   *savedState
	log     *slog.Logger
}

func (r *deviceReconciler) reconcile(ctx context.Context, v *view) {
	resources := map[string][]deviceplugin.Unit{}
	fabrics := map[string]string{} // device id -> fabric
	for i := range v.fabrics {
		f := &v.fabrics[i]
		devices := v.assigned[f.Name]
		for j := range devices {
			fabrics[devices[j].ID()] = f.Name
		}
		if f.Allocation == v1alpha1.DRA {
			continue // never both: claims get them
		}
		units := network.Units(f, devices)
		for j := range units {
			units[j].Healthy = units[j].Healthy && v.withheld[f.Name][units[j].ID] == ""
		}
		if len(units) > 0 {
			resources[f.Resource()] = units
		}
	}
	if err := r.saved.setDevices(v.assigned); err != nil {
		r.log.Error(err.Error())
	}
	r.metrics.SetFabrics(fabrics)
	if r.plugins == nil {
		return
	}
	if err := r.plugins.Update(ctx, resources); err != nil {
		r.log.Error("cannot report the devices to kubelet", "error", err)
	}
}

// reportUnused adds a finding for each discovered fabric with ports that no pod can ask for.
func reportUnused(discovered []topology.Fabric, v *view) {
	for i := range discovered {
		if text := network.Unused(&discovered[i], v.assigned); text != "" {
			v.findings.Add(condition.FabricUnused, condition.Fabric(discovered[i].Name), "%s", text)
		}
	}
}

// reportUnmatched adds a finding for each fabric that has no device here, although the node has some.
func reportUnmatched(devices []survey.Device, v *view) {
	for i := range v.fabrics {
		f := &v.fabrics[i]
		if text := network.Unmatched(f, devices, v.assigned); text != "" {
			v.findings.Add(condition.FabricUnmatched, condition.Fabric(f.Name), "fabric %s %s", f.Name, text)
		}
	}
}

// filesNow looks up the device files of a unit that kubelet is about to hand out: those that its fabric allows.
func filesNow(n survey.Node) func(context.Context, deviceplugin.Unit) ([]string, error) {
	return func(ctx context.Context, u deviceplugin.Unit) ([]string, error) {
		files, err := n.FilesNow(ctx, u.Address, u.Alone, u.Files)
		return survey.AllowedFiles(files, u.Extra), err
	}
}

// filesThen are the device files of a unit as they were at the last look.
func filesThen(_ context.Context, u deviceplugin.Unit) ([]string, error) {
	return survey.AllowedFiles(u.Files, u.Extra), nil
}
