package node_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

// podOf is what a pod in shared mode sees of a machine: all RDMA devices, and of their interfaces those in keep, by the
// name that they have in sysfs. Those of other pods are called like the first of keep there.
func podOf(t *testing.T, m *machines.Machine, keep ...string) *node.Node {
	t.Helper()
	m.Live.RDMAMode, m.Live.RDMANetdevs = "shared", map[string]string{}
	owns := map[string]string{}
	for name, f := range m.FS {
		if netdev, ok := strings.CutPrefix(name, "sys/class/net/"); ok && !slices.Contains(keep, netdev) {
			delete(m.FS, name)
		}
		hca, isPort := strings.CutPrefix(name, "sys/class/infiniband/")
		if isPort && !strings.Contains(hca, "/") {
			m.Live.RDMANetdevs[hca+":1"] = ""
		}
		if strings.Contains(name, "/gid_attrs/ndevs/") {
			own := strings.TrimSpace(string(f.Data))
			if !slices.Contains(keep, own) {
				m.File(name, keep[0])
				continue
			}
			_, hca, _ = strings.Cut(name, "/infiniband/")
			hca, _, _ = strings.Cut(hca, "/")
			owns[hca+":1"] = own
		}
	}
	for name := range m.Live.Netdevs {
		if !slices.Contains(keep, name) {
			delete(m.Live.Netdevs, name)
		}
	}
	maps.Copy(m.Live.RDMANetdevs, owns)
	return opened(t, m)
}

