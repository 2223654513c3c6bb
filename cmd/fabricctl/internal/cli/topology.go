package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/draw"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/subnet"
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

// cabling is where a command takes the cabling of the fabric from.
type cabling struct {
	*app
	from  sources
	files []string
}

func (s *cabling) flags(c *cobra.Command) {
	c.Flags().StringArrayVarP(&s.files, "filename", "f", nil, "what ibnetdiscover, ibnetdiscover -p or saquery has "+
		"printed, or LLDP of one node (NODE.json); -: standard input (default: run ibnetdiscover)")
	s.from.flags(c, "ports of nodes as the FabricNodes of the cluster say", "ports as recordings or descriptions say")
}

func topologyCommand(a *app) *cobra.Command {
	s := &cabling{app: a}
	out := findings{console: &a.console}
	c := &cobra.Command{
		Use:   "topology [-f FILE...] [RECORDING...]",
		Short: "Show which leaf and spine each port hangs on, and which cable is wrong, missing or slow",
		Long: `topology reads the output of the fabric's tools, and shows which leaf and spine switches each HCA port
is connected to, which cable is on the wrong rail, missing or slow, and which leaves are oversubscribed. The cabling
of most nodes in a group is taken as right. Without -f it runs ibnetdiscover, which needs a umad device.

  ibnetdiscover >fabric.txt               all switches, HCAs and links; or ibnetdiscover -p
  saquery NR; saquery PIR; saquery LR     the same from the subnet manager; all three are needed
  lldpctl -f json >gpu-1.json             Ethernet, on each node; or networkctl lldp --json=short

Recordings (discover --record) or the cluster assign ports to nodes by GUID, otherwise the descriptions that rdma-ndd
gives to HCAs ("gpu-1 mlx5_0"). -o wide lists each port. Exit status 3 if a check fails.`,
		Example: `  fabricctl topology -f fabric.txt
  fabricctl topology -f fabric.txt -o svg >fabric.svg
  fabricctl topology -f fabric.txt --cluster
  fabricctl topology -f rail0.txt -f rail1.txt gpu-*.tar.gz -o json | jq .findings`,
		Args: argsBetween(0, 10000),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("output", &out.format, "table", "wide", "json", "yaml", "svg", "html"); err != nil {
				return err
			}
			t, err := s.topology(cmd.Context(), args)
			if err != nil {
				return err
			}
			if err := s.print(t, &out); err != nil {
				return err
			}
			return s.from.leftOut(&a.console)
		},
	}
	s.flags(c)
	c.Flags().StringVarP(&out.format, "output", "o", "table", "table, wide, json, yaml, svg or html")
	return c
}

// topology reads everything, and judges it.
func (s *cabling) topology(ctx context.Context, recordings []string) (*subnet.Topology, error) {
	s.from.machine, s.from.recordings = s.machine, recordings
	s.from.settle()
	if s.root != "/" {
		return nil, fmt.Errorf("%w: --root %.253q: recordings of nodes are arguments here", errUsage, s.root)
	}
	var inventory []topology.Port
	if s.from.cluster || len(recordings) > 0 {
		nodes, err := s.from.nodes(ctx)
		if err != nil {
			return nil, err
		}
		for _, n := range nodes {
			inventory = append(inventory, n.Ports()...)
		}
	}
	g := subnet.New()
	for _, f := range s.files {
		if err := s.readFile(g, f); err != nil {
			return nil, fmt.Errorf("--filename %s: %w", f, err)
		}
	}
	if len(s.files) == 0 {
		if err := s.live(ctx, g); err != nil {
			return nil, err
		}
	}
	if err := g.Finish(); err != nil {
		return nil, fmt.Errorf("--filename %s: %w", strings.Join(s.files, ", "), err)
	}
	return g.Judge(inventory), nil
}

func (s *cabling) readFile(g *subnet.Graph, name string) error {
	if name == "-" {
		return g.Read(s.stdin, "")
	}
	f, err := os.Open(name)
	if err != nil {
		return errors.Unwrap(err)
	}
	defer f.Close()
	base := filepath.Base(name)
	return g.Read(f, strings.TrimSuffix(strings.TrimSuffix(base, ".json"), ".txt"))
}

