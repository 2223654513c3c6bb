package fabric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// gc is the verb GC: it returns what those attachments of the network hold that the runtime does not know any more,
// then lets IPAM do the same. It goes on past errors and reports all. A call without a list of valid attachments tells
// nothing about them: only those whose network namespace is gone are stale, and IPAM is not asked.
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
		// The runtime knows an attachment of another port by its first one.
		named := netconf.Attachment{ContainerID: e.ContainerID, IfName: cmp.Or(e.Of, e.IfName)}
		if e.Network != c.cfg.Name || valid[named] {
			continue
		}
		if c.lives(e) || c.cfg.ValidAttachments == nil && c.alive(e) {
			c.log.Info("not stale: it is alive, or newer than the list", "owner", e.Who(), "its", e.IfName)
			continue
		}
		if err := c.collect(e); err != nil {
			errs = append(errs, fmt.Errorf("attachment %s of %s: %w", e.IfName, e.Who(), err))
		}
	}
	if c.cfg.ValidAttachments == nil {
		return errors.Join(errs...)
	}
	err = c.delegate().GC(context.Background(), c.remaining())
	if err != nil && !errors.Is(err, ipam.ErrNotSupported) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// listAge is how old the runtime's list of valid attachments may be: it was made before the call, and an ADD may have
// ended since.
const listAge = time.Minute

// lives says that an attachment is not stale, whatever the list of valid ones says: its network namespace is there, and
// a process is in it, or the attachment is newer than the list.
func (s *session) lives(e *journal.Entry) bool {
	if !s.alive(e) {
		return false
	}
	return e.Age().Abs() < listAge || netns.Inhabited(s.Proc, e.Netns)
}

// remaining are the valid attachments with those that the journal has: they keep their addresses.
func (c *call) remaining() []netconf.Attachment {
	out := c.cfg.ValidAttachments
	entries, _ := c.store.List() // what can't be read has been logged
	for _, e := range entries {
		a := netconf.Attachment{ContainerID: e.ContainerID, IfName: e.IfName}
		if e.Network == c.cfg.Name && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// collect returns a stale attachment, unless another call has done so meanwhile. Whatever is wrong with it, the others
// come next.
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
	c.log.Info("returning a stale attachment", "owner", e.Who(), "its", e.IfName, "device", e.DeviceKey)
	return ended(returner{c}.giveBack(e, c.delegateOf(e)))
}
