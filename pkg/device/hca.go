package device

import (
	"slices"
	"strconv"
	"strings"
)

// NetnsMode is how RDMA devices relate to network namespaces on this system (rdma system show netns).
type NetnsMode uint8

// The two modes, valued as RDMA_NLDEV_SYS_ATTR_NETNS_MODE (include/uapi/rdma/rdma_netlink.h): 0 is exclusive.
const (
	NetnsExclusive NetnsMode = 0
	NetnsShared    NetnsMode = 1
)

func (m NetnsMode) String() string {
	if m == NetnsShared {
		return "shared"
	}
	return "exclusive"
}

// HCA is the RDMA face of a device: one ib_device of the kernel.
type HCA struct {
	Index    uint32  `json:"index"` // the kernel's: kept by moves and renames, new when the driver is rebound
	Name     string  `json:"name"`
	NodeGUID GUID    `json:"nodeGUID"`
	Address  Address `json:"address,omitzero"`
	Ports    []Port  `json:"ports,omitempty"`
	DIM      *bool   `json:"dim,omitempty"` // adaptive moderation of interrupts; nil: the kernel (before 5.2) has none
}

// Has says whether a port of the HCA has this link layer.
func (h *HCA) Has(l LinkLayer) bool {
	return slices.ContainsFunc(h.Ports, func(p Port) bool { return p.LinkLayer == l })
}

// LinkLayer is what a port speaks.
type LinkLayer string

// The link layers of a port, as sysfs spells them.
const (
	InfiniBand LinkLayer = "InfiniBand"
	Ethernet   LinkLayer = "Ethernet"
)

// Port is one port of an HCA, numbered from 1.
type Port struct {
	Number    uint32    `json:"number"`
	State     PortState `json:"state"`
	Phys      PhysState `json:"phys"`
	LID       uint16    `json:"lid,omitempty"`   // 0: no subnet manager has assigned one
	SMLID     uint16    `json:"smLID,omitempty"` // 0: no subnet manager is known
	LinkLayer LinkLayer `json:"linkLayer,omitempty"`
	Netdev    uint32    `json:"netdev,omitempty"` // ifindex of a RoCE port's netdev, where the kernel reports it

	// AutoCounters are the properties by which the kernel gives queue pairs counters of their own (enum
	// rdma_nl_counter_mask: 1 type, 2 pid); 0: it does not. nil: not read, or a kernel before 5.3.
	AutoCounters *uint32 `json:"autoCounters,omitempty"`

	CM *CM `json:"cm,omitempty"` // of a RoCE port; nil: not read, or not known

	// TrafficClass is what NVIDIA's driver gives all queue pairs over a RoCE port, whatever they ask for. -1: it
	// gives none; nil: another driver, or not read.
	TrafficClass *int `json:"trafficClass,omitempty"`
}

// ParseTrafficClass reads the file tc/PORT/traffic_class in sysfs: "Global tclass=106", and rules for some addresses.
// It returns -1 for a file without such a line.
func ParseTrafficClass(text string) int {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "Global tclass="); ok {
			if n, err := strconv.Atoi(v); err == nil && n >= 0 && n < 256 {
				return n
			}
		}
	}
	return -1
}

// CM is what the kernel's connection manager (rdma_cm) gives connections over a RoCE port that ask for nothing else. A
// move between network namespaces resets it, for the connection manager forgets the device
// (drivers/infiniband/core/cma.c, cma_remove_one and cma_add_one).
type CM struct {
	TOS  uint8  `json:"tos,omitempty"`  // type of service: DSCP and, in the lower two bits, ECN
	RoCE string `json:"roce,omitempty"` // RoCEv1 or RoCEv2, as the kernel writes it; empty: not known
}

// The protocols of a RoCE port, as configfs and gid_attrs/types in sysfs spell them (drivers/infiniband/core/cache.c,
// gid_type_str).
const (
	RoCEv1 = "IB/RoCE v1"
	RoCEv2 = "RoCE v2"
)

// Reset says whether this is what a port has that the connection manager has just come to know. One that knows only
// RoCE v1 has that then.
func (c *CM) Reset() bool { return c == nil || c.TOS == 0 && c.RoCE != RoCEv1 }

// CarriesTraffic reports whether a pod that has the port has traffic. A RoCE port is Down as long as its netdev is: one
// that is idle comes up with its netdev. Whether a port works where it is now is another question: that is its state.
func (p Port) CarriesTraffic(idle bool) bool {
	return p.State == PortActive || idle && p.LinkLayer == Ethernet
}

// PortState is the logical state of a port (IBTA 1.4, section 14.2.5.6, PortInfo:PortState).
type PortState uint8

// The states a port can be in. It carries traffic in PortActive alone.
const (
	PortNop PortState = iota
	PortDown
	PortInit
	PortArmed
	PortActive
	PortActiveDefer
)

func (s PortState) String() string {
	return name(int(s), "no state", "Down", "Init", "Armed", "Active", "ActiveDefer")
}

// PhysState is the physical state of a port (IBTA 1.4, PortInfo:PortPhysicalState).
type PhysState uint8

// The physical states.
const (
	PhysNop PhysState = iota
	PhysSleep
	PhysPolling
	PhysDisabled
	PhysTraining
	PhysLinkUp
	PhysRecovery
	PhysTest
)

func (s PhysState) String() string {
	return name(
		int(s),
		"no state",
		"Sleep",
		"Polling",
		"Disabled",
		"PortConfigurationTraining",
		"LinkUp",
		"LinkErrorRecovery",
		"Phy Test",
	)
}

func name(i int, names ...string) string {
	if i < len(names) {
		return names[i]
	}
	return "unknown"
}
