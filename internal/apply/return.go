package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// ErrGone says that the hardware is not there any more.
var ErrGone = errors.New("the device has left the bus or lost its driver")

// RestoreError says what could not be given back to a device that is home otherwise: a route through a gateway that is
// gone, a name that another device has taken.
type RestoreError struct{ Err error }

func (e *RestoreError) Error() string {
	return "the device is home, but not as it was: " + e.Err.Error()
}

// Unwrap gives the causes.
func (e *RestoreError) Unwrap() error { return e.Err }

// Events are what a caller of Return wants to know or knows better.
type Events struct {
	// Released is called once, as soon as the pod can't use the addresses any more. It is not called for a device that
	// was not found: it may be in use. Nil: no call waits for it.
	Released func()
	// Removed is called with the virtual netdevs of the pod that sat on the device and were removed. Nil: not called.
	Removed func([]device.Netdev)
	// Gone says whether the hardware has left the bus or lost its driver: then there is nothing to bring home. Nil: it
	// is there.
	Gone func() bool
}

// Return brings a device home and restores everything its snapshot holds: it looks, lets plan.Return decide, carries
// that out, and looks again, until nothing is left. When the pod's namespace is gone it waits until the kernel has
// brought the devices back. It returns ErrGone when they can't come, ErrMissing with the context's error when they did
// not, and a RestoreError when they are home with something missing.
func (r *Runner) Return(ctx context.Context, h plan.Home, on Events) error {
	return r.journey(h, on).run(ctx)
}

// Where looks at a device as Return does first. It changes nothing.
func (r *Runner) Where(h plan.Home) (plan.Where, error) {
	j := r.journey(h, Events{})
	err := j.look()
	if err == nil {
		err = j.lookAtNetdev()
	}
	return j.where, errors.Join(err, errors.Join(j.strip...), errors.Join(j.missing...))
}

func (r *Runner) journey(h plan.Home, on Events) *journey {
	back := &Runner{
		Host: r.Host, Pod: r.Pod, Proc: r.Proc, Log: r.Log,
		EvictName: r.EvictName, EvictRDMA: r.EvictRDMA, Renumbering: r.Renumbering,
	}
	back.inPod = h.PodIndex
	back.Track(h.HCA, h.Netdev)
	if h.Attached != nil {
		back.Track(h.Attached, h.Netdev)
	}
	return &journey{Runner: back, home: h, on: on}
}

// journey is one way back.
type journey struct {
	*Runner
	home plan.Home
	on   Events

	where   plan.Where
	whole   bool      // it has also what only the stages after StageAside go by
	alone   time.Time // since when the RDMA device is on the host without its IPoIB netdev
	strip   []error   // what could not be taken out of the pod
	missing []error   // what could not be given back
	search  search    // for what is neither on the host nor in the pod
}

func (j *journey) run(ctx context.Context) (err error) {
	if j.on.Released == nil {
		j.on.Released = func() {}
	}
	released := false
	defer func() {
		if !released && !errors.Is(err, ErrMissing) {
			j.on.Released()
		}
	}()
	if err := j.look(); err != nil {
		return err
	}
	for {
		way := plan.Return(j.where, j.home)
		if way.Stage > plan.StageRelease && !released {
			released = true
			j.on.Released()
		}
		switch {
		case way.Stage > plan.StageAside && !j.whole:
			if err := j.lookAtNetdev(); err != nil {
				return j.end(err)
			}
			continue
		case way.Stage == plan.StageHome:
			return j.end(nil)
		case way.Await != "" && way.Lost:
			if found, err := j.virtualElsewhere(ctx); found || err != nil {
				if err != nil {
					return j.end(err)
				}
				continue
			}
			return j.lost()
		case way.Await != "":
			if err := j.await(ctx, way.Await); err != nil {
				return j.end(err)
			}
			continue
		}
		if err := j.stage(ctx, way); err != nil {
			return j.end(err)
		}
		j.where.Done = way.Stage
		if way.Look {
			if err := j.look(); err != nil {
				return j.end(err)
			}
		}
	}
}

