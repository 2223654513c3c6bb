package fabric

import (
	"errors"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// guidHolder looks who has a GUID that a VF is to get, on the host and in pods. A device that moves from one to the
// other meanwhile is in the journal before it leaves the host and until it is home, so that one of the looks finds it.
func (g *gatherer) guidHolder(guid device.GUID, vf *device.VF) (string, error) {
	holder, err := g.guidInPod(guid)
	if holder == "" && err == nil {
		holder, err = g.host.GUIDHolder(guid, g.dev.Address, vf)
	}
	if holder == "" && err == nil {
		holder, err = g.guidInPod(guid)
	}
	return holder, err
}

// guidInPod looks for a GUID among the attachments, those included whose ADD is not done: their devices are in pods,
// where the host does not see them, or about to be given the GUID.
func (g *gatherer) guidInPod(guid device.GUID) (string, error) {
	entries, err := g.store.List()
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return "", err
	}
	for _, e := range entries {
		if e.Key == g.key {
			continue
		}
		had := e.VF != nil && e.VF.GUID == guid ||
			e.HCA != nil && e.MoveRDMA && (e.VF == nil || e.VF.GUID == 0) && e.HCA.NodeGUID == guid
		if !had || !g.alive(e) {
			continue
		}
		owner, ok, err := g.store.Owner(e.Claim)
		if err != nil {
			return "", err
		}
		if ok && owner == e.Key { // else its device is home, and only its addresses are not free yet
			return e.Who() + " (" + e.IfName + ", device " + e.Claim + ")", nil
		}
	}
	return "", nil
}
