package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/journal"
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
	if errors.Is(err, journal.ErrCorrupt) { // nothing says that it is of this network
		c.log.Warn("left alone: fabricctl doctor host names them", "reason", err)
		err = nil
	}
	errs := []error{err}
	for _, e := range entries {
		if e.Network != c.cfg.Name || valid[netconf.Attachment{ContainerID: e.ContainerID, IfName: e.IfName}] {
			continue
		}
		if err := c.collect(e); err != nil {
			errs = append(errs, fmt.Errorf("attachment %s of %s: %w", e.IfName, e.Who(), err))
		}
	}
	err = c.delegate().GC(context.Background(), c.cfg.ValidAttachments)
	if err != nil && !errors.Is(err, ipam.ErrNotSupported) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// collect returns a stale attachment, unless somebody has done so meanwhile. Whatever is wrong with it, the others come
// next.
func (c *call) collect(stale *journal.Entry) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("internal error: %v; please report it", r)
		}
	}()
	ctx, cancel := bounded(lockWait)
	defer cancel()
	lock, err := c.store.LockAttachment(ctx, stale.Key)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	e, err := c.store.Load(stale.Key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case e.Nonce != stale.Nonce: // of a later ADD
		return nil
	}
	c.log.Info("returning a stale attachment", "owner", e.Who(), "its", e.IfName, "device", e.Claim)
	return returner{c}.giveBack(e, c.delegateOf(e))
}
