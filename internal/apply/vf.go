package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/failpoint"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// setVF changes a setting of a VF through its PF.
func (r *Runner) setVF(ctx context.Context, s plan.SetVF) error {
	pf, err := r.Host.PF(&s.VF)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w (a VF is configured through its PF's netdev: is that in a pod, "+
			"or its driver not loaded?)", err)
	}
	if err != nil {
		return err
	}
	set := func(to device.VFAttrs) error { return r.Host.Link.SetVF(pf.Index, s.VF.Index, s.Attr, &to) }
	err = set(s.To)
	if none, ok := noGUID(s); err != nil && ok { // a driver may refuse zero; all ones mean "none" as well
		err = set(none)
	}
	if s.Attr == device.VFRate && errors.Is(err, unix.EINVAL) && pf.Up() {
		err = setWithCarrier(ctx, r.Host, pf.Index, func() error { return set(s.To) })
	}
	if s.Attr == device.VFMAC && !slices.ContainsFunc(s.To.MAC, func(b byte) bool { return b != 0 }) {
		return nil // only ever on the way to another address: what counts is whether that can be set
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w (the driver of PF %s has no such setting)", err, pf.Name)
	}
	return err
}

// linkWait bounds the wait for the link of a PF that has just come up.
const linkWait = 5 * time.Second

// setWithCarrier sets a rate when the PF's link is up: before that a driver may not know what the link can carry
// (drivers/net/ethernet/intel/igb/igb_main.c, igb_ndo_set_vf_bw).
func setWithCarrier(ctx context.Context, host *Side, pf int, set func() error) error {
	ctx, cancel := context.WithTimeout(ctx, linkWait)
	defer cancel()
	_ = poll(ctx, func() (bool, error) { // without a carrier it is tried all the same
		n, err := host.Link.ByIndex(pf)
		return err == nil && n.Carrier, err
	})
	return set()
}

// noGUID says whether a step takes a GUID away, and returns the other spelling of that.
func noGUID(s plan.SetVF) (device.VFAttrs, bool) {
	none := ^device.GUID(0)
	to := s.To
	switch {
	case s.Attr == device.VFNodeGUID && (to.NodeGUID == nil || *to.NodeGUID == 0):
		to.NodeGUID = &none
	case s.Attr == device.VFPortGUID && (to.PortGUID == nil || *to.PortGUID == 0):
		to.PortGUID = &none
	default:
		return to, false
	}
	return to, true
}

// rebind unbinds the driver and binds it again.
func (h hcaSteps) rebind(ctx context.Context, s plan.Rebind) error {
	h.r.index = 0
	return h.renumber(ctx, s.Device, s.ForPod, func() error {
		if driver := h.r.Host.Driver(s.Device); driver != "" {
			s.Driver = driver
			if err := bind(s, "unbind"); err != nil {
				return err
			}
		}
		if err := failpoint.Hit("within/rebind-driver"); err != nil {
			return err
		}
		if s.Reset {
			h.reset(s.Device)
		}
		if err := bind(s, "bind"); err != nil {
			return err
		}
		return h.awaitDriver(ctx, s)
	})
}

// reset has the function reset itself, which takes the kernel 0.1 s (drivers/pci/pci.c, pcie_flr). What the driver
// clears when it is bound does not depend on it: a function that refuses is used all the same.
func (h hcaSteps) reset(a device.Address) {
	err := os.WriteFile(path.Join("/sys/bus", a.Bus, "devices", a.Name, "reset"), []byte("1"), 0o200)
	if err != nil && h.r.Log != nil {
		h.r.Log.Warn("the function was not reset for another tenant", "device", a.String(), "reason", err)
	}
}

// bind writes to the driver's bind or unbind file.
func bind(s plan.Rebind, file string) error {
	f := path.Join("/sys/bus", s.Device.Bus, "drivers", s.Driver, file)
	if err := os.WriteFile(f, []byte(s.Device.Name), 0o200); err != nil {
		return fmt.Errorf("%s driver %s: %w", file, s.Driver, err)
	}
	return nil
}

// awaitDriver waits for what the driver makes, and gives the RDMA device its name back.
func (h hcaSteps) awaitDriver(ctx context.Context, s plan.Rebind) error {
	var missing string
	var hca *device.HCA
	err := poll(ctx, func() (bool, error) {
		d, err := h.r.Host.At(s.Device)
		if errors.Is(err, fs.ErrNotExist) { // between a registration and its entry in sysfs
			return false, nil
		}
		if err != nil {
			return false, err
		}
		switch {
		case s.HCA != nil && d.HCA == nil:
			missing = "RDMA device"
			return false, nil
		case s.Netdev && d.Netdev == nil:
			missing = "netdev"
			return false, nil
		}
		hca = d.HCA
		return true, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the driver %s has made no %s for %s: %w", s.Driver, missing, s.Device, err)
	}
	if err == nil && s.HCA != nil && hca.Name != s.HCA.Name {
		return h.name(ctx, hca.Index, s.HCA.Name)
	}
	return err
}

// vfNow reads what the PF keeps for a VF.
func vfNow(host *Side, was *device.VF) (*device.VFAttrs, error) {
	pf, err := host.PF(was)
	if err != nil {
		return nil, fmt.Errorf("read the settings of VF %d: %w", was.Index, err)
	}
	return host.Link.VF(pf.Index, was.Index)
}
