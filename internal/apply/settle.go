package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// Home is where the two faces of a device belong and what they were like.
type Home struct {
	HCA    *device.HCA // belongs on the host, under this name; nil: not moved
	Netdev *device.Netdev
	Side   plan.Side   // where the netdev belongs: the host, or the pod when another plugin has put it there
	VF     *VFHome     // nil for what is no virtual function, or none whose settings are known
	Taken  *device.HCA // the RDMA device as it went into the pod, when its driver was rebound before; nil: as HCA
	// Elapsed is how long ago the snapshot was taken, in seconds.
	Elapsed uint32
	// Gone tells whether the hardware has left the bus or lost its driver: then there is nothing to bring home.
	Gone func() bool
}

// ErrGone tells that the hardware is not there any more.
var ErrGone = errors.New("the device has left the bus or lost its driver")

// RestoreError tells what could not be given back to a device that is home otherwise: a route through a gateway that is
// gone, a name that somebody else has taken.
type RestoreError struct{ Err error }

func (e *RestoreError) Error() string {
	return "the device is home, but not as it was: " + e.Err.Error()
}

// Unwrap gives the causes.
func (e *RestoreError) Unwrap() error { return e.Err }

// Settle brings a device home from wherever it is and restores everything its snapshot holds. It works from any state
// an interrupted call or the kernel can have left, and does nothing to a device that is as it should be. When the pod's
// namespace is gone it waits until the kernel has brought the devices back. It returns ErrGone when they can't come,
// the context's error when they did not, and a RestoreError when they are home with something missing.
func (r *Runner) Settle(ctx context.Context, h Home) error {
	back := &Runner{Host: r.Host, Pod: r.Pod, EvictName: r.EvictName, Renumbering: r.Renumbering}
	var missing []error
	if h.VF != nil && h.VF.Rebind {
		if err := back.settleGUIDs(ctx, h.VF); err != nil {
			missing = append(missing, err)
		}
	}
	if h.Taken != nil {
		back.Track(h.Taken, h.Netdev)
	} else {
		back.Track(h.HCA, h.Netdev)
	}
	w, err := back.await(ctx, h)
	if errors.Is(err, ErrGone) && len(missing) > 0 { // it need not be gone for good
		return &RestoreError{errors.Join(missing...)}
	}
	if err != nil {
		return errors.Join(append(missing, err)...)
	}
	if h.Side == plan.Pod && r.Pod == nil {
		w.Netdev = nil // there is nowhere to put it
	}
	err = back.Run(ctx, plan.Bring(w, plan.Host, h.Side, h.Netdev))
	if err != nil &&
		!errors.Is(err, ErrNameTaken) { // under another name it is home, too: Restore tries once more, and tells
		return errors.Join(append(missing, err)...)
	}
	if h.VF != nil && (h.Gone == nil || !h.Gone()) {
		missing = append(missing, back.settleVF(ctx, h.VF))
	}
	if h.HCA != nil {
		if err := back.settleHCA(ctx, h); err != nil {
			return errors.Join(append(missing, err)...)
		}
	}
	if h.Netdev != nil &&
		(h.Side == plan.Host || r.Pod != nil) { // one of a pod that is gone is for the plugin that put it there
		err := back.settleNetdev(ctx, h)
		var partly *RestoreError
		if err != nil && !errors.As(err, &partly) {
			return errors.Join(append(missing, err)...)
		}
		if partly != nil {
			missing = append(missing, partly.Err)
		}
	}
	if h.VF != nil && (h.Gone == nil || !h.Gone()) {
		missing = append(missing, back.settleVFMAC(ctx, h.VF))
	}
	if err := errors.Join(missing...); err != nil {
		return &RestoreError{err}
	}
	return nil
}

// await looks until every face that belongs to the device is found. A face is missing while the kernel tears down the
// pod's namespace, or between destruction and recreation of an IPoIB netdev.
func (r *Runner) await(ctx context.Context, h Home) (w plan.Where, err error) {
	var gap absence
	err = poll(ctx, func() (bool, error) {
		if w, err = r.Look(); err != nil {
			return false, err
		}
		if gap.lasts(&h, w) {
			return false, r.revive(ctx, w.HCA)
		}
		if (h.HCA == nil || w.HCA != nil) && (w.Netdev != nil || !h.needsNetdev(w, r.Pod == nil)) {
			return true, nil
		}
		if h.Gone != nil && h.Gone() {
			return false, ErrGone
		}
		return false, nil
	})
	if err != nil && !errors.Is(err, ErrGone) {
		missing := "netdev"
		if h.HCA != nil && w.HCA == nil {
			missing = "RDMA device " + h.HCA.Name
		} else if h.Netdev != nil {
			missing = "netdev " + h.Netdev.Name
		}
		return w, fmt.Errorf("%s has not come back from the pod's network namespace: %w", missing, err)
	}
	return w, err
}

// needsNetdev tells whether the netdev has to be there before anything is done. One that the RDMA device's way home
// will recreate anyway need not, nor one of a pod that is gone if it is for the plugin that put it there; but an IPoIB
// netdev comes home from such a pod in any case, and has to exist for that plugin to find it.
func (h *Home) needsNetdev(w plan.Where, podGone bool) bool {
	if h.Netdev == nil || h.Side == plan.Pod && podGone && !h.Netdev.IsIPoIB() {
		return false
	}
	return !h.Netdev.IsIPoIB() || w.HCA == nil || w.HCASide != plan.Pod
}

func (r *Runner) settleHCA(ctx context.Context, h Home) error {
	now, err := r.Host.HCA(h.HCA)
	if err != nil {
		return err
	}
	if now.Name == h.HCA.Name {
		return nil
	}
	return r.Run(ctx, []plan.Step{plan.RenameRDMA{In: plan.Host, HCA: *now, From: now.Name, To: h.HCA.Name}})
}

func (r *Runner) settleNetdev(ctx context.Context, h Home) error {
	w, err := r.Look()
	if err != nil {
		return err
	}
	if w.Netdev == nil {
		return fmt.Errorf(
			"netdev %s of %s is neither on the host nor in the pod: %w",
			h.Netdev.Name,
			h.Netdev.Address,
			fs.ErrNotExist,
		)
	}
	if w.NetdevSide != h.Side { // recreated on the other side by an RDMA move
		if err := r.Run(ctx, plan.PutNetdev(w, h.Side, h.Netdev)); err != nil {
			return err
		}
	}
	have, err := r.Current()
	if err != nil {
		return err
	}
	var errs []error
	if wider := plan.RestoreMinMTU(h.Side, h.Netdev, have); len(wider) > 0 {
		errs = append(errs, r.Run(ctx, wider))
		if have, err = r.Current(); err != nil {
			return err
		}
	}
	if have.Up() { // one that is down has nothing yet: adding what it has is no error
		side, _ := r.side(h.Side)
		if err := side.Snapshot(have); err != nil {
			return err
		}
	}
	for _, s := range plan.Restore(h.Side, h.Netdev, have, h.Elapsed) {
		if err := r.Run(ctx, []plan.Step{s}); err != nil { // what can't be given back does not stop the rest
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &RestoreError{err}
	}
	return nil
}
