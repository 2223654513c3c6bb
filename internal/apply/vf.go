package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/failpoint"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// VFHome is what a virtual function had on the host beyond its faces.
type VFHome struct {
	VF     *device.VF
	Set    []device.VFAttr // what was changed; the rest is not ours to restore
	Rebind bool            // its driver was, or was to be, rebound for other GUIDs
	HCA    *device.HCA     // its RDMA device before that, moved or not; nil without one
	Netdev bool            // it had a netdev
}

// setVF changes a setting of a VF through its PF.
func (r *Runner) setVF(s plan.SetVF) error {
	pf, err := r.Host.PF(&s.VF)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf(
			"%w (a VF is configured through its PF's netdev: is that in a pod, or its driver not loaded?)",
			err,
		)
	}
	if err != nil {
		return err
	}
	set := func(to device.VFAttrs) error { return r.Host.Link.SetVF(pf.Index, s.VF.Index, s.Attr, &to) }
	err = set(s.To)
	if none, ok := noGUID(s); err != nil && ok { // a driver may refuse zero; all ones mean "none" as well
		err = set(none)
	}
	if s.Attr == device.VFMAC && !slices.ContainsFunc(s.To.MAC, func(b byte) bool { return b != 0 }) {
		return nil // only ever on the way to another address: what counts is whether that can be set
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w (the driver of PF %s has no such setting)", err, pf.Name)
	}
	return err
}

// noGUID tells whether a step takes a GUID away, and returns the other spelling of that.
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
func (r *Runner) rebind(ctx context.Context, s plan.Rebind) error {
	r.index = 0
	return r.renumber(ctx, s.Device, s.ForPod, func() error {
		if driver := r.Host.Driver(s.Device); driver != "" {
			s.Driver = driver
			if err := r.bind(s, "unbind"); err != nil {
				return err
			}
		}
		if err := failpoint.Hit("within/rebind-driver"); err != nil {
			return err
		}
		if err := r.bind(s, "bind"); err != nil {
			return err
		}
		return r.awaitFaces(ctx, s)
	})
}

// bind writes to the driver's bind or unbind file.
func (r *Runner) bind(s plan.Rebind, file string) error {
	f := path.Join("/sys/bus", s.Device.Bus, "drivers", s.Driver, file)
	if err := os.WriteFile(f, []byte(s.Device.Name), 0o200); err != nil {
		return fmt.Errorf("%s driver %s: %w", file, s.Driver, err)
	}
	return nil
}

// awaitFaces waits for what the driver makes, and gives the RDMA device its name back.
func (r *Runner) awaitFaces(ctx context.Context, s plan.Rebind) error {
	var missing string
	err := poll(ctx, func() (bool, error) {
		d, err := r.Host.At(s.Device)
		if errors.Is(err, fs.ErrNotExist) { // a face between its registration and its entry in sysfs
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
		case s.HCA != nil && d.HCA.Name != s.HCA.Name:
			err := r.Host.RDMA.Rename(d.HCA.Index, s.HCA.Name)
			if errors.Is(err, unix.EEXIST) {
				return false, fmt.Errorf(
					"rename RDMA device %s to %s: %w (another one has taken the name meanwhile)",
					d.HCA.Name,
					s.HCA.Name,
					err,
				)
			}
			return err == nil, err
		}
		return true, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the driver %s has made no %s for %s: %w", s.Driver, missing, s.Device, err)
	}
	return err
}

// settleGUIDs gives a VF its former GUIDs back. That needs no device in its place: binding the driver makes new faces
// on the host, from wherever the old ones were.
func (r *Runner) settleGUIDs(ctx context.Context, v *VFHome) error {
	guids := []device.VFAttr{device.VFNodeGUID, device.VFPortGUID}
	changed, err := r.restoreVF(
		ctx,
		v.VF,
		slices.DeleteFunc(guids, func(a device.VFAttr) bool { return !slices.Contains(v.Set, a) }),
	)
	if err != nil {
		return err
	}
	step := plan.RebindVF(v.VF, v.HCA, nil)
	step.Netdev = v.Netdev
	if step.Device.IsZero() {
		return nil
	}
	d, err := r.Host.At(step.Device)
	if err != nil {
		return err
	}
	whole := (v.HCA == nil || d.HCA != nil && d.HCA.NodeGUID == v.HCA.NodeGUID && d.HCA.Name == v.HCA.Name) &&
		(!v.Netdev || d.Netdev != nil)
	if !changed && whole && r.Host.Driver(step.Device) != "" {
		return nil
	}
	return r.Run(ctx, []plan.Step{step})
}

// restoreVF gives settings back. It tells whether there was anything to do.
func (r *Runner) restoreVF(ctx context.Context, was *device.VF, set []device.VFAttr) (bool, error) {
	now, err := r.vfNow(was)
	if err != nil {
		return false, err
	}
	var errs []error
	steps := plan.RestoreVF(was, set, now)
	for _, s := range steps { // one that fails does not stop the rest
		errs = append(errs, r.Run(ctx, []plan.Step{s}))
	}
	return len(steps) > 0, errors.Join(errs...)
}

func (r *Runner) vfNow(was *device.VF) (*device.VFAttrs, error) {
	pf, err := r.Host.PF(was)
	if err != nil {
		return nil, fmt.Errorf("read the settings of VF %d: %w", was.Index, err)
	}
	return r.Host.Link.VF(pf.Index, was.Index)
}

// settleVF gives the other settings back, when the device has left the pod: it must not see the fabric without its
// VLAN.
func (r *Runner) settleVF(ctx context.Context, v *VFHome) error {
	_, err := r.restoreVF(ctx, v.VF, slices.DeleteFunc(slices.Clone(v.Set), func(a device.VFAttr) bool {
		return v.Rebind && strings.HasSuffix(string(a), "-guid")
	}))
	return err
}

// settleVFMAC comes after the netdev's own address: see plan.RestoreVF.
func (r *Runner) settleVFMAC(ctx context.Context, v *VFHome) error {
	if !slices.Contains(v.Set, device.VFMAC) {
		return nil
	}
	now, err := r.vfNow(v.VF)
	if err != nil {
		return err
	}
	return r.Run(ctx, plan.RestoreVFMAC(v.VF, now))
}
