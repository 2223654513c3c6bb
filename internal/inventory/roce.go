package inventory

import (
	"io/fs"
	"path"
	"strconv"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// TrafficClassFile is the file in sysfs with the traffic class of a port.
func TrafficClassFile(hca string, port uint32) string {
	return path.Join("class/infiniband", hca, "tc", strconv.FormatUint(uint64(port), 10), "traffic_class")
}

// TrafficClass reads the traffic class of the RoCE ports of h, which is on the host. NVIDIA's driver package has it in
// sysfs, the kernel's own drivers have not.
func (r *Reader) TrafficClass(h *device.HCA) {
	if r.Sys == nil {
		return
	}
	for i := range h.Ports {
		p := &h.Ports[i]
		if p.LinkLayer != device.Ethernet {
			continue
		}
		if b, err := fs.ReadFile(r.Sys, TrafficClassFile(h.Name, p.Number)); err == nil {
			p.TrafficClass = new(device.ParseTrafficClass(string(b)))
		}
	}
}
