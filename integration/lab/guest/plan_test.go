//go:build labguest

package guest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// planned is what fabricctl plan prints for the ADD of an attachment: the steps, and the codes of its refusals.
func planned(t *testing.T, a *attachment) (steps, refusals []string) {
	t.Helper()
	conf, err := json.Marshal(a.conf)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "conf")
	if err := os.WriteFile(file, conf, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"plan", "--netns", a.pod.Path, "-f", file, "--ifname", a.ifname, "--container", a.id}
	out, status := ctlStatus(t, args...)
	add, _, _ := strings.Cut(out, "# DEL\n")
	_, add, ok := strings.Cut(add, "# ADD\n")
	if !ok {
		t.Fatalf("plan: %s", out)
	}
	for line := range strings.Lines(add) {
		line = strings.TrimSuffix(line, "\n")
		code, isRefusal := strings.CutPrefix(line, "# refused: code ")
		switch {
		case isRefusal:
			code, _, _ = strings.Cut(code, ":")
			refusals = append(refusals, code)
		case strings.HasPrefix(line, "# then "), strings.HasPrefix(line, "# tables "),
			strings.HasPrefix(line, "# warning"):
		default:
			steps = append(steps, line)
		}
	}
	if want := map[bool]int{false: 0, true: 3}[len(refusals) > 0]; status != want {
		t.Errorf("plan: exit status %d, want %d: %s", status, want, out)
	}
	return steps, refusals
}

// predictable takes out of a list of steps what is known only afterwards: the number of a rail's table, and link-local
// addresses, which the kernel makes when it gets round to it.
func predictable(steps []string) []string {
	table := regexp.MustCompile(`\b2\d{4}\b`)
	var out []string
	for _, s := range steps {
		if !strings.Contains(s, " fe80:") {
			out = append(out, table.ReplaceAllString(s, "TABLE"))
		}
	}
	return out
}

// carriedOut makes an attachment, compares every step of it with what plan has printed, and returns the device.
func carriedOut(t *testing.T, a *attachment) {
	t.Helper()
	want, refusals := planned(t, a)
	if len(refusals) > 0 || len(want) == 0 {
		t.Errorf("plan: refused with %v, steps %q", refusals, want)
	}
	trace := filepath.Join(t.TempDir(), "steps")
	c := a.call("ADD")
	c.Env = append(c.Env, "FABRIC_FAILPOINT_STEPS="+trace)
	a.prev = json.RawMessage(c.Must(t).Stdout)
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if diff := cmp.Diff(predictable(want), predictable(got)); diff != "" {
		t.Errorf("-planned +done:\n%s", diff)
	}
	a.call("CHECK").Must(t)
	a.del(t)
}

// refusedAlike compares the code that an ADD ends with to the first one that plan prints.
func refusedAlike(t *testing.T, a *attachment, code string) {
	t.Helper()
	_, refusals := planned(t, a)
	out := a.call("ADD").Exec(t)
	if out.Err == nil {
		t.Fatalf("ADD: %s", out)
	}
	if got := strconv.FormatUint(uint64(out.Err.Code), 10); got != code || len(refusals) == 0 || refusals[0] != code {
		t.Errorf("ADD: code %s, plan: %v, want %s: %s", got, refusals, code, out)
	}
	a.del(t)
}

