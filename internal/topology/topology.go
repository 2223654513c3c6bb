// Package topology finds out which ports belong together: fabrics, whose ports can reach each other at one rate, and
// the rails in them, the ports of several nodes that stand in for each other. Values in, values out: the same ports
// give the same answer in any order, and every answer carries its reason.
package topology

import (
	"net/netip"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Soft is the Kind of RDMA devices without hardware, which the drivers rxe and siw make on any interface. They can't be
// given to a pod: the kernel destroys them when their interface moves. See kernel fact 45 in docs/kernel.md.
const Soft = "virtual"

// Port is one port of one node, with what decides where it belongs.
type Port struct {
	Node      string           `json:"node"`
	HCA       string           `json:"hca"`  // name of the RDMA device: mlx5_0
	Port      uint32           `json:"port"` // from 1
	Netdev    string           `json:"netdev,omitempty"`
	Address   device.Address   `json:"-"`
	PCI       string           `json:"pci,omitempty"`    // of the function, or of the one an SF sits on
	Slot      string           `json:"slot,omitempty"`   // PCI address of the PF: the same for its VFs and SFs
	Kind      string           `json:"kind,omitempty"`   // PF, VF, SF or Soft
	Device    string           `json:"device,omitempty"` // vendor:device in hex without 0x: 15b3:1021
	LinkLayer device.LinkLayer `json:"linkLayer,omitempty"`
	State     device.PortState `json:"-"`
	Phys      device.PhysState `json:"-"`
	Idle      bool             `json:"-"` // its netdev is down: see device.Port.CarriesTraffic
	// RateGb is in Gb/s. That of a port that is down is the kernel's guess, and is not used.
	RateGb  float64             `json:"rateGb,omitempty"`
	Prefix  device.SubnetPrefix `json:"subnetPrefix,omitzero"` // upper 8 bytes of GID 0; InfiniBand only
	LID     uint16              `json:"lid,omitempty"`         // 0: none assigned
	SMLID   uint16              `json:"smLID,omitempty"`       // 0: no subnet manager known
	GUID    device.GUID         `json:"guid,omitzero"`
	Addrs   []netip.Prefix      `json:"addrs,omitempty"`   // of the netdev; link-local ones are not looked at
	Bond    string              `json:"bond,omitempty"`    // the bond the netdev is, or is part of
	Primary bool                `json:"primary,omitempty"` // carries the node's default route
	Kept    string              `json:"-"`                 // why else the node policy keeps it on the host
	InPod   string              `json:"inPod,omitempty"`   // where it is now, if not on the host
}

// Name is the port as NCCL and UCX spell it, mlx5_0:1.
func (p *Port) Name() string { return p.HCA + ":" + utoa(p.Port) }

// Fabric is a set of ports that can reach each other at one rate.
type Fabric struct {
	// Name is ib-200g or roce-400g; with -a, -b where several would be called the same
	Name      string              `json:"name"`
	LinkLayer device.LinkLayer    `json:"linkLayer"`
	RateGb    float64             `json:"rateGb"` // Gb/s of each port
	Prefix    device.SubnetPrefix `json:"subnetPrefix,omitzero"`
	SMLID     uint16              `json:"smLID,omitempty"`
	// SMLIDs are all LIDs at which nodes have seen the subnet manager, if it has moved; SMLID is the one most of them
	// saw.
	SMLIDs []uint16 `json:"smLIDs,omitempty"`
	// Routed reports whether nodes reach each other over routers: the ports of a rail are in different subnets.
	Routed bool `json:"routed,omitempty"`
	// Planes reports whether the rails are subnets of their own: unless a router connects them, which can't be seen
	// from a node, pairing ports of two rails ends in a timeout.
	Planes   bool     `json:"planes"`
	Reason   string   `json:"reason"`
	Warnings []string `json:"warnings,omitempty"`
	Rails    []Rail   `json:"rails"`
}

// Rail is one port of each node, those that stand in for each other.
type Rail struct {
	Index  int            `json:"index"`            // from 0
	Subnet []netip.Prefix `json:"subnet,omitempty"` // IP subnets seen on it
	Reason string         `json:"reason"`
	Ports  []Port         `json:"ports"` // by node, PFs before their VFs
}

// Left is a port in no fabric.
type Left struct {
	Port   Port   `json:"port"`
	Reason string `json:"reason"`
}

// Fabrics is the whole answer.
type Fabrics struct {
	Fabrics []Fabric `json:"fabrics"`
	Left    []Left   `json:"left,omitempty"`
}

// Nodes returns the names of the nodes that have a port in the fabric, in order.
func (f *Fabric) Nodes() []string {
	seen := map[string]bool{}
	for _, r := range f.Rails {
		for _, p := range r.Ports {
			seen[p.Node] = true
		}
	}
	return sorted(seen)
}

// On returns the fabric's ports on one node, in rail order.
func (f *Fabric) On(node string) (ports []Port) {
	for _, r := range f.Rails {
		for _, p := range r.Ports {
			if p.Node == node {
				ports = append(ports, p)
			}
		}
	}
	return ports
}
