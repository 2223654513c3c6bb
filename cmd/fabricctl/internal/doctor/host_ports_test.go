package doctor

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

// What a port that is down needs depends on what it is: only a VF has a link state that its PF sets, and a RoCE port
// follows its interface.
func TestDownPorts(t *testing.T) {
	const disabled, linkUp, polling = "3: Disabled", "5: LinkUp", "2: Polling"
	for name, c := range map[string]struct {
		machine     *machines.Machine
		hca, phys   string
		flags       string // of the interface; empty: can't be read
		kind        string // empty: a PF
		cause, cure string
	}{
		"RoCE, interface down": {machines.RoCE(), "mlx5_3", disabled, "0x1002", "", "the interface xgbe3 is down",
			"ip link set xgbe3 up"},
		"RoCE, no carrier": {machines.RoCE(), "mlx5_3", disabled, "0x1003", "", "has no carrier: cable",
			"ethtool xgbe3"},
		"RoCE, not known": {machines.RoCE(), "mlx5_3", disabled, "", "", "is down, or has no carrier", "ip " +
			"link set xgbe3 up"},
		"InfiniBand, no peer": {machines.H20(), "mlx5_3", polling, "0x1003", "", "no peer answers", "mlxlink -d " +
			"0000:4b:00.0 -m -c " +
			"shows"},
		"InfiniBand, disabled": {machines.H20(), "mlx5_3", disabled, "0x1003", "", "disabled by the administrator",
			"mlxlink -d 0000:4b:00.0 --port_state UP"},
		"InfiniBand, LinkUp": {machines.H20(), "mlx5_3", linkUp, "0x1003", "", "firmware", "journalctl"},
		"VF": {machines.H20(), "mlx5_3", linkUp, "0x1003", "VF", "the VF's link state", "vf N " +
			"state auto"},
		"VF, disabled": {machines.H20(), "mlx5_3", disabled, "0x1003", "VF", "the VF's link state", "vf N " +
			"state auto"},
		"RoCE VF, idle": {machines.RoCE(), "mlx5_3", disabled, "0x1002", "VF", "the interface xgbe3 is " +
			"down", "idle VF"},
		"RoCE VF": {machines.RoCE(), "mlx5_3", disabled, "0x1003", "VF", "the VF's link state",
			"vf N state auto"},
	} {
		m := c.machine
		m.PortFile(c.hca, "state", "1: DOWN")
		m.PortFile(c.hca, "phys_state", c.phys)
		h := host(t, m)
		d := h.Node.HCA(c.hca)
		if c.flags != "" {
			m.NetFile(d.Ports[0].Netdev, "flags", c.flags)
			h = host(t, m)
			d = h.Node.HCA(c.hca)
		}
		if c.kind != "" {
			d.Kind, d.Parent = c.kind, "0000:99:00.0"
		}
		var f Finding
		for _, g := range hostPorts(h, h.Node.Fabrics()) {
			if strings.HasPrefix(g.Evidence, c.hca+":1 ") {
				f = g
			}
		}
		if !strings.Contains(f.Cause, c.cause) || !strings.Contains(f.Cure, c.cure) {
			t.Errorf("%s: %+v\nwant cause %q, cure %q", name, f, c.cause, c.cure)
		}
		if c.kind != "VF" && strings.Contains(f.Cause+f.Cure, "VF") {
			t.Errorf("%s is no VF: %+v", name, f)
		}
	}
}

// A VF is down because its PF is: nothing is to be done to the VF.
func TestDownWithPF(t *testing.T) {
	m := machines.H20()
	m.PortFile("mlx5_3", "state", "1: DOWN")
	h := host(t, m)
	vf := topology.Port{HCA: "mlx5_9", Port: 1, Kind: "VF", Slot: h.Node.HCA("mlx5_3").PCI, LinkLayer: "InfiniBand"}
	f := Finding{}
	if h.mendPort(&vf, &f); f.Cause != "the port of its PF is Down" {
		t.Errorf("%+v", f)
	}
}

