package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/announce"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// ErrNoCarrier means that no probe for an address could be sent: the interface has no carrier.
var ErrNoCarrier = errors.New("the interface has no carrier")

// probeWait bounds the wait for a carrier, without which a probe is lost. An Ethernet port needs some seconds after it
// has been moved and raised, an IPoIB interface joins its broadcast group.
const probeWait = 10 * time.Second

// running is IFF_RUNNING (include/uapi/linux/if.h): the carrier is there, and the kernel has taken notice, which may be
// a second later (net/core/link_watch.c). Until then it drops what is sent.
const running = 0x40

func (a addressSteps) probe(ctx context.Context, s plan.Probe) error {
	side, index, err := a.r.on(plan.Pod)
	if err != nil {
		return err
	}
	var n *device.Netdev
	wait, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	err = poll(wait, func() (bool, error) {
		n, err = side.Link.ByIndex(index)
		return err == nil && n.Flags&running != 0, err
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("after %v: %w", probeWait, ErrNoCarrier)
	}
	if err != nil {
		return err
	}
	return side.NS.Do(func() error {
		return announce.Probe(ctx, index, n.ARPType, n.HWAddr, n.Broadcast, s.Addrs)
	})
}
