package deviceplugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// infoMark is in each device-info file of ours, so that those of other device plugins are left alone.
const infoMark = "fabric-agent"

// info is a device-info file (Network Plumbing Working Group, Device Information Specification 1.1.0). Multus copies it into
// the pod's network-status.
type info struct {
	Type    string   `json:"type"`
	Version string   `json:"version"`
	PCI     *infoPCI `json:"pci,omitempty"`
	Writer  string   `json:"writer"`
}

type infoPCI struct {
	PCI  string `json:"pci-address"`
	RDMA string `json:"rdma-device,omitempty"`
}

// addInfo adds the file of a unit that is a PCI device. The specification knows no others.
func addInfo(files map[string][]byte, resource string, u Unit) error {
	if u.PCI == "" {
		return nil
	}
	b, err := json.Marshal(info{Type: "pci", Version: "1.1.0", PCI: &infoPCI{PCI: u.PCI, RDMA: u.RDMA}, Writer: infoMark})
	if err != nil {
		return fmt.Errorf("encode device info of %s: %w", u.ID, err)
	}
	files[flat(resource)+"-"+flat(u.ID)+"-device.json"] = b
	return nil
}

// writeInfos makes the directory hold these files of ours and no others.
func writeInfos(dir string, files map[string][]byte) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // Multus and the runtime look into it (G301)
		return fmt.Errorf("make device-info directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list device-info directory: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if _, want := files[e.Name()]; want || !strings.HasSuffix(e.Name(), "-device.json") {
			continue
		}
		b, err := os.ReadFile(path)
		var i info
		if err != nil || json.Unmarshal(b, &i) != nil || i.Writer != infoMark {
			continue // another plugin's
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
		tmp := filepath.Join(dir, "."+name+".tmp")
		if err := os.WriteFile(tmp, b, 0o644); err != nil { //nolint:gosec // everybody may read it (G306)
			return fmt.Errorf("write device info: %w", err)
		}
		if err := os.Rename(tmp, path); err != nil {
			return fmt.Errorf("write device info: %w", err)
		}
	}
	return nil
}
