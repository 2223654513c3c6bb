package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// missingMax is how long an IPoIB netdev may be missing while its RDMA device is on the host: the kernel makes it at
// the end of the same move.
const missingMax = time.Second

// absence measures how long the netdev of a device that is home has been missing.
type absence struct {
	since   time.Time
	revived bool
}

// lasts tells whether it is time to do something about it. That is tried once.
func (a *absence) lasts(h *Home, w plan.Where) bool {
	if h.Netdev == nil || !h.Netdev.IsIPoIB() || w.Netdev != nil || w.HCA == nil || w.HCASide != plan.Host {
		a.since = time.Time{}
		return false
	}
	if a.since.IsZero() {
		a.since = time.Now()
	}
	if a.revived || time.Since(a.since) < missingMax {
		return false
	}
	a.revived = true
	return true
}

// revive makes the kernel recreate an IPoIB netdev that is nowhere although its RDMA device is home. That is left by a
// call that was killed inside the move of the RDMA device: the kernel completes the move, but the new netdev's
// workqueue needs a thread, which a task with SIGKILL pending can't create (kernel/kthread.c, __kthread_create_on_node:
// EINTR), and ib_ipoib gives up on the port. Another move, through a namespace made for it, lets it try again.
func (r *Runner) revive(ctx context.Context, h *device.HCA) error {
	ns, err := netns.New()
	if err != nil {
		return err
	}
	err = r.renumber(ctx, h.Address, false, func() error {
		if err := r.Host.RDMA.Move(h.Index, ns.FD()); err != nil {
			return err
		}
		return ns.Do(func() error {
			there, err := rdma.Dial()
			if err != nil {
				return err
			}
			return errors.Join(there.Move(h.Index, r.Host.NS.FD()), there.Close())
		})
	})
	if err = errors.Join(err, ns.Close()); err != nil { // closed, it gives the device back
		return fmt.Errorf("make the kernel recreate the netdev of %s: %w", h.Name, err)
	}
	return nil
}
