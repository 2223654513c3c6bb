// Package apply carries steps out on the kernel and stacks the way back. Nothing else writes to the kernel.
package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/failpoint"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// Side is one network namespace with the connections into it.
type Side struct {
	NS *netns.NS
	inventory.Reader
}

// Runner carries out the steps of one attachment.
type Runner struct {
	Host *Side
	Pod  *Side // nil when the pod's namespace is gone
	Undo Undo

	// Proc is the /proc that shows all processes: what is neither on the host nor in the pod is looked for in the
	// network namespaces that it leads to.
	Proc string

	// EvictName calls act, which takes names off a netdev on the host, if that netdev is another attachment's, the name
	// is not one of its own, which act gets, and no call works on it. The result says whether the netdev is such an
	// attachment's: then the name will be free sooner or later. Nil: never.
	EvictName func(holder *device.Netdev, name string, act func(own *device.Netdev) error) (bool, error)

	// EvictRDMA does the same for the holder of an RDMA device's name, on the host or in the pod of this attachment.
	EvictRDMA func(holder *device.HCA, in plan.Side, act func() error) (bool, error)

	// Renumbering waits until no other call on the node does what gives out numbers of character devices, and holds
	// others off until done is called. Nil: the caller is alone.
	Renumbering func(ctx context.Context) (done func(), err error)

	Log *slog.Logger // each step is logged for debugging; nil: nowhere

	hca    *device.HCA    // identity of the RDMA device, nil without one
	netdev *device.Netdev // identity of the netdev, nil without one
	inPod  int            // its ifindex in the pod; 0: not known

	// What is known of the netdev since the last step: its side and ifindex. Every step that moves or recreates it
	// forgets, and the next one looks it up again by its bus address.
	at    plan.Side
	index int
}

// Track sets the device that the steps are about.
func (r *Runner) Track(hca *device.HCA, netdev *device.Netdev) {
	r.hca, r.netdev, r.index = hca, netdev, 0
}

// Found notes where the netdev is, when the caller has just looked.
func (r *Runner) Found(side plan.Side, n *device.Netdev) { r.at, r.index = side, n.Index }

// Run carries out the steps in order and stops at the first failure, which names the step as a command. What was done
// is on the Undo stack.
func (r *Runner) Run(ctx context.Context, steps []plan.Step) error {
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("before %s: %w", s.Kind(), err)
		}
		if err := r.step(ctx, s); err != nil {
			return &StepError{Step: s, Err: err}
		}
	}
	return nil
}

// StepError says which step failed.
type StepError struct {
	Step plan.Step
	Err  error
}

func (e *StepError) Error() string { return fmt.Sprintf("%s (%s): %v", e.Step.Kind(), e.Step, e.Err) }

// Unwrap gives the cause.
func (e *StepError) Unwrap() error { return e.Err }

func (r *Runner) step(ctx context.Context, s plan.Step) error {
	if err := failpoint.Hit("before/" + s.Kind()); err != nil {
		return err
	}
	if err := failpoint.Step(s); err != nil {
		return err
	}
	if r.Log != nil && r.Log.Enabled(ctx, slog.LevelDebug) {
		r.Log.Debug(s.Kind(), "command", s.String())
	}
	if err := r.do(ctx, s); err != nil {
		return err
	}
	return failpoint.Hit("after/" + s.Kind())
}

func (r *Runner) side(s plan.Side) (*Side, error) {
	if s == plan.Host {
		return r.Host, nil
	}
	if r.Pod == nil {
		return nil, fmt.Errorf("the pod's network namespace is gone: %w", fs.ErrNotExist)
	}
	return r.Pod, nil
}

// Look finds the netdev and the RDMA device, on whichever side they are. What is on neither is nil.
func (r *Runner) Look() (plan.Where, error) {
	var w plan.Where
	for _, s := range []plan.Side{plan.Host, plan.Pod} {
		side, err := r.side(s)
		if err != nil {
			continue
		}
		if w.HCA == nil && r.hca != nil {
			h, err := side.HCA(r.hca)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return w, err
			}
			w.HCA, w.HCASide = h, s
		}
	}
	if r.netdev == nil {
		return w, nil
	}
	var err error
	if w.Netdev, w.NetdevSide, err = r.find(); w.Netdev != nil {
		r.Found(w.NetdevSide, w.Netdev)
	}
	return w, err
}

