package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

// clusterDiscovery is the output of discover --cluster as JSON and YAML.
type clusterDiscovery struct {
	Nodes []*node.Node `json:"nodes"`
	topology.Fabrics
}

// cluster prints the nodes of the cluster, or the one that is named.
func (d *discoverer) cluster(ctx context.Context, args []string, format string) error {
	if len(args) > 0 {
		return d.member(ctx, args[0], format)
	}
	if err := oneOf("output", &format, "table", "wide", "json", "yaml"); err != nil {
		return fmt.Errorf("%w; a picture is of one node: --cluster NODE", err)
	}
	from := sources{machine: d.machine, place: place{cluster: true}}
	nodes, err := from.nodes(ctx)
	if err != nil {
		return err
	}
	var ports []topology.Port
	for _, n := range nodes {
		ports = append(ports, n.Ports()...)
	}
	f := topology.Group(ports)
	if format == "json" || format == "yaml" {
		if err := d.structured(format, clusterDiscovery{nodes, f}); err != nil {
			return err
		}
		return from.leftOut(&d.console)
	}
	d.nodes(nodes, f, format == "wide")
	return from.leftOut(&d.console)
}

// member prints one node of the cluster.
func (d *discoverer) member(ctx context.Context, name, format string) error {
	if err := nodeRule.check("cluster", name); err != nil {
		return err
	}
	list, bad, err := fabricNodes(ctx, d.kube, name)
	if err == nil && len(bad) > 0 {
		err = bad[0]
	}
	if err != nil {
		return fmt.Errorf("--cluster: %w", err)
	}
	if len(list) != 1 || list[0].Node == nil {
		return fmt.Errorf("--cluster: there is no FabricNode %s with an inventory: kubectl get fabricnodes shows all",
			name)
	}
	return d.print(list[0].Node, format)
}

// nodes prints the ports of all nodes in one table, and the fabrics in a few lines, whatever the number of nodes.
func (d *discoverer) nodes(nodes []*node.Node, f topology.Fabrics, wide bool) {
	hcas, gpus := 0, 0
	modes := map[string]int{}
	ports := portTable{wide: wide, kinds: hasFunctions(nodes...), rails: railsOf(f)}
	t := newTable(append([]string{"NODE"}, ports.header()...)...)
	t.spare = ports.spare()
	for _, n := range nodes {
		hcas, gpus = hcas+len(n.HCAs), gpus+len(n.GPUs)
		if n.RDMAMode != "" {
			modes[n.RDMAMode]++
		}
		ports.rows(n, func(cells []any) { t.add(slices.Insert(cells, 0, any(n.Name))...) })
	}
	d.stdout.Printf("%s, %s, RDMA mode exclusive on %d, shared on %d, %s\n\n", count(len(nodes), "node"),
		count(hcas, "RDMA device"), modes["exclusive"], modes["shared"], count(gpus, "GPU"))
	t.print(&d.console)
	for i := range f.Fabrics {
		x := &f.Fabrics[i]
		planes := ""
		if x.Planes {
			planes = ", which are planes"
		}
		d.stdout.Printf("\nfabric %s: %s, %s%s: %s\n", x.Name, count(len(x.Nodes()), "node"),
			count(len(x.Rails), "rail"),
			planes, x.Reason)
		const most = 5
		for i, w := range x.Warnings {
			if i == most {
				d.stdout.Printf("  %d more warnings\n", len(x.Warnings)-most)
				break
			}
			d.stdout.Println("  warning:", strings.TrimSpace(w))
		}
	}
	if len(f.Left) > 0 {
		d.stdout.Printf("\nin no fabric: %s; discover --cluster NODE says why\n", count(len(f.Left), "port"))
	}
}
