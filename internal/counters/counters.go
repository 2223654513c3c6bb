// Package counters reads the counters of RDMA ports, and compares two looks at them. It changes nothing. What they mean
// is judged by internal/health.
package counters

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Counter is one counter of one port, as sysfs has it: port_xmit_data and port_rcv_data count words of four bytes, as
// the attribute PortCounters has them (IBTA, chapter 16.1).
type Counter struct {
	Port  uint32
	Group string // "counters" (IBTA) or "hw_counters" (the driver's)
	Name  string
	Value uint64
}

// lifespan is in hw_counters and counts nothing: for how many milliseconds the kernel keeps what it has read
// (drivers/infiniband/core/sysfs.c, setup_hw_port_stats).
const lifespan = "lifespan"

// maxCounters bounds what is read of a port: mlx5 has about sixty.
const maxCounters = 512

// In reads the counters of a port; dir is its directory (class/infiniband/mlx5_0/ports/1). With names, only these: a
// counter costs a question to the firmware.
func In(sys fs.FS, dir string, port uint32, names ...string) (out []Counter) {
	for _, group := range []string{"counters", "hw_counters"} {
		wanted := names
		if wanted == nil {
			entries, _ := fs.ReadDir(sys, path.Join(dir, group)) // the driver may have none
			for _, e := range entries[:min(len(entries), maxCounters)] {
				wanted = append(wanted, e.Name())
			}
		}
		for _, name := range wanted {
			if name == lifespan {
				continue
			}
			if v, ok := number(sys, path.Join(dir, group, name)); ok {
				out = append(out, Counter{port, group, name, v})
			}
		}
	}
	return out
}

// number reads a counter. ok is false for one that is write-only, or not supported by this port.
func number(sys fs.FS, name string) (v uint64, ok bool) {
	b, err := fs.ReadFile(sys, name)
	if err != nil {
		return 0, false
	}
	v, err = strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return v, err == nil
}

// Sum is the counters by name, those of several ports added.
func Sum(list []Counter) map[string]uint64 {
	if len(list) == 0 {
		return nil
	}
	out := map[string]uint64{}
	for _, c := range list {
		out[c.Name] += c.Value
	}
	return out
}

// ends are where counters stop: those of the attribute PortCounters do not wrap (IBTA, section 16.1.3.5), and the
// kernel shows them as wide as they are there (drivers/infiniband/core/sysfs.c).
var ends = map[string]uint64{
	"symbol_error": 1<<16 - 1, "link_error_recovery": 1<<8 - 1, "link_downed": 1<<8 - 1, "port_rcv_errors": 1<<16 - 1,
	"port_rcv_remote_physical_errors": 1<<16 - 1, "port_rcv_switch_relay_errors": 1<<16 - 1,
	"port_xmit_discards": 1<<16 - 1, "port_xmit_constraint_errors": 1<<8 - 1, "port_rcv_constraint_errors": 1<<8 - 1,
	"local_link_integrity_errors": 1<<4 - 1, "excessive_buffer_overrun_errors": 1<<4 - 1, "VL15_dropped": 1<<16 - 1,
}

// AtEnd tells whether a counter has stopped at the most that it can count: it says nothing any more until it is reset.
func AtEnd(name string, v uint64) bool { return ends[name] != 0 && v == ends[name] }