func opened(t *testing.T, m *machines.Machine) *node.Node {
	t.Helper()
	m.Done()
	n, err := node.Open(m.FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func others(g *node.PodView) (out []string) {
	for _, o := range g.Others {
		out = append(out, o.Port)
	}
	return out
}

func facesOf(n *node.Node) (out []string) {
	for _, h := range n.HCAs {
		for _, p := range h.Ports {
			out = append(out, h.Name+" "+p.Netdev)
		}
	}
	return out
}

// In shared mode sysfs gives the ports of other pods the name that their interface has there. They are left out.
func TestHere(t *testing.T) {
	for _, c := range []struct {
		machine         string
		keep            []string
		want, elsewhere string
	}{
		{"roce", []string{"xgbe3"}, "mlx5_3 xgbe3", "mlx5_bond_0:1 mlx5_2:1 mlx5_4:1 mlx5_5:1"},
		{"roce", []string{"xgbe4", "xgbe2"}, "mlx5_2 xgbe2,mlx5_4 xgbe4", "mlx5_bond_0:1 mlx5_3:1 mlx5_5:1"},
		{"h20", []string{"ibs110"}, "mlx5_3 ibs110", "mlx5_0:1 mlx5_bond_0:1 mlx5_4:1 mlx5_5:1 mlx5_6:1 mlx5_7:1"},
	} {
		n := podOf(t, machines.Named(c.machine), c.keep...)
		given := n.PodView(node.DeviceEnv{})
		here, elsewhere := given.Node, others(given)
		if d := cmp.Diff(c.want, strings.Join(facesOf(here), ",")); d != "" {
			t.Errorf("%s %v: here (-want +got):\n%s", c.machine, c.keep, d)
		}
		if d := cmp.Diff(c.elsewhere, strings.Join(elsewhere, " ")); d != "" {
			t.Errorf("%s %v: elsewhere (-want +got):\n%s", c.machine, c.keep, d)
		}
	}
}

// Without any interface all ports stay, and so they do in exclusive mode.
func TestHereWithoutInterfaces(t *testing.T) {
	m := machines.Named("gb200")
	m.Live.RDMAMode, m.Live.RDMANetdevs = "shared", map[string]string{}
	n := opened(t, m)
	if g := n.PodView(node.DeviceEnv{}); len(g.Node.HCAs) != len(n.HCAs) || len(g.Others) > 0 {
		t.Errorf("%+v", g)
	}
	n = opened(t, machines.H20())
	if g := n.PodView(node.DeviceEnv{}); len(g.Node.HCAs) != len(n.HCAs) || len(g.Others) > 0 || g.Guessed {
		t.Errorf("exclusive: %+v", g)
	}
}

// The GIDs of a port that a pod has a macvlan on: only those with its name and its address are the pod's.
func TestHereMacvlan(t *testing.T) {
	m := machines.RoCE()
	m.Live.RDMAMode, m.Live.RDMANetdevs = "shared", map[string]string{"mlx5_2:1": "", "mlx5_3:1": ""}
	for name := range m.FS {
		if strings.HasPrefix(name, "sys/class/net/") {
			delete(m.FS, name)
		}
		if strings.Contains(name, "/infiniband/mlx5_2/ports/1/gid_attrs/ndevs/") ||
			strings.Contains(name, "/infiniband/mlx5_3/ports/1/gid_attrs/ndevs/") {
			m.File(name, "net1")
		}
	}
	m.Live.Netdevs = map[string]node.LiveNetdev{"net1": m.Live.Netdevs["xgbe3"]}
	here := opened(t, m).PodView(node.DeviceEnv{}).Node
	if h := here.HCA("mlx5_3"); h == nil || h.Ports[0].Netdev != "net1" || len(h.Ports[0].GIDs) != 2 ||
		h.Ports[0].GIDs[1].Index != 3 {
		t.Errorf("mlx5_3: %+v", h)
	}
	if h := here.HCA("mlx5_2"); h != nil {
		t.Errorf("mlx5_2, whose GIDs have the same interface name and another address: %+v", h)
	}
}

// A pod may have a child of an IPoIB interface only: then the port's interface is the child.
func TestChildAlone(t *testing.T) {
	m := machines.H20()
	m.Live.RDMAMode = "shared"
	for name := range m.FS {
		if strings.HasPrefix(name, "sys/class/net/") && name != "sys/class/net/ibs110" {
			delete(m.FS, name)
		}
		if dir, ok := strings.CutSuffix(name, "/net/ibs110/device"); ok {
			delete(m.FS, name)
			m.File(dir+"/net/ibs110/parent", "ibs999")
		}
	}
	given := opened(t, m).PodView(node.DeviceEnv{})
	here, elsewhere := given.Node, others(given)
	if h := here.HCA("mlx5_3"); h == nil || h.Ports[0].Netdev != "ibs110" || here.HCA("mlx5_0") != nil {
		t.Errorf("mlx5_3: %+v, elsewhere: %v", h, elsewhere)
	}
}

// A soft RDMA device is no rail of the node. What runs where there is nothing else can use it.
func TestSoft(t *testing.T) {
	m := machines.RoCE()
	rails := fmt.Sprint(opened(t, m).Fabrics().Fabrics)
	m.Soft("rxe0", "xgbe2")
	n := opened(t, m)
	if d := cmp.Diff(rails, fmt.Sprint(n.Fabrics().Fabrics)); d != "" {
		t.Errorf("with a soft RDMA device (-want +got):\n%s", d)
	}
	if d := cmp.Diff(rails, fmt.Sprint(n.Usable().Fabrics)); d != "" {
		t.Errorf("usable (-want +got):\n%s", d)
	}
	if h := n.HCA("rxe0"); h == nil || h.Kind != "virtual" || h.Ports[0].Netdev != "xgbe2" {
		t.Errorf("rxe0: %+v", h)
	}
	left := n.Fabrics().Left
	if !slices.ContainsFunc(left, func(l topology.Left) bool {
		return l.Port.HCA == "rxe0" && strings.Contains(l.Reason, "on xgbe2")
	}) {
		t.Errorf("left: %+v", left)
	}
	m = machines.Plain()
	m.Soft("rxe0", "eth0")
	n = opened(t, m)
	if f := n.Usable().Fabrics; len(n.Fabrics().Fabrics) != 0 || len(f) != 1 || f[0].Rails[0].Ports[0].HCA != "rxe0" {
		t.Errorf("alone: %+v, usable %+v", n.Fabrics(), n.Usable())
	}
}