func TestHostRates(t *testing.T) {
	h20 := func(change func(m *machines.Machine)) *machines.Machine {
		m := machines.H20()
		change(m)
		return m
	}
	const slow = "200 Gb/sec (2X NDR)"
	for name, c := range map[string]struct {
		m    *machines.Machine
		want string // of the evidence, "-": in order; empty: nothing
	}{
		"all alike": {h20(func(*machines.Machine) {}), "-"},
		"another board": {h20(func(m *machines.Machine) {
			m.PortFile("mlx5_4", "rate", slow)
			m.HCAFile("mlx5_4", "board_id", "MT_0000000999")
		}), "-"},
		"another fabric": {h20(func(m *machines.Machine) {
			m.PortFile("mlx5_4", "rate", slow)
			m.PortFile("mlx5_4", "sm_lid", "0x9")
		}), "-"},
		"most are slow": {h20(func(m *machines.Machine) {
			for _, hca := range []string{"mlx5_3", "mlx5_4", "mlx5_7"} {
				m.PortFile(hca, "rate", slow)
			}
		}), "mlx5_3:1 (0000:4b:00.0) at 200 Gb/sec (2X NDR), mlx5_4:1"},
		"each rail is a subnet": {h20(func(m *machines.Machine) {
			for i, hca := range []string{"mlx5_0", "mlx5_3", "mlx5_4", "mlx5_7"} {
				m.PortFile(hca, "sm_lid", []string{"0x1", "0x2", "0x3", "0x4"}[i])
			}
			m.PortFile("mlx5_7", "rate", slow)
		}), "mlx5_7:1 (0000:b1:00.0) at 200 Gb/sec (2X NDR); mlx5_0:1, mlx5_3:1, mlx5_4:1 of the same card " +
			"model at 400"},
		"down": {h20(func(m *machines.Machine) {
			m.PortFile("mlx5_4", "rate", "10 Gb/sec (4X SDR)")
			m.PortFile("mlx5_4", "state", "1: DOWN")
		}), "-"},
		"the bond is slower": {machines.RoCE(), "-"},
		"no ports":           {machines.Plain(), ""},
	} {
		h := host(t, c.m)
		list := hostRates(h, h.Node.Fabrics())
		switch {
		case c.want == "" && len(list) > 0, c.want != "" && len(list) != 1, c.want == "-" && list[0].Status != OK:
			t.Errorf("%s: %+v", name, list)
		case len(c.want) > 1 && !strings.HasPrefix(list[0].Evidence, c.want):
			t.Errorf("%s: %s", name, cmp.Diff(c.want, list[0].Evidence))
		}
	}
}

// Not being able to look is not finding nothing.
func TestHostStranded(t *testing.T) {
	for name, c := range map[string]struct {
		h    Host
		want string
	}{
		"in order":    {Host{Journal: true}, "OK nothing is left behind"},
		"a recording": {Host{}, ""},
		"not root": {Host{Journal: true, StrandedErr: fs.ErrPermission},
			"WARN could not be checked: permission denied"},
		"some": {Host{Journal: true, Stranded: []string{"net1 of ml/a"}, StrandedErr: errors.New("a\nb")},
			"FAIL net1 of ml/a, WARN could not be checked: a; b"},
	} {
		var got []string
		for _, f := range hostStranded(&c.h, topology.Fabrics{}) {
			got = append(got, string(f.Status)+" "+f.Evidence)
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s: %q, want %q", name, s, c.want)
		}
	}
}

// GPU memory is reached by nvidia_peermem, or as DMA-BUF, which takes the open kernel modules and Linux 5.12.
func TestHostGPUDirect(t *testing.T) {
	const open, closed = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.1", "NVRM version: NVIDIA " +
		"UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6"
	for name, c := range map[string]struct {
		m                     *machines.Machine
		driver, taint, kernel string
		ok                    bool
		evidence              string
	}{
		"GB200":                     {machines.GB200(), open, "", "6.8.0-1021-nvidia-64k", true, "DMA-BUF"},
		"GB200, driver not visible": {machines.GB200(), "", "", "6.8.0", true, "GPUs of this kind"},
		"GB200, old kernel": {machines.GB200(), open, "", "5.4.0-100", false, "5.12 or later, and " +
			"this is 5.4.0-100"},
		"H20, open":                   {machines.H20(), open, "", "5.15.0", true, "DMA-BUF"},
		"H20, proprietary":            {machines.H20(), closed, "", "6.8.0", false, "proprietary"},
		"H20, proprietary by taint":   {machines.H20(), "", "POE", "6.8.0", false, "proprietary"},
		"H20, open by taint":          {machines.H20(), "", "OE", "6.8.0", true, "DMA-BUF"},
		"H20, nothing known":          {machines.H20(), "", "", "6.8.0", false, "not known"},
		"H20, open, kernel not known": {machines.H20(), open, "", "", false, "5.12 or later"},
	} {
		c.m.Without("sys/module/nvidia_peermem")
		c.m.Without("proc/driver/nvidia")
		if c.driver != "" {
			c.m.File("proc/driver/nvidia/version", c.driver+"\nGCC version: 12")
		}
		if c.taint != "" {
			c.m.File("sys/module/nvidia/taint", c.taint)
		}
		h := host(t, c.m)
		h.Node.Kernel = c.kernel
		list := hostGPUDirect(h, topology.Fabrics{})
		if len(list) != 1 || (list[0].Status == OK) != c.ok || !strings.Contains(list[0].Evidence, c.evidence) {
			t.Errorf("%s: %+v", name, list)
		}
	}
}
