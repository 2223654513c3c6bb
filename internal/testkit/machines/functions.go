package machines

import "fmt"

// VFs has one InfiniBand card with 256 virtual functions, of which the last two are Down, and a second one with two.
func VFs() *Machine {
	m := newMachine("vfs")
	for card, functions := range []int{256, 2} {
		bus := 0x18 + 0x10*card
		root := fmt.Sprintf("pci0000:%02x/0000:%02x:01.0", bus-1, bus-1)
		pf := hca{
			name: fmt.Sprintf("mlx5_%d", card), way: fmt.Sprintf("%s/0000:%02x:00.0", root, bus), id: "15b3:1021",
			fw: "28.39.1002", numa: card, serial: 0x10 + card, layer: "InfiniBand", state: active, phys: linkUp,
			rate: "400 Gb/sec (4X NDR)", sm: 1, netdev: fmt.Sprintf("ibs%d", card), speed: "32.0 GT/s", width: "16",
		}
		m.hca(pf)
		m.gpu(fmt.Sprintf("%s/0000:%02x:00.0", root, bus+7), "10de:2329", card)
		at := "sys/devices/" + pf.way
		m.File(at+"/sriov_numvfs", fmt.Sprint(functions))
		for i := range functions {
			vf, n := pf, i+2 // after the two functions of the card itself
			vf.way = fmt.Sprintf("%s/0000:%02x:%02x.%d", root, bus+n/256, n%256/8, n%8)
			vf.name, vf.netdev = fmt.Sprintf("mlx5_%d", 2+i+256*card), fmt.Sprintf("ibs%dv%d", card, i)
			vf.id, vf.serial = "15b3:101e", 0x100+0x200*card+i
			if i >= 254 {
				vf.state, vf.phys = down, poll
			}
			m.hca(vf)
			m.Link("sys/devices/"+vf.way+"/physfn", at)
		}
	}
	return m.Done()
}

// SFs has two RoCE cards with a subfunction each, whose numbers are in the other order than the places of the cards as
// texts. The interface of the second one is down, as that of an idle function is.
func SFs() *Machine {
	m := newMachine("sfs")
	for card, sf := range []string{"mlx5_core.sf.9", "mlx5_core.sf.10"} {
		bus := []int{0x3b, 0x5e}[card]
		h := hca{
			name: fmt.Sprintf("mlx5_%d", card), way: fmt.Sprintf("pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0", bus-1,
				bus-1, bus), id: "15b3:a2dc", fw: "32.39.1002", numa: card, serial: 0xa0 + card, layer: "Ethernet",
			state: active, phys: linkUp, rate: "200 Gb/sec (2X NDR)", netdev: fmt.Sprintf("p%d", card),
		}
		m.hca(h)
		h.sf, h.name, h.netdev, h.serial = sf, fmt.Sprintf("mlx5_%d", 3-card), fmt.Sprintf("sf%d", card), 0xb0+card
		if card == 1 {
			h.state, h.phys = down, "3: Disabled"
		}
		m.hca(h)
		m.NetFile(h.netdev, "flags", map[string]string{active: "0x1003", down: "0x1002"}[h.state])
	}
	return m.Done()
}
