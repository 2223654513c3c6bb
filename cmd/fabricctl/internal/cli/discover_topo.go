package cli

import (
	"fmt"
	"strconv"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// topo prints how far GPUs and HCAs are from each other, as nvidia-smi topo -m does, with every HCA.
func (d *discoverer) topo(n *node.Node) {
	type device struct {
		name string
		at   node.Place
		cpus string
	}
	var list []device
	for i := range n.GPUs {
		g := &n.GPUs[i]
		list = append(list, device{"GPU" + strconv.Itoa(g.Index), g.Place(), g.CPUs})
	}
	var legend []string
	nics := 0
	for _, b := range n.Bundles() {
		h := b.HCAs[0]
		if b.Many() { // they are where the PF is
			legend = append(legend, fmt.Sprintf("%s (%s) are where that is", b.Name(), b.PCI()))
			continue
		}
		name := "NIC" + strconv.Itoa(nics)
		nics++
		list = append(list, device{name, h.Place(), h.CPUs})
		at := ""
		if h.DataDirect != nil {
			at = ", where its Data Direct function " + h.DataDirect.PCI + " is"
		}
		legend = append(legend, name+": "+h.Name+at)
	}
	if len(list) == 0 {
		d.stdout.Println("no RDMA device and no GPU")
		return
	}
	header := []string{""}
	for _, x := range list {
		header = append(header, x.name)
	}
	t := newTable(append(header, "CPU Affinity", "NUMA Affinity")...)
	for i, x := range list {
		row := []any{x.name}
		for j, y := range list {
			switch {
			case i == j:
				row = append(row, " X ")
			case len(x.at.Path) == 0 || len(y.at.Path) == 0: // in a pod, or no hardware
				row = append(row, "")
			default:
				row = append(row, x.at.Distance(y.at).String())
			}
		}
		t.add(append(row, x.cpus, number(x.at.NUMA))...)
	}
	t.print(&d.console)
	d.stdout.Printf("%s", quote.Raw(`
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the interconnect between NUMA nodes
  NODE = Connection traversing PCIe as well as the interconnect between PCIe host bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe host bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe host bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NVLinks between GPUs are not in sysfs: nvidia-smi topo -m shows them
`))
	if len(legend) > 0 {
		d.stdout.Printf("\nNIC Legend:\n\n")
	}
	for _, l := range legend {
		d.stdout.Printf("  %s\n", l)
	}
}
