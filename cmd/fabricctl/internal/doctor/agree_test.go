package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/nccl"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// found are the findings of an id, with their status: "FAIL WARN".
func found(list []Finding, id string) string {
	var out []string
	for _, f := range list {
		if f.ID == id {
			out = append(out, string(f.Status))
		}
	}
	return strings.Join(out, " ")
}

// nccl-env has nothing to print exactly where a job would go over TCP according to doctor pod.
func TestUsableByBoth(t *testing.T) {
	pods := machines.Pods()
	down := machines.PodNamed("h20-shared-bare")
	down.Name = "h20 all down"
	for _, hca := range down.Rails {
		down.Down(hca)
	}
	for _, p := range append(pods, down) {
		c := seen(t, p)
		vars, _ := nccl.Choose(c.PodView()).Env()
		if list := CheckPod(c); (len(vars) == 0) != (Worst(list) == Fail) {
			t.Errorf("%s: nccl-env has %d variables, doctor pod: %s", p.Name, len(vars), text(list))
		}
	}
}

// A host without a port that carries traffic is wrong.
func TestHostAllDown(t *testing.T) {
	m := machines.H20()
	for _, hca := range []string{"mlx5_0", "mlx5_3", "mlx5_4", "mlx5_7"} {
		m.Down(hca)
	}
	if list := CheckHost(host(t, m)); Worst(list) != Fail || !strings.Contains(found(list, "host-port-state"), "FAIL") {
		t.Errorf("%s", text(list))
	}
}

// Three of four ports have trained down: doctor host, doctor pod and nccl-env agree which, and all four are used,
// because they carry more together than the fast one.
func TestMostSlow(t *testing.T) {
	slow := func(m *machines.Machine) {
		for _, hca := range []string{"mlx5_3", "mlx5_4", "mlx5_7"} {
			m.PortFile(hca, "rate", "200 Gb/sec (2X NDR)")
		}
	}
	m, p := machines.H20(), machines.PodNamed("h20-exclusive")
	slow(m)
	slow(p.Machine)
	c := seen(t, p)
	choice := nccl.Choose(c.PodView())
	vars, notes := choice.Env()
	if got := fmt.Sprint(choice.Names()); got != "[mlx5_0:1 mlx5_3:1 mlx5_4:1 mlx5_7:1]" || len(choice.Slow) != 3 {
		t.Errorf("%s, slow: %+v", got, choice.Slow)
	}
	for _, name := range []string{"mlx5_3:1", "mlx5_4:1", "mlx5_7:1"} {
		says := func(list []Finding, id string) bool {
			return slices.ContainsFunc(list, func(f Finding) bool {
				return f.ID == id && f.Status == Warn && strings.Contains(f.Evidence, name)
			})
		}
		if !says(CheckHost(host(t, m)), "host-rate") || !says(CheckPod(c), "pod-rate") ||
			!slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, name+" ") }) {
			t.Errorf("%s is not slow for all of them", name)
		}
	}
	if list := aboutEnv(CheckPod(seen(t, p, environ(vars)...))); len(list) > 0 {
		t.Errorf("with the variables of nccl-env: %+v", list)
	}
	// The findings are one for the pod, not one for each port.
	if got := found(CheckPod(c), "pod-rate"); got != "WARN" {
		t.Errorf("pod-rate: %s", got)
	}
}

// Settings that can't work, or not well, each by its own check.
func TestSettings(t *testing.T) {
	pkeys := func(keys ...string) func(p *Pod) {
		return func(p *Pod) {
			p.Node.EachPort(func(_ *node.HCA, q *node.Port) { q.PKeys = keys })
		}
	}
	for _, c := range []struct {
		pod, env string
		spoil    func(p *Pod)
		id, want string
	}{
		{"roce-exclusive", "NCCL_CROSS_NIC=1", nil, "pod-env-cross-nic", "FAIL"},
		{"roce-exclusive", "NCCL_CROSS_NIC=2", nil, "pod-env-cross-nic", "WARN"},
		{"roce-exclusive", "NCCL_CROSS_NIC=0", nil, "pod-env-cross-nic", "OK"},
		{"h20-exclusive", "NCCL_CROSS_NIC=1", nil, "pod-env-cross-nic", ""},
		{"gb300-exclusive", "NCCL_IB_DATA_DIRECT=0", nil, "pod-env-data-direct", "WARN"},
		{"gb300-exclusive", "NCCL_IB_DATA_DIRECT=1", nil, "pod-env-data-direct", "OK"},
		{"gb300-exclusive", "", nil, "pod-env-data-direct", ""},
		{"gb200-exclusive", "NCCL_IB_DATA_DIRECT=0", nil, "pod-env-data-direct", ""},
		{"h20-exclusive", "NCCL_SOCKET_IFNAME=lo", nil, "pod-env-socket", "WARN"},
		{"h20-exclusive", "GLOO_SOCKET_IFNAME=lo", nil, "pod-env-socket", "WARN"},
		{"h20-shared-privileged", "NCCL_IB_HCA=mlx5_bond_0", nil, "pod-env-hca", "FAIL"},
		{"h20-exclusive", "", nil, "pod-pkey", "OK"},
		{"h20-exclusive", "", pkeys("0x7fff"), "pod-pkey", "WARN"},
		{"h20-exclusive", "", pkeys("0x7fff", "0x8001"), "pod-pkey", "OK"},
		{"h20-exclusive", "NCCL_IB_PKEY=1", pkeys("0x7fff", "0x8001"), "pod-pkey", "OK"},
		{"h20-exclusive", "NCCL_IB_PKEY=0", pkeys("0x7fff", "0x8001"), "pod-pkey", "WARN"},
		{"h20-exclusive", "NCCL_IB_PKEY=1", pkeys("0xffff", "0x0000", "0x8001"), "pod-pkey", "FAIL"},
		{"h20-exclusive", "NCCL_IB_PKEY=1", nil, "pod-pkey", "FAIL"},
		{"h20-exclusive", "NCCL_IB_PKEY=x", nil, "pod-pkey", "FAIL"},
		{"roce-exclusive", "NCCL_IB_PKEY=0", nil, "pod-pkey", ""},
		{"h20-exclusive", "", func(p *Pod) { p.Memlock, p.IPCLock = 64<<10, false }, "pod-memlock", "FAIL"},
		{"h20-exclusive", "", func(p *Pod) { p.Memlock, p.IPCLock = 64<<30, false }, "pod-memlock", "WARN"},
	} {
		p := seen(t, machines.PodNamed(c.pod), c.env)
		if c.spoil != nil {
			c.spoil(p)
		}
		if got := found(CheckPod(p), c.id); got != c.want {
			t.Errorf("%s %s: %s is %q, want %q", c.pod, c.env, c.id, got, c.want)
		}
	}
	if got := bytesText(64<<30) + ", " + bytesText(64<<10) + ", " + bytesText(12); got != "64 GiB, 64 KiB, 12 bytes" {
		t.Error(got)
	}
}

// NCCL_IB_PKEY is an index of the port's table, in which empty entries count.
func TestPKeyIndex(t *testing.T) {
	p := machines.PodNamed("h20-exclusive-one")
	for name, key := range map[string]string{"0": "0x7fff", "1": "0x0000", "2": "0x8001"} {
		p.PortFile(p.Rails[0], "pkeys/"+name, key)
	}
	vars, _ := nccl.Choose(seen(t, p).PodView()).Env()
	if !slices.Contains(environ(vars), "NCCL_IB_PKEY=2") {
		t.Error(environ(vars))
	}
}
