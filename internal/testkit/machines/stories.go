package machines

import "fmt"

// All returns every machine, by name.
func All() []*Machine {
	return made("h20", "v100", "a100", "a100-2", "roce", "gb200", "plain")
}

// makers make each machine by its name: to make all for one of them takes most of a test's time.
var makers = map[string]func() *Machine{
	"h20": H20, "v100": V100, "roce": RoCE, "gb200": GB200, "gb300": GB300, "vendors": Vendors,
	"plain": Plain, "vfs": VFs, "sfs": SFs,
	"a100":   func() *Machine { return A100("a100", 0) },
	"a100-2": func() *Machine { return A100("a100-2", 1) },
	"rack1":  func() *Machine { return Rack("rack1", 1) }, "rack2": func() *Machine { return Rack("rack2", 2) },
	"v100-7": func() *Machine { return Failover("v100-7", 7) },
	"v100-3": func() *Machine { return Failover("v100-3", 3) },
}

// made makes machines in an order.
func made(names ...string) (out []*Machine) {
	for _, name := range names {
		out = append(out, Named(name))
	}
	return out
}

// Named returns one of All or Sites, VFs or SFs, by its name, or nil.
func Named(name string) *Machine {
	if maker := makers[name]; maker != nil {
		return maker()
	}
	return nil
}

// H20 has eight GPUs, four InfiniBand rails, two ports that are down, and a bond for everything else.
func H20() *Machine {
	m := newMachine("h20")
	roots := []struct {
		root, sw string
		numa     int
	}{{"pci0000:15", "15", 0}, {"pci0000:48", "48", 0}, {"pci0000:89", "89", 1}, {"pci0000:c0", "c0", 1}}
	for i, r := range roots {
		switchUp := fmt.Sprintf("%s/0000:%s:01.0/0000:%x:00.0", r.root, r.sw, 0x16+i*0x33)
		bus := 0x17 + i*0x33
		way := func(port int) string {
			return fmt.Sprintf("%s/0000:%x:%02x.0/0000:%x:00.0", switchUp, bus, port, bus+1+port)
		}
		name := []string{"mlx5_0", "mlx5_3", "mlx5_4", "mlx5_7"}[i]
		m.hca(
			hca{
				name:   name,
				way:    way(0),
				id:     "15b3:1021",
				fw:     "28.39.1002",
				numa:   r.numa,
				serial: 0x11 + i,
				layer:  "InfiniBand",
				state:  active,
				phys:   linkUp,
				rate:   "400 Gb/sec (4X NDR)",
				sm:     1,
				netdev: fmt.Sprintf("ibs%d", 108+2*i),
				speed:  "32.0 GT/s",
				width:  "16",
			},
		)
		m.gpu(way(1), "10de:2329", r.numa)
		m.gpu(way(2), "10de:2329", r.numa)
	}
	m.hca(
		hca{
			name:   "mlx5_5",
			way:    "pci0000:a0/0000:a0:01.0/0000:a1:00.0",
			id:     "15b3:101b",
			fw:     "20.39.1002",
			numa:   1,
			serial: 0x21,
			layer:  "InfiniBand",
			state:  down,
			phys:   poll,
			rate:   "10 Gb/sec (4X SDR)",
			netdev: "ibp161s0f0",
		},
	)
	m.hca(
		hca{
			name:   "mlx5_6",
			way:    "pci0000:a0/0000:a0:01.0/0000:a1:00.1",
			id:     "15b3:101b",
			fw:     "20.39.1002",
			numa:   1,
			serial: 0x22,
			layer:  "InfiniBand",
			state:  down,
			phys:   poll,
			rate:   "10 Gb/sec (4X SDR)",
			netdev: "ibp161s0f1",
		},
	)
	m.bond(
		hca{
			name:   "mlx5_bond_0",
			way:    "pci0000:30/0000:30:01.0/0000:31:00.0",
			id:     "15b3:101d",
			fw:     "22.39.1002",
			numa:   0,
			serial: 0x31,
			rate:   "25 Gb/sec (1X EDR)",
		},
		"802.3ad 4",
		"10.20.0.11/24",
		"ens31f0np0",
		"ens31f1np1",
	)
	return m.Done()
}

