package doctor

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

var update = flag.Bool("update", false, "write docs/doctor.md")

// Every id has its place in the documentation, once.
func TestDocs(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Checks {
		if seen[c.ID] || c.Title == "" || c.Cause == "" || c.Cure == "" {
			t.Errorf("check %+v", c)
		}
		seen[c.ID] = true
	}
	for _, m := range Messages {
		if seen[m.ID] || m.Title == "" || m.Cause == "" || m.Cure == "" || len(m.Examples) == 0 {
			t.Errorf("message %+v", m)
		}
		seen[m.ID] = true
	}
	const file = "../../../../docs/doctor.md"
	want := markdown()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(b), want); d != "" {
		t.Errorf("%s (-is +should be); go test ./cmd/fabricctl/internal/doctor -update writes it:\n%s", file, d)
	}
}

// text is findings as status, id and evidence, without those that are OK.
func text(list []Finding) string {
	var b strings.Builder
	for _, f := range list {
		if f.Status != OK {
			b.WriteString(string(f.Status) + " " + f.ID + " " + f.Evidence + "\n")
		}
		if (f.Status == OK) != (f.Cause == "") || (f.Status == OK) != (f.Cure == "") {
			b.WriteString("incomplete: " + f.ID + "\n")
		}
	}
	return b.String()
}

func host(t *testing.T, m *machines.Machine) *Host {
	t.Helper()
	n, err := node.Open(m.FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	return CollectHost(m.FS, n)
}

func TestCheckHost(t *testing.T) {
	for _, c := range []struct {
		name  string
		m     *machines.Machine
		spoil func(m *machines.Machine, h *Host)
		want  string
	}{
		{"h20", machines.H20(), nil, "WARN host-port-state mlx5_5:1 (0000:a1:00.0) is Down (physical state Polling)\n" +
			"WARN host-port-state mlx5_6:1 (0000:a1:00.1) is Down (physical state Polling)\n"},
		{"roce", machines.RoCE(), nil, ""},
		{"gb200", machines.GB200(), nil, "WARN host-rdma-mode the mode is shared, netns_mode=0 in " +
			"/etc/modprobe.d/ib_core.conf\n"},
		{"v100", machines.V100(), nil, "WARN host-names ib0, ib1\n"},
		{"trained down", machines.TrainedDown(), nil,
			"WARN host-port-state mlx5_5:1 (0000:a1:00.0) is Down (physical state Polling)\n" +
				"WARN host-port-state mlx5_6:1 (0000:a1:00.1) is Down (physical state Polling)\n" +
				"WARN host-rate mlx5_4:1 (0000:7e:00.0) at 200 Gb/sec (2X NDR); mlx5_0:1, mlx5_3:1, " +
				"mlx5_7:1 of the same card model at 400 Gb/s\n"},
		{"plain", machines.Plain(), nil, "FAIL host-devices no RDMA device in /sys/class/infiniband, none in the " +
			"journal\n"},
		{"everything", machines.RoCE(), func(_ *machines.Machine, h *Host) {
			h.Modules = map[string]bool{"ib_core": true}
			h.ModeConf, h.Cmdline, h.HasUnit, h.Memlock = "", "root=/dev/sda1 intel_iommu=on", true, "8388608"
			h.CNI, h.Plugins = []string{"10-calico.conflist", "20-multus.conf"}, []string{"bridge"}
			h.Stranded, h.PolicyErr = []string{"net1 of ml/train-0"}, errors.New("policy.json: bad")
			h.Foreign = []string{"/run/fabric-cni/locks/x is a directory, want a file"}
			h.Node.Problems = []string{"x: no permission"}
			h.Node.HCAs[1].Slower, h.Node.HCAs[1].PCIe = "32 x16", "16 x8"
			h.Node.Netdev("xgbe3").MTU = 1500
			h.Node.Netdev("xgbe3").Addrs = h.Node.Netdev("xgbe2").Addrs
		}, `WARN host-modules not loaded: ib_uverbs, rdma_cm
WARN host-rdma-mode the mode is exclusive, no netns_mode in modprobe.d or on the kernel command line
WARN host-subnets roce-200g: node roce has xgbe2, xgbe3 in one subnet, 192.168.10.0/24: traffic of all leaves ` +
			`through one of them; give each rail its own subnet, or set "routing": {"sourceBased": true}
WARN host-mtu roce-200g: MTU 1500: xgbe3; 9000: xgbe2 xgbe4 xgbe5
WARN host-pcie mlx5_2 (0000:23:00.0) runs at 16 x8 of 32 x16
WARN host-gpudirect 8 GPUs, nvidia_peermem is not loaded; which kernel modules the GPU driver has is not known
WARN host-iommu the kernel command line has the IOMMU on, and no iommu=pt
WARN host-memlock containerd.service: LimitMEMLOCK=8388608
WARN host-plugin /opt/cni/bin has 1 plugins, fabric is not among them
FAIL host-cni-order the first configuration in /etc/cni/net.d is 10-calico.conflist
FAIL host-stranded net1 of ml/train-0
WARN host-foreign /run/fabric-cni/locks/x is a directory, want a file
FAIL host-policy policy.json: bad
WARN host-picture x: no permission
`},
	} {
		h := host(t, c.m)
		if c.spoil != nil {
			c.spoil(c.m, h)
		}
		list := CheckHost(h)
		if d := cmp.Diff(c.want, text(list)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

func TestCollectHost(t *testing.T) {
	root := fstest.MapFS{}
	for name, text := range map[string]string{
		"usr/lib/modprobe.d/a.conf": "options ib_core netns_mode=Y\n",
		"etc/modprobe.d/b.conf": "# x\noptions ib_core recv_queue_size=1 " +
			"netns_mode=0\n",
		"etc/modprobe.d/b.bak":                                 "options ib_core netns_mode=1\n",
		"usr/lib/systemd/system/containerd.service":            "[Service]\nLimitMEMLOCK=8M\n",
		"etc/systemd/system/containerd.service.d/memlock.conf": "[Service]\nLimitMEMLOCK=infinity\n",
		"etc/cni/net.d/00-multus.conf":                         "{}",
		"opt/cni/bin/fabric":                                   "",
		"sys/module/nvidia_peermem/initstate":                  "live\n",
	} {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	h := CollectHost(root, &node.Node{})
	if h.ModeConf != "0" || h.ModeFile != "/etc/modprobe.d/b.conf" || h.Memlock != "infinity" || !h.HasUnit ||
		!h.Modules["nvidia_peermem"] ||
		len(h.CNI) != 1 ||
		len(h.Plugins) != 1 {
		t.Errorf("%+v", h)
	}
}
