package apply

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/bpf"
	"github.com/fabric-cni/fabric-cni/internal/ethtool"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// kept carries out the steps about what a netdev has beside its name, addresses and routes. It says whether s is one.
func (r *Runner) kept(s plan.Step) (bool, error) {
	switch s := s.(type) {
	case plan.DropProgram:
		return true, r.onNetdev(s.In, func(side *Side, n *device.Netdev) error {
			return dropProgram(side, n, s.Program)
		})
	case plan.SetLinkAttr:
		return true, r.onNetdev(s.In, func(side *Side, n *device.Netdev) error {
			return side.Link.SetAttr(n.Index, s.Attr, s.To)
		})
	case plan.SetFeatures:
		return true, r.onNetdev(s.In, func(side *Side, n *device.Netdev) error { return setFeatures(side, n, s) })
	case plan.SetQueues:
		return true, r.onNetdev(s.In, func(side *Side, n *device.Netdev) error { return setQueues(side, n, s.Files) })
	case plan.SetSysctls:
		return true, r.onNetdev(s.In, func(side *Side, n *device.Netdev) error { return setSysctls(side, n, s.Files) })
	case plan.AddQdisc:
		return true, r.onNetdev(s.In, func(side *Side, n *device.Netdev) error { return addQdisc(side, n, s.Qdisc) })
	case plan.AddNeighbour:
		return true, r.onNetdev(s.In, func(side *Side, n *device.Netdev) error {
			return side.Link.AddNeighbour(n.Index, s.Neighbour)
		})
	case plan.AddNexthop:
		return true, r.onNetdev(s.In, func(side *Side, n *device.Netdev) error {
			return ignore(side.Link.AddNexthop(n.Index, s.Nexthop), unix.EEXIST)
		})
	}
	return false, nil
}

// onNetdev calls f with the netdev under the name that it has now: ioctls and files know it by that only.
func (r *Runner) onNetdev(in plan.Side, f func(*Side, *device.Netdev) error) error {
	side, index, err := r.on(in)
	if err != nil {
		return err
	}
	n, err := side.Link.ByIndex(index)
	if err != nil {
		return err
	}
	return f(side, n)
}

// dropProgram takes a BPF program off. rtnetlink can't remove one of XDP that a BPF link holds (EBUSY; net/core/dev.c,
// dev_xdp_attach).
func dropProgram(side *Side, n *device.Netdev, p device.Program) error {
	if p.Hook.IsXDP() {
		err := side.Link.DelXDP(n.Index, p.Hook)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
	err := side.NS.Do(func() error { return bpf.Detach(n.Index, p) })
	return ignore(err, unix.ENOENT) // another look shows whether it is gone
}

// setFeatures asks whether they are so afterwards: the kernel reports no error for a feature that a driver has refused
// (net/core/dev.c, __netdev_update_features).
func setFeatures(side *Side, n *device.Netdev, s plan.SetFeatures) error {
	return side.NS.Do(func() error {
		if err := ethtool.SetFeatures(n.Name, &s.Want, s.Bits); err != nil {
			return err
		}
		now, err := ethtool.Features(n.Name)
		if err != nil {
			return err
		}
		if left := s.Want.Differing(now); len(left) > 0 {
			return fmt.Errorf("offload %s of %s: %w (the driver has not taken it)",
				now.Name(left[0]), n.Name, unix.EINVAL)
		}
		return nil
	})
}

// setQueues writes every file, whatever becomes of the others. What the driver does not have any more, a queue fewer,
// has nothing to be set.
func setQueues(side *Side, n *device.Netdev, files map[string]string) error {
	var errs []error
	for _, f := range slices.Sorted(maps.Keys(files)) {
		err := side.NS.WriteSys(path.Join("class/net", n.Name, f), []byte(files[f]))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("write %q to %s of %s: %w", files[f], f, n.Name, err))
		}
	}
	return errors.Join(errs...)
}

// setSysctls does the same below /proc/sys, of which the calling thread's namespace decides what is there. A value is
// not part of the error: one of them is a secret.
func setSysctls(side *Side, n *device.Netdev, files map[string]string) error {
	if err := ofOne(n.Name); err != nil {
		return err
	}
	return side.NS.Do(func() error {
		var errs []error
		for _, f := range slices.Sorted(maps.Keys(files)) {
			if err := os.WriteFile(inventory.SysctlFile(f, n.Name), []byte(files[f]), 0o600); err != nil {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})
}

// ofOne refuses names under which sysctls are not those of one interface.
func ofOne(name string) error {
	if inventory.OfAll(name) {
		return fmt.Errorf("set sysctls of the interface %q: it stands for other interfaces: %w", name, unix.EPERM)
	}
	return nil
}

// addQdisc says once what it could not put back with the qdisc: filters and classes have forms of their own, and some
// hold programs or actions that are gone.
func addQdisc(side *Side, n *device.Netdev, q device.Qdisc) error {
	if err := side.Link.AddQdisc(n.Index, q); err != nil {
		return err
	}
	if q.Filters || q.Classes {
		return fmt.Errorf("the qdisc %s is back without its filters and classes, which the kernel has removed "+
			"when the interface moved: add them with tc", q)
	}
	return nil
}
