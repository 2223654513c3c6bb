// Package machines makes small trees of the machines that this project is for, as a recording of their sysfs would
// look: places, names, states and rates are as on real ones, GUIDs and addresses are made up.
package machines

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing/fstest"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// Machine is one recorded tree: the root of a file system, with node.LiveFile.
type Machine struct {
	Name string
	FS   fstest.MapFS
	Live node.Live

	hcas  map[string]hca // by name
	order []string       // their names, as the machine was made
}

// Nodes reads machines, by name, as from their recordings.
func Nodes(names ...string) (out []*node.Node, err error) {
	for _, name := range names {
		n, err := node.Open(Named(name).FS, journal.Store{})
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

func newMachine(name string) *Machine {
	return &Machine{
		Name: name,
		FS:   fstest.MapFS{},
		hcas: map[string]hca{},
		Live: node.Live{Host: name, Kernel: "6.8.0", RDMAMode: "exclusive", Netdevs: map[string]node.LiveNetdev{}},
	}
}

// Done writes what sysfs does not tell and returns the tree.
func (m *Machine) Done() *Machine {
	b, err := json.MarshalIndent(m.Live, "", "  ")
	if err != nil {
		panic(err)
	}
	m.FS[node.LiveFile] = &fstest.MapFile{Data: append(b, '\n'), Mode: 0o644}
	for _, module := range []string{"ib_core", "ib_ipoib", "ib_uverbs", "mlx5_core", "mlx5_ib", "rdma_cm", "nvidia",
		"nvidia_peermem"} {
		m.File("sys/module/"+module+"/initstate", "live")
	}
	m.File("etc/modprobe.d/ib_core.conf", "options ib_core netns_mode=0")
	return m
}

// File plants a file.
func (m *Machine) File(name, content string) {
	m.FS[name] = &fstest.MapFile{Data: []byte(content + "\n"), Mode: 0o644}
}

// Link plants a symbolic link from one path to another, both from the root, as sysfs has them: relative.
func (m *Machine) Link(from, to string) {
	target, err := filepath.Rel(path.Dir(from), to)
	if err != nil {
		panic(err)
	}
	m.FS[from] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
}

// pci plants a function at the end of a way down the PCI tree, and returns its directory.
func (m *Machine) pci(way, class, id string, numa int) string {
	dir := "sys/devices/" + way
	vendor, dev, _ := strings.Cut(id, ":")
	m.File(dir+"/class", class)
	m.File(dir+"/vendor", "0x"+vendor)
	m.File(dir+"/device", "0x"+dev)
	m.File(dir+"/numa_node", fmt.Sprint(numa))
	m.File(dir+"/local_cpulist", map[int]string{0: "0-47,96-143", 1: "48-95,144-191"}[numa])
	m.Link("sys/bus/pci/devices/"+path.Base(way), dir)
	m.Link(dir+"/subsystem", "sys/bus/pci")
	return dir
}

// VPD plants the vital product data of a function, as cards of NVIDIA have it: a name, and read-only keys of which V3
// is the card's UUID.
func (m *Machine) VPD(dir, uuid string) {
	item := func(tag byte, b string) string { return string([]byte{tag, byte(len(b)), byte(len(b) >> 8)}) + b }
	keys := ""
	for _, k := range [][2]string{{"PN", "900-9X81E-00EX-DT0"}, {"SN", "MT2525J0"}, {"V3", uuid}, {"RV", "\x10"}} {
		keys += k[0] + string([]byte{byte(len(k[1]))}) + k[1]
	}
	b := item(0x82, "NVIDIA Dual ConnectX-8 SuperNIC C8280Z Mezzanine Board") + item(0x90, keys) + "\x78"
	m.FS[dir+"/vpd"] = &fstest.MapFile{Data: []byte(b), Mode: 0o600}
}

func (m *Machine) gpu(way, id string, numa int) { m.pci(way, "0x030200", id, numa) }

// hca is one RDMA device with its only port.
type hca struct {
	name, way, id, fw string
	sf                string // of a subfunction on the PCI function at the end of the way: mlx5_core.sf.9
	numa              int
	serial            int // makes GUIDs, LIDs and addresses differ
	layer             string
	state, phys, rate string
	sm                int
	netdev            string
	driver            string // of the PCI function; empty: mlx5_core
	bare              bool   // the netdev is another function's
	addrs             []string
	speed, width      string
}

const (
	active, down = "4: ACTIVE", "1: DOWN"
	linkUp, poll = "5: LinkUp", "2: Polling"
)

func (m *Machine) hca(h hca) {
	m.hcas[h.name], m.order = h, append(m.order, h.name)
	dir := "sys/devices/" + path.Join(h.way, h.sf)
	if h.sf == "" {
		m.pci(h.way, "0x020700", h.id, h.numa)
	} else {
		m.Link("sys/bus/auxiliary/devices/"+h.sf, dir)
		m.Link(dir+"/subsystem", "sys/bus/auxiliary")
	}
	m.Link(dir+"/driver", "sys/bus/pci/drivers/"+cmp.Or(h.driver, "mlx5_core"))
	if h.driver == "" {
		m.File(dir+"/sriov_numvfs", "0")
		m.File(dir+"/sriov_totalvfs", "16")
	}
	if h.speed != "" {
		m.File(dir+"/current_link_speed", h.speed+" PCIe")
		m.File(dir+"/max_link_speed", h.speed+" PCIe")
		m.File(dir+"/current_link_width", h.width)
		m.File(dir+"/max_link_width", "16")
	}
	ib := dir + "/infiniband/" + h.name
	guid := fmt.Sprintf("a088:c203:00fa:%04x", h.serial)
	m.File(ib+"/node_guid", guid)
	m.File(ib+"/fw_ver", h.fw)
	if h.driver == "" {
		m.File(ib+"/board_id", "MT_0000000223")
	}
	m.FS[ib+"/device"] = &fstest.MapFile{Data: []byte("../../../" + path.Base(dir)), Mode: fs.ModeSymlink | 0o777}
	m.Link("sys/class/infiniband/"+h.name, ib)
	port := ib + "/ports/1"
	m.File(port+"/link_layer", h.layer)
	m.File(port+"/state", h.state)
	m.File(port+"/phys_state", h.phys)
	m.File(port+"/rate", h.rate)
	m.File(port+"/lid", "0x0")
	m.File(port+"/sm_lid", "0x0")
	switch h.layer {
	case "InfiniBand":
		if h.state == active {
			m.File(port+"/lid", fmt.Sprintf("0x%x", h.serial))
			m.File(port+"/sm_lid", fmt.Sprintf("0x%x", h.sm))
		}
		m.File(port+"/gids/0", "fe80:0000:0000:0000:"+guid)
		m.File(port+"/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000")
		m.File(port+"/pkeys/0", "0xffff")
		m.File(port+"/pkeys/1", "0x0000")
	case "Ethernet":
		m.File(port+"/pkeys/0", "0xffff")
		m.gids(port, &h)
	default: // GIDs of no RoCE
		m.File(port+"/pkeys/0", "0xffff")
		m.File(port+"/gids/0", "fe80:0000:0000:0000:"+guid)
	}
	if h.bare {
		dir = m.pci(h.way[:len(h.way)-1]+"7", "0x020000", "1af4:1000", h.numa)
	}
	if h.netdev != "" && !strings.HasPrefix(h.netdev, "bond") {
		m.netdev(dir, &h, "")
	}
}

// Soft plants a soft RDMA device (rxe) on an interface, as "rdma link add NAME type rxe netdev NETDEV" makes it.
func (m *Machine) Soft(name, netdev string) {
	dir := "sys/devices/virtual/infiniband/" + name
	m.Link("sys/class/infiniband/"+name, dir)
	m.File(dir+"/node_guid", "505c:47ff:fe00:0200")
	port := dir + "/ports/1"
	for file, content := range map[string]string{
		"link_layer": "Ethernet", "state": active, "phys_state": linkUp, "rate": "2.5 Gb/sec (1X SDR)",
		"gids/0": "fe80:0000:0000:0000:505c:47ff:fe00:0200", "gid_attrs/types/0": "RoCE v2",
		"gid_attrs/ndevs/0": netdev,
	} {
		m.File(port+"/"+file, content)
	}
	if m.Live.RDMANetdevs == nil {
		m.Live.RDMANetdevs = map[string]string{}
	}
	m.Live.RDMANetdevs[name+":1"] = netdev
}

// gids plants the table of a RoCE port: each address as RoCE v1 and v2, the link-local one first.
func (m *Machine) gids(port string, h *hca) {
	list := []string{fmt.Sprintf("fe80:0000:0000:0000:a288:c2ff:fefa:%04x", h.serial)}
	for _, a := range h.addrs {
		b := netip.MustParsePrefix(a).Addr().As16()
		var g []string
		for i := 0; i < 16; i += 2 {
			g = append(g, fmt.Sprintf("%02x%02x", b[i], b[i+1]))
		}
		list = append(list, strings.Join(g, ":"))
	}
	for i, g := range list {
		for j, kind := range []string{"IB/RoCE v1", "RoCE v2"} {
			n := fmt.Sprint(2*i + j)
			m.File(port+"/gids/"+n, g)
			m.File(port+"/gid_attrs/types/"+n, kind)
			m.File(port+"/gid_attrs/ndevs/"+n, h.netdev)
		}
	}
}

func (m *Machine) netdev(dir string, h *hca, master string) {
	d := dir + "/net/" + h.netdev
	m.Link("sys/class/net/"+h.netdev, d)
	m.Link(d+"/device", dir)
	m.File(d+"/mtu", "4092")
	m.File(d+"/dev_port", "0")
	m.File(d+"/operstate", map[bool]string{true: "up", false: "down"}[h.state == active])
	if h.layer == "InfiniBand" {
		m.File(d+"/type", "32")
		m.File(d+"/address",
			fmt.Sprintf("00:00:10:29:fe:80:00:00:00:00:00:00:a0:88:c2:03:00:fa:%02x:%02x", h.serial>>8, h.serial&255))
	} else {
		m.File(d+"/type", "1")
		m.File(d+"/mtu", "9000")
		m.File(d+"/address", fmt.Sprintf("a0:88:c2:fa:%02x:%02x", h.serial>>8, h.serial&255))
	}
	if master != "" {
		m.Link(d+"/master", "sys/devices/virtual/net/"+master)
	}
	live := node.LiveNetdev{}
	for _, a := range h.addrs {
		live.Addrs = append(live.Addrs, netip.MustParsePrefix(a))
	}
	m.Live.Netdevs[h.netdev] = live
}

// bond plants a bonded dual-port card that carries the node's own network, and its one RDMA device.
func (m *Machine) bond(h hca, mode, addr string, members ...string) {
	h.layer, h.state, h.phys, h.netdev, h.addrs = "Ethernet", active, linkUp, "bond0", []string{addr}
	m.hca(h)
	for i, name := range members {
		way := h.way[:len(h.way)-1] + fmt.Sprint(i)
		member := h
		member.netdev, member.addrs, member.serial = name, nil, h.serial+i
		m.netdev(m.pci(way, "0x020000", h.id, h.numa), &member, "bond0")
	}
	d := "sys/devices/virtual/net/bond0"
	m.Link("sys/class/net/bond0", d)
	m.File(d+"/type", "1")
	m.File(d+"/mtu", "1500")
	m.File(d+"/operstate", "up")
	m.File(d+"/address", fmt.Sprintf("a0:88:c2:fa:00:%02x", h.serial))
	m.File(d+"/bonding/mode", mode)
	m.File(d+"/bonding/slaves", strings.Join(members, " "))
	m.File(d+"/bonding/active_slave", members[0])
	m.Live.Netdevs["bond0"] = node.LiveNetdev{Addrs: []netip.Prefix{netip.MustParsePrefix(addr)}, Default: true}
}

// Plant writes the tree below a directory.
func (m *Machine) Plant(dir string) error {
	return fs.WalkDir(m.FS, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		to := filepath.Join(dir, name)
		switch f := m.FS[name]; {
		case e.IsDir():
			return os.MkdirAll(to, 0o755)
		case f.Mode&fs.ModeSymlink != 0:
			return os.Symlink(string(f.Data), to)
		default:
			return os.WriteFile(to, f.Data, 0o644)
		}
	})
}
