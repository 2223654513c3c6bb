package fabric

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// gc returns what the attachments of this network hold that the runtime does not know any more, then lets IPAM do the
// same. It goes on past errors and reports all.
func (c *call) gc() error {
	c.doing = "collect what stale attachments of network " + c.cfg.Name + " hold"
	if err := c.openHost(); err != nil {
		return err
	}
	valid := map[netconf.Attachment]bool{}
	for _, a := range c.cfg.ValidAttachments {
		valid[a] = true
	}
	entries, err := c.store.List()
	errs := []error{err}
	for _, e := range entries {
		if e.Network != c.cfg.Name || valid[netconf.Attachment{ContainerID: e.ContainerID, IfName: e.IfName}] {
			continue
		}
		c.log.Info("returning a stale attachment", "owner", e.String(), "device", e.Claim)
		if err := c.giveBack(e, c.staleDelegate(e)); err != nil {
			errs = append(errs, fmt.Errorf("attachment %s: %w", e.Key, err))
		}
	}
	if err := c.delegate().GC(
		context.Background(),
		c.cfg.ValidAttachments,
	); err != nil &&
		!errors.Is(err, ipam.ErrNotSupported) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// status tells whether an ADD could be served now.
func (c *call) status() error {
	c.doing = "be ready for network " + c.cfg.Name
	if err := c.openHost(); err != nil {
		return &failure{code: codeNotReady, err: err}
	}
	if err := c.store.Writable(); err != nil {
		return &failure{code: codeLimited, err: err, todo: "devices in pods can't be returned in order until it is"}
	}
	if _, err := c.policy(); err != nil {
		return &failure{code: codeNotReady, err: err}
	}
	if err := c.rdmaStatus(); err != nil {
		return err
	}
	if c.cfg.Mode == netconf.ModeIPoIB {
		if _, err := os.Stat("/sys/module/ib_ipoib"); err != nil {
			return &failure{
				code: codeNotReady,
				err:  errors.New("module ib_ipoib is not loaded"),
				todo: "load it with: modprobe ib_ipoib",
			}
		}
	}
	if err := c.delegate().Status(context.Background()); err != nil {
		return &failure{code: codeNotReady, err: err}
	}
	return nil
}

func (c *call) rdmaStatus() error {
	mode, ok, err := c.netnsMode()
	if err != nil {
		return &failure{code: codeNotReady, err: err}
	}
	want := c.cfg.RDMA
	if want == netconf.RDMANone || want == netconf.RDMAAuto && c.cfg.Mode == netconf.ModeDevice && !ok {
		return nil // a plain netdev needs no RDMA
	}
	switch {
	case !ok:
		return &failure{
			code: codeNotReady,
			err:  errors.New("the kernel has no RDMA subsystem: module ib_core is not loaded"),
			todo: "load it with: modprobe ib_core",
		}
	case want == netconf.RDMAExclusive && mode == device.NetnsShared:
		return &failure{
			code: codeNotReady,
			err:  errors.New("\"rdma\" is \"exclusive\", but the system's RDMA network namespace mode is shared"),
			todo: "set it with: rdma system set netns exclusive",
		}
	case want == netconf.RDMAShared && mode == device.NetnsExclusive:
		return &failure{
			code: codeNotReady,
			err:  errors.New("\"rdma\" is \"shared\", but the system's RDMA network namespace mode is exclusive"),
			todo: "set it with: rdma system set netns shared",
		}
	}
	return nil
}
