package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/subnet"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// simulated is a fabric that ibsim simulates: real programs of infiniband-diags and a real subnet manager talk to it.
// scripts/setup.sh installs them.
type simulated struct {
	t   *testing.T
	dir string
	env []string
}

// program finds a program of the test, also where users who are not root have none in PATH.
func simProgram(t *testing.T, name string) string {
	t.Helper()
	for _, path := range []string{name, "/usr/sbin/" + name, "/sbin/" + name} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	t.Fatalf("%s is missing: scripts/setup.sh test installs it", name)
	return ""
}

// simulate starts ibsim with this net. Its sockets are in the abstract name space, with the name of the directory.
func simulate(t *testing.T, net string) *simulated {
	t.Helper()
	libs, _ := filepath.Glob("/usr/lib/*/umad2sim/libumad2sim.so")
	if len(libs) == 0 {
		t.Fatal("libumad2sim.so is missing: scripts/setup.sh test installs it")
	}
	s := &simulated{t: t, dir: t.TempDir()}
	file := filepath.Join(s.dir, "net")
	if err := os.WriteFile(file, []byte(net), 0o600); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("IBSIM_SOCKNAME=fabric-%d-%d", os.Getpid(), time.Now().UnixNano())
	s.env = append(os.Environ(), name, "SIM_HOST=H-0-0", "OSM_TMP_DIR="+s.dir, "OSM_CACHE_DIR="+s.dir)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, simProgram(t, "ibsim"), "-s", "-n", file)
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	var said strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "simulator ready") {
			break
		}
	}
	if !strings.Contains(said.String(), "simulator ready") {
		t.Fatalf("ibsim: %s %v", said.String(), lines.Err())
	}
	go func() { // so that it never waits for a reader
		for lines.Scan() {
			continue
		}
	}()
	s.env = append(s.env, "LD_PRELOAD="+libs[0])
	return s
}

// run runs a program in the fabric, and returns what it printed.
func (s *simulated) run(name string, args ...string) []byte {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), simProgram(s.t, name), args...)
	cmd.Dir, cmd.Env = s.dir, s.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s%s", name, err, out, stderr.String())
	}
	return out
}

// printed keeps what a program printed in a file.
func (s *simulated) printed(file string, text []byte) string {
	s.t.Helper()
	path := filepath.Join(s.dir, file)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// simCable is one cable of the simulated fabric.
type simCable struct {
	a, b   string
	ap, bp int
	broken bool
}

// fatTree is two levels: groups of nodes with a leaf per rail, and links of every leaf to every spine. The first cables
// are those of the nodes, node by node.
func fatTree(nodes, rails, group, spines, parallel int) (cables []*simCable) {
	for n := range nodes {
		for r := range rails {
			cables = append(cables, &simCable{a: fmt.Sprintf("H-%d-%d", n, r), ap: 1,
				b: fmt.Sprintf("S-leaf-%02d", n/group*rails+r), bp: n%group + 1})
		}
	}
	for l := range nodes / group * rails {
		for s := range spines {
			for k := range parallel {
				cables = append(cables, &simCable{a: fmt.Sprintf("S-leaf-%02d", l), ap: group + s*parallel + k + 1,
					b: fmt.Sprintf("S-spine-%02d", s), bp: l*parallel + k + 1})
			}
		}
	}
	return cables
}

// simNet is the fabric as ibsim reads it.
func simNet(cables []*simCable) string {
	var order []string
	ports := map[string]string{}
	end := func(at string, port int, to string, toPort int, broken bool) {
		if _, ok := ports[at]; !ok {
			order = append(order, at)
		}
		ports[at] += map[bool]string{false: fmt.Sprintf("[%d]\t%q[%d]\n", port, to, toPort)}[broken]
	}
	for _, c := range cables {
		end(c.a, c.ap, c.b, c.bp, c.broken)
		end(c.b, c.bp, c.a, c.ap, c.broken)
	}
	var b strings.Builder
	for _, id := range order {
		var node, hca int
		kind, desc := "Switch 64", strings.TrimPrefix(id, "S-")
		if _, err := fmt.Sscanf(id, "H-%d-%d", &node, &hca); err == nil {
			kind, desc = "Ca 1", fmt.Sprintf("gpu-%d mlx5_%d", node, hca)
		}
		fmt.Fprintf(&b, "%s %q\t# %q\n%s\n", kind, id, desc, ports[id])
	}
	return b.String()
}

// topologyOf is what fabricctl topology -o json says of files, and its exit status.
func topologyOf(t *testing.T, args ...string) (*subnet.Topology, int) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{console: console{stdin: strings.NewReader(""), stdout: quote.Printer{W: &out},
		stderr: quote.Printer{W: &errs}}, getenv: func(string) string { return "" }, version: "test"}
	status := a.run(t.Context(), append([]string{"fabricctl", "topology", "-o", "json"}, args...))
	topo := &subnet.Topology{}
	if err := json.Unmarshal(out.Bytes(), topo); err != nil {
		t.Fatalf("exit %d, %v: %s%s", status, err, out.String(), errs.String())
	}
	return topo, status
}

