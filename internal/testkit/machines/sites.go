package machines

import "fmt"

// Sites returns nodes of sites whose networks are not as those of All: to be looked at together.
func Sites() []*Machine {
	return made("rack1", "rack2", "v100-7", "v100-3")
}

// Rack has four RoCE rails in subnets of its rack, which routers connect to those of other racks, and eight GPUs.
func Rack(name string, number int) *Machine {
	m := newMachine(name)
	for i := range 4 {
		root := 0x20 + 0x20*i
		below := fmt.Sprintf("pci0000:%x/0000:%x:01.0/0000:%x:00.0", root, root, root+1)
		m.hca(
			hca{
				name:   fmt.Sprintf("mlx5_%d", i),
				way:    fmt.Sprintf("%s/0000:%x:00.0/0000:%x:00.0", below, root+2, root+3),
				id:     "15b3:1021",
				fw:     "28.39.1002",
				numa:   i / 2,
				serial: 0x100*number + i,
				layer:  "Ethernet",
				state:  active,
				phys:   linkUp,
				rate:   "400 Gb/sec (4X NDR)",
				netdev: fmt.Sprintf("rail%d", i),
				addrs:  []string{fmt.Sprintf("10.%d.%d.11/24", number, i)},
			},
		)
		for g := range 2 {
			m.gpu(fmt.Sprintf("%s/0000:%x:%02x.0/0000:%x:00.0", below, root+2, 4+g, root+4+g), "10de:2330", i/2)
		}
	}
	m.Live.RDMAMode = "exclusive"
	return m.Done()
}

// Vendors has an adapter of each of six drivers, as no one node has them. Names, drivers, ids and link layers are those
// of the drivers' sources (Linux 6.12: drivers/infiniband/hw/{bnxt_re,irdma,erdma,mana,efa}; 6.18: ionic): irdma is
// ice's, bnxt_re is bnxt_en's; erdma finds its interface, another function's, by its hardware address; efa has neither
// an interface nor a link layer.
func Vendors() *Machine {
	m := newMachine("vendors")
	for i, h := range []hca{
		{name: "bnxt_re0", driver: "bnxt_en", id: "14e4:1760", rate: "400 Gb/sec (4X NDR)", netdev: "enp33s0np0"},
		{name: "irdma0", driver: "ice", id: "8086:1592", rate: "100 Gb/sec (4X EDR)", netdev: "enp65s0"},
		{name: "ionic_0", driver: "ionic", id: "1dd8:1002", rate: "400 Gb/sec (4X NDR)", netdev: "enp97s0"},
		{name: "erdma_0", driver: "erdma", id: "1ded:107f", rate: "200 Gb/sec (4X HDR)", netdev: "eth1", bare: true},
		{name: "mana_0", driver: "mana", id: "1414:00ba", rate: "200 Gb/sec (4X HDR)", netdev: "enP30832s1"},
		{name: "efa_0", driver: "efa", id: "1d0f:efa2", rate: "100 Gb/sec (4X EDR)", layer: "Unknown"},
	} {
		h.way = fmt.Sprintf("pci0000:%[1]x/0000:%[1]x:01.0/0000:%[2]x:00.0", 0x20*(i+1), 0x20*(i+1)+1)
		h.state, h.phys, h.serial = active, linkUp, 0xe1+i
		if h.layer == "" {
			h.layer, h.addrs = "Ethernet", []string{fmt.Sprintf("10.9.%d.11/24", i)}
		}
		m.hca(h)
	}
	m.Live.RDMAMode, m.Live.Kernel = "exclusive", "6.1.0-31-amd64"
	return m.Done()
}

// Failover is a V100 that names a subnet manager at another LID than others of its fabric: recorded before or after the
// manager has moved.
func Failover(name string, sm int) *Machine {
	m := newMachine(name)
	for i := range 2 {
		m.hca(
			hca{
				name:   fmt.Sprintf("mlx5_%d", i),
				way:    fmt.Sprintf("pci0000:3a/0000:3a:00.0/0000:3b:00.%d", i),
				id:     "15b3:1017",
				fw:     "16.35.2000",
				numa:   0,
				serial: 0x41 + 0x10*sm + i,
				layer:  "InfiniBand",
				state:  active,
				phys:   linkUp,
				rate:   "100 Gb/sec (4X EDR)",
				sm:     sm,
				netdev: fmt.Sprintf("ib%d", i),
			},
		)
	}
	return m.Done()
}
