package dra

import (
	"time"

	"google.golang.org/grpc"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"github.com/fabric-cni/fabric-cni/internal/agent/dra/offer"
)

var _ health.DRAResourceHealthServer = (*Driver)(nil)

// NodeWatchResources implements the DRAResourceHealth service: kubelet is told of the health of all devices at once,
// and again at each change, and puts it into the status of pods (feature gate ResourceHealthStatus). What it has not
// heard for 30 s counts as unknown (kubelet 1.34, cm/dra/healthinfo.go), so it is told again before that.
func (d *Driver) NodeWatchResources(
	_ *health.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[health.NodeWatchResourcesResponse],
) error {
	again := time.NewTicker(retryEvery)
	defer again.Stop()
	for {
		now, changed := d.healthNow()
		if err := stream.Send(now); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		case <-again.C:
		}
	}
}

func (d *Driver) healthNow() (*health.NodeWatchResourcesResponse, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &health.NodeWatchResourcesResponse{}
	at := d.Now().Unix()
	for name, n := range d.devices {
		h := health.HealthStatus_HEALTHY
		if n.Health != "" {
			h = health.HealthStatus_UNHEALTHY
		}
		names := []string{name}
		for i := range n.Item.Shares {
			names = append(names, offer.ShareName(name, i))
		}
		for _, s := range names {
			out.Devices = append(out.Devices, &health.DeviceHealth{
				Device: &health.DeviceIdentifier{PoolName: d.Node, DeviceName: s}, Health: h, LastUpdatedTime: at,
			})
		}
	}
	return out, d.sickness
}
