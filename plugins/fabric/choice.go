package fabric

import (
	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// choice is how the device of an attachment was chosen: the configuration names it if the other fields are nil.
type choice struct {
	cfg       *netconf.Config // selects the device
	fromClaim *journal.Given  // a ResourceClaim gives it
	refused   *attach.Claims  // the pod's ResourceClaims give none: attach.Decide says why
	replaced  *replaced       // it is in the place of the device that Multus names
}

// replaced is the device that Multus names where the attachment has another one.
type replaced struct {
	pci    string // its PCI address
	plugin []byte // what the device plugin says of the other one; nil: nothing
}

// choose chooses the device: a ResourceClaim's, the next in the order of rails, or the one that the configuration
// names. An ADD holds the pod's lock until the journal has it.
func (c *call) choose(given *allocated) (choice, error) {
	ch, err := c.fromClaim()
	if err != nil || ch.fromClaim != nil || ch.refused != nil || given == nil {
		return ch, err
	}
	return c.byRail(given)
}

// takeTurn takes the lock of the pod, if the device is one of several that the pod has, by its claims or by kubelet, or
// a share: two ADDs of one pod choose, or count, one after the other. It is taken before any device's lock, and held
// until the journal says which device has been chosen.
func (a *adder) takeTurn(given *allocated) error {
	if !a.cfg.FromClaim && given == nil && a.cfg.Mode != netconf.ModeIPoIB || !prepared.IsUID(a.cfg.Pod.UID) {
		return nil
	}
	ctx, cancel := bounded(lockWait)
	defer cancel()
	var err error
	a.turn, err = a.store.LockPod(ctx, a.cfg.Pod.UID)
	return err
}
