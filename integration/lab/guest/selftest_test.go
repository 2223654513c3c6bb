//go:build labguest

package guest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// selftestReport is what a test looks at of the report of fabricctl selftest.
type selftestReport struct {
	RDMAMode string
	Restored bool
	Adapters []struct{ Device, LinkLayer, Interface, State string }
	Steps    []struct {
		Device, Name, Result, Text string
		Diff                       []string
		Missed                     bool
	}
}

// selftest runs fabricctl selftest without a question, and returns its report.
func selftest(t *testing.T, status int, devices string) (r selftestReport, text string) {
	t.Helper()
	text = ctl(t, status, "selftest", "--devices", devices, "--yes", "--bin-dir", BinDir(), "-o", "json")
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("selftest: %v: %s", err, text)
	}
	return r, text
}

// result is how a step of a device ended.
func (r *selftestReport) result(device, name string) string {
	for _, s := range r.Steps {
		if s.Device == device && s.Name == name {
			return s.Result
		}
	}
	return ""
}

// passes wants that every step has passed, but for the measurement that needs programs which this guest may not have.
func (r *selftestReport) passes(t *testing.T) {
	t.Helper()
	for _, s := range r.Steps {
		if s.Result != "PASS" {
			t.Errorf("%s %s: %s: %s\n%s", s.Device, s.Name, s.Result, s.Text, strings.Join(s.Diff, "\n"))
		}
	}
	if !r.Restored {
		t.Error("the host is not restored")
	}
}

// Two rails of the node S1, with all that there is to lose: every step passes, they ping each other, and the report has
// no address.
func TestSelftest(t *testing.T) {
	S1(t)
	Unchanged(t)
	r, text := selftest(t, 0, "mlx5_0,ibs114")
	r.passes(t)
	steps := []string{"wrong-config", "attach", "verbs", "check", "return", "pod-death", "repair", "kill"}
	for _, d := range []string{"mlx5_0", "ibs114"} {
		for _, s := range steps {
			if r.result(d, s) == "" {
				t.Errorf("%s has no step %s", d, s)
			}
		}
	}
	if r.result("", "traffic") == "" || r.RDMAMode != "exclusive" || len(r.Adapters) != 2 ||
		r.Adapters[0].LinkLayer != "InfiniBand" || r.Adapters[0].State != "Active" {
		t.Errorf("report: %s", text)
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"10.8.0", "fd00:8", "192.0.2.", `"` + name + `"`} {
		if strings.Contains(text, secret) {
			t.Errorf("the report has %s: %s", secret, text)
		}
	}
}

// What the plugin refuses is not touched: no plugin, a device of a pod, of the default route, or one that there is not.
func TestSelftestRefuses(t *testing.T) {
	S1(t)
	before := Unchanged(t)
	ctl(t, 1, "selftest", "--devices", "mlx5_0", "--yes", "--bin-dir", t.TempDir())
	ctl(t, 1, "selftest", "--devices", "mlx5_99", "--yes", "--bin-dir", BinDir())
	ctl(t, 1, "selftest", "--devices", "bond0", "--yes", "--bin-dir", BinDir())
	ctl(t, 1, "selftest", "--devices", "mlx5_0", "--bin-dir", BinDir()) // the answer is not yes
	Same(t, before)
	a := interfaceOf(NewPod(t, "pod"), "net1", network(config{"device": "ibs108"}))
	a.add(t)
	ctl(t, 1, "selftest", "--devices", "mlx5_0", "--yes", "--bin-dir", BinDir())
	a.call("CHECK").Must(t)
	a.del(t)
}

// A plugin whose DEL does not bring everything back: the report says what, and the rest is not done.
func TestSelftestFinds(t *testing.T) {
	S1(t)
	before := Unchanged(t)
	dir := t.TempDir()
	shell(t, "cat >"+dir+"/fabric <<'EOF'\n#!/bin/sh\n"+filepath.Join(BinDir(), "fabric")+" || exit\n"+
		"[ $CNI_COMMAND != DEL ] || ip link set ibs108 group 5\nEOF\nchmod 755 "+dir+"/fabric")
	text := ctl(t, 3, "selftest", "--devices", "mlx5_0", "--yes", "--bin-dir", dir)
	if !containsAll(text, "the host is not what it was", "- ibs108 group: 0", "+ ibs108 group: 5", "To do by hand") {
		t.Errorf("selftest: %s", text)
	}
	shell(t, "ip link set ibs108 group 0")
	Same(t, before)
}

// With the programs of rdma-core and perftest the two namespaces do RDMA, too.
func TestVerifySelftest(t *testing.T) {
	UserLand(t)
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	r, text := selftest(t, 0, "mlx5_0,mlx5_1")
	r.passes(t)
	if !containsAll(text, "ping reachable", "rping reachable") {
		t.Errorf("traffic: %s", text)
	}
}

// RoCE: interface and RDMA device come back together.
func TestVerifySelftestRoCE(t *testing.T) {
	UserLand(t)
	nics := nics(t, "e1000e")
	eth := []string{nics[0].Attrs().Name, nics[1].Attrs().Name}
	Fabric{RoCE: eth, RoCEVerbs: true}.Load(t)
	shell(t, "ip link set "+eth[0]+" up; ip link set "+eth[1]+" up; ip address add 10.7.0.1/24 dev "+eth[0])
	t.Cleanup(func() {
		shell(t, "ip address flush dev "+eth[0]+"; ip link set "+eth[0]+" down; ip link set "+eth[1]+" down")
	})
	for _, name := range eth {
		Until(t, name+" has a carrier", func() error {
			b, err := os.ReadFile("/sys/class/net/" + name + "/carrier")
			if err == nil && strings.TrimSpace(string(b)) != "1" {
				err = fmt.Errorf("carrier %s", b)
			}
			return err
		})
	}
	Unchanged(t)
	r, text := selftest(t, 0, strings.Join(eth, ","))
	r.passes(t)
	if !containsAll(text, "rping reachable", `"linkLayer": "Ethernet"`) || strings.Contains(text, "10.7.0") {
		t.Errorf("traffic: %s", text)
	}
}

// In shared mode the RDMA devices stay, and the interfaces come back all the same.
func TestToolSharedSelftest(t *testing.T) {
	RequireMode(t, "shared")
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	r, text := selftest(t, 0, "mlx5_0,mlx5_1")
	r.passes(t)
	if r.RDMAMode != "shared" {
		t.Errorf("report: %s", text)
	}
}
