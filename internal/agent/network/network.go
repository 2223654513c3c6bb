// Package network says which devices of a node are whose, and turns fabrics into what others read on the node:
// resources for kubelet, and configuration files for Multus.
package network

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/fabric-cni/fabric-cni/internal/agent/deviceplugin"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/health"
	"github.com/fabric-cni/fabric-cni/internal/kubelet"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Units are what kubelet may hand out of a fabric: the devices, or the shares of each.
func Units(f *fabrics.Fabric, devices []survey.Device) (out []deviceplugin.Unit) {
	for _, d := range devices {
		u := deviceplugin.Unit{
			ID: d.ID(), Location: d.Location, Healthy: Problem(f, &d) == health.None, NUMA: d.NUMA, Files: d.Files,
			Extra: f.Files, RDMA: d.HCA.Name, Alone: f.Attachment == v1alpha1.WholeDevice, Slot: cmp.Or(d.Slot, d.ID()),
			Path: d.Path,
		}
		if f.Attachment == v1alpha1.WholeDevice {
			out = append(out, u)
			continue
		}
		for i := range f.Shares {
			s := u
			s.ID = u.ID + kubelet.Share + strconv.Itoa(i)
			out = append(out, s)
		}
	}
	return out
}

// Problem is why no pod should get a device: whatever has been judged, one whose port is Down carries nothing.
func Problem(f *fabrics.Fabric, d *survey.Device) health.Problem {
	switch {
	case !d.Active() && !f.Health.AllowDown:
		return health.PortDown
	case f.Health.Withhold:
		return d.Problem
	}
	return health.None
}

// Configurable returns whether a fabric's configuration is a file of each node, and a node with these devices can have
// one: it has a device, and with attachment IPoIBChild an interface for the children, unless a claim says which.
func Configurable(f *fabrics.Fabric, devices []survey.Device) bool {
	return f.OfNode() && len(devices) > 0 &&
		(f.Attachment != v1alpha1.IPoIBChild || f.Allocation == v1alpha1.DRA || Master(devices) != "")
}

// Master is the parent interface of this node's IPoIB children of a fabric: that of the first device that carries
// traffic, or else the first one. It is empty if no device has an interface on the host: one that a pod has as a whole
// has none.
func Master(devices []survey.Device) string {
	name := ""
	for _, d := range devices {
		if d.Netdev == "" || d.Holder != nil {
			continue
		}
		if d.Active() {
			return d.Netdev
		}
		if name == "" {
			name = d.Netdev
		}
	}
	return name
}

// Reason describes the state of a device: "mlx5_0 (0000:3b:00.0) port is Down (Polling)".
func Reason(d *survey.Device) string {
	return fmt.Sprintf("%s (%s) port is %s", quote.Terminal(d.HCA.Name), d.ID(), d.State())
}
