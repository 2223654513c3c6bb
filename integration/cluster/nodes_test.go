package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/integration/lab/guest"
)

// The fabric of the overlay that all HCAs of the lab belong to: they have 200 Gb/s.
const fabric200 = "ib-200g"

// Two nodes with HCAs: one kernel each, four rails and two ports without a cable. A boot is expensive: all parts run on
// one boot of each node, in this order, those of one node beside those of the other; only mode and walk reboot. A node
// that -test.run asks no part of is not booted. All parts but these two need exclusive RDMA mode, and begin in it.
func TestNodes(t *testing.T) {
	archives := images(t)
	spares := []Rail{{HCA: "mlx5_5", Netdev: "ibs116"}, {HCA: "mlx5_6", Netdev: "ibs118"}}
	var lanes []*lane
	both := asked("mode") || asked("walk")
	mode := "exclusive"
	if asked("walk") && !asked("mode") {
		mode = "shared"
	}
	if both || asked("lab1") {
		lanes = append(lanes, &lane{node: boot(t, 1, archives, mode, []Rail{{HCA: "mlx5_0", Netdev: "ibs108"},
			{HCA: "mlx5_3", Netdev: "ibs110"}, {HCA: "mlx5_4", Netdev: "ibs112"}, {HCA: "mlx5_7", Netdev: "ibs114"}},
			spares), parts: lab1})
	}
	if both || asked("lab2") {
		lanes = append(lanes, &lane{node: boot(t, 2, archives, mode, []Rail{{HCA: "mlx5_0", Netdev: "ibp65s0"},
			{HCA: "mlx5_1", Netdev: "ibp66s0"}, {HCA: "mlx5_2", Netdev: "ibp97s0"}, {HCA: "mlx5_3", Netdev: "ibp98s0"}},
			append(spares[:2:2], Rail{HCA: "mlx5_8", Netdev: "ibs120"}, Rail{HCA: "mlx5_9", Netdev: "ibs122"},
				Rail{HCA: "mlx5_10", Netdev: "ibs124"}, Rail{HCA: "mlx5_11", Netdev: "ibs126"})), parts: lab2})
	}
	for _, l := range lanes {
		if err := l.node.StartKubelet(); err != nil {
			t.Fatal(err)
		}
	}
	var nodes []*LabNode
	for _, l := range lanes {
		if err := l.node.Ready(); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, l.node)
	}
	stage(t, "nodes are Ready")
	if !t.Run("mode", func(t *testing.T) { modeKilled(t, nodes...) }) {
		return
	}
	if !t.Run("walk", func(t *testing.T) { walked(t, nodes...) }) || !asked("lab1") && !asked("lab2") {
		return // the others would not begin with what they need
	}
	deployNodes(t)
	fabricsOf(t, "exclusive")
	deployed(t)
	for _, l := range lanes {
		offersAll(t, l.node)
		l.before = settled(t, l.node)
	}
	stage(t, "deployed and settled")
	for _, l := range lanes {
		t.Run(l.node.Name, func(t *testing.T) {
			t.Parallel()
			l.parts(t, l)
		})
	}
}

func lab1(t *testing.T, l *lane) {
	l.part(t, "fabricctl", ctlNode)
	l.part(t, "waiting, then forced out", forced)
	l.part(t, "killed", killed)
	l.part(t, "reboot", reboot)
	l.part(t, "claims", draPods)
	l.part(t, "claims alone", claimsAlone)
	if asked("lab1", "ports") && !l.failed {
		twoPorts(t, l.node)
		l.before = settled(t, l.node)
		l.part(t, "ports", ports)
	}
}

func lab2(t *testing.T, l *lane) {
	l.part(t, "Multus is absent", multusAbsent)
	if asked("lab2", "traffic") || asked("lab2", "claims with GPUs") {
		cable(t, l.node, 4)
		l.before = settled(t, l.node)
		l.part(t, "traffic", traffic)
		l.part(t, "claims with GPUs", draGPUs)
		cable(t, l.node, -4)
	}
	if asked("lab2", "shared") || asked("lab2", "shared by claims") {
		shareNode(t, l.node)
		l.before = settled(t, l.node)
		l.part(t, "shared", shared)
		l.part(t, "shared by claims", sharedByClaims)
	}
}

