package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/failpoint"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// hcaSteps carries out the steps about RDMA devices.
type hcaSteps struct{ r *Runner }

// move sends from a thread in the namespace the device is in: the kernel compares the thread's, not the socket's.
// See kernel fact 6 in docs/kernel.md.
func (h hcaSteps) move(ctx context.Context, s plan.MoveRDMA) error {
	from, err := h.r.side(s.To.Other())
	if err != nil {
		return err
	}
	to, err := h.r.side(s.To)
	if err != nil {
		return err
	}
	h.r.index = 0
	err = h.renumber(ctx, s.HCA.Address, s.To == plan.Pod, func() error {
		if s.To == plan.Host {
			return from.NS.Do(func() error { return moveHome(from.RDMA, s.HCA.Index, to.NS.FD()) })
		}
		if s.Name == "" {
			return from.RDMA.Move(s.HCA.Index, to.NS.FD()) // the plugin's threads are in the host's namespace
		}
		return moveAs(from.RDMA, s.HCA.Index, s.Name, to.NS.FD())
	})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		driver := strings.TrimSuffix("driver "+h.r.Host.Driver(s.HCA.Address), " ")
		return fmt.Errorf("%w (the %s of %s can't move it between network namespaces on Linux %s, or the system is in "+
			"shared mode)", err, driver, s.HCA.Name, kernel())
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%w (another RDMA device has this name: in the pod, or before Linux 7.3, where names are "+
			"unique in the whole system, anywhere on the node; field \"rdmaName\" chooses another name)", err)
	}
	return err
}

// kernel is the running kernel's release.
func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "of unknown version"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// moveAs moves a device under another name. A kernel that only renames it where it is gets a second message: see kernel
// fact 27 in docs/kernel.md.
func moveAs(c *rdma.Conn, index uint32, name string, fd int) error {
	moved, err := c.MoveAs(index, name, fd)
	if err != nil || moved {
		return err
	}
	if err := failpoint.Hit("within/move-rdma"); err != nil {
		return err
	}
	return c.Move(index, fd)
}

// moveHome moves a device to the host under the name that it has. Only a kernel that knows one name twice refuses that,
// when a device of the host has the name: then it comes under a temporary one, and gets its own later.
func moveHome(c *rdma.Conn, index uint32, fd int) error {
	err := c.Move(index, fd)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	return temporarily(int(index), func(name string) error { return moveAs(c, index, name, fd) })
}

func (h hcaSteps) rename(ctx context.Context, s plan.RenameRDMA) error {
	if s.In == plan.Host {
		return h.name(ctx, s.HCA.Index, s.To)
	}
	side, err := h.r.side(s.In)
	if err != nil {
		return err
	}
	return side.RDMA.Rename(s.HCA.Index, s.To)
}

// name insists on the own name of an RDMA device that is on the host, as rename does for a netdev: each device
// whose name is taken steps aside to a temporary one, and one that no call works on is made to. Before Linux 7.3 the
// name may be taken by a device in a pod, where it can't be seen from here: then the wait ends, and the device is home
// under the temporary name. See kernel facts 26 and 28 in docs/kernel.md.
func (h hcaSteps) name(ctx context.Context, index uint32, name string) error {
	patience := time.Now().Add(renameWait)
	aside := false
	var taken error
	err := poll(ctx, func() (bool, error) {
		err := h.r.Host.RDMA.Rename(index, name)
		if !errors.Is(err, unix.EEXIST) {
			return err == nil, err
		}
		if !aside {
			aside = true
			err := temporarily(int(index), func(n string) error { return h.r.Host.RDMA.Rename(index, n) })
			if err != nil {
				return false, err
			}
		}
		holder, yields, err := h.evict(index, name)
		taken = fmt.Errorf("name RDMA device %d %s: %w by %s", index, name, ErrNameTaken, holder)
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

// evict looks for the device that has a name, on the host and in the pod, and gives it a temporary name if the name
// is not its own and no call works on it. The results say who it is, and whether the name will be free.
func (h hcaSteps) evict(index uint32, name string) (who string, yields bool, err error) {
	for _, s := range []plan.Side{plan.Host, plan.Pod} {
		side, err := h.r.side(s)
		if err != nil {
			continue
		}
		hca, err := side.HCANamed(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && hca.Index == index {
			continue
		}
		if err != nil {
			return "", false, err
		}
		who = fmt.Sprintf("the RDMA device with node GUID %s on the %s side", hca.NodeGUID, s)
		if h.r.EvictRDMA == nil {
			return who, false, nil
		}
		yields, err = h.r.EvictRDMA(hca, s, func() error { return asideRDMA(side.RDMA, hca) })
		return who, yields, err
	}
	return "an RDMA device in another network namespace", false, nil
}

// asideRDMA renames a device out of the way, unless it has another name by now.
func asideRDMA(c *rdma.Conn, h *device.HCA) error {
	now, err := c.ByIndex(h.Index)
	if err != nil || now.Name != h.Name {
		return ignoreMissing(err)
	}
	if err := temporarily(int(h.Index), func(n string) error { return c.Rename(h.Index, n) }); err != nil {
		return fmt.Errorf("move RDMA device %s out of the way: %w", h.Name, err)
	}
	return nil
}

// NameRDMA gives an RDMA device on the host its own name, if that is free.
func (r *Runner) NameRDMA(index uint32, name string) error { return r.Host.RDMA.Rename(index, name) }
