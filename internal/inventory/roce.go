package inventory

import (
	"io/fs"
	"path"
	"strconv"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

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
		file := path.Join("class/infiniband", h.Name, "tc", strconv.FormatUint(uint64(p.Number), 10), "traffic_class")
		if b, err := fs.ReadFile(r.Sys, file); err == nil {
			p.TrafficClass = new(device.ParseTrafficClass(string(b)))
		}
	}
}
