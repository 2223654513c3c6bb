package nccl

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

func open(t *testing.T, m *machines.Machine) *node.Node {
	t.Helper()
	n, err := node.Open(m.FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func brief(vars []Var) string {
	var out []string
	for _, v := range vars {
		if v.Reason == "" {
			out = append(out, "no reason:")
		}
		out = append(out, v.Name+"="+v.Value)
	}
	return strings.Join(out, "\n")
}

func env(n *node.Node) ([]Var, []string) { return Choose(n.PodView(node.DeviceEnv{})).Env() }

const common = "\nOMPI_MCA_coll_hcoll_enable=0"

func TestEnv(t *testing.T) {
	for name, want := range map[string]string{
		"h20": "NCCL_IB_HCA==mlx5_0:1,mlx5_3:1,mlx5_4:1,mlx5_7:1\nNCCL_SOCKET_IFNAME==bond0\n" +
			"GLOO_SOCKET_IFNAME=bond0\nUCX_NET_DEVICES=mlx5_0:1,mlx5_3:1,mlx5_4:1,mlx5_7:1\n" +
			"NVSHMEM_HCA_LIST=mlx5_0:1,mlx5_3:1,mlx5_4:1,mlx5_7:1" + common,
		"roce": "NCCL_IB_HCA==mlx5_2:1,mlx5_3:1,mlx5_4:1,mlx5_5:1\nNCCL_SOCKET_IFNAME==bond0\n" +
			"GLOO_SOCKET_IFNAME=bond0\nNCCL_IB_GID_INDEX=3\nNCCL_CROSS_NIC=0\n" +
			"UCX_NET_DEVICES=mlx5_2:1,mlx5_3:1,mlx5_4:1,mlx5_5:1\n" +
			"NVSHMEM_HCA_LIST=mlx5_2:1,mlx5_3:1,mlx5_4:1,mlx5_5:1\nNVSHMEM_IB_GID_INDEX=3" + common,
		"a100": "NCCL_IB_HCA==mlx5_0:1\nNCCL_SOCKET_IFNAME==bond0\nGLOO_SOCKET_IFNAME=bond0\n" +
			"UCX_NET_DEVICES=mlx5_0:1\nNVSHMEM_HCA_LIST=mlx5_0:1" + common,
		"gb200": "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1\nUCX_NET_DEVICES=mlx5_0:1,mlx5_1:1,mlx5_2:1," +
			"mlx5_3:1\nNVSHMEM_HCA_LIST=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1" + common,
		"plain": "",
	} {
		vars, notes := env(open(t, machines.Named(name)))
		if d := cmp.Diff(want, brief(vars)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if len(vars) == 0 && len(notes) == 0 {
			t.Errorf("%s: neither a variable nor a note", name)
		}
	}
}

// The index is computed per device, and never assumed.
func TestGIDIndex(t *testing.T) {
	n := open(t, machines.RoCE())
	p := &n.HCA("mlx5_3").Ports[0]
	p.GIDs = slices.Delete(slices.Clone(p.GIDs), 0, 2)
	for i := range p.GIDs {
		p.GIDs[i].Index = i
	}
	vars, _ := env(n)
	if s := brief(
		vars,
	); strings.Contains(s, "NCCL_IB_GID_INDEX") ||
		!strings.Contains(s, "NCCL_IB_ROCE_VERSION_NUM=2") {
		t.Errorf("indexes differ:\n%s", s)
	}
	p.GIDs = p.GIDs[:0]
	if _, notes := env(n); !strings.Contains(strings.Join(notes, "\n"), "mlx5_3:1 has no RoCE v2 GID") {
		t.Errorf("no GID: %v", notes)
	}
	six := &node.Port{
		GIDs: []node.GID{
			{Index: 1, GID: "fe80::1", Type: "RoCE v2"},
			{Index: 4, GID: "2001:db8::1", Type: "IB/RoCE v1"},
			{Index: 5, GID: "2001:db8::1", Type: "RoCE v2"},
		},
	}
	if i := routable(six); i != 5 {
		t.Errorf("IPv6: index %d", i)
	}
}

func TestPKey(t *testing.T) {
	n := open(t, machines.H20())
	n.HCA("mlx5_0").Ports[0].PKeys = []string{"0x7fff", "0x8001"}
	vars, notes := env(n)
	if strings.Contains(brief(vars), "NCCL_IB_PKEY") || !strings.Contains(strings.Join(notes, "\n"),
		"mlx5_0:1: 1, mlx5_3:1: 0") {
		t.Errorf("another index on each port: %s\n%v", brief(vars), notes)
	}
	for _, hca := range []string{"mlx5_3", "mlx5_4", "mlx5_7"} {
		n.HCA(hca).Ports[0].PKeys = []string{"0x7fff", "0x8001"}
	}
	vars, _ = env(n)
	if s := brief(vars); !strings.Contains(s, "NCCL_IB_PKEY=1") {
		t.Errorf("%s", s)
	}
	n.HCA("mlx5_7").Ports[0].PKeys = []string{"0x7fff"}
	if _, notes = env(n); !strings.Contains(strings.Join(notes, "\n"), "mlx5_7:1 is a limited member") {
		t.Errorf("%v", notes)
	}
}

// A whole port and its functions share one link: functions count only where they are all there is.
func TestFunctions(t *testing.T) {
	n := open(t, machines.RoCE())
	vf := *n.HCA("mlx5_2")
	vf.Name, vf.Kind, vf.Parent, vf.PCI = "mlx5_9", "VF", vf.PCI, "0000:23:00.2"
	n.HCAs = append(n.HCAs, vf)
	vars, _ := env(n)
	if s := brief(vars); strings.Contains(s, "mlx5_9") {
		t.Errorf("with its PF:\n%s", s)
	}
	n.HCAs = slices.DeleteFunc(n.HCAs, func(h node.HCA) bool { return h.Name == "mlx5_2" })
	vars, _ = env(n)
	if s := brief(vars); !strings.Contains(s, "NCCL_IB_HCA==mlx5_9:1,mlx5_3:1") {
		t.Errorf("alone:\n%s", s)
	}
}

func TestPrint(t *testing.T) {
	vars := []Var{{"NCCL_A", "it's", "why"}, {"UCX_B", "x", "because"}}
	for format, want := range map[string]string{
		"export":    "# note: n\n# why\nexport NCCL_A='it'\\''s'\n# because\nexport UCX_B='x'\n",
		"dotenv":    "# note: n\n# why\nNCCL_A=it's\n# because\nUCX_B=x\n",
		"nccl.conf": "# note: n\n# why\nNCCL_A=it's\n",
	} {
		if d := cmp.Diff(want, Print(format, vars, []string{"n"})); d != "" {
			t.Errorf("%s (-want +got):\n%s", format, d)
		}
	}
}

// A name that a pod has given its device, and others see, is neither a command nor a second entry of a list.
func TestHostileNames(t *testing.T) {
	for _, name := range []string{
		"x\ntouch pwned #", "$(touch pwned)", "`touch pwned`", "';touch pwned;'", "a,b", "^a", "=a",
		"a:1", "\x1b[2J", "mlx5\u202e0", "a b", "",
	} {
		n := open(t, machines.H20())
		n.HCAs[0].Name, n.Primary = name, name
		n.HCAs[1].Ports[0].PKeys = []string{"0x7fff\ntouch pwned", "0x8001"}
		vars, notes := env(n)
		for _, v := range vars {
			if name != "" && strings.Contains(v.Value, name) {
				t.Errorf("%q is in %s=%q", name, v.Name, v.Value)
			}
		}
		for _, format := range Formats {
			dir := t.TempDir()
			sh := exec.CommandContext(t.Context(), "sh")
			sh.Dir, sh.Stdin = dir, strings.NewReader(Print(format, vars, notes))
			if out, err := sh.CombinedOutput(); err != nil && format == "export" {
				t.Errorf("%q: %s: %v: %s", name, format, err, out)
			}
			if made, err := filepath.Glob(dir + "/*"); err != nil || len(made) > 0 {
				t.Errorf("%q: %s: the shell has made %v (%v)", name, format, made, err)
			}
		}
	}
}

// Two fabrics of one rate may be planes of one network: nccl-env names one and reports that, and naming both is right.
func TestTwoFabrics(t *testing.T) {
	n := open(t, machines.V100())
	n.HCA("mlx5_1").Ports[0].Prefix++
	g := n.PodView(node.DeviceEnv{})
	c := Choose(g)
	vars, notes := c.Env()
	if !strings.Contains(brief(vars), "NCCL_IB_HCA==mlx5_0:1\n") || !strings.Contains(strings.Join(notes, "\n"),
		"left out: mlx5_1:1 is in fabric "+
			"ib-100g-b") || !strings.Contains(strings.Join(notes, "\n"), "NCCL_CROSS_NIC=0") {
		t.Errorf("%s\n%v", brief(vars), notes)
	}
	for value, other := range map[string]bool{"=mlx5_0,mlx5_1": false, "=mlx5_1": true} {
		v := c.Judge(&Libraries[0], value, func(string) bool { return false })
		if len(v.Left) > 0 || len(v.Missing) > 0 || v.Dead || v.Other != other {
			t.Errorf("%s: %+v", value, v)
		}
	}
}

// In a pod that sees the whole node a port of another kind of card is no rail, whatever its rate; in one that was given
// it it is.
func TestOtherKind(t *testing.T) {
	p := machines.PodNamed("gb200-shared-privileged")
	n := open(t, p.Machine)
	n.HCA("mlx5_3").ID = "15b3:a2dc"
	vars, notes := env(n)
	if s := brief(vars); !strings.Contains(s, "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1,mlx5_2:1\n") ||
		!strings.Contains(strings.Join(notes, "\n"), "mlx5_3:1 is another kind of card than 3 others") {
		t.Errorf("%s\n%v", s, notes)
	}
	n.RDMAMode = "exclusive"
	if vars, _ = env(n); !strings.Contains(brief(vars), "mlx5_3:1") {
		t.Errorf("given: %s", brief(vars))
	}
}
