package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/draw"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/redact"
	"github.com/fabric-cni/fabric-cni/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

func discoverCommand(a *app) *cobra.Command {
	d := &discoverer{app: a}
	var format, record string
	var cluster bool
	c := &cobra.Command{
		Use:   "discover [--cluster [NODE]]",
		Short: "Show HCAs, ports, interfaces, GPUs, and which ports belong together",
		Long: `discover shows in one table what ibdev2netdev, ibstat, mst status, lspci and nvidia-smi topo tell one by
one, groups the ports into fabrics and rails, and says why. It reads sysfs and netlink, needs no other
program, and changes nothing.

With --record it writes what it has read to a file, which --root of any command reads on another machine. The file has
names, addresses and GUIDs of the node, and what doctor host asks for.

With --cluster it shows what the FabricNodes of the cluster say, through kubectl: of all nodes, or of the one that is
named.`,
		Example: `  fabricctl discover
  fabricctl discover -o wide
  fabricctl discover -o html >node.html
  fabricctl discover --cluster
  fabricctl discover --record node.tar.gz
  fabricctl discover --root node.tar.gz -o json | jq .fabrics`,
		Args: argsBetween(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("output", format, "table", "wide", "json", "yaml", "svg", "html"); err != nil {
				return err
			}
			switch {
			case cluster && (record != "" || a.root != "/"):
				return fmt.Errorf("%w: --cluster, --record and --root exclude each other", errUsage)
			case cluster:
				return d.cluster(cmd.Context(), args, format)
			case len(args) > 0:
				return fmt.Errorf("%w: unexpected argument %q: the name of a node is for --cluster", errUsage, args[0])
			}
			if record != "" {
				return d.record(record)
			}
			n, err := a.node()
			if err != nil {
				return err
			}
			return d.print(n, format)
		},
	}
	c.Flags().StringVarP(&format, "output", "o", "table", "table, wide, json, yaml, svg or html")
	c.Flags().BoolVar(&cluster, "cluster", false, "what the FabricNodes of the cluster say, through kubectl")
	c.Flags().StringVar(&record, "record", "",
		"write what was read to this file (tar.gz) instead; - for standard output")
	return c
}

// discoverer is the work of discover.
type discoverer struct{ *app }

// discovery is the output of discover as JSON and YAML.
type discovery struct {
	Node *node.Node `json:"node"`
	topology.Fabrics
}

// record writes a recording of the machine, with what doctor host reads.
func (d *discoverer) record(name string) error {
	tree, err := d.tree()
	if err != nil {
		return err
	}
	r, n, err := node.Record(tree, d.store())
	if err != nil {
		return err
	}
	doctor.CollectHost(r, n) // so that doctor host finds in the recording what it asks for
	r.Rewrite(redact.File)
	var b bytes.Buffer
	if _, err := r.WriteTo(&b); err != nil {
		return err
	}
	if err := d.write(name, b.Bytes()); err != nil {
		return err
	}
	d.stderr.Printf("recorded node %s: %d RDMA devices, %d GPUs, %d bytes\n",
		n.Name, len(n.HCAs), len(n.GPUs), b.Len())
	return nil
}

// print prints the machine.
func (d *discoverer) print(n *node.Node, format string) error {
	f := n.Fabrics()
	switch format {
	case "json", "yaml":
		return d.structured(format, discovery{n, f})
	case "svg":
		return d.document(func(w io.Writer) error { return draw.SVG(w, n, f) })
	case "html":
		return d.document(func(w io.Writer) error { return draw.HTML(w, n, f) })
	}
	d.table(n, f, format == "wide")
	for _, p := range n.Problems {
		d.stderr.Println("warning:", p)
	}
	return nil
}

func (d *discoverer) table(n *node.Node, f topology.Fabrics, wide bool) {
	d.stdout.Printf("node %s, %s, RDMA mode %s, %s\n\n", n.Name, count(len(n.HCAs), "RDMA device"),
		cmp.Or(n.RDMAMode, "unknown"), count(len(n.GPUs), "GPU"))
	if len(n.HCAs) == 0 {
		d.stdout.Println(
			"no RDMA device: no such hardware, its driver is not loaded (modprobe mlx5_ib), or all are in pods")
		return
	}
	t := newTable(header(wide)...)
	rails := railsOf(f)
	rows(n, rails, wide, func(cells []any) { t.add(cells...) })
	t.print(&d.console)
	d.fabrics(f)
}