// stage carries out one part of the way back. It returns an error when the device can't return to the host.
func (j *journey) stage(ctx context.Context, way plan.Way) error {
	if way.Stage == plan.StageRevive {
		j.where.Revived = true
	}
	for _, s := range j.withoutUppers(way.Steps) {
		err := j.Run(ctx, []plan.Step{s})
		if u, ok := s.(plan.DeleteUpper); ok && err == nil {
			j.removed(u.Netdev)
		}
		switch {
		case err == nil:
		case way.Stage == plan.StageRelease && s.Kind() == (plan.DropProgram{}).Kind(): // tried again at home
		case way.Stage == plan.StageRelease:
			j.strip = append(j.strip, err)
		case way.Stage.Essential() && errors.Is(err, ErrNameTaken): // under another name it is home, too
		case way.Stage.Essential():
			return err
		default:
			j.missing = append(j.missing, err)
		}
		if err != nil && way.Stage.Sequential() && !way.Stage.Essential() {
			return nil
		}
	}
	return nil
}

// await looks until what is missing is found, or there is something else to do.
func (j *journey) await(ctx context.Context, what string) error {
	err := poll(ctx, func() (bool, error) {
		if err := j.look(); err != nil {
			return false, err
		}
		way := plan.Return(j.where, j.home)
		if way.Await == "" || way.Lost {
			return true, nil
		}
		j.search.look(ctx, j)
		return false, nil
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ErrMissing, err)
	}
	if err != nil {
		return fmt.Errorf("%s has not come back from the pod's network namespace: %w", what, err)
	}
	return nil
}

// virtualElsewhere looks everywhere for a virtual netdev before it counts as deleted.
func (j *journey) virtualElsewhere(ctx context.Context) (bool, error) {
	if j.netdev == nil || !j.netdev.Address.IsZero() || j.search.tried {
		return false, nil
	}
	j.search.tried = true
	if !j.fetch(ctx) {
		return false, nil
	}
	return true, j.look()
}

// lost ends a way back of a device that is not there any more. One whose driver could not be bound again is not gone
// for good.
func (j *journey) lost() error {
	if len(j.strip) > 0 || len(j.missing) > 0 {
		return j.end(nil)
	}
	return ErrGone
}

// end joins everything that went wrong.
func (j *journey) end(err error) error {
	if err == nil && len(j.strip) == 0 && len(j.missing) > 0 {
		return &RestoreError{errors.Join(j.missing...)}
	}
	return errors.Join(errors.Join(j.strip...), errors.Join(j.missing...), err)
}

// look reads what plan.Return goes by, but for what lookAtNetdev adds.
func (j *journey) look() error {
	w, err := j.Look()
	if err != nil {
		return err
	}
	w.Done, w.Revived, w.PodGone = j.where.Done, j.where.Revived, j.Pod == nil
	w.Lost = j.on.Gone != nil && j.on.Gone()
	if w.Done < plan.StageRelease && j.home.Side == plan.Host && j.Pod != nil {
		if err := j.lookIntoPod(&w); err != nil {
			j.strip = append(j.strip, err)
		}
	}
	if err := j.lookForOrphans(&w); err != nil {
		return err
	}
	if j.home.VF != nil {
		j.lookAtVF(&w)
	}
	if n := w.Netdev; len(j.home.VFs) > 0 && n != nil && w.NetdevSide == plan.Host {
		if w.VFs, err = j.Host.Link.VFs(n.Index); err != nil {
			return err
		}
	}
	if w.HCA != nil && w.HCASide == plan.Host && j.home.HCA != nil {
		if err := j.lookAtHCA(&w); err != nil {
			return err
		}
	}
	if w.HCA == nil || w.HCASide != plan.Host || w.Netdev != nil {
		j.alone = time.Time{}
	} else if j.alone.IsZero() {
		j.alone = time.Now()
	} else {
		w.Missing = time.Since(j.alone).Milliseconds()
	}
	j.where, j.whole = w, false
	return nil
}

