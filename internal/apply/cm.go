package apply

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// setCM sets the connection manager's defaults of a port.
func (h hcaSteps) setCM(s plan.SetCM) error {
	side, err := h.r.side(s.In)
	if err != nil {
		return err
	}
	err = side.NS.Do(func() error {
		now, err := side.RDMA.ByIndex(s.HCA.Index)
		if err != nil {
			return err
		}
		if !side.RDMA.PerNetns(now) {
			return rdma.SetCM(now.Name, s.Port, s.To)
		}
		return unmistakably(side.RDMA, now, func(name string) error { return rdma.SetCM(name, s.Port, s.To) })
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w (mount configfs on /sys/kernel/config and load the module rdma_cm)", err)
	}
	return err
}

// ReadCM reads the connection manager's defaults of an RDMA device on the host, whose name a device in a pod has, too.
func ReadCM(host *Side, h *device.HCA) error {
	return unmistakably(host.RDMA, h, func(name string) error {
		now := *h
		now.Name = name
		return rdma.CM(&now) // the ports are those of h
	})
}

// unmistakably calls f while a device has a name that no other has: configfs knows devices by their name only, in all
// network namespaces. See kernel facts 26 and 51 in docs/kernel.md.
func unmistakably(c *rdma.Conn, h *device.HCA, f func(name string) error) error {
	return temporarily(int(h.Index), func(name string) error {
		if err := c.Rename(h.Index, name); err != nil {
			return err
		}
		return errors.Join(f(name), c.Rename(h.Index, h.Name))
	})
}

// setTrafficClass writes the file of NVIDIA's driver package. -1 is what a driver begins with.
func (h hcaSteps) setTrafficClass(s plan.SetTrafficClass) error {
	side, err := h.r.side(s.In)
	if err != nil {
		return err
	}
	now, err := side.RDMA.ByIndex(s.HCA.Index)
	if err != nil {
		return err
	}
	file := inventory.TrafficClassFile(now.Name, s.Port)
	if err := side.NS.WriteSys(file, []byte(strconv.Itoa(s.To))); err != nil {
		return fmt.Errorf("write %d to %s: %w", s.To, file, err)
	}
	return nil
}
