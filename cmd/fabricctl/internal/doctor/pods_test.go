package doctor

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/nccl"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// seen is what a process in the container of a pod finds there, with more in its environment.
func seen(t *testing.T, p *machines.Pod, env ...string) *Pod {
	t.Helper()
	n, err := node.Open(p.FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	proc, err := fs.Sub(p.FS, "proc/self")
	if err != nil {
		t.Fatal(err)
	}
	return CollectPod(p.FS, proc, n, append(slices.Clone(p.Env), env...))
}

// environ are variables as an environment has them.
func environ(vars []nccl.Var) (out []string) {
	for _, v := range vars {
		out = append(out, v.Name+"="+v.Value)
	}
	return out
}

// aboutEnv are the findings about variables that are not in order. Of what is not set the golden file tells.
func aboutEnv(list []Finding) (out []Finding) {
	for _, f := range list {
		if f.Status != OK && !strings.HasPrefix(f.Evidence, "NCCL_IB_HCA is not "+
			"set") && (strings.HasPrefix(f.ID, "pod-env") || f.ID == "pod-gid-index") {
			out = append(out, f)
		}
	}
	return out
}

// What is said of each pod, and what it should set.
func TestPods(t *testing.T) {
	var b strings.Builder
	for _, p := range machines.Pods() {
		fmt.Fprintf(&b, "== %s\n", p.Name)
		c := seen(t, p)
		vars, notes := nccl.Choose(c.PodView()).Env()
		for _, v := range vars {
			if v.Name != "OMPI_MCA_coll_hcoll_enable" && !strings.HasSuffix(v.Name, "SOCKET_IFNAME") {
				fmt.Fprintf(&b, "%s=%s\n", v.Name, v.Value)
			}
		}
		for _, n := range notes {
			fmt.Fprintf(&b, "# %s\n", n)
		}
		for _, f := range CheckPod(c) {
			if f.Status != OK || f.ID == "pod-interface" {
				fmt.Fprintf(&b, "%s %s %s\n", f.Status, f.ID, f.Evidence)
			}
		}
	}
	const file = "testdata/pods.golden"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("%s (-is +should be); go test ./cmd/fabricctl/internal/doctor -update writes it:\n%s", file, d)
	}
}

// What nccl-env prints is in order for doctor pod, in every pod and on every machine, with and without knowledge of all
// interfaces; and so is what doctor pod recommends.
func TestEnvOfPods(t *testing.T) {
	wrong := []string{"NCCL_IB_HCA==mlx5_77:1", "UCX_NET_DEVICES=mlx5_77:1", "NVSHMEM_HCA_LIST=mlx5_77"}
	check := func(name string, see func(env ...string) *Pod) {
		vars, _ := nccl.Choose(see().PodView()).Env()
		if len(vars) == 0 {
			return
		}
		for _, f := range aboutEnv(CheckPod(see(environ(vars)...))) {
			t.Errorf("%s: with the variables of nccl-env: %+v", name, f)
		}
		var env []string
		for _, f := range aboutEnv(CheckPod(see(wrong...))) {
			if v, _, ok := strings.Cut(f.Cure, "; "); ok && f.ID == "pod-env-hca" && strings.Contains(v, "=") {
				env = append(env, v)
			}
		}
		if len(env) < len(wrong) {
			t.Errorf("%s: the recommendations are %q", name, env)
		}
		for _, f := range aboutEnv(CheckPod(see(env...))) {
			t.Errorf("%s: with the recommendations %q: %+v", name, env, f)
		}
	}
	for _, p := range machines.Pods() {
		check(p.Name, func(env ...string) *Pod { return seen(t, p, env...) })
		check(p.Name, func(env ...string) *Pod { // as where not all interfaces are known
			c := seen(t, p, env...)
			c.Interfaces = nil
			return c
		})
	}
	for _, m := range machines.All() {
		check(m.Name, func(env ...string) *Pod {
			return CollectPod(m.FS, m.FS, host(t, m).Node, env)
		})
	}
}

