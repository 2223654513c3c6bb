package fabric

import (
	"context"
	"errors"
	"fmt"

	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// gc is the verb GC: it returns what those attachments of the network hold that the runtime does not know any more,
// then lets IPAM do the same. It goes on past errors and reports all.
func gc(c *call) error {
	c.doing = "collect what stale attachments of network " + c.cfg.Name + " hold"
	if err := c.openHost(); err != nil {
		return err
	}
	valid := map[netconf.Attachment]bool{}
	for _, a := range c.cfg.ValidAttachments {
		valid[a] = true
	}
	entries, err := c.store.List()
	errs := []error{err}
	for _, e := range entries {
		if e.Network != c.cfg.Name || valid[netconf.Attachment{ContainerID: e.ContainerID, IfName: e.IfName}] {
			continue
		}
		c.log.Info("returning a stale attachment", "owner", e.String(), "device", e.Claim)
		if err := (returner{c}).giveBack(e, c.delegateOf(e)); err != nil {
			errs = append(errs, fmt.Errorf("attachment %s: %w", e.Key, err))
		}
	}
	err = c.delegate().GC(context.Background(), c.cfg.ValidAttachments)
	if err != nil && !errors.Is(err, ipam.ErrNotSupported) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
