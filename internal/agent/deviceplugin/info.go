package deviceplugin

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/devinfo"
)

// writer marks the agent's device-info files. Those of other device plugins are not touched.
const writer = "fabric-agent"

// infoSuffix ends the names of device-info files.
const infoSuffix = "-device.json"

// addInfo adds the file of a unit that is a PCI device. The specification has no other kind of hardware.
func addInfo(files map[string][]byte, resource string, u Unit) error {
	pci := u.Address.PCI()
	if pci == "" {
		return nil
	}
	b, err := devinfo.Encode(devinfo.PCI{Address: pci, RDMA: u.RDMA}, writer)
	if err != nil {
		return fmt.Errorf("encode device info of %s: %w", u.ID, err)
	}
	files[flat(resource)+"-"+flat(u.ID)+infoSuffix] = b
	return nil
}

// ours reports whether a device-info file is the agent's.
func ours(path string) bool {
	b, err := os.ReadFile(path)
	return err == nil && devinfo.Writer(b) == writer
}

// writeInfos writes these files, and removes the agent's other ones.
func writeInfos(dir string, files map[string][]byte) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:filemode // Multus and the runtime look into it
		return fmt.Errorf("make device-info directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list device-info directory: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if _, want := files[e.Name()]; want || !strings.HasSuffix(e.Name(), infoSuffix) || !ours(path) {
			continue // or another plugin's
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove device info: %w", err)
		}
	}
	for name, b := range files {
		path := filepath.Join(dir, name)
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, b) {
			continue
		}
		if err := devinfo.Write(path, b); err != nil {
			return err
		}
	}
	return nil
}