// lane is a node with its parts.
type lane struct {
	node   *LabNode
	parts  func(*testing.T, *lane)
	before guest.State
	failed bool
}

// part runs a test and compares the node afterwards with what it was.
func (l *lane) part(t *testing.T, name string, f func(t *testing.T, n *LabNode)) {
	t.Helper()
	if l.failed {
		return // it would not begin with what it needs
	}
	l.failed = !t.Run(name, func(t *testing.T) {
		f(t, l.node)
		returned(t, l.node, l.before)
		stage(t, "all is returned")
	})
}

// hasRails asserts that the pod has all the rails of the node and nothing else of it, and returns its addresses there.
func hasRails(t *testing.T, n *LabNode, pod string) (addresses []string) {
	t.Helper()
	want := map[string]string{}
	var hcas []string
	for _, r := range n.Rails {
		want[r.PCI] = r.HCA
		hcas = append(hcas, r.HCA)
	}
	s := status(t, pod)
	if len(s) != 5 {
		t.Fatalf("network-status: %+v", s)
	}
	for i, net := range s[1:] {
		if net.Info.PCI.Address != n.Rails[i].PCI { // in whatever order kubelet has them
			t.Errorf("%s has %s, want the rail %d, which is %s", net.Interface, net.Info.PCI.Address, i, n.Rails[i].PCI)
		}
		if net.Name != "default/"+fabric200 || len(net.IPs) != 1 || net.Info.PCI.RDMA == "" ||
			want[net.Info.PCI.Address] != net.Info.PCI.RDMA {
			t.Errorf("network-status: %+v", net)
		}
		delete(want, net.Info.PCI.Address)
		addresses = append(addresses, net.IPs...)
	}
	sorted := slices.Sorted(slices.Values(addresses))
	if len(want) > 0 || len(slices.Compact(sorted)) != 4 {
		t.Errorf("devices not told: %v; addresses %v", want, addresses)
	}
	// Each exec takes seconds in emulation: one for everything.
	out := k(
		t,
		"exec",
		pod,
		"--",
		"sh",
		"-c",
		`ls /sys/class/infiniband | xargs; ls /dev/infiniband | xargs; cd /sys/class/net
for i in net*; do echo $i $(cat $i/type) $(ip -4 addr show dev $i); done`,
	)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 6 {
		t.Fatalf("in the pod:\n%s", out)
	}
	if lines[0] != strings.Join(hcas, " ") {
		t.Errorf("the pod sees %q, want %v", lines[0], hcas)
	}
	for i, line := range lines[2:] { // 32 is ARPHRD_INFINIBAND
		if !strings.HasPrefix(line, fmt.Sprintf("net%d 32 ", i+1)) ||
			!strings.Contains(line, " "+addresses[i]+"/") ||
			!strings.Contains(line, ",UP") {
			t.Errorf("want address %s: %s", addresses[i], line)
		}
	}
	files := strings.Fields(on(t, n, `ls /sys/class/infiniband | xargs
for f in /sys/class/infiniband_verbs/uverbs*; do
case $(readlink -f $f/device) in */0000:00:1* | */0000:4?:00.0) basename $f;; esac; done; echo rdma_cm`))
	host, files := files[:len(n.Spares)], files[len(n.Spares):]
	slices.Sort(host)
	var spares []string
	for _, r := range n.Spares {
		spares = append(spares, r.HCA)
	}
	slices.Sort(spares)
	if !slices.Equal(host, spares) {
		t.Errorf("the host sees %v, want %v", host, spares)
	}
	slices.Sort(files)
	if lines[1] != strings.Join(files, " ") || len(files) != 5 {
		t.Errorf("device files %s, want %v", lines[1], files)
	}
	return addresses
}
