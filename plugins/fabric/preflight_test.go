package fabric_test

import (
	"encoding/json"
	"io/fs"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/plugins/fabric"
)

// Preflight says before a pod starts what its ADD would say, and changes nothing.
func TestPreflight(t *testing.T) {
	t.Parallel()
	n := claimNode(t)
	n.prepare(t, podUID, claimUID, rail("v0"))
	n.must(t, n.call("ADD", confOf("1.1.0", `"device":"v1"`)))
	conf := []byte(confOf("1.1.0", `"allocation":"DRA"`))
	device := func(name, settings string) prepared.Device {
		d := rail(name)
		d.Network = json.RawMessage(settings)
		return d
	}
	requests := []fabric.PreflightRequest{
		{Conf: conf, Device: rail("v0"), PodUID: podUID},
		{Conf: conf, Device: rail("v0"), PodUID: "other"},
		{Conf: conf, Device: rail("v1"), PodUID: podUID},
		{Conf: conf, Device: device("v2", `{"mtu":"x"}`), PodUID: podUID},
		{Conf: conf, Device: device("v2", `{"mtu":1400,"rdma":"exclusive"}`), PodUID: podUID},
		{Conf: conf, Device: rail("v7"), PodUID: podUID},
		{Conf: []byte(confOf("1.1.0", `"allocation":"DRA","mode":"ipoib","master":"ib0"`)), Device: rail("v2")},
		{Conf: []byte(`{`), Device: rail("v2")},
		{Conf: conf, Device: rail("v2"), PodUID: podUID},
	}
	want := []string{
		"", "given to pod default/p-" + podUID, "in use by container c1 as net1", `field "mtu": value "x"`,
		"has no RDMA device", "no such device", "is no IPoIB interface", "not valid JSON", "",
	}
	before := n.files(t)
	p := fabric.Plugin{StateDir: n.state, Policy: sandbox.PolicyFile(t, sandbox.AllowVirtual)}
	var got []fabric.PreflightResult
	err := n.host.Open(t).DoWithSys(func(fs.FS) (err error) {
		got, err = p.Preflight(requests)
		return err
	})
	if err != nil || len(got) != len(want) {
		t.Fatal(got, err)
	}
	for i, w := range want {
		first := got[i].First()
		if (first == nil) != (w == "") || first != nil && !strings.Contains(first.Error(), w) {
			t.Errorf("%d: %v, want %q", i, first, w)
		}
	}
	for i, passing := range map[int]bool{1: true, 2: true, 4: false, 5: false} {
		if r := got[i].Refusals; len(r) == 0 || r[0].Passing != passing {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if after := n.files(t); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("on file: %v, was %v", after, before)
	}
	n.must(t, n.call("DEL", confOf("1.1.0", `"device":"v1"`)))
	n.unprepare(t, claimUID)
	n.same(t, "afterwards")
}
