package cli

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/draw"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/redact"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

func discoverCommand(a *app) *cobra.Command {
	d := &discoverer{app: a}
	var format, record string
	var from place
	c := &cobra.Command{
		Use:   "discover [NODE]",
		Short: "Show HCAs, ports, interfaces, GPUs, and which ports belong together",
		Long: `discover shows in one table what ibdev2netdev, ibstat, mst status, lspci and nvidia-smi topo show,
groups the ports into fabrics and rails, and explains why. It reads sysfs and netlink, needs no other program, and
changes nothing.

-o topo prints the matrix of nvidia-smi topo -m, with every HCA. -o wide has a line per port; the table has one line
for all virtual functions of a PF.

--record writes the node's data to a file, which --root of any command reads on another machine. The file contains
names, addresses and GUIDs of the node.

--cluster shows the FabricNodes of the cluster: all nodes, or NODE.`,
		Example: `  fabricctl discover
  fabricctl discover -o wide
  fabricctl discover -o topo
  fabricctl discover -o html >node.html
  fabricctl discover --cluster           # or kubectl fabric discover
  fabricctl discover --record node.tar.gz
  fabricctl discover --root node.tar.gz -o json | jq .fabrics`,
		Args:              argsBetween(0, 1),
		ValidArgsFunction: nodeNames(a, &from),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("output", &format, "table", "wide", "topo", "json", "yaml", "svg", "html"); err != nil {
				return err
			}
			from.settle(&a.machine, record != "" || a.root != "/")
			switch {
			case from.cluster && (record != "" || a.root != "/"):
				return fmt.Errorf("%w: --cluster, --record and --root exclude each other", errUsage)
			case from.cluster:
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
	c.Flags().StringVarP(&format, "output", "o", "table", "table, wide, topo, json, yaml, svg or html")
	from.flags(c, "what the FabricNodes of the cluster say", "this machine")
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
	tree, _, problem, err := d.nodeTree()
	if err != nil {
		return err
	}
	if problem != nil {
		d.stderr.Println("warning:", problem)
	}
	r, n, err := node.Record(tree, d.store())
	if err != nil {
		return err
	}
	if err := d.recordHost(r, n); err != nil {
		return err
	}
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
	case "topo":
		d.topo(n)
		return nil
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
