package node

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Read puts the picture together. root is the root of the machine's file system, or of a recorded one: sysfs is looked
// for under sys/. What can't be read is left out and named in Problems; without any RDMA device the picture has none.
func Read(root fs.FS, live *Live) (*Node, error) {
	n := &Node{
		Name:     live.Host,
		Kernel:   live.Kernel,
		RDMAMode: live.RDMAMode,
		HCAs:     []HCA{},
		Users:    live.Users,
		Kept:     live.Kept,
		Problems: slices.Clone(live.Problems),
	}
	t := tree{root, &n.Problems}
	if t.real("sys/class") == "" {
		return nil, fmt.Errorf(
			"read node: no sysfs under sys/class: %w; --root wants the root directory of a machine, or what "+
				"discover --record has written",
			fs.ErrNotExist,
		)
	}
	n.Netdevs = t.netdevs(live)
	for _, name := range slices.Sorted(maps.Keys(live.Netdevs)) {
		if live.Netdevs[name].Default && n.Primary == "" {
			n.Primary = name
		}
	}
	const functions = "sys/" + sysFunctions
	n.GPUs = t.gpus(functions)
	for _, name := range t.names("sys/class/infiniband") {
		if dir := t.real(path.Join("sys/class/infiniband", name)); dir != "" {
			n.HCAs = append(n.HCAs, t.hca(name, dir))
		}
	}
	n.away(t, live)
	direct := t.dataDirects(functions)
	for i := range n.HCAs {
		h := &n.HCAs[i]
		n.faces(h, live)
		n.mtus(h)
		h.DataDirect = t.dataDirect(functions, direct, cmp.Or(h.Parent, h.PCI))
		h.GPUs = nearest(h.Place(), n.GPUs)
	}
	slices.SortFunc(n.HCAs, func(a, b HCA) int {
		return cmp.Or(a.slot().Compare(b.slot()), cmp.Compare(a.Kind, b.Kind), a.Location().Compare(b.Location()),
			cmp.Compare(a.Name, b.Name))
	})
	return n, nil
}

// Location is where the HCA is. A compact picture has a PCI address once.
func (h *HCA) Location() device.Location {
	if h.Address.IsZero() {
		return device.LocationOnPCI(h.PCI)
	}
	return device.Location{Address: h.Address, PCI: h.PCI}
}

// slot is where its PF is, or the HCA itself without one.
func (h *HCA) slot() device.Location {
	if pf := cmp.Or(h.Parent, h.PCI); pf != "" {
		return device.LocationOnPCI(pf)
	}
	return device.Location{Address: h.Address}
}

// hca reads one RDMA device; dir is its real directory.
func (t tree) hca(name, dir string) HCA {
	h := HCA{Name: name, Kind: "PF", NUMA: -1, Firmware: t.text(dir, "fw_ver"), Board: t.text(dir, "board_id")}
	h.NodeGUID, _ = device.ParseGUID(t.text(dir, "node_guid"))
	t.hardware(&h, t.real(path.Join(dir, "device")))
	for _, p := range t.names(path.Join(dir, "ports")) {
		port := t.port(path.Join(dir, "ports", p), p)
		port.qos(t, name, dir)
		h.Ports = append(h.Ports, port)
	}
	slices.SortFunc(h.Ports, func(a, b Port) int { return cmp.Compare(a.Number, b.Number) })
	return h
}

// hardware reads what the device sits on: a PCI function, or an auxiliary device on one.
func (t tree) hardware(h *HCA, dir string) {
	if dir == "" {
		h.Kind = topology.Soft // rxe and siw have no hardware
		return
	}
	h.Address = t.address(dir)
	h.Path = chain(dir)
	if len(h.Path) > 0 {
		h.PCI = h.Path[len(h.Path)-1]
	}
	pci := dir
	for pci != "." && path.Base(pci) != h.PCI {
		pci = path.Dir(pci)
	}
	switch {
	case h.PCI == "": // a platform device
		h.Driver, h.NUMA = t.target(path.Join(dir, "driver")), t.numa(dir)
		return
	case h.Address.Bus == "auxiliary":
		h.Kind, h.Parent = "SF", h.PCI
	default:
		if pf := t.target(path.Join(pci, "physfn")); pf != "" {
			h.Kind, h.Parent = "VF", pf
		}
	}
	h.Driver = t.target(path.Join(pci, "driver"))
	h.NUMA = t.numa(dir, pci)
	h.ID = strings.TrimPrefix(t.text(pci, "vendor"), "0x") + ":" + strings.TrimPrefix(t.text(pci, "device"), "0x")
	h.Model = models[h.ID]
	h.VFs, h.MaxVFs = t.number(0, pci, "sriov_numvfs"), t.number(0, pci, "sriov_totalvfs")
	h.CPUs = t.text(pci, "local_cpulist")
	h.PCIe, h.Slower = t.pcie(pci)
}