// V100 has one card with two ports, each at a switch of its own.
func V100() *Machine {
	m := newMachine("v100")
	for i := range 2 {
		m.hca(
			hca{
				name:   fmt.Sprintf("mlx5_%d", i),
				way:    fmt.Sprintf("pci0000:3a/0000:3a:00.0/0000:3b:00.%d", i),
				id:     "15b3:1017",
				fw:     "16.35.2000",
				numa:   0,
				serial: 0x41 + i,
				layer:  "InfiniBand",
				state:  active,
				phys:   linkUp,
				rate:   "100 Gb/sec (4X EDR)",
				sm:     3,
				netdev: fmt.Sprintf("ib%d", i),
			},
		)
	}
	for i := range 4 {
		m.gpu(fmt.Sprintf("pci0000:17/0000:17:00.0/0000:18:00.0/0000:19:%02x.0/0000:%x:00.0", i*4, 0x1a+i),
			"10de:1db5", 0)
	}
	return m.Done()
}

// A100 has two cards of which one port is up, not the same one on each node, and a bond.
func A100(name string, up int) *Machine {
	m := newMachine(name)
	for i := range 2 {
		h := hca{
			name:   fmt.Sprintf("mlx5_%d", i),
			way:    fmt.Sprintf("pci0000:%d0/0000:%d0:03.1/0000:%d1:00.0", 2+i*4, 2+i*4, 2+i*4),
			id:     "15b3:101b",
			fw:     "20.35.1012",
			numa:   i,
			serial: 0x51 + i + 8*up,
			layer:  "InfiniBand",
			state:  down,
			phys:   poll,
			rate:   "10 Gb/sec (4X SDR)",
			netdev: fmt.Sprintf("ibp%ds0", 33+i*64),
		}
		if i == up {
			h.state, h.phys, h.rate, h.sm = active, linkUp, "200 Gb/sec (4X HDR)", 7
		}
		m.hca(h)
		for g := range 4 {
			m.gpu(fmt.Sprintf("pci0000:%d0/0000:%d0:01.1/0000:%d%d:00.0", 2+i*4, 2+i*4, 2+i*4, 4+g), "10de:20b2", i)
		}
	}
	m.bond(
		hca{
			name:   "mlx5_bond_0",
			way:    "pci0000:a0/0000:a0:03.1/0000:a1:00.0",
			id:     "15b3:1015",
			fw:     "14.32.1010",
			numa:   1,
			serial: 0x61 + 8*up,
			rate:   "25 Gb/sec (1X EDR)",
		},
		"active-backup 1",
		fmt.Sprintf("10.30.0.%d/24", 21+up),
		"eno1np0",
		"eno2np1",
	)
	m.Live.RDMAMode = "shared"
	return m.Done()
}

// RoCE has four rails in subnets of their own, which do not reach each other, and bond0 for storage and bootstrap.
func RoCE() *Machine {
	m := newMachine("roce")
	for i := range 4 {
		root := 0x20 + 0x20*i
		m.hca(
			hca{
				name: fmt.Sprintf("mlx5_%d", 2+i),
				way: fmt.Sprintf(
					"pci0000:%x/0000:%x:01.0/0000:%x:00.0/0000:%x:00.0/0000:%x:00.0",
					root,
					root,
					root+1,
					root+2,
					root+3,
				),
				id:     "15b3:1021",
				fw:     "28.37.1014",
				numa:   i / 2,
				serial: 0x71 + i,
				layer:  "Ethernet",
				state:  active,
				phys:   linkUp,
				rate:   "200 Gb/sec (2X NDR)",
				netdev: fmt.Sprintf("xgbe%d", 2+i),
				addrs:  []string{fmt.Sprintf("192.168.%d.11/24", 10+i)},
			},
		)
		for g := range 2 {
			m.gpu(
				fmt.Sprintf(
					"pci0000:%x/0000:%x:01.0/0000:%x:00.0/0000:%x:%02x.0/0000:%x:00.0",
					root,
					root,
					root+1,
					root+2,
					4+g,
					root+4+g,
				),
				"10de:2330",
				i/2,
			)
		}
	}
	m.bond(
		hca{
			name:   "mlx5_bond_0",
			way:    "pci0000:10/0000:10:01.0/0000:11:00.0",
			id:     "15b3:101d",
			fw:     "22.37.1014",
			numa:   0,
			serial: 0x81,
			rate:   "100 Gb/sec (4X EDR)",
		},
		"802.3ad 4",
		"10.40.0.11/22",
		"xgbe0",
		"xgbe1",
	)
	return m.Done()
}