// What plan prints is what ADD does, whatever the mode.
func TestCtlPlanIsCarriedOut(t *testing.T) {
	S1(t)
	Modprobe(t, "dummy")
	shell(t, "ip link add d1 type dummy; ip link set d1 mtu 3000 up")
	t.Cleanup(func() { shell(t, "ip link del d1") })
	Unchanged(t)
	allowVirtual(t)
	ips := static("10.0.0.1/24 via 10.0.0.254", "fd00::1/64")
	// Children first: one has the link-local address of its master, and the kernel would find a duplicate if the master
	// returned in the moment before, and still looked for others that have it.
	for _, c := range []struct {
		name   string
		fields config
	}{
		{"child", config{"mode": "ipoib", "master": "ibs108", "ipam": ips}},
		{"child, connected", config{"mode": "ipoib", "master": "ibs110", "ipam": ips}},
		{"child, settings", config{"mode": "ipoib", "master": "ibs110", "ipoibMode": "datagram", "umcast": true,
			"mtu": 1500, "pkey": "0x8001"}},
		{"child, rail", config{"mode": "ipoib", "master": "ibs112", "ipoibMode": "connected",
			"routing": config{"sourceBased": true}, "ipam": ips}},
		{"everything", config{"device": "ibs108", "rdmaName": "rail", "mtu": 2000,
			"routing": config{"sourceBased": true}, "ipam": ips}},
		{"as it is", config{"device": "ibs108"}},
		{"connected", config{"device": "ibs110", "ipam": ips}},
		{"umcast", config{"device": "ibs112", "ipam": ips}},
		{"kernel defaults", config{"device": "ibs114", "ipam": ips}},
		{"port down", config{"device": "ibs118", "allowDown": true}},
		{"plain", config{"device": "d1", "ipam": ips}},
		{"plain, settings", config{"device": "d1", "mtu": 1400, "mac": "02:00:00:00:00:17",
			"routing": config{"sourceBased": true}, "ipam": ips}},
		{"host-local", config{"device": "d1", "ipam": hostLocal("10.9.0.0/24")}},
		{"by RDMA device", config{"rdmaDevice": "mlx5_4"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := NewPod(t, "pod")
			carriedOut(t, interfaceOf(pod, "net1", network(c.fields)))
		})
	}
	t.Run("IPv6 is off", func(t *testing.T) {
		pod := NewPod(t, "pod")
		pod.sh(t, "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6")
		carriedOut(t, interfaceOf(pod, "net1", network(config{"device": "ibs108", "ipam": static("fd00::1/64")})))
	})
}

// In shared mode the RDMA device stays.
func TestToolSharedPlan(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	shell(t, "ip link set ib0 mtu 2000; ip link property add dev ib0 altname rail0")
	Unchanged(t)
	pod := NewPod(t, "pod")
	rail := config{"sourceBased": true}
	for _, fields := range []config{
		{"device": "ib0", "routing": rail, "ipam": static("10.0.0.1/24")},
		{"mode": "ipoib", "master": "ib0", "umcast": true, "ipam": static("10.0.0.1/24")},
	} {
		carriedOut(t, interfaceOf(pod, "net1", network(fields)))
	}
	refusedAlike(t, interfaceOf(pod, "net1", network(config{"device": "ib0", "rdma": "exclusive"})), "103")
}

// The kernel does not show the parent of a child that has the same ifindex in the pod as the parent on the host. DEL
// finds it all the same, also without its journal entry.
func TestSharedChildWithIndexOfItsParent(t *testing.T) {
	Modprobe(t, "dummy")
	Fabric{Num: 1}.Load(t)
	Unchanged(t)
	index := mustLink(t, Host(t), "ib0").Index
	for _, lost := range []bool{false, true} {
		pod := NewPod(t, fmt.Sprintf("pod-%t", lost))
		for i := 2; i < index; i++ { // one after the other is used up
			pod.sh(t, "ip link add name spare type dummy; ip link del spare")
		}
		a := interfaceOf(pod, "net1", network(config{"mode": "ipoib", "master": "ib0"}))
		a.add(t)
		if got := pod.link(t, "net1").Attrs().Index; got != index {
			t.Errorf("ifindex %d, want %d", got, index)
		}
		if lost {
			shell(t, "rm /run/fabric-cni/attachments/*")
		}
		a.del(t)
		if out := pod.sh(t, "ip link"); strings.Contains(out, "net1") {
			t.Errorf("in the pod after DEL: %s", out)
		}
	}
}

// In mode rdma the netdev that the move destroys gets everything back that the earlier plugin gave it.
func TestCtlPlanOfChainIsCarriedOut(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	first := interfaceOf(pod, "net1", network(config{"device": "ib1", "ipam": static("10.0.0.5/24")}))
	first.conf["type"] = "host-device"
	call := first.call("ADD")
	call.Plugin = "host-device"
	first.prev = json.RawMessage(call.Must(t).Stdout)
	second := interfaceOf(pod, "net1", network(config{"mode": "rdma", "rdmaName": "rail", "prevResult": first.prev}))
	carriedOut(t, second)
	second.add(t)
	unchain(t, first, second)
}

