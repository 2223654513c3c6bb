package survey

import (
	"io/fs"
	"slices"
	"sync"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// Seen is what the last look has read of the devices on the host, for the next one: see inventory.Memory. States of
// ports and users of a device are asked for at each look. The zero Seen is empty; looks that share one take turns.
type Seen struct {
	mu      sync.Mutex
	memory  inventory.Memory
	devices map[string]Device // by the name of the RDMA device; what sysfs tells counts while its ports are as here
	direct  node.DataDirects  // nil: not read since the devices have changed
}

// begin is what a look starts with: a reader of lists, and what the last look has seen. It ends with end, unless there
// is an error.
func (s *Seen) begin(r *inventory.Reader) (*inventory.Reader, map[string]Device, error) {
	if s == nil {
		once, _, err := r.Once(nil)
		return once, map[string]Device{}, err
	}
	s.mu.Lock()
	once, same, err := r.Once(&s.memory)
	if err != nil {
		s.mu.Unlock()
		return nil, nil, err
	}
	if !same {
		s.devices, s.direct = map[string]Device{}, nil
	}
	return once, s.devices, nil
}

// dataDirects reads the Data Direct functions once, within a look.
func (s *Seen) dataDirects(sys fs.FS) node.DataDirects {
	if s == nil {
		return node.ReadDataDirects(sys)
	}
	if s.direct == nil {
		s.direct = node.ReadDataDirects(sys)
	}
	return s.direct
}

func (s *Seen) end() {
	if s != nil {
		s.mu.Unlock()
	}
}

// hardware takes what complete and place have read from a device whose ports are the same.
func (d *Device) hardware(was *Device) {
	d.NUMA, d.Slot = was.NUMA, was.Slot
	d.Path, d.Files = slices.Clone(was.Path), slices.Clone(was.Files)
	d.Driver, d.Firmware, d.Prefix, d.RateGb = was.Driver, was.Firmware, was.Prefix, was.RateGb
}
