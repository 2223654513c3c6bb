// Package devinfo writes device information files, by which a plugin tells the pod and its operators which hardware is
// behind an interface (Network Plumbing Working Group, device information specification 1.1.0). Multus copies them into
// the pod's network-status annotation.
package devinfo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
)

// Dirs are the places a file may be in: its path comes from the configuration, and is written as root.
var Dirs = []string{"/var/run/k8s.cni.cncf.io/devinfo/cni", "/run/k8s.cni.cncf.io/devinfo/cni"}

// PluginDir is where device plugins describe their devices. Multus copies the file of a network's device to the place
// that it names to the plugin, and what the plugin leaves there into the pod's network-status.
const PluginDir = "/var/run/k8s.cni.cncf.io/devinfo/dp"

// PluginFile is the name of a device plugin's file there.
func PluginFile(resource, id string) string {
	return strings.ReplaceAll(resource, "/", "-") + "-" + strings.ReplaceAll(id, "/", "-") + "-device.json"
}

// OfPlugin returns what a device plugin says of a device; fs.ErrNotExist if it says nothing.
func OfPlugin(resource, id string) ([]byte, error) {
	return read(filepath.Join(PluginDir, PluginFile(resource, id)))
}

// PCI is what there is to tell. An empty field is left as the file has it.
type PCI struct {
	Address string // PCI address of the device, or of the function it sits on
	PF      string // PCI address of its PF
	RDMA    string // name of the RDMA device in the pod
}

// version of the specification that has rdma-device and pf-pci-address.
const version = "1.1.0"

// Merge adds to what is in the file: a device plugin may have told more than we know. before may be empty.
func Merge(before []byte, d PCI) ([]byte, error) {
	file := map[string]any{}
	if len(before) > 0 {
		if err := json.Unmarshal(before, &file); err != nil {
			return nil, fmt.Errorf("decode device information: %w", err)
		}
		if file == nil { // "null"
			file = map[string]any{}
		}
	}
	if _, ok := file["type"]; !ok {
		file["type"] = "pci"
	}
	file["version"] = version
	pci, _ := file["pci"].(map[string]any)
	if pci == nil {
		pci = map[string]any{}
	}
	for k, v := range map[string]string{"pci-address": d.Address, "pf-pci-address": d.PF, "rdma-device": d.RDMA} {
		if v != "" {
			pci[k] = v
		}
	}
	file["pci"] = pci
	return json.Marshal(file)
}

// complete is Merge, and makes the file the writer's.
func complete(before []byte, d PCI, writer string) ([]byte, error) {
	after, err := Merge(before, d)
	if err != nil {
		return nil, err
	}
	var file map[string]any
	if err := json.Unmarshal(after, &file); err != nil {
		return nil, fmt.Errorf("decode device information: %w", err)
	}
	file[writerField] = writer
	return json.Marshal(file)
}

// writerField names a file's writer. The specification does not know it, and readers do not mind.
const writerField = "writer"

// Encode is a new file by this writer.
func Encode(d PCI, writer string) ([]byte, error) {
	b, err := json.Marshal(map[string]string{writerField: writer})
	if err != nil {
		return nil, fmt.Errorf("encode device information: %w", err)
	}
	return Merge(b, d)
}

// Writer tells who has written a file; empty if it does not say, or is not such a file.
func Writer(file []byte) string {
	var f struct{ Writer string }
	if json.Unmarshal(file, &f) != nil {
		return ""
	}
	return f.Writer
}

// ErrPlace means that a path is not one for such files.
var ErrPlace = errors.New("not a file of the directory for device information")

// check returns the path, which may be a bare name, in the directory it belongs to.
func check(path string) (string, error) {
	dir, name := filepath.Split(path)
	if name == "" || name[0] == '.' {
		return "", fmt.Errorf("%s: %w %s", path, ErrPlace, Dirs[0])
	}
	if dir == "" {
		return filepath.Join(Dirs[0], name), nil
	}
	for _, d := range Dirs {
		if filepath.Clean(dir) == d {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w %s", path, ErrPlace, Dirs[0])
}

// Save writes the file at path, and says in it who writes. A file that is there already is completed if it is about the
// same device, as one that Multus has copied from the device plugin is, and is left alone otherwise: the path comes
// from a configuration, and the file may be another pod's.
func Save(path string, d PCI, writer string) error { return SaveOther(path, d, writer, "", nil) }

// SaveOther is Save for another device than Multus has named: a file about the one at instead is Multus's copy, and
// makes room for what the device plugin says of this device. That may be nothing.
func SaveOther(path string, d PCI, writer, instead string, plugin []byte) error {
	path, err := check(path)
	if err != nil {
		return err
	}
	content, err := Encode(d, writer)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	f := file(path)
	f.Exclusive = true
	err = f.Write(content)
	if !errors.Is(err, fs.ErrExist) {
		return saved(err)
	}
	before, err := read(path)
	if err != nil {
		return fmt.Errorf("read device information: %w", err)
	}
	switch {
	case about(before, instead):
		if before = nil; about(plugin, d.Address) {
			before = plugin
		}
	case Writer(before) != writer && !about(before, d.Address):
		return fmt.Errorf("%s is there already, and not about %s: remove it if no pod needs it", path, d.Address)
	}
	if content, err = complete(before, d, writer); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return Write(path, content)
}

// maxFile bounds what is read: a file has some hundred bytes.
const maxFile = 64 << 10

// read reads a regular file, and no link to one.
func read(path string) ([]byte, error) { return atomicfile.Read(path, maxFile) }

// about says whether a file is about a device.
func about(content []byte, address string) bool {
	type section struct {
		Address string `json:"pci-address"`
	}
	var f struct{ PCI, VDPA section }
	if json.Unmarshal(content, &f) != nil || address == "" {
		return false
	}
	return f.PCI.Address == address || f.VDPA.Address == address
}

func file(path string) atomicfile.File {
	// As Multus creates it: device plugins read in this directory.
	return atomicfile.File{Path: path, Mode: 0o644, DirMode: 0o755, Temp: ".fabric-*"}
}

func saved(err error) error {
	if err != nil {
		return fmt.Errorf("save device information: %w", err)
	}
	return nil
}

// Write puts a file in place, readable for everybody: readers see it whole or not at all. It creates the directory.
func Write(path string, content []byte) error { return saved(file(path).Write(content)) }

// Remove removes the file if it is by that writer. A file that names no writer, as those of older versions, is removed
// if it is about the device at address; empty: it stays. That it is gone already is no error.
func Remove(path, writer, address string) error {
	path, err := check(path)
	if err != nil {
		return err
	}
	content, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove device information: %w", err)
	}
	if w := Writer(content); w != writer && (w != "" || !about(content, address)) {
		return fmt.Errorf("%s is not this attachment's: it stays", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove device information: %w", err)
	}
	return nil
}
