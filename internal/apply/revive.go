package apply

import (
	"context"
	"errors"
	"fmt"

	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// revive makes the kernel recreate an IPoIB netdev that is nowhere although its RDMA device is home, or its queue pair
// 1. Either is left by a call that was killed inside the move of the RDMA device: the kernel completes the move, but a
// new netdev, and the users of queue pair 1, need a workqueue with a thread, which a task with SIGKILL pending can't
// create (kernel/kthread.c, __kthread_create_on_node: EINTR), and ib_ipoib or ib_mad gives up on the port. Another
// move, through a namespace made for it, lets it try again. See kernel fact 46 in docs/kernel.md.
func (h hcaSteps) revive(ctx context.Context, hca *device.HCA) error {
	ns, err := netns.New()
	if err != nil {
		return err
	}
	err = h.renumber(ctx, hca.Address, false, func() error {
		if err := h.r.Host.RDMA.Move(hca.Index, ns.FD()); err != nil {
			return err
		}
		return ns.Do(func() error {
			there, err := rdma.Dial()
			if err != nil {
				return err
			}
			return errors.Join(moveHome(there, hca.Index, h.r.Host.NS.FD()), there.Close())
		})
	})
	if err = errors.Join(err, ns.Close()); err != nil { // closed, it gives the device back
		return fmt.Errorf("make the kernel register %s again: %w", hca.Name, err)
	}
	return nil
}
