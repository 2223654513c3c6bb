package fabric

import (
	"cmp"
	"errors"
	"slices"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// connections reads the connection manager's defaults of an RDMA device that may move. They are known by its name
// alone: where names are unique per network namespace, and a pod's device has this one, only the attachment can read
// them.
func (in *inspector) connections() error {
	h := in.dev.HCA
	if !h.Has(device.Ethernet) || !in.facts.MayMoveRDMA() {
		return nil
	}
	in.c.host.TrafficClass(h)
	if in.c.host.RDMA.PerNetns(h) {
		entries, err := in.c.store.List()
		if err != nil && !errors.Is(err, journal.ErrCorrupt) {
			return err
		}
		in.facts.Namesake = slices.ContainsFunc(entries, func(e *journal.Entry) bool {
			return e.MoveRDMA && e.HCA != nil && e.DeviceKey != in.dev.DeviceKey() &&
				cmp.Or(e.RDMAName, e.HCA.Name) == h.Name
		})
	}
	if in.facts.Namesake {
		return nil
	}
	if err := rdma.CM(h); err != nil {
		in.c.log.Warn("type of service and RoCE mode of connections are not known, and not kept", "reason", err)
	}
	return nil
}

// connections completes the snapshot of an RDMA device whose name a device in a pod has, too: to be read, it gets
// another name for a moment, which the journal has to know of before.
func (a *attachment) connections() error {
	if !a.Namesake || !a.MoveRDMA {
		return nil
	}
	if err := apply.ReadCM(a.host, a.entry.HCA); err != nil {
		return err
	}
	return a.store.Save(a.entry)
}