// Wrong variables, each in the pod that provoked it.
func TestWrongEnv(t *testing.T) {
	for _, c := range []struct{ pod, env, want string }{
		{"h20-exclusive", "NCCL_IB_HCA==mlx5_0:2", "FAIL not in the pod: mlx5_0:2. No port that can work: NCCL " +
			"goes over TCP without an error\n"},
		{"h20-shared-privileged", "UCX_NET_DEVICES=mlx5_5:1", "FAIL mlx5_5:1 is Down (physical state Polling): no " +
			"peer answers: cable, transceiver or switch port. No port that can work: UCX does not start, or goes " +
			"over TCP\n"},
		{"h20-shared-bare", "UCX_NET_DEVICES=mlx5_5:1", "FAIL the container has no character device of mlx5_5:1. No " +
			"port that can work: UCX does not start, or goes over TCP\n"},
		{"h20-exclusive", "UCX_NET_DEVICES=mlx5_0", "FAIL not in the pod: mlx5_0. No port that can work: UCX " +
			"does not start, or goes over TCP\n"},
		{"h20-exclusive", "NCCL_IB_HCA==mlx5_0:1", "WARN 1 of 4 rails; not used: mlx5_3:1, mlx5_4:1, mlx5_7:1\n"},
		{"h20-exclusive", "NCCL_IB_HCA=mlx5_0,mlx5_3,mlx5_4,mlx5_7", ""},
		{"h20-exclusive", "NCCL_IB_HCA=mlx5", ""},
		{"h20-exclusive", "NCCL_IB_HCA=^mlx5_bond_0", ""},
		{"h20-exclusive", "UCX_NET_DEVICES=all", ""},
		{"h20-exclusive", "UCX_NET_DEVICES=mlx5_*:1", ""},
		{"h20-exclusive", "UCX_NET_DEVICES=eth0", "WARN none of 4 rails: mlx5_0:1, mlx5_3:1, mlx5_4:1, mlx5_7:1\n"},
		{"h20-exclusive", "NCCL_IB_HCA=^", "FAIL no port that can work: NCCL goes over TCP without an error\n"},
		{"h20-exclusive", "NVSHMEM_HCA_LIST==mlx5_0:1", "FAIL not in the pod: =mlx5_0:1. No port that can work: " +
			"NVSHMEM does not start, or has no remote transport\n"},
		{"roce-shared-privileged", "NCCL_IB_HCA=mlx5", "WARN mlx5_bond_0:1 is part of bond bond0: it carries the " +
			"node's own traffic (storage, bootstrap); no rail of its own\n"},
		{"roce-shared-privileged-faces", "NCCL_IB_HCA=mlx5",
			"WARN the interface is in another network namespace: mlx5_bond_0:1\n"},
		{"roce-shared-privileged-one", "NCCL_IB_HCA==mlx5_2:1,mlx5_3:1",
			"WARN the interface is in another network namespace: mlx5_3:1\n"},
		{"roce-exclusive-no-address", "NCCL_IB_HCA==mlx5_2:1,mlx5_3:1,mlx5_4:1,mlx5_5:1",
			"WARN mlx5_5:1 has no RoCE v2 GID for an IP address: give xgbe5 an address\n"},
		{"h20-exclusive-slow", "NCCL_IB_HCA=mlx5", "WARN mlx5_7:1 runs at 200 Gb/sec (2X NDR), and mlx5_0:1, " +
			"mlx5_3:1, mlx5_4:1 of the same kind (ConnectX-7) at 400 Gb/s: its link has trained down. A collective " +
			"runs at the pace of its slowest port\n"},
		{"roce-shared-privileged-named", "NCCL_IB_HCA==mlx5_3:1",
			"WARN given to another pod (not among the devices that PCIDEVICE_... names): mlx5_3:1\n"},
		{"a100-exclusive", "NCCL_IB_HCA=mlx5_bond_0", "FAIL not in the pod: mlx5_bond_0. No port that can work: NCCL " +
			"goes over TCP without an error\n"},
		{"a100-shared-privileged", "NCCL_IB_HCA==mlx5_bond_0", "FAIL mlx5_bond_0:1 is part of bond bond0: it carries " +
			"the node's own traffic (storage, bootstrap); no rail of its own. None of 1 rail: mlx5_0:1\n"},
	} {
		var b strings.Builder
		for _, f := range aboutEnv(CheckPod(seen(t, machines.PodNamed(c.pod), c.env))) {
			fmt.Fprintf(&b, "%s %s\n", f.Status, strings.TrimPrefix(f.Evidence, c.env+": "))
		}
		if b.String() != c.want {
			t.Errorf("%s, %s:\n%swant:\n%s", c.pod, c.env, b.String(), c.want)
		}
	}
}