func header(wide bool) []string {
	out := []string{"HCA", "PORT", "NETDEV", "LINK", "STATE", "RATE", "PCI", "NUMA", "GPUS", "RAIL", "POD"}
	if wide {
		out = append(out, "PHYS", "MTU", "LID", "SMLID", "PORT-GUID", "PREFIX", "PKEYS", "ID", "MODEL",
			"FIRMWARE", "KIND", "PARENT", "BOND", "DRIVER", "PCIE", "ALTNAMES")
	}
	return out
}

// rows are the rows of a node, one for each port.
func rows(n *node.Node, rails map[string]string, wide bool, add func(cells []any)) {
	for i := range n.HCAs {
		h := &n.HCAs[i]
		if len(h.Ports) == 0 {
			h.Ports = []node.Port{{}}
		}
		for _, p := range h.Ports {
			row := []any{h.Name, p.Number, p.Netdev, linkLayer(p.LinkLayer), state(&p), rate(&p), h.PCI, number(h.NUMA),
				gpus(h.GPUs), rails[portKey(n.Name, h.Name, p.Number)], h.InPod}
			if wide {
				row = append(row, wideCells(n, h, &p)...)
			}
			add(row)
		}
	}
}

func wideCells(n *node.Node, h *node.HCA, p *node.Port) []any {
	mtu, alt := "", ""
	if d := n.Netdev(p.Netdev); d != nil {
		mtu, alt = strconv.Itoa(d.MTU), strings.Join(d.AltNames, ",")
	}
	guid := ""
	if p.GUID != 0 {
		guid = p.GUID.String()
	}
	pcie := h.PCIe
	if h.Slower != "" {
		pcie += " (of " + h.Slower + ")"
	}
	return []any{p.Phys, mtu, nonzero(p.LID), nonzero(p.SMLID), guid, p.Prefix, strings.Join(p.PKeys, ","), h.ID,
		h.Model, h.Firmware, h.Kind, h.Parent, h.Bond, h.Driver, pcie, alt}
}

func (d *discoverer) fabrics(f topology.Fabrics) {
	for _, f := range f.Fabrics {
		d.stdout.Printf("\nfabric %s: %s\n", f.Name, f.Reason)
		for _, r := range f.Rails {
			var names []string
			for _, p := range r.Ports {
				names = append(names, p.Name())
			}
			d.stdout.Printf("  rail %d  %s  (%s)\n", r.Index, strings.Join(names, " "), r.Reason)
		}
		if f.Planes {
			d.stdout.Println("  planes: the rails are subnets of their own; unless they are routed, pairing " +
				"two of them ends in a timeout")
		}
		for _, w := range f.Warnings {
			d.stdout.Println("  warning:", w)
		}
	}
	if len(f.Left) > 0 {
		d.stdout.Printf("\nin no fabric:\n")
	}
	for _, l := range f.Left {
		d.stdout.Printf("  %s  %s\n", l.Port.Name(), l.Reason)
	}
}

// railsOf is FABRIC/RAIL of each port.
func railsOf(f topology.Fabrics) map[string]string {
	out := map[string]string{}
	for _, f := range f.Fabrics {
		for _, r := range f.Rails {
			for _, p := range r.Ports {
				out[portKey(p.Node, p.HCA, p.Port)] = f.Name + "/" + strconv.Itoa(r.Index)
			}
		}
	}
	return out
}

func portKey(node, hca string, port uint32) string {
	return node + " " + hca + " " + strconv.FormatUint(uint64(port), 10)
}

func linkLayer(l device.LinkLayer) string {
	switch l {
	case device.InfiniBand:
		return "IB"
	case device.Ethernet:
		return "Eth"
	}
	return string(l)
}

func state(p *node.Port) cell {
	c := cell{p.State, warn}
	switch {
	case p.Active():
		c.colour = good
	case p.State == device.PortDown.String():
		c.colour = bad
	}
	return c
}

func rate(p *node.Port) string {
	if p.RateGb == 0 || !p.Active() { // of a port that is down the kernel tells its slowest rate
		return ""
	}
	return strconv.FormatFloat(p.RateGb, 'f', -1, 64) + "G"
}

func number(n int) string {
	if n < 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func nonzero(n uint16) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}

// gpus is the nearest GPUs and their distance: 0,1 PIX.
func gpus(near []node.Near) string {
	if len(near) == 0 || near[0].Distance == "SYS" {
		return ""
	}
	var list []string
	for _, g := range near {
		list = append(list, strconv.Itoa(g.GPU))
	}
	return strings.Join(list, ",") + " " + near[0].Distance
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
