package fabric

import (
	"github.com/fabric-cni/fabric-cni/internal/devinfo"
	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// describe writes the device information file that the runtime asks for. The attachment works without.
func (a *attachment) describe() {
	e := a.entry
	if e.DeviceInfo == "" {
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
	var err error
	if r := a.chosen.replaced; r == nil {
		err = devinfo.Save(e.DeviceInfo, d, writer(e.Key))
	} else {
		err = devinfo.SaveOther(e.DeviceInfo, d, writer(e.Key), r.pci, r.plugin)
	}
	if err != nil {
		a.log.Warn("device information was not written", "reason", err)
	}
}

// deviceInfo is the device information file that ADD writes; empty for none.
func (c *call) deviceInfo(e *journal.Entry) string {
	if e.Kind == journal.KindIPoIB || e.PCI == "" {
		return ""
	}
	return c.cfg.DeviceInfo
}

// writer is what device information files of an attachment say about their origin. DEL removes only a file with this
// writer: the path is the configuration's, these names are the runtime's.
func writer(k journal.Key) string { return "fabric " + k.String() }

// undescribe removes the file of an attachment. It is the runtime's to do, too: what it finds gone is no error there.
// An entry of an older version does not have the path, which the configuration has, and its file names no writer.
func (c *call) undescribe(e *journal.Entry) {
	file, about := e.DeviceInfo, ""
	if file == "" && e.Key == c.key {
		file, about = c.cfg.DeviceInfo, e.PCI
	}
	if file == "" {
		return
	}
	if err := devinfo.Remove(file, writer(e.Key), about); err != nil {
		c.log.Warn("device information was not removed", "reason", err)
	}
}
