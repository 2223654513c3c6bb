package fabric

import (
	"github.com/fabric-cni/fabric-cni/internal/devinfo"
	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// describe writes the device information file that the runtime asks for. The attachment works without.
func (c *call) describe(e *journal.Entry) {
	if c.cfg.DeviceInfo == "" || e.Kind == journal.KindIPoIB || e.PCI == "" {
		return
	}
	d := devinfo.PCI{Address: e.PCI}
	if e.VF != nil {
		d.PF = e.VF.Was.PF.Name
	}
	if e.HCA != nil {
		d.RDMA = e.HCA.Name
		if e.MoveRDMA && e.RDMAName != "" {
			d.RDMA = e.RDMAName
		}
	}
	if err := devinfo.Save(c.cfg.DeviceInfo, d); err != nil {
		c.log.Warn("device information was not written", "reason", err)
	}
}

// undescribe removes the file. It is the runtime's to do, too: what it finds gone is no error there.
func (c *call) undescribe() {
	if c.cfg.DeviceInfo == "" {
		return
	}
	if err := devinfo.Remove(c.cfg.DeviceInfo); err != nil {
		c.log.Warn("device information was not removed", "reason", err)
	}
}
