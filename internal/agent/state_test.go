package agent

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/noderange"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// load reads the state of an earlier agent.
func load(t *testing.T, dir string) *savedState {
	t.Helper()
	s, err := loadState(dir)
	if err != nil {
		t.Log(err)
	}
	return s
}

func inForce(t *testing.T, dir string) (out []string, unreadable string) {
	t.Helper()
	r := fabricsReconciler{saved: load(t, dir), log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	var findings condition.Set
	for _, f := range r.reconcile(&findings) {
		out = append(out, f.Name)
	}
	c, _ := findings.Get(condition.FabricUnreadable, condition.Fabric("newer"))
	return out, c.Message
}

// matched is the spec of a Fabric, with a match.
func matched(s v1alpha1.FabricSpec) v1alpha1.FabricSpec {
	s.Match.Discovered = "ib-200g"
	return s
}

// Without an API server the last fabrics and ranges that it told of stay in force, also in the next agent.
func TestSavedState(t *testing.T) {
	dir := t.TempDir()
	s := load(t, dir)
	s.Fabrics = []savedFabric{
		{Name: "a", Generation: 3, Spec: matched(v1alpha1.FabricSpec{Attachment: v1alpha1.IPoIBChild})},
		{Name: "newer", Generation: 1, Spec: matched(v1alpha1.FabricSpec{Attachment: "split"})},
		{Name: "b", Generation: 1, Spec: matched(v1alpha1.FabricSpec{Precedence: 1})},
	}
	s.Ranges = []v1alpha1.AssignedRange{{Fabric: "a", Subnet: "10.0.0.0/16", Range: "10.0.4.0/26"}}
	if err := s.save(); err != nil {
		t.Fatal(err)
	}
	got, unreadable := inForce(t, dir)
	if !slices.Equal(got, []string{"b", "a"}) ||
		!strings.Contains(unreadable, `attachment "split": must be WholeDevice or IPoIBChild`) {
		t.Errorf("%v, %q", got, unreadable)
	}
	r := rangeReconciler{saved: load(t, dir)}
	f := &fabrics.Fabric{Name: "a", NodeRanges: rangeOf(t)}
	if own, err := r.own(f); err != nil || own[0].String() != "10.0.4.0/26" {
		t.Errorf("%v, %v", own, err)
	}
	f.NodeRanges.Ranges[0].Bits = 27 // it was given for other settings
	if own, err := r.own(f); err == nil {
		t.Errorf("%v", own)
	}
	if err := os.WriteFile(filepath.Join(dir, stateName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := inForce(t, dir); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// A Fabric that a newer controller has accepted and this agent can't read stays as it was, which is said, and survives
// a restart; one that is gone goes.
func TestNewerFabric(t *testing.T) {
	dir := t.TempDir()
	var list []*v1alpha1.Fabric
	told := func(name string, generation int64, spec v1alpha1.FabricSpec) {
		o := &v1alpha1.Fabric{}
		o.Name, o.Generation = name, generation
		o.Status.InForce = &v1alpha1.FabricInForce{Generation: generation, Spec: spec}
		list = append(list, o)
	}
	look := func() (string, string) {
		t.Helper()
		r := fabricsReconciler{saved: load(t, dir), log: slog.New(slog.NewTextHandler(t.Output(), nil)), now: time.Now}
		r.told = func() ([]*v1alpha1.Fabric, bool) { return list, list != nil }
		findings := &condition.Set{}
		got := ""
		for _, f := range r.reconcile(findings) {
			got += fmt.Sprint(f.Name, " ", f.Generation, " ", f.Attachment, ";")
		}
		c, _ := findings.Get(condition.FabricUnreadable, condition.Fabric("a"))
		return got, c.Message
	}
	told("a", 1, matched(v1alpha1.FabricSpec{Attachment: v1alpha1.IPoIBChild}))
	told("b", 1, matched(v1alpha1.FabricSpec{}))
	if got, said := look(); got != "a 1 IPoIBChild;b 1 WholeDevice;" || said != "" {
		t.Errorf("%q, %q", got, said)
	}
	list = nil
	told("a", 2, matched(v1alpha1.FabricSpec{Health: v1alpha1.Health{Action: "Reboot"}}))
	for range 2 { // the second one is an agent that has been restarted
		got, said := look()
		if got != "a 1 IPoIBChild;" || !strings.Contains(said, "can't read generation 2 of Fabric a") ||
			!strings.Contains(said, `health.action "Reboot"`) {
			t.Errorf("%q, %q", got, said)
		}
	}
	list = nil // the API server is away
	if got, said := look(); got != "a 1 IPoIBChild;" || said != "" {
		t.Errorf("%q, %q", got, said)
	}
}

// How many addresses of the node's own ranges are given is in the status and in the metrics.
func TestRangesGiven(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"10.0.4.1", "10.0.4.2", "10.0.4.3", "lock", "last_reserved_ip.0"} {
		if err := os.MkdirAll(filepath.Join(dir, "a"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "a", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	registry := prometheus.NewRegistry()
	node := survey.Node{Sys: os.DirFS(dir), Store: journal.Store{Dir: dir}}
	m, err := metrics.New(registry, node, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r := rangeReconciler{ipamDir: dir, metrics: m, saved: &savedState{
		Ranges: []v1alpha1.AssignedRange{{Fabric: "a", Subnet: "10.0.0.0/16", Range: "10.0.4.0/26"}},
	}}
	f := fabrics.Fabric{Name: "a", Attachment: v1alpha1.WholeDevice, NodeRanges: rangeOf(t)}
	b := f
	b.Name = "b"
	v := &view{fabrics: []fabrics.Fabric{f, b}, findings: &condition.Set{},
		assigned: map[string][]survey.Device{"a": rails(device.PortActive, 1), "b": rails(device.PortActive, 1)}}
	r.reconcile(v)
	if v.given["a"] != 3 || v.given["b"] != 0 {
		t.Errorf("%v", v.given)
	}
	if c, _ := v.findings.Get(condition.NoRange, condition.Fabric("b")); c.Reason.Name != "NoRange" {
		t.Errorf("%+v", c)
	}
	want := `# HELP fabric_pool_addresses Addresses that the node's own range of a fabric has, with nodeRanges.
# TYPE fabric_pool_addresses gauge
fabric_pool_addresses{fabric="a",range="10.0.4.0/26"} 64
# HELP fabric_pool_allocated Addresses of fabric_pool_addresses that are allocated.
# TYPE fabric_pool_allocated gauge
fabric_pool_allocated{fabric="a",range="10.0.4.0/26"} 3
`
	err = testutil.GatherAndCompare(registry, strings.NewReader(want), "fabric_pool_addresses", "fabric_pool_allocated")
	if err != nil {
		t.Error(err)
	}
}

func rails(state device.PortState, n int) (out []survey.Device) {
	for i := range n {
		out = append(out, survey.Device{Location: device.LocationOnPCI(string(rune('a' + i))), RateGb: 200,
			HCA: device.HCA{Ports: []device.Port{{Number: 1, State: state, LinkLayer: device.InfiniBand}}}})
	}
	return out
}

// The fabric that a port was in when it was last up is known after a restart.
func TestDevicesRemembered(t *testing.T) {
	dir := t.TempDir()
	s := load(t, dir)
	for fabric, devices := range map[string][]survey.Device{
		"fast": rails(device.PortActive, 2), "slow": rails(device.PortDown, 1),
	} {
		if err := s.setDevices(map[string][]survey.Device{fabric: devices}); err != nil {
			t.Fatal(err)
		}
	}
	s = load(t, dir)
	if s.Devices["a"] != "fast" || s.Devices["b"] != "fast" {
		t.Errorf("%v", s.Devices)
	}
}

// What the node's own FabricNode had before a boot says which ports were Active: it is read once.
func TestHear(t *testing.T) {
	own := &v1alpha1.FabricNode{}
	own.Status.Fabrics = []v1alpha1.NodeFabric{{Name: "fast", Devices: []v1alpha1.FabricDevice{
		{ID: "a"}, {ID: "b", Problem: "PortDown"}, {ID: "c", Problem: "NotConnected"}, {ID: "d"}}}}
	s := &savedState{Devices: map[string]string{"d": "slow"}}
	s.hear(own)
	if want := map[string]string{"a": "fast", "b": "fast", "d": "slow"}; !maps.Equal(s.Devices, want) {
		t.Errorf("%v, want %v", s.Devices, want)
	}
	own.Status.Fabrics[0].Devices[2].Problem = ""
	if s.hear(own); s.wasActive("c") {
		t.Error("it is read again")
	}
	new(savedState).hear(nil)
	new(savedState).hear(own)
}

// What ADD refuses makes the agent not ready; a device that pods could not use is unhealthy for kubelet.
func TestModes(t *testing.T) {
	const whole, shared = v1alpha1.WholeDevice, v1alpha1.IPoIBChild
	for _, tt := range []struct {
		mode             v1alpha1.Attachment
		rdma             any
		node             device.NetnsMode
		refused, useless bool
		want             string
	}{
		{whole, "exclusive", device.NetnsShared, true, true, `: "rdma" is "exclusive", but the system's`},
		{whole, nil, device.NetnsShared, false, false, "hands out whole devices"},
		{whole, "auto", device.NetnsShared, false, false, "hands out whole devices"},
		{whole, "shared", device.NetnsShared, false, false, ""},
		{whole, "shared", device.NetnsExclusive, true, true, "mode is exclusive"},
		{whole, "exclusive", device.NetnsExclusive, false, false, ""},
		{shared, nil, device.NetnsShared, false, false, ""},
		{shared, nil, device.NetnsExclusive, false, true, "device files and no RDMA device"},
		{shared, "auto", device.NetnsExclusive, false, true, "netns_mode=1"},
		{shared, "shared", device.NetnsExclusive, true, true, "mode is exclusive"},
		{shared, "none", device.NetnsExclusive, false, false, ""},
	} {
		f := fabrics.Fabric{Name: "f", Attachment: tt.mode, Network: map[string]any{}}
		if tt.rdma != nil {
			f.Network["rdma"] = tt.rdma
		}
		got := modeOf(&f, tt.node)
		if got.refused != tt.refused || got.useless != tt.useless || (got.err == nil) != (tt.want == "") ||
			got.err != nil && !strings.Contains(got.err.Error(), tt.want) {
			t.Errorf("%+v: %+v", tt, got)
		}
	}
}

func rangeOf(t *testing.T) *noderange.Spec {
	t.Helper()
	return &noderange.Spec{
		Fabric: "a", Ranges: []noderange.Range{{Prefix: netip.MustParsePrefix("10.0.0.0/16"), Bits: 26}},
	}
}

// A Fabric with a nodeSelector is in force where the controller has written so, which survives a restart of the agent
// and an API server that is away.
func TestNodeSelector(t *testing.T) {
	dir := t.TempDir()
	o := &v1alpha1.Fabric{}
	o.Name = "ib"
	o.Status.InForce = &v1alpha1.FabricInForce{Spec: matched(v1alpha1.FabricSpec{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "h20"}},
	})}
	var selected []string
	known := true
	look := func(want int) {
		t.Helper()
		r := fabricsReconciler{
			told:     func() ([]*v1alpha1.Fabric, bool) { return []*v1alpha1.Fabric{o}, known },
			selected: func() ([]string, bool) { return selected, known },
			saved:    load(t, dir), log: slog.New(slog.NewTextHandler(t.Output(), nil)), now: time.Now,
		}
		if got := r.reconcile(&condition.Set{}); len(got) != want {
			t.Errorf("selected %v, known %t: %d fabrics, want %d", selected, known, len(got), want)
		}
	}
	look(0)
	selected = []string{"another", "ib"}
	look(1)
	selected, known = nil, false
	look(1)
	known = true
	look(0)
}

// After a reboot without an API server nothing is known: that is said, and the agent is not ready. What an earlier
// agent has saved is in force at once.
func TestFabricsUnknown(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	var list []*v1alpha1.Fabric
	known := false
	r := fabricsReconciler{
		told: func() ([]*v1alpha1.Fabric, bool) { return list, known }, saved: load(t, dir),
		log: slog.New(slog.NewTextHandler(t.Output(), nil)), now: func() time.Time { return now },
	}
	look := func(wantReady bool, want int) {
		t.Helper()
		var set condition.Set
		reporter := condition.Reporter{Log: r.log}
		got := r.reconcile(&set)
		reporter.Report(&set)
		why := strings.Join(reporter.NotReady(), " ")
		if len(got) != want || (why == "") != wantReady {
			t.Errorf("%d fabrics, not ready: %q", len(got), why)
		}
		if !wantReady && !strings.Contains(why, "the API server has not said which Fabrics there are, and "+dir) {
			t.Error(why)
		}
	}
	look(true, 0) // it has had no time yet
	now = now.Add(tellBy)
	look(false, 0)
	known = true
	look(true, 0) // there is no Fabric
	list = []*v1alpha1.Fabric{{Status: v1alpha1.FabricStatus{InForce: &v1alpha1.FabricInForce{
		Generation: 1, Spec: matched(v1alpha1.FabricSpec{}),
	}}}}
	list[0].Name, list[0].Generation = "a", 2 // of which the second generation is refused
	look(true, 1)
	r.saved, r.began, known = load(t, dir), time.Time{}, false
	now = now.Add(tellBy)
	look(true, 1)
	now = now.Add(tellBy)
	look(true, 1)
}
