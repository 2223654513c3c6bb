package apply

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// renameWait bounds the wait for a name that is taken by a device on its way elsewhere: the kernel gives a recreated
// IPoIB netdev the lowest free ib%d, which can be another device's name, until its own call renames it.
var renameWait = 2 * time.Second

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
		if err := setMode(ctx, side, index, *a.Mode); err != nil {
			return err
		}
	}
	if a.HWAddr != nil { // a driver may refuse even the one that it has
		if n, err := side.Link.ByIndex(index); err == nil && bytes.Equal(n.HWAddr, a.HWAddr) {
			a.HWAddr = nil
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
		Token:    a.Token,
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
// a temporary name, as soon as its own is taken: the call that waits for the one it had gets it. It keeps that name if
// it can't get its own: the one it had before may be a pod's choice. Only a device that no call works on has to be made
// to step aside (see EvictName).
func (r *Runner) rename(ctx context.Context, in plan.Side, name string, flags uint32) error {
	r.index = 0
	side, index, err := r.on(in)
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
		taken = fmt.Errorf("rename to %s: %w by %s (device %s)", name, ErrNameTaken, quote.Terminal(holder.Name),
			holder.Address)
		if !aside {
			aside = true
			if err := side.nameTemporarily(index); err != nil {
				return false, err
			}
		}
		yields, err := r.evictName(in, holder, name)
		if err == nil && !yields && time.Now().After(patience) {
			err = taken
		}
		return false, err
	})
	if taken != nil && errors.Is(err, context.DeadlineExceeded) {
		return taken
	}
	return err
}

// temporary is a name that no other device is given.
func temporary(index int) string { return temporaryPrefix + strconv.Itoa(index) }

const temporaryPrefix = "fabric"

// IsTemporary says whether a name may be one that a device got to step aside.
func IsTemporary(name string) bool { return strings.HasPrefix(name, temporaryPrefix) }

// temporarily gives a device a name that is no device's own, through set. A pod may have taken such a name, or made it
// an altname, to be in the way: then the device gets one that can't be guessed.
func temporarily(index int, set func(name string) error) error {
	err := set(temporary(index))
	for range 3 {
		if !errors.Is(err, unix.EEXIST) {
			break
		}
		err = set(temporaryPrefix + "-" + rand.Text()[:8]) // the 15 bytes that a netdev's name may have
	}
	return err
}

// nameTemporarily is temporarily for a netdev of this side, unless it has such a name.
func (s *Side) nameTemporarily(index int) error {
	now, err := s.Link.ByIndex(index)
	if err != nil || IsTemporary(now.Name) {
		return err
	}
	return temporarily(index, func(name string) error { return s.Link.Set(index, link.Change{Name: name}) })
}

// nameDown is nameTemporarily for a netdev that may be up, which can't be renamed before 6.2.
func (s *Side) nameDown(n *device.Netdev) error {
	if n.Up() {
		if err := s.Link.Set(n.Index, link.Change{Mask: device.FlagUp}); err != nil {
			return err
		}
	}
	return s.nameTemporarily(n.Index)
}

// stepAside takes a name and altnames that are not its own off the netdev.
func (r *Runner) stepAside(s plan.Aside) error {
	side, index, err := r.on(s.In)
	if err != nil {
		return err
	}
	if len(s.Del) > 0 {
		if err := side.Link.DelAltNames(index, s.Del); err != nil {
			return err
		}
	}
	if s.Name == "" {
		return nil
	}
	if anew, err := side.registerAnew(index); err != nil {
		return err
	} else if anew {
		r.index = 0
		if side, index, err = r.on(s.In); err != nil {
			return err
		}
	}
	if err := side.Link.Set(index, link.Change{Name: s.Name}); !errors.Is(err, unix.EEXIST) {
		return err
	}
	return side.nameTemporarily(index) // plan.Restore insists on the own one
}

// DropForeignNames takes from a netdev on the host whatever names it has that are not its own, which own has: it gets a
// temporary one. It is for a device that is in a pod as far as anybody knows, and was met here. It says whether there
// was something to do.
func (r *Runner) DropForeignNames(n, own *device.Netdev) (bool, error) {
	now, err := r.Host.Link.ByIndex(n.Index)
	if err != nil || now.Address != n.Address {
		return false, ignoreMissing(err)
	}
	foreign := slices.DeleteFunc(slices.Clone(now.AltNames), own.Named)
	if len(foreign) > 0 {
		if err := r.Host.Link.DelAltNames(now.Index, foreign); err != nil {
			return false, err
		}
	}
	if own.Named(now.Name) || IsTemporary(now.Name) {
		return len(foreign) > 0, nil
	}
	if anew, err := r.Host.registerAnew(now.Index); anew || err != nil {
		return anew, err
	}
	if err := r.Host.nameDown(now); err != nil {
		return false, fmt.Errorf("move %s out of the way: %w", quote.Terminal(now.Name), err)
	}
	return true, nil
}

// evictName takes a name from its holder, if it is not the holder's own: only this way can two devices that returned
// with each other's names be put right, and one whose pod gave it the name of another. The holder gets its own name
// when it is returned itself. The result says whether the holder's name will be free, now or when the call that works
// on the holder has finished.
func (r *Runner) evictName(in plan.Side, holder *device.Netdev, name string) (bool, error) {
	if in != plan.Host || r.EvictName == nil || holder.Address == r.netdev.Address {
		return false, nil
	}
	return r.EvictName(holder, name, func(own *device.Netdev) error {
		_, err := r.DropForeignNames(holder, own)
		return err
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
	if err := side.unreserve(n); err != nil {
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
	ch.Flags, ch.Mask = 0, 0
	if err := temporarily(index, func(name string) error {
		ch.Name = name
		return side.Link.Set(index, ch)
	}); err != nil {
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
