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