// GB200 has four GPUs and four 400 Gb/s ports on an Arm board, where every device has a PCI domain of its own.
func GB200() *Machine {
	m := newMachine("gb200")
	for i, domain := range []string{"0000", "0002", "0010", "0012"} {
		m.hca(
			hca{
				name: fmt.Sprintf("mlx5_%d", i),
				way: fmt.Sprintf(
					"pci%s:00/%s:00:00.0/%s:01:00.0/%s:02:00.0/%s:03:00.0",
					domain,
					domain,
					domain,
					domain,
					domain,
				),
				id:     "15b3:1021",
				fw:     "28.43.2026",
				numa:   i / 2,
				serial: 0x91 + i,
				layer:  "InfiniBand",
				state:  active,
				phys:   linkUp,
				rate:   "400 Gb/sec (4X NDR)",
				sm:     1,
				netdev: fmt.Sprintf("ibP%ss3", domain),
				speed:  "32.0 GT/s",
				width:  "16",
			},
		)
	}
	for i, domain := range []string{"0008", "0009", "0018", "0019"} {
		m.gpu(fmt.Sprintf("pci%s:00/%s:00:00.0/%s:01:00.0", domain, domain, domain), "10de:2941", i/2)
	}
	m.Live.RDMAMode = "shared"
	return m.openDriver("570.124.06  Release Build  (dvs-builder@U22-I3-AE18-09-6)  Wed Feb 26 01:59:48 UTC 2025")
}

// GB300 has four GPUs and four ConnectX-8 on an Arm board. Each HCA meets its GPU by its Data Direct function. The PCI
// addresses and the tree are those of NVIDIA's guide to GPUDirect RDMA on Grace Blackwell with CX8, and of rdma_topo of
// rdma-core, which names the bridges.
func GB300() *Machine {
	m := newMachine("gb300")
	for i, at := range []struct{ nic, gpu string }{
		{"0000", "0009"}, {"0002", "0008"}, {"0010", "0019"}, {"0012", "0018"},
	} {
		way := fmt.Sprintf("pci%[1]s:00/%[1]s:00:00.0/%[1]s:01:00.0/%[1]s:02:00.0/%[1]s:03:00.0", at.nic)
		m.hca(hca{
			name: fmt.Sprintf("mlx5_%d", i), way: way, id: "15b3:1023", fw: "40.46.1006", numa: i / 2, serial: 0xb1 + i,
			layer: "InfiniBand", state: active, phys: linkUp, rate: "800 Gb/sec (4X XDR)", sm: 1,
			netdev: "ibP" + at.nic + "s3", speed: "64.0 GT/s", width: "16",
		})
		uuid := fmt.Sprintf("c6e1f4f0c8a0f0118000a088c20300b%d", i)
		m.VPD("sys/devices/"+way, uuid)
		root := fmt.Sprintf("pci%[1]s:00/%[1]s:00:00.0/%[1]s:01:00.0/", at.gpu)
		m.VPD(m.pci(root+fmt.Sprintf("%[1]s:02:00.0/%[1]s:03:00.0", at.gpu), "0x080100", "15b3:2100", i/2), uuid)
		m.gpu(root+fmt.Sprintf("%[1]s:02:03.0/%[1]s:04:00.0/%[1]s:05:00.0/%[1]s:06:00.0", at.gpu), "10de:31c2", i/2)
	}
	m.Live.RDMAMode = "exclusive"
	return m.openDriver("580.95.05  Release Build  (dvs-builder@U22-I3-AM02-24-3)  Tue Sep 23 09:55:41 UTC 2025")
}

// openDriver ends a machine with NVIDIA's open kernel module for Arm, which exports GPU memory as DMA-BUF.
func (m *Machine) openDriver(version string) *Machine {
	m.Done()
	m.Without("sys/module/nvidia_peermem")
	m.File("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  "+version)
	return m
}

// Plain has no RDMA at all.
func Plain() *Machine {
	m := newMachine("plain")
	m.Live.RDMAMode = ""
	m.File("sys/class/net/.keep", "")
	m.pci("pci0000:00/0000:00:02.0", "0x030000", "1a03:2000", -1)
	m.Done()
	for name := range m.FS {
		if len(name) > 10 && name[:10] == "sys/module" {
			delete(m.FS, name)
		}
	}
	return m
}
