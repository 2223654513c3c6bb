package apply

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// unreserve gives a netdev that a pod has named "all" or "default" another name before it moves: the kernel does not
// finish the registration of a netdev that arrives under one of these. See kernel fact 50.
func (s *Side) unreserve(n *device.Netdev) error {
	if !inventory.OfAll(n.Name) {
		return nil
	}
	return s.nameDown(n)
}

// registerAnew finishes the registration of a netdev that has arrived on this side as "all" or "default": it goes to a
// namespace made for that, gets another name there, and comes back, without its altnames. If the call is killed
// meanwhile, that namespace ends and the kernel brings it back. It says whether there was something to do.
func (s *Side) registerAnew(index int) (done bool, err error) {
	now, err := s.Link.ByIndex(index)
	if err != nil || !inventory.OfAll(now.Name) {
		return false, err
	}
	ns, err := netns.New()
	if err != nil {
		return false, err
	}
	defer ns.Close()
	other, closeSide, err := OpenSide(ns)
	if err != nil {
		return false, err
	}
	defer closeSide()
	err = s.Link.Set(index, link.Change{Move: true, NetNS: ns.FD()})
	if err == nil {
		now, err = other.Link.ByName(now.Name) // its index may have been taken there
	}
	if err == nil {
		err = moveDroppingAltNames(other, now.Index, link.Change{Move: true, NetNS: s.NS.FD()})
	}
	if errors.Is(err, unix.EEXIST) || errors.Is(err, fs.ErrNotExist) {
		err = nil // it is back, under another temporary name
	}
	if err != nil {
		return false, fmt.Errorf("register %s anew: %w", now.Name, err)
	}
	return true, nil
}