func evidence(topo *subnet.Topology) (list []string) {
	for _, f := range topo.Findings {
		if f.Status != doctor.OK {
			list = append(list, fmt.Sprintf("%s %s %s", f.Status, f.ID, f.Evidence))
		}
	}
	return list
}

// A two-level fat tree of 64 nodes with eight rails, on which a subnet manager has run. Two cables are swapped, one is
// broken: all three are found, and nothing else.
func TestSimulatedFatTree(t *testing.T) {
	cables := fatTree(64, 8, 32, 8, 4)
	a, b := cables[5*8+2], cables[40*8+2]
	a.b, a.bp, b.b, b.bp = b.b, b.bp, a.b, a.bp
	cables[17*8+6].broken = true
	s := simulate(t, simNet(cables))
	s.run("opensm", "-o", "-f", filepath.Join(s.dir, "opensm.log"))
	want := []string{
		"FAIL fabric-wrong-rail gpu-5 mlx5_2:1 is on leaf-10 port 9, and the same port of nodes cabled like it is on " +
			"leaf-02: swap its cable with that of gpu-40 mlx5_2:1 on leaf-02 port 6",
		"FAIL fabric-wrong-rail gpu-40 mlx5_2:1 is on leaf-02 port 6, and the same port of nodes cabled like it is " +
			"on leaf-10: swap its cable with that of gpu-5 mlx5_2:1 on leaf-10 port 9",
		"FAIL fabric-cable-missing gpu-17 mlx5_6:1 has no link: 31 of 32 nodes that are cabled alike have one, on " +
			"leaf-06",
	}
	for form, args := range map[string][]string{"full": nil, "list of ports": {"-p"}} {
		file := s.printed("fabric.txt", s.run("ibnetdiscover", args...))
		topo, status := topologyOf(t, "-f", file)
		if got := evidence(topo); status != exitFinding || strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: exit %d:\n%s", form, status, strings.Join(got, "\n"))
		}
		if topo.Levels != 2 || len(topo.Nodes) != 64 || len(topo.Ports) != 511 || len(topo.Switches) != 24 ||
			len(topo.Groups) != 2 {
			t.Errorf("%s: %d levels, %d nodes, %d ports, %d switches, %d groups", form, topo.Levels, len(topo.Nodes),
				len(topo.Ports), len(topo.Switches), len(topo.Groups))
		}
	}
}

// What the subnet manager's records say is what ibnetdiscover sees. The simulated umad device has no RMPP, which
// answers longer than a packet need, so the records are asked for one by one.
func TestSimulatedSaquery(t *testing.T) {
	cables := fatTree(3, 2, 3, 1, 3)
	cables[1].broken = true
	s := simulate(t, simNet(cables))
	s.manage()
	discovered := s.run("ibnetdiscover")
	ports := map[string]int{} // by LID
	for _, m := range regexp.MustCompile(`(?m)^Switch.* lid (\d+) lmc|^\[1\]\(.*# lid (\d+) lmc`).FindAllSubmatch(
		discovered, -1) {
		ports[string(m[2])], ports[string(m[1])] = 1, 6
	}
	delete(ports, "")
	if len(ports) != 5+2+1 {
		t.Fatalf("LIDs of 5 ports and 3 switches: %v in\n%s", ports, discovered)
	}
	const patience = "20000" // ms, for a machine that is busy
	var records []byte
	for lid, n := range ports {
		records = append(records, s.run("saquery", "-t", patience, "NR", lid)...)
		records = append(records, s.run("saquery", "-t", patience, "LR", lid)...)
		for port := 1; port <= n; port++ {
			records = append(records, s.run("saquery", "-t", patience, "PIR", fmt.Sprintf("%s/%d", lid, port))...)
		}
	}
	want, _ := topologyOf(t, "-f", s.printed("fabric.txt", discovered))
	got, status := topologyOf(t, "-f", s.printed("records.txt", records))
	if d := cmp.Diff(want, got); d != "" || status != exitFinding || len(evidence(got)) != 1 {
		t.Errorf("exit %d, %v, ibnetdiscover and saquery differ: %s", status, evidence(got), d)
	}
}

// manage runs a subnet manager until the test ends, and returns when it answers.
func (s *simulated) manage() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, simProgram(s.t, "opensm"), "-f", filepath.Join(s.dir, "opensm.log"))
	cmd.Dir, cmd.Env = s.dir, s.env
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	for range 500 { // tries, which take longer on a slow machine
		ask := exec.Command(simProgram(s.t, "saquery"), "NR", "1")
		ask.Dir, ask.Env = s.dir, s.env
		if out, err := ask.Output(); err == nil && bytes.Contains(out, []byte("node_guid")) {
			return
		}
	}
	s.t.Fatal("opensm does not answer")
}
