package agent

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/health"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// judged is a healthReconciler with one fabric and one device.
type judged struct {
	healthReconciler
	t        *testing.T
	clock    time.Time
	fabric   fabrics.Fabric
	device   survey.Device
	values   map[string]uint64
	view     *view
	registry *prometheus.Registry
}

func newJudged(t *testing.T, change func(*v1alpha1.Health)) *judged {
	t.Helper()
	h := v1alpha1.Health{}
	if change != nil {
		change(&h)
	}
	l, err := health.ParseLimits(&h, false)
	if err != nil {
		t.Fatal(err)
	}
	j := &judged{t: t, clock: time.Unix(1e9, 0), values: map[string]uint64{}, registry: prometheus.NewRegistry(),
		fabric: fabrics.Fabric{Name: "ib", Attachment: v1alpha1.WholeDevice, Health: *l}}
	j.device = rails(device.PortActive, 1)[0]
	j.device.HCA.Name = "mlx5_0"
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	node := survey.Node{Sys: os.DirFS(t.TempDir()), Store: journal.Store{Dir: t.TempDir()}}
	m, err := metrics.New(j.registry, node, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	j.healthReconciler = healthReconciler{
		judge: health.Judge{Settle: 30 * time.Second, Confirm: 5 * time.Second},
		saved: load(t, t.TempDir()), metrics: m, log: log, now: func() time.Time { return j.clock },
		counters: func(_ *survey.Device, names ...string) (out []survey.Counter, err error) {
			if j.values == nil {
				return nil, errors.New("no counters")
			}
			for _, n := range names {
				out = append(out, survey.Counter{Port: 1, Group: "counters", Name: n, Value: j.values[n]})
			}
			return out, nil
		},
	}
	return j
}

func (j *judged) look(times int) {
	for range times {
		j.clock = j.clock.Add(10 * time.Second)
		j.view = &view{fabrics: []fabrics.Fabric{j.fabric}, findings: &condition.Set{},
			assigned: map[string][]survey.Device{"ib": {j.device}}}
		j.reconcile(j.view)
	}
}

func (j *judged) port(state device.PortState) {
	j.device.HCA.Ports = slices.Clone(j.device.HCA.Ports)
	j.device.HCA.Ports[0].State = state
}

// wrong is the condition of the device.
func (j *judged) wrong(of condition.Reason) string {
	c, _ := j.view.findings.Get(of, condition.Device("a"))
	return c.Message
}

func (j *judged) usable() bool {
	return network.Units(&j.fabric, j.view.assigned["ib"])[0].Healthy
}

// The condition of a device says which one, what, who has it, and what to do. It is in the metrics, in the status, and
// in what the next agent knows.
func TestHealthSaid(t *testing.T) {
	j := newJudged(t, nil)
	j.device.Holder = &journal.Entry{Attached: true, MoveRDMA: true, Args: "K8S_POD_NAMESPACE=ml;K8S_POD_NAME=train-0"}
	j.device.Away = true
	j.look(2)
	for range 3 {
		j.port(device.PortDown)
		j.look(1)
		j.port(device.PortActive)
		j.look(1)
	}
	j.look(5)
	want := "fabric ib: mlx5_0 (a): the port left Active 3 times within 10 minutes; it is in pod ml/train-0; check " +
		"its cable, its transceiver and the port of the switch"
	if got := j.wrong(condition.Flapping); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if !j.usable() {
		t.Error("kubelet is told that it is unhealthy")
	}
	text := `# HELP fabric_device_unhealthy 1 for a device that pods should not use, with the reason.
# TYPE fabric_device_unhealthy gauge
fabric_device_unhealthy{device="a",fabric="ib",hca="mlx5_0",reason="Flapping"} 1
# HELP fabric_port_flaps_total How often the port of a device has left Active, moves into pods and back apart.
# TYPE fabric_port_flaps_total counter
fabric_port_flaps_total{device="a",fabric="ib",hca="mlx5_0"} 3
`
	err := testutil.GatherAndCompare(j.registry, strings.NewReader(text), "fabric_device_unhealthy",
		"fabric_port_flaps_total")
	if err != nil {
		t.Error(err)
	}
	if d := deviceOf(&j.view.assigned["ib"][0], nil); d.Problem != "Flapping" {
		t.Errorf("%+v", d)
	}
	if s := j.saved.Health["a"]; s.Problem != health.Flapping || len(s.Left) != 3 {
		t.Errorf("%+v", s)
	}
	j.look(60)
	if got := j.wrong(condition.Flapping); got != "" {
		t.Errorf("after ten minutes: %q", got)
	}
}

// With action Withhold no new pod gets a device that has a problem.
func TestHealthWithheld(t *testing.T) {
	for action, usable := range map[string]bool{"": true, "Withhold": false} {
		j := newJudged(t, func(h *v1alpha1.Health) { h.Action = action })
		for range 10 {
			j.values["symbol_error"] += 1000
			j.look(1)
		}
		if j.usable() != usable {
			t.Errorf("action %q: usable %t", action, j.usable())
		}
		got := j.wrong(condition.CounterLimit)
		if !strings.Contains(got, "symbol_error rose by ") || strings.Contains(got, "no new pod gets it") == usable {
			t.Errorf("action %q: %q", action, got)
		}
	}
}

// kubelet is told of a port that is Down at once, people when it stays so; with allowDown neither.
func TestHealthDown(t *testing.T) {
	j := newJudged(t, nil)
	j.look(1)
	j.port(device.PortDown)
	j.look(1)
	if j.usable() || j.wrong(condition.PortDown) != "" {
		t.Errorf("usable %t, %q", j.usable(), j.wrong(condition.PortDown))
	}
	j.look(1)
	if got := j.wrong(condition.PortDown); !strings.HasPrefix(got, "fabric ib: mlx5_0 (a) port is Down") {
		t.Errorf("%q", got)
	}
	j.fabric.Health.AllowDown = true
	j.look(1)
	if !j.usable() || j.wrong(condition.PortDown) != "" {
		t.Errorf("allowDown: usable %t, %q", j.usable(), j.wrong(condition.PortDown))
	}
}

// A port that was never Active is a note, for which no Event is made and the node is not less Ready.
func TestHealthNotConnected(t *testing.T) {
	j := newJudged(t, nil)
	j.port(device.PortDown)
	j.look(3)
	want := "fabric ib: mlx5_0 (a) port is Down (no state); it has never been Active: if it has a cable, check that, " +
		"its transceiver and the port of the switch"
	if got := j.wrong(condition.NotConnected); got != want || j.usable() {
		t.Errorf("usable %t, %q, want %q", j.usable(), got, want)
	}
	if wrong, notes := j.view.findings.Sum(); len(wrong) != 0 || len(notes) != 1 || condition.NotConnected.Event {
		t.Errorf("%d are wrong, %d notes", len(wrong), len(notes))
	}
	j.view.assigned["ib"][0].Unserved = "NoRange"
	if d := deviceOf(&j.view.assigned["ib"][0], nil); d.Problem != string(health.NotConnected) {
		t.Errorf("%+v", d)
	}
	j.saved.hear(&v1alpha1.FabricNode{Status: v1alpha1.FabricNodeStatus{Fabrics: []v1alpha1.NodeFabric{{Name: "ib",
		Devices: []v1alpha1.FabricDevice{{ID: "a"}}}}}}) // it was, before the boot
	j.look(1)
	if j.wrong(condition.NotConnected) != "" || j.wrong(condition.PortDown) == "" {
		t.Errorf("%q, %q", j.wrong(condition.NotConnected), j.wrong(condition.PortDown))
	}
}

// The way into a pod and back is no flap, whatever the port does on it; nor is it when the pod takes its Ethernet
// interface down and up.
func TestHealthMoves(t *testing.T) {
	j := newJudged(t, nil)
	j.device.HCA.Ports[0].LinkLayer, j.device.Netdev, j.device.AdminUp = device.Ethernet, "eth0", true
	j.look(2)
	for range 5 {
		j.device.Holder = &journal.Entry{MoveRDMA: true, Nonce: "1"} // ADD begins
		j.port(device.PortDown)
		j.look(2)
		j.device.Away = true
		j.look(2)
		j.device.Holder = &journal.Entry{MoveRDMA: true, Nonce: "1", Attached: true}
		j.look(2)
		j.port(device.PortActive)
		j.values[linkDowned] += 2
		j.look(4)
		for range 4 {
			j.device.AdminUp = false
			j.port(device.PortDown)
			j.look(1)
			j.device.AdminUp = true
			j.look(1) // the link trains
			j.port(device.PortActive)
			j.look(1)
		}
		j.port(device.PortDown) // DEL
		j.look(1)
		j.device.Away = false
		j.look(1)
		j.device.Holder = nil
		j.look(1)
		j.port(device.PortActive)
		j.look(4)
		if len(j.view.assigned["ib"][0].Problem) > 0 || j.judge.Flaps("a") > 0 {
			t.Fatalf("%s, %d flaps", j.view.assigned["ib"][0].Problem, j.judge.Flaps("a"))
		}
	}
	j.device.Stale = true // its pod dies
	j.port(device.PortDown)
	j.look(10)
	if p := j.view.assigned["ib"][0].Problem; p != health.None {
		t.Error(p)
	}
}

// Counters that can't be read say nothing, and the port is judged all the same.
func TestHealthNoCounters(t *testing.T) {
	j := newJudged(t, nil)
	j.values = nil
	j.look(2)
	j.port(device.PortDown)
	j.look(3)
	if j.wrong(condition.PortDown) == "" {
		t.Error("a port that is Down is not seen")
	}
}

// A device with a port that is down and another one that is not is degraded, if pods get all of its ports: no pod is
// kept from it, and the node is well.
func TestDegraded(t *testing.T) {
	j := newJudged(t, nil)
	d := &j.device
	d.AdminUp, d.OthersUp = true, []uint32{2}
	d.HCA.Ports = []device.Port{
		{Number: 1, State: device.PortActive, LinkLayer: device.Ethernet},
		{Number: 2, State: device.PortDown, Phys: device.PhysDisabled, LinkLayer: device.Ethernet},
	}
	said := func(what string, want bool) {
		t.Helper()
		f, found := j.view.findings.Get(condition.PortDegraded, condition.Device(d.ID()))
		if found != want || want && !strings.Contains(f.Message, "port 2 is Down (Disabled)") {
			t.Errorf("%s: found %t: %s", what, found, f.Message)
		}
		if n, err := testutil.GatherAndCount(j.registry, "fabric_device_degraded"); err != nil || (n > 0) != want {
			t.Errorf("%s: fabric_device_degraded for %d devices, %v", what, n, err)
		}
	}
	j.look(9)
	said("a fabric whose pods get one port", false)
	j.fabric.AllPorts = true
	j.look(3)
	said("for 30 s", false)
	j.look(1)
	said("for longer", true)
	d.OthersUp = nil
	j.look(9)
	said("an interface that is down", false)
	d.OthersUp, d.HCA.Ports[0].State = []uint32{2}, device.PortDown
	j.look(9)
	said("both", false)
	if p := network.Problem(&j.fabric, d); p != health.PortDown {
		t.Errorf("a device without a port that carries traffic: %q", p)
	}
}
