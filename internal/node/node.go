// Package node reads the whole picture of a node: HCAs, their ports and GIDs, network interfaces, GPUs, and how near
// each is to each. It reads sysfs through fs.FS, so that a recorded tree of another machine works as well as /, and
// what sysfs does not tell (addresses, altnames, the RDMA mode, which pod has a device) from a Live. The plugin itself
// does not need this much: internal/inventory is what it links.
package node

import (
	"net/netip"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Node is one machine.
type Node struct {
	Name     string   `json:"name"`
	Kernel   string   `json:"kernel,omitempty"`
	RDMAMode string   `json:"rdmaMode,omitempty"` // shared, exclusive; empty: no RDMA, or not told
	Primary  string   `json:"primary,omitempty"`  // interface of the default route, of whatever kind
	HCAs     []HCA    `json:"hcas"`
	Netdevs  []Netdev `json:"netdevs,omitempty"` // of hardware, and bonds
	GPUs     []GPU    `json:"gpus,omitempty"`
	// Users are what on the host uses an RDMA device, in words, by its name; exclusive mode only.
	Users map[string][]string `json:"-"`
	// Kept are the RDMA devices that the node policy keeps on the host, by name, and why; nil: not judged.
	Kept     map[string]string `json:"kept,omitzero"`
	Problems []string          `json:"problems,omitempty"` // what could not be read, and what that leaves out
}

// HCA is one RDMA device.
type HCA struct {
	Name     string         `json:"name"`
	Address  device.Address `json:"address,omitzero"`
	PCI      string         `json:"pci,omitempty"` // of the function, or of the one an SF sits on
	Kind     string         `json:"kind"`          // PF, VF, SF, or virtual: rxe and siw
	Parent   string         `json:"parent,omitempty"`
	Driver   string         `json:"driver,omitempty"`
	ID       string         `json:"id,omitempty"`    // vendor:device in hex, as lspci -n prints it
	Model    string         `json:"model,omitempty"` // ConnectX-7
	Board    string         `json:"board,omitempty"` // PSID
	Firmware string         `json:"firmware,omitempty"`
	NodeGUID device.GUID    `json:"nodeGUID,omitzero"`
	NUMA     int            `json:"numa"`           // -1: the firmware does not tell
	CPUs     string         `json:"cpus,omitempty"` // the nearest ones, as the kernel lists them: 0-47,96-143
	Path     []string       `json:"path,omitempty"` // PCI root and bridges down to the function
	// DataDirect is the function that reads and writes GPU memory for it, if that is another one.
	DataDirect *DataDirect `json:"dataDirect,omitempty"`
	PCIe       string      `json:"pcie,omitempty"`   // negotiated speed and width
	Slower     string      `json:"slower,omitempty"` // what it could do, if it runs below that
	VFs        int         `json:"vfs,omitempty"`
	MaxVFs     int         `json:"maxVFs,omitempty"`
	Bond       string      `json:"bond,omitempty"` // the bond it is the RDMA face of, or whose member its netdev is
	Ports      []Port      `json:"ports"`
	GPUs       []Near      `json:"gpus,omitempty"`  // nearest first
	InPod      string      `json:"inPod,omitempty"` // namespace/name or container that has it now
	Netns      string      `json:"netns,omitempty"` // of that pod
}

// Place is where the HCA meets GPUs: there where its Data Direct function is, if it has one.
func (h *HCA) Place() Place {
	if h.DataDirect != nil {
		return Place{h.DataDirect.Path, h.NUMA}
	}
	return Place{h.Path, h.NUMA}
}

// Port is the port with this number; nil if h is nil, or has none.
func (h *HCA) Port(number uint32) *Port {
	if h == nil {
		return nil
	}
	for i := range h.Ports {
		if h.Ports[i].Number == number {
			return &h.Ports[i]
		}
	}
	return nil
}

// Port is one port of an HCA.
type Port struct {
	Number    uint32              `json:"number"`
	LinkLayer device.LinkLayer    `json:"linkLayer,omitempty"`
	State     string              `json:"state"`
	Phys      string              `json:"phys"`
	RateGb    float64             `json:"rateGb,omitempty"` // Gb/s
	Rate      string              `json:"rate,omitempty"`   // as the kernel says it: 100 Gb/sec (4X EDR)
	LID       uint16              `json:"lid,omitempty"`
	SMLID     uint16              `json:"smLID,omitempty"`
	GUID      device.GUID         `json:"guid,omitzero"`
	Prefix    device.SubnetPrefix `json:"subnetPrefix,omitzero"`
	PKeys     []string            `json:"pkeys,omitempty"`
	GIDs      []GID               `json:"gids,omitempty"`
	Netdev    string              `json:"netdev,omitempty"`
	// ActiveMTU is what a packet carries at most, in bytes: 256 to 4096. 0: not known. Of an InfiniBand port sysfs does
	// not tell it.
	ActiveMTU int `json:"activeMTU,omitempty"`

	// Of a RoCE port: the type of service that the connection manager gives connections (default_roce_tos), and the
	// traffic class that NVIDIA's driver package gives all queue pairs. nil: the first is not known, the second not set
	// or not known. The first is known of a device in a pod, and on the host while it has a directory in configfs.
	TOS          *int `json:"tos,omitempty"`
	TrafficClass *int `json:"trafficClass,omitempty"`
}

// GID is one used entry of a port's GID table.
type GID struct {
	Index  int    `json:"index"`
	GID    string `json:"gid"`
	Type   string `json:"type,omitempty"` // IB/RoCE v1, RoCE v2
	Netdev string `json:"netdev,omitempty"`
	// Elsewhere is what the interface is called in its own network namespace, if that is another one than this.
	Elsewhere string `json:"-"`
}

// Addr returns the address behind the GID; an IPv4-mapped one (::ffff:192.0.2.1) as IPv4.
func (g GID) Addr() netip.Addr {
	a, err := netip.ParseAddr(g.GID)
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap()
}

// Netdev is a network interface of hardware, or a bond.
type Netdev struct {
	Name     string         `json:"name"`
	AltNames []string       `json:"altNames,omitempty"`
	Type     int            `json:"type"` // ARPHRD_*: 1 Ethernet, 32 InfiniBand
	MTU      int            `json:"mtu"`  // bytes
	State    string         `json:"state,omitempty"`
	Down     bool           `json:"down,omitempty"` // the administrator has it down
	HWAddr   string         `json:"hwAddr,omitempty"`
	Address  device.Address `json:"address,omitzero"` // of the hardware it is a face of
	PCI      string         `json:"pci,omitempty"`
	Port     int            `json:"port"` // dev_port, from 0
	Master   string         `json:"master,omitempty"`
	Parent   string         `json:"parent,omitempty"` // of an IPoIB child
	Bond     *Bond          `json:"bond,omitempty"`   // if it is one
	Addrs    []netip.Prefix `json:"addrs,omitempty"`
	Default  bool           `json:"default,omitempty"` // carries the default route
	DCB      *DCB           `json:"dcb,omitempty"`     // Ethernet only; nil: its driver has none, or it was not asked
}

// DCB is what an Ethernet interface does with priorities.
type DCB struct {
	PFC  []int          `json:"pfc,omitempty"`  // priorities for which it pauses the sender
	DSCP []DSCPPriority `json:"dscp,omitempty"` // empty: it goes by the priority in the VLAN tag
}

// DSCPPriority is the priority of packets with a DSCP.
type DSCPPriority struct {
	DSCP     int `json:"dscp"`
	Priority int `json:"priority"`
}

// Bond is what a bond says about itself.
type Bond struct {
	Mode    string   `json:"mode"`
	Members []string `json:"members"`
	Active  string   `json:"active,omitempty"`
}

// GPU is one accelerator.
type GPU struct {
	Index int      `json:"index"` // in PCI order, as nvidia-smi counts by default
	PCI   string   `json:"pci"`
	ID    string   `json:"id"`
	Model string   `json:"model,omitempty"`
	NUMA  int      `json:"numa"`
	CPUs  string   `json:"cpus,omitempty"` // the nearest ones
	Path  []string `json:"path,omitempty"`
}

// Place is where the GPU is.
func (g *GPU) Place() Place { return Place{g.Path, g.NUMA} }

// Near is a GPU and how far it is, in the words of nvidia-smi topo -m.
type Near struct {
	GPU      int    `json:"gpu"`
	Distance string `json:"distance"` // PIX, PXB, PHB, NODE, SYS
}

// CarriesTraffic reports whether a pod that has the port has traffic.
func (n *Node) CarriesTraffic(p *Port) bool {
	return device.Port{State: p.state(), LinkLayer: p.LinkLayer}.CarriesTraffic(n.idle(p))
}

func (n *Node) idle(p *Port) bool {
	d := n.Netdev(p.Netdev)
	return d != nil && d.Down
}

// Netdev returns the interface of a name or altname, or nil.
func (n *Node) Netdev(name string) *Netdev {
	for i := range n.Netdevs {
		d := &n.Netdevs[i]
		if name != "" && d.Name == name {
			return d
		}
		for _, a := range d.AltNames {
			if name != "" && a == name {
				return d
			}
		}
	}
	return nil
}

// HCA returns the RDMA device of a name, or nil.
func (n *Node) HCA(name string) *HCA {
	for i := range n.HCAs {
		if n.HCAs[i].Name == name {
			return &n.HCAs[i]
		}
	}
	return nil
}

// state and phys read back what String of the two has made, so that a picture that came as JSON is as good as a fresh
// one.
func (p *Port) state() device.PortState {
	for s := device.PortNop; s <= device.PortActiveDefer; s++ {
		if s.String() == p.State {
			return s
		}
	}
	return device.PortNop
}

func (p *Port) phys() device.PhysState {
	for s := device.PhysNop; s <= device.PhysTest; s++ {
		if s.String() == p.Phys {
			return s
		}
	}
	return device.PhysNop
}

// Active reports whether the port carries traffic now. What a pod would have of it is Node.CarriesTraffic.
func (p *Port) Active() bool { return p.State == device.PortActive.String() }
