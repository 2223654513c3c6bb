package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The fabric of the overlay that all HCAs of the lab belong to: they have 200 Gb/s.
const fabric200 = "ib-200g"

// Nodes with HCAs: one kernel each, exclusive RDMA mode, four rails and two ports without a cable. The parts run in this order on
// one boot of each node, as a boot is expensive.
func TestNodes(t *testing.T) {
	archives := images(t)
	one := boot(t, 1, archives, Rail{HCA: "mlx5_0", Netdev: "ibs108"}, Rail{HCA: "mlx5_3", Netdev: "ibs110"},
		Rail{HCA: "mlx5_4", Netdev: "ibs112"}, Rail{HCA: "mlx5_7", Netdev: "ibs114"})
	deployOn(t, "exclusive")
	if err := one.Join(); err != nil {
		t.Fatal(err)
	}
	stage(t, "lab1 is Ready")
	deployed(t)
	offersAll(t, one)
	before := settled(t, one)
	stage(t, "deployed and settled")
	part := func(name string, f func(t *testing.T, n *LabNode)) {
		if t.Failed() {
			return // it would not begin with what it needs
		}
		t.Run(name, func(t *testing.T) {
			f(t, one)
			returned(t, one, before)
			stage(t, "all is returned")
		})
	}
	part("four rails", fourRails)
	part("fabricctl", ctlNode)
	part("killed", killed)
	part("Multus is absent", multusAbsent)
}

// A pod gets all rails. Another waits for one of them, and gets it when the first goes; it is deleted by force.
func fourRails(t *testing.T, n *LabNode) {
	railPod(t, "p1", fabric200, 4, n.Name)
	podReady(t, "p1")
	stage(t, "first pod is Ready")
	hasRails(t, n, "p1")
	railPod(t, "p2", fabric200, 1, n.Name)
	event(t, "p2", "Insufficient fabric.dev/"+fabric200)
	gone(t, "p1")
	stage(t, "first pod is gone")
	podReady(t, "p2")
	stage(t, "second pod is Ready")
	k(t, "delete", "pod", "p2", "--force", "--grace-period=0")
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
	for _, net := range s[1:] {
		if net.Name != "default/"+fabric200 || len(net.IPs) != 1 || net.Info.PCI.RDMA == "" || want[net.Info.PCI.Address] != net.Info.PCI.RDMA {
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
	out := k(t, "exec", pod, "--", "sh", "-c", `ls /sys/class/infiniband | xargs; ls /dev/infiniband | xargs; cd /sys/class/net
for i in net*; do echo $i $(cat $i/type) $(ip -4 addr show dev $i); done`)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 6 {
		t.Fatalf("in the pod:\n%s", out)
	}
	if lines[0] != strings.Join(hcas, " ") {
		t.Errorf("the pod sees %q, want %v", lines[0], hcas)
	}
	for i, line := range lines[2:] { // 32 is ARPHRD_INFINIBAND
		if !strings.HasPrefix(line, fmt.Sprintf("net%d 32 ", i+1)) || !strings.Contains(line, " "+addresses[i]+"/22 ") || !strings.Contains(line, ",UP") {
			t.Errorf("want address %s: %s", addresses[i], line)
		}
	}
	files := strings.Fields(on(t, n, `ls /sys/class/infiniband | xargs
for f in /sys/class/infiniband_verbs/uverbs* /sys/class/infiniband_mad/*; do case $(readlink -f $f/device) in */0000:00:1*) basename $f;; esac; done; echo rdma_cm`))
	host, files := files[:2], files[2:]
	if !slices.Equal(host, []string{"mlx5_5", "mlx5_6"}) {
		t.Errorf("the host sees %v", host)
	}
	slices.Sort(files)
	if lines[1] != strings.Join(files, " ") || len(files) != 13 {
		t.Errorf("device files %s, want %v", lines[1], files)
	}
	return addresses
}