// live runs ibnetdiscover. It is a program because the directed route packets that find switches need a library and
// root; hosts that manage fabrics have the program.
func (s *cabling) live(ctx context.Context, g *subnet.Graph) error {
	umad, _ := filepath.Glob("/dev/infiniband/umad*")
	path, err := exec.LookPath("ibnetdiscover")
	switch {
	case len(umad) == 0:
		return fmt.Errorf("%w: want --filename: this machine has no /dev/infiniband/umad*, which ibnetdiscover needs "+
			"(modprobe ib_umad)", errUsage)
	case err != nil:
		return fmt.Errorf("run ibnetdiscover: it is not in PATH: install infiniband-diags, or give its output with -f")
	}
	s.stderr.Printf("running %s on this machine\n", path)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	var stderr strings.Builder
	cmd.Stderr = &limited{w: &stderr, left: 4096}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("run ibnetdiscover: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run ibnetdiscover: %w", err)
	}
	bad := g.Read(out, "")
	if bad != nil {
		cancel()
	}
	if err := cmd.Wait(); err != nil || bad != nil {
		return fmt.Errorf("run ibnetdiscover: %w: %s", cmp.Or(err, bad), strings.TrimSpace(stderr.String()))
	}
	return nil
}

// limited keeps the beginning of what a program complains about.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(l.left, len(p))
	l.left -= n
	if _, err := l.w.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// print prints it. A failure makes the exit status 3.
func (s *cabling) print(t *subnet.Topology, out *findings) error {
	var err error
	switch out.format {
	case "json", "yaml":
		err = s.structured(out.format, *t)
	case "svg":
		err = s.document(func(w io.Writer) error { return draw.TopologySVG(w, t) })
	case "html":
		err = s.document(func(w io.Writer) error { return draw.TopologyHTML(w, t) })
	default:
		s.table(t, out.format == "wide")
		s.stdout.Printf("\n")
		out.text(t.Findings)
	}
	if err == nil && doctor.Worst(t.Findings) == doctor.Fail {
		err = errFinding
	}
	return err
}

func (s *cabling) table(t *subnet.Topology, wide bool) {
	levels := map[int]int{}
	for i := range t.Switches {
		levels[t.Switches[i].Level]++
	}
	what := fmt.Sprintf("%s of switches", count(t.Levels, "level"))
	if t.Levels == 0 {
		what = "levels not judged"
	}
	s.stdout.Printf("%s, %s of HCAs, %d switches (leaves: %d), %s: %s\n", count(len(t.Nodes), "node"),
		count(len(t.Ports), "port"), len(t.Switches), levels[1], what, t.Reason)
	for _, n := range t.Notes {
		s.stdout.Printf("  %s\n", n)
	}
	s.stdout.Printf("\n")
	leaves := newTable("SWITCH", "LEVEL", "HOSTS", "UPLINKS", "DOWN", "UP", "RATIO")
	for i := range t.Switches {
		p := &t.Switches[i]
		uplinks := cell{text: fmt.Sprint(p.Uplinks)}
		if p.Bad {
			uplinks.colour = bad
		}
		ratio := ""
		if p.DownGb > 0 && p.UpGb > 0 {
			ratio = fmt.Sprintf("%.3g:1", p.DownGb/p.UpGb)
		}
		leaves.add(p.Name, p.Level, p.Hosts, uplinks, gigabits(p.DownGb), gigabits(p.UpGb), ratio)
	}
	leaves.print(&s.console)
	for i := range t.Groups {
		g := &t.Groups[i]
		if len(g.Nodes) < 2 && !wide {
			continue
		}
		s.stdout.Printf("\ngroup %s: %s, %s to %s\n", g.Name, count(len(g.Nodes), "node"), g.Nodes[0],
			g.Nodes[len(g.Nodes)-1])
		for _, r := range g.Rails {
			s.stdout.Printf("  %s on %s\n", r.Rail, cmp.Or(r.Leaf, "no leaf that most nodes have"))
		}
	}
	if !wide {
		return
	}
	s.stdout.Printf("\n")
	ports := newTable("NODE", "PORT", "GUID", "LEAF", "AT", "SHOULD BE", "SPINES", "RATE")
	for i := range t.Ports {
		p := &t.Ports[i]
		ports.add(p.Node, p.Port, p.ID, p.Leaf, p.LeafPort, cell{p.Wanted, bad}, spines(p.Spines), p.Rate)
	}
	ports.print(&s.console)
}

// spines are a few of them.
func spines(list []string) string {
	const most = 3
	if len(list) <= most {
		return strings.Join(list, ",")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ","), len(list)-most)
}

func gigabits(gb float64) string {
	if gb == 0 {
		return ""
	}
	return fmt.Sprintf("%gG", gb)
}
