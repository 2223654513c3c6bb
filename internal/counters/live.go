package counters

import (
	"encoding/json"
	"io/fs"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// LiveFile is where a recording has what sysfs does not tell of counters.
const LiveFile = "counters.json"

// Live is what sysfs does not tell of counters.
type Live struct {
	Ports      []Port                       `json:"ports,omitempty"`      // of devices that are in pods
	Interfaces map[string]map[string]uint64 `json:"interfaces,omitempty"` // statistics of the driver (ethtool -S)
}

// Of the statistics of an interface that ethtool -S prints, those of the wire and of its buffers, as mlx5 calls them
// (Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst).
const (
	SymbolErrors = "rx_symbol_err_phy"
	Discards     = "rx_discards_phy"
	linkDowns    = "link_down_events_phy"
)

var kept = []string{SymbolErrors, Discards, linkDowns, "rx_crc_errors_phy", "rx_global_pause", "tx_global_pause",
	"rx_prio0_pause", "rx_prio1_pause", "rx_prio2_pause", "rx_prio3_pause", "rx_prio4_pause", "rx_prio5_pause",
	"rx_prio6_pause", "rx_prio7_pause", "tx_prio0_pause", "tx_prio1_pause", "tx_prio2_pause", "tx_prio3_pause",
	"tx_prio4_pause", "tx_prio5_pause", "tx_prio6_pause", "tx_prio7_pause", "rx_prio0_discards", "rx_prio1_discards",
	"rx_prio2_discards", "rx_prio3_discards", "rx_prio4_discards", "rx_prio5_discards", "rx_prio6_discards",
	"rx_prio7_discards", "tx_pause_storm_warning_events", "tx_pause_storm_error_events"}

// OfInterface keeps the statistics of an interface that say something of its port.
func OfInterface(stats map[string]uint64) map[string]uint64 {
	out := map[string]uint64{}
	for _, name := range kept {
		if v, ok := stats[name]; ok {
			out[name] = v
		}
	}
	return out
}

// Bounds of what a recording may have.
const maxPorts = 1024

// recordedLive is what a recording has; nil without it.
func recordedLive(root fs.FS) *Live {
	if _, err := fs.Stat(root, node.LiveFile); err != nil { // the running machine
		return nil
	}
	b, err := fs.ReadFile(root, LiveFile)
	if err != nil {
		return nil
	}
	l := &Live{}
	if json.Unmarshal(b, l) != nil || len(l.Ports) > maxPorts {
		return nil
	}
	return l
}

// Add adds to a look what sysfs does not tell.
func (l *Look) Add(live *Live, n *node.Node) {
	if live == nil {
		return
	}
	for i := range l.Ports {
		p := &l.Ports[i]
		q := n.HCA(p.HCA).Port(p.Number)
		if q == nil || q.LinkLayer != device.Ethernet {
			continue
		}
		for name, v := range OfInterface(live.Interfaces[q.Netdev]) {
			if p.Values == nil {
				p.Values = map[string]uint64{}
			}
			p.Values[name] = v
		}
	}
	for _, p := range live.Ports {
		if n.HCA(p.HCA) != nil && l.Port(p.HCA, p.Number) == nil { // else it has returned to the host
			l.Ports = append(l.Ports, p)
		}
	}
}