// address is the bus address of a device's directory, as the plugin knows it.
func (t tree) address(dir string) device.Address {
	if bus := t.target(path.Join(dir, "subsystem")); bus != "" {
		return device.Address{Bus: bus, Name: path.Base(dir)}
	}
	a, err := device.ParseAddress(path.Base(dir))
	if err != nil {
		return device.Address{}
	}
	return a
}

// pcie tells the negotiated speed, and the possible one if that is higher: a card in the wrong slot, or one that has
// trained down, costs bandwidth without any error.
func (t tree) pcie(pci string) (now, slower string) {
	speed, width := t.text(pci, "current_link_speed"), t.text(pci, "current_link_width")
	if speed == "" || width == "" || width == "0" || strings.HasPrefix(speed, "Unknown") {
		return "", ""
	}
	speed = strings.TrimSuffix(speed, " PCIe")
	now = speed + " x" + width
	maxSpeed, maxWidth := strings.TrimSuffix(t.text(pci, "max_link_speed"), " PCIe"), t.text(pci, "max_link_width")
	if maxSpeed != "" && maxWidth != "" && (maxSpeed != speed || maxWidth != width) {
		slower = maxSpeed + " x" + maxWidth
	}
	return now, slower
}

func (t tree) netdevs(live *Live) (out []Netdev) {
	for _, name := range t.names("sys/class/net") {
		dir := t.real(path.Join("sys/class/net", name))
		if dir == "" || name == "bonding_masters" {
			continue
		}
		d := Netdev{
			Name:  name,
			Type:  t.number(0, dir, "type"),
			MTU:   t.number(0, dir, "mtu"),
			State: t.text(dir, "operstate"),
			HWAddr: t.text(
				dir,
				"address",
			),
			Down:   t.down(dir),
			Port:   t.number(0, dir, "dev_port"),
			Master: t.target(path.Join(dir, "master")),
			Parent: t.text(dir, "parent"),
		}
		if hw := t.real(path.Join(dir, "device")); hw != "" {
			d.Address = t.address(hw)
			if c := chain(hw); len(c) > 0 {
				d.PCI = c[len(c)-1]
			}
		}
		if mode := t.text(dir, "bonding/mode"); mode != "" {
			mode, _, _ = strings.Cut(mode, " ") // "active-backup 1"
			d.Bond = &Bond{
				Mode:    mode,
				Members: strings.Fields(t.text(dir, "bonding/slaves")),
				Active:  t.text(dir, "bonding/active_slave"),
			}
		}
		if d.Address.IsZero() && d.Bond == nil && d.Type != 32 {
			continue // loopback, veth, bridges: no part of this picture
		}
		if l, ok := live.Netdevs[name]; ok {
			d.AltNames, d.Addrs, d.Default, d.DCB = l.AltNames, l.Addrs, l.Default, l.DCB
		}
		out = append(out, d)
	}
	return out
}

// down tells whether the administrator has an interface down; false if sysfs does not tell.
func (t tree) down(dir string) bool {
	flags, err := strconv.ParseUint(strings.TrimPrefix(t.text(dir, "flags"), "0x"), 16, 32)
	return err == nil && uint32(flags)&device.FlagUp == 0
}

// gpus finds accelerators by their PCI class: 3D and VGA controllers of NVIDIA and AMD, and processing accelerators.
// functions is the directory with all of them.
func (t tree) gpus(functions string) (out []GPU) {
	for _, addr := range t.names(functions) {
		dir := t.real(path.Join(functions, addr))
		if dir == "" {
			continue
		}
		class, vendor := t.text(dir, "class"), strings.TrimPrefix(t.text(dir, "vendor"), "0x")
		display := strings.HasPrefix(class, "0x03") && (vendor == "10de" || vendor == "1002")
		if !display && !strings.HasPrefix(class, "0x1200") || t.target(path.Join(dir, "physfn")) != "" {
			continue
		}
		g := GPU{Index: len(out), PCI: addr, ID: vendor + ":" + strings.TrimPrefix(t.text(dir, "device"), "0x"),
			NUMA: t.numa(dir), CPUs: t.text(dir, "local_cpulist"), Path: chain(dir)}
		g.Model = models[g.ID]
		out = append(out, g)
	}
	return out
}
