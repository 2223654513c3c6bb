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
			var down *attach.Refusal
			if down, err = a.judge(dev); down == nil && err == nil {
				return nil
			}
			if err == nil {
				err = refused(down)
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
func (a *attachment) judge(dev *inventory.Device) (*attach.Refusal, error) {
	if down := attach.JudgePort(a.cfg, dev.HCA, dev.Netdev); down != nil || !attach.NeedsPartition(a.cfg) {
		return down, nil
	}
	held, known, err := partitionsOf(a.call, dev.HCA)
	if err != nil || !known {
		return nil, err
	}
	return attach.JudgePartition(a.cfg.PKey, dev.HCA.Name, held), nil
}
