package fabric

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
)

// portWait bounds the wait for the subnet manager to see a new GUID, and to give the port its partition. awaitPause is
// between two looks at all that ADD decides by.
const (
	portWait   = 5 * time.Second
	awaitPause = 50 * time.Millisecond
)

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
			if err = a.judge(dev); err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
			dev = nil
		}
	}
}

// judge says what the port of a device that the driver has made anew still lacks.
func (a *attachment) judge(dev *inventory.Device) error {
	if down := attach.JudgePort(a.cfg, dev.HCA, dev.Netdev); down != nil {
		return refused(down)
	}
	if !attach.NeedsPartition(a.cfg) {
		return nil
	}
	held, known, err := partitionsOf(a.call, dev.HCA)
	if err != nil || !known {
		return err
	}
	if missing := attach.JudgePartition(a.cfg.PKey, dev.HCA.Name, held); missing != nil {
		return refused(missing)
	}
	return nil
}