// The index of the GID counts on the ports that are used, and the interface of the bootstrap is one of the pod's.
func TestWrongIndexAndInterface(t *testing.T) {
	for _, c := range []struct {
		pod  string
		env  []string
		want string
	}{
		{"roce-exclusive-no-address", []string{"NCCL_IB_GID_INDEX=3"},
			"FAIL pod-gid-index NCCL_IB_GID_INDEX=3 is no entry of mlx5_5\n"},
		{"roce-exclusive-no-address", []string{"NCCL_IB_GID_INDEX=3", "NCCL_IB_HCA==mlx5_2,mlx5_3,mlx5_4"}, ""},
		{"roce-exclusive", []string{"NVSHMEM_IB_GID_INDEX=1", "NVSHMEM_HCA_LIST=mlx5_2:1", "UCX_IB_GID_INDEX=auto"},
			"WARN pod-env-hca NVSHMEM_HCA_LIST=mlx5_2:1: 1 of 4 rails; not used: mlx5_3:1, mlx5_4:1, mlx5_5:1\n" +
				"WARN pod-gid-index NVSHMEM_IB_GID_INDEX=1 is not the RoCE v2 GID of an IP address on mlx5_2: " +
				"fe80::a288:c2ff:fefa:71 of type RoCE v2\n"},
		{"h20-exclusive", []string{"NCCL_SOCKET_IFNAME==eth0", "GLOO_SOCKET_IFNAME=eth0"}, ""},
		{"h20-exclusive", []string{"NCCL_SOCKET_IFNAME=eth,ib"}, ""},
		{"h20-exclusive", []string{"NCCL_SOCKET_IFNAME=eth1", "GLOO_SOCKET_IFNAME==eth0"},
			"FAIL pod-env-socket GLOO_SOCKET_IFNAME==eth0: the pod has no interface \"=eth0\"\n" +
				"FAIL pod-env-socket NCCL_SOCKET_IFNAME=eth1 fits no interface of the pod\n"},
	} {
		var lines []string
		for _, f := range aboutEnv(CheckPod(seen(t, machines.PodNamed(c.pod), c.env...))) {
			lines = append(lines, fmt.Sprintf("%s %s %s\n", f.Status, f.ID, f.Evidence))
		}
		slices.Sort(lines)
		want := strings.SplitAfter(c.want, "\n")
		slices.Sort(want)
		if strings.Join(lines, "") != strings.Join(want, "") {
			t.Errorf("%s %v: %s", c.pod, c.env, lines)
		}
	}
}

// A verbs device that the container's cgroup does not allow is of no use to it, and the ports of the others are.
func TestDenied(t *testing.T) {
	for pod, given := range map[string]string{"h20-exclusive": "uverbs0", "gb200-shared-privileged": "uverbs0"} {
		c := seen(t, machines.PodNamed(pod))
		c.Denied = []string{given}
		vars, notes := nccl.Choose(c.PodView()).Env()
		if all := strings.Join(environ(vars), "\n"); strings.Contains(all, "mlx5_0:1") ||
			!strings.Contains(strings.Join(notes, "\n"), "without a character device in the container: mlx5_0:1") {
			t.Errorf("%s: %s\n%v", pod, all, notes)
		}
		list := CheckPod(c)
		i := slices.IndexFunc(list, func(f Finding) bool { return f.ID == "pod-usable" })
		if i < 0 || list[i].Status != Warn || list[i].Cause != deniedCause ||
			!strings.Contains(list[i].Evidence, "/dev/infiniband/uverbs0 (mlx5_0)") {
			t.Errorf("%s: %+v", pod, list)
		}
		c.Denied = c.Uverbs
		if s := text(CheckPod(c)); !strings.Contains(s, "FAIL pod-usable /dev/infiniband/uverbs0") {
			t.Errorf("%s, all of them: %s", pod, s)
		}
	}
}
