package dra

import (
	"context"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/fabric-cni/fabric-cni/internal/agent/dra/offer"
)

// WatchHealthStatus tells kubelet of the health of all devices at once, and again at each change, until ctx ends.
// kubelet puts it into the status of pods (feature gate ResourceHealthStatus). What it has not heard for 30 s counts as
// unknown (kubelet 1.37, cm/dra/healthinfo.go), so it is told again before that. The library serves both versions of
// DRAResourceHealth: v1alpha1, which kubelet 1.34 knows, and v1.
func (d *Driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	again := time.NewTicker(retryEvery)
	defer again.Stop()
	for {
		now, changed := d.healthNow()
		select {
		case reports <- now:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again.C:
		}
	}
}

func (d *Driver) healthNow() (out kubeletplugin.DeviceHealthReport, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.Now()
	for name, n := range d.devices {
		h := kubeletplugin.HealthStatusHealthy
		if n.Health != "" {
			h = kubeletplugin.HealthStatusUnhealthy
		}
		names := []string{name}
		for i := range n.Item.Shares {
			names = append(names, offer.ShareName(name, i))
		}
		for _, s := range names {
			out.Devices = append(out.Devices, kubeletplugin.DeviceHealth{
				PoolName: d.Node, DeviceName: s, Health: h, LastUpdated: at,
			})
		}
	}
	return out, d.sickness
}
