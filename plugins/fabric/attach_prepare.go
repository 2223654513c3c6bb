package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/apply"
	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// portWait bounds the wait for the subnet manager to see a new GUID.
const portWait = 5 * time.Second

// prepare changes the settings of a VF. When that has made new faces, they are what goes into the pod; the journal has
// them before they move.
func (a *attachment) prepare(ctx context.Context) error {
	e := a.entry
	if err := a.runner.Run(ctx, a.Prepare()); err != nil {
		return a.notAnew(err)
	}
	if a.PF != nil { // not before: an ADD that is killed has the next one bind the driver again
		if err := a.store.NoteTenant(e.Claim, a.cfg.Pod.Namespace); err != nil {
			return err
		}
	}
	if len(a.Prepare()) == 0 {
		return nil
	}
	var dev *inventory.Device
	if a.Change.Rebind {
		var err error
		if dev, err = a.host.At(e.Address); err != nil {
			return fmt.Errorf("find the device after its driver was bound again: %w", err)
		}
		e.VF.HCA = dev.HCA
		if err := a.store.Save(e); err != nil {
			return err
		}
	}
	return a.portUp(ctx, dev)
}

// notAnew says what to do if the driver of a VF could not be bound again for another tenant.
func (a *attachment) notAnew(err error) error {
	var step *apply.StepError
	if !a.Change.Anew || !errors.As(err, &step) || step.Step.Kind() != (plan.Rebind{}).Kind() ||
		errors.Is(err, journal.ErrBusy) {
		return err
	}
	return &failure{
		code: codeKernel,
		err:  fmt.Errorf("device %s, which a pod of another namespace had: %w", a.entry.Claim, err),
		hint: "see what the driver says in the kernel's log; reset the VF, or set \"rebindBetweenTenants\": false in " +
			policy.DefaultPath,
	}
}

// portUp waits for a port whose GUID or link state was still to be set when ADD decided. dev is the device if it has
// just been looked up, else nil.
func (a *attachment) portUp(ctx context.Context, dev *inventory.Device) error {
	if !a.AwaitPort && !a.Change.Anew || a.entry.HCA == nil || !attach.NeedsPorts(a.cfg) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, portWait)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 10*time.Millisecond) {
		var err error
		if dev == nil {
			dev, err = a.host.At(a.entry.Address)
		}
		if err == nil && dev.HCA != nil {
			err = a.host.RDMA.Ports(dev.HCA)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil {
			down := attach.JudgePort(a.cfg, dev.HCA, dev.Netdev)
			if down == nil {
				return nil
			}
			err = refused(down)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
			dev = nil
		}
	}
}
