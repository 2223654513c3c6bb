package apply

import (
	"context"
	"errors"
	"fmt"

	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

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
			return errors.Join(moveHome(there, h.Index, r.Host.NS.FD()), there.Close())
		})
	})
	if err = errors.Join(err, ns.Close()); err != nil { // closed, it gives the device back
		return fmt.Errorf("make the kernel recreate the netdev of %s: %w", h.Name, err)
	}
	return nil
}
