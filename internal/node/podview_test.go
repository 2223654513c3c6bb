package node_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// Which of the visible HCAs are the pod's: by interface, by character device, by the device plugin's variables.
func TestPodView(t *testing.T) {
	all := map[string]string{}
	for _, p := range machines.Pods() {
		n, err := node.Open(p.FS, journal.Store{})
		if err != nil {
			t.Fatal(err)
		}
		env := node.DeviceEnv{Openable: openable(p.FS)}
		for _, e := range p.Env {
			if _, v, ok := strings.Cut(e, "="); ok && strings.HasPrefix(e, "PCIDEVICE_") {
				env.PCI = append(env.PCI, v)
			}
		}
		g := n.PodView(env)
		var names []string
		for _, h := range g.Node.HCAs {
			if h.Bond == "" {
				names = append(names, h.Name)
			}
		}
		all[p.Name] = strings.Join(names, " ")
		guess := strings.HasSuffix(p.Name, "-privileged") || strings.HasSuffix(p.Name, "-privileged-slow")
		// Where a pod without interfaces has been given all there is, that can't be told from a privileged one.
		whole := len(p.Rails) == len(n.HCAs) && n.RDMAMode == "shared" && len(n.Netdevs) == 0
		if g.Guessed != (guess || whole) {
			t.Errorf("%s: guessed: %v", p.Name, g.Guessed)
		}
		want := strings.Join(p.Rails, " ")
		switch {
		case guess && strings.HasPrefix(p.Name, "h20"): // they are InfiniBand, and down
			want = "mlx5_0 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_7"
		case guess && strings.HasPrefix(p.Name, "a100"):
			want = "mlx5_0 mlx5_1"
		}
		if d := cmp.Diff(want, all[p.Name]); d != "" {
			t.Errorf("%s (-want +got):\n%s", p.Name, d)
		}
	}
}

func openable(tree fstest.MapFS) map[string]bool {
	out := map[string]bool{}
	for name, f := range tree {
		u, ok := strings.CutPrefix(name, "sys/class/infiniband_verbs/")
		if !ok {
			continue
		}
		u, _, _ = strings.Cut(u, "/")
		out[strings.TrimSpace(string(f.Data))] = tree["dev/infiniband/"+u] != nil
	}
	return out
}

// A port of a bond is no rail beside others; on nodes whose rails are bonds it is.
func TestPodViewBonds(t *testing.T) {
	n, err := node.Open(machines.PodNamed("roce-shared-privileged").FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	if h := n.PodView(node.DeviceEnv{}).Node.HCA("mlx5_bond_0"); h.Bond != "bond0" {
		t.Errorf("beside rails: %q", h.Bond)
	}
	only := n.HCA("mlx5_bond_0")
	n.HCAs = []node.HCA{*only, *only}
	n.HCAs[1].Name = "mlx5_bond_1"
	for _, h := range n.PodView(node.DeviceEnv{}).Node.HCAs {
		if h.Bond != "" {
			t.Errorf("alone: %s: %q", h.Name, h.Bond)
		}
	}
}
