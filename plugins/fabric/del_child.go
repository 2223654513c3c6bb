package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// unsureWait bounds the wait for a child that may never have been made: its creator was killed at an unknown point.
const unsureWait = 3 * time.Second

// soon is when a child that is not where it belongs is looked for elsewhere.
const soon = 200 * time.Millisecond

// removeChild deletes the child wherever it is. When the pod's namespace is gone the kernel has put it on the host, or
// is about to; or the pod has moved it to another namespace before. A child that is found nowhere is gone only if the
// kernel says that its queue pair is.
func (c returner) removeChild(r *apply.Runner, e *journal.Entry) error {
	users, err := c.store.Children(e.Claim)
	if err != nil {
		return err
	}
	removed := !slices.Contains(users, e.Key) // by an earlier call
	ctx, cancel := bounded(kernelMax)
	defer cancel()
	wait := homeWait
	switch {
	case r.Pod != nil, removed: // the kernel has nothing to bring
		wait = 0
	case e.Child.HWAddr == "", e.Missing:
		wait = unsureWait
	}
	end, next := time.Now().Add(wait), time.Now().Add(soon)
	for {
		found, err := c.deleteChild(ctx, r, e)
		if found || err != nil {
			return err
		}
		last := !time.Now().Before(end)
		if last && removed {
			return releaseRules(ctx, r)
		}
		if last || !time.Now().Before(next) {
			gone, err := c.childGone(e)
			if gone || err != nil {
				return errors.Join(err, releaseRules(ctx, r))
			}
			if c.childElsewhere(ctx, e) {
				return releaseRules(ctx, r)
			}
			if last {
				return c.childLost(ctx, r, e)
			}
			next = time.Now().Add(time.Second)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// deleteChild deletes the child if it is in the pod or on the host.
func (c returner) deleteChild(ctx context.Context, r *apply.Runner, e *journal.Entry) (found bool, err error) {
	for _, side := range []plan.Side{plan.Pod, plan.Host} {
		s := r.Pod
		if side == plan.Host {
			s = r.Host
		}
		if s == nil {
			continue
		}
		n, err := s.Child(childOf(e, side == plan.Host))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		r.Track(nil, n)
		w := plan.Where{Netdev: n, NetdevSide: side, PodGone: r.Pod == nil}
		if side == plan.Pod {
			if w.Rules, err = s.Link.Rules(); err != nil {
				return false, err
			}
		}
		return true, r.Run(ctx, plan.Preview(w, plan.Home{Child: true}))
	}
	return false, nil
}

// childOf is what the child of an attachment is known by.
func childOf(e *journal.Entry, host bool) inventory.Child {
	hw, _ := net.ParseMAC(e.Child.HWAddr)
	return inventory.Child{
		Parent: e.Child.Parent, PKey: e.Child.PKey, Group: e.Child.Group, HWAddr: hw, Index: e.PodIndex, OnHost: host,
	}
}

// childElsewhere looks into all other network namespaces for the child, and deletes it where it finds it.
func (c returner) childElsewhere(ctx context.Context, e *journal.Entry) (found bool) {
	_ = netns.Search(c.Proc, func(ns *netns.NS) bool {
		if ns.ID == c.host.NS.ID {
			return false
		}
		s, done, err := apply.OpenSide(ns)
		if err != nil {
			return false
		}
		defer done()
		n, err := s.Child(childOf(e, false))
		if err != nil {
			return false
		}
		r := c.runner(s)
		r.Track(nil, n)
		steps := plan.Preview(plan.Where{Netdev: n, NetdevSide: plan.Pod}, plan.Home{Child: true})
		found = r.Run(ctx, steps) == nil
		return found
	})
	if found {
		c.log.Warn("the pod had moved its interface to another network namespace", "parent", e.Claim)
	}
	return found
}

// noteQP notes in the entry by what childGone can tell later that the new child is gone.
func (a *attachment) noteQP(hwaddr net.HardwareAddr) {
	hca, child := a.Device.HCA, a.entry.Child
	qpn, ok := device.QPNOf(hwaddr)
	if hca == nil || !ok {
		return
	}
	child.HCA = &hca.Index
	var err error
	if child.Listed, err = a.host.RDMA.HasQP(hca.Index, qpn); err != nil {
		a.log.Warn("the child can't be proved gone by its queue pair later", "reason", err)
	}
}

// childGone says whether the kernel has deleted the child. It has a queue pair of its parent's HCA as long as it lives,
// whose number is in its hardware address (drivers/infiniband/ulp/ipoib/ipoib_verbs.c). That nldev does not list it
// proves something only if nldev did once. One whose address was never written down was not in a pod that ran.
func (c returner) childGone(e *journal.Entry) (bool, error) {
	qpn, ok := device.QPNOf(childOf(e, false).HWAddr)
	if !ok {
		return false, nil
	}
	if !c.host.Present(e.Child.Parent) {
		return true, nil
	}
	d, err := c.host.At(e.Child.Parent)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return false, err
	case d.HCA == nil: // moved, which destroys its IPoIB interfaces: kernel fact 1
		return true, nil
	case e.Child.HCA != nil && *e.Child.HCA != d.HCA.Index:
		return true, nil
	case !e.Child.Listed:
		return false, nil
	}
	there, err := c.host.RDMA.HasQP(d.HCA.Index, qpn)
	return err == nil && !there, err
}

// childLost is for a child that was found nowhere, and that may be alive.
func (c returner) childLost(ctx context.Context, r *apply.Runner, e *journal.Entry) error {
	if e.Child.HWAddr == "" { // ADD was killed before it had seen one
		return releaseRules(ctx, r)
	}
	return c.missing(e, fmt.Errorf("the IPoIB child of %s with the hardware address %s: %w", e.Claim, e.Child.HWAddr,
		apply.ErrMissing))
}

func releaseRules(ctx context.Context, r *apply.Runner) error {
	if r.Pod == nil {
		return nil
	}
	return releaseOrphans(ctx, r)
}
