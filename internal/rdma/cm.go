package rdma

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// cmDir has a directory for each RDMA device that someone has made one for (Documentation/ABI/testing/configfs-rdma_cm;
// drivers/infiniband/core/cma_configfs.c). A device is looked up by the directory's name at each access, in all network
// namespaces: since Linux 7.3, where two devices may have one name, the first that the connection manager knows counts.
const cmDir = "/sys/kernel/config/rdma_cm"

// CM reads what the connection manager gives connections over the RoCE ports of h, whose name is the present one. Where
// configfs is not mounted, the module rdma_cm not loaded, or the device none that it takes, the ports stay as they are.
func CM(h *device.HCA) error {
	if !h.Has(device.Ethernet) {
		return nil
	}
	err := withCM(h.Name, func(dir string) error {
		for i := range h.Ports {
			p := &h.Ports[i]
			at := cmPort(dir, p.Number)
			tos, err := os.ReadFile(filepath.Join(at, "default_roce_tos"))
			if err != nil {
				return err
			}
			mode, err := os.ReadFile(filepath.Join(at, "default_roce_mode"))
			if err != nil {
				return err
			}
			n, err := strconv.ParseUint(strings.TrimSpace(string(tos)), 10, 8)
			if err != nil {
				return err
			}
			p.CM = &device.CM{TOS: uint8(n)}
			if v := strings.TrimSpace(string(mode)); v == device.RoCEv1 || v == device.RoCEv2 { // else it is iWARP
				p.CM.RoCE = v
			}
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the connection manager's defaults of RDMA device %s: %w", h.Name, err)
	}
	return nil
}

// SetCM sets them for one port of the RDMA device that has this name. It returns fs.ErrNotExist where configfs is not
// mounted or the module rdma_cm not loaded.
func SetCM(name string, port uint32, to device.CM) error {
	err := withCM(name, func(dir string) error {
		at := cmPort(dir, port)
		if to.RoCE != "" {
			if err := os.WriteFile(filepath.Join(at, "default_roce_mode"), []byte(to.RoCE), 0o600); err != nil {
				return err
			}
		}
		tos := strconv.FormatUint(uint64(to.TOS), 10)
		return os.WriteFile(filepath.Join(at, "default_roce_tos"), []byte(tos), 0o600)
	})
	if err != nil {
		return fmt.Errorf("set the connection manager's defaults of port %d of RDMA device %s: %w", port, name, err)
	}
	return nil
}

// cmPort is the directory of a port in that of its device.
func cmPort(dir string, port uint32) string {
	return filepath.Join(dir, "ports", strconv.FormatUint(uint64(port), 10))
}

// withCM calls f with the directory of a device. One that it has to make for that it removes: as long as it is there,
// the module rdma_cm can't be unloaded.
func withCM(name string, f func(dir string) error) (err error) {
	dir := filepath.Join(cmDir, name)
	switch made := os.Mkdir(dir, 0o750); {
	case made == nil:
		defer func() { err = errors.Join(err, os.Remove(dir)) }()
	case !errors.Is(made, fs.ErrExist):
		return made
	}
	return f(dir)
}