// Whatever ADD refuses, plan refuses with the same code.
func TestCtlPlanRefuses(t *testing.T) {
	S1(t)
	shell(t, "ip link add link ibs114 name kid type ipoib pkey 0x8001")
	t.Cleanup(func() { shell(t, "ip link del kid") })
	Unchanged(t)
	pod := NewPod(t, "pod")
	pod.sh(t, "ip link add taken type bridge")
	other := interfaceOf(NewPod(t, "other"), "net1", network(config{"device": "ibs112"}))
	other.add(t)
	defer other.del(t)
	child := interfaceOf(other.pod, "net2", network(config{"mode": "ipoib", "master": "ibs110"}))
	child.add(t)
	defer child.del(t)
	for name, c := range map[string]struct {
		fields config
		ifname string
		code   string
	}{
		"typo":                     {config{"devise": "ibs108"}, "", "7"},
		"no such device":           {config{"device": "ibs999"}, "", "100"},
		"in use":                   {config{"device": "ibs112"}, "", "101"},
		"host's children":          {config{"device": "ibs114"}, "", "101"},
		"a pod's children":         {config{"device": "ibs110"}, "", "101"},
		"port down":                {config{"device": "ibs116"}, "", "102"},
		"RDMA mode":                {config{"device": "ibs108", "rdma": "shared"}, "", "103"},
		"policy":                   {config{"device": "bond0"}, "", "104"},
		"name taken":               {config{"device": "ibs108"}, "taken", "4"},
		"VF setting":               {config{"device": "ibs108", "vlan": 7}, "", "7"},
		"not of vfio":              {config{"device": "ibs108", "vfioPciMode": true}, "", "7"},
		"master is no IPoIB":       {config{"mode": "ipoib", "master": "bond0"}, "", "7"},
		"master is a child":        {config{"mode": "ipoib", "master": "kid"}, "", "7"},
		"master's port down":       {config{"mode": "ipoib", "master": "ibs116"}, "", "102"},
		"master in a pod":          {config{"mode": "ipoib", "master": "ibs112"}, "", "101"},
		"partition":                {config{"mode": "ipoib", "master": "ibs108", "pkey": "0x7123"}, "", "102"},
		"ib-kubernetes":            {config{"device": "ibs108", "ibKubernetesEnabled": true}, "", "11"},
		"chain without a result":   {config{"mode": "rdma", "device": "ibs999"}, "", "100"},
		"chain, netdev at home":    {config{"mode": "rdma", "device": "ibs108"}, "", "101"},
		"chain, host's own RoCE":   {config{"mode": "rdma", "rdmaDevice": "mlx5_bond_0"}, "", "104"},
		"prevResult without a pod": {config{"mode": "rdma", "prevResult": config{"cniVersion": "1.1.0"}}, "", "7"},
	} {
		t.Run(name, func(t *testing.T) {
			ifname := "net1"
			if c.ifname != "" {
				ifname = c.ifname
			}
			refusedAlike(t, interfaceOf(pod, ifname, network(c.fields)), c.code)
		})
	}
}

// A VF's settings are steps like any others.
func TestToolVFPlan(t *testing.T) {
	vfs := VFHost(t, 3, Fabric{})
	Unchanged(t)
	pod := NewPod(t, "pod")
	for name, c := range map[string]config{
		"as it is":   vfConf(vfs[0], "", nil),
		"GUID":       vfConf(vfs[0], guidA, nil),
		"link state": vfConf(vfs[0], "", config{"linkState": "enable"}),
		"both":       vfConf(vfs[1], guidA, config{"linkState": "enable", "rdmaName": "rail", "mtu": 1500}),
	} {
		t.Run(name, func(t *testing.T) { carriedOut(t, interfaceOf(pod, "net1", c)) })
	}
	other := interfaceOf(NewPod(t, "other"), "net1", vfConf(vfs[1], guidA, nil))
	other.add(t)
	defer other.del(t)
	pf := SRIOVFunction{PCI: vfs[0].PF}
	for name, c := range map[string]struct {
		conf config
		code string
	}{
		"GUID of a pod":       {vfConf(vfs[0], guidA, nil), "101"},
		"VF in a pod":         {vfConf(vfs[1], "", nil), "101"},
		"PF of a VF in a pod": {vfConf(pf, "", nil), "101"},
		"GUID on that PF":     {vfConf(pf, guidB, nil), "101"},
		"vlan on InfiniBand":  {vfConf(vfs[0], "", config{"vlan": 7}), "7"},
		"vfio with a netdev":  {vfConf(vfs[0], "", config{"vfioPciMode": true}), "7"},
	} {
		t.Run(name, func(t *testing.T) { refusedAlike(t, interfaceOf(pod, "net1", c.conf), c.code) })
	}
}
