package apply

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// ErrMissing says that a device is on the bus, and in no network namespace that can be looked into.
var ErrMissing = errors.New("it is in no network namespace that can be looked into")

// A device that is neither on the host nor in the pod is looked for everywhere. First comes a pause: mostly the kernel
// is on its way with it.
const (
	searchAfter = 200 * time.Millisecond
	searchEvery = time.Second
	// rebindAfter is how many searches find nothing before the driver is bound again: the kernel may be ending a few
	// hundred namespaces, one after the other.
	rebindAfter, rebindAfterEnd = 2, 5
)

// search is how far the search for a missing device has got.
type search struct {
	next  time.Time
	count int
	tried bool // to bind the driver again
}

// look looks for what is missing, if it is time to, and brings it to the host.
func (s *search) look(ctx context.Context, j *journey) {
	now := time.Now()
	if s.next.IsZero() {
		s.next = now.Add(searchAfter)
	}
	if now.Before(s.next) {
		return
	}
	s.count++
	found := j.fetch(ctx)
	s.next = now.Add(searchEvery)
	enough := rebindAfter
	if j.Pod == nil {
		enough = rebindAfterEnd
	}
	if !found && s.count >= enough && !s.tried {
		s.tried = true
		j.rebindMissing(ctx)
	}
}

// fetch looks into every other network namespace for the netdev and RDMA device if missing, and brings what it finds to
// the host: a pod can move what it has into one that it has made. What goes wrong is tried again with the next search.
func (j *journey) fetch(ctx context.Context) (found bool) {
	_ = netns.Search(j.Proc, func(ns *netns.NS) bool {
		if ns.ID == j.Host.NS.ID || j.Pod != nil && ns.ID == j.Pod.NS.ID {
			return false
		}
		s, closeSide, err := OpenSide(ns)
		if err != nil {
			return false
		}
		defer closeSide()
		found = j.fetchFrom(ctx, s) || found
		return found
	})
	return found
}

// OpenSide opens the connections into a namespace.
func OpenSide(ns *netns.NS) (s *Side, done func(), err error) {
	s = &Side{NS: ns, Reader: inventory.Reader{NS: ns}}
	done = func() {
		if s.Link != nil {
			_ = s.Link.Close()
		}
		if s.RDMA != nil {
			_ = s.RDMA.Close()
		}
	}
	err = ns.Do(func() (err error) {
		if s.Link, err = link.Dial(); err != nil {
			return err
		}
		s.RDMA, err = rdma.Dial()
		if errors.Is(err, rdma.ErrNoRDMA) {
			return nil
		}
		return err
	})
	if err != nil {
		done()
	}
	return s, done, err
}

func (j *journey) fetchFrom(ctx context.Context, s *Side) bool {
	if j.home.HCA != nil && j.where.HCA == nil && s.RDMA != nil {
		if h, err := s.HCA(j.hca); err == nil {
			err := hcaSteps{j.Runner}.renumber(ctx, h.Address, false, func() error {
				return s.NS.Do(func() error { return moveHome(s.RDMA, h.Index, j.Host.NS.FD()) })
			})
			return err == nil // an IPoIB netdev is made anew with it
		}
	}
	if j.home.Netdev == nil || j.where.Netdev != nil || j.home.Side != plan.Host {
		return false
	}
	n, err := j.strayIn(s)
	return err == nil && j.fetchNetdev(s, n) == nil
}

// fetchNetdev brings a netdev to the host, without what sits on it and without the altnames that it has there.
func (j *journey) fetchNetdev(s *Side, n *device.Netdev) error {
	all, err := s.Link.List("")
	if err != nil {
		return err
	}
	if uppers := inventory.On(all, n); len(uppers) > 0 && s.Link.DeleteAll(indexesOf(uppers)) == nil {
		j.removed(uppers...)
	}
	err = moveDroppingAltNames(s, n.Index, link.Change{Move: true, NetNS: j.Host.NS.FD(), Name: j.home.Netdev.Name})
	return ignore(err, unix.EEXIST) // it is on the host, under a temporary name
}

func indexesOf(list []device.Netdev) []int {
	out := make([]int, len(list))
	for i := range list {
		out[i] = list[i].Index
	}
	return out
}

// strayIn finds the netdev in a namespace that is neither the host's nor the pod's. Others may have made one there that
// looks like it: hardware is known by its bus address, a veth by its peer, which knows where it is.
func (j *journey) strayIn(s *Side) (*device.Netdev, error) {
	was := j.netdev
	none := fmt.Errorf("find netdev %s: %w", was.Name, fs.ErrNotExist)
	if was.Address.IsZero() {
		return j.strayVirtual(s, none)
	}
	list, err := s.Link.List(was.Kind)
	for i := range list {
		if n := &list[i]; n.Address == was.Address && n.Parent == 0 && n.ARPType == was.ARPType &&
			n.PortName == was.PortName {
			return n, nil
		}
	}
	return nil, errors.Join(err, none)
}

func (j *journey) strayVirtual(s *Side, none error) (*device.Netdev, error) {
	was := j.netdev
	if was.Kind == "" {
		return nil, none
	}
	if was.Kind == "veth" && was.Parent != 0 {
		return j.byPeer(s)
	}
	list, err := s.Link.List(was.Kind)
	if err != nil {
		return nil, err
	}
	fromPod := false // something was moved from the pod to this namespace (net/core/dev.c, __dev_change_net_namespace)
	if j.Pod != nil {
		id, err := j.Pod.Link.NSID(s.NS.FD())
		fromPod = err == nil && id >= 0
	}
	i := slices.IndexFunc(list, func(n device.Netdev) bool {
		same := n.ARPType == was.ARPType && (was.Parent == 0 || n.Parent == was.Parent)
		return same && (bytes.Equal(n.HWAddr, was.HWAddr) || fromPod && j.inPod != 0 && n.Index == j.inPod)
	})
	if i < 0 {
		return nil, none
	}
	return &list[i], nil
}

// rebindMissing unbinds the driver of a device that no search finds, and binds it again: what a namespace holds that
// only a descriptor on its way holds can't be reached otherwise. The driver makes both anew, on the host. It is
// not done to a device that others have a part of: its virtual functions, or another netdev.
func (j *journey) rebindMissing(ctx context.Context) {
	var at device.Address
	if h := j.home.HCA; h != nil {
		at = h.Address
	}
	if n := j.home.Netdev; at.IsZero() && n != nil {
		at = n.Address
	}
	s := plan.Rebind{Device: at, Driver: j.Host.Driver(at), HCA: j.home.HCA, Netdev: j.home.Netdev != nil}
	if at.IsZero() || s.Driver == "" || j.home.Side != plan.Host {
		return
	}
	if vfs, err := j.Host.Functions(at); err != nil || len(vfs) > 0 {
		return
	}
	here, err := j.Host.NetdevsAt(at)
	if err != nil || len(here) > 1 || len(here) == 1 && j.where.Netdev == nil {
		return
	}
	if err := j.Run(ctx, []plan.Step{s}); err != nil {
		j.miss(err)
	}
}
