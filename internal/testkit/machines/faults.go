package machines

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing/fstest"
)

// PortFile plants a file of an RDMA device's port 1, as in ("mlx5_0", "counters/symbol_error", "12").
func (m *Machine) PortFile(hca, name, content string) {
	m.File(path.Join(m.target("sys/class/infiniband/"+hca), "ports/1", name), content)
}

// HCAFile plants a file of an RDMA device, as in ("mlx5_0", "fw_ver", "28.39.1002").
func (m *Machine) HCAFile(hca, name, content string) {
	m.File(path.Join(m.target("sys/class/infiniband/"+hca), name), content)
}

// NetFile plants a file of an interface, as in ("ibs108", "flags", "0x1002").
func (m *Machine) NetFile(netdev, name, content string) {
	m.File(path.Join(m.target("sys/class/net/"+netdev), name), content)
}

// target is where a link of the tree points to.
func (m *Machine) target(link string) string {
	f := m.FS[link]
	if f == nil {
		panic(fmt.Sprintf("machine %s has no %s", m.Name, link))
	}
	return path.Join(path.Dir(link), string(f.Data))
}

// Without removes all files whose path has a prefix.
func (m *Machine) Without(prefix string) {
	maps.DeleteFunc(m.FS, func(name string, _ *fstest.MapFile) bool { return strings.HasPrefix(name, prefix) })
}

// Uptime is how long the machine is up, in seconds.
func (m *Machine) Uptime(seconds float64) { m.File("proc/uptime", fmt.Sprintf("%.2f 0.00", seconds)) }

// TrainedDown is an H20 node one of whose four rails has lost two of its four lanes.
func TrainedDown() *Machine {
	m := H20()
	m.PortFile("mlx5_4", "rate", "200 Gb/sec (2X NDR)")
	return m
}

// sound are the counters of an InfiniBand port as mlx5 has them, on a sound link: totals, by group and name.
var sound = map[string]uint64{
	"counters/VL15_dropped": 0, "counters/excessive_buffer_overrun_errors": 0, "counters/link_downed": 1,
	"counters/link_error_recovery": 0, "counters/local_link_integrity_errors": 0,
	"counters/port_rcv_constraint_errors": 0, "counters/port_rcv_data": 1 << 40, "counters/port_rcv_errors": 0,
	"counters/port_rcv_packets": 1 << 31, "counters/port_rcv_remote_physical_errors": 0,
	"counters/port_rcv_switch_relay_errors": 0, "counters/port_xmit_constraint_errors": 0,
	"counters/port_xmit_data": 1 << 40, "counters/port_xmit_discards": 0, "counters/port_xmit_packets": 1 << 31,
	"counters/port_xmit_wait": 12345, "counters/symbol_error": 0,
	"hw_counters/duplicate_request": 0, "hw_counters/implied_nak_seq_err": 0, "hw_counters/local_ack_timeout_err": 3,
	"hw_counters/lifespan": 10, "hw_counters/np_cnp_sent": 0, "hw_counters/np_ecn_marked_roce_packets": 0,
	"hw_counters/out_of_buffer": 0, "hw_counters/out_of_sequence": 0, "hw_counters/packet_seq_err": 0,
	"hw_counters/rnr_nak_retry_err": 0, "hw_counters/roce_adp_retrans": 0, "hw_counters/roce_slow_restart": 0,
	"hw_counters/rp_cnp_handled": 0, "hw_counters/rx_icrc_encapsulated": 0,
}

// Counters plants the counters of a sound port at every port, and counters that differ from them: by "HCA
// group/name".
func (m *Machine) Counters(differ map[string]uint64) *Machine {
	for _, link := range slices.Sorted(maps.Keys(m.FS)) {
		hca, ok := strings.CutPrefix(link, "sys/class/infiniband/")
		if !ok || strings.Contains(hca, "/") {
			continue
		}
		for name, v := range sound {
			if d, ok := differ[hca+" "+name]; ok {
				v = d
			}
			m.PortFile(hca, name, fmt.Sprint(v))
		}
	}
	return m
}