// lookAtHCA reads what an RDMA device that is back on the host may lack, or have from the pod.
func (j *journey) lookAtHCA(w *plan.Where) (err error) {
	j.Host.RDMA.AutoCounters(w.HCA)
	j.Host.TrafficClass(w.HCA)
	if !w.Revived {
		w.LacksGSI, err = j.Host.RDMA.LacksGSI(w.HCA.Index)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// lookAtNetdev reads what a netdev that is where it belongs has. One that is down has no routes; it has addresses if an
// earlier way back could not raise it. What else can't be read can't be given back, and stops nothing. It is a third of
// all that DEL reads, so it is not read of a netdev that is yet to be renamed: that is looked at again anyway.
func (j *journey) lookAtNetdev() error {
	j.whole = true
	n := j.where.Netdev
	if n == nil || j.where.NetdevSide != j.home.Side {
		return nil
	}
	side, err := j.side(j.home.Side)
	if err != nil {
		return err
	}
	if n.Up() {
		err = side.Addressing(n)
	} else {
		n.Addrs, err = side.Link.Addrs(n.Index)
	}
	if err != nil {
		return err
	}
	if err := side.Kept(n); err != nil && !errors.Is(err, fs.ErrNotExist) {
		j.miss(err)
	}
	return nil
}

// miss notes what can't be given back; a device is looked at several times.
func (j *journey) miss(err error) {
	for _, known := range j.missing {
		if known.Error() == err.Error() {
			return
		}
	}
	j.missing = append(j.missing, err)
}

// lookIntoPod reads what has to be taken out of the pod before the device leaves. Rules are read before the netdevs
// that they may belong to: another attachment's may be on its way in.
func (j *journey) lookIntoPod(w *plan.Where) (err error) {
	if w.Rules, err = j.Pod.Link.Rules(); err != nil {
		return err
	}
	if w.Netdev != nil && w.NetdevSide == plan.Pod {
		if w.Netdev.Addrs, err = j.Pod.Link.Addrs(w.Netdev.Index); err != nil {
			return err
		}
		_ = j.Pod.Programs(w.Netdev) // those that can't be read are looked for at home
		all, err := j.Pod.Link.List("")
		w.Uppers = inventory.On(all, w.Netdev)
		return err
	}
	if len(w.Rules) > 0 {
		w.Others, err = j.Pod.Link.List("")
	}
	return err
}

// lookAtVF reads what a VF's PF keeps for it, and what its driver has made if that may have to be bound again. What
// can't be read can't be given back.
func (j *journey) lookAtVF(w *plan.Where) {
	v := j.home.VF
	rebind := v.Rebind && w.Done < plan.StageRebind
	now, err := &device.VFAttrs{}, error(nil)
	if len(v.Set) > 0 {
		now, err = vfNow(j.Host, v.VF)
	}
	if err == nil {
		w.VF = &plan.VFNow{VFAttrs: *now}
		if rebind {
			err = j.made(w.VF)
		}
	}
	if err == nil || w.Lost && (!rebind || !j.Host.OnBus(plan.RebindVF(v.VF, v.HCA, j.home.Netdev).Device)) {
		return // of a VF that has left the bus nothing is kept, and its PF may be gone, too
	}
	j.miss(err)
}

// made reads what the driver of a VF has made on the host.
func (j *journey) made(v *plan.VFNow) error {
	at := plan.RebindVF(j.home.VF.VF, j.home.VF.HCA, j.home.Netdev).Device
	if at.IsZero() {
		return nil
	}
	d, err := j.Host.At(at)
	if err != nil {
		return err
	}
	v.Faces, v.Driver, v.HCA, v.Netdev = true, j.Host.Driver(at), d.HCA, d.Netdev != nil
	return nil
}
