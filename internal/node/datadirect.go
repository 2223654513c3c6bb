package node

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"path"
	"strings"
)

// DataDirect is the PCI function through which an HCA reads and writes GPU memory: a DMA engine of its own, which a
// ConnectX-8 and later has in GB300 and Rubin nodes below the switch of the GPU, in another PCI domain than the HCA.
type DataDirect struct {
	PCI  string   `json:"pci"`
	Path []string `json:"path,omitempty"` // PCI root and bridges down to the function
}

// DataDirects are the Data Direct functions of a node by their adapter's UUID: key V3 of the vital product data, which
// all functions of an adapter have. rdma-core goes by it (kernel-boot/rdma_topo). The kernel asks the firmware
// (drivers/infiniband/hw/mlx5/data_direct.c, Linux 6.12), and sysfs does not show the answer.
type DataDirects map[string][]string

// ReadDataDirects finds the Data Direct functions among all PCI functions. They stay where they are.
func ReadDataDirects(sys fs.FS) DataDirects { return single(sys).dataDirects(sysFunctions) }

// sysFunctions is the directory with all PCI functions, in /sys.
const sysFunctions = "bus/pci/devices"

func (t tree) dataDirects(functions string) DataDirects {
	out := DataDirects{}
	for _, addr := range t.names(functions) {
		dir := t.real(path.Join(functions, addr))
		// ConnectX-8 Data Direct
		if dir != "" && t.text(dir, "vendor") == "0x15b3" && t.text(dir, "device") == "0x2100" {
			uuid, err := t.cardUUID(dir)
			if err != nil {
				t.problem("%s: %v; which GPUs are near is not known: run as root", addr, err)
				return out
			}
			out[uuid] = append(out[uuid], addr)
		}
	}
	return out
}

// dataDirect is the one of all that belongs to the HCA with the physical function pf; nil for none, and for several.
func (t tree) dataDirect(functions string, all DataDirects, pf string) *DataDirect {
	if len(all) == 0 {
		return nil
	}
	uuid, _ := t.cardUUID(t.real(path.Join(functions, pf)))
	if uuid == "" || len(all[uuid]) != 1 {
		return nil
	}
	addr := all[uuid][0]
	return &DataDirect{PCI: addr, Path: chain(t.real(path.Join(functions, addr)))}
}

// cardUUID is the key V3 of a function's vital product data; empty if it has none. Only root may read it.
func (t tree) cardUUID(dir string) (string, error) {
	b, err := fs.ReadFile(t.fsys, path.Join(dir, "vpd"))
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		err = nil
	}
	return vpdKey(b, "V3"), err
}

// vpdKey is the value of a key in the read-only part of vital product data (PCI Local Bus Specification 3.0, appendix
// I); empty if it is not there.
func vpdKey(b []byte, key string) string {
	const (
		large    = 0x80
		readOnly = 0x90
		end      = 0x78 // of a small item: the rest of the byte is its length
	)
	for len(b) > 0 && b[0]&^7 != end {
		head, size := 1, int(b[0]&7)
		if b[0]&large != 0 {
			if len(b) < 3 {
				return ""
			}
			head, size = 3, int(binary.LittleEndian.Uint16(b[1:]))
		}
		if head+size > len(b) {
			return ""
		}
		item := b[head : head+size]
		if b[0] != readOnly {
			item = nil
		}
		for len(item) >= 3 && 3+int(item[2]) <= len(item) {
			if string(item[:2]) == key {
				return strings.TrimRight(strings.ToValidUTF8(string(item[3:3+int(item[2])]), "?"), " \x00")
			}
			item = item[3+int(item[2]):]
		}
		b = b[head+size:]
	}
	return ""
}

// OnlyUUID is vital product data without all but what tells which functions are of one adapter: serial numbers and the
// like do not leave the node with a recording.
func OnlyUUID(vpd []byte) []byte {
	uuid := vpdKey(vpd, "V3")
	if uuid == "" {
		return nil
	}
	key := append([]byte{'V', '3', byte(len(uuid))}, uuid...)
	return append(append([]byte{0x90, byte(len(key)), byte(len(key) >> 8)}, key...), 0x78)
}