// find looks for the netdev on both sides; nil when it is on neither. One without a bus address can have a double on
// the host: another that has been given its name meanwhile, a VLAN with the hardware address of all its sisters. The
// one that is more like it counts, and of two that are equally so the one in the pod.
func (r *Runner) find() (best *device.Netdev, at plan.Side, err error) {
	virtual := r.netdev.Address.IsZero()
	if virtual && r.inPod != 0 && r.Pod != nil {
		n, err := r.Pod.Attached(r.netdev, r.inPod)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return n, plan.Pod, err
		}
	}
	for _, s := range []plan.Side{plan.Host, plan.Pod} {
		side, err := r.side(s)
		if err != nil || virtual && r.inPod != 0 && s == plan.Pod {
			continue
		}
		n, err := side.Netdev(r.netdev)
		if errors.Is(err, fs.ErrNotExist) || err == nil && virtual && r.inPod != 0 && !inventory.CameHome(r.netdev, n) {
			continue
		}
		if err != nil {
			return nil, s, err
		}
		if !virtual {
			return n, s, nil
		}
		if best == nil || inventory.Likeness(r.netdev, n) >= inventory.Likeness(r.netdev, best) {
			best, at = n, s
		}
	}
	if best == nil && r.netdev.Kind == "veth" && r.Pod != nil {
		// ADD was killed before it noted the ifindex in the pod, which has changed the hardware address since.
		if n, err := r.byPeer(r.Pod); !errors.Is(err, fs.ErrNotExist) {
			return n, plan.Pod, err
		}
	}
	return best, at, nil
}

// byPeer finds a veth in a namespace by its peer, which knows where it is.
func (r *Runner) byPeer(s *Side) (*device.Netdev, error) {
	none := fmt.Errorf("find netdev %s by its peer: %w", r.netdev.Name, fs.ErrNotExist)
	if r.netdev.Parent == 0 {
		return nil, none
	}
	peer, err := r.Host.Link.At(r.netdev.ParentIn, r.netdev.Parent)
	if err != nil || peer.Kind != "veth" || peer.ParentIn == nil {
		return nil, none
	}
	id, err := r.Host.Link.NSID(s.NS.FD())
	if err != nil || id != *peer.ParentIn {
		return nil, none
	}
	return s.Link.ByIndex(peer.Parent)
}

// locate returns the side and ifindex of the netdev, looked up again if the last step may have changed them.
func (r *Runner) locate() (*Side, int, error) {
	if r.index == 0 {
		if err := r.look(); err != nil {
			return nil, 0, err
		}
	}
	side, err := r.side(r.at)
	return side, r.index, err
}

func (r *Runner) look() error {
	n, s, err := r.find()
	if err != nil {
		return err
	}
	if n != nil {
		r.Found(s, n)
		return nil
	}
	return fmt.Errorf("netdev %s of %s is neither on the host nor in the pod: %w",
		r.netdev.Name, r.netdev.Address, fs.ErrNotExist)
}

// on checks that the netdev is on the side a step was planned for.
func (r *Runner) on(s plan.Side) (*Side, int, error) {
	side, index, err := r.locate()
	if err == nil && r.at != s {
		err = fmt.Errorf("netdev %s is on the %s side, not on the %s side: %w", r.netdev.Name, r.at, s, unix.ENODEV)
	}
	return side, index, err
}

// Current reads the netdev where it is now.
func (r *Runner) Current() (*device.Netdev, error) {
	side, index, err := r.locate()
	if err != nil {
		return nil, err
	}
	return side.Link.ByIndex(index)
}

// poll calls f until it returns true or an error, or ctx ends. Waiting for the kernel has no event that can be relied
// on.
func poll(ctx context.Context, f func() (bool, error)) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		ok, err := f()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}
