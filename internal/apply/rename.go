package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// renameWait bounds the wait for a name that is taken by a device on its way elsewhere: the kernel gives a recreated
// IPoIB netdev the lowest free ib%d, which can be another device's name, until its own call renames it.
const renameWait = 2 * time.Second

// ErrNameTaken says that another device has the name and keeps it.
var ErrNameTaken = errors.New("the name is taken")

func (r *Runner) setLink(ctx context.Context, s plan.SetLink) error {
	side, index, err := r.on(s.In)
	if err != nil {
		return err
	}
	if len(s.IPv6Conf) > 0 {
		n, err := side.Link.ByIndex(index)
		if err != nil {
			return err
		}
		if err := writeIPv6Conf(side, n.Name, s.IPv6Conf); err != nil {
			return err
		}
	}
	a := s.Attrs
	if a.Mode != nil {
		if err := r.setMode(ctx, side, index, *a.Mode); err != nil {
			return err
		}
	}
	err = side.Link.Set(index, link.Change{
		Name:     a.Name,
		HWAddr:   a.HWAddr,
		Alias:    a.Alias,
		MTU:      a.MTU,
		TxQueue:  a.TxQueue,
		Group:    a.Group,
		Flags:    a.Flags,
		Mask:     a.Mask,
		Umcast:   a.Umcast,
		AddrGen:  a.AddrGen,
		IPv4Conf: a.IPv4Conf,
	})
	if a.Name != "" && errors.Is(err, unix.EEXIST) {
		return r.rename(ctx, s.In, a.Name, 0)
	}
	return err
}

// rename insists on a name that was taken a moment ago. flags are set along with it.
//
// On the host several devices may be on their way home at once, each under the name of another. So each steps aside, to
// a temporary name, as soon as its own is taken: whoever waits for the one it had gets it. Only a device that nobody is
// at work on has to be made to (see EvictName).
func (r *Runner) rename(ctx context.Context, in plan.Side, name string, flags uint32) error {
	r.index = 0
	side, index, err := r.on(in)
	if err != nil {
		return err
	}
	was, err := side.Link.ByIndex(index)
	if err != nil {
		return err
	}
	patience := time.Now().Add(renameWait)
	aside := in != plan.Host
	var taken error
	err = poll(ctx, func() (bool, error) {
		err := side.Link.Set(index, link.Change{Name: name, Flags: flags, Mask: flags})
		if !errors.Is(err, unix.EEXIST) {
			return err == nil, err
		}
		holder, err := side.Link.ByName(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return false, nil
		case err != nil:
			return false, err
		case holder.Index == index: // our own altname
			return false, side.Link.DelAltNames(index, []string{name})
		}
		taken = fmt.Errorf("rename to %s: %w by %s (device %s)", name, ErrNameTaken, holder.Name, holder.Address)
		if !aside {
			aside = true
			if err := side.Link.Set(index, link.Change{Name: temporary(index)}); err != nil {
				return false, err
			}
		}
		yields, err := r.evictName(in, holder)
		if err == nil && !yields && time.Now().After(patience) {
			err = taken
		}
		return false, err
	})
	if taken == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrNameTaken) {
		return err
	}
	if back := side.Link.Set(index, link.Change{Name: was.Name}); back != nil {
		return errors.Join(taken, fmt.Errorf("it is %s now: %w", temporary(index), back))
	}
	return taken
}

// temporary is a name that no other device is given.
func temporary(index int) string { return temporaryPrefix + strconv.Itoa(index) }

const temporaryPrefix = "fabric"

// IsTemporary says whether a name may be one that a device got to step aside.
func IsTemporary(name string) bool { return strings.HasPrefix(name, temporaryPrefix) }

// evictName gives the holder of a name that is not its own a temporary one: two devices that came home with each
// other's names can be put right only this way. The holder gets its own name when it is returned itself. The result
// says whether the holder's name will be free, now or when the call that works on the holder has finished.
func (r *Runner) evictName(in plan.Side, holder *device.Netdev) (bool, error) {
	if in != plan.Host || r.EvictName == nil || holder.Address == r.netdev.Address {
		return false, nil
	}
	return r.EvictName(holder, func() error {
		now, err := r.Host.Link.ByIndex(holder.Index)
		if err != nil || now.Name != holder.Name {
			return ignoreMissing(err)
		}
		if now.Up() {
			if err := r.Host.Link.Set(now.Index, link.Change{Mask: device.FlagUp}); err != nil {
				return err
			}
		}
		if err := r.Host.Link.Set(now.Index, link.Change{Name: temporary(now.Index)}); err != nil {
			return fmt.Errorf("move %s out of the way: %w", now.Name, err)
		}
		return nil
	})
}

// moveDroppingAltNames moves a netdev whose name, or one of whose altnames, is taken on the other side. The altnames
// stay behind: those in the snapshot are put back later. Under a temporary name the device is at least where it
// belongs.
func moveDroppingAltNames(side *Side, index int, ch link.Change) error {
	n, err := side.Link.ByIndex(index)
	if errors.Is(err, fs.ErrNotExist) {
		return unix.EEXIST // it did move, under the name it had, and only then failed over the new one
	}
	if err != nil {
		return err
	}
	if len(n.AltNames) > 0 {
		if err := side.Link.DelAltNames(index, n.AltNames); err != nil {
			return err
		}
	}
	if err := side.Link.Set(index, ch); !errors.Is(err, unix.EEXIST) {
		return err
	}
	if _, err := side.Link.ByIndex(index); errors.Is(err, fs.ErrNotExist) {
		return unix.EEXIST
	}
	ch.Name, ch.Flags, ch.Mask = temporary(index), 0, 0
	if err := side.Link.Set(index, ch); err != nil {
		return err
	}
	return unix.EEXIST
}

func addrsOf(s plan.Announce) []netip.Prefix {
	out := make([]netip.Prefix, len(s.Addrs))
	for i, a := range s.Addrs {
		out[i] = a.Prefix
	}
	return out
}
